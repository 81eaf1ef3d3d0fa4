"""Clients of Confluent's registry against ours: its own Python client and serializers, and another client of PyPI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from schema_registry import client as other
from schema_registry.client import schema as other_schemas
from schema_registry.client.errors import ClientError
from stele.broker_process import BrokerLogin, BrokerProcess, run_broker

from tests.support.confluent_serializers import header_schema_id_serializer

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
)


@pytest.fixture
def registry(broker: BrokerProcess) -> Iterator[SchemaRegistryClient]:
    with client_of(broker.registry_url) as client:
        yield client


def client_of(url: str, **conf: str) -> Any:
    """Return a new client, which has cached nothing."""
    return SchemaRegistryClient({"url": url, **conf})


def test_it_registers_reads_checks_and_deletes(registry: SchemaRegistryClient) -> None:
    schema = Schema(ORDER, "AVRO")
    schema_id = registry.register_schema("orders-value", schema)
    assert registry.register_schema("orders-value", schema, normalize_schemas=True) == schema_id
    assert registry.get_schema(schema_id).schema_type == "AVRO"
    found = registry.lookup_schema("orders-value", schema)
    assert (found.schema_id, found.version) == (schema_id, 1)
    assert registry.get_latest_version("orders-value").schema_id == schema_id
    assert registry.get_versions("orders-value") == [1]
    assert "orders-value" in registry.get_subjects()
    assert registry.test_compatibility("orders-value", schema)
    assert registry.set_compatibility("orders-value", "FULL") == {"compatibility": "FULL"}
    assert registry.get_compatibility("orders-value") == "FULL"
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema("orders-value", Schema('"int"', "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    with pytest.raises(SchemaRegistryError, match="Subject 'absent' not found") as refused:
        registry.get_latest_version("absent")
    assert (refused.value.http_status_code, refused.value.error_code) == (404, 40401)
    assert registry.delete_version("orders-value", 1) == 1
    assert registry.delete_version("orders-value", 1, permanent=True) == 1


def test_a_subject_with_a_slash_and_a_reference_to_it(registry: SchemaRegistryClient) -> None:
    registry.register_schema(
        "shop/item", Schema('{"type": "enum", "name": "Item", "symbols": ["TEA"]}', "AVRO")
    )
    cart = '{"type": "record", "name": "Cart", "fields": [{"name": "item", "type": "Item"}]}'
    schema = Schema(cart, "AVRO", [SchemaReference("Item", "shop/item", 1)])
    registry.register_schema("cart-value", schema)
    assert registry.get_latest_version("cart-value").schema.references == schema.references
    assert registry.delete_subject("cart-value") == [1]


def serializers(kind: str, write: Any, read: Any, conf: dict[str, Any]) -> tuple[Any, Any]:
    """Return the serializer and the deserializer of a format."""
    avro: Any = (AvroSerializer, AvroDeserializer)
    json_schema: Any = (JSONSerializer, JSONDeserializer)
    if kind == "avro":
        return avro[0](write, ORDER, conf=conf), avro[1](read)
    schema = json.dumps({"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}})
    return json_schema[0](schema, write, conf=conf), json_schema[1](None, schema_registry_client=read)


@pytest.mark.parametrize("kind", ["avro", "json"])
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("prefix", {}),
        # The GUID of the schema in a header, in place of its id before the value.
        ("header", {"schema.id.serializer": header_schema_id_serializer}),
        ("normalized", {"normalize.schemas": True}),
    ],
)
def test_a_serializer_writes_what_a_deserializer_reads(
    broker: BrokerProcess, kind: str, name: str, conf: dict[str, Any]
) -> None:
    topic = f"serialized-{kind}-{name}"
    context = SerializationContext(topic, MessageField.VALUE, [])
    order = {"id": 7, "item": "a pound of tea"}
    with client_of(broker.registry_url) as write, client_of(broker.registry_url) as read:
        serialize, deserialize = serializers(kind, write, read, conf)
        producer = Producer({"bootstrap.servers": broker.kafka_bootstrap})
        producer.produce(topic, value=serialize(order, context), headers=context.headers)
        producer.flush()
        consumer = Consumer(
            {"bootstrap.servers": broker.kafka_bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        message = None
        while message is None:
            message = consumer.poll(30)
        consumer.close()
        assert bool(message.headers()) == (name == "header")
        received = SerializationContext(topic, MessageField.VALUE, message.headers() or [])
        assert deserialize(message.value(), received) == order
        assert write.get_versions(f"{topic}-value") == [1]


def test_it_logs_in_by_user_info() -> None:
    login = BrokerLogin(user="ada", password="p@ss:word/of ada")
    with run_broker(login=login) as broker:
        plain = f"http://{broker.host}:{broker.registry_port}"
        given = {"basic.auth.user.info": f"{login.user}:{login.password}"}
        for client in (client_of(broker.registry_url), client_of(plain, **given)):
            with client:
                assert client.register_schema("t-value", Schema('"string"', "AVRO"))
        with client_of(plain) as client, pytest.raises(SchemaRegistryError) as refused:
            client.get_subjects()
        assert (refused.value.http_status_code, refused.value.error_code) == (401, 40101)


def test_another_client_registers_reads_checks_and_deletes(broker: BrokerProcess) -> None:
    client: Any = other.SchemaRegistryClient(url=broker.registry_url)
    order, text = other_schemas.AvroSchema(ORDER), other_schemas.AvroSchema({"type": "string"})
    schema_id = client.register("other-value", order)
    assert client.get_by_id(schema_id) is not None
    assert client.check_version("other-value", order).schema_id == schema_id
    assert client.get_schema_subject_versions(schema_id)
    assert not client.test_compatibility("other-value", text)
    with pytest.raises(ClientError):
        client.register("other-value", text)
    assert client.update_compatibility("NONE", "other-value")
    assert client.get_compatibility("other-value") == "NONE"
    client.register("other-value", text)
    assert client.get_versions("other-value") == [1, 2]
    assert client.delete_version("other-value", 1) == 1
    assert client.delete_subject("other-value") == [2]
    assert client.get_schema("other-value") is None
