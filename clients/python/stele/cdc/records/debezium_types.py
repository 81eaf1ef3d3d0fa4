"""PostgreSQL's text of a value → the JSON that Debezium writes, with the schema of Kafka Connect. No I/O.

The types are those of Debezium 3.6 with ``decimal.handling.mode`` precise (or string, or double),
``time.precision.mode`` adaptive (or connect), ``binary.handling.mode`` bytes, ``interval.handling.mode`` numeric and
``hstore.handling.mode`` json. A type that Debezium leaves out is text.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from ..decoding.values import Encoder, array, as_is, binary, boolean, floating, quoted, text
from .avro_values import days

Decimals = Literal["precise", "string", "double"]
Times = Literal["adaptive", "connect"]
Schema = dict[str, Any]

UNAVAILABLE = b"__debezium_unavailable_value"
"""What stands for a large value that an update did not change."""

_VARHDRSZ = 4
_DAY_US = 86_400_000_000
# 365.25 days / 12, as in Debezium.
_MONTH_US = 2_629_800_000_000
_INT64_MAX, _INT64_MIN = 2**63 - 1, -(2**63)
# As pgjdbc has them, by which readers know them.
_FOREVER_US = 9_223_372_036_825_200_000
_NEVER_US = -9_223_372_036_832_400_000
# More digits than ``int`` converts at once.
_DIGITS = 4000
_INTERVAL = re.compile(
    rb"(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?"
)
_HSTORE = re.compile(rb'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, )?', re.DOTALL)


class CatalogType(NamedTuple):
    """A row of pg_type; ``is_array`` excludes int2vector and the like, which have elements, too."""

    kind: str
    base: int
    base_modifier: int
    element: int
    category: str
    delimiter: str
    is_array: bool
    name: str
    labels: tuple[str, ...]


class ConnectType(NamedTuple):
    """A type of Kafka Connect; ``unavailable`` is the JSON of a value that PostgreSQL does not send."""

    schema: Schema
    encode: Encoder
    unavailable: bytes = b"null"


def connect_type(
    type_id: int,
    modifier: int,
    *,
    dimensions: int,
    decimals: Decimals,
    times: Times = "adaptive",
    look_up: Callable[[int], CatalogType | None],
) -> ConnectType:
    """Return the type of a column; ``dimensions`` are those that an array declares.

    An encoder raises ValueError for a value that the type does not hold.
    """
    known = _CONNECT_TIMES.get(type_id) if times == "connect" else None
    known = known or _built_in(type_id, modifier, decimals)
    found = None if known is not None else look_up(type_id)
    if known is not None or found is None:
        return known or _TEXT
    nested = partial(connect_type, dimensions=1, decimals=decimals, times=times, look_up=look_up)
    if found.kind == "d":
        base_modifier = found.base_modifier if modifier < 0 else modifier
        return nested(found.base, base_modifier, dimensions=dimensions)
    if found.kind == "e":
        parameters = {"allowed": ",".join(found.labels)}
        return _TEXT._replace(schema=_named("string", "io.debezium.data.Enum", parameters))
    if found.is_array:
        return _array(nested(found.element, modifier), found.delimiter.encode(), dimensions)
    if found.category == "A" and found.element:
        # int2vector and oidvector: '1 2'
        item = nested(found.element, -1)
        return ConnectType(
            {"type": "array", "items": _optional(item.schema)},
            partial(_vector, encode=item.encode),
        )
    return _BY_NAME.get(found.name, _TEXT)


def _vector(value: bytes, encode: Encoder) -> bytes:
    return b"[%s]" % b",".join(map(encode, value.split()))


def _array(item: ConnectType, delimiter: bytes, dimensions: int) -> ConnectType:
    schema = item.schema
    for _ in range(dimensions):
        schema = {"type": "array", "items": _optional(schema)}
    encode = array(item.encode, delimiter)

    def encode_array(value: bytes) -> bytes:
        start = value.index(b"=") + 1 if value[:1] == b"[" else 0
        found = len(value) - start - len(value[start:].lstrip(b"{"))
        if found != dimensions and value[start:] != b"{}":
            raise ValueError(
                f"the array has {found} dimensions, and its column declares {dimensions}, which PostgreSQL does not enforce"
            )
        return encode(value)

    unavailable = b"null"
    if dimensions == 1 and item.schema["type"] in ("int32", "int64") and "name" not in item.schema:
        unavailable = b"[%s]" % b",".join(b"%d" % code for code in UNAVAILABLE)
    elif dimensions == 1 and item.unavailable != b"null":
        unavailable = b"[%s]" % item.unavailable
    return ConnectType(schema, encode_array, unavailable)


def _named(type_: str, name: str, parameters: dict[str, str] | None = None) -> Schema:
    schema: Schema = {"type": type_, "name": name, "version": 1}
    return schema | ({"parameters": parameters} if parameters else {})


def _optional(schema: Schema) -> Schema:
    return {**schema, "optional": True}


def _text_type(name: str) -> ConnectType:
    return _TEXT._replace(schema=_named("string", name))


# ── numbers ──


def _integer(digits: str) -> int:
    sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits)
    number = 0
    for start in range(0, len(digits), _DIGITS):
        part = digits[start : start + _DIGITS]
        number = number * 10 ** len(part) + int(part)
    return sign * number


def _unscaled(number: int) -> bytes:
    """Return the two's complement of an integer as JSON, as ``BigInteger`` has it."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return b'"%s"' % base64.b64encode(number.to_bytes(length, "big", signed=True))


