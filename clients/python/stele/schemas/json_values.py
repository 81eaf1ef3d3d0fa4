"""The JSON form of values for which JSON has no type: one rule for Avro, Protobuf and JSON Schema.

====================  ==========================================================================
value                 JSON
====================  ==========================================================================
integers              a number without fraction, also beyond 2^53
float, double         a number, with the fewest digits that mean it; or ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
bytes, fixed          a string in base64 (RFC 4648 §4, padded)
decimal               a string with exactly as many digits after the point as the scale: ``"12.30"``
uuid                  a string: ``"0a9e2b4c-…"``
date                  a string: ``"2026-11-30"``
time of day           a string: ``"10:00:00.500"``
timestamp             a string, RFC 3339 in UTC: ``"2026-11-30T10:00:00.123Z"``
local timestamp       the same without ``Z``
duration of Avro      a string, ISO 8601: ``"P1M2DT3.004S"`` (months, days, seconds)
====================  ==========================================================================

Fractions of a second have three, six or nine digits, as few as are exact, and none if
they are zero. Years below 1 or above 9999 and times outside a day have no such text: they are the
integer that is stored, such as milliseconds since 1970.

Reading accepts a bit more than is written, as long as the value is certain: any offset in a
timestamp, fewer digits of a fraction, the stored integer of a date, time or timestamp, and an
integer for a float. What a value cannot hold exactly is refused, such as a microsecond in
milliseconds or a third digit in a decimal of scale 2; only numbers are rounded to the nearest
float, as everywhere.

Each ``show_*`` has a ``parse_*`` that returns the same value again. (The bits of a NaN are
not kept.) Errors are ``ValueError`` with a reason for the user.
"""

from __future__ import annotations

import re
import struct
import uuid
from datetime import date, datetime, timedelta
from typing import Any

import pybase64

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()
_DAY_SECONDS = 86_400
_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d(?:\.(\d{1,9}))?"
_DATE_TEXT = re.compile(_DATE, re.ASCII)
_TIME_TEXT = re.compile(_TIME, re.ASCII)
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}[Tt ]{_TIME}([Zz]|[+-]([01]\d|2[0-3]):([0-5]\d))?", re.ASCII)
_DURATION_TEXT = re.compile(
    r"P(?=.)(?:(\d{1,10})M)?(?:(\d{1,10})D)?(?:T(\d{1,7})(?:\.(\d{1,3}))?S)?", re.ASCII
)
_DECIMAL_TEXT = re.compile(r"(-?)(\d+)(?:\.(\d+))?", re.ASCII)
_UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_FLOAT = struct.Struct("<f")
_INFINITY = float("inf")
_NO_NUMBERS = {"NaN": float("nan"), "Infinity": _INFINITY, "-Infinity": -_INFINITY}
# CPython's default bound for the conversion of an integer, which takes quadratic time, is 4,300.
DECIMAL_DIGITS_MAX = 1_000


_KINDS: dict[type[Any], str] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def kind_of(value: Any) -> str:
    """Return what a value is in JSON, or its Python type if it is nothing there, for messages."""
    kind: Any = value.__class__
    return _KINDS.get(kind) or str(kind.__name__)


def _text(value: Any, expected: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{expected} is needed, not {kind_of(value)}")
    return value


# ── numbers and bytes ──


def show_float(value: float) -> float | str:
    if -_INFINITY < value < _INFINITY:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def show_single(value: float) -> float | str:
    """Return a number of single precision with the fewest digits that mean it: 0.1, not 0.10000000149011612."""
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if _FLOAT.unpack(_FLOAT.pack(short))[0] == value:
            return show_float(short)
    return show_float(float(f"{value:.9g}"))


def parse_float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ValueError("the number exceeds a double") from None
    number = _NO_NUMBERS.get(_text(value, "a number"))
    if number is None:
        raise ValueError('a number is needed, or "NaN", "Infinity" or "-Infinity", not another string')
    return number


def show_bytes(data: bytes) -> str:
    return pybase64.b64encode_as_string(data)


def parse_bytes(value: Any) -> bytes:
    text = _text(value, "a string in base64")
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("the string is not base64 with padding") from None


def show_decimal(unscaled: int, scale: int) -> str:
    """Return ``unscaled`` × 10^-``scale``; both have at most ``DECIMAL_DIGITS_MAX`` digits."""
    digits = str(abs(unscaled)).zfill(scale + 1)
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def parse_decimal(value: Any, scale: int) -> int:
    """Return the unscaled integer of a decimal."""
    text = _text(value, "a decimal in a string")
    matched = _DECIMAL_TEXT.fullmatch(text) if len(text) <= 2 * DECIMAL_DIGITS_MAX + 2 else None
    if matched is None:
        raise ValueError('the string is not a decimal such as "-12.30"')
    sign, whole, fraction = matched[1], matched[2], (matched[3] or "").ljust(scale, "0")
    if fraction[scale:].strip("0"):
        raise ValueError(f"the decimal has more than {scale} digits after the point")
    return int(sign + whole + fraction[:scale])


def show_uuid(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))


