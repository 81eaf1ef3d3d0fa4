"""Read records with header names that are not UTF-8.

Kafka clients can write such names: a name is text by the protocol, and no broker looks. One of them must not make the
records beside it unreadable. Kafka's Java client replaces what it cannot decode, and so does this module. It is slower
than the codec, which has refused the batch before, and reads as lazily, so that others have their turns meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

_Buffer = TypeVar("_Buffer", bytes, memoryview)

# Bytes of the longest varint.
_VARINT_BYTES_MAX = 10


class LenientRecord(NamedTuple):
    """A record as the codec gives it, with U+FFFD for what is no UTF-8."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    # As in the codec: 1 if the broker set the timestamp.
    timestamp_type: int = 0


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
        length, at = varint_at(batch, at)
        if number >= counts.start:
            timestamp_delta, inner = varint_at(batch, at + 1)
            offset_delta, inner = varint_at(batch, inner)
            key, inner = field_at(batch, inner)
            value, inner = field_at(batch, inner)
            count, inner = varint_at(batch, inner)
            headers: list[tuple[str, bytes | None]] = []
            for _ in range(count):
                name, inner = field_at(batch, inner)
                content, inner = field_at(batch, inner)
                headers.append(((name or b"").decode(errors="replace"), content))
            if inner != at + length:
                raise ValueError("a record is not as long as it says")
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            kind = int(append_time is not None)
            yield LenientRecord(base_offset + offset_delta, timestamp, key, value, headers, kind)
        at += length


def field_at(buffer: _Buffer, at: int) -> tuple[_Buffer | None, int]:
    """Return a field after its length, and the position after it; None is null."""
    length, at = varint_at(buffer, at)
    if length < 0:
        return None, at
    if length > len(buffer) - at:
        raise ValueError("a field is longer than what is left")
    return buffer[at : at + length], at + length


def varint_at(buffer: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return a zigzag number, and the position after it."""
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = buffer[at + index]
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value >> 1 ^ -(value & 1), at + index + 1
    raise ValueError("a number is longer than any can be")
