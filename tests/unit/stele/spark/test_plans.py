"""Schemas → Spark types, and values with a schema → Arrow: by Avro's rules, and compared with fastavro."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from pyspark.sql.pandas import types as pandas_types
from pyspark.sql.types import ArrayType, DataType, IntegerType, StringType, StructField, StructType
from stele import Schema
from stele.registry.codecs import parse
from stele.registry.frames import Framed
from stele.schemas.definitions import InvalidSchema, InvalidValue
from stele.schemas.framing import join_indexes
from stele.spark.decoding import plan_of
from stele.spark.options import OptionError

pa: Any = pyarrow
to_arrow_type: Any = vars(pandas_types)["to_arrow_type"]


def record(*fields: tuple[Any, ...], name: str = "R", **more: Any) -> dict[str, Any]:
    named = [
        {"name": each[0], "type": each[1], **({"default": each[2]} if len(each) > 2 else {})}
        for each in fields
    ]
    return {"type": "record", "name": name, "fields": named, **more}


def type_of(schema: Any, kind: Any = "AVRO", message: str | None = None) -> str:
    return plan_of(parse(as_schema(schema, kind), {}), None, message).data_type.simpleString()


def as_schema(schema: Any, kind: Any = "AVRO") -> Schema:
    return Schema(schema if isinstance(schema, str) and kind == "PROTOBUF" else json.dumps(schema), kind)


def arrow(plan_type: DataType, value: Any) -> Any:
    """Return what Spark gets of a value."""
    return pa.array([value], to_arrow_type(plan_type, timezone="UTC")).to_pylist()[0]


def read(writer: Any, value: Any, reader: Any | None = None, wanted: DataType | None = None) -> Any:
    """Return what a plan with ``reader`` reads of what ``writer`` wrote."""
    written: Any = parse(as_schema(writer), {})
    plan = plan_of(written if reader is None else parse(as_schema(reader), {}), wanted, None)
    return arrow(plan.data_type, plan.decode_of(written)(Framed(1, written.encode_python(value))))


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def long(logical: str) -> dict[str, str]:
    return {"type": "long", "logicalType": logical}


LIST = record(("v", "int"), ("next", ["null", "R"], None))
TYPES: list[tuple[Any, str]] = [
    ("int", "int"),
    ("bytes", "binary"),
    (["null", "string"], "string"),
    (["string", "null"], "string"),
    (["long"], "bigint"),
    (["null", "int", "long"], "bigint"),
    (["float", "double"], "double"),
    (["int", "string", "null"], "struct<member0:int,member1:string>"),
    (DECIMAL, "decimal(10,2)"),
    ({**DECIMAL, "precision": 50}, "string"),
    ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "string"),
    ({"type": "fixed", "name": "F", "size": 3}, "binary"),
    ({"type": "int", "logicalType": "date"}, "date"),
    ({"type": "int", "logicalType": "time-millis"}, "int"),
    (long("timestamp-micros"), "timestamp"),
    (long("timestamp-nanos"), "bigint"),
    (long("local-timestamp-millis"), "timestamp_ntz"),
    ({"type": "string", "logicalType": "nonsense"}, "string"),
    (record(("a", {"type": "map", "values": {"type": "array", "items": "int"}})), "struct<a:map<string,array<int>>>"),
    # A record within itself, and one without fields, have no Spark type.
    (LIST, "struct<v:int,next:string>"),
    (record(("a", record(name="E"))), "struct<a:string>"),
    (record(("a", ["null", LIST, "int"]), name="O"), "struct<a:struct<member0:struct<v:int,next:string>,member1:int>>"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "expected"), TYPES)
def test_avro_has_the_types_of_spark_avro(schema: Any, expected: str) -> None:
    assert type_of(schema) == expected


def test_avro_values_have_the_form_of_their_column() -> None:
    moment = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert read(LIST, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}) == {
        "v": 1,
        "next": '{"v":2,"next":{"v":3,"next":null}}',
    }
    assert read(["int", "string", "null"], "x") == {"member0": None, "member1": "x"}
    assert read(["int", "string", "null"], None) is None
    assert read({"type": "map", "values": DECIMAL}, {"a": Decimal("1.5")}) == [("a", Decimal("1.50"))]
    assert read({**DECIMAL, "precision": 50}, Decimal(10) ** 45) == f"1{'0' * 45}.00"
    assert read(long("timestamp-millis"), moment) == moment
    assert read(long("local-timestamp-micros"), datetime(2026, 11, 30)) == datetime(2026, 11, 30)
    assert read({"type": "bytes"}, b"\x00") == b"\x00"


RESOLVED: list[tuple[Any, Any, Any, Any]] = [
    ("int", 1, "long", 1),
    ("int", 1, "double", 1.0),
    ("string", "a", "bytes", b"a"),
    (["null", "int"], 1, "long", 1),
    ("int", 1, ["null", "long"], 1),
    ("int", 1, ["string", "int"], {"member0": None, "member1": 1}),
    (record(("a", "int"), ("b", "int")), {"a": 1, "b": 2}, record(("b", "long"), ("c", "string", "d")), {"b": 2, "c": "d"}),
    # By name, whatever the namespaces; an alias of the reader's renames.
    (record(("a", "int"), namespace="x"), {"a": 1}, record(("a", "int"), namespace="y"), {"a": 1}),
    (record(("a", "int"), name="Old"), {"a": 1}, record(("a", "int"), aliases=["Old"]), {"a": 1}),
    (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B",
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}, "A",
    ),
    # A default that is a decimal, and one of a record.
    (record(("x", "int")), {"x": 1}, record(("d", DECIMAL, "\u0001\u0000")), {"d": Decimal("2.56")}),
    (record(("x", "int")), {"x": 1}, record(("r", record(("y", "int"), name="I"), {"y": 7})), {"r": {"y": 7}}),
    (DECIMAL, Decimal("1.25"), {**DECIMAL, "precision": 12}, Decimal("1.25")),
    # Avro would take milliseconds for microseconds.
    (long("timestamp-millis"), datetime(2026, 1, 1, tzinfo=UTC), long("timestamp-micros"), datetime(2026, 1, 1, tzinfo=UTC)),
    (long("timestamp-nanos"), 1_500, long("timestamp-micros"), datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ("long", 1_000, long("timestamp-millis"), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "value", "reader", "expected"), RESOLVED)
def test_what_another_schema_wrote_is_resolved(writer: Any, value: Any, reader: Any, expected: Any) -> None:
    assert read(writer, value, reader) == expected


REFUSED: list[tuple[Any, Any, Any, str]] = [
    (record(("a", "int")), {"a": 1}, record(("b", "int")), "/b: the writer's record has no such field"),
    ("string", "x", "int", "string was written, which is not read as int"),
    ({**DECIMAL, "scale": 3}, Decimal("1.125"), DECIMAL, "a decimal of another scale"),
    (["null", "int"], None, "int", "null was written"),
    # What Avro would promote to something else.
    (DECIMAL, Decimal("1.25"), "string", "a decimal was written, which is not read as a string"),
    ("string", "1.25", DECIMAL, "a string was written, which is not read as a decimal"),
    (
        {"type": "int", "logicalType": "date"},
        5,
        long("timestamp-micros"),
        "a date was written, which is not read as",
    ),
]


@pytest.mark.parametrize(("writer", "value", "reader", "reason"), REFUSED)
def test_what_cannot_be_resolved_says_why(writer: Any, value: Any, reader: Any, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        read(writer, value, reader)


def test_a_wanted_type_leaves_fields_out_and_reorders_them() -> None:
    schema = record(
        ("a", "int"), ("b", {"type": "array", "items": record(("x", "int"), ("y", "int"), name="I")})
    )
    inner = StructType([StructField("y", IntegerType())])
    wanted = StructType([StructField("b", ArrayType(inner)), StructField("a", IntegerType())])
    assert read(schema, {"a": 1, "b": [{"x": 2, "y": 3}]}, wanted=wanted) == {"b": [{"y": 3}], "a": 1}
    for field, said in (
        (StructField("c", IntegerType()), "has a field 'c'"),
        (StructField("a", StringType()), "makes struct<a:int>; cast"),
        (StructField("a", IntegerType(), nullable=False), "leave NOT NULL out"),
    ):
        with pytest.raises(OptionError, match=said):
            read(schema, {"a": 1, "b": []}, wanted=StructType([field]))


# ── JSON Schema ──

OBJECT = {
    "type": "object",
    "properties": {
        "i": {"type": ["integer", "null"]},
        "n": {"anyOf": [{"type": ["number", "null"]}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
        "e": {"enum": ["a", "b", None]},
        "o": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/P"}]},
        "m": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "l": {"type": "array", "items": {"allOf": [{"$ref": "#/definitions/P"}]}},
        "u": {"type": ["string", "integer"]},
        "a": {"type": "array"},
        "x": True,
    },
    "definitions": {"P": {"properties": {"q": {"type": "string", "format": "date-time"}}}},
}


def read_json(value: Any, schema: Any = OBJECT) -> Any:
    parsed = parse(as_schema(schema, "JSON"), {})
    plan = plan_of(parsed, None, None)
    return arrow(plan.data_type, plan.decode_of(parsed)(Framed(1, json.dumps(value).encode())))


def test_json_schema_has_types_of_spark() -> None:
    assert type_of(OBJECT, "JSON") == (
        "struct<i:bigint,n:double,e:string,o:struct<q:string>,m:map<string,boolean>,l:array<struct<q:string>>,"
        "u:string,a:string,x:string>"
    )
    assert type_of({"type": "string"}, "JSON") == "string"
    assert type_of({}, "JSON") == "string"


def test_json_values_are_read_by_the_plan() -> None:
    nothing = dict.fromkeys(OBJECT["properties"])
    assert read_json({}) == nothing
    assert read_json({"i": 2.0, "n": "NaN", "more": 1})["i"] == 2
    value = {
        "n": 1,
        "e": "b",
        "o": {"q": "t"},
        "m": {"k": True},
        "l": [{"q": None}],
        "u": 5,
        "a": [1],
        "x": {"y": 1.5},
    }
    assert read_json(value) == {
        **nothing,
        "n": 1.0,
        "e": "b",
        "o": {"q": "t"},
        "m": [("k", True)],
        "l": [{"q": None}],
        "u": "5",
        "a": "[1]",
        "x": '{"y":1.5}',
    }
    wrongs: list[tuple[Any, str]] = [
        ({"i": "1"}, "/i: an integer is needed, not a string"),
        ({"i": True}, "/i: an integer is needed, not a boolean"),
        ({"n": "one"}, "/n: a number is needed"),
        ([], "an object is needed, not an array"),
        ({"o": {"q": 1}}, "/o/q: a string is needed"),
    ]
    for wrong, said in wrongs:
        with pytest.raises(InvalidValue, match=said):
            read_json(wrong)
    with pytest.raises(OverflowError):
        read_json({"i": 2**70})


# ── Protobuf ──

PROTO = """
syntax = "proto3";
package p;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  int32 id = 1; uint64 big = 2; uint32 u = 3; optional string note = 4; bytes data = 5; Kind kind = 6;
  repeated Item items = 7; map<string, Item> by_name = 8; google.protobuf.Timestamp at = 9;
  google.protobuf.Int64Value wrapped = 10; google.protobuf.Struct free = 11; Order parent = 12; Empty nothing = 13;
  oneof choice { int32 one = 14; string two = 15; }
  message Item { double price = 1; }
}
message Empty {}
enum Kind { NONE = 0; SOME = 1; }
"""


def test_protobuf_has_the_types_of_spark_protobuf() -> None:
    assert type_of(PROTO, "PROTOBUF") == (
        "struct<id:int,big:decimal(20,0),u:bigint,note:string,data:binary,kind:string,items:array<struct<price:double>>,"
        "by_name:map<string,struct<price:double>>,at:timestamp,wrapped:bigint,free:string,parent:string,nothing:string,"
        "one:int,two:string>"
    )
    assert type_of(PROTO, "PROTOBUF", "p.Order.Item") == "struct<price:double>"
    with pytest.raises(InvalidValue, match="declares no message"):
        type_of(PROTO, "PROTOBUF", "p.Missing")


def test_protobuf_values_are_read_by_the_plan() -> None:
    written: Any = parse(Schema(PROTO, "PROTOBUF"), {})
    older: Any = parse(
        Schema('syntax = "proto3"; package p; message Order { int32 id = 1; string gone = 99; }', "PROTOBUF"),
        {},
    )
    plan = plan_of(written, None, None)

    def read_message(value: Any, schema: Any, indexes: tuple[int, ...] = (0,)) -> Any:
        payload = join_indexes(indexes, schema.encode(value, indexes))
        return arrow(plan.data_type, plan.decode_of(schema)(Framed(1, payload)))

    value: dict[str, Any] = {
        "id": 1, "big": 2**64 - 1, "u": 2**32 - 1, "note": "", "data": "AP8=", "kind": "SOME", "items": [{"price": 1.5}],
        "byName": {"a": {}}, "at": "2026-11-30T12:00:00.000001Z", "wrapped": 5, "free": {"a": [1, None]},
        "parent": {"id": 2}, "nothing": {}, "two": "b",
    }  # fmt: skip
    assert read_message(value, written) == {
        "id": 1, "big": Decimal(2**64 - 1), "u": 2**32 - 1, "note": "", "data": b"\x00\xff", "kind": "SOME",
        "items": [{"price": 1.5}], "by_name": [("a", {"price": 0.0})],
        "at": datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC), "wrapped": 5, "free": '{"a":[1,null]}',
        "parent": '{"id":2}', "nothing": "{}", "one": None, "two": "b",
    }  # fmt: skip
    assert read_message({"id": 3, "gone": "x"}, older) == {
        "id": 3, "big": 0, "u": 0, "note": None, "data": b"", "kind": "NONE", "items": [], "by_name": [], "at": None,
        "wrapped": None, "free": None, "parent": None, "nothing": None, "one": None, "two": None,
    }  # fmt: skip
    with pytest.raises(InvalidValue, match=r"it is a p\.Order\.Item, and not a p\.Order"):
        read_message({}, written, written.indexes("p.Order.Item"))
    with pytest.raises(InvalidValue, match="these are no bytes"):
        plan.decode_of(written)(Framed(1, b"\x00\xff"))


def test_a_plan_reads_one_type_of_schema() -> None:
    avro, json_schema = parse(as_schema("int"), {}), parse(as_schema({}, "JSON"), {})
    with pytest.raises(InvalidSchema, match="it is of type JSON, and the plan of the query has Avro"):
        plan_of(avro, None, None).decode_of(json_schema)
    with pytest.raises(InvalidSchema, match="it is of type AVRO"):
        plan_of(json_schema, None, None).decode_of(avro)
    with pytest.raises(InvalidSchema, match="it is of type AVRO"):
        plan_of(parse(Schema(PROTO, "PROTOBUF"), {}), None, None).decode_of(avro)
