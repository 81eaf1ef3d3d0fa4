"""Compacted topics over HTTP: keys, tables, and a table that is followed through passes and kills."""

from __future__ import annotations

import base64
import itertools
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.testing import BrokerProcess, run_broker

from tests.support.compaction_passes import write_until

_numbers = itertools.count()
SSE = {"accept": "text/event-stream"}
COMPACTED = {"cleanup.policy": "compact"}
# Passes begin every 20 ms over whatever is synced.
PASSES = {"STELE_LOG_CLEANER_BACKOFF_MS": "20", "STELE_LOG_FLUSH_INTERVAL_MS": "5"}
SMALL = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
KILLS = 3


@pytest.fixture
def http(stele_broker_session: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stele_broker_session.http_url, timeout=60) as client:
        yield client


@pytest.fixture
def topic(http: httpx.Client) -> str:
    name = f"tables-{next(_numbers)}"
    http.put(f"/v1/topics/{name}", json={"partitions": 2, "configs": COMPACTED}).raise_for_status()
    return name


def put(http: httpx.Client, topic: str, *records: dict[str, Any]) -> None:
    answer = http.post(f"/v1/topics/{topic}/records", json={"records": list(records)})
    assert answer.status_code == 200, answer.text


def table_of(http: httpx.Client, topic: str, **query: str) -> list[dict[str, Any]]:
    answer = http.get(f"/v1/topics/{topic}/table", params=query)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_key_is_read_with_its_place_or_as_its_bytes(http: httpx.Client, topic: str) -> None:
    put(http, topic, {"key": "ada", "value": "1", "partition": 1, "timestamp": 5})
    put(http, topic, {"key": "ada", "value": {"city": "London"}, "partition": 1, "timestamp": 7})
    answer = http.get(f"/v1/topics/{topic}/keys/ada")
    assert answer.json() == {
        "partition": 1,
        "offset": 1,
        "timestamp": 7,
        "key": "ada",
        "value": '{"city":"London"}',
        "headers": [],
    }
    assert http.get(f"/v1/topics/{topic}/keys/ada?as=json").json()["value"] == {"city": "London"}
    answer = http.get(f"/v1/topics/{topic}/keys/ada", headers={"accept": "application/octet-stream"})
    assert answer.content == b'{"city":"London"}'
    assert [answer.headers[name] for name in ("partition", "offset", "timestamp")] == ["1", "1", "7"]


@pytest.mark.parametrize(
    "key", [b"a/b", b"%2F", b"\xff\x00", b"", b"a?b#c", b" ", "ü".encode(), b"/", b"a//b"]
)
def test_keys_are_any_bytes(http: httpx.Client, topic: str, key: bytes) -> None:
    put(http, topic, {"key_b64": base64.b64encode(key).decode(), "value": "v"})
    escaped = "".join(f"%{byte:02X}" for byte in key)
    assert http.get(f"/v1/topics/{topic}/keys/{escaped}").json()["value"] == "v"
    for encoded in (base64.b64encode(key), base64.urlsafe_b64encode(key)):
        path = encoded.decode().replace("/", "%2F")
        answer = http.get(f"/v1/topics/{topic}/keys/{path}?encoding=base64")
        assert answer.json()["value"] == "v", answer.text


def test_a_deleted_key_says_where_and_an_unknown_one_does_not(http: httpx.Client, topic: str) -> None:
    put(
        http,
        topic,
        {"key": "ada", "value": "1", "partition": 0},
        {"key": "ada", "value": None, "partition": 0},
    )
    deleted = http.get(f"/v1/topics/{topic}/keys/ada")
    assert deleted.status_code == 404
    assert (deleted.json()["partition"], deleted.json()["offset"]) == (0, 1)
    unknown = http.get(f"/v1/topics/{topic}/keys/bob")
    assert unknown.status_code == 404
    assert "offset" not in unknown.json()


def test_the_newest_timestamp_wins_unless_a_partition_is_given(http: httpx.Client, topic: str) -> None:
    put(http, topic, {"key": "a", "value": "new", "partition": 0, "timestamp": 9})
    put(http, topic, {"key": "a", "value": "old", "partition": 1, "timestamp": 8})
    assert http.get(f"/v1/topics/{topic}/keys/a").json()["value"] == "new"
    assert http.get(f"/v1/topics/{topic}/keys/a?partition=1").json()["value"] == "old"


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("{topic}/keys/a?partition=2", 404, "unknown-partition"),
        ("{topic}/keys/a?partition=x", 400, "invalid-request"),
        ("{topic}/keys/a?encoding=hex", 400, "invalid-request"),
        ("{topic}/keys/a!?encoding=base64", 400, "invalid-request"),
        ("{topic}/table?partition=7", 404, "unknown-partition"),
        ("{topic}/table?as=xml", 400, "invalid-request"),
        ("nowhere/keys/a", 404, "unknown-topic"),
        ("nowhere/table", 404, "unknown-topic"),
        ("plain/keys/a", 409, "topic-not-compacted"),
        ("plain/table", 409, "topic-not-compacted"),
    ],
)
def test_what_cannot_be_read_is_a_problem(
    http: httpx.Client, topic: str, path: str, status: int, kind: str
) -> None:
    http.put("/v1/topics/plain", json={"partitions": 1}).raise_for_status()
    answer = http.get(f"/v1/topics/{path.format(topic=topic)}")
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{kind}")


