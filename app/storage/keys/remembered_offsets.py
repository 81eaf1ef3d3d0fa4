"""The newest offsets of the partitions that were computed last.

Readers go through a table page by page.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from ...errors import OffsetOutOfRange
from ..topic_partition import TopicPartition
from .newest_offsets import NewestOffsets


class ReadLog(Protocol):
    """What is to be known of a log of either engine."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...


_Log = TypeVar("_Log", bound=ReadLog)

# Results that are remembered, however small they are.
_REMEMBERED_MAX = 64


class RememberedOffsets(Generic[_Log]):
    """At most ``memory_bytes`` of results, but always the last one. For the event loop."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._remembered: OrderedDict[tuple[_Log, int], NewestOffsets] = OrderedDict()
        # One result at a time is computed: the limit of memory is that of all together.
        self._turn = asyncio.Lock()

    async def get(
        self, log: _Log, end_offset: int, compute: Callable[[], Awaitable[NewestOffsets]], *, log_end: int
    ) -> NewestOffsets:
        """Return the newest offsets before ``end_offset``, which ``compute`` finds unless they are remembered.

        If it finds those of a part of the log, they are not remembered.

        Raises:
            OffsetOutOfRange: ``end_offset`` is after ``log_end``.
        """
        if end_offset > log_end:
            raise OffsetOutOfRange(
                topic=log.topic_partition.topic,
                partition=log.topic_partition.partition,
                offset=end_offset,
                log_start_offset=log.log_start_offset,
                log_end_offset=log_end,
            )
        if end_offset <= log.log_start_offset:
            return NewestOffsets(array("Q"), end_offset=end_offset)
        newest = self._recall(log, end_offset)
        if newest is not None:
            return newest
        async with self._turn:
            # Another reader may have waited for the same.
            newest = self._recall(log, end_offset)
            if newest is None:
                is_stable = end_offset <= log.last_stable_offset
                newest = await compute()
                if is_stable and newest.start_offset <= log.log_start_offset:
                    self._remember(log, newest)
        return newest

    def _recall(self, log: _Log, end_offset: int) -> NewestOffsets | None:
        newest = self._remembered.get((log, end_offset))
        if newest is not None:
            self._remembered.move_to_end((log, end_offset))
        return newest

    def _remember(self, log: _Log, newest: NewestOffsets) -> None:
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
