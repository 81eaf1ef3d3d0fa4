"""Loads that begin before their reader gets there.

A reader wants the parts of many objects, one after the other. Each part takes a round trip to the store, so the
next ones are loaded at the same time::

    wanted   1   2   3   4   5   6   7   8
             │   └───────┬───────┘   └── not begun yet
         read now      loading
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ..meta import ObjectRef
from ..store.block_cache import BlockCache
from ..store.object_keys import size_of


class Part(NamedTuple):
    """Bytes of an object that will be read."""

    object: ObjectRef
    start: int
    length: int


class LoadsAhead:
    """The parts that one reader wants, in its order.

    At most ``count`` of them are loaded for it at a time, and no more once they have ``bytes_max``.
    """

    def __init__(
        self, cache: BlockCache[ObjectRef], parts: Iterable[Part], *, count: int, bytes_max: int
    ) -> None:
        self._cache = cache
        self._waiting = deque(parts)
        # The lengths of parts whose loads have begun, and which were not read yet.
        self._begun = deque[int]()
        self._begun_bytes = 0
        self._count = count
        self._bytes_max = bytes_max

    def next(self) -> None:
        """Begin the loads of the next parts; call it before each part is read."""
        while self._waiting and len(self._begun) < self._count:
            if self._begun and self._begun_bytes >= self._bytes_max:
                break
            part = self._waiting.popleft()
            self._cache.prefetch(part.object, size_of(part.object.key), part.start, part.length)
            self._begun.append(part.length)
            self._begun_bytes += part.length
        if self._begun:
            self._begun_bytes -= self._begun.popleft()
