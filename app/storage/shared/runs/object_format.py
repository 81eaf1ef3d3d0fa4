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
NO_OFFSET = -1
# With the holes of a copy, a run may take more offsets.
_COUNT_MAX = 2**32 - 1


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
    batches take. ``base_offset`` is known in merged objects and of copies, otherwise -1. ``crc`` is the CRC-32C of
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
                min(run.offset_count, _COUNT_MAX),
                run.max_timestamp_ms,
                run.crc,
                len(run.sequences),
            )
        )
        parts += (_SEQUENCES.pack(*extent) for extent in run.sequences)
    footer = b"".join(parts)
    return footer + _TRAILER.pack(len(footer), crc32c.crc32c(footer), MAGIC)
