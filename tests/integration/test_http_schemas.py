"""Keys and values with schemas over HTTP: every route shows them as JSON, and what cannot be shown as its bytes."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import httpx
import pytest
from stele import Client, Consumer, SchemaRegistry
from stele.broker_process import BrokerProcess
from stele.operations.leases import Poll
from stele.schemas import framing

from tests.support.brokers import run_broker_or_cluster
from tests.support.contracts import CUT, TEA, framed, register

_numbers = itertools.count()
KEY = json.dumps({"type": "record", "name": "Id", "fields": [{"name": "n", "type": "int"}]})
PROTO = """syntax = "proto3"; package shop;
message First { string a = 1; }
message Order { int64 id = 1; message Line { double amount = 1; } repeated Line lines = 2; }
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("schemas")) as broker:
        yield broker


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        yield http


@pytest.fixture
def topic() -> str:
    """A name nobody else uses, for the broker is shared."""
    return f"schemas-{next(_numbers)}"


def unique() -> str:
    """Return a schema that no other test has."""
    return json.dumps({"type": "enum", "name": f"Unique{next(_numbers)}", "symbols": ["A"]})


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def store(http: httpx.Client, topic: str, *values: bytes, **fields: Any) -> None:
    records = [{"value_b64": b64(value), **fields} for value in values]
    answer = http.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert answer.status_code == 200, answer.text


