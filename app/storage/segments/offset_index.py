"""``.index``: which byte of the segment to start reading at for an offset.

One entry of 8 bytes, big-endian, each ``index.interval.bytes`` of log::

    relative offset:4   last offset of a batch, minus the segment's base offset
    position:4          the byte at which that batch starts

Entries ascend in both columns. As a big-endian number an entry is
``relative offset << 32 | position``, so a list of them in native order is
searched as plain integers.

Example, base offset 1000: ``00 00 00 29 00 00 10 06`` says that the batch whose
last offset is 1041 starts at byte 4102. To read offset 1050 start there.

An index is a hint that is rebuilt from the log: after a crash it is never
trusted for a segment that the recovery point had not passed.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

ENTRY_BYTES = 8
RELATIVE_OFFSET_MAX = 2**31 - 1

_LOW = 0xFFFFFFFF


class OffsetIndex:
    """The entries of one segment, in memory (8 bytes each)."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries = array("Q")

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, relative_offset: int, position: int) -> None:
        entry = relative_offset << 32 | position
        assert not self._entries or entry > self._entries[-1], "index entries must ascend"
        self._entries.append(entry)

    def position_for(self, relative_offset: int) -> int:
        """Return a position at or before the batch with ``relative_offset``."""
        count = bisect_right(self._entries, relative_offset << 32 | _LOW)
        return self._entries[count - 1] & _LOW if count else 0

    def positions_around(self, relative_offset: int) -> tuple[int, int]:
        """Return the positions of two adjacent entries.

        The batch with ``relative_offset`` begins at one of the two or between them. 0 stands for a first entry that
        is not there, -1 for a second one.
        """
        count = bisect_left(self._entries, relative_offset << 32)
        after = self._entries[count] & _LOW if count < len(self._entries) else -1
        return self._entries[count - 1] & _LOW if count else 0, after

    def position_before(self, position: int) -> int:
        """The greatest indexed position at or below ``position``; 0 if there is none."""
        low, high = 0, len(self._entries)
        while low < high:
            middle = (low + high) // 2
            if self._entries[middle] & _LOW <= position:
                low = middle + 1
            else:
                high = middle
        return self._entries[low - 1] & _LOW if low else 0

    def last_position(self) -> int:
        return self._entries[-1] & _LOW if self._entries else 0

    def entries(self) -> list[tuple[int, int]]:
        return [(entry >> 32, entry & _LOW) for entry in self._entries]

    def to_bytes(self) -> bytes:
        return _swapped(self._entries).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, *, log_bytes: int) -> OffsetIndex | None:
        """The index in ``data``, or None if it cannot belong to a log of ``log_bytes``."""
        index = cls()
        if len(data) % ENTRY_BYTES:
            return None
        entries = array("Q", data)
        index._entries = _swapped(entries)
        if entries and (index.last_position() >= log_bytes or list(index._entries) != sorted(index._entries)):
            return None
        return index


def _swapped(entries: array[int]) -> array[int]:
    swapped = array("Q", entries)
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped
