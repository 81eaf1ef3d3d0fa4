"""Columns of Spark as values of JSON Schema.

What a read makes of a schema can be written with it (``columns.json_columns``): a part that no Spark type describes is
a string with its JSON. Dates and times become the texts of RFC 3339.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ..columns.json_columns import leaf_of, shape_of
from ..schemas.definitions import InvalidValue
from ..schemas.json_schema.nodes import Node
from .options import OptionError

Convert = Callable[[Any], Any]

INTEGERS = (ByteType, ShortType, IntegerType, LongType)
# The Spark types that are written as each type of JSON, by the Arrow type of a read.
_LEAVES: dict[str, tuple[type[DataType], ...]] = {
    "bool": (BooleanType,),
    "double": (DoubleType, FloatType, *INTEGERS),
    "int64": INTEGERS,
    "string": (StringType, DateType, TimestampType, TimestampNTZType),
}


def converter(node: Node, data_type: DataType, place: str, above: tuple[Node, ...] = ()) -> Convert:
    """Return what makes JSON of a value of Arrow.

    Properties are matched by name, whatever their order. What is null is left out, unless it is required: whether the
    schema has a null there is only known of each value.

    Raises:
        OptionError: a column, or a field of it at ``place``, cannot be written with this schema.
    """
    shape = shape_of(node, above)
    words, above = shape.node.keywords, (*above, shape.node)
    match shape.kind, data_type:
        case "object", StructType():
            return _object(words, data_type, place, above)
        case "map", MapType() if isinstance(data_type.keyType, StringType):
            convert = converter(words["additionalProperties"], data_type.valueType, f"{place}.value", above)
            # Arrow has a map as a list of pairs.
            return present(lambda items: {key: convert(value) for key, value in items})
        case "array", ArrayType():
            convert = converter(words["items"], data_type.elementType, f"{place}.element", above)
            return present(lambda items: [convert(item) for item in items])
        case "leaf", _ if isinstance(data_type, _LEAVES[str(leaf_of(shape.node))]):
            return text_of_time(data_type)
        case "text", StringType():
            return present(parse_json)
        case _:
            wanted = str(leaf_of(shape.node)) if shape.kind == "leaf" else shape.kind
            raise unfitting(place, data_type, "a string with JSON" if wanted == "text" else wanted)


def _object(words: dict[str, Any], struct: StructType, place: str, above: tuple[Node, ...]) -> Convert:
    properties: dict[str, Node] = words["properties"]
    required = frozenset[str](words.get("required", ()))
    check_names(struct, properties, required, place)
    converts = [
        (
            field.name,
            field.name in required,
            converter(properties[field.name], field.dataType, f"{place}.{field.name}", above),
        )
        for field in struct.fields
    ]

    def convert_struct(row: Any) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for name, is_required, convert in converts:
            value = row[name]
            if value is not None or is_required:
                members[name] = convert(value)
        return members

    return present(convert_struct)


# ── what Protobuf shares ──


def present(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def parse_json(text: str) -> Any:
    """Return what a text in JSON says. Raises ``InvalidValue``."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidValue("", f"{text[:40]!r} is not JSON: {error}") from None


def text_of_time(data_type: DataType) -> Convert:
    """Return what makes the text of a date or time, and leaves other values as they are."""
    if isinstance(data_type, TimestampType):
        return present(_utc_text)
    if isinstance(data_type, DateType | TimestampNTZType):
        return present(lambda value: value.isoformat())
    return lambda value: value


def _utc_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def check_names(struct: StructType, fields: Any, required: frozenset[str], place: str) -> None:
    """Raises ``OptionError`` if a struct has a field that the schema does not have, or lacks one that it needs."""
    if unknown := next((name for name in struct.names if name not in fields), None):
        raise OptionError(
            f"column {place}.{unknown} is not in the schema, which has {', '.join(fields)}; drop it, or register "
            "a version that has it"
        )
    if missing := next((name for name in fields if name in required and name not in struct.names), None):
        raise OptionError(f"column {place}.{missing} is missing, and its schema requires it")


def unfitting(place: str, data_type: DataType, wanted: str) -> OptionError:
    return OptionError(
        f"column {place} is {data_type.simpleString()}, and its schema has {wanted} there; cast it in a select"
    )
