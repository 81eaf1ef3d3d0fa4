"""``.timeindex`` files: the offset from which records may be as new as a timestamp.

There is one entry of 12 bytes, big-endian, for each entry of the offset index, and
one more when the segment is closed::

    timestamp:8         the greatest timestamp of the segment so far, ms
    relative offset:4   last offset of the batch that holds it, minus the base offset

Timestamps ascend strictly: an entry is left out if no record since the last one is
newer. No record before an entry's batch is newer than the entry's timestamp.

Example, base offset 1000: ``00 00 01 9a a2 91 c0 00 00 00 00 29`` says that
timestamp 1763664052224 was first reached in the batch that ends at offset 1041.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

_ENTRY = struct.Struct(">qi")
ENTRY_BYTES = _ENTRY.size
assert ENTRY_BYTES == 12


class TimeIndex:
    """The entries of one segment, in memory (12 bytes each)."""

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def maybe_append(self, timestamp_ms: int, relative_offset: int) -> None:
        if not self._timestamps or timestamp_ms > self._timestamps[-1]:
            self._timestamps.append(timestamp_ms)
            self._offsets.append(relative_offset)

    def entry_for(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return ``(timestamp, relative offset)`` of the last entry until a timestamp.

        The first record at or after ``timestamp_ms`` is in the entry's batch or after it. None: it
        may be anywhere.
        """
        count = bisect_right(self._timestamps, timestamp_ms)
        return (self._timestamps[count - 1], self._offsets[count - 1]) if count else None

    def last(self) -> tuple[int, int] | None:
        """Return ``(timestamp, relative offset)`` of the newest entry."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else None

    @staticmethod
    def search(data: bytes, timestamp_ms: int) -> tuple[int, int] | None:
        """Do what ``entry_for`` does with the bytes of a file, without building the index."""
        low, high = 0, len(data) // ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack_from(data, middle * ENTRY_BYTES)[0] <= timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return _ENTRY.unpack_from(data, (low - 1) * ENTRY_BYTES) if low else None

    @staticmethod
    def last_of(data: bytes) -> tuple[int, int] | None:
        """Return what ``last`` does, from the final entry of a file."""
        if len(data) < ENTRY_BYTES:
            return None
        timestamp_ms, relative_offset = _ENTRY.unpack_from(data, len(data) - ENTRY_BYTES)
        return timestamp_ms, relative_offset

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._timestamps, self._offsets, strict=True))

    def to_bytes(self) -> bytes:
        return b"".join(map(_ENTRY.pack, self._timestamps, self._offsets))

    @classmethod
    def from_bytes(cls, data: bytes) -> TimeIndex | None:
        """Decode the index in ``data``; return None if it is invalid."""
        index = cls()
        if len(data) % ENTRY_BYTES:
            return None
        for timestamp_ms, relative_offset in _ENTRY.iter_unpack(data):
            last = index.last()
            if relative_offset < 0 or (last and timestamp_ms <= last[0]):
                return None
            index._timestamps.append(timestamp_ms)
            index._offsets.append(relative_offset)
        return index
