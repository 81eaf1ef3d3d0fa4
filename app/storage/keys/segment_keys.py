"""The keys of one segment in memory, with the last offset of each; it grows with the segment.

It catches up with the log from where it was. Its memory is bounded: a segment with more
keys is read again for each look-up until it is sealed and has a key index.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct

from ..cleaning.cleaning_pass import Pacing
from ..cleaning.key_map import SLOT_BYTES, KeyMap
from ..config_types import INT64_MAX
from .key_index import HASH_BYTES, KeyHasher
from .key_scan import SegmentPart, keyed_records

_KEYS_AT_FIRST = 512
_GROWTH = 4
# Sorting as many entries holds the interpreter for less than a millisecond.
_SORTED_AT_ONCE = 2048

_halves = Struct("=QQ")
_entry = Struct(">16sQ").pack


class SegmentKeys:
    """For one thread. ``close`` returns the memory.

    ``share`` is a number and how many shares there are: the keys are divided among them
    by their hashes, in order. (0, 1) has them all. Records from offset ``end`` on are left
    out if it is not None.
    """

    def __init__(
        self,
        hasher: KeyHasher,
        *,
        memory_bytes: int,
        share: tuple[int, int] = (0, 1),
        end: int | None = None,
    ) -> None:
        self._hasher = hasher
        self._end = INT64_MAX if end is None else end
        self._share, self._shares = share
        self._memory_bytes = memory_bytes
        self._keys = KeyMap.for_keys(_KEYS_AT_FIRST, memory_bytes=memory_bytes)
        self._position = 0
        # The first offset that it does not know.
        self.next_offset = -1

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        return self._keys.capacity * SLOT_BYTES

    def close(self) -> None:
        self._keys.close()

    def catch_up(self, part: SegmentPart, pace: Pacing) -> bool:
        """Take in what ``part`` has beyond what is known; False if the keys do not fit any more.

        After False or an error, close it.

        Raises:
            CorruptLog: part of the log cannot be read.
            OSError: the log cannot be read.
        """
        if self._position >= part.log_bytes:
            return True
        for base_offset, records in keyed_records(part, pace, from_position=self._position):
            for record in records:
                if record.key is None or base_offset + record.offset_delta >= self._end:
                    continue
                hashed = self._hasher.hash_of(record.key)
                if self._shares > 1 and int.from_bytes(hashed[:2]) * self._shares >> 16 != self._share:
                    continue
                first, second = _halves.unpack(hashed)
                if not self._put(first, second, base_offset + record.offset_delta, pace):
                    return False
        self._position, self.next_offset = part.log_bytes, part.next_offset
        return True

    def _put(self, first: int, second: int, offset: int, pace: Pacing) -> bool:
        if self._keys.put_hash(first, second, offset):
            return True
        larger = KeyMap.for_keys(self._keys.capacity * _GROWTH, memory_bytes=self._memory_bytes)
        if larger.capacity <= self._keys.capacity:
            larger.close()
            return False
        for number, slot in enumerate(self._keys.slots()):
            larger.put_hash(*slot)
            if number % 256 == 0:
                pace(0)
        self._keys.close()
        self._keys = larger
        return larger.put_hash(first, second, offset)

    def find(self, wanted: bytes) -> int:
        """Return the last offset of the key with the hash ``wanted``; -1 if it has none."""
        return self._keys.find_hash(*_halves.unpack(wanted))

    def sorted_entries(self, pace: Pacing) -> Iterator[bytes]:
        """Yield the entries of a key index, in blocks."""
        bucket_count = max(1, len(self._keys) // (_SORTED_AT_ONCE // 4))
        buckets: list[array[int]] = [array("Q") for _ in range(bucket_count)]
        for number, (first, second, offset) in enumerate(self._keys.slots()):
            bucket = int.from_bytes(_halves.pack(first, second)[:8]) * bucket_count >> 64
            buckets[bucket].extend((first, second, offset))
            if number % 256 == 0:
                pace(0)
        for bucket in buckets:
            entries = [
                _entry(_halves.pack(bucket[at], bucket[at + 1]), bucket[at + 2])
                for at in range(0, len(bucket), 3)
            ]
            entries.sort()
            pace(0)
            if entries:
                yield b"".join(entries)


assert _halves.size == HASH_BYTES
