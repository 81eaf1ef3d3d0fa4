"""Columns of Spark → JSON Schema and Protobuf: which fit a schema, and what is written."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from stele.schemas import json_schema, protobuf
from stele.schemas.definitions import InvalidValue
from stele.spark import json_rows, protobuf_rows
from stele.spark.options import OptionError

ITEM = {"type": "object", "properties": {"f": {"type": "number"}, "next": {"$ref": "#/$defs/Item"}}}
ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"type": ["string", "null"]},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "any": {},
    },
    "required": ["id", "note"],
    "additionalProperties": False,
    "$defs": {"Item": ITEM},
}
PROTO = """
syntax = "proto3"; package p;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Kind { NONE = 0; SOME = 1; }
message Order {
  int64 id = 1; uint64 big = 2; double price = 3; bytes data = 4; Kind kind = 5; repeated string tags = 6;
  map<bool, int32> flags = 7; Order inner = 8; google.protobuf.Timestamp at = 9;
  google.protobuf.StringValue note = 10; google.protobuf.Value any = 11; optional float ratio = 12;
}
"""


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in fields.items()])


def json_written(data_type: DataType, value: Any, schema: Any = ORDER) -> Any:
    parsed = json_schema.parse(json.dumps(schema))
    return json.loads(parsed.encode(json_rows.converter(parsed.root, data_type, "value")(value)))


def message_written(data_type: DataType, value: Any) -> Any:
    parsed = protobuf.parse(PROTO)
    return parsed.decode(parsed.encode(protobuf_rows.converter(parsed.message(), data_type, "value")(value)))


def test_rows_become_json_as_the_schema_has_it() -> None:
    item = struct(next=StringType(), f=DoubleType())
    data_type = struct(
        any=StringType(),
        day=DateType(),
        id=IntegerType(),
        items=ArrayType(item),
        note=StringType(),
        tags=MapType(StringType(), BooleanType()),
    )
    row = {
        "any": '{"a":[1]}',
        "day": date(1969, 12, 31),
        "id": 1,
        "items": [{"next": '{"f":2.5}', "f": None}],
        "note": None,
        "tags": [("x", True)],
    }
    assert json_written(data_type, row) == {
        "any": {"a": [1]},
        "day": "1969-12-31",
        "id": 1,
        "items": [{"next": {"f": 2.5}}],
        # It is required, and may be null; what is null and not required is left out.
        "note": None,
        "tags": {"x": True},
    }
    few = {"id": 1, "note": "n", "any": None, "day": None, "items": None, "tags": None}
    assert json_written(data_type, few) == {"id": 1, "note": "n"}


def test_a_row_that_the_schema_refuses_says_where() -> None:
    data_type = struct(id=LongType(), note=StringType(), any=StringType())
    for row, pointer in (
        ({"id": None, "note": "n", "any": None}, "/id"),
        ({"id": 1, "note": "n", "any": "no json"}, ""),
    ):
        with pytest.raises(InvalidValue) as refused:
            json_written(data_type, row)
        assert refused.value.pointer == pointer


AT = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "data_type", "value", "written"),
    [
        ("string", TimestampType(), AT, "2026-11-30T12:00:00.123456Z"),
        ("string", TimestampNTZType(), AT.replace(tzinfo=None), "2026-11-30T12:00:00.123456"),
        ("number", LongType(), 2**53 + 1, 2**53 + 1),
        ("number", FloatType(), 0.5, 0.5),
        ("boolean", BooleanType(), True, True),
    ],
)
def test_leaves_of_json(kind: str, data_type: DataType, value: Any, written: Any) -> None:
    assert json_written(data_type, value, {"type": kind}) == written


def test_rows_become_messages_as_the_schema_has_them() -> None:
    data_type = struct(
        at=TimestampType(),
        id=LongType(),
        big=DecimalType(20, 0),
        price=DoubleType(),
        data=BinaryType(),
        kind=StringType(),
        tags=ArrayType(StringType()),
        flags=MapType(BooleanType(), IntegerType()),
        inner=StringType(),
        note=StringType(),
        any=StringType(),
        ratio=FloatType(),
    )
    row = {
        "at": AT,
        "id": -1,
        "big": Decimal(2**64 - 1),
        "price": math.inf,
        "data": b"\x00\xff",
        "kind": "SOME",
        "tags": ["a", "b"],
        "flags": [(True, 1), (False, 2)],
        "inner": '{"id":7}',
        "note": "",
        "any": '[1,"x"]',
        "ratio": 0.0,
    }
    assert message_written(data_type, row) == {
        "at": "2026-11-30T12:00:00.123456Z",
        "id": -1,
        "big": 2**64 - 1,
        "price": "Infinity",
        "data": "AP8=",
        "kind": "SOME",
        "tags": ["a", "b"],
        "flags": {"true": 1, "false": 2},
        "inner": {"id": 7},
        "note": "",
        "any": [1, "x"],
        "ratio": 0.0,
    }
    # Null is not set; a constant that the schema does not name is its number, as in a read.
    nulls = dict.fromkeys(row) | {"kind": "7"}
    assert message_written(data_type, nulls) == {"kind": 7}


MISFITS: list[tuple[StructType, str, str]] = [
    (struct(id=LongType()), r"column value\.note is missing", "JSON"),
    (struct(id=LongType(), note=StringType(), x=LongType()), r"column value\.x is not in the schema", "JSON"),
    (struct(id=StringType(), note=StringType()), r"value\.id is string, and its schema has int64", "JSON"),
    (struct(id=LongType(), note=StringType(), any=LongType()), r"value\.any is bigint.*JSON", "JSON"),
    (struct(x=LongType()), r"column value\.x is not in the schema, which has id, big", "PROTOBUF"),
    (struct(big=DecimalType(20, 1)), r"value\.big is decimal\(20,1\), and its schema has a uint64", "PROTOBUF"),
    (struct(at=LongType()), r"value\.at is bigint, and its schema has a Timestamp", "PROTOBUF"),
    (struct(inner=LongType()), r"value\.inner is bigint.*JSON of a p\.Order", "PROTOBUF"),
    (struct(tags=StringType()), r"value\.tags is string, and its schema has a repeated field", "PROTOBUF"),
    (struct(data=StringType()), r"value\.data is string, and its schema has bytes", "PROTOBUF"),
]  # fmt: skip


@pytest.mark.parametrize(("data_type", "reason", "kind"), MISFITS)
def test_what_does_not_fit_is_refused_before_the_first_row(
    data_type: StructType, reason: str, kind: str
) -> None:
    message = protobuf.parse(PROTO).message()
    root = json_schema.parse(json.dumps(ORDER)).root
    with pytest.raises(OptionError, match=reason):
        _ = (
            json_rows.converter(root, data_type, "value")
            if kind == "JSON"
            else protobuf_rows.converter(message, data_type, "value")
        )
