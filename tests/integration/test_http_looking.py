"""What the console asks of the HTTP API, as anybody may ask it: searches, sizes, segments, connections, the overview."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from stele.testing import BrokerProcess, run_broker

from app.cluster.sqlite.groups import SqliteGroupStore
from tests.support.variants import long_but

SSE = {"accept": "text/event-stream"}
# Of 900 KB each.
_LARGE_RECORDS = 400
_SHORT_CONNECTIONS = 2000
_numbers = itertools.count()


ENVIRONMENT = {"STELE_SAMPLE_INTERVAL_MS": "100"}


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=30) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"looking-{next(_numbers)}"


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come to be"


def fill(http: httpx.Client, topic: str, number: int, *, partitions: int = 1) -> None:
    # The timestamps are in the past, and retention would delete the records.
    shape = {"partitions": partitions, "configs": {"retention.ms": -1}}
    assert http.put(f"/v1/topics/{topic}", json=shape).status_code == 201
    for start in range(0, number, 100):
        records = [
            {
                "key": f"k{n}",
                "value": {"n": n},
                "partition": n % partitions,
                "timestamp": 1763658000000 + n,
                "headers": [{"key": "n", "value": str(n)}],
            }
            for n in range(start, min(start + 100, number))
        ]
        assert http.post(f"/v1/topics/{topic}/records", json={"records": records}).status_code == 200


def search(http: httpx.Client, topic: str, **asked: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The records and the end of a search."""
    answer = http.get(f"/v1/topics/{topic}/search", params=asked)
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert "progress" in lines[0]
    return [line["record"] for line in lines if "record" in line], lines[-1]["end"]


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return [json.loads(record["value"])["n"] for record in records]


@pytest.mark.parametrize("order", ["oldest", "newest"])
@pytest.mark.parametrize("limit", long_but([1, 7, 64, 1000], "7", "1000"))
def test_a_continued_search_shows_each_record_once(
    http: httpx.Client, topic: str, order: str, limit: int
) -> None:
    fill(http, topic, 300, partitions=3)
    found, end = search(http, topic, order=order, limit=limit)
    while end["reason"] == "limit":
        more, end = search(http, topic, order=order, limit=limit, ranges=end["ranges"])
        found += more
    expected = list(range(300))
    assert sorted(numbers(found)) == expected
    assert end["reason"] == "end"
    if limit == 1000:
        # All windows are merged by time as long as they come at the same pace.
        assert numbers(found) == (expected if order == "oldest" else expected[::-1])


def produce_in_batches(
    broker: BrokerProcess, topic: str, batches: int, records: int, *, codec: str = "zstd"
) -> None:
    """``records`` in each batch, numbered on."""
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "compression.type": codec,
            "linger.ms": 60_000,
            "batch.size": 100_000_000,
            "message.max.bytes": 100_000_000,
            "batch.num.messages": records,
            "queue.buffering.max.messages": records * 2,
        }
    )
    for batch in range(batches):
        for number in range(batch * records, (batch + 1) * records):
            producer.produce(topic, b'{"n":%d}' % number, partition=0, timestamp=1763658000000 + number)
        assert producer.flush(60) == 0


@pytest.mark.long
@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_search_does_not_read_a_large_batch_again_for_each_window(
    broker: BrokerProcess, http: httpx.Client, topic: str, order: str
) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"max.message.bytes": 10_000_000}})
    produce_in_batches(broker, topic, batches=3, records=40_000)
    size = http.get(f"/v1/topics/{topic}").json()["partitions"][0]["size_bytes"]
    _, end = search(http, topic, order=order, value="zz")
    assert end["scanned"] == 120_000
    # It would be read five times over by windows of a fixed size.
    assert end["bytes"] <= 1.5 * size
    found, end = search(http, topic, order=order, value="77")
    expected = [number for number in range(120_000) if "77" in str(number)]
    wanted = expected[:50] if order == "oldest" else expected[:-51:-1]
    assert numbers(found) == wanted
    assert end["bytes"] < size / 2
    more, _ = search(http, topic, order=order, value="77", limit=100_000, ranges=end["ranges"])
    assert sorted(numbers([*found, *more])) == expected


