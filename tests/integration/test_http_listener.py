"""The HTTP listener, as a user of curl sees it: real requests to a real broker."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from stele.testing import BrokerProcess, run_broker
from stele.wire.record_batch import decode_records, iter_headers

NDJSON = {"content-type": "application/x-ndjson"}
OCTETS = {"content-type": "application/octet-stream"}
_numbers = itertools.count()


@pytest.fixture
def http(stele_broker_session: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stele_broker_session.http_url, timeout=30) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"http-{next(_numbers)}"


def problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """The problem document of an answer, with all that every problem has."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"/problems/{slug}"
    assert document["status"] == status
    assert document["detail"]
    assert isinstance(document["kafka_code"], int)
    assert isinstance(document["retriable"], bool)
    return document


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def records_of(http: httpx.Client, topic: str, *, start: str = "earliest") -> list[dict[str, Any]]:
    answer = http.get(f"/v1/topics/{topic}/partitions/0/records", params={"from": start})
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()["records"]
    return records


# ── topics ──


def test_put_creates_a_topic_once_and_refuses_another_shape(http: httpx.Client, topic: str) -> None:
    body = {"partitions": 3, "configs": {"retention.ms": 60000}}

    assert http.put(f"/v1/topics/{topic}", json=body).status_code == 201
    assert http.put(f"/v1/topics/{topic}", json=body).status_code == 200
    differs = problem(http.put(f"/v1/topics/{topic}", json={"partitions": 4}), 409, "topic-differs")
    assert "it has 3 partitions, requested are 4" in differs["differences"]


def test_patch_sets_and_unsets_configurations_and_grows_partitions(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"partitions": 1, "configs": {"segment.bytes": 4096}})

    altered = http.patch(
        f"/v1/topics/{topic}", json={"partitions": 2, "configs": {"retention.ms": 5000}}
    ).json()
    assert (altered["partition_count"], altered["configs"]) == (
        2,
        {"segment.bytes": "4096", "retention.ms": "5000"},
    )

    reset = http.patch(f"/v1/topics/{topic}", json={"configs": {"retention.ms": None}}).json()
    assert reset["effective_configs"]["retention.ms"] == "604800000"
    problem(http.patch(f"/v1/topics/{topic}", json={"partitions": 1}), 400, "invalid-partition-count")


def test_a_deleted_topic_is_gone_and_its_name_can_be_used_again(http: httpx.Client, topic: str) -> None:
    http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": "old"}]})

    assert http.delete(f"/v1/topics/{topic}").status_code == 204
    problem(http.get(f"/v1/topics/{topic}"), 404, "unknown-topic")
    http.put(f"/v1/topics/{topic}")
    assert records_of(http, topic) == []


def test_topics_are_listed_a_page_at_a_time(http: httpx.Client, topic: str) -> None:
    names = [f"{topic}-page-{n}" for n in range(5)]
    for name in names:
        http.put(f"/v1/topics/{name}")

    found: list[str] = []
    after = ""
    while after is not None:
        page = http.get("/v1/topics", params={"prefix": f"{topic}-page-", "limit": 2, "after": after}).json()
        found += [entry["name"] for entry in page["topics"]]
        after = page["next_after"]

    assert found == names


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 250, "..", "a/../b%00"])
def test_a_name_that_no_topic_can_have_is_refused(http: httpx.Client, name: str) -> None:
    answer = http.put(f"/v1/topics/{name}")

    assert answer.status_code in (400, 404, 405), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_configuration_that_does_not_exist_or_makes_no_sense_is_refused(
    http: httpx.Client, topic: str
) -> None:
    for configs in (
        {"retention.msec": 1},
        {"retention.ms": "soon"},
        {"segment.bytes": 1},
        {"cleanup.policy": "x"},
    ):
        problem(http.put(f"/v1/topics/{topic}", json={"configs": configs}), 400, "invalid-config")


# ── produce ──


@pytest.mark.parametrize(
    ("acks", "receipt"), [("all", "synced"), ("-1", "synced"), ("1", "appended"), ("0", "none")]
)
def test_the_receipt_reports_the_durability_of_a_write(
    http: httpx.Client, topic: str, acks: str, receipt: str
) -> None:
    answer = http.post(f"/v1/topics/{topic}/records", params={"acks": acks}, json={"records": [{"value": 1}]})

    assert answer.json()["durability"] == receipt


