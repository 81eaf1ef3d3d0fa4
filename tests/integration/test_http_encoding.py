"""JSON that is written over HTTP is encoded with the schema of its topic, or the one that it names."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from stele import Client, SchemaRegistry
from stele.broker_process import BrokerProcess
from stele.schemas import avro, framing

from tests.support import avro_examples
from tests.support.brokers import run_broker_or_cluster
from tests.support.confluent_serializers import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from tests.support.contracts import TEA, end_of, framed, make_topic, register
from tests.support.protobuf_messages import message_classes

_numbers = itertools.count()
_NDJSON = {"Content-Type": "application/x-ndjson"}
GOOD, BAD = {"id": 1, "item": "tea"}, {"id": "one", "item": "tea"}
KEY = json.dumps({"type": "record", "name": "Id", "fields": [{"name": "n", "type": "int"}]})
PROTO = {
    "order.proto": """syntax = "proto3"; package shop;
        import "google/protobuf/timestamp.proto";
        message First { string a = 1; }
        message Order {
          int64 id = 1; uint64 big = 2; double amount = 3; float ratio = 4; bytes raw = 5;
          google.protobuf.Timestamp at = 6; map<string, sint32> counts = 7; repeated First firsts = 8;
          oneof choice { string text = 9; bool yes = 10; }
          message Line { double amount = 1; }
        }
        """
}
RICH = json.dumps(
    {
        "type": "record",
        "name": "Rich",
        "fields": [
            {"name": "long", "type": "long"},
            {"name": "double", "type": "double"},
            {"name": "bytes", "type": "bytes"},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "choice", "type": ["null", "string", "long", "boolean"]},
            {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
            {
                "name": "nested",
                "type": [
                    "null",
                    {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "string"}]},
                ],
            },
            {
                "name": "kind",
                "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]},
                "default": "NEW",
            },
        ],
    }
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("encoding")) as broker:
        yield broker


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        yield http


@pytest.fixture
def topic() -> str:
    """A name nobody else uses, for the broker is shared."""
    return f"encoding-{next(_numbers)}"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def post(http: httpx.Client, topic: str, *records: dict[str, Any], **query: Any) -> httpx.Response:
    return http.post(f"/v1/topics/{topic}/records", json={"records": records}, params=query)


def stored(http: httpx.Client, topic: str, part: str = "value") -> list[bytes | None]:
    """Return the bytes of the values, or keys, of a topic."""
    answer = http.get(f"/v1/topics/{topic}/partitions/0/records", params={"decode": "raw"})
    records: list[dict[str, Any]] = answer.json()["records"] if answer.status_code == 200 else []
    return [
        base64.b64decode(record[f"{part}_b64"])
        if f"{part}_b64" in record
        else None
        if record[part] is None
        else record[part].encode()
        for record in records
    ]


def shown(http: httpx.Client, topic: str) -> list[dict[str, Any]]:
    return http.get(f"/v1/topics/{topic}/partitions/0/records").json()["records"]


# ── every way to write JSON ──


def _lines(http: httpx.Client, topic: str, values: Sequence[Any], **headers: str) -> httpx.Response:
    content = b"".join(json.dumps({"value": value}).encode() + b"\n" for value in values)
    return http.post(
        f"/v1/topics/{topic}/records", content=content, headers=_NDJSON | headers, params={"partition": 0}
    )


def _identity(http: httpx.Client, path: str) -> dict[str, str]:
    producer = http.post(path).json()
    return {
        "Producer-Id": str(producer["producer_id"]),
        "Producer-Epoch": str(producer["producer_epoch"]),
    }


def _in_transaction(http: httpx.Client, topic: str, values: Sequence[Any]) -> httpx.Response:
    path = f"/v1/transactions/t-{topic}-{next(_numbers)}"
    identity = _identity(http, f"{path}/begin")
    body = {"records": [{"topic": topic, "value": value} for value in values]}
    answer = http.post(f"{path}/records", json=body, headers=identity)
    end = "commit" if answer.is_success else "abort"
    http.post(f"{path}/{end}", headers=identity).raise_for_status()
    return answer


def _by_form(http: httpx.Client, topic: str, values: Sequence[Any]) -> httpx.Response:
    content = json.dumps({"records": [{"value": value} for value in values]})
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return http.post(f"/v1/topics/{topic}/records", content=content, headers=headers)


_WAYS: dict[str, Callable[[httpx.Client, str, Sequence[Any]], httpx.Response]] = {
    "JSON": lambda http, topic, values: post(http, topic, *({"value": value} for value in values)),
    "JSON of curl": _by_form,
    "NDJSON": _lines,
    "NDJSON, conditional": lambda http, topic, values: _lines(
        http, topic, values, **{"If-Match": f'"{end_of(http, topic)}"'}
    ),
    "NDJSON, idempotent": lambda http, topic, values: _lines(
        http, topic, values, **_identity(http, "/v1/producers"), **{"Producer-Sequence": "0"}
    ),
    "transaction": _in_transaction,
    "atomic request": lambda http, topic, values: http.post(
        "/v1/transactions",
        json={"records": [{"topic": topic, "value": value} for value in values]},
    ),
}


@pytest.mark.parametrize("way", _WAYS)
def test_json_for_a_topic_with_a_subject_is_encoded(
    broker: BrokerProcess, http: httpx.Client, topic: str, way: str
) -> None:
    send = _WAYS[way]
    http.put(f"/v1/topics/{topic}").raise_for_status()
    schema_id = register(broker.registry_url, f"{topic}-value")
    answer = send(http, topic, [GOOD])
    assert answer.status_code == 200, answer.text
    assert send(http, topic, [GOOD, None, GOOD]).status_code == 200
    values = [framed(schema_id), framed(schema_id), None, framed(schema_id)]
    assert stored(http, topic) == values
    answer = send(http, topic, [GOOD, BAD, "tea"])
    if way == "NDJSON":
        # Each line has a result of its own.
        assert answer.status_code == 207
        _, refused, other = (json.loads(line) for line in answer.text.splitlines())
        assert [refused["index"], other["index"]] == [1, 2]
        problem = refused["error"]
        values.append(framed(schema_id))
    else:
        assert answer.status_code == 422, answer.text
        problem = answer.json()
        assert [(error["index"], error["pointer"]) for error in problem["errors"]] == [(1, "/id"), (2, "")]
    assert (problem["type"], problem["kafka_code"]) == ("/problems/unencodable-value", 87)
    assert (problem["index"], problem["pointer"]) == (1, "/id")
    assert stored(http, topic) == values


def test_the_latest_version_of_the_subject_is_used(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    register(broker.registry_url, f"{topic}-value")
    schema = {"type": "record", "name": "Order", "namespace": "shop"}
    fields = [{"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "tea"}]
    newer = register(broker.registry_url, f"{topic}-value", json.dumps(schema | {"fields": fields}))
    assert post(http, topic, {"value": {"id": 1}}).status_code == 200
    httpx.delete(f"{broker.registry_url}/subjects/{topic}-value/versions/2").raise_for_status()
    assert post(http, topic, {"value": {"id": 1}}).status_code == 422
    httpx.delete(f"{broker.registry_url}/subjects/{topic}-value").raise_for_status()
    assert post(http, topic, {"value": {"id": 1}}).status_code == 200
    assert stored(http, topic) == [framed(newer), b'{"id":1}']


def test_the_subject_is_the_one_that_the_topic_names(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    schema_id = register(broker.registry_url, f"named-{topic}")
    register(broker.registry_url, f"{topic}-value", '"string"')
    make_topic(http, topic, stele_value_subject_name_strategy=f"subject:named-{topic}")
    assert post(http, topic, {"value": GOOD}).status_code == 200
    assert stored(http, topic) == [framed(schema_id)]
    # Of which schema a value is cannot be known then, so the contract refuses it.
    configs = {"stele.value.subject.name.strategy": "record"}
    http.patch(f"/v1/topics/{topic}", json={"configs": configs}).raise_for_status()
    answer = post(http, topic, {"value": GOOD})
    assert answer.json()["type"] == "/problems/broken-contract"
    register(broker.registry_url, "shop.Order")
    assert post(http, topic, {"value": GOOD, "schema": {"id": schema_id}}).status_code == 200


def test_what_is_stored_as_it_is(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    schema_id = register(broker.registry_url, f"{topic}-value")
    by_hand = framed(schema_id).decode()
    records = [{"value_b64": b64(b"\xff")}, {"value": by_hand}, {"value": None}]
    assert post(http, topic, *records).status_code == 200
    raw = post(http, topic, {"value": BAD}, {"value": "tea"}, encode="raw")
    assert raw.status_code == 200
    octets = http.post(
        f"/v1/topics/{topic}/records", content=b"{}", headers={"Content-Type": "application/octet-stream"}
    )
    assert octets.status_code == 200
    values = [b"\xff", by_hand.encode(), None, json.dumps(BAD, separators=(",", ":")).encode(), b"tea", b"{}"]
    assert stored(http, topic) == values
    with Client(broker.http_url) as client:
        client.produce(topic, b'{"id":1}')
    assert stored(http, topic)[-1] == b'{"id":1}'


# ── schemas that are named ──


def test_a_record_may_name_its_schema(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    first = register(broker.registry_url, f"any-{topic}")
    httpx.put(f"{broker.registry_url}/config/any-{topic}", json={"compatibility": "NONE"}).raise_for_status()
    second = register(broker.registry_url, f"any-{topic}", '"string"')
    names = (
        ({"id": first}, GOOD, framed(first)),
        ({"id": first, "subject": "x", "version": 7, "type": "JSON"}, GOOD, framed(first)),
        ({"subject": f"any-{topic}"}, "tea", framed(second, b"\x06tea")),
        ({"subject": f"any-{topic}", "version": "latest"}, "\0", framed(second, b"\2\0")),
        ({"subject": f"any-{topic}", "version": 1}, GOOD, framed(first)),
    )
    for name, value, data in names:
        answer = post(http, topic, {"value": value, "schema": name})
        assert answer.status_code == 200, answer.text
        assert stored(http, topic)[-1] == data
    for query, value, data in (
        ({"schema": first}, GOOD, framed(first)),
        ({"schema": f"any-{topic}"}, "tea", framed(second, b"\x06tea")),
    ):
        assert post(http, topic, {"value": value}, **query).status_code == 200
        assert stored(http, topic)[-1] == data
    # The record's own one is nearer.
    assert post(http, topic, {"value": GOOD, "schema": {"id": first}}, schema=second).status_code == 200
    lines = http.post(
        f"/v1/topics/{topic}/records",
        content=b'{"value":"a"}\n{"value":{"id":1,"item":"tea"},"schema":{"id":%d}}\n' % first,
        headers=_NDJSON,
        params={"schema": second},
    )
    assert lines.status_code == 200
    assert stored(http, topic)[-2:] == [framed(second, b"\2a"), framed(first)]


def test_keys_are_encoded_as_values_are(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    key_id = register(broker.registry_url, f"any-{topic}", KEY)
    text_id = register(broker.registry_url, f"text-{topic}", '"string"')
    record = {"key": {"n": 7}, "value": "tea"}
    assert post(http, topic, record | {"keySchema": {"id": key_id}}).status_code == 200
    assert post(http, topic, record, key_schema=key_id).status_code == 200
    assert post(http, topic, {"key": "k", "value": 1}, key_schema=text_id).status_code == 200
    refused = post(http, topic, record)
    assert refused.status_code == 400
    assert "`$.key`" in refused.json()["detail"]
    assert register(broker.registry_url, f"{topic}-key", KEY) == key_id
    assert post(http, topic, record).status_code == 200
    assert post(http, topic, {"value": "no key"}).status_code == 200
    keys = [
        framed(key_id, b"\x0e"),
        framed(key_id, b"\x0e"),
        framed(text_id, b"\2k"),
        framed(key_id, b"\x0e"),
    ]
    assert stored(http, topic, "key") == [*keys, None]
    refused = post(http, topic, {"key": {"n": "7"}, "value": 1})
    assert refused.status_code == 422
    assert refused.json()["pointer"] == "/n"
    assert "the key of record 0 cannot be encoded" in refused.json()["detail"]


def test_names_that_lead_nowhere(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    schema_id = register(broker.registry_url, f"{topic}-value")
    text = json.dumps(TEA.decode())
    header = {"key": framing.VALUE_HEADER, "value_b64": b64(framed(schema_id, b""))}
    for record, query, status, reason in (
        ({"value": GOOD, "schema": {"id": 2**31 - 1}}, {}, 422, "schema 2147483647 is not registered"),
        ({"value": GOOD, "schema": {"id": 0}}, {}, 422, "the id 0"),
        ({"value": GOOD, "schema": {"id": 2**64}}, {}, 422, "the id 18446744073709551616"),
        ({"value": GOOD, "schema": {"subject": "none"}}, {}, 422, "'none' of its schema has no versions"),
        ({"value": GOOD, "schema": {"subject": f"{topic}-value", "version": 2}}, {}, 422, "no version 2"),
        ({"value": GOOD, "schema": {"subject": "x", "version": "newest"}}, {}, 400, "give a number"),
        ({"value": GOOD, "schema": {}}, {}, 400, "no id and no subject"),
        ({"value": GOOD, "schema": {"name": "x"}}, {}, 400, "unknown field `name`"),
        ({"value": GOOD, "schema": {"id": schema_id, "message": "M"}}, {}, 422, "it is of type AVRO"),
        ({"value_b64": "AAAA", "schema": {"id": schema_id}}, {}, 400, "value_b64 and a schema"),
        ({"value": GOOD, "schema": {"id": schema_id}}, {"encode": "raw"}, 400, "stored as they are"),
        ({"value": GOOD}, {"encode": "raw", "schema": schema_id}, 400, "give no schema with it"),
        ({"value": GOOD, "schema": {"id": 1 << 20}, "headers": [header]}, {}, 422, "but a header schema"),
        ({"value": GOOD, "headers": [header, header]}, {}, 422, "there twice"),
        ({"value": GOOD, "headers": [{"key": framing.VALUE_HEADER, "value": text}]}, {}, 422, "header"),
    ):
        answer = post(http, topic, record, **query)
        assert (answer.status_code, reason in answer.json()["detail"]) == (status, True), answer.text
    octets = http.post(
        f"/v1/topics/{topic}/records",
        content=b"{}",
        headers={"Content-Type": "application/octet-stream"},
        params={"schema": schema_id},
    )
    assert octets.status_code == 400
    assert stored(http, topic) == []


def test_values_that_are_much_work_are_bounded(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"const": n} for n in range(50)]}}}
    register(broker.registry_url, f"{topic}-value", json.dumps(schema), "JSON")
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    assert post(http, topic, {"value": {"b": deep}}).status_code == 200
    many = post(http, topic, *[{"value": {"a": "x"}}] * 100)
    assert many.status_code == 422
    assert len(many.json()["errors"]) == 100
    assert many.json()["pointer"] == "/a"
    large = post(http, topic, {"value": {"b": "x" * 3_000_000}})
    assert large.status_code == 400
    assert "bytes of JSON at most" in large.json()["detail"]


# ── there and back ──


def test_what_was_read_can_be_written_again(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    avro_id = register(broker.registry_url, f"a-{topic}")
    json_id = register(broker.registry_url, f"j-{topic}", "{}", "JSON")
    proto_id = register(broker.registry_url, f"p-{topic}", PROTO["order.proto"], "PROTOBUF")
    key_id = register(broker.registry_url, f"k-{topic}", KEY)
    with SchemaRegistry(broker.registry_url) as registry:
        guids = {name: UUID(registry.version(f"{name}-{topic}").guid).bytes for name in ("a", "p", "k")}

    def headers(part: str, name: str, indexes: bytes = b"") -> list[dict[str, str]]:
        return [{"key": part, "value_b64": b64(b"\1" + guids[name] + indexes)}]

    records = [
        {"value_b64": b64(framed(avro_id))},
        {"value_b64": b64(framed(avro_id)), "key_b64": b64(framed(key_id, b"\x0e"))},
        {"value_b64": b64(TEA), "headers": headers(framing.VALUE_HEADER, "a")},
        {"value": None, "key_b64": b64(b"\x0e"), "headers": headers(framing.KEY_HEADER, "k")},
        *(
            {"value_b64": b64(framed(json_id, text))}
            for text in (b'{"a":100.0,"b":12345678901234567890123}', b'"text"', b"null", b"[1.0,-0.0]")
        ),
        {"value_b64": b64(framed(proto_id, b"\0\n\1x"))},
        {"value_b64": b64(framed(proto_id, b"\2\2\x08\1"))},
        {"value_b64": b64(framed(proto_id, b"\4\2\2\x09" + bytes(7) + b"\x40"))},
        {"value_b64": b64(b"\x08\1"), "headers": headers(framing.VALUE_HEADER, "p", b"\2\2")},
        {"value": "plain"},
        {"value_b64": b64(b"\xff")},
    ]
    assert post(http, topic, *records).status_code == 200
    read = shown(http, topic)
    assert [("schema" in record) or ("keySchema" in record) for record in read] == [True] * 12 + [False] * 2
    again = post(http, f"{topic}-again", *read)
    assert again.status_code == 200, again.text
    for part in ("key", "value"):
        assert stored(http, f"{topic}-again", part) == stored(http, topic, part)
    copy = shown(http, f"{topic}-again")
    assert copy == read


@settings(max_examples=15, deadline=None)
@given(given_=avro_examples.schemas_with_values())
def test_any_avro_value_comes_back(broker: BrokerProcess, given_: tuple[avro.AvroSchema, Any]) -> None:
    schema, value = given_
    topic = f"any-{next(_numbers)}"
    schema_id = register(broker.registry_url, f"{topic}-value", schema.canonical)
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        answer = post(http, topic, {"value": value, "schema": {"id": schema_id}})
        assert answer.status_code == 200, answer.text
        (record,) = shown(http, topic)
        assert json.dumps(record["value"]) == json.dumps(schema.decode(schema.encode(value)))
        assert stored(http, topic) == [framed(schema_id, schema.encode(value))]


class Confluent:
    """Reads values of one topic with a deserializer of Confluent's, and writes them to another with a serializer."""

    def __init__(self, broker: BrokerProcess, registry: SchemaRegistryClient) -> None:
        self.registry = registry
        address = broker.kafka_bootstrap
        self._producer = Producer({"bootstrap.servers": address})
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})

    def copy(
        self,
        source: str,
        target: str,
        count: int,
        deserialize: Callable[..., Any],
        serialize: Callable[..., Any],
    ) -> None:
        self._consumer.assign([TopicPartition(source, 0, 0)])
        copied = 0
        while copied < count:
            for message in self._consumer.consume(count - copied, 10):
                assert message.error() is None
                value = deserialize(message.value(), SerializationContext(source, MessageField.VALUE))
                data = serialize(value, SerializationContext(target, MessageField.VALUE))
                self._producer.produce(target, data)
                copied += 1
        self._producer.flush()

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(scope="module")
def confluent(broker: BrokerProcess) -> Iterator[Confluent]:
    with SchemaRegistryClient({"url": broker.registry_url}) as registry:
        confluent = Confluent(broker, registry)
        yield confluent
        confluent.close()


