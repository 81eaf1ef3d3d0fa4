"""A log in memory that keeps the newest entry of each key, like a compacted topic.

It behaves like a compacted topic of Kafka right after its cleaner ran, with a short
tail that is not compacted: offsets ascend and are never reused, an entry keeps its
offset, and superseded entries leave gaps. A reader that starts at any offset and
reads to the end knows the newest value of each key that it had not read before.

Entries are kept in chunks of neighbouring offsets, so that a read finds its start
without a scan, and an entry is dropped in constant time. Nothing here does I/O or
reads a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_CHUNK_BITS = 10
# A dict does not shrink when entries are deleted: at these sizes a chunk is copied to a smaller one.
_SHRINK_AT = frozenset((512, 128, 32, 8, 2))


class Entry(NamedTuple, Generic[K, V]):
    """One record of the log; ``value`` None is a tombstone.

    ``timestamp_ms`` is since the epoch, ``size`` about its bytes in memory.
    """

    key: K
    value: V | None
    timestamp_ms: int
    size: int


class ReplayLog(Generic[K, V]):
    """The log of one partition, from ``start_offset`` on.

    ``history_bytes`` bounds superseded entries and tombstones: beyond it the oldest
    of them are dropped. The newest entry of each key is never dropped.
    """

    def __init__(self, start_offset: int, *, history_bytes: int) -> None:
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.size_bytes = 0
        self._history_bytes_max = history_bytes
        self._offsets: dict[K, int] = {}
        self._chunks: dict[int, dict[int, Entry[K, V]]] = {}
        # The numbers of the chunks, ascending.
        self._numbers: list[int] = []
        # Offset and size of what may be dropped, oldest first.
        self._history: deque[tuple[int, int]] = deque()
        self._history_bytes = 0

    def __len__(self) -> int:
        """Return the number of keys that have a value."""
        return len(self._offsets)

    def __contains__(self, key: K) -> bool:
        return key in self._offsets

    def value(self, key: K) -> V | None:
        """Return the newest value of ``key``; None if it has none."""
        offset = self._offsets.get(key)
        return None if offset is None else self._chunks[offset >> _CHUNK_BITS][offset].value

    def put(self, key: K, value: V | None, *, timestamp_ms: int, size: int) -> int:
        """Append a value of ``key``, or with None a tombstone; returns its offset."""
        offset = self.next_offset
        self.next_offset += 1
        number = offset >> _CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = {}
            self._numbers.append(number)
        chunk[offset] = Entry(key, value, timestamp_ms, size)
        self.size_bytes += size
        superseded = self._offsets.pop(key, None)
        if superseded is not None:
            self._retire(superseded, self._chunks[superseded >> _CHUNK_BITS][superseded].size)
        if value is None:
            self._retire(offset, size)
        else:
            self._offsets[key] = offset
        # The last entry stays, whatever its size, because readers that wait for the end must be able to reach it.
        while self._history_bytes > self._history_bytes_max and self._history[0][0] < offset:
            self._drop_oldest()
        return offset

    def _retire(self, offset: int, size: int) -> None:
        self._history.append((offset, size))
        self._history_bytes += size

    def _drop_oldest(self) -> None:
        offset, size = self._history.popleft()
        self._history_bytes -= size
        self.size_bytes -= size
        number = offset >> _CHUNK_BITS
        chunk = self._chunks[number]
        del chunk[offset]
        if not chunk:
            del self._chunks[number]
            del self._numbers[bisect_left(self._numbers, number)]
        elif len(chunk) in _SHRINK_AT:
            self._chunks[number] = dict(chunk)

    def entries_from(self, offset: int) -> Iterator[tuple[int, Entry[K, V]]]:
        """Yield offsets and entries from ``offset`` on, ascending; exhaust it before the next ``put``."""
        for index in range(bisect_left(self._numbers, offset >> _CHUNK_BITS), len(self._numbers)):
            for entry_offset, entry in self._chunks[self._numbers[index]].items():
                if entry_offset >= offset:
                    yield entry_offset, entry
