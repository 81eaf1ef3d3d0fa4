"""A large record that is decoded in several turns of the loop is what it is when decoded at once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.api.records.json_records import NewRecord, RecordIn, decode_record, parse_record
from app.api.records.large_records import to_record_in_turns
from app.api.records.large_strings import pieces_of_string
from app.clock import SystemClock
from app.errors import InvalidRequest
from app.work_budget import TURN_BYTES
from tests.support.http_application import application
from tests.support.turns import Turns

# Escapes of every kind and length, next to characters of one to four bytes.
_PARTS = ("a", "é", "€", "😀", "\\\\", '\\"', "\\n", "\\u0041", "\\u20AC", "\\ud83D\\uDe00", "\\uDBFF\\udfff")


async def in_turns(text: bytes) -> NewRecord:
    return await to_record_in_turns(parse_record(text), len(text))


@given(parts=st.lists(st.sampled_from(_PARTS), max_size=60), size=st.integers(12, 40))
@example(parts=["\\\\"] * 40, size=13)
@example(parts=["\\ud83D\\uDe00"] * 10, size=17)
def test_pieces_end_between_characters(parts: list[str], size: int) -> None:
    text = "".join(parts).encode()
    pieces = [text[start:end] for start, end in pieces_of_string(text, 0, len(text), size)]
    assert b"".join(pieces) == text
    assert all(0 < len(piece) <= size for piece in pieces)
    assert all(len(piece) > size - 12 for piece in pieces[:-1])
    decoded = [msgspec.json.decode(b'"' + piece + b'"', type=str) for piece in pieces]
    assert "".join(decoded) == json.loads(f'"{text.decode()}"')


@given(text=st.binary(max_size=100), size=st.integers(1, 40))
@example(text=b"\x80\x80", size=1)
def test_what_is_no_string_has_pieces_too(text: bytes, size: int) -> None:
    pieces = [text[start:end] for start, end in pieces_of_string(text, 0, len(text), size)]
    assert b"".join(pieces) == text
    assert all(0 < len(piece) <= size for piece in pieces)


@pytest.mark.parametrize("escaped", [True, False])
async def test_a_large_string_is_decoded_in_many_turns(escaped: bool) -> None:
    value = 'aé b"cd\n😀' * 60_000
    text = json.dumps({"value": value, "key": "k"}, ensure_ascii=escaped).encode()
    turns = Turns()
    await asyncio.sleep(0)
    record = await in_turns(text)
    turns.close()
    assert record == decode_record(text)
    assert record.value == value.encode()
    assert turns.count > len(text) // TURN_BYTES


@pytest.mark.parametrize(
    "value",
    [b'{"a": [1,  2]}', b"null", b"12345", b'"short"', b'""', b'{"a":"' + b"\\n" * TURN_BYTES + b'"}'],
)
async def test_other_values_and_fields_are_decoded_as_ever(value: bytes) -> None:
    large = json.dumps("x" * TURN_BYTES).encode()
    text = b'{"headers": [{"key": "h", "value": %b}], "value": %b}' % (large, value)
    assert await in_turns(text) == decode_record(text)


@pytest.mark.parametrize(
    "end", [b"\\ud800", b"\\udc00", b"\\u12", b"\\x", b"\xff", b"\xc3", b"\x01"], ids=repr
)
async def test_a_large_string_that_is_not_valid_is_refused_as_a_small_one_is(end: bytes) -> None:
    text = b'{"value": "' + b"\\n" * TURN_BYTES + end + b'"}'
    with pytest.raises(InvalidRequest) as at_once:
        decode_record(text)
    with pytest.raises(InvalidRequest) as raised:
        await in_turns(text)
    assert str(raised.value) == str(at_once.value)


async def test_a_large_value_next_to_value_b64_is_refused() -> None:
    text = b'{"value": %b, "value_b64": "eA=="}' % json.dumps("x" * TURN_BYTES).encode()
    with pytest.raises(InvalidRequest, match="both value and value_b64"):
        await in_turns(text)


async def test_large_lines_of_an_upload_are_decoded_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    async def watched(parsed: RecordIn, size: int, value: bytes | None) -> NewRecord:
        sizes.append(size)
        return await to_record_in_turns(parsed, size, value)

    monkeypatch.setattr("app.api.records.encoding.to_record_in_turns", watched)
    values = ["first", 'a "large"\n' * 40_000, "last"]
    lines = [json.dumps({"value": value}).encode() for value in values]
    async with application(tmp_path, SystemClock()) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            topic = {"partitions": 1, "configs": {"max.message.bytes": 2_000_000}}
            assert (await client.put("/v1/topics/orders", json=topic)).status_code == 201
            headers = {"Content-Type": "application/x-ndjson"}
            written = await client.post(
                "/v1/topics/orders/records", content=b"\n".join(lines), headers=headers
            )
            assert written.status_code == 200, written.text
            page = await client.get("/v1/topics/orders/partitions/0/records")
            assert [record["value"] for record in page.json()["records"]] == values
    assert len(lines[1]) in sizes
    assert len(lines[1]) > TURN_BYTES
