"""Find batches in a segment, by offset and by time.

A segment is a sequence of adjacent batches; the header of each says where the next
one starts. To find the batch with an offset:

1. Look up the position of an earlier batch in the **offset index**: that of the last
   entry at or below the offset, or byte 0. There is about one entry per
   ``index.interval.bytes``, so the walk that follows is short.
2. **Walk** the headers from there, 61 bytes each: base offset and length lead to
   the next. Each must begin at the offset where the previous one ended; known
   corrupt ranges are skipped. Stop at the batch whose range includes the offset; the
   header after it must follow it.
3. An **extent** is a range of whole batches from there on. The same index gives its
   end, by position. If that is further from the limit than the interval of the
   index, walk to the last batch before the limit.

In a compacted segment, a batch may begin later than the previous one ended, and may
have no records. There an offset leads to the first batch with records that ends at
or after it, and to the last batch if none has records, because several clients do
not advance past a batch without records.

The first record at or after a time is located similarly: the **time index** gives
an offset before which all records are older, the walk leads from there to the first
batch whose header has a timestamp at or after the time, and that batch is decoded.

Indexes are hints and may be wrong. If something does not match (an entry that points
into the middle of a batch, headers that do not follow each other), ``_MisfitError`` is
raised internally. The log is then examined once, which rebuilds the indexes and notes
corrupt ranges, and the search is repeated. If that fails too, it raises
``CorruptLog`` with the offset to continue from.

Functions with a parameter ``nowait`` run on the event loop if it is True, and raise
``WouldBlockError`` instead of waiting for a disk. If it is False they are for threads,
and use a file handle of their own. Sealed segments do not change and the active
one only grows, so both may run during an append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stele.wire import record_batch as rb

from ...errors import CorruptLog
from ..config_types import INT64_MAX
from .age import RecordAge, age_of_batch, age_of_header
from .loader import examine
from .scan import follows
from .segment import Segment
from .single_read import read_at_once

_T = TypeVar("_T")

# Larger reads go to a thread: copying takes about half a millisecond per MiB.
READ_NOW_BYTES = 4 * 1024 * 1024
# Enough for the headers between two index entries in one read.
_WALK_BYTES = 16 * 1024


class WouldBlockError(Exception):
    """The bytes are not in memory; repeat the call in a thread, which may wait for a disk."""


class _MisfitError(Exception):
    """Batches do not match each other or the index, so the log must be examined."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.position = position
        self.reason = reason


# Not frozen, because there is one per read, and a frozen instance takes twice as long to make.
@dataclass(slots=True, kw_only=True)
class Extent:
    """Whole batches: ``size`` bytes from ``position`` of a segment's log.

    ``has_records`` is False if the first of them has none; then none of them has any. ``data`` are the bytes, if
    the search has read them.
    """

    segment: Segment
    position: int
    size: int
    has_records: bool = True
    data: bytes | bytearray | None = None

    @property
    def path(self) -> Path:
        return self.segment.path

    def read_nowait(self) -> bytes | bytearray | None:
        """Return the bytes if they are in memory, and few enough to be copied at once; for the event loop."""
        if self.data is not None:
            return self.data
        if self.size > READ_NOW_BYTES:
            return None
        return self.segment.file().read_at_nowait(self.position, self.size)

    def read(self) -> bytes:
        """Return the bytes, read through a file handle of its own; for threads."""
        file = self.segment.open_own()
        try:
            return file.read_at(self.position, self.size)
        finally:
            file.close()


def headers(segment: Segment, *, from_offset: int = 0) -> Iterator[rb.BatchHeader]:
    """Yield every header, without checking CRCs; for threads.

    Those of batches that end before ``from_offset`` may be left out.

    Raises:
        CorruptLog: a corrupt range was not known; the next call skips it.
    """
    try:
        yield from _walk(segment, _start_for(segment, from_offset), nowait=False)
    except _MisfitError as misfit:
        examine(segment)
        raise _unreadable(segment, misfit) from misfit


def _start_for(segment: Segment, offset: int) -> int:
    """Return the position of a batch that begins at or before ``offset``, near it."""
    if offset <= segment.base_offset:
        return 0
    return segment.indexes.offsets(segment.size).position_for(offset - segment.base_offset)


# ── by offset ──