def _there_and_back(
    broker: BrokerProcess,
    confluent: Confluent,
    subject: str,
    values: list[Any],
    deserialize: Callable[..., Any],
    serialize: Callable[..., Any],
    **name: str,
) -> None:
    source = f"there-{next(_numbers)}"
    target = f"back-{source}"
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        records = [{"value": value, "schema": {"subject": subject, **name}} for value in values]
        answer = post(http, source, *records)
        assert answer.status_code == 200, answer.text
        before = [record["value"] for record in shown(http, source)]
        confluent.copy(source, target, len(values), deserialize, serialize)
        after = shown(http, target)
        assert all("schema" in record for record in after)
        assert json.dumps(before) == json.dumps([record["value"] for record in after])


_floats = st.floats(allow_nan=False) | st.sampled_from(["NaN", "Infinity", "-Infinity"])
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_longs = st.integers(-(2**63), 2**63 - 1)
_times = st.datetimes().map(lambda moment: f"{moment.isoformat()}Z")
RICH_VALUES = st.fixed_dictionaries(
    {
        "long": _longs,
        "double": _floats,
        "bytes": st.binary(max_size=5).map(b64),
        "price": st.decimals(-9_999_999, 9_999_999, places=2).map(str),
        "at": _times,
        "day": st.dates().map(str),
        "key": st.uuids().map(str),
        "choice": st.none() | _texts | _longs | st.booleans(),
        "map": st.dictionaries(_texts, st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3), max_size=3),
        "nested": st.none() | st.fixed_dictionaries({"x": _texts}),
    },
    optional={"kind": st.sampled_from(["NEW", "OLD"])},
)