def test_a_topic_in_memory_promises_nothing(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"stele.storage": "memory", "stele.memory.records": 3}})

    answer = http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": n} for n in range(5)]})

    assert answer.json()["durability"] == "none"
    gone = problem(
        http.get(f"/v1/topics/{topic}/partitions/0/records", params={"from": 0}), 410, "offset-gone"
    )
    assert gone["log_start_offset"] == 2
    assert [record["value"] for record in records_of(http, topic, start="earliest")] == ["2", "3", "4"]


def test_one_invalid_record_refuses_the_whole_json_body_and_is_named(http: httpx.Client, topic: str) -> None:
    body = {"records": [{"value": "good"}, {"key": "no value"}, {"value": 1, "value_b64": "AA=="}]}

    refused = problem(http.post(f"/v1/topics/{topic}/records", json=body), 400, "bad-request")

    assert [error["index"] for error in refused["errors"]] == [1, 2]
    assert records_of(http, topic) == []


def test_a_bad_line_of_ndjson_is_an_error_in_its_place_and_the_others_are_stored(
    http: httpx.Client, topic: str
) -> None:
    answer = http.post(
        f"/v1/topics/{topic}/records", content=b'{"value":"a"}\n\nbad\r\n{"value":"b"}', headers=NDJSON
    )

    assert answer.status_code == 207
    first, bad, last = lines_of(answer)
    assert (first["offset"], last["offset"]) == (0, 1)
    assert (bad["index"], bad["error"]["type"]) == (1, "/problems/invalid-request")
    assert [record["value"] for record in records_of(http, topic)] == ["a", "b"]


def test_ndjson_of_which_nothing_can_be_stored_is_an_error(http: httpx.Client, topic: str) -> None:
    answer = http.post(f"/v1/topics/{topic}/records", content=b"bad\nworse\n", headers=NDJSON)

    assert [error["index"] for error in problem(answer, 400, "invalid-request")["errors"]] == [0, 1]


@pytest.mark.long
def test_a_client_may_send_everything_before_it_reads_a_single_result(http: httpx.Client, topic: str) -> None:
    body = b"".join(b'{"value":%d}\n' % n for n in range(200_000))

    answer = http.post(f"/v1/topics/{topic}/records?acks=1", content=body, headers=NDJSON)

    assert answer.headers["durability"] == "appended"
    assert [line["offset"] for line in lines_of(answer)] == list(range(200_000))


def test_results_come_while_the_upload_is_still_going_on(
    stele_broker_session: BrokerProcess, topic: str
) -> None:
    host, _, port = stele_broker_session.http_url.removeprefix("http://").rpartition(":")
    head = (
        f"POST /v1/topics/{topic}/records?acks=1 HTTP/1.1\r\nHost: {host}\r\n"
        "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode())
        connection.sendall(b'e\r\n{"value":"a"}\n\r\n')
        received = b""
        while b'"offset":0' not in received:
            received += connection.recv(65536)
        connection.sendall(b'e\r\n{"value":"b"}\n\r\n0\r\n\r\n')
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(65536)

    assert b"200 OK" in received
    assert b'"offset":1' in received


def test_a_line_longer_than_the_limit_ends_the_upload_and_what_came_before_is_stored(
    http: httpx.Client, topic: str
) -> None:
    body = b'{"value":"kept"}\n' + b'{"value":"' + b"x" * 3_000_000 + b'"}\n'

    answer = http.post(f"/v1/topics/{topic}/records", content=body, headers=NDJSON)

    assert answer.status_code in (207, 413), answer.text
    assert [record["value"] for record in records_of(http, topic)] == ["kept"]


def test_bytes_are_stored_as_they_are_with_key_headers_and_time(http: httpx.Client, topic: str) -> None:
    headers = OCTETS | {"record-key": "k", "record-header-trace": "1", "record-timestamp": "1700000000000"}
    http.post(f"/v1/topics/{topic}/records", content=b"\x00\xff", headers=headers)

    (record,) = records_of(http, topic)
    assert record == {
        "partition": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value_b64": "AP8=",
        "headers": [{"key": "trace", "value": "1"}],
    }


def test_a_record_larger_than_the_topic_allows_is_refused(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"max.message.bytes": 2000}})
    answer = http.post(f"/v1/topics/{topic}/records", content=b"x" * 3000, headers=OCTETS)

    assert problem(answer, 413, "too-large")["limit"] == 2000


