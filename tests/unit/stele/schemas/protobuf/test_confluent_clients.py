"""What Confluent's Python client registers is parsed, and each side reads the other's values."""

from __future__ import annotations

import io
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass
from stele.schemas import protobuf
from stele.schemas.protobuf.schema import ProtobufSchema

from tests.support import protobuf_schemas

# Their constructors are called __init_impl, which hides their parameters from a type checker.
SERIALIZER: Any = ProtobufSerializer
DESERIALIZER: Any = ProtobufDeserializer
CONTEXT = SerializationContext("orders", MessageField.VALUE)
BASE = 'syntax = "proto3"; package base; message Id { string id = 1; }'
ITEM = 'syntax = "proto3"; package item; import public "base.proto"; message Item { base.Id id = 1; }'
ORDER = """
syntax = "proto3"; package shop; import "item.proto"; import "google/protobuf/timestamp.proto"; import "confluent/meta.proto";
message Other {}
message Order {
  map<string, item.Item> items = 1 [(confluent.field_meta).doc = "what was ordered"];
  message Line { item.Item item = 1; message Note { string text = 1; } }
  google.protobuf.Timestamp at = 2;
}
"""


def registry() -> Any:
    return SchemaRegistryClient.new_client({"url": "mock://"})


def texts(client: Any, references: Any) -> dict[str, str]:
    """Return what a schema refers to as the registry would resolve it, each after what it imports."""
    found: dict[str, str] = {}
    for reference in references or list[Any]():
        registered = client.get_version(reference.subject, reference.version).schema
        found |= texts(client, registered.references)
        found[reference.name] = registered.schema_str
    return found


def registered(client: Any, subject: str) -> ProtobufSchema:
    schema = client.get_latest_version(subject).schema
    return protobuf.parse(schema.schema_str, texts(client, schema.references))


@pytest.mark.parametrize("name", ["shop.Order", "shop.Other", "shop.Order.Line", "shop.Order.Line.Note"])
def test_a_value_of_the_client_is_decoded_by_what_the_client_registered(name: str) -> None:
    ours = protobuf.parse(ORDER, {"base.proto": BASE, "item.proto": ITEM})
    indexes = ours.indexes(name)
    value: dict[str, Any] = {
        "shop.Order": {"items": {"a": {"id": {"id": "1"}}}, "at": "2026-01-01T00:00:00Z"},
        "shop.Other": {},
        "shop.Order.Line": {"item": {"id": {"id": "1"}}},
        "shop.Order.Line.Note": {"text": "x"},
    }[name]
    message_class: Any = GetMessageClass(ours.message(indexes))
    client = registry()
    serialize = SERIALIZER(message_class, client, {"auto.register.schemas": True})
    data = serialize(message_class.FromString(ours.encode(value, indexes)), CONTEXT)
    assert data is not None

    theirs = registered(client, "orders-value")
    assert theirs.canonical == ours.canonical
    framed = SchemaId("PROTOBUF")
    payload = framed.from_bytes(io.BytesIO(data)).read()
    assert tuple(framed.message_indexes or []) == indexes
    assert theirs.decode(payload, indexes) == value

    # The other way: our bytes in the same frame, which the client resolves with descriptors in our base64.
    deserialize = DESERIALIZER(message_class, {}, client)
    read = deserialize(data[: len(data) - len(payload)] + ours.encode(value, indexes), CONTEXT)
    assert ours.decode(read.SerializeToString(), indexes) == value


@pytest.mark.parametrize("text", protobuf_schemas.ALL.values(), ids=protobuf_schemas.ALL)
def test_each_schema_that_the_client_registers_is_the_one_of_its_text(text: str) -> None:
    ours = protobuf.parse(text)
    message_class: Any = GetMessageClass(ours.message())
    client = registry()
    serialize = SERIALIZER(message_class, client, {"auto.register.schemas": True})
    message = message_class()
    for field in ours.message().fields:
        if field.is_required:
            setattr(message, field.name, "1")
    data = serialize(message, CONTEXT)
    assert data is not None
    assert registered(client, "orders-value").canonical == ours.canonical
    # What the registry answers for format=serialized is what the client parses: the mock answers what it was given.
    answering = registry()
    assert answering.register_schema("orders-value", Schema(ours.serialized, "PROTOBUF")) == 1
    assert DESERIALIZER(message_class, {}, answering)(data, CONTEXT) == message