def parse_uuid(value: Any) -> bytes:
    return uuid.UUID(check_uuid(value)).bytes


def check_uuid(value: Any) -> str:
    """Return a string that is a UUID as it is, in lower or upper case."""
    if _UUID_TEXT.fullmatch(_text(value, "a UUID in a string")) is None:
        raise ValueError("the string is not a UUID")
    return value


# ── dates and times; ``units`` are fractions of a second, of which a second has ``per_second`` (10³, 10⁶ or 10⁹) ──


def _fraction(units: int, per_second: int) -> str:
    if not units:
        return ""
    digits = str(per_second + units)[1:]
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"


def show_date(days: int) -> str | int:
    """Return the date, a number of days after 1970-01-01."""
    try:
        return date.fromordinal(days + _EPOCH_DAY).isoformat()
    except (ValueError, OverflowError):
        return days


def show_time(units: int, per_second: int) -> str | int:
    """Return the time of day, a number of units after midnight."""
    seconds, rest = divmod(units, per_second)
    if not 0 <= seconds < _DAY_SECONDS:
        return units
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{_fraction(rest, per_second)}"


def show_timestamp(units: int, per_second: int, zone: str = "Z") -> str | int:
    """Return the timestamp, a number of units after 1970; ``zone`` is "" for a local one."""
    seconds, rest = divmod(units, per_second)
    try:
        moment = _EPOCH + timedelta(0, seconds)
    except OverflowError:
        return units
    return f"{moment.isoformat()}{_fraction(rest, per_second)}{zone}"


def show_duration(months: int, days: int, milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"P{months}M{days}DT{seconds}{_fraction(rest, 1000)}S"


def _fraction_units(digits: str | None, per_second: int) -> int:
    if digits is None:
        return 0
    units, rest = divmod(int(digits.ljust(9, "0")) * per_second, 10**9)
    if rest:
        raise ValueError(f"a second has only {per_second:,} units, too few for the fraction")
    return units


def parse_date(value: Any) -> int:
    if type(value) is int:
        return value
    text = _text(value, "a date in a string")
    if _DATE_TEXT.fullmatch(text) is None:
        raise ValueError('the string is not a date such as "2026-11-30"')
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError("there is no such date") from None


def parse_time(value: Any, per_second: int) -> int:
    if type(value) is int:
        return value
    text = _text(value, "a time in a string")
    matched = _TIME_TEXT.fullmatch(text)
    if matched is None:
        raise ValueError('the string is not a time such as "10:00:00.123"')
    hour, minute, second = int(text[:2]), int(text[3:5]), int(text[6:8])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("there is no such time of day")
    return ((hour * 60 + minute) * 60 + second) * per_second + _fraction_units(matched[1], per_second)


def parse_timestamp(value: Any, per_second: int, zone: str = "Z") -> int:
    if type(value) is int:
        return value
    text = _text(value, "a timestamp in a string")
    matched = _TIMESTAMP_TEXT.fullmatch(text)
    if matched is None or bool(zone) != bool(matched[2]):
        raise ValueError(f'the string is not a timestamp such as "2026-11-30T10:00:00.123{zone}"')
    try:
        moment = datetime.fromisoformat(text[:19]) - _EPOCH
    except ValueError:
        raise ValueError("there is no such date or time") from None
    seconds = moment.days * _DAY_SECONDS + moment.seconds
    fraction, offset, hours, minutes = matched.groups()
    if hours:
        minutes_east = int(hours) * 60 + int(minutes)
        seconds -= 60 * (minutes_east if offset[0] == "+" else -minutes_east)
    return seconds * per_second + _fraction_units(fraction, per_second)


def parse_duration(value: Any) -> tuple[int, int, int]:
    """Return months, days and milliseconds, each below 2^32."""
    matched = _DURATION_TEXT.fullmatch(_text(value, "a duration in a string"))
    if matched is None or value.endswith("T"):
        raise ValueError('the string is not a duration such as "P1M2DT3.004S"')
    months, days, seconds, fraction = (part or "0" for part in matched.groups())
    numbers = int(months), int(days), int(seconds) * 1000 + int(fraction.ljust(3, "0"))
    if max(numbers) >= 2**32:
        raise ValueError("a part of the duration exceeds 32 bits")
    return numbers
