"""The verdict of mapping on each dirty record, one byte per offset.

A record whose key is put again later in the same pass is known to go, without looking its
key up a second time. So a batch of which all records stay or all go is not even decompressed.

What is not known is decided by the map of keys: records before the dirty range, after the
table's end or after the mapped range, and those of batches with holes or with records that
do not parse.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from stele.wire import record_batch as rb

from .record_keys import KeySlice

UNKNOWN, STAYS, GOES, TOMBSTONE_STAYS = 0, 1, 2, 3


class DirtyRecords:
    """Verdicts from ``first_offset`` on, for at most ``memory_bytes`` records.

    ``close`` returns the memory.

    Its pages cost memory only once they are touched.
    """

    __slots__ = ("_first", "_memory", "_size")

    def __init__(self, first_offset: int, end_offset: int, *, memory_bytes: int) -> None:
        self._first = first_offset
        self._size = max(0, min(end_offset - first_offset, memory_bytes))
        self._memory = mmap.mmap(-1, max(1, self._size))

    @property
    def memory_bytes(self) -> int:
        """Upper bound of its memory."""
        return self._size

    def note(self, part: KeySlice, replaced: Sequence[int]) -> None:
        """``part`` was put into the map and stays for now; the records at offsets ``replaced`` go."""
        memory, first, size = self._memory, self._first, self._size
        count = len(part.offsets)
        start = part.offsets[0] - first if count else 0
        end = start + count
        if count and end <= size and part.offsets[-1] + 1 - first == end:
            if None in part.keys or not all(part.has_value):
                memory[start:end] = bytes(
                    GOES if key is None else STAYS if has_value else TOMBSTONE_STAYS
                    for key, has_value in zip(part.keys, part.has_value, strict=True)
                )
            else:
                memory[start:end] = b"\1" * count
        for offset in replaced:
            # Below the first offset there is nothing to note: the key map holds dirty offsets alone.
            if offset - first < size:
                memory[offset - first] = GOES

    def of(self, header: rb.BatchHeader) -> bytes | None:
        """A verdict per record of the batch, None if one of them is not known."""
        start, end = header.base_offset - self._first, header.next_offset - self._first
        if start < 0 or end > self._size or end - start != header.record_count:
            return None
        verdicts = self._memory[start:end]
        return None if UNKNOWN in verdicts else verdicts

    def close(self) -> None:
        """Release the memory; the object cannot be used afterwards."""
        self._memory.close()
