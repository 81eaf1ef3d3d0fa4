"""The columns of a record, as spark-sql-kafka names and types them, for Spark and for Arrow.

Both must say exactly the same, or Spark refuses the rows. PySpark has no column
pruning for Python sources, so a schema given by the user prunes: any of these
columns, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .arrow import DataType as ArrowType
from .arrow import Schema, pa
from .options import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())]), containsNull=True
)
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
HEADERS_ARROW = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
ARROW: dict[str, ArrowType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_ARROW,
}


def spark_schema(*, include_headers: bool) -> StructType:
    """What a read gives when the user asks for no schema."""
    return StructType([StructField(n, t) for n, t in COLUMNS.items() if n != "headers" or include_headers])


def read_columns(schema: StructType, *, include_headers: bool) -> tuple[str, ...]:
    """The columns that ``schema`` asks for, in its order.

    Raises:
        OptionError: a column that no record has, or of another type.
    """
    for field in schema.fields:
        expected = COLUMNS.get(field.name)
        if expected is None or (field.name == "headers" and not include_headers):
            hint = " (with the option includeHeaders=true)" if field.name == "headers" else ""
            raise OptionError(
                f"the schema asks for a column {field.name!r}, which a record does not have{hint}; "
                f"there are {', '.join(COLUMNS)}: parse what is inside of value in a select"
            )
        if field.dataType.simpleString() != expected.simpleString():
            raise OptionError(
                f"the schema asks for {field.name} as {field.dataType.simpleString()}, and it is "
                f"{expected.simpleString()}; cast it in a select"
            )
    return tuple(schema.fieldNames())


def arrow_schema(schema: StructType) -> Schema:
    """The Arrow schema that Spark expects of rows of ``schema``, which ``read_columns`` has accepted."""
    return arrow_schema_of([(field.name, field.nullable) for field in schema.fields])


def arrow_schema_of(columns: Sequence[tuple[str, bool]]) -> Schema:
    """As ``arrow_schema``, from names and nullabilities."""
    return pa.schema([pa.field(name, ARROW[name], nullable=nullable) for name, nullable in columns])
