"""PostgreSQL's text → JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.cdc.decoding import values
from stele.cdc.decoding.snapshot import parse_line


@pytest.mark.parametrize(
    ("encoder", "given", "expected"),
    [
        (values.floating, b"1e+300", "1e+300"),
        (values.floating, b"-Infinity", '"-Infinity"'),
        (values.floating, b"NaN", '"NaN"'),
        (values.timestamp, b"infinity", '"infinity"'),
        (values.timestamp, b"0044-03-15 12:00:00 BC", '"0044-03-15 12:00:00 BC"'),
        (values.timestamp_utc, b"infinity", '"infinity"'),
        (values.timestamp_utc, b"2026-11-21 08:00:00+00", '"2026-11-21T08:00:00Z"'),
        (values.timestamp_utc, b"0044-03-15 12:00:00+00 BC", '"0044-03-15 12:00:00+00 BC"'),
        (values.text, b"\xff\xfe", '"\\\\xff\\\\xfe"'),
        (values.binary, b"\\x", '""'),
    ],
)
def test_what_json_has_no_form_for_stays_text(encoder: values.Encoder, given: bytes, expected: str) -> None:
    assert encoder(given).decode() == expected


Nested = str | None | list[Any]


def literal(value: Nested) -> str:
    """As PostgreSQL writes arrays, quoting more than it must."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "{" + ",".join(literal(one) for one in value) + "}"


@given(
    st.lists(st.none() | st.text(), max_size=5).map(lambda row: [row, row]) | st.lists(st.none() | st.text())
)
def test_arrays_come_back_as_they_were(value: list[Any]) -> None:
    assert json.loads(values.array(values.text)(literal(value).encode())) == value


@given(st.text(alphabet='{},"\\Na[]=1 ').map(str.encode))
def test_what_is_no_array_is_refused(data: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(json.loads(values.array(values.text)(data)), list)


def test_an_array_may_not_be_deeper_than_the_stack() -> None:
    with pytest.raises(values.ArrayError, match="too deep"):
        values.array(values.text)(b"{" * 100_000)


@given(st.lists(st.none() | st.binary(), min_size=1))
def test_lines_of_copy_come_back_as_they_were(row: list[bytes | None]) -> None:
    escapes = {
        b"\\": b"\\\\",
        b"\t": b"\\t",
        b"\n": b"\\n",
        b"\r": b"\\r",
        b"\b": b"\\b",
        b"\f": b"\\f",
        b"\v": b"\\v",
    }
    parts = [
        b"\\N" if value is None else b"".join(escapes.get(bytes([byte]), bytes([byte])) for byte in value)
        for value in row
    ]
    assert parse_line(b"\t".join(parts) + b"\n") == row
