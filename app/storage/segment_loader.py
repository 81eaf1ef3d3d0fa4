"""Bringing a segment back: from what a clean shutdown left, or from its log alone.

====================  =====================================================  ==================
what is there          what is read                                           function
====================  =====================================================  ==================
sealed, trusted        the last entry of each index                           ``adopt_sealed``
active, clean stop     both indexes, and the headers after their last entry   ``adopt_active``
after a crash          every batch, its CRC checked                           ``rebuild``
something misfits      every batch, its CRC checked                           ``examine``
====================  =====================================================  ==================

The log counts: an index that does not fit it is built from it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from stele.wire import record_batch as rb

from .scan import CorruptRange, follows, scan_batches
from .segment import UNINDEXED_BYTES, Segment

logger = logging.getLogger(__name__)

# Headers read one by one at a start; more after the last index entry are a sign of damage.
_WALK_BATCHES_MAX = 4096


def adopt_sealed(segment: Segment, *, next_offset: int) -> bool:
    """Take a sealed segment as it lies on the disk, reading no log.

    Returns False when its indexes were missing or could not be its own, and the
    log had to be read after all.
    """
    segment.size = segment.files.size(segment.path)
    segment.appended_ms = segment.files.modified_ms(segment.path)
    segment.next_offset = next_offset
    segment.is_sealed = True
    is_fit = segment.indexes.adopt_bounds(
        next_offset=next_offset,
        log_bytes=segment.size,
        first_timestamp=lambda: first_timestamp(segment),
    )
    if not is_fit:
        examine(segment)
        segment.write_indexes()
        segment.release()
    return is_fit


def first_timestamp(segment: Segment) -> int:
    """The newest time that the first batch states, in ms, -1 if it states none; for threads."""
    file = segment.open_own()
    try:
        return rb.read_header(file.read_at(0, rb.HEADER_BYTES)).max_timestamp
    except rb.CorruptBatchError:
        return rb.NO_TIMESTAMP
    finally:
        file.close()


def adopt_active(segment: Segment) -> bool:
    """Take the active segment after a clean shutdown: its indexes, and the headers after their last entry.

    Returns False when they do not fit together: then it must be scanned.
    """
    indexes, file = segment.indexes, segment.file()
    size = file.size()
    # A clean shutdown writes no indexes of a small one.
    if not indexes.load(log_bytes=size, may_be_missing=size <= UNINDEXED_BYTES):
        return False
    try:
        if (entry := indexes.last_entry()) is not None:
            # The last entry itself stands for the batch that it points to.
            last_offset, position = entry
            header = rb.read_header(file.read_at(position, rb.HEADER_BYTES))
            if header.last_offset != last_offset:
                return False
            indexes.resume_after(header)
            segment.next_offset = header.next_offset
            segment.size = position + header.size
        walked = 0
        while segment.size < size:
            header = rb.read_header(file.read_at(segment.size, rb.HEADER_BYTES))
            walked += 1
            is_next = follows(header, segment.next_offset, may_have_holes=segment.may_have_holes)
            if not is_next or walked > _WALK_BATCHES_MAX:
                return False
            segment.note(header, segment.size)
        if segment.size != size or indexes.max_timestamp_offset > segment.next_offset:
            return False
        if size:
            _adopt_times(segment, rb.read_header(file.read_at(0, rb.HEADER_BYTES)).max_timestamp)
    except rb.CorruptBatchError:
        return False
    indexes.is_newest_confirmed = False
    return True


def _adopt_times(segment: Segment, first_ms: int) -> None:
    """When a segment from before the start was last appended to, and about when it began.

    ``first_ms`` is the time of its first batch.
    """
    segment.appended_ms = segment.files.modified_ms(segment.path)
    # A producer may have dated its records at will; the file is no newer than its last change.
    segment.created_ms = first_ms if 0 <= first_ms <= segment.appended_ms else segment.appended_ms


def rebuild(segment: Segment, *, end: int | None = None) -> Iterator[rb.BatchHeader | CorruptRange]:
    """Scan the log (up to byte ``end``), building indexes and bounds; yields what the scan finds.

    The caller decides on each damage: to go on keeps it in ``corrupt_ranges``, to stop
    leaves ``size`` at the end of the last batch before it.
    """
    segment.next_offset, segment.size = segment.base_offset, 0
    segment.indexes.clear()
    segment.corrupt_ranges = []
    for found in scan_batches(
        segment.file(),
        expected_offset=segment.base_offset,
        end=end,
        may_have_holes=segment.may_have_holes,
    ):
        yield found
        if isinstance(found, CorruptRange):
            segment.corrupt_ranges.append(found)
            segment.next_offset, segment.size = found.next_offset, found.end_position
        else:
            if segment.size == 0:
                _adopt_times(segment, found.max_timestamp)
            segment.note(found, found.position)


def examine(segment: Segment) -> None:
    """Read the whole log and note every damage, because something did not fit; for threads.

    The indexes of a sealed segment are built again on the way: they may be what
    is wrong. Those of the active one come from memory and are right.
    """
    indexes = segment.indexes
    read = segment.unread()
    try:
        for _ in rebuild(read, end=segment.size):
            pass
    finally:
        read.release()
    if segment.is_sealed:
        read.lose_until(segment.next_offset)
        indexes.replace(read.indexes)
    if segment.is_sealed or read.indexes.max_timestamp > indexes.max_timestamp:
        indexes.max_timestamp = read.indexes.max_timestamp
        indexes.max_timestamp_offset = read.indexes.max_timestamp_offset
    for damage in read.corrupt_ranges:
        if damage not in segment.corrupt_ranges:
            logger.error("%s", segment.corrupt(damage))
    segment.corrupt_ranges = read.corrupt_ranges
