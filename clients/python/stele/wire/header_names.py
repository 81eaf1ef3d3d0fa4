"""Read records with header names that are not UTF-8.

Kafka clients can write such names: a name is text by the protocol, and no broker looks. One of them must not make the
records beside it unreadable. Kafka's Java client replaces what it cannot decode, and so does this module. It is slower
than the codec, which has refused the batch before, and reads as lazily, so that others have their turns meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

# Bytes of the longest varint.
_VARINT_BYTES_MAX = 10


class LenientRecord(NamedTuple):
    """A record as the codec gives it, with U+FFFD for what is no UTF-8."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def lenient_records(
    batch: bytes,
    position: int,
    counts: range,
    *,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
) -> Iterator[LenientRecord]:
    """Yield the records with the numbers ``counts`` of a batch without compression.

    They begin at ``position``; ``append_time`` in ms is that of all, or None.

    Raises:
        IndexError, ValueError: they do not parse.
    """
    at = position
    for number in range(counts.stop):
        length, at = _varint(batch, at)
        if number >= counts.start:
            timestamp_delta, inner = _varint(batch, at + 1)
            offset_delta, inner = _varint(batch, inner)
            key, inner = _bytes(batch, inner)
            value, inner = _bytes(batch, inner)
            count, inner = _varint(batch, inner)
            headers: list[tuple[str, bytes | None]] = []
            for _ in range(count):
                name, inner = _bytes(batch, inner)
                content, inner = _bytes(batch, inner)
                headers.append(((name or b"").decode(errors="replace"), content))
            if inner != at + length:
                raise ValueError("a record is not as long as it says")
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            yield LenientRecord(base_offset + offset_delta, timestamp, key, value, headers)
        at += length


def _bytes(buffer: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(buffer, at)
    if length < 0:
        return None, at
    if length > len(buffer) - at:
        raise ValueError("a field is longer than what is left")
    return buffer[at : at + length], at + length


def _varint(buffer: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number, and the position after it."""
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = buffer[at + index]
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value >> 1 ^ -(value & 1), at + index + 1
    raise ValueError("a number is longer than any can be")
