"""Decode JSON records, large ones in several turns of the event loop.

Parsing a record of 1 MiB takes a turn, and so does compacting a value that is no string. A string with escapes, which
takes longest, is decoded in pieces that are cut between two characters, and base64 by a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from ...work_budget import TURN_BYTES, pause
from .json_records import NewRecord, RecordIn, decode_string, from_b64, to_record

# A piece takes up to half a millisecond.
_PIECE_BYTES = 128 * 1024
_UTF8_MAX = 4
_UNICODE_ESCAPE = 6
_QUOTE = b'"'


async def to_record_in_turns(parsed: RecordIn, size: int) -> NewRecord:
    """Decode a parsed record of ``size`` bytes as ``to_record`` does.

    Raises:
        InvalidRequest: its value, key or a header is not valid.
    """
    if size <= TURN_BYTES:
        return to_record(parsed)
    await pause()
    if parsed.value_b64 is not UNSET and parsed.value is UNSET:
        return to_record(parsed, await asyncio.to_thread(from_b64, parsed.value_b64, "value_b64"))
    return to_record(parsed, await _large_string(parsed))


async def _large_string(record: RecordIn) -> bytes | None:
    """Return a value that is a large string; None if it is none, or is not valid."""
    if record.value is UNSET:
        return None
    text = bytes(record.value)
    if not text.startswith(_QUOTE):
        return None
    pieces: list[bytes] = []
    for start, end in pieces_of_string(text, 1, len(text) - 1, _PIECE_BYTES):
        try:
            pieces.append(decode_string(_QUOTE + text[start:end] + _QUOTE).encode())
        except (msgspec.DecodeError, UnicodeError):
            # Decoded at once, it raises an error that says where.
            return None
        await pause()
    return await asyncio.to_thread(b"".join, pieces)


def pieces_of_string(text: bytes, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of pieces that are JSON strings if ``text[start:end]`` is.

    There are no quotes around any of them. Pieces have ``size`` bytes, up to 12 fewer if they end between two
    characters or escapes. What is not valid is cut anywhere.
    """
    while end - start > size:
        cut = _boundary(text, start, start + size)
        yield start, cut
        start = cut
    if start < end:
        yield start, end


def _boundary(text: bytes, start: int, end: int) -> int:
    """Return where the last character or escape up to ``end`` ends."""
    cut = end
    while cut > start and text[cut] & 0xC0 == 0x80 and end - cut < _UTF8_MAX:
        cut -= 1
    last = text.rfind(b"\\", max(start, cut - _UNICODE_ESCAPE + 1), cut)
    if last >= 0 and _begins_escape(text, start, last):
        length = _UNICODE_ESCAPE if text[last + 1 : last + 2] == b"u" else 2
        if last + length > cut:
            cut = last
    first = cut - _UNICODE_ESCAPE
    if first >= start and _is_high_surrogate(text[first:cut]) and _begins_escape(text, start, first):
        cut = first
    return cut if cut > start else end


def _begins_escape(text: bytes, start: int, at: int) -> bool:
    """Return whether the backslash at ``at`` is not itself escaped."""
    before = text[start : at + 1]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _is_high_surrogate(escape: bytes) -> bool:
    return escape[:2] == b"\\u" and escape[2:4].lower() in (b"d8", b"d9", b"da", b"db")
