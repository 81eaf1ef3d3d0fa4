"""Records in JSON keep their bytes, and numbers keep their text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.records.form import RecordForm
from app.api.records.json_records import decode_lines, decode_record
from app.errors import InvalidRequest


@dataclass
class Stored:
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list[tuple[str, bytes | None]])
    offset: int = 7
    timestamp: int = 1_700_000_000_000


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
maybe_bytes = st.none() | st.binary(max_size=40)


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(names, maybe_bytes), max_size=4))
def test_bytes_to_json_to_bytes_is_exact(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = RecordForm().block(3, [Stored(value, key, headers)])

    read = decode_record(line)

    assert (read.value, read.key, read.headers) == (value, key, headers)
    assert (read.timestamp_ms, read.partition) == (1_700_000_000_000, 3)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (b'"text"', b"text"),
        (b'"with \\"quotes\\" and \\u00e9"', 'with "quotes" and é'.encode()),
        (b'""', b""),
        (b"null", None),
        (b"1.00", b"1.00"),
        (b"1e400", b"1e400"),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b"true", b"true"),
        (b'{ "a" : [ 1 , 2.50 ] , "b c": "d  e" }', b'{"a":[1,2.50],"b c":"d  e"}'),
        (b"[]", b"[]"),
    ],
)
def test_a_string_is_stored_as_its_text_and_other_json_as_compact_json(
    text: bytes, stored: bytes | None
) -> None:
    line = b'{"value":' + text + b"}"

    assert decode_record(line).value == stored
    rows = decode_lines(line + b"\n", 5)
    assert rows is not None
    assert rows[0] == (5, None, stored, [])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"nonsense",
        b"{}",
        b'{"value":1,"value_b64":"AA=="}',
        b'{"value":1,"key":"a","key_b64":"AA=="}',
        b'{"value_b64":"%%%"}',
        b'{"value":1,"timestamp":-9223372036854775809}',
        b'{"value":1,"timestamp":"now"}',
        b'{"value":1,"headers":[{"value":"no key"}]}',
        b'{"value":1,"headers":[{"key":"h","value":"a","value_b64":"AA=="}]}',
        b'{"value":1,"vlaue":2}',
        b'{"value":"\xff"}',
        b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_line_that_is_no_record_is_refused_with_a_reason(line: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_record(line)

    assert str(refused.value)


def test_lines_that_ask_for_more_are_left_to_be_decoded_one_by_one() -> None:
    for line in (
        b'{"value":1,"partition":2}',
        b'{"value":1,"timestamp":3}',
        b'{"value":1,"headers":[{"key":"h"}]}',
        b'{"value_b64":"AA=="}',
        b'{"value":1}\nnot json',
    ):
        assert decode_lines(line, 0) is None


def test_blank_lines_and_carriage_returns_between_records_do_not_matter() -> None:
    rows = decode_lines(b'{"value":1}\r\n\r\n\n  {"value":"two"}  \n', 0)

    assert rows is not None
    assert [row[2] for row in rows] == [b"1", b"two"]


def test_values_that_are_json_are_shown_as_json_on_request() -> None:
    shown = RecordForm(parse_values=True).block(
        0, [Stored(b'{"a":1}'), Stored(b"plain"), Stored(b"\xff")], end=b""
    )

    values = [record.get("value") for record in json.loads(b"[" + shown + b"]")]
    assert values == [{"a": 1}, "plain", None]


@given(st.binary(max_size=200))
def test_no_bytes_at_all_break_the_decoder(line: bytes) -> None:
    try:
        decode_record(line)
    except InvalidRequest:
        return
    msgspec.json.decode(line)
