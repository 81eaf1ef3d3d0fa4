"""How values of bytes, numbers and strings are shown in JSON, by the logical type of their type."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from .. import json_values
from .types import Type

PER_SECOND = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_DURATION = struct.Struct("<III")


class Form(NamedTuple):
    """``show`` makes JSON of a value of the type below, ``parse`` the opposite; both raise ValueError."""

    show: Callable[[Any], Any]
    parse: Callable[[Any], Any]
    # Whether there are values of the type below that have no JSON, so that `show` is a check.
    checks: bool = False


_FLOAT = Form(json_values.show_single, json_values.parse_float)
_DOUBLE = Form(json_values.show_float, json_values.parse_float)
_BYTES = Form(json_values.show_bytes, json_values.parse_bytes)
_UUID_TEXT = Form(json_values.check_uuid, json_values.check_uuid, checks=True)
_UUID_BYTES = Form(json_values.show_uuid, json_values.parse_uuid)
_DATE = Form(json_values.show_date, json_values.parse_date)


def form_of(type_: Type) -> Form | None:
    """Return how values of a primitive or fixed type are shown; None if as they are."""
    match type_.kind, type_.logical:
        case _, "decimal":
            return _decimal(type_)
        case "string", "uuid":
            return _UUID_TEXT
        case "fixed", "uuid":
            return _UUID_BYTES
        case "fixed", "duration":
            return _DURATION_FORM
        case "bytes" | "fixed", _:
            return _BYTES
        case "float", _:
            return _FLOAT
        case "double", _:
            return _DOUBLE
        case _, "date":
            return _DATE
        case "int" | "long", str(logical):
            return _time(logical)
        case _:
            return None


def _time(logical: str) -> Form:
    name, _, unit = logical.rpartition("-")
    per_second = PER_SECOND[unit]
    if name == "time":
        return Form(
            partial(json_values.show_time, per_second=per_second),
            partial(json_values.parse_time, per_second=per_second),
        )
    zone = "Z" if name == "timestamp" else ""
    return Form(
        partial(json_values.show_timestamp, per_second=per_second, zone=zone),
        partial(json_values.parse_timestamp, per_second=per_second, zone=zone),
    )


def _decimal(type_: Type) -> Form:
    precision, scale = type_.decimal
    above = 10**precision
    size = type_.size if type_.kind == "fixed" else None
    # Longer ones are too large, or padded; a number of a megabyte would take long to convert.
    bytes_max = max(size or 0, above.bit_length() // 8 + 1 + 16)

    def bounded(unscaled: int) -> int:
        if not -above < unscaled < above:
            raise ValueError(f"the decimal has more than {precision} digits")
        return unscaled

    def show(data: bytes) -> str:
        if not data:
            raise ValueError("a decimal of no bytes")
        if len(data) > bytes_max:
            raise ValueError(f"the decimal has more than {precision} digits")
        return json_values.show_decimal(bounded(int.from_bytes(data, "big", signed=True)), scale)

    def parse(value: Any) -> bytes:
        unscaled = bounded(json_values.parse_decimal(value, scale))
        length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return unscaled.to_bytes(length if size is None else size, "big", signed=True)

    return Form(show, parse, checks=True)


def _show_duration(data: bytes) -> str:
    return json_values.show_duration(*_DURATION.unpack(data))


def _parse_duration(value: Any) -> bytes:
    return _DURATION.pack(*json_values.parse_duration(value))


_DURATION_FORM = Form(_show_duration, _parse_duration)
