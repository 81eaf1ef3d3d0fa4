"""The JSON of a large record in pieces is the JSON of the record, and no piece takes long."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from app.api.records.form import RecordForm
from app.api.records.json_records import encode
from app.broker.reading.fetch import is_large
from app.clock import SystemClock
from tests.support.http_application import application
from tests.support.turns import Turns

PIECE_BYTES_MAX = 320 * 1024
_random = random.Random(7)


class Stored(NamedTuple):
    value: bytes | None
    offset: int = 2**40
    timestamp: int = 1_700_000_000_000
    key: bytes | None = b'a "key"'
    headers: list[tuple[str, bytes | None]] = []  # noqa: RUF012 - never changed


def text(size: int) -> bytes:
    """Characters of one to four bytes, those that JSON escapes, and none of a piece's length."""
    return "".join(_random.choices('aé€😀"\\\n\x01/ ', k=size // 2)).encode()


VALUES: dict[str, Callable[[], bytes]] = {
    "text": lambda: text(700_000),
    "bytes": lambda: _random.randbytes(500_001),
    "text and one byte at the end": lambda: text(400_000) + b"\xff",
    "text whose last character is cut": lambda: text(400_000) + "€".encode()[:2],
    "json": lambda: encode([{"a": number, "é": '"'} for number in range(30_000)]),
    "almost json": lambda: b"[" + b"1, " * 150_000,
    "a multiple of a piece": lambda: b"\x80" * (3 * 32 * 1024 * 4),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("form", [RecordForm(), RecordForm(parse_values=True), RecordForm(preview=300_000)])
async def test_the_pieces_are_what_a_record_is_at_once(kind: str, form: RecordForm) -> None:
    value = VALUES[kind]()
    for record in (
        Stored(value),
        Stored(value, key=None),
        Stored(None, key=value),
        Stored(value, key=b"\xff", headers=[("h", b"\xfe"), ("h", None), ("", b"x")]),
        Stored(b"{}", headers=[("large", value), ("é" * 100_000, b"")]),
    ):
        assert is_large(record)
        pieces = [piece async for piece in form.stream(3, [record])]
        assert b"".join(pieces) == form.block(3, [record])
        assert max(map(len, pieces)) <= PIECE_BYTES_MAX


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [10, 300_000])
async def test_a_value_with_line_ends_is_one_line_and_the_same_json(end: bytes, size: int) -> None:
    value = b"{" + end + b'"a":' + end + b'"' + b"x" * size + b'\\r\\n"' + end + b"}" + end
    line = b"".join([piece async for piece in RecordForm(parse_values=True).stream(0, [Stored(value)])])
    assert (line.count(b"\n"), line.count(b"\r")) == (1, 0)
    assert json.loads(line)["value"] == json.loads(value)


async def test_a_page_with_large_records_is_read_in_many_turns(tmp_path: Path) -> None:
    sizes = [10, 400_000, 20, 30, 300_000, 1_000_000]
    values = ["é" * (size // 2) for size in sizes]
    async with application(tmp_path, SystemClock()) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            topic = {"partitions": 1, "configs": {"max.message.bytes": 2_000_000}}
            assert (await client.put("/v1/topics/orders", json=topic)).status_code == 201
            for value in values:
                body = {"records": [{"value": value}]}
                written = await client.post("/v1/topics/orders/records", json=body)
                assert written.status_code == 200, written.text
            path = "/v1/topics/orders/partitions/0/records"
            turns = Turns()
            page = await client.get(path)
            turns.close()
            assert [record["value"] for record in page.json()["records"]] == values
            assert page.json()["next_offset"] == len(values)
            assert turns.count > sum(sizes) / 100_000
            lines = await client.get(path, headers={"Accept": "application/x-ndjson"})
            assert [json.loads(line)["value"] for line in lines.text.splitlines()] == values
