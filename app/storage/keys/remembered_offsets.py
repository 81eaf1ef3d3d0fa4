"""The newest offsets of the partitions that were computed last.

Readers go through a table page by page.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from .newest_offsets import NewestOffsets

_Log = TypeVar("_Log", bound=Hashable)

# Results that are remembered, however small they are.
_REMEMBERED_MAX = 64


class RememberedOffsets(Generic[_Log]):
    """At most ``memory_bytes`` of results, but always the last one."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._remembered: OrderedDict[tuple[_Log, int], NewestOffsets] = OrderedDict()

    def recall(self, log: _Log, end_offset: int) -> NewestOffsets | None:
        """Return the result for an end offset; None if it is not remembered."""
        found = self._remembered.get((log, end_offset))
        if found is not None:
            self._remembered.move_to_end((log, end_offset))
        return found

    def remember(self, log: _Log, newest: NewestOffsets) -> None:
        self._remembered[log, newest.end_offset] = newest
        size = sum(held.size_bytes for held in self._remembered.values())
        while len(self._remembered) > _REMEMBERED_MAX or (
            size > self._memory_bytes and len(self._remembered) > 1
        ):
            _, oldest = self._remembered.popitem(last=False)
            size -= oldest.size_bytes

    def forget(self, log: _Log) -> None:
        """Forget all results of a log."""
        for name in [name for name in self._remembered if name[0] is log]:
            del self._remembered[name]
