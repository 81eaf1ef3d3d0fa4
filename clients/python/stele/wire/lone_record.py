"""Read and build batches of one large record without the codec, which holds the interpreter while it copies."""

from __future__ import annotations

from typing import NamedTuple

import crc32c

from .header_names import field_at, varint_at
from .record_batch import CRC_START, HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, NO_PRODUCER_ID, Row

_NULL = b"\x01"


class RecordParts(NamedTuple):
    """The parts of a record as views of its batch."""

    offset: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    headers: list[tuple[memoryview | None, memoryview | None]]


def lone_record(
    batch: memoryview,
    position: int,
    *,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    headers_max: int,
) -> RecordParts | None:
    """Return the only record of a batch without compression, which begins at ``position``; nothing is copied.

    None if it has more headers than ``headers_max``.

    Raises:
        IndexError, ValueError: it does not parse.
    """
    length, at = varint_at(batch, position)
    timestamp_delta, inner = varint_at(batch, at + 1)
    offset_delta, inner = varint_at(batch, inner)
    key, inner = field_at(batch, inner)
    value, inner = field_at(batch, inner)
    count, inner = varint_at(batch, inner)
    if count > headers_max:
        return None
    headers: list[tuple[memoryview | None, memoryview | None]] = []
    for _ in range(count):
        name, inner = field_at(batch, inner)
        content, inner = field_at(batch, inner)
        headers.append((name, content))
    if not inner == at + length == len(batch):
        raise ValueError("a record is not as long as it says")
    timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
    return RecordParts(base_offset + offset_delta, timestamp, key, value, headers)


def build_lone(
    row: Row, *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = -1, base_sequence: int = -1
) -> bytearray:
    """Build the batch that ``build_rows`` makes of one row; while it copies a large value, other threads run."""
    timestamp_ms, key, value, headers = row
    # Attributes, and the deltas of timestamp and offset.
    before, after = bytearray(3), _varint(len(headers))
    before += _NULL if key is None else _varint(len(key)) + key
    before += _NULL if value is None else _varint(len(value))
    for name, content in headers:
        encoded = name.encode()
        after += _varint(len(encoded)) + encoded
        after += _NULL if content is None else _varint(len(content)) + content
    length = len(before) + len(value or b"") + len(after)
    opening = _varint(length)
    head = HEADER.pack(
        0,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(opening) + length,
        -1,
        MAGIC,
        0,
        0,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        1,
    )
    # Of bytes alone, a long join lets other threads run.
    batch = bytearray().join((head + opening + bytes(before), value or b"", bytes(after)))
    batch[CRC_START - 4 : CRC_START] = crc32c.crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return batch


def _varint(number: int) -> bytearray:
    """Return a number that is not negative in zigzag."""
    number <<= 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return encoded
