"""Columns of Spark → Avro: which fit a schema, what is written, and the schema that is made of a column."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from stele.schemas import avro
from stele.schemas.definitions import InvalidValue
from stele.spark.avro_rows import avro_of, converter
from stele.spark.decoding import plan_of
from stele.spark.options import OptionError


def written(schema: Any, data_type: DataType, value: Any) -> Any:
    parsed = avro.parse(json.dumps(schema))
    return parsed.decode_python(parsed.encode_python(converter(parsed.root, data_type, "value")(value)))


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in fields.items()])


def record(*fields: tuple[Any, ...]) -> dict[str, Any]:
    named = [
        {"name": each[0], "type": each[1], **({"default": each[2]} if len(each) > 2 else {})}
        for each in fields
    ]
    return {"type": "record", "name": "R", "fields": named}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def test_fields_are_matched_by_name_and_what_is_left_out_has_its_default() -> None:
    schema = record(("a", "long"), ("b", ["null", "string"]), ("c", "int", 7))
    row = {"b": None, "a": 1}
    assert written(schema, struct(b=StringType(), a=IntegerType()), row) == {"a": 1, "b": None, "c": 7}
    # Spark says that all may be null; what is null is an error where the schema has no null.
    with pytest.raises(InvalidValue, match="/a"):
        written(schema, struct(b=StringType(), a=LongType()), {"b": "x", "a": None})


VALUES: list[tuple[Any, DataType, Any, Any]] = [
    ("double", FloatType(), 1.5, 1.5),
    ("double", IntegerType(), 2, 2.0),
    ("int", ShortType(), 3, 3),
    (DECIMAL, DecimalType(10, 1), Decimal("1.5"), Decimal("1.50")),
    (DECIMAL, IntegerType(), 4, Decimal("4.00")),
    ({"type": "map", "values": ["null", "int"]}, MapType(StringType(), IntegerType()), [("a", None)], {"a": None}),
    ({"type": "array", "items": "string"}, ArrayType(StringType()), ["a"], ["a"]),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, StringType(), "A", "A"),
    ({"type": "fixed", "name": "F", "size": 2}, BinaryType(), b"ab", b"ab"),
    (["null", "int"], IntegerType(), None, None),
    # A union of several types: the first that fits, or the members that a read makes.
    (["int", "long", "string"], LongType(), 5, 5),
    (["null", "int", "string"], struct(member0=IntegerType(), member1=StringType()), {"member0": None, "member1": "x"}, "x"),
    (["null", "int", "string"], struct(member0=IntegerType(), member1=StringType()), None, None),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "data_type", "value", "expected"), VALUES)
def test_values_are_written_as_the_schema_has_them(
    schema: Any, data_type: DataType, value: Any, expected: Any
) -> None:
    assert written(schema, data_type, value) == expected


@pytest.mark.parametrize(
    ("schema", "data_type", "said"),
    [
        (
            record(("a", "int")),
            struct(a=IntegerType(), b=StringType()),
            "column value.b is not in the schema, which has a",
        ),
        (record(("a", "int"), ("b", "int")), struct(a=IntegerType()), "column value.b is missing"),
        (
            record(("a", "int")),
            struct(a=LongType()),
            "column value.a is bigint, and its schema has int there",
        ),
        ("float", DoubleType(), "column value is double, and its schema has float"),
        ({"type": "int", "logicalType": "date"}, IntegerType(), "its schema has date there"),
        ({"type": "array", "items": "int"}, ArrayType(StringType()), "column value.element is string"),
        ({"type": "map", "values": "int"}, MapType(IntegerType(), IntegerType()), "its schema has map there"),
        (["int", "boolean"], StringType(), "column value is string, and its schema has int"),
        (record(("a", "int")), StringType(), "its schema has R there; cast it"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_by_its_place(
    schema: Any, data_type: DataType, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        written(schema, data_type, None)


def test_the_schema_of_a_column_reads_back_as_the_column() -> None:
    inner = struct(x=DoubleType(), list=ArrayType(struct(y=StringType())))
    column = struct(
        flag=BooleanType(), small=ShortType(), id=LongType(), f=FloatType(), data=BinaryType(), price=DecimalType(38, 10),
        day=DateType(), at=TimestampType(), local=TimestampNTZType(), map=MapType(StringType(), inner), inner=inner,
    )  # fmt: skip
    parsed = avro.parse(avro_of(column, subject="1st.orders-value", column="value"))
    assert parsed.full_name == "_1st_orders_value"
    again = plan_of(parsed, None, None).data_type.simpleString()
    assert again == column.simpleString().replace("smallint", "int")
    # It takes what the column has.
    converter(parsed.root, column, "value")


@pytest.mark.parametrize(
    ("data_type", "said"),
    [
        (struct(**{"a b": IntegerType()}), "column value.a b has a name that Avro does not allow"),
        (struct(a=DayTimeIntervalType()), "for which Avro has no type"),
        (MapType(IntegerType(), IntegerType()), "for which Avro has no type"),
    ],
)
def test_a_column_without_an_avro_schema_is_refused(data_type: DataType, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        avro_of(data_type, subject="s", column="value")
