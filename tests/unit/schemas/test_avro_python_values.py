"""Values as Python has them are written and read as fastavro does, except where that loses something."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import fastavro
import pytest
from stele.schemas.avro import parse
from stele.schemas.definitions import InvalidValue

MOMENT = datetime(2026, 11, 30, 10, 0, 0, 123456, UTC)
LOCAL = MOMENT.replace(tzinfo=None)


def logical(kind: str, of: str, /, **others: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": of, **others}


FIXED = {"type": "fixed", "name": "F", "size": 4}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}


def theirs(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read_by_them(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", True),
        ("int", -(1 << 31)),
        ("long", (1 << 63) - 1),
        ("float", 0.5),
        ("double", float("inf")),
        ("double", -0.0),
        ("string", "é🙂"),
        (FIXED, b"\x00\x01\x02\xff"),
        (ENUM, "B"),
        (RECORD, {"a": 1}),
        ({"type": "array", "items": RECORD}, [{"a": 1}, {"a": 2}]),
        ({"type": "map", "values": "bytes"}, {"k": b"\x00"}),
        (logical("bytes", "decimal", precision=9, scale=2) | {"in": "record"}, Decimal("-12.30")),
        (logical("int", "date"), date(1, 1, 1)),
        (logical("int", "date"), date(9999, 12, 31)),
        (logical("int", "time-millis"), time(23, 59, 59, 999000)),
        (logical("long", "time-micros"), time(1, 2, 3, 4)),
        (logical("long", "timestamp-millis"), datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
        (logical("long", "timestamp-micros"), MOMENT),
        (logical("long", "local-timestamp-millis"), LOCAL.replace(microsecond=123000)),
        (logical("long", "local-timestamp-micros"), LOCAL),
        (logical("string", "uuid"), UUID(int=7)),
        (["null", "string"], None),
        (["null", "string"], "x"),
        (["null", "long", "string"], 5),
        (["null", RECORD], {"a": 1}),
        (["string", "bytes"], b"x"),
        (["null", logical("long", "timestamp-micros")], MOMENT),
        (["int", "double"], 0.5),
    ],
)
def test_bytes_and_values_are_those_of_fastavro(schema: Any, value: Any) -> None:
    # Not alone, because the payload of bytes alone has no length.
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "v", "type": schema}]}
    parsed = parse(json.dumps(schema))
    data = parsed.encode_python({"v": value})
    assert data == theirs(schema, {"v": value})
    assert parsed.decode_python(data) == {"v": value} == read_by_them(schema, data)


class Color(Enum):
    RED = "A"


class Text(StrEnum):
    B = "B"


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        (ENUM, Color.RED, "A"),
        (ENUM, Text.B, "B"),
        (["null", ENUM], Text.B, "B"),
        (FIXED, bytearray(b"abcd"), b"abcd"),
        ("double", 3, 3.0),
        (logical("string", "uuid"), str(UUID(int=7)), UUID(int=7)),
        (logical("fixed", "uuid", name="U", size=16), UUID(int=7), UUID(int=7)),
        (logical("fixed", "decimal", name="D", size=4, precision=9, scale=1), 7, Decimal("7.0")),
        (logical("fixed", "duration", name="X", size=12), (1, 2, 3), (1, 2, 3)),
        # In any time zone; what is finer is cut off, also before 1970.
        (
            logical("long", "timestamp-millis"),
            MOMENT.astimezone(timezone(timedelta(hours=5))),
            MOMENT.replace(microsecond=123000),
        ),
        (
            logical("long", "timestamp-millis"),
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        ),
        (logical("int", "time-millis"), time(1, 2, 3, 4567), time(1, 2, 3, 4000)),
        # Not in Python's calendar, or too fine for it.
        (logical("long", "timestamp-micros"), 1 << 62, 1 << 62),
        (logical("long", "timestamp-nanos"), MOMENT, 1796032800123456000),
        (logical("int", "date"), -(1 << 30), -(1 << 30)),
        (logical("int", "time-millis"), 86_400_000, 86_400_000),
        (["int", "long"], 1 << 40, 1 << 40),
        (["int", "long"], ("long", 5), 5),
        (["null", RECORD], ("R", {"a": 1}), {"a": 1}),
        ([{"type": "map", "values": "int"}, RECORD], ("R", {"a": 1}), {"a": 1}),
    ],
)
def test_other_values_are_written_too(schema: Any, value: Any, read: Any) -> None:
    parsed = parse(json.dumps(schema))
    written = parsed.decode_python(parsed.encode_python(value))
    assert (written, type(written)) == (read, type(read))


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("int", True, "an integer is needed"),
        ("int", 1 << 31, "32 bits"),
        ("double", "1", "a number is needed, not a str"),
        ("string", b"x", "a string is needed"),
        (FIXED, b"abc", "4 bytes"),
        (FIXED, "abcd", "bytes is needed"),
        (ENUM, "C", "a symbol of E"),
        (RECORD, {"a": 1, "b": 2}, "/b: "),
        (RECORD, {}, "/a: "),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.234"), "2 digits"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("100.00"), "4 digits"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("NaN"), "finite"),
        (logical("bytes", "decimal", precision=4, scale=2), 1.5, "finite Decimal"),
        (logical("int", "date"), MOMENT, "a date is needed"),
        (logical("long", "timestamp-micros"), LOCAL, "with a time zone"),
        (logical("long", "local-timestamp-micros"), MOMENT, "without a time zone"),
        (logical("long", "time-micros"), time(1, tzinfo=UTC), "without a time zone"),
        (logical("fixed", "duration", name="X", size=12), (1, 2), "months"),
        (["null", "int"], "x", "a value of null or int is needed, not a str"),
        (["null", RECORD], {"a": "x"}, "/a: an integer"),
        (["int", "long"], ("int", 1 << 40), "32 bits"),
    ],
)
def test_what_is_refused(schema: Any, value: Any, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        parse(json.dumps(schema)).encode_python(value)


def test_a_reader_has_its_defaults_and_types() -> None:
    writer = parse(json.dumps(RECORD))
    reader = parse(
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "a", "type": "double"},
                    {"name": "at", "type": logical("long", "timestamp-millis"), "default": 0},
                    {"name": "raw", "type": "bytes", "default": "\u00ff"},
                ],
            }
        )
    )
    data = writer.encode_python({"a": 1})
    assert writer.decode_python(data, reader) == {
        "a": 1.0,
        "at": datetime(1970, 1, 1, tzinfo=UTC),
        "raw": b"\xff",
    }
    # The other form is not mixed up with it.
    assert writer.decode(data, reader) == {"a": 1.0, "at": "1970-01-01T00:00:00Z", "raw": "/w=="}


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x02ab", bytes(300)])
def test_a_schema_of_bytes_alone_has_payloads_without_a_length(payload: bytes) -> None:
    parsed = parse('"bytes"')
    assert parsed.encode_python(payload) == payload
    assert parsed.decode_python(payload) == payload
    assert parsed.encode(parsed.decode(payload)) == payload
    parsed.check(payload)
    # Within others, they have it.
    assert parse('{"type":"array","items":"bytes"}').encode_python([b"ab"]) == b"\x02\x04ab\x00"