def test_an_idempotent_retry_is_answered_with_the_first_offsets(http: httpx.Client, topic: str) -> None:
    identity = http.post("/v1/producers").json()
    headers = {
        "producer-id": str(identity["producer_id"]),
        "producer-epoch": str(identity["producer_epoch"]),
        "producer-sequence": "0",
    }
    body = {"records": [{"value": "a"}, {"value": "b"}]}

    first = http.post(f"/v1/topics/{topic}/records", json=body, headers=headers).json()
    again = http.post(f"/v1/topics/{topic}/records", json=body, headers=headers).json()
    skipped = http.post(
        f"/v1/topics/{topic}/records", json=body, headers=headers | {"producer-sequence": "9"}
    )

    assert [r["offset"] for r in first["records"]] == [r["offset"] for r in again["records"]] == [0, 1]
    assert problem(skipped, 409, "out-of-order-sequence")["expected"] == 2
    assert len(records_of(http, topic)) == 2


def test_an_idempotent_produce_over_several_partitions_must_name_one(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"partitions": 2})
    headers = {"producer-id": "1", "producer-epoch": "0", "producer-sequence": "0"}

    answer = http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": 1}]}, headers=headers)

    problem(answer, 400, "invalid-request")


# ── read ──


@pytest.fixture
def filled(http: httpx.Client, topic: str) -> str:
    """Ten records, a second apart from 2023-11-14T22:13:20Z on."""
    records = [{"value": {"n": n}, "timestamp": 1_700_000_000_000 + n * 1000} for n in range(10)]
    http.post(f"/v1/topics/{topic}/records", json={"records": records}).raise_for_status()
    return topic


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("0", 0),
        ("7", 7),
        ("earliest", 0),
        ("2023-11-14T22:13:24Z", 4),
        ("2023-11-14T22:13:23.5Z", 4),
        ("2023-11-14T23:13:24+01:00", 4),
        ("-36500d", 0),
    ],
)
def test_a_read_begins_at_an_offset_or_a_time(
    http: httpx.Client, filled: str, start: str, first: int
) -> None:
    assert [record["offset"] for record in records_of(http, filled, start=start)] == list(range(first, 10))


@pytest.mark.parametrize("start", ["latest", "10", "-1h"])
def test_a_read_at_the_end_is_empty_and_has_the_next_offset(
    http: httpx.Client, filled: str, start: str
) -> None:
    answer = http.get(f"/v1/topics/{filled}/partitions/0/records", params={"from": start})

    assert answer.json() == {
        "records": [],
        "next_offset": 10,
        "high_watermark": 10,
        "last_stable_offset": 10,
        "log_start_offset": 0,
    }


def test_a_read_in_pages_gives_every_record_once(http: httpx.Client, filled: str) -> None:
    offsets: list[int] = []
    position = 0
    while True:
        answer = http.get(f"/v1/topics/{filled}/partitions/0/records", params={"from": position, "limit": 3})
        page = [record["offset"] for record in answer.json()["records"]]
        assert answer.headers["next-offset"] == str(answer.json()["next_offset"])
        if not page:
            break
        offsets += page
        position = answer.json()["next_offset"]

    assert offsets == list(range(10))


def test_a_large_read_comes_whole_in_both_forms(http: httpx.Client, topic: str) -> None:
    body = b"".join(b'{"key":"k%d","value":{"n":%d}}\n' % (n % 7, n) for n in range(20_000))
    http.post(f"/v1/topics/{topic}/records?acks=1", content=body, headers=NDJSON)
    url = f"/v1/topics/{topic}/partitions/0/records"

    as_json = http.get(url, params={"from": 0, "limit": 50_000, "as": "json"}).json()
    as_lines = lines_of(
        http.get(
            url, params={"from": 5, "limit": 19_990, "as": "json"}, headers={"accept": NDJSON["content-type"]}
        )
    )

    assert [record["value"]["n"] for record in as_json["records"]] == list(range(20_000))
    assert [record["value"]["n"] for record in as_lines] == list(range(5, 19_995))


