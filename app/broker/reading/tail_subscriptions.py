"""Subscriptions to new records.

With them, a live tail need not look at every partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ...storage.topic_partition import TopicPartition
from ..topics import Topics


class TailSubscription:
    """Notes which partitions of a topic, or whether one of them, have new records.

    ``is_ended`` is true once the topic was deleted.
    """

    def __init__(self, partition: int | None) -> None:
        self.is_ended = False
        self.partition = partition
        self._appended: dict[int, None] = {}
        self._news = asyncio.Event()

    def note(self, partition: int) -> None:
        if self.partition is None or self.partition == partition:
            self._appended[partition] = None
            self._news.set()

    def end(self) -> None:
        self.is_ended = True
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    def take(self) -> list[int]:
        """Return the partitions that have had new records since the last call."""
        taken = list(self._appended)
        self._appended.clear()
        self._news.clear()
        return taken

    async def wait(self, timeout_s: float) -> None:
        """Return after new records, the end of the topic, a ``wake``, or ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            pass


class TailSubscriptions:
    """The subscriptions of all topics."""

    def __init__(self) -> None:
        self._by_topic: dict[str, list[TailSubscription]] = {}

    @contextmanager
    def subscribe(self, topic: str, partition: int | None) -> Generator[TailSubscription]:
        subscription = TailSubscription(partition)
        self._by_topic.setdefault(topic, []).append(subscription)
        try:
            yield subscription
        finally:
            subscriptions = self._by_topic[topic]
            subscriptions.remove(subscription)
            if not subscriptions:
                del self._by_topic[topic]

    def partitions(self, topics: Topics) -> Iterator[TopicPartition]:
        """Yield the partitions that are followed."""
        for name, subscriptions in self._by_topic.items():
            wanted = {subscription.partition for subscription in subscriptions}
            if None in wanted:
                topic = topics.get(name)
                wanted = range(0 if topic is None else topic.partitions)
            for partition in wanted:
                if partition is not None:
                    yield TopicPartition(name, partition)

    def readable(self, topic: str, partition: int) -> None:
        """Note that the partition has more to read."""
        for subscription in self._by_topic.get(topic, ()):
            subscription.note(partition)

    def deleted(self, topic: str) -> None:
        for subscription in self._by_topic.get(topic, ()):
            subscription.end()

    def wake_all(self) -> None:
        for subscriptions in self._by_topic.values():
            for subscription in subscriptions:
                subscription.wake()
