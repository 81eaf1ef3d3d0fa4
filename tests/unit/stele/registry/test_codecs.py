"""Values become the bytes of a schema and come back, and what does not fit is refused with its place."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from stele.registry.codecs import Encoding, decode_of, encoding_of, full_name_of, parse, schema_of
from stele.registry.definitions import RegisteredSchema, Schema
from stele.registry.frames import Framed
from stele.registry.serializer import SchemaSerializer, SerializerSettings
from stele.schemas.definitions import InvalidSchema, InvalidValue, Reference

from tests.support.protobuf_messages import message_classes

GUID = "0c2b9a8e-0000-4000-8000-000000000001"


class Line(pydantic.BaseModel):
    amount: Decimal


class Order(pydantic.BaseModel):
    customer: str = pydantic.Field(alias="Customer")
    lines: list[Line] = []


@dataclass
class Point:
    x: int
    y: int = 0


AVRO = '{"type":"record","name":"shop.Point","fields":[{"name":"x","type":"int"},{"name":"y","type":"int"}]}'


def parsed(text: str, kind: Any = "AVRO") -> Any:
    return parse(Schema(text, kind), {})


def read(schema: Any, payload: bytes, into: Any = None, **options: Any) -> Any:
    decode = decode_of(schema, into, options.pop("reader", None), options.pop("form", "python"))
    return decode(Framed(1, payload, options.pop("in_header", None)))


# ── schemas ──


def test_a_class_has_the_json_schema_of_what_it_reads() -> None:
    schema = schema_of(Order)
    document = json.loads(schema.text)
    assert schema.type == "JSON"
    assert document["$schema"].endswith("2020-12/schema")
    # A field with a default is not required, so that another version may add one.
    assert document["required"] == ["Customer"]
    assert full_name_of(parsed(schema.text, "JSON"), Order) == "Order"
    assert json.loads(schema_of(Point).text)["required"] == ["x"]


def test_a_text_is_avro_and_other_schemas_are_as_they_are() -> None:
    assert schema_of(AVRO) == Schema(AVRO)
    given = Schema("{}", "JSON", (Reference("a", "b", 1),), {"m": 1}, {"r": 2})
    assert schema_of(given) is given
    assert Schema.from_json(given.as_json()) == given
    assert Schema.from_json(Schema(AVRO).as_json()) == Schema(AVRO)


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(InvalidSchema):
        parsed("{")
    with pytest.raises(InvalidSchema, match="'THRIFT'"):
        parsed("", "THRIFT")


# ── values ──


def test_a_model_is_written_and_read_by_its_aliases() -> None:
    schema = parsed(schema_of(Order).text, "JSON")
    order = Order(Customer="ada", lines=[Line(amount=Decimal("1.10"))])
    data = encoding_of(schema, Order, "python").encode(order)
    assert json.loads(data) == {"Customer": "ada", "lines": [{"amount": "1.10"}]}
    assert read(schema, data, Order) == order
    assert read(schema, data) == json.loads(data)
    with pytest.raises(InvalidValue):
        encoding_of(schema, Order, "python").encode({"Customer": "ada"})
    with pytest.raises(InvalidValue) as raised:
        read(schema, b'{"Customer":"ada","lines":[{"amount":"much"}]}', Order)
    assert raised.value.pointer == "/lines/0/amount"


def test_a_class_of_a_newer_version_writes_what_the_registered_one_describes() -> None:
    older = parsed('{"type":"object","properties":{"x":{"type":"string"}}}', "JSON")
    with pytest.raises(InvalidValue, match="/x"):
        encoding_of(older, Point, "python").encode(Point(1))


def test_a_dataclass_is_a_record_of_avro() -> None:
    schema = parsed(AVRO)
    data = encoding_of(schema, Point, "python").encode(Point(1, 2))
    assert data == b"\x02\x04"
    assert (read(schema, data), read(schema, data, Point)) == ({"x": 1, "y": 2}, Point(1, 2))
    with pytest.raises(InvalidValue) as raised:
        encoding_of(schema, None, "python").encode({"x": 1, "y": "2"})
    assert raised.value.pointer == "/y"


def test_the_form_of_json_is_exact() -> None:
    schema = parsed('["int","long",{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}]')
    for value in ({"int": 1}, {"long": 1}, {"bytes": "1.0"}):
        data = encoding_of(schema, None, "json").encode(value)
        assert read(schema, data, form="json") == value
    assert read(schema, b"\x02\x02") == 1


def test_only_avro_is_read_with_another_schema() -> None:
    reader = parsed('{"type":"record","name":"shop.Point","fields":[{"name":"y","type":"long"}]}')
    assert read(parsed(AVRO), b"\x02\x04", reader=reader) == {"y": 2}
    assert read(parsed(AVRO), b"\x02\x04", reader=reader, form="json") == {"y": 2}
    with pytest.raises(InvalidSchema, match="only values of Avro"):
        decode_of(parsed("{}", "JSON"), None, reader, "python")


# ── Protobuf ──

PROTO = """syntax = "proto3"; package shop;
message First { string a = 1; }
message Second { int64 n = 1; message Inner { bool b = 1; } }
"""


@pytest.fixture(scope="module")
def messages() -> dict[str, type[Any]]:
    return message_classes({"shop.proto": PROTO})


def test_a_message_is_found_by_its_class_or_name(messages: dict[str, type[Any]]) -> None:
    schema = parsed(PROTO, "PROTOBUF")
    second = messages["shop.Second"]
    by_class = encoding_of(schema, second, "python")
    by_name = encoding_of(schema, None, "python", "shop.Second")
    assert by_class.indexes == by_name.indexes == (1,)
    assert by_class.encode(second(n=1 << 40)) == by_name.encode({"n": 1 << 40})
    assert encoding_of(schema, None, "python", "shop.Second.Inner").indexes == (1, 0)
    assert encoding_of(schema, None, "python").indexes == (0,)
    with pytest.raises(InvalidValue, match="a Second is needed, not a First"):
        by_class.encode(messages["shop.First"]())
    with pytest.raises(InvalidSchema, match="Third"):
        encoding_of(schema, None, "python", "shop.Third")
    with pytest.raises(InvalidSchema):
        encoding_of(parsed('syntax = "proto3"; enum E { A = 0; }', "PROTOBUF"), None, "python")


def test_indexes_are_before_the_payload_or_in_the_header(messages: dict[str, type[Any]]) -> None:
    schema = parsed(PROTO, "PROTOBUF")
    payload = messages["shop.Second"](n=7).SerializeToString()
    assert read(schema, b"\x02\x02" + payload) == {"n": 7}
    assert read(schema, payload, in_header=b"\x02\x02") == {"n": 7}
    assert read(schema, payload, messages["shop.Second"], in_header=b"\x02\x02").n == 7
    for wrong in (b"\x02\x01", b"\x02\x08", b"\x02", b"\x80\x80"):
        with pytest.raises(InvalidValue):
            read(schema, payload, in_header=wrong)
    with pytest.raises(InvalidValue, match="First, and not a"):
        read(schema, b"\0", messages["shop.Second"])
    with pytest.raises(InvalidValue):
        read(schema, b"\x02\x02\x08", messages["shop.Second"])
    with pytest.raises(InvalidSchema, match="describes no Second"):
        decode_of(parsed(AVRO), messages["shop.Second"], None, "python")


# ── serializers ──


def serializer(**options: Any) -> SchemaSerializer[Any]:
    registered = RegisteredSchema(subject="s", id=7, schema=Schema(AVRO), guid=options.pop("guid", GUID))
    encoding: Encoding[Any] = Encoding(bytes, options.pop("indexes", None))
    return SchemaSerializer(registered, encoding, SerializerSettings(**options))


def test_a_serializer_puts_the_id_before_the_bytes_or_the_guid_into_a_header() -> None:
    assert serializer()(b"x") == b"\0\0\0\0\x07x"
    assert serializer(indexes=(0,))(b"x") == b"\0\0\0\0\x07\0x"
    headed = serializer(frame="header", key=True, indexes=(1,))
    assert headed(b"x") == b"x"
    assert headed.headers == (
        ("__key_schema_id", b"\x01" + bytes.fromhex(GUID.replace("-", "")) + b"\x02\x02"),
    )
    with pytest.raises(ValueError, match="GUID"):
        serializer(frame="header", guid=None)