def _parts(value: bytes) -> tuple[str, str]:
    if value[-1:] in b"Ny":
        raise ValueError(f"a decimal cannot be {value.decode()}; --decimals string has it")
    whole, _, fraction = value.decode().partition(".")
    return whole, fraction


def _decimal(value: bytes, scale: int) -> bytes:
    whole, fraction = _parts(value)
    if scale < 0:
        return _unscaled(_integer(whole[:scale] or "0") if whole.strip("-0") else 0)
    return _unscaled(_integer(whole + fraction.ljust(scale, "0")))


def _variable_decimal(value: bytes) -> bytes:
    whole, fraction = _parts(value)
    fraction = fraction.rstrip("0")
    return b'{"scale":%d,"value":%s}' % (len(fraction), _unscaled(_integer(whole + fraction)))


def _cents(value: bytes) -> int:
    """Return an amount in any locale, such as ``-$1,234.56``, with two digits after the point."""
    number = re.search(rb"[\d.,' \xa0]*\d", value)
    shown = b"" if number is None else number[0]
    fraction = re.search(rb"[.,](\d{1,2})$", shown)
    whole = re.sub(rb"\D", b"", shown[: fraction.start()] if fraction else shown)
    cents = int((whole or b"0") + (fraction[1].ljust(2, b"0") if fraction else b"00"))
    return -cents if b"-" in value or b"(" in value else cents


def _money_text(value: bytes) -> bytes:
    cents = _cents(value)
    return b"%s%d.%02d" % (b"-" if cents < 0 else b"", *divmod(abs(cents), 100))


_MONEY: dict[Decimals, Encoder] = {
    "precise": lambda value: _unscaled(_cents(value)),
    "string": lambda value: quoted(_money_text(value)),
    "double": lambda value: floating(_money_text(value)),
}


def _money(decimals: Decimals) -> ConnectType:
    schema: Schema = {"type": decimals}
    if decimals == "precise":
        schema = _named("bytes", _DECIMAL, {"scale": "2"})
    return ConnectType(schema, _MONEY[decimals])


def _numeric(modifier: int, decimals: Decimals) -> ConnectType:
    if decimals == "string":
        return ConnectType({"type": "string"}, quoted)
    if decimals == "double":
        return ConnectType({"type": "double"}, floating)
    if modifier < 0:
        return ConnectType(_VARIABLE_DECIMAL, _variable_decimal)
    precision, scale = modifier - _VARHDRSZ >> 16, ((modifier - _VARHDRSZ & 0x7FF) ^ 0x400) - 0x400
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return ConnectType(_named("bytes", _DECIMAL, parameters), partial(_decimal, scale=scale))


_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL: Schema = {
    "type": "struct",
    "fields": [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ],
    "name": "io.debezium.data.VariableScaleDecimal",
    "version": 1,
    "doc": "Variable scaled decimal",
}


# ── dates and times ──


