"""Registry clients of other languages against the registry of the broker: what they write, others read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from stele import SchemaRegistry
from stele.testing import BrokerProcess

from tests.conformance.clients import REGISTRY_GO, REGISTRY_JS
from tests.conformance.driver import Driver, Refused
from tests.conformance.programs import RecordProperty, home_of
from tests.support.brokers import run_broker_or_cluster
from tests.support.confluent_serializers import AvroDeserializer, JSONDeserializer

VALUE: dict[str, Any] = {"id": 7, "item": {"name": "tea é", "grams": 500}, "price": 1.5, "tags": ["a", "b"]}
# Of each type: what is referred to and by which name, and the schema.
SCHEMAS = {
    "AVRO": (
        "shop.Item",
        {
            "type": "record",
            "name": "Item",
            "namespace": "shop",
            "fields": [{"name": "name", "type": "string"}, {"name": "grams", "type": "int"}],
        },
        {
            "type": "record",
            "name": "Order",
            "namespace": "shop",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "item", "type": "shop.Item"},
                {"name": "price", "type": "double"},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
            ],
        },
    ),
    "JSON": (
        "https://shop.example/item.json",
        {
            "$id": "https://shop.example/item.json",
            "type": "object",
            "properties": {"name": {"type": "string"}, "grams": {"type": "integer"}},
        },
        {
            "$id": "https://shop.example/order.json",
            "type": "object",
            "properties": {"id": {"type": "integer"}, "item": {"$ref": "https://shop.example/item.json"}},
            "required": ["id"],
        },
    ),
    "PROTOBUF": (
        "shop/item.proto",
        'syntax = "proto3";\npackage shop;\n\nmessage Item {\n  string name = 1;\n  int32 grams = 2;\n}\n',
        'syntax = "proto3";\npackage shop;\n\nimport "shop/item.proto";\n\nmessage Order {\n  int32 id = 1;\n'
        "  shop.Item item = 2;\n  double price = 3;\n  repeated string tags = 4;\n}\n",
    ),
}
COMMANDS = {REGISTRY_GO: ["driver"], REGISTRY_JS: ["node", "main.js"]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("brokers")) as broker:
        yield broker


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.program(name)) for name in (REGISTRY_GO, REGISTRY_JS)]
)
def driver(
    request: pytest.FixtureRequest, broker: BrokerProcess, record_property: RecordProperty
) -> Iterator[Driver]:
    home = home_of(request.param)
    *program, file = COMMANDS[request.param]
    driver = Driver([*program, str(home / file)], broker.registry_url)
    record_property("version", driver.version)
    yield driver
    driver.close()


def text_of(schema: dict[str, Any] | str) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def a_schema(kind: str, schema: dict[str, Any] | str, *references: tuple[str, str]) -> dict[str, Any]:
    """Return the body by which a schema is registered."""
    body: dict[str, Any] = {"schema": text_of(schema), "schemaType": kind}
    if references:
        body["references"] = [
            {"name": name, "subject": subject, "version": 1} for name, subject in references
        ]
    return body


def read_by_confluent_kafka(url: str, kind: str, data: bytes) -> Any:
    context = SerializationContext("read", MessageField.VALUE)
    with SchemaRegistryClient({"url": url}) as registry:
        if kind == "AVRO":
            return AvroDeserializer(registry)(data, context)
        return JSONDeserializer(None, schema_registry_client=registry)(data, context)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_values_of_a_schema_with_references(driver: Driver, broker: BrokerProcess, kind: str) -> None:
    name, referred, schema = SCHEMAS[kind]
    topic = f"{driver.client.split()[0]}-{kind}"
    item = a_schema(kind, referred)
    item_id = driver.call("register", subject=f"{topic}-item", schema=item)
    # That of KafkaJS looks for schemas without their references.
    assert driver.call("lookup", subject=f"{topic}-item", schema=item)[0] == item_id
    order = a_schema(kind, schema, (name, f"{topic}-item"))
    schema_id = driver.call("register", subject=f"{topic}-value", schema=order)

    with SchemaRegistry(broker.registry_url) as registry:
        ours = registry.serializer(schema_id)(VALUE)
        assert driver.call("decode", data=base64.b64encode(ours).decode()) == VALUE
        if not driver.offers(f"encode {kind}"):
            return
        data = base64.b64decode(driver.call("encode", schema_id=schema_id, value=VALUE))
        assert registry.deserializer()(data) == VALUE
    # For Protobuf it reads instances of a class.
    if kind != "PROTOBUF":
        assert read_by_confluent_kafka(broker.registry_url, kind, data) == VALUE


def test_evolution_and_deletion(driver: Driver) -> None:
    subject = f"{driver.client.split()[0]}-evolving"
    first = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}
    city = {"name": "city", "type": ["null", "string"], "default": None}
    second = {**first, "fields": [*first["fields"], city]}
    other = {**first, "fields": [{"name": "id", "type": "string"}]}
    ids = [driver.call("register", subject=subject, schema=a_schema("AVRO", s)) for s in (first, second)]
    assert len(set(ids)) == len(ids)
    with pytest.raises(Refused):
        driver.call("register", subject=subject, schema=a_schema("AVRO", other))
    if driver.offers("check"):
        assert driver.call("versions", subject=subject) == [1, 2]
        assert driver.call("check", subject=subject, schema=a_schema("AVRO", first)) is True
        assert driver.call("check", subject=subject, schema=a_schema("AVRO", other)) is False
        assert driver.call("set_level", subject=subject, level="NONE") == "NONE"
        driver.call("register", subject=subject, schema=a_schema("AVRO", other))
        assert driver.call("delete", subject=subject, permanent=False) == [1, 2, 3]
        with pytest.raises(Refused) as refused:
            driver.call("versions", subject=subject)
        assert refused.value.error == "40401"
        assert driver.call("delete", subject=subject, permanent=True) == [1, 2, 3]
    else:
        assert driver.call("latest", subject=subject) == ids[-1]
