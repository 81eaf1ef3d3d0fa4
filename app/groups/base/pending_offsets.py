"""Pending offsets of one group: commits of transactions that have not ended.

A pending offset becomes the committed one when the transaction of its producer
commits, unless a later commit of the partition came first: the last one written wins,
whatever the order in which transactions end. That is Kafka's rule. So what a plain
commit, a deletion or the end of a later transaction has overtaken is dropped at once;
it can no longer change the committed offset.

No I/O and no clock. The store applies the same rules to its rows
(``app.cluster.group_tables``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias
from uuid import UUID

from ...cluster.group_store import OffsetRecord, PendingOffset

# Topic and partition.
Key: TypeAlias = tuple[str, int]


class PendingOffsets:
    """The pending offsets of one group by partition and producer."""

    def __init__(self) -> None:
        # Of each partition in the order in which they were written.
        self._by_key: dict[Key, dict[int, PendingOffset]] = {}
        # Partitions by producer: the end of a transaction costs what it has committed.
        self._of_producer: dict[int, dict[Key, None]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        """Return the number of partitions that have a pending offset."""
        return len(self._by_key)

    def __iter__(self) -> Iterator[PendingOffset]:
        for by_producer in self._by_key.values():
            yield from by_producer.values()

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(self._by_key)

    def of(self, key: Key) -> list[PendingOffset]:
        """Return the pending offsets of a partition, oldest first."""
        return list(self._by_key.get(key, {}).values())

    def epoch_of(self, producer_id: int) -> int | None:
        """Return the newest epoch among the offsets of a producer; None if it has none."""
        keys = self._of_producer.get(producer_id, ())
        return max((self._by_key[key][producer_id].producer_epoch for key in keys), default=None)

    def add(self, pending: PendingOffset) -> None:
        """Add an offset; it replaces that of the same producer in the same partition."""
        key = (pending.record.topic, pending.record.partition)
        by_producer = self._by_key.setdefault(key, {})
        by_producer.pop(pending.producer_id, None)
        by_producer[pending.producer_id] = pending
        self._of_producer.setdefault(pending.producer_id, {})[key] = None

    def drop(self, key: Key) -> None:
        """Drop what is pending in a partition.

        Its committed offset was replaced or deleted.
        """
        self._drop(key, list(self._by_key.get(key, ())))

    def _drop(self, key: Key, producer_ids: Iterable[int]) -> None:
        for producer_id in producer_ids:
            del self._by_key[key][producer_id]
            keys = self._of_producer[producer_id]
            del keys[key]
            if not keys:
                del self._of_producer[producer_id]
        if key in self._by_key and not self._by_key[key]:
            del self._by_key[key]

    def end(self, producer_id: int, *, is_committed: bool) -> list[OffsetRecord]:
        """End the transaction of a producer; returns the offsets that it commits."""
        committed: list[OffsetRecord] = []
        for key in list(self._of_producer.get(producer_id, ())):
            if is_committed:
                producers = list(self._by_key[key])
                committed.append(self._by_key[key][producer_id].record)
                self._drop(key, producers[: producers.index(producer_id) + 1])
            else:
                self._drop(key, [producer_id])
        return committed

    def forget_topic(self, topic: str, current_id: UUID | None) -> None:
        """Forget the offsets of ``topic``; those of the topic id ``current_id`` are kept."""
        for key in [key for key in self._by_key if key[0] == topic]:
            pending = self._by_key[key].items()
            self._drop(key, [number for number, kept in pending if kept.record.topic_id != current_id])

    def clear(self) -> None:
        self._by_key.clear()
        self._of_producer.clear()
