"""Computing which records are the newest of their keys, in bounded memory; for threads.

The keys of a log are put into a map with their last offsets. If they do not fit, they are taken in shares, by their
hashes, and the log is read once for each: the time grows, the memory stays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from ...errors import CorruptLog, InvalidRequest
from ..disk.pace import Pacing
from .growing_keys import GrowingKeys, Share
from .key_index import ENTRY_BYTES, HASH_BYTES, KeyHasher
from .key_scan import SegmentPart, keyed_records
from .newest_offsets import OFFSET_BYTES, NewestOffsets, sorted_offsets

# In how many shares the keys are taken, until those of each fit.
SHARE_COUNTS = (1, 2, 4, 8, 16, 32, 64)


class TableScan:
    """The newest offsets of keys from ``start`` to before ``end``.

    The keys and the result take up to ``memory_bytes`` each. For each of ``SHARE_COUNTS``, until all fit: ``clear``;
    then for each share ``begin``, put all that is in the log, and ``take``. ``close`` returns the memory.
    """

    def __init__(self, hasher: KeyHasher, *, start: int, end: int, memory_bytes: int) -> None:
        self._hasher = hasher
        self._start, self._end = start, end
        self._memory_bytes = memory_bytes
        self._share = Share()
        self._keys = GrowingKeys(memory_bytes)
        self._offsets = array("Q")
        self.corrupt_ranges: list[CorruptLog] = []

    def clear(self) -> None:
        self._offsets = array("Q")

    def begin(self, share: Share) -> None:
        """Forget the keys of the share before."""
        self._share = share
        # Corrupt ranges are met again with each share.
        self.corrupt_ranges = []
        self._keys.close()
        self._keys = GrowingKeys(self._memory_bytes)

    def put_records(self, records: Iterable[tuple[int, bytes]], pace: Pacing) -> bool:
        """Put the offsets and keys of records, in order; False if the keys of the share do not fit."""
        return self._keys.put_records(records, self._hasher, pace, end=self._end, share=self._share)

    def put_entries(self, block: bytes, pace: Pacing) -> bool:
        """As ``put_records``, for entries of a key index whose offsets are all before the end."""
        for at in range(0, len(block), ENTRY_BYTES):
            if not at % (256 * ENTRY_BYTES):
                pace(0)
            hashed = block[at : at + HASH_BYTES]
            offset = int.from_bytes(block[at + HASH_BYTES : at + ENTRY_BYTES])
            if self._share.has(hashed) and not self._keys.put(hashed, offset, pace):
                return False
        return True

    def take(self, pace: Pacing) -> None:
        """Collect the offsets of the keys of the share.

        Raises:
            InvalidRequest: there are more than the memory allows.
        """
        if (len(self._offsets) + len(self._keys)) * OFFSET_BYTES > self._memory_bytes:
            raise too_many_keys(self._memory_bytes)
        for number, offset in enumerate(self._keys.offsets()):
            if number % 256 == 0:
                pace(0)
            if offset >= self._start:
                self._offsets.append(offset)

    def result(self, pace: Pacing, *, end_offset: int) -> NewestOffsets:
        """Return the offsets of all shares; the table ends at ``end_offset``."""
        offsets = self._offsets
        return NewestOffsets(
            sorted_offsets(offsets, start=self._start, end=self._end, count=len(offsets), pace=pace),
            start_offset=self._start,
            end_offset=end_offset,
            corrupt_ranges=sorted(self.corrupt_ranges, key=lambda error: error.offset),
        )

    def close(self) -> None:
        self._keys.close()


def too_many_keys(memory_bytes: int) -> InvalidRequest:
    return InvalidRequest(
        f"the partition has more keys than its table may take memory ({memory_bytes} bytes); "
        "raise STELE_TABLE_MEMORY_BYTES_MAX, or read the partition from its start"
    )


def newest_offsets_of(
    parts: Sequence[SegmentPart],
    hasher: KeyHasher,
    *,
    start: int,
    end: int,
    memory_bytes: int,
    pace: Pacing,
) -> NewestOffsets:
    """Return the offsets in ``[start, end)`` that are the newest of their keys in the logs of segments.

    Raises:
        InvalidRequest: there are more keys than ``memory_bytes`` allow.
        OSError: a log cannot be read.
    """
    scan = TableScan(hasher, start=start, end=end, memory_bytes=memory_bytes)
    try:
        for count in SHARE_COUNTS:
            scan.clear()
            if all(_take_share(scan, parts, Share(number, count), pace) for number in range(count)):
                scan.corrupt_ranges += [
                    part.segment.corrupt(damage)
                    for part in parts
                    for damage in part.segment.corrupt_ranges
                    if damage.next_offset > start and damage.offset < end
                ]
                return scan.result(pace, end_offset=end)
    finally:
        scan.close()
    raise too_many_keys(memory_bytes)


def _take_share(scan: TableScan, parts: Sequence[SegmentPart], share: Share, pace: Pacing) -> bool:
    scan.begin(share)
    for part in parts:
        known = -1
        while known != len(part.segment.corrupt_ranges):
            known = len(part.segment.corrupt_ranges)
            try:
                # After a corrupt range that was not known, the same keys are put again.
                if not scan.put_records(keyed_records(part, pace), pace):
                    return False
                break
            except CorruptLog as error:
                if known == len(part.segment.corrupt_ranges):
                    scan.corrupt_ranges.append(error)
    scan.take(pace)
    return True
