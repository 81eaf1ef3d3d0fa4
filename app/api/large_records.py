"""JSON of records that are too large for one turn of the event loop, in pieces.

The pieces of a record together are what ``record_json`` makes of it at once.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator
from typing import NamedTuple

import pybase64
from msgspec import UNSET
from stele.wire.record_batch import RecordView

from ..work_budget import TURN_BYTES, pause
from .record_json import RecordOut, encode, is_json, record_out

# A piece is at most as large as this; to escape all of it takes up to half a millisecond. Base64 has no padding
# inside of a value, so it is a multiple of three.
_PIECE_BYTES = 3 * 32 * 1024


class _WithoutValue(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    value: bytes | None = None


def is_large(records: list[RecordView]) -> bool:
    """Return whether these records of one turn are a single one that needs several."""
    return len(records) == 1 and len(records[0].value or b"") > TURN_BYTES


async def record_pieces(partition: int, record: RecordView, *, parse_values: bool) -> AsyncGenerator[bytes]:
    """Yield the JSON object of a record, and let the event loop run in between.

    It has a value. With ``parse_values`` a value that is valid JSON is one piece: the bytes of the record.
    """
    rest = _WithoutValue(record.offset, record.timestamp, record.key, record.headers)
    shown = record_out(partition, rest, parse_values=False)
    headers, shown.headers, shown.value = shown.headers, UNSET, UNSET
    yield encode(shown)[:-1]
    value = record.value or b""
    texts = await _texts(value)
    await pause()
    if texts is None:
        yield b',"value_b64":"'
        for start in range(0, len(value), _PIECE_BYTES):
            yield pybase64.b64encode(value[start : start + _PIECE_BYTES])
            await pause()
        yield b'"'
    elif parse_values and is_json(value):
        yield b',"value":'
        yield value
    else:
        yield b',"value":"'
        for text in texts:
            yield encode(text)[1:-1]
            await pause()
        yield b'"'
    yield b"," + encode(RecordOut(UNSET, UNSET, UNSET, headers=headers))[1:]


async def _texts(value: bytes) -> list[str] | None:
    """Return a value as text, in pieces; None if it is not valid UTF-8."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    texts: list[str] = []
    try:
        for start in range(0, len(value), _PIECE_BYTES):
            texts.append(decode(value[start : start + _PIECE_BYTES]))
            await pause()
        decode(b"", final=True)
    except UnicodeDecodeError:
        return None
    return texts
