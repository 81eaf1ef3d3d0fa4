"""Serializers of the client write and read the same bytes as those of confluent-kafka."""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

import pydantic
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import (
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from stele import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    AsyncSchemaRegistry,
    Client,
    Consumer,
    DeserializationError,
    Producer,
    Reference,
    Schema,
    SchemaRegistry,
    UnknownSchemaError,
)
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import SerializationError
from stele.schemas.definitions import InvalidValue
from stele.schemas.subjects import Strategy

from tests.support.confluent_serializers import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    header_schema_id_serializer,
)
from tests.support.protobuf_messages import message_classes

ORDER = """{"type": "record", "namespace": "shop", "name": "Order", "fields": [
    {"name": "customer", "type": "string"},
    {"name": "note", "type": ["null", "string"], "default": null},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "raw", "type": "bytes"},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
    {"name": "tags", "type": {"type": "map", "values": "long"}},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "amount", "type": "double"}
    ]}}}
]}"""
VALUE: dict[str, Any] = {
    "customer": "ada é",
    "note": None,
    "price": Decimal("-12.30"),
    "at": datetime.datetime(2026, 11, 30, 10, 0, 0, 123456, datetime.UTC),
    "day": datetime.date(2026, 11, 30),
    "key": uuid.UUID(int=7),
    "raw": b"\x00\xff",
    "kind": "OLD",
    "tags": {"a": 1 << 40, "b": -1},
    "lines": [{"amount": 0.5}, {"amount": -1e300}],
}
JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
    "properties": {"customer": {"type": "string"}, "items": {"type": "array", "items": {"type": "string"}}},
    "required": ["customer"]}"""
PROTO = {
    "shop/line.proto": 'syntax = "proto3"; package shop; message Line { double amount = 1; }',
    "shop/order.proto": """syntax = "proto3";
        package shop;
        import "shop/line.proto";
        import "google/protobuf/timestamp.proto";
        message First { string a = 1; }
        message Order {
          string customer = 1;
          google.protobuf.Timestamp at = 2;
          repeated Line lines = 3;
          message Inner { int64 big = 1; message Deep { bool yes = 1; } }
          Inner inner = 4;
        }
        """,
}


@dataclass(frozen=True)
class Peers:
    """A broker, and clients of its registry."""

    broker: BrokerProcess
    ours: SchemaRegistry
    theirs: SchemaRegistryClient


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    with (
        run_broker() as broker,
        SchemaRegistry(broker.registry_url) as ours,
        SchemaRegistryClient({"url": broker.registry_url}) as theirs,
    ):
        yield Peers(broker, ours, theirs)


@pytest.fixture(scope="module")
def messages() -> dict[str, type[Any]]:
    return message_classes(PROTO)


def context(topic: str, *, key: bool = False, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.KEY if key else MessageField.VALUE, headers)


# ── the same bytes, both ways ──


@pytest.mark.parametrize("key", [False, True])
def test_avro(peers: Peers, key: bool) -> None:
    theirs = AvroSerializer(peers.theirs, ORDER)(VALUE, context("avro", key=key))
    ours = peers.ours.serializer(ORDER, "avro", key=key)
    assert ours(VALUE) == theirs
    assert peers.ours.deserializer(key=key)(theirs) == VALUE
    assert AvroDeserializer(peers.theirs)(ours(VALUE), context("avro", key=key)) == VALUE
    assert f"avro-{'key' if key else 'value'}" in peers.ours.subjects()


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('"string"', "é"),
        ('"int"', -7),
        ('"boolean"', True),
        # Without the length that Avro writes.
        ('"bytes"', b"\x00\x01\x02"),
        ('"bytes"', b""),
        ('["null", "long"]', 1 << 60),
        ('{"type": "array", "items": "double"}', [1.5, -0.0]),
        ('{"type": "fixed", "name": "F", "size": 2}', b"ab"),
        ('{"type": "record", "name": "Empty", "fields": []}', {}),
    ],
)
def test_avro_of_other_types(peers: Peers, schema: str, value: Any) -> None:
    topic = f"other-{abs(hash(schema))}"
    theirs = AvroSerializer(peers.theirs, schema)(value, context(topic))
    ours = peers.ours.serializer(schema, topic)
    assert ours(value) == theirs
    assert peers.ours.deserializer()(theirs) == value


def test_avro_with_what_it_uses(peers: Peers) -> None:
    line = '{"type": "record", "namespace": "shop", "name": "Line", "fields": [{"name": "n", "type": "int"}]}'
    order = '{"type": "record", "name": "Used", "fields": [{"name": "line", "type": "shop.Line"}]}'
    used = peers.ours.register("shop.Line", Schema(line))
    assert used.version is not None
    theirs = AvroSerializer(
        peers.theirs,
        TheirSchema(order, "AVRO", [SchemaReference("shop.Line", "shop.Line", used.version)]),
    )({"line": {"n": 3}}, context("used"))
    ours = peers.ours.serializer(
        Schema(order, references=(Reference("shop.Line", "shop.Line", used.version),)), "used"
    )
    assert ours({"line": {"n": 3}}) == theirs
    assert peers.ours.deserializer()(theirs) == {"line": {"n": 3}}


def test_json(peers: Peers) -> None:
    value = {"customer": "ada é", "items": ["chisel"]}
    theirs = JSONSerializer(JSON, peers.theirs)(value, context("json"))
    ours = peers.ours.serializer(Schema(JSON, "JSON"), "json")
    assert ours(value) == theirs
    assert peers.ours.deserializer()(theirs) == value
    assert JSONDeserializer(None, schema_registry_client=peers.theirs)(ours(value), context("json")) == value


def test_protobuf(peers: Peers, messages: dict[str, type[Any]]) -> None:
    order = messages["shop.Order"](customer="ada", lines=[messages["shop.Line"](amount=0.5)])
    order.at.FromDatetime(datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC))
    theirs = ProtobufSerializer(messages["shop.Order"], peers.theirs)(order, context("proto"))
    ours = peers.ours.serializer(messages["shop.Order"], "proto")
    assert ours(order) == theirs
    assert peers.ours.deserializer(messages["shop.Order"])(theirs) == order
    # The client that has registered the schema caches it in the form that it has sent.
    with SchemaRegistryClient({"url": peers.broker.registry_url}) as other:
        for registry in (peers.theirs, other):
            deserializer = ProtobufDeserializer(messages["shop.Order"], {}, registry)
            assert deserializer(ours(order), context("proto")) == order
    assert peers.ours.deserializer()(theirs) == {
        "customer": "ada",
        "at": "2026-11-30T00:00:00Z",
        "lines": [{"amount": 0.5}],
    }
    assert "shop/line.proto" in peers.ours.subjects()


@pytest.mark.parametrize("name", ["shop.First", "shop.Order.Inner", "shop.Order.Inner.Deep"])
def test_protobuf_of_every_message_of_a_file(peers: Peers, messages: dict[str, type[Any]], name: str) -> None:
    message = messages["shop.Order"].DESCRIPTOR.file.pool.FindMessageTypeByName(name)
    from google.protobuf.message_factory import GetMessageClass

    cls = GetMessageClass(message)
    theirs = ProtobufSerializer(cls, peers.theirs)(cls(), context("proto-messages"))
    ours = peers.ours.serializer(cls, "proto-messages")
    assert ours(cls()) == theirs
    assert peers.ours.deserializer(cls)(theirs) == cls()


@pytest.mark.parametrize("key", [False, True])
def test_the_guid_in_a_header(peers: Peers, messages: dict[str, type[Any]], key: bool) -> None:
    conf = {"schema.id.serializer": header_schema_id_serializer}
    cls = messages["shop.Order.Inner"] if "shop.Order.Inner" in messages else messages["shop.Order"]
    cases: list[tuple[Any, Any, Any]] = [
        (AvroSerializer(peers.theirs, ORDER, conf=conf), ORDER, VALUE),
        (JSONSerializer(JSON, peers.theirs, conf=conf), Schema(JSON, "JSON"), {"customer": "ada"}),
        (ProtobufSerializer(cls, peers.theirs, conf=conf), cls, cls()),
    ]
    for number, (their_serializer, schema, value) in enumerate(cases):
        topic, headers = f"header-{number}", list[tuple[str, bytes]]()
        theirs = their_serializer(value, context(topic, key=key, headers=headers))
        ours = peers.ours.serializer(schema, topic, key=key, frame="header")
        assert (ours(value), list(ours.headers)) == (theirs, headers)
        into = schema if isinstance(schema, type) else None
        assert peers.ours.deserializer(into, key=key)(theirs, headers) == value


def test_names_of_subjects(peers: Peers, messages: dict[str, type[Any]]) -> None:
    strategies: tuple[tuple[Strategy, Any, str], ...] = (
        ("record", record_subject_name_strategy, "shop.Order"),
        ("topic-record", topic_record_subject_name_strategy, "names-shop.Order"),
    )
    for ours, theirs, named in strategies:
        conf = {"subject.name.strategy": theirs}
        AvroSerializer(peers.theirs, ORDER, conf=conf)(VALUE, context("names"))
        assert peers.ours.serializer(ORDER, "names", strategy=ours).registered.subject == named
    assert peers.ours.serializer(ORDER, strategy="record").registered.subject == "shop.Order"
    named = peers.ours.serializer(Schema(JSON, "JSON"), "names", strategy="topic-record").registered.subject
    assert named == "names-Order"
    cls = messages["shop.Order"]
    assert peers.ours.serializer(cls, "p", strategy="topic-record").registered.subject == "p-shop.Order"
    with pytest.raises(ValueError, match="names none"):
        peers.ours.serializer('"string"', "names", strategy="record")
    with pytest.raises(ValueError, match="topic"):
        peers.ours.serializer('"string"')


# ── classes ──


class Model(pydantic.BaseModel):
    customer: str = pydantic.Field(alias="Customer")
    at: datetime.datetime | None = None
    items: list[str] = []


@dataclass
class Data:
    customer: str
    items: list[str] = field(default_factory=list[str])


@pytest.mark.parametrize(
    "value",
    [
        Model(Customer="ada", at=datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)),
        Data("ada", ["chisel"]),
    ],
)
def test_a_class_has_a_json_schema(peers: Peers, value: Any) -> None:
    cls: type[Any] = value.__class__
    topic = f"class-{cls.__name__}"
    serializer = peers.ours.serializer(cls, topic)
    data = serializer(value)
    assert peers.ours.deserializer(cls)(data) == value
    # Others find a schema that describes the value.
    assert JSONDeserializer(None, schema_registry_client=peers.theirs)(data, context(topic))
    with pytest.raises(InvalidValue):
        serializer({"customer": 7})
    assert serializer.registered.schema.type == "JSON"


def test_a_class_without_fields_is_refused(peers: Peers) -> None:
    class Nothing:
        pass

    with pytest.raises(ValueError, match="pydantic model"):
        peers.ours.serializer(Nothing, "nothing")


def test_dataclasses_and_models_are_values_of_avro(peers: Peers) -> None:
    schema = """{"type": "record", "name": "Data", "fields": [
        {"name": "customer", "type": "string"}, {"name": "items", "type": {"type": "array", "items": "string"}}
    ]}"""
    serializer = peers.ours.serializer(schema, "avro-classes")
    assert peers.ours.deserializer(Data)(serializer(Data("ada", ["chisel"]))) == Data("ada", ["chisel"])


# ── versions ──

V1 = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
V2 = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "new"}]}'


def test_a_reader_has_a_schema_of_its_own(peers: Peers) -> None:
    old, new = peers.ours.serializer(V1, "reader"), peers.ours.serializer(V2, "reader")
    reader = peers.ours.deserializer(reader=V2)
    assert [reader(old({"a": 1})), reader(new({"a": 2, "b": "x"}))] == [
        {"a": 1, "b": "new"},
        {"a": 2, "b": "x"},
    ]
    assert AvroDeserializer(peers.theirs, V2)(old({"a": 1}), context("reader")) == {"a": 1, "b": "new"}
    # Read with the older one.
    assert peers.ours.deserializer(reader=Schema(V1))(old({"a": 1})) == {"a": 1}
    with pytest.raises(ValueError, match="Avro"):
        peers.ours.deserializer(reader=Schema(JSON, "JSON"))


def test_the_latest_version_of_a_message_registers_nothing(
    peers: Peers, messages: dict[str, type[Any]]
) -> None:
    line = messages["shop.Line"]
    with pytest.raises(UnknownSchemaError):
        peers.ours.serializer(line, "latest-message", use_latest=True)
    peers.ours.register(
        "latest-message-value",
        Schema(
            'syntax = "proto3"; package shop; message Other {} message Line { double amount = 1; }',
            "PROTOBUF",
        ),
    )
    serializer = peers.ours.serializer(line, "latest-message", use_latest=True)
    # It is the second message there.
    assert serializer(line(amount=0.5))[5:7] == b"\x02\x02"
    assert peers.ours.versions("latest-message-value") == [1]


def test_a_schema_that_is_only_looked_up(peers: Peers) -> None:
    with pytest.raises(UnknownSchemaError):
        peers.ours.serializer(V1, "looked-up", auto_register=False)
    assert "looked-up-value" not in peers.ours.subjects()
    made = peers.ours.serializer(V1, "looked-up")
    assert peers.ours.serializer(V1, "looked-up", auto_register=False)({"a": 1}) == made({"a": 1})
    assert peers.ours.serializer(made.registered.id)({"a": 1}) == made({"a": 1})


# ── producers, consumers and tables ──


def test_a_producer_and_a_consumer(peers: Peers) -> None:
    with Client(peers.broker.binary_url) as client:
        older = peers.ours.serializer(V1, "typed")
        serializer = peers.ours.serializer(V2, "typed", frame="header")
        keys = peers.ours.serializer('"string"', "typed", key=True)
        with Producer(client, "typed", serializer=serializer) as producer:
            producer.send({"a": 1, "b": "x"}, key=keys("k"), headers={"mine": b"1"})
            producer.send(None, key=keys("k"))
            with pytest.raises(SerializationError, match="/a: "):
                producer.send({"a": "no", "b": "x"})
        client.produce("typed", b"no frame")
        client.produce("typed", older({"a": 2}))
        with Consumer(
            client, "typed", deserializer=peers.ours.deserializer(reader=V2), follow=False
        ) as consumer:
            first, tombstone = next(consumer), next(consumer)
            with pytest.raises(DeserializationError, match="names no schema"):
                next(consumer)
            last = next(consumer)
        assert (first.value, tombstone.value, last.value) == ({"a": 1, "b": "x"}, None, {"a": 2, "b": "new"})
        assert [name for name, _ in first.headers] == ["mine", "__value_schema_id"]
        assert tombstone.headers == ()
        assert first.key is not None
        assert peers.ours.deserializer(key=True)(first.key, first.headers) == "k"


async def test_a_consumer_of_tasks_never_waits_in_a_call(peers: Peers) -> None:
    async with (
        AsyncClient(peers.broker.binary_url) as client,
        AsyncSchemaRegistry(peers.broker.registry_url) as registry,
    ):
        serializer = await registry.serializer(V1, "tasks")
        async with AsyncProducer(client, "tasks", serializer=serializer) as producer:
            for number in range(100):
                await producer.send({"a": number})
        deserializer = await registry.deserializer()
        data = (await client.fetch("tasks")).records[0].value
        assert data is not None
        with pytest.raises(InvalidValue, match="not loaded"):
            deserializer(data)
        async with AsyncConsumer(client, "tasks", deserializer=deserializer, follow=False) as consumer:
            values = [record.value async for record in consumer]
        assert values == [{"a": number} for number in range(100)]
        assert await deserializer.deserialize(data) == {"a": 0}


async def test_another_kafka_client(peers: Peers) -> None:
    async with AsyncSchemaRegistry(peers.broker.registry_url) as registry:
        serializer = await registry.serializer(V1, "other-client", frame="header")
        servers: dict[str, Any] = {"bootstrap_servers": peers.broker.kafka_bootstrap}
        async with AIOKafkaProducer(value_serializer=serializer, **servers) as producer:
            await producer.send_and_wait("other-client", {"a": 1}, headers=list(serializer.headers))
            await producer.send_and_wait("other-client", None, key=b"k")
        deserializer = await registry.deserializer()
        async with AIOKafkaConsumer("other-client", auto_offset_reset="earliest", **servers) as consumer:
            first = cast("Any", await consumer.getone())
            tombstone = cast("Any", await consumer.getone())
        assert await deserializer.deserialize(first.value, first.headers) == {"a": 1}
        assert (tombstone.value, await deserializer.deserialize(tombstone.value)) == (None, None)


def test_a_table(peers: Peers) -> None:
    with Client(peers.broker.binary_url) as client:
        client.create_topic("typed-table", configs={"cleanup.policy": "compact"})
        keys = peers.ours.serializer('"string"', "typed-table", key=True)
        values = peers.ours.serializer(V1, "typed-table")
        client.produce("typed-table", values({"a": 1}), key=keys("k"))
        with client.table(
            "typed-table", key=peers.ours.deserializer(key=True), value=peers.ours.deserializer()
        ) as rows:
            assert rows.snapshot() == {"k": {"a": 1}}
            receipt = client.produce("typed-table", values({"a": 2}), key=keys("l"))
            rows.wait_until([receipt])
            assert rows["l"] == {"a": 2}


async def test_an_async_table(peers: Peers) -> None:
    async with (
        AsyncClient(peers.broker.http_url) as client,
        AsyncSchemaRegistry(peers.broker.registry_url) as registry,
    ):
        await client.create_topic("async-table", configs={"cleanup.policy": "compact"})
        values = await registry.serializer(V1, "async-table")
        await client.produce("async-table", values({"a": 1}), key=b"k")
        async with client.table("async-table", value=await registry.deserializer()) as rows:
            assert rows[b"k"] == {"a": 1}


def test_a_consumer_waits_for_a_registry_that_is_down(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        run_broker(tmp_path_factory.mktemp("registry") / "data") as registries,
        run_broker(tmp_path_factory.mktemp("log") / "data") as broker,
        Client(broker.binary_url) as client,
        SchemaRegistry(registries.registry_url, connect_timeout_s=0.1) as registry,
    ):
        serializer = registry.serializer(V1, "t")
        client.produce("t", serializer({"a": 1}))
        registries.stop()
        found: list[Any] = []

        def consume() -> None:
            with Consumer(client, "t", deserializer=registry.deserializer()) as consumer:
                found.append(next(consumer).value)

        reader = threading.Thread(target=consume)
        reader.start()
        registries.start()
        reader.join(60)
        assert found == [{"a": 1}]