def _time_us(clock: bytes) -> int:
    hour, minute, *rest = clock.split(b":")
    second, _, fraction = (rest[0] if rest else b"0").partition(b".")
    return ((int(hour) * 60 + int(minute)) * 60 + int(second)) * 10**6 + int(fraction.ljust(6, b"0"))


def _time(value: bytes, unit: int) -> bytes:
    return b"%d" % (_time_us(value) // unit)


def _timestamp(value: bytes, unit: int) -> bytes:
    if value.endswith(b"infinity"):
        microseconds = _NEVER_US if value.startswith(b"-") else _FOREVER_US
    else:
        day, clock, *era = value.split(b" ")
        microseconds = days(b" ".join((day, *era))) * _DAY_US + _time_us(clock)
    return b"%d" % (min(max(microseconds, _INT64_MIN), _INT64_MAX) // unit)


def _date(value: bytes) -> bytes:
    if value.endswith(b"infinity"):
        return b"%d" % (-(2**31) if value.startswith(b"-") else 2**31 - 1)
    return b"%d" % days(value)


def _zoned_timestamp(value: bytes, digits: int) -> bytes:
    if value.endswith(b"infinity"):
        return quoted(value)
    day, clock, *era = value.split(b" ")
    clock, _, fraction = clock.removesuffix(b"+00").partition(b".")
    year, month, number = day.split(b"-")
    if era:
        year = b"%05d" % (1 - int(year)) if int(year) > 1 else b"0000"
    elif len(year) > 4:
        year = b"+" + year
    point = b"." + fraction.ljust(digits, b"0") if digits else b""
    return b'"%s-%s-%sT%s%sZ"' % (year, month, number, clock, point)


def _zoned_time(value: bytes) -> bytes:
    zone_at = max(value.rfind(b"+"), value.rfind(b"-"))
    clock, zone = value[:zone_at], value[zone_at:]
    hours, minutes, seconds = (*(zone[1:].split(b":")), b"0", b"0")[:3]
    offset = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    microseconds = (_time_us(clock) - (-offset if zone[:1] == b"-" else offset) * 10**6) % _DAY_US
    seconds_of_day, rest = divmod(microseconds, 10**6)
    minutes_of_day, second = divmod(seconds_of_day, 60)
    fraction = (b".%06d" % rest).rstrip(b"0") if rest else b""
    return b'"%02d:%02d:%02d%sZ"' % (*divmod(minutes_of_day, 60), second, fraction)


def _interval(value: bytes) -> bytes:
    match = _INTERVAL.fullmatch(value.removeprefix(b"P"))
    if match is None:
        raise ValueError("an interval that is infinite")
    years, months, day_count, hours, minutes = (int(part or 0) for part in match.groups()[:5])
    seconds: bytes = match[6] or b"0"
    whole, _, fraction = seconds.lstrip(b"-").partition(b".")
    microseconds = int(whole) * 10**6 + int(fraction.ljust(6, b"0")[:6])
    total = (years * 12 + months) * _MONTH_US + day_count * _DAY_US + (hours * 60 + minutes) * 60 * 10**6
    return b"%d" % (total + (-microseconds if seconds.startswith(b"-") else microseconds))


def _by_precision(name: str, micros_name: str, encode: Callable[..., bytes], modifier: int) -> ConnectType:
    if 0 <= modifier <= 3:
        return ConnectType(
            _named("int32" if encode is _time else "int64", f"io.debezium.time.{name}"),
            partial(encode, unit=1000),
        )
    return ConnectType(_named("int64", f"io.debezium.time.{micros_name}"), partial(encode, unit=1))


# ── everything else ──


def _bits(value: bytes) -> bytes:
    number = int(value, 2) if value else 0
    return b'"%s"' % base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little"))


def _flag(value: bytes) -> bytes:
    return b"true" if value == b"1" else b"false"


def _bit(modifier: int, *, is_varying: bool) -> ConnectType:
    if modifier == 1 and not is_varying:
        return ConnectType({"type": "boolean"}, _flag)
    length = str(modifier if modifier > 0 else 2**31 - 1)
    return ConnectType(_named("bytes", "io.debezium.data.Bits", {"length": length}), _bits)


def _point(value: bytes) -> bytes:
    x, y = (float(part) for part in value.strip(b"()").split(b","))
    wkb = base64.b64encode(b"\x01\x01\x00\x00\x00" + struct.pack("<dd", x, y))
    shown = [
        b'"%s"' % str(number).encode() if number - number else repr(number).encode() for number in (x, y)
    ]
    return b'{"x":%s,"y":%s,"wkb":"%s","srid":null}' % (*shown, wkb)


def _hstore(value: bytes) -> bytes:
    pairs = {_unescaped(name): None if content is None else _unescaped(content) for name, content in (
        (match[1], match[2]) for match in _HSTORE.finditer(value)
    )}  # fmt: skip
    return msgspec.json.encode(msgspec.json.encode(pairs).decode())


def _unescaped(value: bytes) -> str:
    return re.sub(rb"\\(.)", rb"\1", value, flags=re.DOTALL).decode("utf-8", "backslashreplace")


_POINT: Schema = {
    "type": "struct",
    "fields": [
        {"type": "double", "optional": False, "field": "x"},
        {"type": "double", "optional": False, "field": "y"},
        {"type": "bytes", "optional": True, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "name": "io.debezium.data.geometry.Point",
    "version": 1,
    "doc": "Geometry (POINT)",
}
_TEXT = ConnectType({"type": "string"}, text, quoted(UNAVAILABLE))
# OIDs of pg_type, which are the same in every PostgreSQL; those that depend on the modifier are in ``_built_in``.
_BY_OID: dict[int, ConnectType] = {
    16: ConnectType({"type": "boolean"}, boolean),
    17: ConnectType({"type": "bytes"}, binary, b'"%s"' % base64.b64encode(UNAVAILABLE)),
    20: ConnectType({"type": "int64"}, as_is),
    21: ConnectType({"type": "int16"}, as_is),
    23: ConnectType({"type": "int32"}, as_is),
    26: ConnectType({"type": "int64"}, as_is),
    114: _text_type("io.debezium.data.Json"),
    142: _text_type("io.debezium.data.Xml"),
    600: ConnectType(_POINT, _point),
    700: ConnectType({"type": "float"}, floating),
    701: ConnectType({"type": "double"}, floating),
    1082: ConnectType(_named("int32", "io.debezium.time.Date"), _date),
    1186: ConnectType(_named("int64", "io.debezium.time.MicroDuration"), _interval),
    1266: ConnectType(_named("string", "io.debezium.time.ZonedTime"), _zoned_time),
    2950: _text_type("io.debezium.data.Uuid"),
    3614: _text_type("io.debezium.data.Tsvector"),
    3802: _text_type("io.debezium.data.Json"),
}
# Dates and times in milliseconds, by the types of Connect itself.
_CONNECT_TIMES: dict[int, ConnectType] = {
    1082: ConnectType(_named("int32", "org.apache.kafka.connect.data.Date"), _date),
    1083: ConnectType(_named("int32", "org.apache.kafka.connect.data.Time"), partial(_time, unit=1000)),
    1114: ConnectType(
        _named("int64", "org.apache.kafka.connect.data.Timestamp"), partial(_timestamp, unit=1000)
    ),
}
_BY_NAME: dict[str, ConnectType] = {
    "hstore": ConnectType(
        _named("string", "io.debezium.data.Json"),
        _hstore,
        msgspec.json.encode('{"%s":"%s"}' % ((UNAVAILABLE.decode(),) * 2)),
    ),
    "ltree": _text_type("io.debezium.data.Ltree"),
}


def _built_in(type_id: int, modifier: int, decimals: Decimals) -> ConnectType | None:
    match type_id:
        case 1700:
            return _numeric(modifier, decimals)
        case 790:
            return _money(decimals)
        case 1083:
            return _by_precision("Time", "MicroTime", _time, modifier)
        case 1114:
            return _by_precision("Timestamp", "MicroTimestamp", _timestamp, modifier)
        case 1184:
            digits = 6 if modifier < 0 else modifier
            return ConnectType(
                _named("string", "io.debezium.time.ZonedTimestamp"), partial(_zoned_timestamp, digits=digits)
            )
        case 1560 | 1562:
            return _bit(modifier, is_varying=type_id == 1562)
        case _:
            return _BY_OID.get(type_id)
