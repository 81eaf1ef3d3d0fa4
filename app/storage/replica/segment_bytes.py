"""Bytes of segments on their way into objects, and the comparison with what objects have; for threads.

Segments only grow, and sealed ones never change, so the bytes of a mark can be read at any time, until retention or
compaction has removed the file.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import UUID

import crc32c
from stele.wire import record_batch as rb

from ..disk.files import File
from ..segments.segment import Segment
from ..shared.runs.object_format import ObjectRun, footer_bytes, header_bytes
from .cut import RunSpan
from .state import PartitionKey

_LENGTH_AND_EPOCH = 12
_LENGTH = struct.Struct(">i")
_READ_BYTES = 4 << 20


class SegmentVanished(Exception):
    """The file of a segment was removed, or replaced by compaction."""


class Piece(NamedTuple):
    """Bytes of a segment that are to be one run; ``next_offset`` follows the last record in them."""

    key: PartitionKey
    segment: Segment
    start: int
    end: int
    base_offset: int
    next_offset: int


class BuiltRun(NamedTuple):
    """A run of an object. Its bytes are those of ``piece``, or of the beginning of it if these were too many."""

    piece: Piece
    position: int
    length: int
    crc: int
    next_offset: int

    def span(self, key: str) -> RunSpan:
        return RunSpan(key, self.position, self.length, self.crc, self.piece.base_offset)

    @property
    def rest(self) -> Piece | None:
        """What is left of the piece."""
        start = self.piece.start + self.length
        if start == self.piece.end:
            return None
        return self.piece._replace(start=start, base_offset=self.next_offset)


class BuiltObject(NamedTuple):
    data: bytes
    runs: Sequence[BuiltRun]


def build_object(pieces: Sequence[Piece], bytes_max: int) -> BuiltObject:
    """Return an object with one run for each piece.

    Of a piece with more than ``bytes_max`` it has the first whole batches only.

    Raises:
        SegmentVanished: see there.
        OSError: the disk failed.
    """
    parts: list[bytes] = [header_bytes()]
    position = len(parts[0])
    built: list[BuiltRun] = []
    runs: list[ObjectRun] = []
    for piece in pieces:
        with _opened(piece.segment) as file:
            data, next_offset = _read(file, piece, bytes_max)
        run = BuiltRun(piece, position, len(data), crc32c.crc32c(data), next_offset)
        parts.append(data)
        built.append(run)
        runs.append(
            ObjectRun(
                topic_id=UUID(piece.key.topic_id),
                partition=piece.key.partition,
                position=position,
                length=len(data),
                offset_count=next_offset - piece.base_offset,
                max_timestamp_ms=piece.segment.max_timestamp,
                crc=run.crc,
                base_offset=piece.base_offset,
            )
        )
        position += len(data)
    parts.append(footer_bytes(runs))
    return BuiltObject(b"".join(parts), built)


def matching_runs(segment: Segment, size: int, runs: Sequence[RunSpan], *, trusted_bytes: int) -> int:
    """Return how many of ``runs`` are certainly the first bytes of the segment, which has ``size``.

    Runs are compared from the last one on, because a log that was cut differs at its end. Those before the last
    ``trusted_bytes`` that were compared count as equal: 0 or more; -1 compares all of them.

    Raises:
        SegmentVanished: see there.
        OSError: the disk failed.
    """
    ends: list[int] = []
    position = 0
    for run in runs:
        position += run.length
        if position > size:
            break
        ends.append(position)
    count, compared = len(ends), 0
    with _opened(segment) as file:
        for number in range(len(ends) - 1, -1, -1):
            run = runs[number]
            if _crc(file, ends[number] - run.length, run.length) != run.crc:
                count, compared = number, 0
                continue
            compared += run.length
            if 0 <= trusted_bytes <= compared:
                break
    return count


@contextmanager
def _opened(segment: Segment) -> Generator[File]:
    try:
        file = segment.open_own()
    except FileNotFoundError as error:
        raise SegmentVanished(str(segment.path)) from error
    try:
        yield file
    finally:
        file.close()


def _read(file: File, piece: Piece, bytes_max: int) -> tuple[bytes, int]:
    length = piece.end - piece.start
    data = file.read_at(piece.start, min(length, bytes_max))
    if len(data) < min(length, bytes_max):
        raise SegmentVanished(f"{file.path} ends before byte {piece.end}")
    if length <= bytes_max:
        return data, piece.next_offset
    whole, last = _whole_batches(data)
    # No batch at all: recovery has left it there.
    with suppress(rb.CorruptBatchError):
        if whole:
            return data[:whole], rb.read_header(data, last).next_offset
        # One batch that is larger.
        size = _batch_size(data, 0)
        if bytes_max < size <= length:
            return file.read_at(piece.start, size), rb.read_header(data, 0).next_offset
    return data, piece.base_offset


def _whole_batches(data: bytes) -> tuple[int, int]:
    """Return where the last whole batch ends, and where it begins; (0, 0) without one."""
    position = last = 0
    while position + rb.HEADER_BYTES <= len(data):
        size = _batch_size(data, position)
        if size < rb.HEADER_BYTES or position + size > len(data):
            break
        last, position = position, position + size
    return position, last


def _batch_size(data: bytes, position: int) -> int:
    return _LENGTH.unpack_from(data, position + 8)[0] + _LENGTH_AND_EPOCH


def _crc(file: File, position: int, length: int) -> int:
    crc = 0
    while length:
        data = file.read_at(position, min(length, _READ_BYTES))
        if not data:
            return -1
        crc = crc32c.crc32c(data, crc)
        position += len(data)
        length -= len(data)
    return crc
