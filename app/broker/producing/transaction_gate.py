"""The broker's interface to transactions for a transactional batch.

The coordinator lies above the broker and implements the gate. The broker calls it in the turn
of the event loop in which it appends the batch, so no transaction can end in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stele.wire.control_record import EndTransactionMarker
from stele.wire.record_batch import BatchHeader

from ...storage.topic_partition import TopicPartition
from ...storage.transactional_produce import TransactionalProduce


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerOrder:
    """A marker to append to one partition.

    ``producer_epoch`` may be higher than that of the batches.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    marker: EndTransactionMarker


class TransactionGate(Protocol):
    def admit(
        self, produce: TransactionalProduce, topic_partition: TopicPartition, header: BatchHeader
    ) -> None:
        """Allow a transactional batch, which is appended in this turn of the event loop.

        Raises:
            InvalidTransactionState, TransactionAbortable: the partition is not in the transaction.
            UnknownProducerMapping: the transactional id is unknown, or has another producer id.
            ProducerFenced: its epoch is not the current one.
            ConcurrentTransactions: the transaction is ending.
        """
        ...
