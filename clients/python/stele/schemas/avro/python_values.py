"""Values of Avro as Python has them, in place of their JSON form.

================  ==========================================================================
bytes, fixed      ``bytes``
decimal           ``Decimal``; an int is written, too
uuid              ``UUID``; its text is written, too
date              ``date``
time              ``time``; what is finer than the type is cut off
timestamp         ``datetime`` in UTC; any time zone is written, and what is finer is cut off
local timestamp   ``datetime`` without a time zone
nanoseconds       an int; a ``datetime`` or ``time`` is written, too
duration          a tuple of months, days and milliseconds
enum              ``str``; a member of an ``Enum`` with this value is written, too
================  ==========================================================================

Of a date or time that Python does not have, the integer that is stored is read, and is written again.
A union takes the first of its branches that fits a value; ``(name, value)`` names the branch.
What is read of a union is the value alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

from .logical import PER_SECOND, form_of
from .reading import Read, Readers
from .types import Type
from .writing import ERRORS, Branch, Write, Writers, long_bytes, parsed

Convert = Callable[[Any], Any]

# Without a time zone, for local timestamps.
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DURATION = struct.Struct("<III")


class PythonReaders(Readers):
    """Makes the functions that read bytes as values of Python."""

    def _show(self, type_: Type) -> Convert | None:
        match type_.kind, type_.logical:
            case _, "decimal":
                return _after(form_of(type_), Decimal)
            case _, "uuid":
                return _after(form_of(type_), UUID)
            case _, "duration":
                return _DURATION.unpack
            case _, "date":
                return _show_date
            case "int" | "long", str(logical):
                return _show_time(logical)
            case _:
                return None

    def _branch(self, writer: Type, branch: Type, union: Type) -> Read:
        return self.reader(writer, branch)


class PythonWriters(Writers):
    """Makes the functions that write values of Python."""

    def writer(self, type_: Type) -> Write:
        write = super().writer(type_)
        return parsed(write, _symbol) if type_.kind == "enum" else write

    def _parse(self, type_: Type) -> Convert | None:
        match type_.kind, type_.logical:
            case _, "decimal":
                return _before(form_of(type_), _decimal_text)
            case _, "uuid":
                return _before(form_of(type_), lambda value: str(value) if isinstance(value, UUID) else value)
            case _, "duration":
                return _parse_duration
            case "bytes" | "fixed", _:
                return _parse_bytes
            case "float" | "double", _:
                return _parse_number
            case _, "date":
                return _parse_date
            case "int" | "long", str(logical):
                return _parse_time(logical)
            case _:
                return None

    def _union(self, type_: Type) -> Write:
        branches = [
            (_types_of(branch), (long_bytes(index), self.writer(branch)))
            for index, branch in enumerate(type_.branches)
        ]
        by_name = {
            branch.branch_name: written for branch, (_, written) in zip(type_.branches, branches, strict=True)
        }
        return _union(branches, by_name)


def _after(form: Any, convert: Convert) -> Convert:
    show: Convert = form.show
    return lambda value: convert(show(value))


def _before(form: Any, convert: Convert) -> Convert:
    parse: Convert = form.parse
    return lambda value: parse(convert(value))


# ── unions ──

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "bytes": (bytes, bytearray, memoryview),
    "fixed": (bytes, bytearray, memoryview),
    "string": (str,),
    "enum": (str, Enum),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}
_LOGICAL_TYPES: dict[str, tuple[type, ...]] = {
    "decimal": (Decimal, int),
    "uuid": (UUID, str),
    "duration": (tuple,),
    "date": (date, int),
    "time": (time, int),
}


def _types_of(type_: Type) -> tuple[type, ...]:
    """Return the types of Python whose values may be of a type."""
    if type_.logical is None:
        return _PYTHON_TYPES[type_.kind]
    return _LOGICAL_TYPES.get(type_.logical.partition("-")[0], (datetime, int))


def _union(branches: list[tuple[tuple[type, ...], Branch]], by_name: dict[str, Branch]) -> Write:
    candidates: dict[type, list[Branch]] = {}

    def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        named = _named(value, by_name)
        if named is not None:
            branch, value = named
            fitting = [branch]
        else:
            kind = cast("type[Any]", type(value))
            fitting = candidates.get(kind)
            if fitting is None:
                fitting = candidates[kind] = [branch for types, branch in branches if issubclass(kind, types)]
        start = len(out)
        for number, (prefix, write_branch) in enumerate(fitting, 1):
            out += prefix
            try:
                return write_branch(out, value, depth, budget)
            except ERRORS:
                if number == len(fitting):
                    raise
                del out[start:]
        raise _refused(value, f"a value of {' or '.join(by_name)}")

    return write


def _named(value: Any, by_name: dict[str, Branch]) -> tuple[Branch, Any] | None:
    """Return the branch that ``(name, value)`` names, and the value."""
    if type(value) is not tuple:
        return None
    pair = cast("tuple[Any, ...]", value)
    branch = by_name.get(pair[0]) if len(pair) == 2 and isinstance(pair[0], str) else None
    return None if branch is None else (branch, pair[1])


# ── values ──


def _refused(value: Any, expected: str) -> ValueError:
    return ValueError(f"{expected} is needed, not a {cast('type[Any]', type(value)).__name__}")


def _symbol(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _decimal_text(value: Any) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value:f}"
    if type(value) is int:
        return str(value)
    raise _refused(value, "a finite Decimal")


def _parse_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value))
    raise _refused(value, "bytes")


def _parse_number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ValueError("the number exceeds a double") from None
    raise _refused(value, "a number")


def _parse_duration(value: Any) -> bytes:
    try:
        return _DURATION.pack(*value)
    except (TypeError, struct.error):
        raise _refused(value, "a tuple of months, days and milliseconds") from None


def _show_date(days: int) -> date | int:
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        return days


def _parse_date(value: Any) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH_DAY
    return _stored(value, "a date")


def _stored(value: Any, expected: str) -> int:
    if type(value) is not int:
        raise _refused(value, expected)
    return value


def _show_time(logical: str) -> Convert | None:
    name, _, unit = logical.rpartition("-")
    if unit == "nanos":
        return None
    microseconds = 10**6 // PER_SECOND[unit]
    per_day = 86_400 * PER_SECOND[unit]
    zone = UTC if name == "timestamp" else None

    def show_time(units: int) -> time | int:
        if 0 <= units < per_day:
            return (_EPOCH + timedelta(microseconds=units * microseconds)).time()
        return units

    def show_timestamp(units: int) -> datetime | int:
        try:
            return (_EPOCH + timedelta(microseconds=units * microseconds)).replace(tzinfo=zone)
        except OverflowError:
            return units

    return show_time if name == "time" else show_timestamp


def _parse_time(logical: str) -> Convert:
    name, _, unit = logical.rpartition("-")
    per_second = PER_SECOND[unit]

    def units(moment: timedelta) -> int:
        return moment // _MICROSECOND * per_second // 10**6

    def parse_time(value: Any) -> int:
        if isinstance(value, time) and value.tzinfo is None:
            return units(datetime.combine(_EPOCH, value) - _EPOCH)
        return _stored(value, "a time without a time zone")

    def parse_timestamp(value: Any) -> int:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return units(value.astimezone(UTC).replace(tzinfo=None) - _EPOCH)
        return _stored(value, "a datetime with a time zone")

    def parse_local(value: Any) -> int:
        if isinstance(value, datetime) and value.tzinfo is None:
            return units(value - _EPOCH)
        return _stored(value, "a datetime without a time zone")

    return {"time": parse_time, "timestamp": parse_timestamp}.get(name, parse_local)
