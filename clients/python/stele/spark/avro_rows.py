"""Columns of Spark as values of Avro, and the Avro schema of a column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
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

from ..schemas.avro.types import NO_DEFAULT, Type
from .options import OptionError

Convert = Callable[[Any], Any]

_INTEGERS = (ByteType, ShortType, IntegerType)
# The Spark types that are written as each kind or logical type without loss.
_WRITTEN: dict[str, tuple[type[DataType], ...]] = {
    "boolean": (BooleanType,),
    "bytes": (BinaryType,),
    "date": (DateType,),
    "decimal": (DecimalType, *_INTEGERS, LongType),
    "double": (DoubleType, FloatType, *_INTEGERS),
    "duration": (BinaryType,),
    "enum": (StringType,),
    "fixed": (BinaryType,),
    "float": (FloatType, ByteType, ShortType),
    "int": _INTEGERS,
    "long": (LongType, *_INTEGERS),
    "null": (),
    "string": (StringType,),
    "time-millis": _INTEGERS,
    "time-micros": (LongType, *_INTEGERS),
    "uuid": (StringType,),
    **{f"timestamp-{unit}": (TimestampType,) for unit in ("millis", "micros")},
    **{f"local-timestamp-{unit}": (TimestampNTZType,) for unit in ("millis", "micros")},
    "timestamp-nanos": (TimestampType, LongType),
    "local-timestamp-nanos": (TimestampNTZType, LongType),
}


def converter(type_: Type, data_type: DataType, place: str) -> Convert:
    """Return what makes a value as ``avro.python_values`` takes it of one of Arrow.

    Fields are matched by name, whatever their order. What may be null is only known of each value.

    Raises:
        OptionError: a column, or a field of it at ``place``, cannot be written as this type.
    """
    match type_.kind, data_type:
        case "union", _:
            return _union(type_, data_type, place)
        case "record", StructType():
            return _record(type_, data_type, place)
        case "array", ArrayType():
            convert = converter(type_.content, data_type.elementType, f"{place}.element")
            return _present(lambda items: [convert(item) for item in items])
        case "map", MapType() if isinstance(data_type.keyType, StringType):
            convert = converter(type_.content, data_type.valueType, f"{place}.value")
            # Arrow has a map as a list of pairs.
            return _present(lambda items: {key: convert(value) for key, value in items})
        case _ if isinstance(data_type, _WRITTEN.get(type_.logical or type_.kind, ())):
            return _same
        case _:
            raise OptionError(
                f"column {place} is {data_type.simpleString()}, and its schema has {type_.logical or type_.branch_name} there; "
                "cast it in a select"
            )


def _same(value: Any) -> Any:
    return value


def _present(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _record(type_: Type, struct: StructType, place: str) -> Convert:
    fields = {field.name: field for field in type_.fields}
    given = set(struct.names)
    if unknown := next((name for name in struct.names if name not in fields), None):
        raise OptionError(
            f"column {place}.{unknown} is not in the schema, which has {', '.join(fields)}; drop it, or register "
            "a version that has it"
        )
    for field in type_.fields:
        if field.name not in given and field.default is NO_DEFAULT:
            raise OptionError(f"column {place}.{field.name} is missing, and its schema has no default for it")
    converts = [
        (field.name, converter(fields[field.name].type, field.dataType, f"{place}.{field.name}"))
        for field in struct.fields
    ]
    return _present(lambda row: {name: convert(row[name]) for name, convert in converts})


def _union(type_: Type, data_type: DataType, place: str) -> Convert:
    branches = [branch for branch in type_.branches if branch.kind != "null"]
    if len(branches) == 1:
        return converter(branches[0], data_type, place)
    members = {f"member{number}": branch for number, branch in enumerate(branches)}
    if isinstance(data_type, StructType) and set(data_type.names) <= members.keys():
        # As a read has it: one of the members is not null.
        converts = [
            (
                field.name,
                members[field.name].branch_name,
                converter(members[field.name], field.dataType, f"{place}.{field.name}"),
            )
            for field in data_type.fields
        ]
        return _present(
            lambda row: next(
                ((branch, convert(row[name])) for name, branch, convert in converts if row[name] is not None),
                None,
            )
        )
    error: OptionError | None = None
    for branch in branches:
        try:
            return _named(branch.branch_name, converter(branch, data_type, place))
        except OptionError as refused:
            error = error or refused
    raise error or OptionError(f"column {place} has a schema that only null has; leave the column out")


def _named(branch: str, convert: Convert) -> Convert:
    return _present(lambda value: (branch, convert(value)))


# ── the schema of a column ──

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGICAL: dict[type[DataType], tuple[str, str]] = {
    DateType: ("int", "date"),
    TimestampType: ("long", "timestamp-micros"),
    TimestampNTZType: ("long", "local-timestamp-micros"),
}
_PRIMITIVES: dict[type[DataType], str] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
}


def avro_of(data_type: DataType, *, subject: str, column: str) -> str:
    """Return the Avro schema of a column, to be registered.

    Raises:
        OptionError: Avro has no such type, or no such name.
    """
    name = re.sub(r"^(?=[0-9])|[^A-Za-z0-9_]", "_", subject)
    return msgspec.json.encode(_schema(data_type, name, column)).decode()


def _schema(data_type: DataType, name: str, place: str) -> Any:
    kind = type(data_type)
    if isinstance(data_type, StructType):
        return {
            "type": "record",
            "name": name,
            "fields": [_field(field, name, place) for field in data_type.fields],
        }
    if isinstance(data_type, DecimalType):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": data_type.precision,
            "scale": data_type.scale,
        }
    if isinstance(data_type, ArrayType):
        items = _schema(data_type.elementType, name, f"{place}.element")
        return {"type": "array", "items": ["null", items] if data_type.containsNull else items}
    if isinstance(data_type, MapType) and isinstance(data_type.keyType, StringType):
        values = _schema(data_type.valueType, name, f"{place}.value")
        return {"type": "map", "values": ["null", values] if data_type.valueContainsNull else values}
    if kind in _LOGICAL:
        stored, logical = _LOGICAL[kind]
        return {"type": stored, "logicalType": logical}
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    raise OptionError(
        f"column {place} is {data_type.simpleString()}, for which Avro has no type; cast it in a select"
    )


def _field(field: Any, name: str, place: str) -> dict[str, Any]:
    if _NAME.fullmatch(field.name) is None:
        raise OptionError(
            f"column {place}.{field.name} has a name that Avro does not allow; rename it in a select"
        )
    # Records within records have the names of their fields.
    schema = _schema(field.dataType, f"{name}.{field.name}", f"{place}.{field.name}")
    if field.nullable:
        return {"name": field.name, "type": ["null", schema], "default": None}
    return {"name": field.name, "type": schema}
