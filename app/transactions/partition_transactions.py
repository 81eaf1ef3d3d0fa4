"""The open transactions of a partition, which hold back its last stable offset.

A transaction that is open in a log and that the coordinator does not know is *hanging*: nobody will end
it, until an operator aborts it in that partition (KIP-664).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..broker.broker import Broker
from ..errors import InvalidTransactionState
from ..storage.topic_partition import TopicPartition
from .coordinator import TransactionCoordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTransaction:
    """A transaction of which a partition has batches, but no marker.

    ``transactional_id`` is None if it hangs. ``since_ms`` is when it began; if it hangs, the time of its last batch,
    because nothing else is known. ``holds_back``: it is the oldest of the partition, so the last stable offset is
    ``first_offset``.
    """

    topic_partition: TopicPartition
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    since_ms: int
    holds_back: bool

    @property
    def is_hanging(self) -> bool:
        return self.transactional_id is None


def open_in_partition(
    broker: Broker, transactions: TransactionCoordinator, topic_partition: TopicPartition
) -> list[PartitionTransaction]:
    """Return the open transactions of a partition, oldest first.

    The first one holds back the last stable offset.

    Raises ``UnknownTopic``, ``UnknownPartition``.
    """
    listed: list[PartitionTransaction] = []
    for opened in broker.open_transactions(topic_partition):
        holder = transactions.holder(opened.producer_id, topic_partition)
        listed.append(
            PartitionTransaction(
                topic_partition=topic_partition,
                transactional_id=None if holder is None else holder.transactional_id,
                producer_id=opened.producer_id,
                producer_epoch=opened.producer_epoch,
                coordinator_epoch=opened.coordinator_epoch,
                first_offset=opened.first_offset,
                since_ms=opened.last_timestamp_ms if holder is None else holder.started_at_ms,
                holds_back=not listed,
            )
        )
    return listed


async def abort_in_partition(
    broker: Broker,
    transactions: TransactionCoordinator,
    topic_partition: TopicPartition,
    *,
    producer_id: int,
) -> None:
    """Abort what a producer has open in a partition.

    A transaction that is known is aborted in all its partitions.

    Raises:
        UnknownTopic, UnknownPartition: the partition does not exist.
        InvalidTransactionState: the producer has nothing open there.
        ConcurrentTransactions: the transaction is ending.
        StorageError: the marker could not be written.
    """
    for opened in broker.open_transactions(topic_partition):
        if opened.producer_id == producer_id:
            break
    else:
        raise InvalidTransactionState(
            None, f"producer {producer_id} has no open transaction in {topic_partition}"
        )
    await transactions.abort_partition(
        topic_partition,
        producer_id=producer_id,
        epoch=opened.producer_epoch,
        coordinator_epoch=max(opened.coordinator_epoch, 0),
    )