def test_a_table_has_each_key_once_and_ends_with_its_positions(http: httpx.Client, topic: str) -> None:
    for number in range(3):
        put(http, topic, *({"key": f"k{n}", "value": f"{number}", "partition": n % 2} for n in range(4)))
    put(http, topic, {"key": "k0", "value": None, "partition": 0})
    *records, end = table_of(http, topic)
    assert [(record["key"], record["value"]) for record in records] == [("k2", "2"), ("k1", "2"), ("k3", "2")]
    assert end == {"end": {"reason": "end", "records": 3, "positions": {"0": 7, "1": 6}}}
    *records, end = table_of(http, topic, partition="0", **{"as": "json"})
    assert [(record["key"], record["value"]) for record in records] == [("k2", 2)]
    assert end["end"]["positions"] == {"0": 7}


class Table:
    """The table that a client keeps from the events of a topic, over any number of connections."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.last_id: str | None = None
        self.snapshots = 0

    def read(self, http: httpx.Client, topic: str, until: set[str]) -> bool:
        """Take in events until all keys of ``until`` are there; False if the connection ends before."""
        headers = dict(SSE)
        if self.last_id is not None:
            headers["last-event-id"] = self.last_id
        kind = "message"
        try:
            with http.stream("GET", f"/v1/topics/{topic}/table", headers=headers) as stream:
                assert stream.status_code == 200
                for line in stream.iter_lines():
                    name, _, text = line.partition(": ")
                    if not line:
                        kind = "message"
                    elif name == "event":
                        kind = text
                        assert kind != "error", "nothing is corrupt"
                    elif name == "id":
                        self.last_id = text
                    elif name == "data":
                        self._take(kind, json.loads(text))
                        if until <= self.rows.keys():
                            return True
        except httpx.TransportError:
            pass
        return False

    def _take(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "start-of-snapshot":
            self.rows.clear()
            self.snapshots += 1
        elif kind == "end-of-snapshot":
            assert self.last_id is not None
        elif data["value"] is None:
            self.rows.pop(data["key"], None)
        else:
            self.rows[data["key"]] = data["value"]


def test_a_stream_resumes_with_the_next_change_and_not_with_the_table(http: httpx.Client, topic: str) -> None:
    put(http, topic, {"key": "a", "value": "1", "partition": 0}, {"key": "end", "value": "1", "partition": 1})
    first = Table()
    with http.stream("GET", f"/v1/topics/{topic}/table", headers=SSE) as stream:
        lines = itertools.takewhile(lambda line: not line.startswith('data: {"records"'), stream.iter_lines())
        read = list(lines)
    assert read[0] == "event: start-of-snapshot"
    # The rest of an id says of which topic it is.
    assert read[-2] == "event: end-of-snapshot"
    assert read[-1].startswith("id: 0:0,1:0@")
    of_topic = read[-1].partition("@")[2]
    put(http, topic, {"key": "b", "value": "2", "partition": 0}, {"key": "more", "value": "", "partition": 1})
    first.last_id = f"0:0,1:0@{of_topic}"
    assert first.read(http, topic, {"b", "more"})
    assert first.snapshots == 0
    assert first.rows == {"b": "2", "more": ""}
    http.delete(f"/v1/topics/{topic}/partitions/0/records?before=2").raise_for_status()
    for last_id in (f"0:0,1:0@{of_topic}", f"0:7,1:0@{of_topic}", "0:2,1:1@00000000"):
        again = Table()
        again.last_id = last_id
        assert again.read(http, topic, {"end", "more"})
        assert again.snapshots == 1, "changes are missing after this id, or it is of another topic"


@pytest.mark.long
def test_a_table_is_followed_through_passes_and_kills(tmp_path: Path) -> None:
    rng = random.Random(26)
    model: dict[str, str] = {}
    with run_broker(tmp_path, environment=PASSES) as broker:
        urls = [broker.http_url]
        with httpx.Client(base_url=urls[-1], timeout=60) as http:
            http.put("/v1/topics/users", json={"partitions": 2, "configs": SMALL}).raise_for_status()
            write(http, model, rng)
        table = Table()
        ends = {f"end-{partition}" for partition in (0, 1)}
        done: list[bool] = []
        up = threading.Event()
        up.set()

        def follow() -> None:
            while True:
                up.wait()
                with httpx.Client(base_url=urls[-1], timeout=60) as http:
                    if table.read(http, "users", ends):
                        done.append(True)
                        return

        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        for _ in range(KILLS):
            with httpx.Client(base_url=urls[-1], timeout=60) as http:
                write_until_cleaned(http, model, rng)
            up.clear()
            broker.kill()
            broker.restart()
            urls.append(broker.http_url)
            up.set()
        with httpx.Client(base_url=urls[-1], timeout=60) as http:
            write(http, model, rng)
            for partition in (0, 1):
                put(http, "users", {"key": f"end-{partition}", "value": "x", "partition": partition})
                model[f"end-{partition}"] = "x"
            reader.join(300)
            assert done, "the table arrives at its end"
            assert table.rows == model
            *records, _ = table_of(http, "users")
            assert {record["key"]: record["value"] for record in records} == model


def write_until_cleaned(http: httpx.Client, model: dict[str, str], rng: random.Random) -> None:
    """Write until a pass has ended since the broker started."""

    def has_passed() -> bool:
        return bool(http.get("/v1/overview").raise_for_status().json()["compaction"]["passes"])

    write_until(has_passed, lambda: write(http, model, rng))


def write(http: httpx.Client, model: dict[str, str], rng: random.Random) -> None:
    """Write changes of few keys, each always to the same partition, and put them into ``model``."""
    for _ in range(30):
        records: list[dict[str, Any]] = []
        for _ in range(20):
            number = rng.randrange(200)
            value = None if rng.random() < 0.2 else f"{rng.random()}" * rng.randint(1, 5)
            records.append({"key": f"k{number}", "value": value, "partition": number % 2})
            if value is None:
                model.pop(f"k{number}", None)
            else:
                model[f"k{number}"] = value
        put(http, "users", *records)
