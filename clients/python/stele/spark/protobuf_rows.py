"""Columns of Spark as Protobuf messages, in their JSON form.

What a read makes of a message can be written as one (``columns.protobuf_columns``): a part that no Spark type describes
is a string with its JSON. What is null is not set.
"""

from __future__ import annotations

import math
from base64 import b64encode
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from .json_rows import INTEGERS, Convert, check_names, parse_json, present, text_of_time, unfitting

_SCALARS: dict[int, tuple[str, tuple[type[DataType], ...]]] = {
    FieldDescriptor.CPPTYPE_INT32: ("an int32", INTEGERS),
    FieldDescriptor.CPPTYPE_INT64: ("an int64", INTEGERS),
    FieldDescriptor.CPPTYPE_UINT32: ("a uint32", INTEGERS),
    FieldDescriptor.CPPTYPE_UINT64: ("a uint64", (DecimalType, *INTEGERS)),
    FieldDescriptor.CPPTYPE_DOUBLE: ("a double", (DoubleType, FloatType, *INTEGERS)),
    FieldDescriptor.CPPTYPE_FLOAT: ("a float", (FloatType,)),
    FieldDescriptor.CPPTYPE_BOOL: ("a bool", (BooleanType,)),
    FieldDescriptor.CPPTYPE_ENUM: ("an enum", (StringType,)),
    FieldDescriptor.CPPTYPE_STRING: ("a string", (StringType,)),
}


def converter(
    descriptor: Descriptor, data_type: DataType, place: str, above: tuple[str, ...] = ()
) -> Convert:
    """Return what makes the JSON form of a message of a value of Arrow.

    Fields are matched by name, whatever their order.

    Raises:
        OptionError: a column, or a field of it at ``place``, cannot be written as this message.
    """
    name, fields = descriptor.full_name, {field.name: field for field in descriptor.fields}
    if name == "google.protobuf.Timestamp":
        if not isinstance(data_type, TimestampType):
            raise unfitting(place, data_type, "a Timestamp")
        return text_of_time(data_type)
    if descriptor.file.name == "google/protobuf/wrappers.proto":
        return _scalar(fields["value"], data_type, place)
    if name in above or not fields or descriptor.file.name.startswith("google/protobuf/"):
        if not isinstance(data_type, StringType):
            raise unfitting(place, data_type, f"a string with the JSON of a {name}")
        return present(parse_json)
    if not isinstance(data_type, StructType):
        raise unfitting(place, data_type, f"a {name}")
    check_names(
        data_type, fields, frozenset(field.name for field in descriptor.fields if field.is_required), place
    )
    above = (*above, name)
    converts = [
        (field.name, _field(fields[field.name], field.dataType, f"{place}.{field.name}", above))
        for field in data_type.fields
    ]
    return present(
        lambda row: {name: convert(row[name]) for name, convert in converts if row[name] is not None}
    )


def _field(field: FieldDescriptor, data_type: DataType, place: str, above: tuple[str, ...]) -> Convert:
    if not field.is_repeated:
        return _one(field, data_type, place, above)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not isinstance(data_type, MapType):
            raise unfitting(place, data_type, "a map")
        key = _scalar(entry.fields_by_name["key"], data_type.keyType, f"{place}.key")
        value = _one(entry.fields_by_name["value"], data_type.valueType, f"{place}.value", above)
        return lambda items: {_name_of(key(name)): value(item) for name, item in items}
    if not isinstance(data_type, ArrayType):
        raise unfitting(place, data_type, "a repeated field")
    convert = _one(field, data_type.elementType, f"{place}.element", above)
    return lambda items: [convert(item) for item in items]


def _one(field: FieldDescriptor, data_type: DataType, place: str, above: tuple[str, ...]) -> Convert:
    if field.message_type is not None:
        return converter(field.message_type, data_type, place, above)
    return _scalar(field, data_type, place)


def _scalar(field: FieldDescriptor, data_type: DataType, place: str) -> Convert:
    if field.type == FieldDescriptor.TYPE_BYTES:
        if not isinstance(data_type, BinaryType):
            raise unfitting(place, data_type, "bytes")
        return present(lambda data: b64encode(data).decode())
    name, types = _SCALARS[field.cpp_type]
    if not isinstance(data_type, types) or (isinstance(data_type, DecimalType) and data_type.scale):
        raise unfitting(place, data_type, name)
    if field.enum_type is not None:
        names = {value.name for value in field.enum_type.values}
        # A read has the number of what the schema does not name.
        return present(lambda text: text if text in names or not text.lstrip("-").isdecimal() else int(text))
    if isinstance(data_type, DecimalType):
        return present(int)
    return present(_finite) if isinstance(data_type, DoubleType | FloatType) else _same


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _name_of(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _same(value: Any) -> Any:
    return value
