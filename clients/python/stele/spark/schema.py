"""The columns of a record for Spark, as spark-sql-kafka names and types them.

They must match ``stele.wire.arrow`` exactly, or Spark rejects the rows. PySpark does not
prune columns of Python sources, so the user prunes with a schema: any of these columns,
in any order.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

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

from .options import OptionError

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


_NONE: Mapping[str, StructField] = {}
_MAY_BE_NULL = ("key", "value", "headers")


def spark_schema(*, include_headers: bool, decoded: Mapping[str, StructField] = _NONE) -> StructType:
    """Return the schema of a read for which the user gives none; ``decoded`` are the columns with a schema."""
    return StructType(
        [decoded.get(n, StructField(n, t)) for n, t in COLUMNS.items() if n != "headers" or include_headers]
    )


def read_columns(
    schema: StructType, *, include_headers: bool, decoded: Container[str] = ()
) -> tuple[str, ...]:
    """Return the columns of ``schema`` in order; those that are ``decoded`` may have any type.

    Raises:
        OptionError: a column does not exist, or has another type.
    """
    for field in schema.fields:
        expected = COLUMNS.get(field.name)
        if expected is None or (field.name == "headers" and not include_headers):
            hint = " (with the option includeHeaders=true)" if field.name == "headers" else ""
            raise OptionError(
                f"the schema asks for a column {field.name!r}, which a record does not have{hint}; "
                f"there are {', '.join(COLUMNS)}: parse what is inside of value in a select"
            )
        if field.name not in decoded and field.dataType.simpleString() != expected.simpleString():
            raise OptionError(
                f"the schema asks for {field.name} as {field.dataType.simpleString()}, and it is "
                f"{expected.simpleString()}; cast it in a select"
            )
        if field.name in _MAY_BE_NULL and not field.nullable:
            raise OptionError(
                f"the schema says NOT NULL for {field.name}, which a record may not have; leave NOT NULL out, and the "
                "rows out with a where"
            )
    return tuple(schema.fieldNames())