def test_an_export_is_sent_in_large_parts(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    produce_in_batches(broker, topic, batches=3, records=4000)
    for shape in ("ndjson", "csv"):
        with (
            socket.create_connection((broker.host, broker.http_port)) as connection,
            connection.makefile("rb") as answer,
        ):
            asked = f"GET /v1/topics/{topic}/search?format={shape} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(asked.encode())
            while answer.readline() != b"\r\n":
                pass
            sizes: list[int] = []
            while size := int(answer.readline(), 16):
                sizes.append(size)
                answer.read(size + 2)
        # Progress is made known a few times a second, by what is there.
        assert sum(sizes) > 500_000
        assert sum(size < 60_000 for size in sizes) <= len(sizes) // 2 + 1


def test_an_export_has_all_that_matches_unless_a_limit_is_given(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 200)
    path = f"/v1/topics/{topic}/search"
    exported = http.get(path, params={"format": "ndjson"}).text.splitlines()
    assert numbers([json.loads(line) for line in exported]) == list(range(200))
    assert len(http.get(path, params={"format": "csv"}).text.splitlines()) == 201
    assert len(http.get(path, params={"format": "csv", "limit": 3}).text.splitlines()) == 4
    assert len(search(http, topic)[0]) == 50


def received_until_broken_off(http: httpx.Client, path: str, **asked: Any) -> bytes:
    received = bytearray()
    with http.stream("GET", path, params=asked) as answer:
        assert answer.status_code == 200
        try:
            for part in answer.iter_raw():
                received += part
        except httpx.RemoteProtocolError:
            return bytes(received)
    pytest.fail("the answer is whole")


@pytest.mark.parametrize("shape", ["ndjson", "csv"])
def test_an_export_without_corrupt_records_is_aborted_after_the_valid_ones(
    broker: BrokerProcess, http: httpx.Client, topic: str, shape: str
) -> None:
    fill(http, topic, 300)
    damage(broker, topic)
    failed = http.get("/v1/overview").json()["searches"]["ended"]["failed"]
    received = received_until_broken_off(http, f"/v1/topics/{topic}/search", format=shape)
    assert len(received.splitlines()) == 200 + (shape == "csv")
    assert http.get("/v1/overview").json()["searches"]["ended"]["failed"] == failed + 1
    assert f"{topic}/search was aborted" in broker.stderr
    assert "Traceback" not in broker.stderr


@pytest.mark.long
def test_an_export_is_broken_off_when_the_broker_stops(topic: str) -> None:
    with run_broker() as broker, httpx.Client(base_url=broker.http_url, timeout=60) as http:
        produce_in_batches(broker, topic, batches=50, records=10_000)
        with http.stream("GET", f"/v1/topics/{topic}/search", params={"format": "ndjson"}) as answer:
            parts = answer.iter_raw()
            next(parts)
            os.kill(broker.pid, signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
                list(parts)


@pytest.mark.long
def test_a_search_fails_if_its_topic_is_deleted(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    produce_in_batches(broker, topic, batches=50, records=10_000)
    with http.stream("GET", f"/v1/topics/{topic}/search", params={"limit": 1_000_000}) as answer:
        lines = answer.iter_lines()
        next(lines)
        with httpx.Client(base_url=http.base_url) as other:
            assert other.delete(f"/v1/topics/{topic}").status_code == 204
        *_, last = lines
    end = json.loads(last)["end"]
    assert end["reason"] == "failed"
    assert [error["type"] for error in end["errors"]] == ["/problems/unknown-topic"]


def test_what_a_search_looks_at_is_not_counted_as_read(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 300)

    def bytes_read() -> float:
        found = re.search(r"^stele_fetched_bytes_total (\S+)$", http.get("/metrics").text, re.MULTILINE)
        assert found
        return float(found[1])

    before = bytes_read()
    search(http, topic, value="zz")
    http.get(f"/v1/topics/{topic}/partitions/0/records/7")
    assert bytes_read() == before
    http.get(f"/v1/topics/{topic}/partitions/0/records")
    assert bytes_read() > before


@pytest.mark.long
def test_a_search_of_many_partitions_continues_with_ranges_too_long_for_a_url() -> None:
    with run_broker() as broker, httpx.Client(base_url=broker.http_url, timeout=60) as http:
        made = http.put("/v1/topics/many", json={"partitions": 9000, "configs": {"stele.storage": "memory"}})
        assert made.status_code == 201
        lines = "".join(f'{{"partition":{number},"value":"v"}}\n' for number in range(9000))
        http.post("/v1/topics/many/records", content=lines, headers={"content-type": "application/x-ndjson"})
        found, end = search(http, "many", limit=100)
        assert len(end["ranges"]) > 65536
        more = http.post("/v1/topics/many/search", params={"limit": 9000}, json={"ranges": end["ranges"]})
        rest = [json.loads(line) for line in more.text.splitlines()]
        found += [line["record"] for line in rest if "record" in line]
        assert rest[-1]["end"]["reason"] == "end"
        assert sorted(record["partition"] for record in found) == list(range(9000))


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (b'{"ranges":"0:1"}', "application/json", 400),
        (b'{"ranges":"0:0-1,0:1-2"}', "application/json", 400),
        (b'{"ranges":"7:0-1"}', "application/json", 404),
        (b'{"range":"0:0-1"}', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"ranges":"0:0-1"}', "text/plain", 415),
    ],
)
def test_going_on_from_what_makes_no_sense_is_refused(
    http: httpx.Client, topic: str, content: bytes, media_type: str, status: int
) -> None:
    fill(http, topic, 1)
    headers = {"content-type": media_type}
    assert http.post(f"/v1/topics/{topic}/search", content=content, headers=headers).status_code == status


def test_a_cell_of_an_export_is_no_formula_and_no_two_cells(http: httpx.Client, topic: str) -> None:
    values = ["=1", "\n=1", "＝1", "＋1", "－1", "＠1", " =1", "a;=1+1", 'a"b', "plain"]
    http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": value} for value in values]})
    text = http.get(f"/v1/topics/{topic}/search", params={"format": "csv"}).text
    cells = [row["value"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert cells == ["'=1", "'\n=1", "'＝1", "'＋1", "'－1", "'＠1", "' =1", "a;=1+1", 'a"b', "plain"]
    assert '"a;=1+1"' in text


def test_a_search_is_bounded_by_offsets_times_and_partitions(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 100, partitions=2)
    assert numbers(search(http, topic, partitions="1", **{"from": 10, "to": 13})[0]) == [21, 23, 25]
    times = {"from": "2025-11-20T17:00:00.090Z", "to": "2025-11-20T17:00:00.094Z"}
    assert numbers(search(http, topic, **times)[0]) == [90, 91, 92, 93]
    found, end = search(http, topic, **{"from": "latest"})
    assert (found, end["reason"], end["of"]) == ([], "end", 0)


def test_a_search_sees_nothing_that_was_produced_after_it_began(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 2000)
    with http.stream("GET", f"/v1/topics/{topic}/search", params={"limit": 100_000}) as answer:
        lines = answer.iter_lines()
        next(lines)
        with httpx.Client(base_url=http.base_url) as other:
            other.post(f"/v1/topics/{topic}/records", json={"records": [{"value": {"n": -1}}]})
        *_, last = lines
    assert json.loads(last)["end"]["scanned"] == 2000


def damage(broker: BrokerProcess, topic: str) -> None:
    """The batch in the middle of the log."""
    log = broker.data_dir / f"{topic}-0" / f"{0:020}.log"
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 1
    log.write_bytes(raw)


def test_a_search_continues_after_a_corrupt_range_and_reports_it(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    fill(http, topic, 300)
    damage(broker, topic)
    found, end = search(http, topic, limit=1000)
    assert numbers(found) == [*range(100), *range(200, 300)]
    assert [error["type"] for error in end["errors"]] == ["/problems/corrupt-log"]


def test_unread_searches_hold_their_slots_until_their_clients_leave(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap})
    for number in range(30_000):
        producer.produce(topic, b"v" * 1000)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()

    def state() -> dict[str, Any]:
        return http.get("/v1/overview").json()["searches"]

    stopped = state()["ended"]["stopped"]
    request = f"GET /v1/topics/{topic}/search?limit=1000000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    silent = [socket.create_connection((broker.host, broker.http_port)) for _ in range(8)]
    for one in silent:
        one.sendall(request)
    until(lambda: state()["active"] == 8)
    refused = http.get(f"/v1/topics/{topic}/search")
    assert refused.status_code == 429
    assert refused.headers["retry-after"]
    for one in silent:
        one.close()
    until(lambda: state()["active"] == 0)
    assert state()["ended"]["stopped"] == stopped + 8
    assert search(http, topic, limit=1)[1]["reason"] == "limit"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read in /proc")
@pytest.mark.parametrize(
    ("order", "where"),
    [
        ("oldest", "value"),
        pytest.param("newest", "headers", marks=pytest.mark.long),
        pytest.param("newest", "value", marks=pytest.mark.long),
        pytest.param("oldest", "headers", marks=pytest.mark.long),
    ],
)
def test_a_search_holds_little_of_what_large_records_unpack_to(order: str, where: str) -> None:
    with run_broker() as broker, httpx.Client(base_url=broker.http_url, timeout=60) as http:
        producer = Producer(
            {"bootstrap.servers": broker.kafka_bootstrap, "compression.type": "zstd", "linger.ms": 0}
        )
        for number in range(_LARGE_RECORDS):
            if where == "value":
                producer.produce("large", bytes(900_000), key=str(number))
            else:
                producer.produce("large", b"v", key=str(number), headers=[("h", bytes(900_000))])
            producer.poll(0)
            if number % 20 == 0:
                producer.flush()
        producer.flush()

        def peak_kb() -> int:
            found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
            assert found
            return int(found[1])

        before_kb = peak_kb()
        found, _ = search(http, "large", order=order, limit=_LARGE_RECORDS, preview=10)
        assert [int(record["key"]) for record in found] == sorted(
            range(_LARGE_RECORDS), reverse=order == "newest"
        )
        assert {record["value_bytes"] for record in found} == {900_000 if where == "value" else 1}
        # All of them would be 360 MB.
        assert peak_kb() - before_kb < 150_000


@pytest.mark.parametrize(
    "asked",
    [
        {"json": "[["},
        {"order": "sideways"},
        {"format": "xml"},
        {"partitions": "1,x"},
        {"ranges": "0:1"},
        {"from": "yesterday"},
        {"to": "tomorrow"},
        {"limit": "0"},
        {"preview": "-1"},
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    http: httpx.Client, topic: str, asked: dict[str, str]
) -> None:
    fill(http, topic, 1)
    answer = http.get(f"/v1/topics/{topic}/search", params=asked)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-request")
    assert next(iter(asked)) in answer.json()["detail"]


def test_a_tail_filters_and_previews(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 50)
    asked = {"from": "earliest", "json": "n > 47", "preview": 3}
    with http.stream("GET", f"/v1/topics/{topic}/records", params=asked, headers=SSE) as answer:
        lines = answer.iter_lines()
        found = [json.loads(line[6:]) for line in itertools.islice(filter(is_data, lines), 2)]
    assert [(one["offset"], one["value"]) for one in found] == [(48, '{"n'), (49, '{"n')]


def test_a_paced_tail_skips_and_counts_records_and_resumes_after_them(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 5000)
    asked = {"from": "earliest", "max_per_s": 100}
    seen: list[int] = []
    skipped = 0
    with http.stream("GET", f"/v1/topics/{topic}/records", params=asked, headers=SSE) as answer:
        event, last_id = "", ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("id: "):
                last_id = line[4:]
            elif line.startswith("data: ") and event == "skipped":
                skipped += json.loads(line[6:])["records"]
                event = ""
            elif line.startswith("data: "):
                seen.append(json.loads(line[6:])["offset"])
            if seen and seen[-1] == 4999:
                break
    assert seen == sorted(set(seen))
    assert skipped > 4000
    assert len(seen) + skipped == 5000
    http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": {"n": -1}}]})
    headers = {**SSE, "Last-Event-ID": last_id}
    with http.stream("GET", f"/v1/topics/{topic}/records", headers=headers) as answer:
        data = next(filter(is_data, answer.iter_lines()))
    assert json.loads(data[6:])["offset"] == 5000


@pytest.mark.parametrize("path", ["records", "partitions/0/records"])
@pytest.mark.parametrize("last_id", ["²:1", "0:²", "z²", "zAAAA"])
def test_an_id_that_no_stream_gave_is_refused(
    http: httpx.Client, topic: str, path: str, last_id: str
) -> None:
    fill(http, topic, 1)
    headers = [(b"accept", b"text/event-stream"), (b"last-event-id", last_id.encode())]
    answer = http.get(f"/v1/topics/{topic}/{path}", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-request")


@pytest.mark.long
def test_a_stream_of_very_many_partitions_is_resumed_by_its_id() -> None:
    with run_broker() as broker, httpx.Client(base_url=broker.http_url, timeout=60) as http:
        http.put("/v1/topics/many", json={"partitions": 9000, "configs": {"stele.storage": "memory"}})
        lines = "".join(f'{{"partition":{number},"value":"v"}}\n' for number in range(9000))
        for _ in range(2):
            http.post(
                "/v1/topics/many/records", content=lines, headers={"content-type": "application/x-ndjson"}
            )
        with http.stream("GET", "/v1/topics/many/records", headers=SSE) as answer:
            begin = next(line for line in answer.iter_lines() if line.startswith("id: "))[4:]
        http.post("/v1/topics/many/records?partition=8999", json={"records": [{"value": "new"}]})
        headers = {**SSE, "Last-Event-ID": begin}
        with http.stream("GET", "/v1/topics/many/records", headers=headers) as answer:
            data = next(filter(is_data, answer.iter_lines()))
        found = json.loads(data[6:])
        assert (found["partition"], found["offset"], found["value"]) == (8999, 2, "new")


def test_so_many_tails_with_conditions_and_no_more(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 1)
    path = f"/v1/topics/{topic}/records"
    # Kept, because dropping one closes it.
    streams: list[Iterator[str]] = []
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            asked = http.build_request("GET", path, params={"from": "earliest", "key": "k"}, headers=SSE)
            answer = http.send(asked, stream=True)
            stack.callback(answer.close)
            streams.append(answer.iter_lines())
            next(filter(is_data, streams[-1]))
        for headers in (SSE, {"accept": "application/x-ndjson"}):
            refused = http.get(path, params={"json": "n > 1"}, headers=headers)
            assert refused.status_code == 429
            assert "16 live tails with conditions" in refused.json()["detail"]
        # Without conditions there is nothing to decide for each record.
        with http.stream("GET", path, params={"from": "earliest"}, headers=SSE) as plain:
            next(filter(is_data, plain.iter_lines()))

    def is_taken() -> bool:
        with http.stream("GET", path, params={"from": "earliest", "key": "k"}, headers=SSE) as again:
            return again.status_code == 200

    until(is_taken)


def is_data(line: str) -> bool:
    return line.startswith("data: ")


def test_a_preview_is_cut_and_reports_the_full_size(http: httpx.Client, topic: str) -> None:
    http.post(f"/v1/topics/{topic}/records", json={"records": [{"key": "k", "value": "ä" * 100}]})
    ((record,), _) = search(http, topic, preview=11)
    assert record["value"] == "ä" * 5
    assert (record["value_bytes"], record["is_cut"]) == (200, True)


def test_one_record_is_got_by_its_offset_and_its_bytes_alone(http: httpx.Client, topic: str) -> None:
    http.post(
        f"/v1/topics/{topic}/records", json={"records": [{"key": "k", "value_b64": "AP8="}, {"value": None}]}
    )
    path = f"/v1/topics/{topic}/partitions/0/records"
    assert http.get(f"{path}/0").json()["value_b64"] == "AP8="
    download = http.get(f"{path}/0", params={"part": "value"})
    assert download.content == b"\x00\xff"
    assert "attachment" in download.headers["content-disposition"]
    assert http.get(f"{path}/1", params={"part": "value"}).status_code == 404
    assert http.get(f"{path}/2").status_code == 404
    assert http.get(f"{path}/3").status_code == 416
    assert http.get(f"{path}/x").status_code == 404


def test_records_are_purged_and_offsets_go_on(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 20, partitions=2)
    path = f"/v1/topics/{topic}/partitions/0/records"
    assert http.delete(path).status_code == 400
    assert http.delete(path, params={"before": 4}).json()["deleted"] == 4
    assert http.delete(path, params={"before": 11}).status_code == 416
    purged = http.delete(f"/v1/topics/{topic}/records").json()["partitions"]
    assert [(one["log_start_offset"], one["deleted"]) for one in purged] == [(10, 6), (10, 10)]
    assert search(http, topic)[0] == []
    produced = http.post(f"/v1/topics/{topic}/records?partition=0", json={"records": [{"value": {"n": 1}}]})
    assert produced.json()["records"][0]["offset"] == 10


def test_topics_are_found_by_a_part_of_their_name_and_paged(http: httpx.Client, topic: str) -> None:
    for number in range(5):
        http.put(f"/v1/topics/{topic}-Part-{number}")
    first = http.get("/v1/topics", params={"search": f"{topic}-pART", "limit": 2, "page": 1}).json()
    last = http.get(
        "/v1/topics", params={"search": f"{topic}-pART", "limit": 2, "page": 3, "sizes": "true"}
    ).json()
    assert (first["total"], len(first["topics"])) == (5, 2)
    assert [one["name"] for one in last["topics"]] == [f"{topic}-Part-4"]
    assert last["next_after"] is None
    assert last["topics"][0]["records"] == 0


def test_segments_are_listed_with_the_time_of_their_deletion(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"segment.bytes": 1024, "retention.ms": 3_600_000}})
    for _ in range(3):
        http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": "v" * 900}]})
    listed = http.get(f"/v1/topics/{topic}/partitions/0/segments").json()
    segments = listed["segments"]
    assert [one["base_offset"] for one in segments] == [0, 1, 2]
    assert [one["is_sealed"] for one in segments] == [True, True, False]
    assert all(one["expires_at"] == one["max_timestamp"] + 3_600_000 for one in segments)
    assert listed["size_bytes"] == sum(one["size_bytes"] for one in segments)
    assert not any(one["is_over_size"] for one in segments)

    # A segment never goes before the one ahead of it.
    old = {"value": "v" * 900, "timestamp": segments[0]["max_timestamp"] - 60_000}
    for _ in range(2):
        http.post(f"/v1/topics/{topic}/records", json={"records": [old]})
    later = http.get(f"/v1/topics/{topic}/partitions/0/segments").json()["segments"]
    assert later[3]["max_timestamp"] == old["timestamp"]
    assert later[3]["expires_at"] == later[2]["expires_at"] == segments[2]["max_timestamp"] + 3_600_000

    http.patch(f"/v1/topics/{topic}", json={"configs": {"retention.bytes": 3 * segments[1]["size_bytes"]}})
    segments = http.get(f"/v1/topics/{topic}/partitions/0/segments").json()["segments"]
    assert [one["is_over_size"] for one in segments] == [True, True, False, False, False]


def test_a_partition_is_checked_while_it_is_written(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"segment.bytes": 100_000}})
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap})
    for number in range(30):
        for _ in range(200):
            producer.produce(topic, b"v" * 500)
        producer.poll(0)
        checked = http.post(f"/v1/topics/{topic}/partitions/0/verify").json()
        assert checked["problems"] == [], number
    producer.flush()
    checked = http.post(f"/v1/topics/{topic}/partitions/0/verify").json()
    assert (checked["is_good"], checked["records"]) == (True, 6000)
    assert http.get(f"/v1/topics/{topic}/partitions/0/segments").json()["verified"] == checked


