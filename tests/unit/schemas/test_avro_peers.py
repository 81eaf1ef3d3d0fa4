"""What fastavro, the package avro and Confluent's client make of the same schemas and values, and public reports."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any, cast

import fastavro
import fastavro.schema
import pytest
from confluent_kafka import schema_registry
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import assume, given
from stele.schemas import avro, framing
from stele.schemas.avro.reading import Readers, read_value
from stele.schemas.definitions import InvalidSchema, InvalidValue

from app.registry.compatibility.avro import incompatibilities
from tests.support.avro_examples import parsed_schemas, schemas_with_values


def parse(schema: Any, **options: Any) -> avro.AvroSchema:
    return avro.parse(json.dumps(schema), **options)


def stored(schema: Any) -> Any:
    """Return a schema without logical types, whose values are those that are stored."""
    if isinstance(schema, dict):
        items = cast("dict[str, Any]", schema).items()
        return {key: stored(value) for key, value in items if key != "logicalType"}
    return [stored(item) for item in cast("list[Any]", schema)] if isinstance(schema, list) else schema


def fastavro_schema(schema: avro.AvroSchema) -> Any:
    """Return a schema for fastavro, which, unlike Java, looks for a name in the namespace around it alone."""
    parsed: Any = None
    try:
        parsed = fastavro.parse_schema(json.loads(schema.canonical))
    except fastavro.schema.UnknownType:
        assume(False)
    return parsed


@given(schemas_with_values())
def test_fastavro_reads_the_same_values(case: tuple[avro.AvroSchema, Any]) -> None:
    schema, value = case
    data = schema.written(schema.encode(value))
    below = avro.parse(json.dumps(stored(json.loads(schema.canonical))))
    read = fastavro.schemaless_reader(io.BytesIO(data), fastavro_schema(below), None)
    assert repr(read) == repr(read_value(Readers(plain=True).reader(below.root, below.root), data))


@given(parsed_schemas())
def test_fastavro_has_the_same_names(schema: avro.AvroSchema) -> None:
    below = avro.parse(json.dumps(stored(json.loads(schema.canonical))))
    normalized = avro.parse(json.dumps(stored(json.loads(schema.normalized()))))
    canonical_form = fastavro.schema.to_parsing_canonical_form
    assert canonical_form(fastavro_schema(below)) == canonical_form(fastavro_schema(normalized))


USER: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "namespace": "com.example",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"], "default": None},
        {"name": "balance", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@pytest.mark.parametrize("in_header", [False, True])
def test_confluents_serializer_and_deserializer_and_this_are_peers(in_header: bool) -> None:
    # Any: its types are unknown in part.
    confluent: Any = schema_registry
    client = confluent.SchemaRegistryClient.new_client({"url": "mock://"})
    conf = {"schema.id.serializer": confluent.header_schema_id_serializer} if in_header else None
    serializer = cast("Any", AvroSerializer)(client, json.dumps(USER), conf=conf)
    conf = {"schema.id.deserializer": confluent.dual_schema_id_deserializer}
    deserializer = cast("Any", AvroDeserializer)(client, conf=conf)
    context: Any = cast("Any", SerializationContext)("users", MessageField.VALUE, [])

    schema = parse(USER)
    shown = {"name": "ann", "age": 5, "balance": "12.30", "at": "2026-11-30T10:00:00.123Z"}
    schema_id = client.register_schema("users-value", confluent.Schema(json.dumps(USER), "AVRO"))
    native = deserializer(framing.join(schema_id, schema.encode(shown)), context)
    assert native["balance"] == Decimal("12.30")
    payload = message = serializer(native, context)
    if in_header:
        ((name, header),) = context.headers
        assert name == framing.VALUE_HEADER
        guid, rest = framing.split_header(header)
        assert (framing.join_header(guid), rest) == (header, b"")
    else:
        assert framing.split(message)[0] == schema_id
        payload = framing.split(message)[1]
    assert schema.decode(payload) == shown
    assert deserializer(message, context) == native


# ── public reports, each tried ──


def record(*fields: Any, name: str = "R", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def reads(writer: Any, reader: Any) -> bool:
    return not incompatibilities(parse(reader), parse(writer))


def test_a_long_of_a_union_with_int_stays_a_long() -> None:
    """fastavro #23: written again, it is an int."""
    schema = parse(["int", "long"])
    assert schema.encode(schema.decode(b"\2\2")) == b"\2\2"


def test_a_record_is_not_taken_for_another_branch() -> None:
    """fastavro #272, AVRO-2226: the first record whose fields may all be null was taken."""
    a = record({"name": "foo", "type": ["string", "null"]}, name="A")
    b = record({"name": "bar", "type": ["string", "null"]}, name="B")
    schema = parse([a, b])
    assert schema.encode({"B": {"bar": "x"}}) == b"\2\0\2x"
    with pytest.raises(InvalidValue):
        schema.encode({"A": {"bar": "x"}})