def extent_from(
    segment: Segment,
    offset: int,
    max_bytes: int,
    *,
    at_least_one: bool,
    end_offset: int = INT64_MAX,
    nowait: bool,
) -> Extent | None:
    """Return whole batches of up to ``max_bytes``, from ``offset`` to ``end_offset``.

    In a compacted segment, the first may be a later one. If it is larger than ``max_bytes``, it is
    returned alone with ``at_least_one``, otherwise None. A batch begins at ``end_offset``, or the log
    ends before it.

    Raises:
        CorruptLog: ``offset`` cannot be read.
        WouldBlockError: see the class.
    """
    if nowait and (found := read_at_once(segment, offset, max_bytes, end_offset=end_offset)) is not None:
        position, data = found
        return Extent(segment=segment, position=position, size=len(data), data=data)

    def look() -> Extent | None:
        first = _locate(segment, offset, nowait=nowait)
        start = first.position
        if first.size > max_bytes and not at_least_one:
            return None
        if first.base_offset >= end_offset:
            return None
        end = _end_of_extent(segment, start, first.size, max_bytes, nowait=nowait)
        if end_offset < segment.next_offset:
            end = min(end, _position_of(segment, end_offset, nowait=nowait))
        return Extent(segment=segment, position=start, size=end - start, has_records=first.record_count > 0)

    return _examined(segment, look, nowait=nowait)


def extent_with_records(
    segments: list[Segment],
    offset: int,
    max_bytes: int,
    *,
    at_least_one: bool,
    end_offset: int,
    nowait: bool,
) -> Extent | None:
    """Find the extent like ``extent_from``, beyond a first segment without records.

    It has none from ``offset`` on.

    If there are no records up to the end of the log, the last batches without records are found.
    """
    extent: Extent | None = None
    for segment in segments:
        if extent is not None and (not segment.size or segment.base_offset >= end_offset):
            break
        extent = extent_from(
            segment,
            max(offset, segment.base_offset),
            max_bytes,
            at_least_one=at_least_one,
            end_offset=end_offset,
            nowait=nowait,
        )
        if extent is None or extent.has_records:
            break
    return extent


def _end_of_extent(segment: Segment, start: int, first_size: int, max_bytes: int, *, nowait: bool) -> int:
    indexes, end = segment.indexes, segment.size
    limit = start + max(max_bytes, first_size)
    if limit < end:
        end = max(start + first_size, indexes.offsets(segment.size).position_before(limit))
        if end < limit - indexes.interval_bytes:
            end = _boundary_before(segment, end, limit, nowait=nowait)
    for corrupt_range in segment.corrupt_ranges:
        if start < corrupt_range.position < end:
            end = corrupt_range.position
    return end


def position_of(segment: Segment, offset: int) -> int:
    """Return the position of the first batch that begins at ``offset`` or later; for threads.

    Raises ``CorruptLog``: the batches before it cannot be read.
    """
    return _examined(segment, lambda: _position_of(segment, offset, nowait=False), nowait=False)


def _position_of(segment: Segment, offset: int, *, nowait: bool) -> int:
    """Return the position of the first batch that begins at ``offset`` or later."""
    start = segment.indexes.offsets(segment.size).position_for(offset - segment.base_offset)
    for header in _walk(segment, start, nowait=nowait):
        if header.base_offset >= offset:
            return header.position
    return segment.size


def _boundary_before(segment: Segment, position: int, limit: int, *, nowait: bool) -> int:
    """Return the last batch boundary up to ``limit``; ``position`` is a boundary."""
    for header in _walk(segment, position, nowait=nowait):
        if header.position + header.size > limit:
            return header.position
        position = header.position + header.size
    return position


def _locate(segment: Segment, offset: int, *, nowait: bool) -> rb.BatchHeader:
    """Find the batch with ``offset``, or in a compacted segment one after it.

    The module describes the search.
    """
    for corrupt_range in segment.corrupt_ranges:
        if corrupt_range.offset <= offset < corrupt_range.next_offset:
            raise segment.corrupt(corrupt_range)
    position = segment.indexes.offsets(segment.size).position_for(offset - segment.base_offset)
    walk = _walk(segment, position, nowait=nowait)
    # The last batch that ends after the offset, but has no records.
    empty: rb.BatchHeader | None = None
    for header in walk:
        if empty is not None and header.position != empty.position + empty.size:
            # The bytes between them are corrupt: the reader must be told when it gets there.
            return empty
        if header.base_offset > offset and not segment.may_have_holes:
            break
        if header.next_offset > offset:
            if not header.record_count and header.next_offset != segment.next_offset:
                empty = header
                continue
            # The next header confirms that this batch really includes the offset.
            following = next(walk, None)
            if following is None and segment.is_sealed and not _may_end_at(segment, header.next_offset):
                break
            return header
    if empty is not None:
        return empty
    raise _MisfitError(position, f"no batch holds offset {offset}")