ARROW = {"accept": "application/vnd.apache.arrow.stream"}


def test_a_read_as_arrow_has_the_same_records_as_one_as_json(http: httpx.Client, topic: str) -> None:
    pa: Any = pytest.importorskip("pyarrow", reason="pip install 'stele-broker[arrow]'")
    body = b"".join(
        b'{"key":"k%d","value":"%d","headers":[{"key":"h","value":"%d"}]}\n' % (n % 7, n, n)
        for n in range(9000)
    )
    body += b'{"key":null,"value":null}\n{"value_b64":"/wA="}\n'
    http.post(f"/v1/topics/{topic}/records?acks=1", content=body, headers=NDJSON).raise_for_status()
    url, asked = f"/v1/topics/{topic}/partitions/0/records", {"from": 5, "limit": 20_000}

    answer = http.get(url, params=asked, headers=ARROW)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = pa.ipc.open_stream(answer.content).read_all().to_pylist()

    as_json = http.get(url, params=asked).json()
    assert answer.headers["next-offset"] == str(as_json["next_offset"]) == "9002"
    assert [row["offset"] for row in rows] == [record["offset"] for record in as_json["records"]]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {(topic, 0, 0)}
    for row, record in zip(rows[:-1], as_json["records"], strict=False):
        assert (row["key"] or b"").decode() == (record.get("key") or "")
        assert row["value"] == (None if record["value"] is None else record["value"].encode())
        assert row["timestamp"].timestamp() * 1000 == pytest.approx(record["timestamp"])
        told: list[dict[str, Any]] = row["headers"] or []
        assert [{"key": h["key"], "value": h["value"].decode()} for h in told] == record.get("headers", [])
    assert rows[-1]["value"] == b"\xff\x00"

    page = http.get(url, params={"from": 7, "limit": 3}, headers=ARROW)
    assert pa.ipc.open_stream(page.content).read_all()["offset"].to_pylist() == [7, 8, 9]
    empty = http.get(url, params={"from": "latest"}, headers=ARROW)
    assert pa.ipc.open_stream(empty.content).read_all().num_rows == 0


def test_batches_are_served_as_they_are_stored(http: httpx.Client, filled: str) -> None:
    answer = http.get(
        f"/v1/topics/{filled}/partitions/0/records",
        params={"from": 4},
        headers={"accept": OCTETS["content-type"]},
    )

    values = [r.value for h in iter_headers(answer.content) for r in decode_records(answer.content, h)]
    assert values[-1] == b'{"n":9}'
    assert answer.headers["next-offset"] == "10"


@pytest.mark.parametrize(
    ("path", "status", "slug"),
    [
        ("/v1/topics/{}/partitions/0/records?from=11", 416, "offset-out-of-range"),
        ("/v1/topics/{}/partitions/0/records?from=soon", 400, "invalid-request"),
        ("/v1/topics/{}/partitions/0/records?limit=0", 400, "invalid-request"),
        ("/v1/topics/{}/partitions/0/records?limit=many", 400, "invalid-request"),
        ("/v1/topics/{}/partitions/0/records?as=xml", 400, "invalid-request"),
        ("/v1/topics/{}/partitions/9/records", 404, "unknown-partition"),
        ("/v1/topics/{}/partitions/x/records", 404, "not-found"),
        ("/v1/topics/no-such-topic/partitions/0/records", 404, "unknown-topic"),
        ("/v1/topics/{}/partitions/0/offsets?at=whenever", 400, "invalid-request"),
        ("/v1/nowhere", 404, "not-found"),
    ],
)
def test_an_invalid_read_is_a_problem_with_a_remedy(
    http: httpx.Client, filled: str, path: str, status: int, slug: str
) -> None:
    problem(http.get(path.format(filled)), status, slug)


