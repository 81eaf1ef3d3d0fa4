"""One record is one line and one event in every framed answer, JSON is UTF-8 over every protocol, and pages are consistent."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections.abc import Iterator

import httpx
import pytest
from stele.testing import BrokerProcess

# CR, LF and both, between tokens; and as escapes, which must stay.
VALUES = [
    b'{\n "a": 1\n}',
    b'{"a":1,\r"b":2}',
    b"[1,\r\n2,\r\n\r\n3]",
    b'{"c":"\\r\\n\xe2\x80\xa8"}',
    b'{"large":\r\n"' + b"x" * 300_000 + b'"\n}',
    b"not json\r\n\rbut text",
]
SHOWN = [json.loads(value) for value in VALUES[:-1]] + [VALUES[-1].decode()]
NDJSON, SSE = "application/x-ndjson", "text/event-stream"
NOT_UTF8 = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82"]


@pytest.fixture
def http(stele_broker_session: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stele_broker_session.http_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def topic(stele_broker_session: BrokerProcess) -> str:
    name = "framed"
    with httpx.Client(base_url=stele_broker_session.http_url, timeout=60) as client:
        topic = {"partitions": 1, "configs": {"cleanup.policy": "compact"}}
        client.put(f"/v1/topics/{name}", json=topic).raise_for_status()
        for number, value in enumerate(VALUES):
            headers = {"content-type": "application/octet-stream", "record-key": f"k{number}"}
            client.post(f"/v1/topics/{name}/records", content=value, headers=headers).raise_for_status()
    return name


def values_in(lines: list[bytes]) -> list[object]:
    texts = [json.loads(line) for line in lines if line]
    return [record["value"] for record in texts if "value" in record]


@pytest.mark.parametrize("path", ["partitions/0/records?as=json", "table?as=json"])
def test_each_record_is_one_line_of_ndjson(http: httpx.Client, topic: str, path: str) -> None:
    answer = http.get(f"/v1/topics/{topic}/{path}", headers={"accept": NDJSON})
    assert values_in(answer.content.split(b"\n")) == SHOWN
    assert b"\r" not in answer.content


@pytest.mark.parametrize("accept", [NDJSON, SSE])
@pytest.mark.parametrize(
    "path", ["records?from=earliest&as=json", "partitions/0/records?from=earliest&as=json", "table?as=json"]
)
def test_each_record_is_one_line_or_one_event_of_a_stream(
    http: httpx.Client, topic: str, accept: str, path: str
) -> None:
    received = b""
    with http.stream("GET", f"/v1/topics/{topic}/{path}", headers={"accept": accept}) as answer:
        for part in answer.iter_raw():
            received += part
            if b"but text" in received and received.endswith(b"\n"):
                break
    if accept == NDJSON:
        assert values_in(received.split(b"\n")) == SHOWN
        return
    # As the HTML standard reads events: CR, LF and both end a line.
    events = [re.split(rb"\r\n|\n|\r", event) for event in re.split(rb"\n\n|\r\r|\r\n\r\n", received)]
    data = [b"\n".join(line[5:].strip() for line in event if line.startswith(b"data:")) for event in events]
    assert values_in(data) == SHOWN


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_a_key_and_its_record_are_shown_alike(http: httpx.Client, topic: str, number: int) -> None:
    key = http.get(f"/v1/topics/{topic}/keys/k{number}?as=json")
    assert key.json()["value"] == SHOWN[number]
    assert (
        http.get(
            f"/v1/topics/{topic}/keys/k{number}", headers={"accept": "*/*;q=0.1,application/octet-stream"}
        ).content
        == VALUES[number]
    )


@pytest.mark.parametrize("shape", ["csv", "ndjson", "events"])
def test_a_search_returns_small_and_large_values_alike(http: httpx.Client, topic: str, shape: str) -> None:
    answer = http.get(f"/v1/topics/{topic}/search?format={shape}&limit=100")
    if shape == "csv":
        csv.field_size_limit(1_000_000)
        rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
        assert [row["value"] for row in rows] == [value.decode() for value in VALUES]
        return
    lines = [json.loads(line) for line in answer.content.split(b"\n") if line]
    found = [line.get("record", line) for line in lines if "record" in line or "value" in line]
    assert [record["value"] for record in found] == [value.decode() for value in VALUES]


@pytest.mark.every(3)
@pytest.mark.parametrize("wrong", NOT_UTF8)
@pytest.mark.parametrize("blank", [b"", b" ", b"\t", b"\r"])
@pytest.mark.parametrize("place", [b'{"a":%s"%s"}', b'{%s"%s":1}', b'[[%s"%s"]]', b'%s"%s"'])
def test_json_that_is_not_utf8_is_refused_over_every_protocol(
    http: httpx.Client, stele_broker_session: BrokerProcess, wrong: bytes, blank: bytes, place: bytes
) -> None:
    http.put("/v1/topics/utf8", json={"partitions": 1})
    value = place % (blank, wrong)
    single = b'{"records":[{"value":%s}]}' % value
    two = b'{"records":[{"value":1},{"value":%s}]}' % value
    large = b'{"records":[{"value":[%s,"%s"]}]}' % (value, b"x" * 300_000)
    transaction = b'{"records":[{"topic":"utf8","value":%s}]}' % value
    line = b'{"value":%s}\n' % value
    detailed = b'{"value":%s,"headers":[]}\n' % value
    for path, body, kind in (
        ("/v1/topics/utf8/records", single, "application/json"),
        ("/v1/topics/utf8/records", two, "application/json"),
        ("/v1/topics/utf8/records", large, "application/json"),
        ("/v1/transactions", transaction, "application/json"),
        ("/v1/topics/utf8/records", line, NDJSON),
        ("/v1/topics/utf8/records", detailed, NDJSON),
    ):
        answer = http.post(path, content=body, headers={"content-type": kind})
        assert answer.status_code == 400, (path, body[:100], answer.text)
    assert http.get("/v1/topics/utf8/partitions/0/records").json()["records"] == []


def test_a_page_never_ends_after_its_high_watermark(http: httpx.Client) -> None:
    http.put("/v1/topics/growing", json={"partitions": 1})
    body = b"".join(b'{"value":"%s"}\n' % (b"x" * 2000) for _ in range(40))
    done = threading.Event()

    def feed() -> None:
        with httpx.Client(base_url=http.base_url, timeout=60) as client:
            while not done.is_set():
                client.post(
                    "/v1/topics/growing/records?acks=1", content=body, headers={"content-type": NDJSON}
                )

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        position = 0
        for _ in range(60):
            answer = http.get(f"/v1/topics/growing/partitions/0/records?from={position}&limit=10000")
            position = int(answer.headers["Next-Offset"])
            assert position <= int(answer.headers["High-Watermark"])
            tail = answer.json()
            assert tail["next_offset"] <= tail["last_stable_offset"] <= tail["high_watermark"]
    finally:
        done.set()
        feeding.join()
