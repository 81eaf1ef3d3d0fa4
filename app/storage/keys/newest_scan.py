"""Computing which records are the newest of their keys, in bounded memory; for threads.

The keys go through a ``KeyMap``. If they do not fit, the scan is repeated with twice as
many passes, each over the keys whose hashes have another remainder: the time doubles,
the memory stays.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence

from ...errors import CorruptLog, InvalidRequest
from ..cleaning.key_map import SALT_BYTES, KeyMap
from ..cleaning.pass_steps import Pacing
from .key_scan import SegmentPart, keyed_records
from .newest_offsets import OFFSET_BYTES, NewestOffsets, sorted_offsets

_PASSES_MAX = 64


def newest_in(part: SegmentPart, key: bytes, pace: Pacing) -> int:
    """Return the last offset of ``key`` in what can be read of a segment; -1 if it has none.

    Raises:
        CorruptLog: nothing after a part of it can be read.
        OSError: the log cannot be read.
    """
    while True:
        found = -1
        known = len(part.segment.corrupt_ranges)
        try:
            for base_offset, records in keyed_records(part, pace):
                for record in records:
                    if record.key == key:
                        found = base_offset + record.offset_delta
        except CorruptLog:
            if len(part.segment.corrupt_ranges) == known:
                raise
        else:
            return found


def newest_offsets_of(
    parts: Sequence[SegmentPart], *, start: int, end: int, memory_bytes: int, pace: Pacing
) -> NewestOffsets:
    """Return the offsets in ``[start, end)`` that are the newest of their keys there.

    The map of the keys takes up to ``memory_bytes``, and so does the result.

    Raises:
        InvalidRequest: there are more keys than that allows.
        OSError: a log cannot be read.
    """
    passes = 1
    while passes <= _PASSES_MAX:
        scan = _Scan(parts, start=start, end=end, memory_bytes=memory_bytes, pace=pace)
        if scan.run(passes):
            return scan.result()
        passes *= 2
    raise too_many_keys(memory_bytes)


def too_many_keys(memory_bytes: int) -> InvalidRequest:
    return InvalidRequest(
        f"the partition has more keys than its table may take memory ({memory_bytes} bytes); "
        "raise STELE_TABLE_MEMORY_BYTES_MAX, or read the partition from its start"
    )


class _Scan:
    def __init__(
        self, parts: Sequence[SegmentPart], *, start: int, end: int, memory_bytes: int, pace: Pacing
    ) -> None:
        self._parts = parts
        self._start, self._end = start, end
        self._memory_bytes = memory_bytes
        self._pace = pace
        # One for all passes, so that each key is in exactly one of them.
        self._salt = os.urandom(SALT_BYTES)
        self._offsets = array("Q")
        self._unreadable: list[CorruptLog] = []

    def run(self, passes: int) -> bool:
        """Collect the offsets in this many passes; False if the keys of one do not fit into the memory."""
        for number in range(passes):
            keys_max = (self._end - self._start) // passes * 2 + 1024
            with KeyMap.for_keys(keys_max, memory_bytes=self._memory_bytes, salt=self._salt) as keys:
                if not self._map(keys, passes, number):
                    return False
                self._take(keys)
        return True

    def _take(self, keys: KeyMap) -> None:
        if (len(self._offsets) + len(keys)) * OFFSET_BYTES > self._memory_bytes:
            raise too_many_keys(self._memory_bytes)
        for number, offset in enumerate(keys.offsets()):
            self._offsets.append(offset)
            if number % 256 == 0:
                self._pace(0)

    def _map(self, keys: KeyMap, passes: int, number: int) -> bool:
        self._unreadable = []
        for part in self._parts:
            known = -1
            while known != len(part.segment.corrupt_ranges):
                known = len(part.segment.corrupt_ranges)
                try:
                    # After a corrupt range that was not known, the same keys are put again.
                    if not self._map_part(part, keys, passes, number):
                        return False
                    break
                except CorruptLog as error:
                    if known == len(part.segment.corrupt_ranges):
                        self._unreadable.append(error)
        return True

    def _map_part(self, part: SegmentPart, keys: KeyMap, passes: int, number: int) -> bool:
        start, end, hash_of, put_hash = self._start, self._end, keys.hash_of, keys.put_hash
        for base_offset, records in keyed_records(part, self._pace):
            for record in records:
                offset = base_offset + record.offset_delta
                if record.key is None or not start <= offset < end:
                    continue
                first, second = hash_of(record.key)
                if first % passes == number and not put_hash(first, second, offset):
                    return False
        return True

    def result(self) -> NewestOffsets:
        ranges = [
            part.segment.corrupt(damage)
            for part in self._parts
            for damage in part.segment.corrupt_ranges
            if damage.next_offset > self._start and damage.offset < self._end
        ]
        return NewestOffsets(
            sorted_offsets(
                self._offsets, start=self._start, end=self._end, count=len(self._offsets), pace=self._pace
            ),
            end_offset=self._end,
            corrupt_ranges=sorted([*ranges, *self._unreadable], key=lambda error: error.offset),
        )