def page(http: httpx.Client, topic: str, **query: Any) -> list[dict[str, Any]]:
    answer = http.get(f"/v1/topics/{topic}/partitions/0/records", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["records"]


# ── every route shows the same ──


def _lines(http: httpx.Client, path: str, query: Mapping[str, str], accept: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON of the lines or events of an answer that may have no end."""
    with http.stream("GET", path, params=query, headers={"Accept": accept}) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            text = line.removeprefix("data: ")
            if text.startswith("{"):
                yield json.loads(text)


def _first(http: httpx.Client, path: str, query: Mapping[str, str], accept: str) -> dict[str, Any]:
    return next(line for line in _lines(http, path, query, accept) if "offset" in line)


def _polled(http: httpx.Client, path: str, topic: str, query: Mapping[str, str]) -> dict[str, Any]:
    body = {"topics": [topic], "from": "earliest"}
    (record,) = http.post(path, params=query, json=body).json()["records"]
    return {name: value for name, value in record.items() if name not in ("topic", "deliveries")}


def _found(http: httpx.Client, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    return next(line["record"] for line in _lines(http, path, query, "*/*") if "record" in line)


_ROUTES: dict[str, Callable[[httpx.Client, str, bytes, dict[str, str]], dict[str, Any]]] = {
    "page": lambda http, topic, key, query: page(http, topic, **query)[0],
    "page, NDJSON": lambda http, topic, key, query: _first(
        http, f"/v1/topics/{topic}/partitions/0/records", query, "application/x-ndjson"
    ),
    "page, as=json": lambda http, topic, key, query: page(http, topic, **query, **{"as": "json"})[0],
    "events of a partition": lambda http, topic, key, query: _first(
        http, f"/v1/topics/{topic}/partitions/0/records", query | {"from": "earliest"}, "text/event-stream"
    ),
    "tail": lambda http, topic, key, query: _first(
        http, f"/v1/topics/{topic}/records", query | {"from": "earliest"}, "application/x-ndjson"
    ),
    "events of a topic": lambda http, topic, key, query: _first(
        http, f"/v1/topics/{topic}/records", query | {"from": "earliest"}, "text/event-stream"
    ),
    "events with a condition": lambda http, topic, key, query: _first(
        http, f"/v1/topics/{topic}/records", query | {"from": "earliest", "value": "tea"}, "text/event-stream"
    ),
    "record": lambda http, topic, key, query: http.get(
        f"/v1/topics/{topic}/partitions/0/records/0", params=query
    ).json(),
    "key": lambda http, topic, key, query: http.get(
        f"/v1/topics/{topic}/keys/{base64.urlsafe_b64encode(key).decode()}",
        params=query | {"encoding": "base64"},
    ).json(),
    "table": lambda http, topic, key, query: _first(
        http, f"/v1/topics/{topic}/table", query, "application/x-ndjson"
    ),
    "table, events": lambda http, topic, key, query: _first(
        http, f"/v1/topics/{topic}/table", query, "text/event-stream"
    ),
    "events with a condition on a field": lambda http, topic, key, query: _first(
        http,
        f"/v1/topics/{topic}/records",
        query | {"from": "earliest", "json": "id == 1"},
        "text/event-stream",
    ),
    "search": lambda http, topic, key, query: _found(http, f"/v1/topics/{topic}/search", query),
    "search by a field": lambda http, topic, key, query: _found(
        http, f"/v1/topics/{topic}/search", query | {"json": "item ~ te"}
    ),
    "search, NDJSON": lambda http, topic, key, query: _first(
        http, f"/v1/topics/{topic}/search", query | {"format": "ndjson"}, "*/*"
    ),
    "poll": lambda http, topic, key, query: _polled(http, f"/v1/groups/g-{topic}/poll", topic, query),
    "share poll": lambda http, topic, key, query: _polled(
        http, f"/v1/groups/s-{topic}/share/poll", topic, query
    ),
}


@pytest.mark.parametrize("route", _ROUTES)
def test_every_route_shows_a_record_as_its_schemas_say(
    broker: BrokerProcess, http: httpx.Client, topic: str, route: str
) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"cleanup.policy": "compact"}}).raise_for_status()
    value_id = register(broker.registry_url, f"{topic}-value")
    key_id = register(broker.registry_url, f"{topic}-key", KEY)
    key = framed(key_id, b"\x0e")
    store(http, topic, framed(value_id), key_b64=b64(key), headers=[{"key": "h", "value": "1"}])
    shown = _ROUTES[route](http, topic, key, {})
    assert shown.pop("timestamp") > 0
    assert shown == {
        "partition": 0,
        "offset": 0,
        "key": {"n": 7},
        "value": {"id": 1, "item": "tea"},
        "headers": [{"key": "h", "value": "1"}],
        "schema": {"id": value_id, "subject": f"{topic}-value", "version": 1, "type": "AVRO"},
        "keySchema": {"id": key_id, "subject": f"{topic}-key", "version": 1, "type": "AVRO"},
    }


@pytest.mark.parametrize("route", _ROUTES)
def test_every_route_shows_the_bytes_on_request(
    broker: BrokerProcess, http: httpx.Client, topic: str, route: str
) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"cleanup.policy": "compact"}}).raise_for_status()
    value = framed(register(broker.registry_url, f"{topic}-value"))
    store(http, topic, value, key="k")
    shown = _ROUTES[route](http, topic, b"k", {"decode": "raw"})
    assert shown.pop("timestamp") > 0
    assert shown == {"partition": 0, "offset": 0, "key": "k", "value": value.decode(), "headers": []}


def test_a_search_compares_the_fields_of_records_and_of_json(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    value_id = register(broker.registry_url, f"{topic}-value")
    unknown = framed(1_000_000)
    store(http, topic, framed(value_id), b'{"id": 2}', unknown, framed(value_id, CUT), framed(value_id))
    query = {"json": "id < 3", "format": "ndjson", "order": "oldest"}
    found = http.get(f"/v1/topics/{topic}/search", params=query).text.splitlines()
    assert [json.loads(line)["offset"] for line in found] == [0, 1, 4]


def test_a_spreadsheet_has_the_json(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    store(http, topic, framed(register(broker.registry_url, f"{topic}-value")))
    rows = http.get(f"/v1/topics/{topic}/search", params={"format": "csv"}).text.splitlines()
    assert rows[1].split(",", 3)[3] == '"","{""id"":1,""item"":""tea""}","",""'


def test_a_record_that_is_sent_in_pieces_is_decoded_as_well(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    schema_id = register(broker.registry_url, f"{topic}-value", '"string"')
    key_id = register(broker.registry_url, f"{topic}-key", KEY)
    text = 'é"\n' * 50_000
    length = len(text.encode()) * 2
    # The length of a string is a zigzag varint.
    payload = bytes((length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14)) + text.encode()
    store(http, topic, framed(schema_id, payload), key_b64=b64(framed(key_id, b"\x0e")))
    for shown in (
        *page(http, topic),
        http.get(f"/v1/topics/{topic}/partitions/0/records/0").json(),
        _found(http, f"/v1/topics/{topic}/search", {}),
    ):
        assert shown["value"] == text
        assert shown["key"] == {"n": 7}
        assert (shown["schema"]["id"], shown["keySchema"]["id"]) == (schema_id, key_id)
    (shown,) = page(http, topic, decode="raw")
    assert base64.b64decode(shown["value_b64"]) == framed(schema_id, payload)
    rows = http.get(f"/v1/topics/{topic}/search", params={"format": "csv"}).text
    assert json.dumps(text, ensure_ascii=False).replace('"', '""') in rows


# ── schemas ──


def test_the_schema_of_a_header(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    schema_id = register(broker.registry_url, f"{topic}-value")
    with SchemaRegistry(broker.registry_url) as registry:
        guid = registry.version(f"{topic}-value").guid
    header = {"key": framing.VALUE_HEADER, "value_b64": b64(framing.join_header(UUID(guid)))}
    store(http, topic, TEA, headers=[header])
    (shown,) = page(http, topic)
    assert shown["value"] == {"id": 1, "item": "tea"}
    assert shown["schema"]["id"] == schema_id
    assert [name["key"] for name in shown["headers"]] == [framing.VALUE_HEADER]


def test_json_is_shown_as_it_was_written(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    schema_id = register(broker.registry_url, f"{topic}-value", '{"type": "object"}', "JSON")
    text = b'{"b": 1e2,\n "a": 12345678901234567890123, "a": [ ]}'
    store(http, topic, framed(schema_id, text), framed(schema_id, b"[]"))
    answer = http.get(f"/v1/topics/{topic}/partitions/0/records")
    assert text.replace(b"\n", b"") in answer.content
    # It is no object.
    assert answer.json()["records"][1]["value"] == framed(schema_id, b"[]").decode()


def test_a_message_that_is_not_the_first_has_its_name(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    schema_id = register(broker.registry_url, f"{topic}-value", PROTO, "PROTOBUF")
    store(
        http,
        topic,
        framed(schema_id, b"\0\n\1x"),
        framed(schema_id, framing.join_indexes((1,), b"\x08\x80\x80\x80\x80\x10")),
        framed(schema_id, framing.join_indexes((1, 0), b"\x09" + bytes(6) + b"\xf8\x7f")),
        framed(schema_id, framing.join_indexes((7,), b"")),
    )
    first, second, third, unknown = page(http, topic)
    assert (first["value"], first["schema"].get("message")) == ({"a": "x"}, None)
    assert (second["value"], second["schema"]["message"]) == ({"id": 1 << 32}, "shop.Order")
    assert (third["value"], third["schema"]["message"]) == ({"amount": "NaN"}, "shop.Order.Line")
    assert "schema" not in unknown


def test_the_subject_is_that_of_the_topic_if_several_have_the_schema(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    schema_id = register(broker.registry_url, f"a-{topic}")
    assert register(broker.registry_url, f"{topic}-value") == schema_id
    register(broker.registry_url, f"named-{topic}")
    store(http, topic, framed(schema_id))
    assert page(http, topic)[0]["schema"]["subject"] == f"{topic}-value"
    configs = {"stele.value.subject.name.strategy": f"subject:named-{topic}"}
    http.patch(f"/v1/topics/{topic}", json={"configs": configs}).raise_for_status()
    assert page(http, topic)[0]["schema"]["subject"] == f"named-{topic}"


def test_ids_are_those_of_the_context_of_the_topic(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    subject = f":.c-{topic}:values"
    schema_id = register(broker.registry_url, subject.replace(":", "%3A"), '"int"')
    configs = {"stele.value.subject.name.strategy": f"subject:{subject}"}
    http.put(f"/v1/topics/{topic}", json={"configs": configs}).raise_for_status()
    store(http, topic, framed(schema_id, b"\x0e"))
    (shown,) = page(http, topic)
    assert (shown["value"], shown["schema"]["subject"]) == (7, subject)


# ── what is not decoded ──


def test_what_cannot_be_decoded_is_shown_as_its_bytes(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    schema_id = register(broker.registry_url, f"{topic}-value")
    values = (
        framed(2**31 - 1),
        framed(0),
        b"\xff" + framed(schema_id)[1:],
        framed(schema_id, CUT),
        framed(schema_id, TEA + b"x"),
        b"\0\0\0\0",
        b"",
    )
    headers = [
        [{"key": framing.VALUE_HEADER, "value_b64": b64(data)}]
        for data in (b"", b"\1", b"\2" + bytes(16), b"\1" + bytes(16), b"\0\0", framed(2**31 - 1, b""))
    ]
    twice = {"key": framing.VALUE_HEADER, "value_b64": b64(framed(schema_id, b""))}
    store(http, topic, *values)
    for each in (*headers, [twice, twice], [{"key": framing.VALUE_HEADER, "value": None}]):
        store(http, topic, TEA, headers=each)
    store(http, topic, framed(schema_id))
    *raw, decoded = page(http, topic)
    assert raw == page(http, topic, decode="raw")[:-1]
    assert base64.b64decode(raw[2]["value_b64"]) == values[2]
    assert decoded["schema"]["id"] == schema_id


def test_a_schema_is_found_once_it_is_registered(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    newest = register(broker.registry_url, f"before-{topic}", unique())
    store(http, topic, framed(newest + 1, b"\0"))
    assert "schema" not in page(http, topic)[0]
    assert register(broker.registry_url, f"{topic}-value", unique()) == newest + 1
    assert page(http, topic)[0]["value"] == "A"


def test_a_deleted_schema_still_says_what_its_values_are(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    schema_id = register(broker.registry_url, f"{topic}-value", unique())
    store(http, topic, framed(schema_id, b"\0"))
    assert page(http, topic)[0]["value"] == "A"
    subject = f"{broker.registry_url}/subjects/{topic}-value"
    httpx.delete(subject).raise_for_status()
    assert page(http, topic)[0]["value"] == "A"
    httpx.delete(subject, params={"permanent": "true"}).raise_for_status()
    assert "schema" not in page(http, topic)[0]


def test_a_few_bytes_never_become_a_large_answer(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    kind = {"type": "enum", "name": f"Kind{topic[8:]}", "symbols": ["x" * 100_000]}
    array = register(broker.registry_url, f"{topic}-value", json.dumps({"type": "array", "items": kind}))
    # An array of 200 and one of 90,000 symbols, a byte each: they would be 20 MB and 9 GB.
    bombs = [
        framed(array, b"\x90\x03" + bytes(200) + b"\0"),
        framed(array, b"\xa0\xfe\x0a" + bytes(90_000) + b"\0"),
    ]
    nulls = register(broker.registry_url, f"nulls-{topic}", '{"type": "array", "items": "null"}')
    # More nulls than there are.
    bombs += [framed(nulls, b"\xff" * 9 + b"\1\0"), framed(nulls, b"\xfe\xff\xff\xff\x0f\0")]
    store(http, topic, *bombs, framed(array, b"\0"))
    *shown, last = page(http, topic)
    assert shown == page(http, topic, decode="raw")[:-1]
    assert last["value"] == []


def test_a_page_ends_where_its_json_is_full(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    kind = {"type": "enum", "name": f"Long{topic[8:]}", "symbols": ["x" * 1000]}
    schema_id = register(broker.registry_url, f"{topic}-value", json.dumps(kind))
    store(http, topic, *[framed(schema_id, b"\0")] * 300)
    path = f"/v1/topics/{topic}/partitions/0/records"
    seen: list[int] = []
    offset = 0
    while offset < 300:
        answer = http.get(path, params={"from": offset, "max_bytes": 100_000})
        records = answer.json()["records"]
        assert len(answer.content) < 130_000
        assert 80 < len(records) < 100 or offset > 200
        assert all(record["value"] == "x" * 1000 for record in records)
        seen += [record["offset"] for record in records]
        offset = answer.json()["next_offset"]
        lines = http.get(
            path,
            params={"from": seen[-len(records)], "max_bytes": 100_000},
            headers={"Accept": "application/x-ndjson"},
        )
        assert len(lines.text.splitlines()) == len(records)
        assert answer.headers["Next-Offset"] == lines.headers["Next-Offset"] == str(offset)
    assert seen == list(range(300))
    # At least one record is there.
    assert len(page(http, topic, max_bytes=1)) == 1


def test_a_preview_has_the_beginning_of_the_json(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    value = framed(register(broker.registry_url, f"{topic}-value"))
    store(http, topic, value)
    path = f"/v1/topics/{topic}/partitions/0/records/0"
    short = http.get(path, params={"preview": 5}).json()
    assert (short["value"], short["is_cut"], short["value_bytes"]) == ('{"id"', True, len(value))
    whole = http.get(path, params={"preview": 50}).json()
    assert (whole["value"], whole.get("is_cut")) == ({"id": 1, "item": "tea"}, None)
    assert short["schema"] == whole["schema"]


def test_the_client_gets_bytes_over_http(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"cleanup.policy": "compact"}}).raise_for_status()
    value = framed(register(broker.registry_url, f"{topic}-value"))
    store(http, topic, value, key="k")
    with Client(broker.http_url) as client:
        record = client.lookup(topic, "k")
        assert record is not None
        assert record.value == value
        with client.table(topic) as table:
            assert dict(table) == {b"k": value}
        with Consumer(client, topic, follow=False) as consumer:
            assert [each.value for each in consumer] == [value]
        with client.queue(f"q-{topic}", topic) as queue:
            assert [each.value for each in queue.poll()] == [value]
        poll = Poll(group=f"p-{topic}", topics=[topic], start="earliest", max_records=1, max_wait_ms=0)
        assert [each.value for each in client.call(poll).records] == [value]