def test_digits_of_a_decimal_are_not_lost() -> None:
    """fastavro #452 and #445: too many digits were rounded when read, another scale refused."""
    schema = parse({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    with pytest.raises(InvalidValue):
        schema.encode("123456789012345.1")
    with pytest.raises(InvalidValue):
        schema.decode(b"\4\x7f\xff")
    assert schema.encode("2.5") == schema.encode("2.50")


def test_a_precision_that_is_a_string_is_no_logical_type() -> None:
    """fastavro #261: TypeError for a file of Hive's."""
    assert parse({"type": "bytes", "logicalType": "decimal", "precision": "5"}).decode(b"a") == "YQ=="


@pytest.mark.parametrize("milliseconds", [-62_135_596_800_001, -1, 253_402_300_800_000, 2**63 - 1])
def test_timestamps_of_any_year_are_read(milliseconds: int) -> None:
    """fastavro #458 and others: errors and wrong values at the ends."""
    schema = parse({"type": "long", "logicalType": "timestamp-millis"})
    assert schema.encode(schema.decode(schema.encode(milliseconds))) == schema.encode(milliseconds)


def test_documentation_of_a_branch_does_not_matter_to_a_reader() -> None:
    """fastavro #489: resolution failed."""
    address = record({"name": "city", "type": "string"}, name="ns1.Address")
    writer = parse(record({"name": "address", "type": ["null", address]}))
    reader = parse(record({"name": "address", "type": ["null", {**address, "doc": "An address"}]}))
    value = {"address": {"city": "Glasgow"}}
    assert writer.decode(writer.encode(value), reader) == value


def test_a_named_type_may_be_defined_elsewhere_by_the_reader() -> None:
    """fastavro #780: resolution failed, because the reader defines it in a new field."""
    simple = record({"name": "a", "type": "long"}, {"name": "b", "type": "int"}, name="simpleRecord")
    writer = parse(record({"name": "foo", "type": simple}))
    reader = parse(
        record(
            {"name": "bar", "type": ["null", simple], "default": None},
            {"name": "foo", "type": "simpleRecord"},
        )
    )
    foo = {"a": 1, "b": 2}
    assert writer.decode(writer.encode({"foo": foo}), reader) == {"bar": None, "foo": foo}


def test_records_of_other_names_do_not_match() -> None:
    """fastavro #512, #515: they did."""
    field = {"name": "F", "type": "int"}
    assert not reads(record(field, name="A"), record(field, name="B"))


def test_a_relative_alias_is_one_of_the_namespace() -> None:
    """fastavro #648; the package avro compares it with the full name and refuses."""
    writer = record({"name": "k", "type": "int"}, name="com.node40.generated")
    reader = record({"name": "k", "type": "int"}, name="com.node40.test", aliases=["generated"])
    assert reads(writer, reader)


def test_the_branch_that_a_value_is_read_as_is_named_as_by_the_reader() -> None:
    """fastavro #733, #753: the name was the writer's, or missing."""
    writer = parse([record(name="A"), record(name="B")])
    reader = parse([record(name="C", aliases=["A"]), record(name="B")])
    assert writer.decode(b"\0", reader) == {"C": {}}


def test_several_branches_may_become_one_record_by_its_aliases() -> None:
    """AVRO-2830."""
    branches = [record({"name": name, "type": "boolean"}, name=name.upper()) for name in ("a", "b")]
    fields = [{"name": name, "type": "boolean", "default": True} for name in ("a", "b")]
    assert reads(branches, [record(*fields, name="B", aliases=["A"])])


def test_removed_symbols_of_an_enum_are_incompatible() -> None:
    """schema-registry #601, #880, karapace #524: any change passed."""
    old = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    fewer, more = {**old, "symbols": ["A", "C"]}, {**old, "symbols": ["A", "B", "C", "D"]}
    assert not reads(old, fewer)
    assert reads(fewer, old)
    assert not reads(more, old)
    assert reads(more, {**old, "default": "A"})


def test_decimals_of_another_scale_are_incompatible() -> None:
    """AVRO-2078: Java takes them, and every value is wrong by a power of ten."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    assert not reads(decimal, {**decimal, "scale": 3})


@pytest.mark.parametrize(
    ("kind", "default", "valid"),
    [
        (["string", "null"], "null", True),  # a string of that text; schema-registry #603
        (["string", "null"], None, True),  # of any branch since Avro 1.12; schema-registry #4112
        ("string", None, False),  # schema-registry #1293
        ({"type": "array", "items": "int"}, None, False),  # schema-registry #942
        (["null", "string"], "VALUE1", True),  # kafkajs/confluent-schema-registry #138
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, "\u0000", True),  # schema-registry #695
    ],
)
def test_a_default_is_of_the_type_or_of_a_branch(kind: Any, default: Any, valid: bool) -> None:
    schema = record({"name": "f", "type": kind, "default": default})
    if valid:
        assert parse(schema).decode(parse(schema).encode({})) is not None
        return
    with pytest.raises(InvalidSchema, match="default of field f"):
        parse(schema)


def test_the_order_of_attributes_does_not_matter() -> None:
    """apicurio-registry #6972, redpanda #7609: "default" before "doc" was another schema."""
    one = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":1,"doc":"d"}]}'
    other = '{"name":"R","fields":[{"doc":"d","default":1,"type":"int","name":"a"}],"type":"record"}'
    assert avro.parse(one).canonical == avro.parse(other).canonical


def test_a_full_name_is_the_same_as_one_with_a_namespace() -> None:
    """apicurio-registry #300."""
    assert parse(record(name="ns.n")).canonical == parse(record(name="n", namespace="ns")).canonical


def test_a_type_in_an_object_is_the_same_as_its_name() -> None:
    """redpanda #4970: Connect sees another schema."""
    assert parse({"type": "string"}).canonical == parse("string").canonical


def test_records_that_use_each_other_are_no_endless_loop() -> None:
    """ClickHouse #102809: a stack overflow ended the server."""
    inner = record({"name": "a", "type": "A"}, name="B")
    schema = parse(record({"name": "b", "type": inner}, name="A"))
    with pytest.raises(InvalidValue, match="deep"):
        schema.decode(b"")
    assert reads(json.loads(schema.canonical), json.loads(schema.canonical))
