"""The keys of one segment in memory, with the last offset of each; it grows with the segment.

It catches up with the log from where it was. Its memory is bounded: a segment with more
keys is read again for each look-up until it is sealed and has a key index.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..config_types import INT64_MAX
from ..disk.pace import Pacing
from .growing_keys import ALL_KEYS, GrowingKeys, Share
from .key_index import KeyHasher
from .key_scan import SegmentPart, keyed_records


class SegmentKeys:
    """For one thread. ``close`` returns the memory.

    Only keys of ``share`` are held. Records before the batch at ``position`` are left out,
    and those from offset ``end`` on.
    """

    def __init__(
        self,
        hasher: KeyHasher,
        *,
        memory_bytes: int,
        share: Share = ALL_KEYS,
        position: int = 0,
        end: int = INT64_MAX,
    ) -> None:
        self._hasher = hasher
        self._end = end
        self._share = share
        self._keys = GrowingKeys(memory_bytes)
        self._position = position
        # The first offset that it does not know.
        self.next_offset = -1

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        return self._keys.size_bytes

    def close(self) -> None:
        self._keys.close()

    def catch_up(self, part: SegmentPart, pace: Pacing) -> bool:
        """Take in what ``part`` has beyond what is known; False if the keys no longer fit.

        After False or an error, close it.

        Raises:
            CorruptLog: part of the log cannot be read.
            OSError: the log cannot be read.
        """
        if self._position >= part.log_bytes:
            return True
        records = keyed_records(part, pace, from_position=self._position)
        if not self._keys.put_records(records, self._hasher, pace, end=self._end, share=self._share):
            return False
        self._position, self.next_offset = part.log_bytes, part.next_offset
        return True

    def find(self, wanted: bytes) -> int:
        """Return the last offset of the key with the hash ``wanted``; -1 if it has none."""
        return self._keys.find(wanted)

    def sorted_entries(self, pace: Pacing) -> Iterator[bytes]:
        """Yield the entries of a key index, in blocks."""
        return self._keys.sorted_entries(pace)