@settings(max_examples=3, deadline=None)
@given(values=st.lists(RICH_VALUES, min_size=1, max_size=20))
def test_avro_by_way_of_confluents_clients(
    broker: BrokerProcess, confluent: Confluent, values: list[Any]
) -> None:
    register(broker.registry_url, "rich", RICH)
    registry = confluent.registry
    _there_and_back(
        broker, confluent, "rich", values, AvroDeserializer(registry), AvroSerializer(registry, RICH)
    )


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=3, deadline=None)
@given(values=st.lists(st.dictionaries(_texts, _json, max_size=4), min_size=1, max_size=20))
def test_json_by_way_of_confluents_clients(
    broker: BrokerProcess, confluent: Confluent, values: list[Any]
) -> None:
    schema = '{"type": "object"}'
    register(broker.registry_url, "any-json", schema, "JSON")
    registry = confluent.registry
    deserialize = JSONDeserializer(schema, schema_registry_client=registry)
    _there_and_back(broker, confluent, "any-json", values, deserialize, JSONSerializer(schema, registry))


PROTO_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "id": _longs,
        "big": st.integers(0, 2**64 - 1),
        "amount": _floats,
        "ratio": st.floats(width=16, allow_nan=False, allow_infinity=False) | st.just("NaN"),
        "raw": st.binary(max_size=5).map(b64),
        "at": _times,
        "counts": st.dictionaries(_texts, st.integers(-(2**31), 2**31 - 1), max_size=1),
        "firsts": st.lists(st.fixed_dictionaries({}, optional={"a": _texts}), max_size=3),
    },
)


