"""Decode JSON records, large ones in several turns of the event loop.

Parsing a record of up to 2 MiB takes a turn, and so does compacting a value that is no string. Larger values are cut
out of their record before (``large_bodies``). A string with escapes, which takes longest, is decoded in pieces, and
base64 by a thread.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET, Raw

from ...work_budget import TURN_BYTES, in_turns, pause
from . import large_bodies
from .json_records import NewRecord, RecordIn, compacted, from_b64, invalid_record, parse_record, to_record
from .large_strings import QUOTE, pieces_decoded


async def parse_in_turns(text: Raw | memoryview) -> tuple[RecordIn, bytes | None]:
    """Parse the JSON text of a record as ``parse_record`` does.

    Returns its value, too, if the record has more than ``VALUE_BYTES_MAX`` bytes.

    Raises:
        InvalidRequest: the text is not a record, or has too many bytes beside its value.
    """
    if len(text) <= large_bodies.VALUE_BYTES_MAX:
        return parse_record(text), None
    view = memoryview(text)
    try:
        small, large = await in_turns(large_bodies.without_large_values(view))
        parsed = parse_record(small)
        if not large:
            return parsed, None
        (name, value) = large
        if isinstance(value, list):
            return parsed, await asyncio.to_thread(b"".join, value)
        # Blanks may follow the string.
        string = (await asyncio.to_thread(b"".join, (value,))).rstrip()
        decoded = await _decoded(string)
        return parsed, decoded if name == "value" else await asyncio.to_thread(from_b64, decoded, name)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise invalid_record(error) from error


async def to_record_in_turns(parsed: RecordIn, size: int, value: bytes | None = None) -> NewRecord:
    """Decode a parsed record of ``size`` bytes as ``to_record`` does.

    ``value`` is given if it is decoded already.

    Raises:
        InvalidRequest: its value, key or a header is not valid.
    """
    if size <= TURN_BYTES or value is not None:
        return to_record(parsed, value)
    await pause()
    if parsed.value_b64 is not UNSET and parsed.value is UNSET:
        return to_record(parsed, await asyncio.to_thread(from_b64, parsed.value_b64, "value_b64"))
    try:
        return to_record(parsed, await _large_value(parsed))
    except (msgspec.DecodeError, UnicodeError) as error:
        raise invalid_record(error) from error


async def _large_value(record: RecordIn) -> bytes | None:
    """Return a value that is not small; None if ``to_record`` decodes it."""
    if record.value is UNSET or record.value_b64 is not UNSET or len(memoryview(record.value)) <= TURN_BYTES:
        return None
    text = bytes(record.value)
    if text.startswith(QUOTE):
        return await _decoded(text)
    text.decode()
    await pause()
    return compacted(text)


async def _decoded(string: bytes) -> bytes:
    pieces = await in_turns(pieces_decoded(string))
    return await asyncio.to_thread(b"".join, pieces)
