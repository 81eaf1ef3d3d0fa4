"""The open transactions of a partition, which hold back its last stable offset.

A transaction that is open in a log and that the coordinator does not know is *hanging*: no timeout ends it,
and an operator has to abort it in that partition (KIP-664).
"""

from __future__ import annotations

from ..errors import InvalidTransactionState
from ..storage.topic_partition import TopicPartition
from .interface import TransactionService


async def abort_in_partition(
    transactions: TransactionService,
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
    for opened in (await transactions.open_in([topic_partition])).get(topic_partition, ()):
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
