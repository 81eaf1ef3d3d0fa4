"""A share group as a queue over HTTP: locks that any client may settle, beside members of Kafka (ADR-0045)."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.broker_process import BrokerProcess, run_broker

from tests.support.kafka_peer import KafkaPeer, create_topic, put
from tests.support.share_groups import ACCEPT, Member, configure, offsets_of
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

_names = count(1)


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        yield http


@pytest.fixture
def topic(peer: KafkaPeer) -> str:
    name = f"queue-{next(_names)}"
    create_topic(peer, name, 2)
    return name


class Queue:
    def __init__(self, http: httpx.Client, group: str, *topics: str) -> None:
        self.http, self.group, self.topics = http, group, topics

    def call(self, action: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/v1/groups/{self.group}/share/{action}", json=body)

    def poll(self, **body: Any) -> dict[str, Any]:
        answer = self.call("poll", **({"topics": list(self.topics), "from": "earliest"} | body))
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def settle(self, action: str, lock: str, *records: dict[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {"lock": lock}
        if records:
            body["records"] = [
                {name: one[name] for name in ("topic", "partition", "offset")} for one in records
            ]
        answer = self.call(action, **body)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def described(self) -> dict[str, Any]:
        told: dict[str, Any] = self.http.get(f"/v1/groups/{self.group}").json()
        return told


@pytest.fixture
def queue(http: httpx.Client, topic: str) -> Queue:
    return Queue(http, f"queue-group-{next(_names)}", topic)


def offsets(told: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(one["partition"], one["offset"], one["deliveries"]) for one in told["records"]]


def test_records_are_taken_and_finished_one_by_one(peer: KafkaPeer, queue: Queue, topic: str) -> None:
    put(peer, topic, b"a", b"\xff", b"c")
    told = queue.poll()
    assert offsets(told) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert [one.get("value") for one in told["records"]] == ["a", None, "c"]
    assert base64.b64decode(told["records"][1]["value_b64"]) == b"\xff"
    assert told["expires_at"] > time.time() * 1000
    assert told["expires_in_ms"] == 30_000
    assert queue.poll() == {"records": [], "lock": None, "expires_at": None, "expires_in_ms": None}
    first, second, third = told["records"]
    assert queue.settle("ack", told["lock"], third) == {"records": 1}
    assert queue.settle("release", told["lock"], first) == {"records": 1}
    assert queue.settle("reject", told["lock"], second) == {"records": 1}
    again = queue.poll()
    assert offsets(again) == [(0, 0, 2)]
    assert queue.settle("ack", again["lock"]) == {"records": 1}
    assert queue.poll()["records"] == []


def test_the_group_shows_what_is_in_flight_and_what_is_left(
    broker: BrokerProcess, peer: KafkaPeer, queue: Queue, topic: str
) -> None:
    put(peer, topic, *[b"x"] * 10)
    told = queue.poll(max_records=4)
    assert len(told["records"]) == 4
    queue.settle("ack", told["lock"], told["records"][3])
    described = queue.described()
    assert (described["type"], described["state"], described["lag"]) == ("share", "Empty", 9)
    assert [
        (one["partition"], one["committed"], one["in_flight"], one["lag"]) for one in described["partitions"]
    ] == [(0, 0, 3, 9), (1, 0, 0, 0)]
    shown = run_stele("groups", "describe", queue.group, "--url", broker.http_url).stdout.decode()
    assert "lag 9 records" in shown
    assert "in flight" in shown
    assert [f"{topic}-0", "0", "10", "9", "3"] in [line.split() for line in shown.splitlines()]
    listed = {one["group"]: one["type"] for one in queue.http.get("/v1/groups").json()["groups"]}
    assert listed[queue.group] == "share"


def test_a_limit_of_records_holds_within_a_batch(peer: KafkaPeer, queue: Queue, topic: str) -> None:
    put(peer, topic, *[b"x"] * 10)
    assert offsets(queue.poll(max_records=3)) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert offsets(queue.poll(max_records=2)) == [(0, 3, 1), (0, 4, 1)]


def test_a_partition_with_many_records_keeps_no_other_waiting(
    peer: KafkaPeer, queue: Queue, topic: str
) -> None:
    put(peer, topic, *[b"x"] * 100)
    put(peer, topic, b"y", partition=1)
    taken = [offsets(queue.poll(max_records=2)) for _ in range(2)]
    assert taken == [[(0, 0, 1), (0, 1, 1)], [(1, 0, 1), (0, 2, 1)]]


def test_an_append_ends_the_wait_of_a_poll(
    broker: BrokerProcess, peer: KafkaPeer, queue: Queue, topic: str
) -> None:
    assert queue.poll()["records"] == []
    found: list[dict[str, Any]] = []

    def wait() -> None:
        while not found:
            if (told := queue.poll(wait_ms=2000))["records"]:
                found.append(told)

    waiting = threading.Thread(target=wait)
    waiting.start()
    put(peer, topic, b"late", partition=1)
    waiting.join()
    assert offsets(found[0]) == [(1, 0, 1)]


def test_a_repeated_poll_of_a_lock_gets_the_same_records(peer: KafkaPeer, queue: Queue, topic: str) -> None:
    put(peer, topic, *[b"x"] * 6)
    told = queue.poll(lock="mine", max_records=4)
    assert told["lock"] == "mine"
    again = queue.poll(lock="mine", max_records=4)
    assert offsets(again) == offsets(told) == [(0, number, 1) for number in range(4)]
    queue.settle("ack", "mine", *told["records"][1:3])
    assert offsets(queue.poll(lock="mine")) == [(0, 0, 1), (0, 3, 1)]
    queue.settle("ack", "mine")
    assert offsets(queue.poll(lock="mine")) == [(0, 4, 1), (0, 5, 1)], "the lock is free for more"


def test_any_client_that_knows_the_lock_settles(
    broker: BrokerProcess, peer: KafkaPeer, queue: Queue, topic: str
) -> None:
    put(peer, topic, b"x")
    told = queue.poll()
    with httpx.Client(base_url=broker.http_url) as other:
        assert Queue(other, queue.group).settle("renew", told["lock"])["expires_at"] >= told["expires_at"]
        assert Queue(other, queue.group).settle("ack", told["lock"]) == {"records": 1}


def test_the_queue_and_members_of_kafka_share_the_records(peer: KafkaPeer, queue: Queue, topic: str) -> None:
    configure(peer, queue.group, share_auto_offset_reset="earliest")
    put(peer, topic, *[b"x"] * 4)
    member = Member(peer, queue.group, topic)
    member.beat()
    assert member.fetch(max_records=2) == {0: [(0, 1, 1)]}
    told = queue.poll()
    assert offsets(told) == [(0, 2, 1), (0, 3, 1)]
    member.acknowledge({0: [(0, 1, ACCEPT)]})
    queue.settle("release", told["lock"])
    assert member.fetch() == {0: [(2, 3, 2)]}
    assert offsets_of(peer, queue.group)[0] == (2, 2)


def test_where_a_group_begins(peer: KafkaPeer, http: httpx.Client, queue: Queue, topic: str) -> None:
    put(peer, topic, b"before")
    for start, expected in ((None, []), ("latest", []), ("earliest", [(0, 0, 1)])):
        told = Queue(http, f"{queue.group}-{start}", topic).poll(**{"from": start})
        assert offsets(told) == expected


# ── refusals ──


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rpartition("/")[2].rpartition(":")[2]


def test_all_or_none_of_the_records_change(peer: KafkaPeer, queue: Queue, topic: str) -> None:
    put(peer, topic, *[b"x"] * 4)
    put(peer, topic, b"y", partition=1)
    told = queue.poll()
    queue.settle("release", told["lock"], *told["records"][2:3])
    refused = queue.call(
        "ack",
        lock=told["lock"],
        records=[
            {name: one[name] for name in ("topic", "partition", "offset")} for one in told["records"][2:]
        ],
    )
    assert problem(refused) == (409, "invalid-record-state")
    assert queue.settle("ack", told["lock"], told["records"][3]) == {"records": 1}


def test_a_lock_that_holds_nothing_is_refused(peer: KafkaPeer, queue: Queue, topic: str) -> None:
    put(peer, topic, b"x")
    told = queue.poll()
    queue.settle("ack", told["lock"])
    for action in ("ack", "release", "reject", "renew"):
        assert problem(queue.call(action, lock=told["lock"])) == (409, "lock-not-held")
    assert problem(Queue(queue.http, "no-such-group").call("ack", lock="x")) == (404, "group-not-found")


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("poll", {"topics": []}),
        ("poll", {"topics": ["t"], "max_records": 0}),
        ("poll", {"topics": ["t"], "wait_ms": -1}),
        ("poll", {"topics": ["t"], "from": "middle"}),
        ("poll", {"topics": ["t"], "lock": ""}),
        ("poll", {"topics": ["t"], "lock": "x" * 201}),
        ("poll", {"topic": "t"}),
        ("ack", {}),
        ("ack", {"lock": "x", "records": []}),
        ("ack", {"lock": "x", "records": [{"topic": "t", "partition": -1, "offset": 0}]}),
        ("ack", {"lock": "x", "records": [{"topic": "t", "partition": 0}]}),
    ],
)
def test_a_body_that_cannot_be(http: httpx.Client, action: str, body: dict[str, Any]) -> None:
    assert http.post(f"/v1/groups/g/share/{action}", json=body).status_code == 400


def test_unknown_topics_and_groups_of_another_type_are_refused(http: httpx.Client, queue: Queue) -> None:
    assert problem(http.post("/v1/groups/g/share/poll", json={"topics": ["no-such"]})) == (
        404,
        "unknown-topic",
    )
    http.post("/v1/groups/classic/poll", json={"topics": list(queue.topics)})
    answer = http.post("/v1/groups/classic/share/poll", json={"topics": list(queue.topics)})
    assert problem(answer) == (409, "group-of-other-type")
    queue.poll()
    assert queue.call("poll").status_code == 400
    leased = http.post(f"/v1/groups/{queue.group}/poll", json={"topics": list(queue.topics)})
    assert leased.status_code == 409


# ── offsets and kills ──


def test_a_queue_can_be_reset_and_deleted(peer: KafkaPeer, queue: Queue, topic: str) -> None:
    put(peer, topic, *[b"x"] * 3)
    queue.settle("ack", queue.poll()["lock"])
    reset = queue.http.put(f"/v1/groups/{queue.group}/offsets", json={"to": "earliest"})
    assert reset.status_code == 200, reset.text
    assert [(one["before"], one["after"], one["lag"]) for one in reset.json()["offsets"]] == [
        (3, 0, 3),
        (0, 0, 0),
    ]
    assert len(queue.poll()["records"]) == 3
    assert queue.http.delete(f"/v1/groups/{queue.group}").status_code == 204
    assert queue.http.get(f"/v1/groups/{queue.group}").status_code == 404


def test_accepted_records_never_come_again_after_a_kill_and_locks_end_with_it(tmp_path: Path) -> None:
    with run_broker(tmp_path / "data") as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "orders")
            put(peer, "orders", *[b"x"] * 5)
        with httpx.Client(base_url=broker.http_url) as http:
            queue = Queue(http, "g", "orders")
            told = queue.poll()
            queue.settle("ack", told["lock"], *told["records"][1:4])
        broker.kill()
        broker.restart()
        with httpx.Client(base_url=broker.http_url) as http:
            queue = Queue(http, "g", "orders")
            assert problem(queue.call("ack", lock=told["lock"])) == (409, "lock-not-held")
            assert offsets(queue.poll()) == [(0, 0, 1), (0, 4, 1)]


@pytest.mark.long
def test_offsets_that_compaction_removed_are_finished_by_themselves(peer: KafkaPeer, queue: Queue) -> None:
    name = f"compacted-{next(_names)}"
    create_topic(peer, name, 1, cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.0")
    http = queue.http
    lines = [{"key": "k", "value": str(number)} for number in range(20)] + [{"key": "other", "value": "last"}]
    assert http.post(f"/v1/topics/{name}/records", json={"records": lines}).status_code == 200
    deadline = time.monotonic() + 120
    # The active segment is not compacted, so something has to follow it.
    while True:
        http.post(f"/v1/topics/{name}/records", json={"records": [{"key": "tick", "value": "x"}]})
        found = http.get(f"/v1/topics/{name}/partitions/0/records", params={"from": 0}).json()["records"]
        if found and found[0]["offset"] > 0:
            break
        assert time.monotonic() < deadline, "not compacted"
    told = Queue(http, f"{queue.group}-c", name).poll(max_records=10_000)
    first = told["records"][0]["offset"]
    assert first > 0
    drained = Queue(http, f"{queue.group}-c", name)
    # One by one: what the client cannot name must be finished without it.
    drained.settle("ack", told["lock"], *told["records"])
    assert drained.described()["partitions"][0]["committed"] == told["records"][-1]["offset"] + 1


def test_metrics_count_deliveries_and_what_became_of_them(
    http: httpx.Client, peer: KafkaPeer, topic: str
) -> None:
    put(peer, topic, *(b"%d" % number for number in range(6)))
    group = f"counted-{topic}"
    queue = Queue(http, group, topic)
    before = share_metrics(http)
    polled = queue.poll(max_records=6)
    records = polled["records"]
    queue.settle("ack", polled["lock"], *records[:3])
    queue.settle("release", polled["lock"], *records[3:5])
    queue.settle("reject", polled["lock"], records[5])
    again = queue.poll(max_records=6)
    assert len(again["records"]) == 2
    after = share_metrics(http)
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed == {"delivered": 8, "accepted": 3, "released": 2, "given_up": 1}
    series = f'stele_share_group_records_in_flight{{group="{group}"}} 2.0'
    eventually(lambda: series in http.get("/metrics").text, "the sample shows what is in flight")


def share_metrics(http: httpx.Client) -> dict[str, float]:
    """Return the counters of records of share groups by what happened to them."""
    lines = (line.rpartition(" ") for line in http.get("/metrics").text.splitlines())
    name = re.compile(r"stele_share_group_(\w+)_records_total")
    return {match[1]: float(value) for text, _, value in lines if (match := name.fullmatch(text))}