@pytest.mark.long
def test_a_verification_ends_when_its_client_disconnects(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "batch.num.messages": 1})
    for _ in range(30_000):
        producer.produce(topic, b"v")
        producer.poll(0)
    producer.flush()
    path = f"/v1/topics/{topic}/partitions/0"
    request = f"POST {path}/verify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    with socket.create_connection((broker.host, broker.http_port)) as leaving:
        leaving.sendall(request.encode())
        until(lambda: http.get("/v1/overview").json()["verifying"] == f"{topic}-0")
        assert http.post(f"{path}/verify").status_code == 429
    checked: list[httpx.Response] = []

    def is_free() -> bool:
        checked[:] = [http.post(f"{path}/verify")]
        return checked[0].status_code == 200

    assert http.get(f"{path}/segments").json()["verified"] is None
    until(is_free)
    assert checked[0].json()["records"] == 30_000


def test_a_topic_in_memory_has_no_segments_and_nothing_to_check(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"stele.storage": "memory"}})
    assert http.get(f"/v1/topics/{topic}/partitions/0/segments").json()["segments"] == []
    assert http.post(f"/v1/topics/{topic}/partitions/0/verify").json()["is_good"]


def test_connections_are_listed_with_their_clients(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "client.id": "me-7"})
    producer.produce(topic, b"x")
    producer.flush()
    http.headers["user-agent"] = "tester/1.2"
    http.get("/healthz")
    found = http.get("/v1/connections").json()["connections"]
    kafka = [one for one in found if one["protocol"] == "kafka" and one["client_id"] == "me-7"]
    assert {one["client_name"] for one in kafka} == {"confluent-kafka-python"}
    assert sum(one["bytes_in"] for one in kafka) > 0
    mine = [one for one in found if one["client_name"] == "tester"]
    assert [(one["protocol"], one["client_version"]) for one in mine] == [("http", "1.2")]