def test_wrong_methods_and_media_types_are_problems_too(http: httpx.Client, filled: str) -> None:
    problem(http.delete("/v1/topics"), 405, "method-not-allowed")
    url = f"/v1/topics/{filled}/partitions/0/records"
    problem(http.get(url, headers={"accept": "image/png"}), 406, "not-acceptable")
    answer = http.post(f"/v1/topics/{filled}/records", content=b"<a/>", headers={"content-type": "text/xml"})
    problem(answer, 415, "unsupported-media-type")


def test_a_body_larger_than_the_limit_is_refused(http: httpx.Client, topic: str) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 1024 * 1024

    answer = http.post(
        f"/v1/topics/{topic}/records", content=endless(), headers={"content-type": "application/json"}
    )

    assert answer.status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'{"records":[]}',
        b'{"records":' + b"[" * 50_000,
        b'{"records":[{"value":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}]}",
        b"\xff\xfe",
        b'{"records":[{"value":1,"partition":99999999999999999999}]}',
        b'{"records":[{"value":1,"partition":-1}]}',
        b'{"records":[{"value":1,"headers":{"not":"a list"}}]}',
    ],
)
def test_nonsense_in_a_body_is_never_our_fault(http: httpx.Client, topic: str, body: bytes) -> None:
    answer = http.post(
        f"/v1/topics/{topic}/records", content=body, headers={"content-type": "application/json"}
    )

    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"


# ── streams ──


def events_of(lines: Iterator[str], count: int) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    event_id = ""
    for line in lines:
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            found.append((event_id, json.loads(line.removeprefix("data: "))))
            if len(found) == count:
                break
    return found


def test_an_event_stream_is_resumed_after_its_last_event(http: httpx.Client, filled: str) -> None:
    url = f"/v1/topics/{filled}/partitions/0/records"
    accept = {"accept": "text/event-stream"}
    with http.stream("GET", url, params={"from": "earliest"}, headers=accept) as stream:
        told = events_of(stream.iter_lines(), 4)
    topic_id = http.get(f"/v1/topics/{filled}").json()["topic_id"]
    assert [event_id for event_id, _ in told] == [f"0:{n}@{topic_id[:8]}" for n in range(4)]

    with http.stream("GET", url, headers=accept | {"last-event-id": told[-1][0]}) as stream:
        resumed = events_of(stream.iter_lines(), 6)

    assert [record["offset"] for _, record in resumed] == [4, 5, 6, 7, 8, 9]


def test_a_stream_over_all_partitions_resumes_in_each_of_them(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"partitions": 3})
    records = [{"value": n, "partition": n % 3} for n in range(9)]
    http.post(f"/v1/topics/{topic}/records", json={"records": records})
    accept = {"accept": "text/event-stream"}
    with http.stream(
        "GET", f"/v1/topics/{topic}/records", params={"from": "earliest"}, headers=accept
    ) as stream:
        told = events_of(stream.iter_lines(), 5)
    with http.stream(
        "GET", f"/v1/topics/{topic}/records", headers=accept | {"last-event-id": told[-1][0]}
    ) as stream:
        told += events_of(stream.iter_lines(), 4)

    assert sorted(record["value"] for _, record in told) == [str(n) for n in range(9)]


def test_a_live_tail_as_ndjson_gives_what_is_written_meanwhile(http: httpx.Client, filled: str) -> None:
    accept = {"accept": "application/x-ndjson"}
    with http.stream(
        "GET", f"/v1/topics/{filled}/records", params={"from": "latest"}, headers=accept
    ) as stream:
        http.post(f"/v1/topics/{filled}/records", json={"records": [{"value": "new"}]})
        line = next(stream.iter_lines())

    assert json.loads(line)["value"] == "new"


def test_a_stream_ends_when_the_broker_does() -> None:
    with run_broker() as broker, httpx.Client(base_url=broker.http_url, timeout=30) as http:
        http.put("/v1/topics/t")
        with http.stream("GET", "/v1/topics/t/records", headers={"accept": "text/event-stream"}) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert broker.stop() == 0
            assert list(lines) in ([""], ["", ": nothing new", ""])


# ── the rest ──


