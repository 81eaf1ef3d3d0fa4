"""Objects of the shared engine: runs of batches, and a footer that describes them.

A *run* is the batches of one partition that follow each other in an object. The footer has what the
metadata needs to know of a run, so that metadata which was lost can be rebuilt from the objects
alone. ``docs/formats/objects.md`` has the layout byte by byte.

Batches are stored as they were produced. Their base offsets are known only when the metadata has
accepted the object, so the base offset and the leader epoch in an object mean nothing; readers write
them in place, which the CRC of a batch allows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import crc32c

Buffer = bytes | bytearray | memoryview

MAGIC = b"STELEOB\x01"
_VERSION = 1
_FOOTER = struct.Struct(">hI")
_RUN = struct.Struct(">16siqqIIqII")
_SEQUENCES = struct.Struct(">Iqhii")
_TRAILER = struct.Struct(">II8s")
TRAILER_BYTES = _TRAILER.size
# Far above what the runs of one object take; a larger claim is damage.
FOOTER_BYTES_MAX = 64 << 20
NO_OFFSET = -1


class CorruptObjectError(ValueError):
    """The bytes are not those of an object that the shared engine has written."""


class SequenceExtent(NamedTuple):
    """One batch of an idempotent producer in a run.

    ``offset_delta`` counts from the first record of the run.
    """

    offset_delta: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRun:
    """The batches of one partition that follow each other in an object.

    ``position`` and ``length`` are bytes in the object. ``offset_count`` is the number of offsets that the
    batches take. ``base_offset`` is known in merged objects only, otherwise -1. ``crc`` is the CRC-32C of
    the bytes as they are in the object.
    """

    topic_id: UUID
    partition: int
    position: int
    length: int
    offset_count: int
    max_timestamp_ms: int
    crc: int
    base_offset: int = NO_OFFSET
    sequences: tuple[SequenceExtent, ...] = ()


def header_bytes() -> bytes:
    """Return what an object begins with; the first run follows."""
    return MAGIC


def footer_bytes(runs: Sequence[ObjectRun]) -> bytes:
    """Return what follows the last run: the footer and the trailer that locates it."""
    parts = [_FOOTER.pack(_VERSION, len(runs))]
    for run in runs:
        parts.append(
            _RUN.pack(
                run.topic_id.bytes,
                run.partition,
                run.base_offset,
                run.position,
                run.length,
                run.offset_count,
                run.max_timestamp_ms,
                run.crc,
                len(run.sequences),
            )
        )
        parts += (_SEQUENCES.pack(*extent) for extent in run.sequences)
    footer = b"".join(parts)
    return footer + _TRAILER.pack(len(footer), crc32c.crc32c(footer), MAGIC)


def footer_length(trailer: Buffer, *, object_bytes: int) -> int:
    """Return the length of the footer; ``trailer`` is the last ``TRAILER_BYTES`` of an object.

    Raises:
        CorruptObjectError: this is not the end of an object of ``object_bytes`` bytes.
    """
    if len(trailer) != TRAILER_BYTES:
        raise CorruptObjectError("the object is too short to have a footer")
    length, _, magic = _TRAILER.unpack(trailer)
    if magic != MAGIC:
        raise CorruptObjectError("the object does not end with the magic bytes of a footer")
    if length > min(FOOTER_BYTES_MAX, object_bytes - TRAILER_BYTES - len(MAGIC)):
        raise CorruptObjectError(f"the footer claims {length} bytes, more than the object has")
    return length


def read_footer(data: Buffer, *, object_bytes: int) -> list[ObjectRun]:
    """Return the runs of an object from its last bytes, with footer and trailer.

    Raises:
        CorruptObjectError: the footer is damaged, or describes bytes that the object does not have.
    """
    view = memoryview(data)
    length = footer_length(view[-TRAILER_BYTES:], object_bytes=object_bytes)
    if len(view) < length + TRAILER_BYTES:
        raise CorruptObjectError("the footer is cut short")
    _, crc, _ = _TRAILER.unpack(view[-TRAILER_BYTES:])
    footer = view[len(view) - TRAILER_BYTES - length : len(view) - TRAILER_BYTES]
    if crc32c.crc32c(footer) != crc:
        raise CorruptObjectError("the CRC of the footer does not match")
    try:
        return _parse_footer(footer, end=object_bytes - TRAILER_BYTES - length)
    except struct.error as error:
        raise CorruptObjectError("the footer ends in the middle of a run") from error


def _parse_footer(footer: memoryview, *, end: int) -> list[ObjectRun]:
    version, count = _FOOTER.unpack_from(footer)
    if version != _VERSION:
        raise CorruptObjectError(f"the footer has version {version}; this release reads version {_VERSION}")
    at = _FOOTER.size
    if count > (len(footer) - at) // _RUN.size:
        raise CorruptObjectError(f"the footer claims {count} runs, more than it has bytes for")
    runs: list[ObjectRun] = []
    for _ in range(count):
        topic_id, partition, base_offset, position, length, offsets, max_timestamp_ms, crc, batches = (
            _RUN.unpack_from(footer, at)
        )
        at += _RUN.size
        if batches > (len(footer) - at) // _SEQUENCES.size:
            raise CorruptObjectError(f"a run claims {batches} batches, more than the footer has bytes for")
        if position < len(MAGIC) or position + length > end:
            raise CorruptObjectError(
                f"a run lies at bytes {position} to {position + length}, outside the object"
            )
        sequences = tuple(
            SequenceExtent(*_SEQUENCES.unpack_from(footer, at + index * _SEQUENCES.size))
            for index in range(batches)
        )
        at += batches * _SEQUENCES.size
        runs.append(
            ObjectRun(
                topic_id=UUID(bytes=topic_id),
                partition=partition,
                position=position,
                length=length,
                offset_count=offsets,
                max_timestamp_ms=max_timestamp_ms,
                crc=crc,
                base_offset=base_offset,
                sequences=sequences,
            )
        )
    if at != len(footer):
        raise CorruptObjectError("bytes follow the last run of the footer")
    return runs
