"""Read the footer of an object, which the broker only writes (``docs/formats/objects.md``)."""

from __future__ import annotations

import struct
from uuid import UUID

import crc32c

from app.storage.shared.runs.object_format import MAGIC, ObjectRun, SequenceExtent

_TRAILER = struct.Struct(">II8s")
_RUN = struct.Struct(">16siqqIIqII")
_SEQUENCES = struct.Struct(">Iqhii")


def read_footer(data: bytes) -> list[ObjectRun]:
    """Return the runs of an object; an assertion fails if its end is no footer."""
    length, crc, magic = _TRAILER.unpack(data[-_TRAILER.size :])
    assert magic == MAGIC
    footer = data[-_TRAILER.size - length : -_TRAILER.size]
    assert (len(footer), crc32c.crc32c(footer)) == (length, crc)
    version, count = struct.unpack_from(">hI", footer)
    assert version == 1
    at = struct.calcsize(">hI")
    runs: list[ObjectRun] = []
    for _ in range(count):
        topic_id, partition, base_offset, position, size, offsets, max_timestamp_ms, run_crc, batches = (
            _RUN.unpack_from(footer, at)
        )
        at += _RUN.size
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
                length=size,
                offset_count=offsets,
                max_timestamp_ms=max_timestamp_ms,
                crc=run_crc,
                base_offset=base_offset,
                sequences=sequences,
            )
        )
    assert at == len(footer)
    return runs
