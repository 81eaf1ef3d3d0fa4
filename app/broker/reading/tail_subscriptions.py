"""Subscriptions to new records.

With them, a live tail need not look at every partition.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ...storage.topic_partition import TopicPartition
from ...storage.waiters import Wakeup
from ...turns import Turns
from ..topics import Topics


class TailSubscription:
    """Notes which partitions of a topic, or whether one of them, have new records.

    ``is_ended`` is true once the topic was deleted.
    """

    def __init__(self, turns: Turns, partition: int | None) -> None:
        self.is_ended = False
        self.partition = partition
        self._turns = turns
        self._wakeup: Wakeup | None = None
        self._appended: dict[int, None] = {}

    def note(self, partition: int) -> None:
        if self.partition is None or self.partition == partition:
            self._appended[partition] = None
            self.wake()

    def end(self) -> None:
        self.is_ended = True
        self.wake()

    def wake(self) -> None:
        """End the ``wait`` under way, if there is one."""
        if self._wakeup is not None:
            self._wakeup.end()

    def take(self) -> list[int]:
        """Return the partitions that have had new records since the last call."""
        taken = list(self._appended)
        self._appended.clear()
        return taken

    @property
    def has_news(self) -> bool:
        """Whether a ``wait`` would not wait."""
        return bool(self._appended) or self.is_ended

    async def wait(self, timeout_s: float) -> None:
        """Return after new records, the end of the topic, a ``wake``, or ``timeout_s``."""
        if self.has_news:
            return
        self._wakeup = Wakeup(self._turns)
        try:
            await self._wakeup.within(round(timeout_s * 1000))
        finally:
            self._wakeup = None


class TailSubscriptions:
    """The subscriptions of all topics."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        # Ordered as they came.
        self._by_topic: dict[str, dict[TailSubscription, None]] = {}

    @contextmanager
    def subscribe(self, topic: str, partition: int | None) -> Generator[TailSubscription]:
        subscription = TailSubscription(self._turns, partition)
        self._by_topic.setdefault(topic, {})[subscription] = None
        try:
            yield subscription
        finally:
            subscriptions = self._by_topic[topic]
            del subscriptions[subscription]
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
