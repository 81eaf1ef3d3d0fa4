"""PostgreSQL's text of a value → Avro's binary encoding of it. No I/O.

Infinite dates and times are the largest and smallest number of their type, as in PostgreSQL itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import TypeAlias

from ...schemas.json_values import parse_decimal
from ..decoding.column_types import ColumnType
from ..decoding.values import ArrayForm, array

Encoder: TypeAlias = Callable[[bytes], bytes]

NULL, PRESENT = b"\x00", b"\x02"
"""The branches of a union of null and a type."""

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_EPOCH_DAY = date(1970, 1, 1).toordinal()
# The calendar repeats itself.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_DAY_US = 86_400_000_000


def long(number: int) -> bytes:
    """Encode an int or a long.

    Raises:
        ValueError: it has more than 64 bits.
    """
    if not -(2**63) <= number < 2**63:
        raise ValueError("the number has more than 64 bits")
    rest = number << 1 ^ number >> 63
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def binary(value: bytes) -> bytes:
    return long(len(value)) + value


def text(value: bytes) -> bytes:
    """Encode a string; bytes that are not UTF-8 (in SQL_ASCII) as ``\\xff``."""
    return binary(value.decode("utf-8", "backslashreplace").encode())


def _decimal(value: bytes, scale: int) -> bytes:
    if value == b"NaN":
        raise ValueError("a decimal of Avro cannot be NaN")
    unscaled = parse_decimal(value.decode(), scale)
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return binary(unscaled.to_bytes(length, "big", signed=True))


def days(value: bytes) -> int:
    """Return the days from 1970 to a date such as ``2026-11-21`` or ``0044-03-15 BC``."""
    day, _, era = value.partition(b" ")
    year, month, number = map(int, day.split(b"-"))
    cycles, rest = divmod((1 - year if era else year) - 1, _CYCLE_YEARS)
    return cycles * _CYCLE_DAYS + date(rest + 1, month, number).toordinal() - _EPOCH_DAY


def _infinity(value: bytes, bits: int) -> int | None:
    if not value.endswith(b"infinity"):
        return None
    return -(2 ** (bits - 1)) if value.startswith(b"-") else 2 ** (bits - 1) - 1


def _date(value: bytes) -> bytes:
    infinite = _infinity(value, 32)
    return long(days(value) if infinite is None else infinite)


def _timestamp(value: bytes) -> bytes:
    infinite = _infinity(value, 64)
    if infinite is not None:
        return long(infinite)
    day, clock, *era = value.split(b" ")
    # The session's time zone is UTC.
    hour, minute, seconds = clock.removesuffix(b"+00").split(b":")
    second, _, fraction = seconds.partition(b".")
    seconds_of_day = (int(hour) * 60 + int(minute)) * 60 + int(second)
    microseconds = (
        days(b" ".join((day, *era))) * _DAY_US + seconds_of_day * 10**6 + int(fraction.ljust(6, b"0"))
    )
    return long(microseconds)


_ENCODERS: dict[str, Encoder] = {
    "boolean": lambda value: b"\x01" if value == b"t" else b"\x00",
    "bytes": lambda value: binary(bytes.fromhex(value[2:].decode("ascii"))),
    "date": _date,
    "double": lambda value: _DOUBLE.pack(float(value)),
    "float": lambda value: _FLOAT.pack(float(value)),
    "int": lambda value: long(int(value)),
    "long": lambda value: long(int(value)),
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
}


def _join(items: list[bytes]) -> bytes:
    return long(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


_ARRAY = ArrayForm(NULL, _join)


def encoder_of(type_: ColumnType, dimensions: int = 1) -> Encoder:
    """Return the encoder of a type; ``dimensions`` are those that the column declares.

    An encoder raises ValueError for a value that Avro's type does not hold.
    """
    if type_.kind == "decimal":
        return partial(_decimal, scale=type_.scale)
    if type_.items is None:
        return _ENCODERS.get(type_.kind, text)
    item = encoder_of(type_.items)
    encode = array(lambda value: PRESENT + item(value), type_.delimiter, _ARRAY)

    def encode_array(value: bytes) -> bytes:
        start = value.index(b"=") + 1 if value[:1] == b"[" else 0
        found = len(value) - start - len(value[start:].lstrip(b"{"))
        if found != dimensions and value[start:] != b"{}":
            raise ValueError(
                f"the array has {found} dimensions, and its column declares {dimensions}, which PostgreSQL does not enforce"
            )
        return encode(value)

    return encode_array
