"""Finding batches in a segment, by offset and by time.

A segment is a run of batches without bytes between them; only its headers say
where the next one starts. To find the batch that holds an offset:

1. The **offset index** gives the position of some batch at or before it: the last
   entry at or below the offset, or byte 0. An entry stands for about every
   ``index.interval.bytes``, so little is left to walk.
2. From there **walk** the headers, 61 bytes each: base offset and length lead to
   the next. Each must begin at the offset where the one before it ended; known
   damage is jumped over. The batch whose offsets enclose the wanted one is found,
   and the header after it must agree.
3. An **extent** is a range of whole batches from there on. Where it ends is
   looked up in the same index by position, and walked to only if the entry is
   further from the limit than the index is dense.

In a segment that was compacted, a batch may begin later than the one before it
ended, and may have no records. There an offset leads to the first batch with
records that ends at or after it, and to the last batch if none has records:
several clients do not advance past a batch without records.

The first record at or after a time is found likewise: the **time index** gives
an offset before which everything is older, the walk goes from there to the first
batch whose header states a time at or after it, and that batch is decoded.

Indexes are hints and may lie. Whatever does not fit (an entry that points into
the middle of a batch, headers that do not follow each other) raises
``_MisfitError`` inside; the log is then examined once, which rebuilds the indexes
and notes damage, and the search starts again. What still does not fit is
``CorruptLog``, with the offset to go on from.

Functions that take ``nowait`` run on the event loop with True and raise
``WouldBlockError`` instead of waiting for a disk; with False they are for threads
and use a file handle of their own. Sealed segments do not change and the active
one only grows, so both may run beside an append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stele.wire import record_batch as rb

from ..errors import CorruptLog
from .age import RecordAge, age_of_batch, age_of_header
from .scan import follows
from .segment import Segment
from .segment_loader import examine

_T = TypeVar("_T")

# Enough for the headers between two index entries in one read.
_WALK_BYTES = 16 * 1024


class WouldBlockError(Exception):
    """The bytes are not in memory: do this again in a thread, where a disk may be waited for."""


class _MisfitError(Exception):
    """Batches, or batches and index, do not fit together: the log must be examined."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.position = position
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Whole batches: ``size`` bytes from ``position`` of a segment's log.

    ``has_records`` is False if the first of them has none, and so none of them.
    """

    segment: Segment
    position: int
    size: int
    has_records: bool = True

    @property
    def path(self) -> Path:
        return self.segment.path

    def read_nowait(self) -> bytes | bytearray | None:
        """The bytes, if they are in memory; for the event loop."""
        return self.segment.file().read_at_nowait(self.position, self.size)

    def read(self) -> bytes:
        """The bytes, through a handle of its own; for threads."""
        file = self.segment.open_own()
        try:
            return file.read_at(self.position, self.size)
        finally:
            file.close()


def headers(segment: Segment) -> Iterator[rb.BatchHeader]:
    """Every header, CRCs unchecked; for threads.

    Raises:
        CorruptLog: there is damage that was not known; the next call goes around it.
    """
    try:
        yield from _walk(segment, 0, nowait=False)
    except _MisfitError as misfit:
        examine(segment)
        raise _unreadable(segment, misfit) from misfit


# ── by offset ──


def extent_from(
    segment: Segment, offset: int, max_bytes: int, *, at_least_one: bool, nowait: bool
) -> Extent | None:
    """Whole batches from the one that holds ``offset``, up to ``max_bytes``.

    In a compacted segment, it may be a later one. If the first batch is larger, it alone with ``at_least_one``, else None.

    Raises:
        CorruptLog: ``offset`` cannot be read.
        WouldBlockError: see the class.
    """

    def look() -> Extent | None:
        first = _locate(segment, offset, nowait=nowait)
        start = first.position
        if first.size > max_bytes and not at_least_one:
            return None
        end = _end_of_extent(segment, start, first.size, max_bytes, nowait=nowait)
        return Extent(segment=segment, position=start, size=end - start, has_records=first.record_count > 0)

    return _examined(segment, look, nowait=nowait)


def _end_of_extent(segment: Segment, start: int, first_size: int, max_bytes: int, *, nowait: bool) -> int:
    indexes, end = segment.indexes, segment.size
    limit = start + max(max_bytes, first_size)
    if limit < end:
        end = max(start + first_size, indexes.offsets(segment.size).position_before(limit))
        if end < limit - indexes.interval_bytes:
            end = _boundary_before(segment, end, limit, nowait=nowait)
    for damage in segment.corrupt_ranges:
        if start < damage.position < end:
            end = damage.position
    return end


def _boundary_before(segment: Segment, position: int, limit: int, *, nowait: bool) -> int:
    """The last batch boundary at or below ``limit``, from a boundary at ``position``."""
    for header in _walk(segment, position, nowait=nowait):
        if header.position + header.size > limit:
            return header.position
        position = header.position + header.size
    return position


def _locate(segment: Segment, offset: int, *, nowait: bool) -> rb.BatchHeader:
    """Find the batch that holds ``offset``; in a compacted segment see the module."""
    for damage in segment.corrupt_ranges:
        if damage.offset <= offset < damage.next_offset:
            raise segment.corrupt(damage)
    position = segment.indexes.offsets(segment.size).position_for(offset - segment.base_offset)
    walk = _walk(segment, position, nowait=nowait)
    # The last batch that would do but has no records.
    empty: rb.BatchHeader | None = None
    for header in walk:
        if empty is not None and header.position != empty.position + empty.size:
            # The bytes between them are corrupt: a reader must get there.
            return empty
        if header.base_offset > offset and not segment.may_have_holes:
            break
        if header.next_offset > offset:
            if not header.record_count and header.next_offset != segment.next_offset:
                empty = header
                continue
            # The next batch bears witness that this one really holds the offset.
            following = next(walk, None)
            if following is None and segment.is_sealed and not _may_end_at(segment, header.next_offset):
                break
            return header
    if empty is not None:
        return empty
    raise _MisfitError(position, f"no batch holds offset {offset}")


def _may_end_at(segment: Segment, next_offset: int) -> bool:
    return next_offset == segment.next_offset or any(d.offset == next_offset for d in segment.corrupt_ranges)


# ── by time ──


def confirm_newest(segment: Segment) -> None:
    """See that ``max_timestamp`` of a segment from before the start is what the batches say; for threads."""
    if not segment.indexes.is_newest_confirmed:
        _examined(segment, lambda: _check_newest(segment), nowait=False)
        segment.indexes.is_newest_confirmed = True


def _check_newest(segment: Segment) -> None:
    indexes = segment.indexes
    relative_offset = max(0, indexes.max_timestamp_offset - segment.base_offset)
    is_found = indexes.max_timestamp == rb.NO_TIMESTAMP
    start = indexes.offsets(segment.size).position_for(relative_offset)
    for header in _walk(segment, start, nowait=False):
        if header.max_timestamp > indexes.max_timestamp:
            raise _MisfitError(header.position, "the time index does not know the newest batch")
        is_found = is_found or (
            header.last_offset == indexes.max_timestamp_offset
            and header.max_timestamp == indexes.max_timestamp
        )
    if not is_found:
        raise _MisfitError(0, "the newest entry of the time index does not stand for a batch")


def find_time(segment: Segment, timestamp_ms: int) -> tuple[int, int, int] | None:
    """``(offset, timestamp, leader epoch)`` of the first record at or after ``timestamp_ms``; for threads.

    Raises:
        CorruptLog: the batch that must be opened does not pass its CRC.
    """
    confirm_newest(segment)
    if timestamp_ms > segment.max_timestamp:
        return None
    return _examined(segment, lambda: _find_time(segment, timestamp_ms), nowait=False)


def _find_time(segment: Segment, timestamp_ms: int) -> tuple[int, int, int] | None:
    entry, is_from_disk = segment.indexes.time_entry(timestamp_ms)
    position = segment.indexes.offsets(segment.size).position_for(entry[1]) if entry else 0
    for header in _walk(segment, position, nowait=False):
        if entry and is_from_disk and header.last_offset >= segment.base_offset + entry[1]:
            # An entry that does not stand for a batch could lead past what is looked for.
            if (header.max_timestamp, header.last_offset - segment.base_offset) != entry:
                raise _MisfitError(header.position, "the time index does not fit the log")
            entry = None
        if header.max_timestamp < timestamp_ms:
            continue
        record = _first_at(segment, header, timestamp_ms)
        if record is not None:
            return record.offset, record.timestamp, header.partition_leader_epoch
    return None


def _first_at(segment: Segment, header: rb.BatchHeader, timestamp_ms: int) -> rb.RecordView | None:
    raw = Extent(segment=segment, position=header.position, size=header.size).read()
    try:
        rb.check_batch(raw)
    except rb.CorruptBatchError as error:
        raise _MisfitError(header.position, error.reason) from error
    try:
        return rb.first_record(raw, timestamp_ms=timestamp_ms)
    except rb.CorruptBatchError as error:
        # As its producer sent it: the CRC is right.
        raise CorruptLog(
            path=segment.path,
            position=header.position,
            offset=header.base_offset,
            next_offset=header.next_offset,
            reason=error.reason,
        ) from error


def read_record_age(segment: Segment) -> None:
    """Read the times of all records, for ``segment.record_age``; for threads.

    Raises:
        CorruptLog: there is damage that was not known; the next call goes around it.
    """
    size, age = segment.size, RecordAge()
    for header in headers(segment):
        if header.position >= size:
            break
        stated = age_of_header(header)
        if stated is None:
            stated = age_of_batch(Extent(segment=segment, position=header.position, size=header.size).read())
        age |= stated
    segment.set_record_age(age, log_bytes=size)


# ── the walk ──


def _walk(segment: Segment, position: int, *, nowait: bool) -> Iterator[rb.BatchHeader]:
    """Headers from ``position`` on, jumping over known damage. Raises ``_MisfitError``."""
    jumps = {damage.position: damage.end_position for damage in segment.corrupt_ranges}
    file = segment.file() if nowait else segment.open_own()
    try:
        window, start, expected = b"", position, -1 if position else segment.base_offset
        for damage in segment.corrupt_ranges:
            if damage.position < position < damage.end_position:
                position, start = damage.end_position, damage.end_position
        while position < segment.size:
            if position in jumps:
                position, expected = jumps[position], -1
                continue
            at = position - start
            if at + rb.HEADER_BYTES > len(window):
                size = min(_WALK_BYTES, segment.size - position)
                got = file.read_at_nowait(position, size) if nowait else file.read_at(position, size)
                if got is None:
                    raise WouldBlockError
                window, start, at = got, position, 0
            header = _fitting_header(segment, window, at, position, expected)
            yield header
            position += header.size
            expected = header.next_offset
    finally:
        if not nowait:
            file.close()


def _fitting_header(
    segment: Segment, window: bytes | bytearray, at: int, position: int, expected: int
) -> rb.BatchHeader:
    """The header at byte ``at`` of ``window``, which is byte ``position`` of the log.

    ``expected`` is the base offset it must have, or in a compacted segment the lowest, -1 if any will do.
    """
    try:
        header = rb.read_header(window, at)
        if expected >= 0 and not follows(header, expected, may_have_holes=segment.may_have_holes):
            raise rb.CorruptBatchError(f"base offset is {header.base_offset}, expected {expected}")
        if position + header.size > segment.size:
            raise rb.CorruptBatchError("the batch is longer than the segment")
    except rb.CorruptBatchError as error:
        raise _MisfitError(position, error.reason) from error
    header.position = position
    return header


def _examined(segment: Segment, look: Callable[[], _T], *, nowait: bool) -> _T:
    """The result of ``look``; if something does not fit, the log is examined and ``look`` tried again."""
    try:
        return look()
    except _MisfitError as misfit:
        if nowait:
            raise WouldBlockError from misfit
    examine(segment)
    try:
        return look()
    except _MisfitError as misfit:
        raise _unreadable(segment, misfit) from misfit


def _unreadable(segment: Segment, misfit: _MisfitError) -> CorruptLog:
    """What an examination makes of ``misfit``: the first damage that ends at or after it."""
    for damage in segment.corrupt_ranges:
        if damage.end_position >= misfit.position:
            return segment.corrupt(damage)
    return CorruptLog(
        path=segment.path,
        position=misfit.position,
        offset=segment.base_offset,
        next_offset=segment.next_offset,
        reason=misfit.reason,
    )
