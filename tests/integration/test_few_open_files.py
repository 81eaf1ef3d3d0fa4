"""A real broker that may open few files: what it cannot open it refuses, and it serves and keeps all the rest."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import httpx
import pytest
from stele import Client
from stele.testing import BrokerProcess, run_broker

from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, only_partition, produce
from tests.support.waiting import eventually

# The broker and its libraries open about 60.
FILES = 224
TOPIC_PARTITIONS = 12
# What connections leave of so few to the logs.
RESERVED_FILES = 64


def _spawn_with_few_files(
    self: BrokerProcess, arguments: list[str], stderr: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    del self
    return subprocess.Popen(
        ["sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", sys.executable, "-m", "stele.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
    )


@pytest.fixture
def small_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[BrokerProcess]:
    monkeypatch.setattr(BrokerProcess, "spawn", _spawn_with_few_files)
    with run_broker(tmp_path / "data") as broker:
        yield broker


class Ledger:
    """The records that were acknowledged, each in a topic of its own value."""

    def __init__(self) -> None:
        self.values: dict[str, list[str]] = {}

    def put(self, http: httpx.Client, topic: str) -> None:
        values = self.values.setdefault(topic, [])
        value = str(len(values))
        answer = http.post(
            f"/v1/topics/{topic}/records?acks=all", json={"records": [{"value": value, "partition": 0}]}
        )
        assert answer.status_code == 200, answer.text
        values.append(value)

    def check(self, http: httpx.Client) -> None:
        listed = http.get("/v1/topics", params={"limit": 1000}).json()["topics"]
        assert {topic["name"] for topic in listed} == set(self.values)
        for topic, values in self.values.items():
            answer = http.get(f"/v1/topics/{topic}/partitions/0/records", params={"limit": 1000})
            assert answer.status_code == 200, answer.text
            assert [record["value"] for record in answer.json()["records"]] == values


def refused_as_retriable(answer: httpx.Response) -> None:
    problem = answer.json()
    assert answer.status_code in (503, 507), answer.text
    assert problem["retriable"] is True, problem
    assert "open" in problem["detail"], problem


@pytest.mark.cold_start
def test_topics_and_clients_beyond_the_files_that_it_may_open_are_refused_and_all_others_served(
    small_broker: BrokerProcess,
) -> None:
    ledger = Ledger()
    with httpx.Client(base_url=small_broker.http_url) as http, ExitStack() as stack:
        refused = None
        for number in range(FILES // TOPIC_PARTITIONS + 1):
            answer = http.put(f"/v1/topics/t{number}", json={"partitions": TOPIC_PARTITIONS})
            if answer.status_code != 201:
                refused = answer
                break
            ledger.put(http, f"t{number}")
        assert refused is not None
        assert len(ledger.values) > 3
        assert refused.status_code < 500, refused.text
        assert "ulimit" in refused.json()["detail"]
        peer = stack.enter_context(KafkaPeer(small_broker))
        client = stack.enter_context(Client(small_broker.binary_url))
        client.simple_produce("t0", b"x")
        ledger.values["t0"].append("x")
        # Those that come after are closed at once, and take few of the files that are kept for the logs.
        files = Path(f"/proc/{small_broker.pid}/fd")
        most = 0
        for _ in range(2 * FILES):
            stack.enter_context(socket.create_connection((small_broker.host, small_broker.kafka_port)))
            most = max(most, sum(1 for _ in files.iterdir()))
        assert most < FILES - RESERVED_FILES // 2
        for topic in list(ledger.values):
            ledger.put(http, topic)
        assert not only_partition(peer.call(produce("t1", batch_of([b"y"])), 9)).error_code
        ledger.values["t1"].append("y")
        client.simple_produce("t0", b"z")
        ledger.values["t0"].append("z")
        ledger.check(http)
    small_broker.kill()
    small_broker.start()
    with httpx.Client(base_url=small_broker.http_url) as http:
        ledger.check(http)
        for topic in list(ledger.values):
            ledger.put(http, topic)
        assert http.get("/readyz").status_code == 200
        # One topic less makes room for another one.
        assert http.delete("/v1/topics/t0").status_code == 204
        assert http.put("/v1/topics/t0", json={"partitions": TOPIC_PARTITIONS}).status_code == 201


def partitions(http: httpx.Client, topic: str) -> int:
    return len(http.get(f"/v1/topics/{topic}").json()["partitions"])


CHANGES: dict[str, Callable[[httpx.Client], httpx.Response]] = {
    "new": lambda http: http.put("/v1/topics/new", json={"partitions": 3}),
    "grown": lambda http: http.patch("/v1/topics/grown", json={"partitions": 2}),
    "purged": lambda http: http.delete("/v1/topics/purged/partitions/0/records?before=1"),
    "configured": lambda http: http.patch(
        "/v1/topics/configured", json={"configs": {"retention.ms": "9999999999"}}
    ),
}


def test_a_change_that_meets_the_limit_on_open_files_is_done_or_refused_and_stops_nothing(
    tmp_path: Path,
) -> None:
    """The limit is lowered to every number between none to spare and enough."""
    ledger = Ledger()
    with run_broker(tmp_path / "data") as broker:
        with httpx.Client(base_url=broker.http_url) as http, KafkaPeer(broker) as peer:
            for topic in ("grown", "purged", "configured"):
                assert http.put(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 201
                ledger.put(http, topic)
                ledger.put(http, topic)
            files = Path(f"/proc/{broker.pid}/fd")
            limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
            open_files = max(int(path.name) for path in files.iterdir()) + 1
            left = set(CHANGES)
            for spare in range(24):
                for change in sorted(left):
                    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (open_files + spare, limits[1]))
                    answer = CHANGES[change](http)
                    for topic in ("grown", "configured"):
                        ledger.put(http, topic)
                    assert not only_partition(peer.call(produce("grown", batch_of([b"k"])), 9)).error_code
                    ledger.values["grown"].append("k")
                    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
                    if answer.status_code < 300:
                        left.discard(change)
                    else:
                        refused_as_retriable(answer)
                        assert partitions(http, "grown") == (1 if "grown" in left else 2)
            assert not left
            ledger.values["new"] = []
            ledger.values["purged"] = ledger.values["purged"][1:]
            eventually(lambda: http.get("/readyz").status_code == 200, "the broker is ready")
            ledger.check(http)
        broker.kill()
        broker.start()
        with httpx.Client(base_url=broker.http_url) as http:
            ledger.check(http)
            assert partitions(http, "new") == 3
