"""Hashes of keys with their last offsets in memory: a map that grows up to a bound.

The hashes are those of key indexes (``KeyHasher``), so that its entries can become one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from ..cleaning.key_map import SLOT_BYTES, KeyMap
from ..config_types import INT64_MAX
from ..disk.pace import Pacing
from .key_index import HASH_BYTES, KeyHasher

_KEYS_AT_FIRST = 512
_GROWTH = 4
# Sorting as many entries holds the interpreter for less than a millisecond.
_SORTED_AT_ONCE = 2048

_halves = Struct("=QQ")
_entry = Struct(">16sQ").pack


class Share(NamedTuple):
    """The part ``number`` of all keys, ``of`` so many parts, in the order of their hashes."""

    number: int = 0
    of: int = 1

    def has(self, hashed: bytes) -> bool:
        return self.of == 1 or int.from_bytes(hashed[:2]) * self.of >> 16 == self.number


ALL_KEYS = Share()


class GrowingKeys:
    """For one thread at a time.

    ``close`` returns the memory, which has ``memory_bytes`` at most.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._keys = KeyMap.for_keys(_KEYS_AT_FIRST, memory_bytes=memory_bytes)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        return self._keys.capacity * SLOT_BYTES

    def close(self) -> None:
        self._keys.close()

    def put(self, hashed: bytes, offset: int, pace: Pacing) -> bool:
        """Remember ``offset`` as the last of the key with this hash; False if it does not fit."""
        first, second = _halves.unpack(hashed)
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

    def put_records(
        self,
        records: Iterable[tuple[int, bytes]],
        hasher: KeyHasher,
        pace: Pacing,
        *,
        start: int = 0,
        end: int = INT64_MAX,
        share: Share = ALL_KEYS,
    ) -> bool:
        """Put the keys of ``records``, offsets and keys in order; False if they do not fit.

        Only keys of ``share`` are put, and records from ``start`` to before ``end``.
        """
        for offset, key in records:
            if start <= offset < end:
                hashed = hasher.hash_of(key)
                if share.has(hashed) and not self.put(hashed, offset, pace):
                    return False
        return True

    def find(self, wanted: bytes) -> int:
        """Return the last offset of the key with the hash ``wanted``; -1 if it has none."""
        return self._keys.find_hash(*_halves.unpack(wanted))

    def offsets(self) -> Iterator[int]:
        """Yield the last offset of every key, in no order; nothing may be put meanwhile."""
        return self._keys.offsets()

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
