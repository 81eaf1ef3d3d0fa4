"""A sparse index of a merged run: an offset and a position at regular intervals of bytes.

Entries are 8 bytes, big-endian: the offset of a batch from the first of the run, and its position from
the start of the run. The first batch has no entry.
"""

from __future__ import annotations

import struct

_ENTRY = struct.Struct(">II")
# A hole of a copy may be larger; readers then begin at an entry before it.
_OFFSET_MAX = 2**32 - 1
# Bytes of batches between two entries: what a reader loads in vain at most.
INTERVAL_BYTES = 64 << 10


class SparseIndexBuilder:
    """Builds the index of one run from its batches, in order."""

    def __init__(self) -> None:
        self._entries = bytearray()
        self._indexed_until = 0

    def add(self, relative_offset: int, position: int) -> None:
        """Note where a batch begins."""
        if position - self._indexed_until >= INTERVAL_BYTES and relative_offset <= _OFFSET_MAX:
            self._entries += _ENTRY.pack(relative_offset, position)
            self._indexed_until = position

    def build(self) -> bytes:
        return bytes(self._entries)


def find(index: bytes, relative_offset: int) -> tuple[int, int]:
    """Return offset and position of the last entry at or before an offset.

    The position counts from the start of the run.
    """
    low, high = 0, len(index) // _ENTRY.size
    while low < high:
        middle = (low + high) // 2
        if _ENTRY.unpack_from(index, middle * _ENTRY.size)[0] <= relative_offset:
            low = middle + 1
        else:
            high = middle
    return (0, 0) if low == 0 else _ENTRY.unpack_from(index, (low - 1) * _ENTRY.size)
