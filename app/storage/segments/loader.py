"""Load a segment from the files of a clean shutdown, or from its log alone.

=====================  =====================================================  ==================
segment                what is read                                           function
=====================  =====================================================  ==================
sealed, trusted        the last entry of each index                           ``adopt_sealed``
active, clean start    both indexes, and the headers after their last entry   ``adopt_active``
after a crash          every batch, its CRC checked                           ``rebuild``
index and log differ   every batch, its CRC checked                           ``examine``
=====================  =====================================================  ==================

The log is the truth: an index that does not match it is rebuilt from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from stele.wire import record_batch as rb

from .age import RecordAge
from .remote_segments import RemoteLog
from .scan import CorruptRange, follows, scan_batches
from .segment import UNINDEXED_BYTES, Segment
from .transaction_index import TransactionIndex

logger = logging.getLogger(__name__)

# Headers read one by one at a start; more than these after the last index entry are a sign of corruption.
_WALK_BATCHES_MAX = 4096


def adopt_sealed(segment: Segment, *, next_offset: int) -> bool:
    """Load a sealed segment without reading its log.

    Returns False if its indexes were missing or could not belong to it, so that the
    log had to be read. Its aborted transactions are then not known (``transaction_rebuild``).
    """
    segment.size = segment.files.size(segment.path)
    segment.appended_ms = segment.files.modified_ms(segment.path)
    segment.next_offset = next_offset
    segment.is_sealed = True
    is_valid = segment.indexes.adopt_bounds(
        next_offset=next_offset,
        log_bytes=segment.size,
        first_timestamp=lambda: first_timestamp(segment),
    )
    if not is_valid:
        examine(segment)
        segment.write_indexes()
        segment.release()
        return False
    return segment.load_aborted()


def adopt_remote(segment: Segment, remote: RemoteLog) -> bool:
    """Load a segment whose log is in a bucket, without reading that; returns as ``adopt_sealed``."""
    segment.remote, known = remote, remote.known
    segment.size, segment.next_offset = known.size, known.next_offset
    segment.created_ms, segment.appended_ms = known.created_ms, known.appended_ms
    segment.set_record_age(RecordAge(known.newest_ms, known.has_untimed), log_bytes=known.size)
    segment.is_sealed = True
    is_valid = segment.indexes.adopt_bounds(
        next_offset=known.next_offset, log_bytes=known.size, first_timestamp=lambda: first_timestamp(segment)
    )
    if not is_valid:
        examine(segment)
        segment.write_indexes()
        segment.release()
        return False
    # Checked before the log left the disk.
    segment.indexes.is_newest_confirmed = True
    return segment.load_aborted()


def first_timestamp(segment: Segment) -> int:
    """Return the newest timestamp of the first batch, in ms, -1 if it has none; for threads."""
    file = segment.open_own()
    try:
        return rb.read_header(file.read_at(0, rb.HEADER_BYTES)).max_timestamp
    except rb.CorruptBatchError:
        return rb.NO_TIMESTAMP
    finally:
        file.close()


def adopt_active(segment: Segment) -> bool:
    """Load the active segment from its indexes and the headers after their last entry.

    For a clean start. Returns False if they do not match: then the log must be scanned.
    """
    indexes, file = segment.indexes, segment.file()
    size = file.size()
    # A clean shutdown writes no indexes of a small segment.
    if not indexes.load(log_bytes=size, may_be_missing=size <= UNINDEXED_BYTES):
        return False
    try:
        if (entry := indexes.last_entry()) is not None:
            # The last entry is that of the batch at its position.
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
    return segment.load_aborted()


def _adopt_times(segment: Segment, first_ms: int) -> None:
    """Set the times of the first and the last append of a loaded segment.

    ``first_ms`` is the timestamp of its first batch.
    """
    segment.appended_ms = segment.files.modified_ms(segment.path)
    # Producers choose timestamps freely; the first append was no later than the last change of the file.
    segment.created_ms = first_ms if 0 <= first_ms <= segment.appended_ms else segment.appended_ms


def rebuild(segment: Segment, *, end: int | None = None) -> Iterator[rb.BatchHeader | CorruptRange]:
    """Scan the log up to ``end``, rebuild indexes and bounds, and yield the batches.

    The caller adds aborted transactions, for which it must know those that were open before. At a
    corrupt range the caller decides: if it continues, the range is added to
    ``corrupt_ranges``; if it stops, ``size`` is the end of the last batch before the range.
    """
    segment.next_offset, segment.size = segment.base_offset, 0
    segment.indexes.clear()
    segment.aborted = TransactionIndex()
    segment.corrupt_ranges = []
    for scanned in scan_batches(
        segment.file(),
        expected_offset=segment.base_offset,
        end=end,
        may_have_holes=segment.may_have_holes,
    ):
        yield scanned
        if isinstance(scanned, CorruptRange):
            segment.corrupt_ranges.append(scanned)
            segment.next_offset, segment.size = scanned.next_offset, scanned.end_position
        else:
            if segment.size == 0:
                _adopt_times(segment, scanned.max_timestamp)
            segment.note(scanned, scanned.position)


def examine(segment: Segment) -> None:
    """Read the whole log and note every corrupt range; for threads.

    Called because a batch or an index did not match the log.

    This also rebuilds the indexes of a sealed segment, because they may be what is
    wrong. Those of the active segment are in memory and right.
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
    for corrupt_range in read.corrupt_ranges:
        if corrupt_range not in segment.corrupt_ranges:
            logger.error("%s", segment.corrupt(corrupt_range))
    segment.corrupt_ranges = read.corrupt_ranges
