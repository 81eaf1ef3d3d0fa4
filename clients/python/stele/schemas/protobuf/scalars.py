"""Values of Protobuf that are no messages as JSON, both ways: a function per field, chosen once."""

from __future__ import annotations

import math
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from ..definitions import InvalidValue

Convert = Callable[[Any], Any]

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,19})")
_BOUNDS = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SFIXED32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_FIXED32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_FIXED64: (0, (1 << 64) - 1),
}
NULL = "google.protobuf.NullValue"


def writer(field: FieldDescriptor) -> Convert:
    """Return the function that makes the JSON form of a value of a field."""
    if (enum := field.enum_type) is not None:
        if enum.full_name == NULL:
            return lambda _: None
        # The first of several names is written. A number without one is of a later version of the schema.
        names: dict[int, Any] = {value.number: value.name for value in reversed(enum.values)}
        return lambda number: names.get(number, number)
    writers: dict[int, Convert] = {
        FieldDescriptor.TYPE_BYTES: lambda data: b64encode(data).decode(),
        FieldDescriptor.TYPE_DOUBLE: _double,
        FieldDescriptor.TYPE_FLOAT: _float,
        FieldDescriptor.TYPE_STRING: _text,
    }
    return writers.get(field.type, _same)


def key_writer(field: FieldDescriptor) -> Convert:
    """Return the function that makes the name in JSON of a key of a map."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return lambda key: "true" if key else "false"
    return _text if field.type == FieldDescriptor.TYPE_STRING else str


def reader(field: FieldDescriptor) -> Convert:
    """Return the function that makes the value of a field from its JSON form, or raises ``InvalidValue``."""
    if (enum := field.enum_type) is not None:
        return _constant({value.name: value.number for value in enum.values}, enum.full_name)
    if field.type in _BOUNDS:
        return _integer(*_BOUNDS[field.type])
    readers: dict[int, Convert] = {
        FieldDescriptor.TYPE_BOOL: _exactly(bool, "boolean"),
        FieldDescriptor.TYPE_BYTES: _binary,
        FieldDescriptor.TYPE_DOUBLE: number,
        FieldDescriptor.TYPE_FLOAT: _single,
        FieldDescriptor.TYPE_STRING: _exactly(str, "string"),
    }
    return readers[field.type]


def key_reader(field: FieldDescriptor) -> Convert:
    """Return the function that makes a key of a map from its name in JSON."""
    read = reader(field)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return lambda name: read({"true": True, "false": False}.get(name))
    text = _exactly(str, "string")
    return lambda name: read(text(name))


def number(value: Any) -> float:
    """Return the number of a JSON form, which is finite unless it is one of three strings."""
    if isinstance(value, str):
        if value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if _NUMBER.fullmatch(value):
            value = float(value)
    if type(value) not in (int, float):
        raise InvalidValue("", 'no number, and none of "NaN", "Infinity" and "-Infinity"')
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if math.isinf(result):
        raise InvalidValue("", "too large")
    return result


_FLOAT_MAX = (2 - 2**-23) * 2.0**127


def shortest(value: float) -> float:
    """Return the number of the fewest digits that a ``float`` of 32 bits stores as this one, which is finite."""
    value = _rounded(value)
    # Nine digits always suffice. Numbers that are smaller than normal ones have fewer than six.
    candidates = (float(f"{value:.{digits}g}") for digits in range(6 if abs(value) > 1e-37 else 1, 10))
    return next(short for short in candidates if _rounded(short) == value)


# ── to JSON ──


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    # Of proto2, which does not say that it is UTF-8.
    if isinstance(value, bytes):
        raise InvalidValue("", "no JSON form: no UTF-8")
    return value


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float(value: float) -> float | str:
    if not math.isfinite(value):
        return _double(value)
    short = shortest(value)
    # The fewest digits of the largest float are above it, which protobuf's own reader of JSON refuses.
    return short if abs(short) <= _FLOAT_MAX else _rounded(value)


# ── from JSON ──


def _exactly(kind: type, name: str) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise InvalidValue("", f"no {name}")
        return value

    return read


def _integer(low: int, high: int) -> Convert:
    def read(value: Any) -> int:
        if isinstance(value, str):
            value = int(value) if _INTEGER.fullmatch(value) else None
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise InvalidValue("", f"no integer from {low} to {high}")
        return value

    return read


def _constant(numbers: dict[str, int], name: str) -> Convert:
    def read(value: Any) -> int:
        if isinstance(value, str):
            value = numbers.get(value)
        elif value is None and name == NULL:
            return 0
        if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
            raise InvalidValue("", f"no constant of {name}")
        return value

    return read


def _single(value: Any) -> float:
    result = number(value)
    if math.isfinite(result) and math.isinf(_rounded(result)):
        raise InvalidValue("", "too large")
    return result


def _rounded(value: float) -> float:
    """Return the nearest ``float`` of 32 bits."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf


def _binary(value: Any) -> bytes:
    if isinstance(value, str):
        text = value.replace("-", "+").replace("_", "/").rstrip("=")
        try:
            return b64decode(text + "=" * (-len(text) % 4), validate=True)
        except ValueError:
            pass
    raise InvalidValue("", "no base64")