class Visitor:
    """A connection from an address of its choice, which says its name in each request."""

    def __init__(self, broker: BrokerProcess, name: str, *, port: int = 0) -> None:
        self.name = name
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.socket.connect((broker.host, broker.http_port))
        self.port: int = self.socket.getsockname()[1]

    def ask(self, path: str = "/healthz", *headers: str, body: bytes = b"") -> None:
        lines = [f"POST {path} HTTP/1.1" if body else f"GET {path} HTTP/1.1", "Host: localhost"]
        lines += [f"User-Agent: {self.name}", f"Content-Length: {len(body)}", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode() + body)
        assert self.socket.recv(65536)

    def reset(self) -> None:
        """Go without leaving the address in use."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def http_connections(http: httpx.Client) -> dict[str | None, dict[str, Any]]:
    """By the name of the client, the oldest first."""
    found = http.get("/v1/connections", params={"limit": 10_000}).json()["connections"]
    return {one["client_name"]: one for one in found if one["protocol"] == "http"}


@pytest.mark.long
def test_a_connection_is_known_as_long_as_it_is_open_and_no_longer(
    broker: BrokerProcess, http: httpx.Client
) -> None:
    opened = http.get("/v1/overview").json()["listeners"][0]["connections_opened"]
    first = Visitor(broker, "first/1")
    first.ask()
    for number in range(_SHORT_CONNECTIONS):
        if number % 20 == 0:
            # The server closes what is idle for five seconds, and all of this may take longer.
            first.ask()
        short = Visitor(broker, "short/1")
        short.ask()
        short.reset()
    second = Visitor(broker, "second/1")
    second.ask()
    silent = Visitor(broker, "silent/1")
    until(lambda: {"first", "second", None} <= http_connections(http).keys() - {"short"})
    names = list(http_connections(http))
    assert names.index("first") < names.index("second") < names.index(None)
    # And that of the test itself, if it was idle for so long that it had to reconnect.
    now_opened = http.get("/v1/overview").json()["listeners"][0]["connections_opened"]
    assert now_opened - opened - _SHORT_CONNECTIONS in (3, 4)
    for one in (first, second, silent):
        one.reset()
    until(lambda: not {"first", "second", "short", None} & http_connections(http).keys())


def test_a_connection_that_reuses_an_address_inherits_nothing(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    before = Visitor(broker, "before/1")
    before.ask(f"/v1/topics/{topic}/records", body=b'{"records":[{"value":"x"}]}')
    assert http_connections(http)["before"]["bytes_in"] > 0
    before.reset()
    after = Visitor(broker, "after/1", port=before.port)
    after.ask()
    found = http_connections(http)
    assert "before" not in found
    assert (found["after"]["bytes_in"], found["after"]["peer"]) == (0, f"127.0.0.1:{before.port}")
    after.reset()


def test_a_connection_of_a_proxy_is_shown_with_its_own_address(
    broker: BrokerProcess, http: httpx.Client
) -> None:
    proxy = Visitor(broker, "proxied/1")
    proxy.ask("/healthz", "X-Forwarded-For: 192.0.2.7")
    assert http_connections(http)["proxied"]["peer"] == f"127.0.0.1:{proxy.port}"
    proxy.reset()


def test_the_overview_and_its_history_have_rates(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 500)

    def has_rates() -> bool:
        past = http.get("/v1/overview/history").json()
        return (
            any(past["records_in_per_s"])
            and any(past["sync_p99_ms"])
            and any(past["listeners"][0]["bytes_in_per_s"])
        )

    until(has_rates)
    past = http.get("/v1/overview/history", params={"points": 3}).json()
    columns = [past[name] for name in ("at", "records_in_per_s", "log_bytes", "sync_p50_ms")]
    assert {len(column) for column in columns} == {len(past["at"])}
    assert len(past["at"]) <= 3
    now = http.get("/v1/overview").json()
    assert now["health"] == {"status": "ready", "reason": None}
    assert [listener["name"] for listener in now["listeners"]] == ["http", "binary", "kafka", "registry"]
    assert 0 < now["disk"]["free_bytes"] < now["disk"]["total_bytes"]


def test_the_lag_of_a_group_is_remembered(http: httpx.Client, topic: str) -> None:
    fill(http, topic, 10)
    poll = {"topics": [topic], "max_records": 4, "lease_ms": 60000}
    polled = http.post(f"/v1/groups/g-{topic}/poll", json=poll).json()
    http.post(f"/v1/groups/g-{topic}/ack", json={"lease": polled["lease"]})

    def lags() -> list[int]:
        past = http.get(f"/v1/groups/g-{topic}/lag/history").json()
        return [lag for one in past["partitions"] for lag in one["lag"] if lag is not None]

    until(lambda: bool(lags()) and lags()[-1] == 6)
    listed = http.get("/v1/groups", params={"search": f"G-{topic}"}).json()
    assert [(one["group"], one["lag"]) for one in listed["groups"]] == [(f"g-{topic}", 6)]
    assert f'stele_group_lag{{group="g-{topic}",topic="{topic}"}} 6.0' in http.get("/metrics").text
    assert http.get("/v1/groups/nobody/lag/history").status_code == 404


def test_the_series_of_topics_and_groups_are_bounded(tmp_path: Any) -> None:
    environment = {
        "STELE_SAMPLE_INTERVAL_MS": "100",
        "STELE_METRICS_TOPICS_MAX": "3",
        "STELE_METRICS_GROUPS_MAX": "2",
    }
    with run_broker(environment=environment) as broker, httpx.Client(base_url=broker.http_url) as http:
        for number in range(8):
            http.post(f"/v1/topics/t-{number}/records", json={"records": [{"value": "x"}]})
            http.post(f"/v1/groups/g-{number}/poll", json={"topics": [f"t-{number}"]})

        def samples(name: str) -> dict[str, float]:
            lines = http.get("/metrics").text.splitlines()
            return {
                line.split(" ")[0]: float(line.split(" ")[1])
                for line in lines
                if line.startswith(f"{name}{{")
            }

        until(lambda: sum(samples("stele_topic_records").values()) == 8)
        until(lambda: sum(samples("stele_group_members").values()) == 8)
        assert len(samples("stele_group_members")) == 3
        assert samples("stele_group_members")['stele_group_members{group="(others)"}'] == 6
        until(lambda: sum(samples("stele_group_lag").values()) == 8)
        assert samples("stele_group_lag")['stele_group_lag{group="(others)",topic="(others)"}'] == 6
        listed = http.get("/v1/groups").json()["groups"]
        assert [(one["members"], one["lag"]) for one in listed] == [(1, 1)] * 8
        assert len(samples("stele_topic_records")) == 4
        assert samples("stele_topic_records")['stele_topic_records{topic="(others)"}'] == 5
        assert {name.split('"')[1] for name in samples("stele_listener_connections")} == {
            "http",
            "binary",
            "kafka",
            "registry",
        }


def test_the_overview_and_metrics_answer_when_groups_can_not_be_served() -> None:
    with (
        run_broker(environment={"STELE_SAMPLE_INTERVAL_MS": "100"}) as broker,
        httpx.Client(base_url=broker.http_url) as http,
    ):
        http.post("/v1/topics/orders/records", json={"records": [{"value": "x"}]})
        http.post("/v1/groups/billing/poll", json={"topics": ["orders"]})
        # Another coordinator takes the groups over: the broker notices with its next change.
        successor = SqliteGroupStore(broker.data_dir / "groups.sqlite")
        successor.open()
        until(lambda: http.post("/v1/groups/other/poll", json={"topics": ["orders"]}).status_code == 503)
        points = len(http.get("/v1/overview/history").json()["at"])
        assert http.get("/v1/overview").json()["health"]["status"] == "ready"
        assert "stele_groups " in http.get("/metrics").text
        until(lambda: len(http.get("/v1/overview/history").json()["at"]) > points)
        assert "taking a sample failed" not in broker.stderr
        successor.close()


def test_topics_are_listed_largest_first_or_without_internal_ones(http: httpx.Client) -> None:
    for name, values in (("ranked-a", ["x"] * 3), ("ranked-b", ["x" * 5000]), ("__ranked-c", ["x"])):
        records = [{"value": value} for value in values]
        http.post(f"/v1/topics/{name}/records", json={"records": records}).raise_for_status()
    http.put("/v1/topics/ranked-d").raise_for_status()

    def listed(**query: str | int) -> list[str]:
        answer = http.get("/v1/topics", params={"search": "ranked-", **query})
        assert answer.status_code == 200, answer.text
        return [topic["name"] for topic in answer.json()["topics"]]

    assert listed() == ["__ranked-c", "ranked-a", "ranked-b", "ranked-d"]
    assert listed(internal="false") == ["ranked-a", "ranked-b", "ranked-d"]
    assert listed(order="records") == ["ranked-a", "__ranked-c", "ranked-b", "ranked-d"]
    assert listed(order="size", internal="false") == ["ranked-b", "ranked-a", "ranked-d"]
    assert listed(order="size", internal="false", limit=2, page=2) == ["ranked-d"]
    for wrong in ({"order": "age"}, {"order": "size", "after": "ranked-a"}, {"internal": "no"}):
        answer = http.get("/v1/topics", params=wrong)
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-request"), wrong