def _may_end_at(segment: Segment, next_offset: int) -> bool:
    return next_offset == segment.next_offset or any(
        corrupt_range.offset == next_offset for corrupt_range in segment.corrupt_ranges
    )


# ── by time ──


def confirm_newest(segment: Segment) -> None:
    """Check ``max_timestamp`` of a loaded segment against its batches; for threads."""
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
            raise _MisfitError(header.position, "the time index does not include the newest batch")
        is_found = is_found or (
            header.last_offset == indexes.max_timestamp_offset
            and header.max_timestamp == indexes.max_timestamp
        )
    if not is_found:
        raise _MisfitError(0, "the newest entry of the time index matches no batch")


def find_time(segment: Segment, timestamp_ms: int, *, from_offset: int = 0) -> tuple[int, int, int] | None:
    """Find the first record at or after a time and an offset; for threads.

    Returns ``(offset, timestamp, leader epoch)``, or None if there is none.

    Raises:
        CorruptLog: the CRC of the batch with the record does not match.
    """
    if segment.next_offset <= from_offset:
        return None
    confirm_newest(segment)
    if timestamp_ms > segment.max_timestamp:
        return None
    return _examined(segment, lambda: _find_time(segment, timestamp_ms, from_offset), nowait=False)


def _find_time(segment: Segment, timestamp_ms: int, from_offset: int) -> tuple[int, int, int] | None:
    entry, is_from_disk = segment.indexes.time_entry(timestamp_ms)
    position = segment.indexes.offsets(segment.size).position_for(entry[1]) if entry else 0
    start = _start_for(segment, from_offset)
    if start > position:
        # What was deleted before it proves nothing about the entry.
        position, entry = start, None
    for header in _walk(segment, position, nowait=False):
        if entry and is_from_disk and header.last_offset >= segment.base_offset + entry[1]:
            # An entry that matches no batch could lead past the record.
            if (header.max_timestamp, header.last_offset - segment.base_offset) != entry:
                raise _MisfitError(header.position, "the time index does not match the log")
            entry = None
        if header.max_timestamp < timestamp_ms or header.last_offset < from_offset:
            continue
        record = _first_at(segment, header, timestamp_ms, from_offset)
        if record is not None:
            return record.offset, record.timestamp, header.partition_leader_epoch
    return None


def _first_at(
    segment: Segment, header: rb.BatchHeader, timestamp_ms: int, from_offset: int
) -> rb.RecordView | None:
    raw = Extent(segment=segment, position=header.position, size=header.size).read()
    try:
        rb.check_batch(raw)
    except rb.CorruptBatchError as error:
        raise _MisfitError(header.position, error.reason) from error
    try:
        return rb.first_record(raw, from_offset=from_offset, timestamp_ms=timestamp_ms)
    except rb.CorruptBatchError as error:
        # Its producer sent it so: the CRC matches.
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
        CorruptLog: a corrupt range was not known; the next call skips it.
    """
    size, age = segment.size, RecordAge()
    for header in headers(segment):
        if header.position >= size:
            break
        batch_age = age_of_header(header)
        if batch_age is None:
            extent = Extent(segment=segment, position=header.position, size=header.size)
            batch_age = age_of_batch(extent.read())
        age |= batch_age
    segment.set_record_age(age, log_bytes=size)


# ── the walk ──


def _walk(segment: Segment, position: int, *, nowait: bool) -> Iterator[rb.BatchHeader]:
    """Yield the headers from ``position`` on, without known corrupt ranges.

    Raises ``_MisfitError``.
    """
    jumps = {corrupt_range.position: corrupt_range.end_position for corrupt_range in segment.corrupt_ranges}
    file = segment.file() if nowait else segment.open_own()
    try:
        window, start, expected = b"", position, -1 if position else segment.base_offset
        for corrupt_range in segment.corrupt_ranges:
            if corrupt_range.position < position < corrupt_range.end_position:
                position = start = corrupt_range.end_position
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
    """Return the header at byte ``at`` of ``window``.

    The window begins at byte ``position`` of the log.

    ``expected`` is its base offset, or the lowest one in a compacted segment; -1 if unknown.
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
    """Return the result of ``look``; after a misfit, examine the log and call ``look`` again."""
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
    """Return the error for ``misfit``: the first corrupt range that ends at or after it, if any."""
    for corrupt_range in segment.corrupt_ranges:
        if corrupt_range.end_position >= misfit.position:
            return segment.corrupt(corrupt_range)
    return CorruptLog(
        path=segment.path,
        position=misfit.position,
        offset=segment.base_offset,
        next_offset=segment.next_offset,
        reason=misfit.reason,
    )