def test_reads_before_the_log_start_get_410_with_the_earliest_offset() -> None:
    settings = {"STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "20"}
    with (
        run_broker(environment=settings) as broker,
        httpx.Client(base_url=broker.http_url, timeout=30) as http,
    ):
        configs = {"segment.bytes": 2048, "retention.bytes": 4096}
        http.put("/v1/topics/short", json={"configs": configs})
        start = 0
        while start == 0:
            http.post("/v1/topics/short/records", json={"records": [{"value": "x" * 900}]})
            start = http.get("/v1/topics/short").json()["partitions"][0]["log_start_offset"]

        gone = problem(http.get("/v1/topics/short/partitions/0/records?from=0"), 410, "offset-gone")
        assert gone["log_start_offset"] >= start
        assert records_of(http, "short", start="earliest")[0]["offset"] >= start


def test_health_readiness_cluster_and_flush(http: httpx.Client, filled: str) -> None:
    assert http.get("/healthz").json() == {"status": "alive"}
    assert http.get("/readyz").json() == {"status": "ready"}
    assert http.get("/v1/cluster").json()["cluster_id"]
    assert http.post(f"/v1/topics/{filled}/flush").json()["durability"] == "synced"
    assert http.post("/v1/flush").json() == {"durability": "synced"}
    problem(http.post("/v1/topics/no-such-topic/flush"), 404, "unknown-topic")


def test_metrics_show_the_size_of_the_produce_queue(http: httpx.Client, topic: str) -> None:
    created = http.put(f"/v1/topics/{topic}", json={"configs": {"compression.type": "zstd"}})
    assert created.status_code == 201
    posted = http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": "x"}]})
    assert posted.status_code == 200
    lines = http.get("/metrics").text.splitlines()
    assert "stele_produce_queue_requests 0.0" in lines
    assert "stele_produce_queue_bytes 0.0" in lines


def test_metrics_count_the_producers_that_partitions_remember(http: httpx.Client, topic: str) -> None:
    def remembered() -> int:
        lines = http.get("/metrics").text.splitlines()
        assert "stele_producer_states_forgotten_total 0.0" in lines
        (line,) = (line for line in lines if line.startswith("stele_producer_states "))
        return round(float(line.split()[1]))

    assert http.put(f"/v1/topics/{topic}", json={"partitions": 2}).status_code == 201
    before = remembered()
    producer = http.post("/v1/producers").json()
    headers = {
        "Producer-Id": str(producer["producer_id"]),
        "Producer-Epoch": str(producer["producer_epoch"]),
        "Producer-Sequence": "0",
    }
    for partition in range(2):
        posted = http.post(
            f"/v1/topics/{topic}/records?partition={partition}",
            json={"records": [{"value": "x"}]},
            headers=headers,
        )
        assert posted.status_code == 200
    assert remembered() == before + 2


def test_metrics_of_requests_do_not_grow_with_the_number_of_topics(http: httpx.Client, topic: str) -> None:
    def series() -> int:
        # Topics have series of their own, up to a limit (test_http_looking).
        own = ("#", "stele_topic_", "stele_group_")
        return sum(not line.startswith(own) for line in http.get("/metrics").text.splitlines())

    http.put(f"/v1/topics/{topic}-first")
    http.get("/metrics")
    before = series()
    for number in range(50):
        http.put(f"/v1/topics/{topic}-{number}")

    assert series() == before


def test_the_docs_need_no_network_and_their_examples_run_as_they_stand(
    http: httpx.Client, topic: str
) -> None:
    for page in ("/docs", "/redoc"):
        text = http.get(page).text
        assert "//cdn" not in text
        assert "https://" not in text.replace("https://www.w3.org", "").replace(
            "https://fonts.googleapis.com", ""
        )

    paths = http.get("/openapi.json").json()["paths"]
    content = paths["/v1/topics/{topic}/records"]["post"]["requestBody"]["content"]
    for media_type, body in content.items():
        example = body["example"] if isinstance(body["example"], str) else json.dumps(body["example"])
        answer = http.post(
            f"/v1/topics/{topic}/records", content=example, headers={"content-type": media_type}
        )
        assert answer.status_code == 200, answer.text
    example = paths["/v1/topics/{topic}"]["put"]["requestBody"]["content"]["application/json"]["example"]
    assert http.put(f"/v1/topics/{topic}-docs", json=example).status_code == 201
