"""A log that keeps the newest entry of each key: state, in the form of its changes.

As a compacted topic in Kafka right after its cleaner ran, with a short tail that
is not compacted: offsets ascend and are never given twice, an entry keeps its
offset, and superseded entries leave holes. A reader that starts anywhere and
reads to the end knows the newest value of every key that it had not read before.

Entries are kept in chunks of neighbouring offsets, so that a read in the middle
is found without a scan, and an entry is forgotten in constant time. Nothing here
does I/O or reads a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_CHUNK_BITS = 10
# A dict keeps the room of what was taken out of it: at these sizes a chunk is copied into less.
_SHRINK_AT = frozenset((512, 128, 32, 8, 2))


class Entry(NamedTuple, Generic[K, V]):
    """``value`` None is a tombstone. ``timestamp_ms`` since the epoch; ``size`` is about the bytes it takes."""

    key: K
    value: V | None
    timestamp_ms: int
    size: int


class ReplayLog(Generic[K, V]):
    """The log of one partition, from ``start_offset`` on.

    ``history_bytes`` bounds superseded entries and tombstones: beyond it the oldest
    of them are forgotten. The newest entry of each key is never forgotten.
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
        # What may be forgotten, oldest first: offset and size.
        self._history: deque[tuple[int, int]] = deque()
        self._history_bytes = 0

    def __len__(self) -> int:
        """Keys that have a value."""
        return len(self._offsets)

    def __contains__(self, key: K) -> bool:
        return key in self._offsets

    def value(self, key: K) -> V | None:
        """The newest value of ``key``; None if it has none."""
        offset = self._offsets.get(key)
        return None if offset is None else self._chunks[offset >> _CHUNK_BITS][offset].value

    def put(self, key: K, value: V | None, *, timestamp_ms: int, size: int) -> int:
        """Append the newest value of ``key``, or with None a tombstone; returns its offset."""
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
        # The last entry stays, whatever its size: readers that wait for the end must be able to reach it.
        while self._history_bytes > self._history_bytes_max and self._history[0][0] < offset:
            self._forget_oldest()
        return offset

    def _retire(self, offset: int, size: int) -> None:
        self._history.append((offset, size))
        self._history_bytes += size

    def _forget_oldest(self) -> None:
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
        """Offset and entry of what is at or after ``offset``, ascending; to be used up before the next ``put``."""
        for place in range(bisect_left(self._numbers, offset >> _CHUNK_BITS), len(self._numbers)):
            for at, entry in self._chunks[self._numbers[place]].items():
                if at >= offset:
                    yield at, entry