@settings(max_examples=3, deadline=None)
@given(values=st.lists(PROTO_VALUES, min_size=1, max_size=20), text=_texts)
def test_protobuf_by_way_of_confluents_clients(
    broker: BrokerProcess, confluent: Confluent, values: list[Any], text: str
) -> None:
    register(broker.registry_url, "proto-order", PROTO["order.proto"], "PROTOBUF")
    message = _classes()["shop.Order"]
    values = [*values, {"text": text}, {"yes": False}]
    _there_and_back(
        broker,
        confluent,
        "proto-order",
        values,
        ProtobufDeserializer(message, {"use.deprecated.format": False}),
        ProtobufSerializer(message, confluent.registry, {"use.deprecated.format": False}),
        message="shop.Order",
    )


_made: list[dict[str, type[Any]]] = []


def _classes() -> dict[str, type[Any]]:
    if not _made:
        _made.append(message_classes(PROTO))
    return _made[0]


def test_numbers_are_not_rounded(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    register(broker.registry_url, f"{topic}-value", '{"type": "map", "values": "double"}')
    register(broker.registry_url, f"{topic}-key", '"long"')
    for number in (2**63 - 1, -(2**63), 2**53 + 1):
        assert post(http, topic, {"key": number, "value": None}).status_code == 200
    assert [record["key"] for record in shown(http, topic)] == [2**63 - 1, -(2**63), 2**53 + 1]
    numbers = {"a": 0.1, "b": 5e-324, "c": 1.7976931348623157e308, "d": -0.0, "e": "NaN"}
    assert post(http, topic, {"value": numbers}).status_code == 200
    assert json.dumps(shown(http, topic)[-1]["value"]) == json.dumps(numbers)
