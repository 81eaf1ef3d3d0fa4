"""Who waits for an append: a long poll is woken by it, and never looks by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import TopicPartition


class _Waiter:
    __slots__ = ("future", "missing_bytes")

    def __init__(self, future: asyncio.Future[None], missing_bytes: int) -> None:
        self.future = future
        self.missing_bytes = missing_bytes


class Waiters:
    """The waiters of all partitions of one engine."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, set[_Waiter]] = {}

    def appended(self, topic_partition: TopicPartition, size: int) -> None:
        """``size`` bytes more are readable in the partition."""
        for waiter in self._by_partition.get(topic_partition, ()):
            waiter.missing_bytes -= size
            if waiter.missing_bytes <= 0 and not waiter.future.done():
                waiter.future.set_result(None)

    def wake(self, topic_partition: TopicPartition) -> None:
        """Let everyone look again: the partition changed in another way."""
        self.appended(topic_partition, 1 << 62)

    def wake_all(self) -> None:
        for topic_partition in list(self._by_partition):
            self.wake(topic_partition)

    async def wait(self, partitions: Iterable[TopicPartition], *, min_bytes: int, timeout_ms: int) -> None:
        """Return when ``min_bytes`` have come to the partitions together, or after ``timeout_ms``."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), min_bytes)
        names = list(partitions)
        for name in names:
            self._by_partition.setdefault(name, set()).add(waiter)
        try:
            await asyncio.wait((waiter.future,), timeout=timeout_ms / 1000)
        finally:
            for name in names:
                waiting = self._by_partition.get(name)
                if waiting is not None:
                    waiting.discard(waiter)
                    if not waiting:
                        del self._by_partition[name]
