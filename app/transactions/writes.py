"""Write records into an open transaction, and settle leases and offsets with it.

For listeners whose clients send records, not batches: the broker numbers the records, from what the
log knows of the producer, so nothing is lost here in a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stele.wire.record_batch import Row, build_rows

from ..broker.broker import Broker
from ..broker.producing.produce import Acks, PendingProduce, Produced
from ..errors import BrokenContract, ProducerFenced, TransactionFenced
from ..groups.base.messages import CommitRequest, Results
from ..groups.services import GroupServices
from ..storage.sequences import SEQUENCE_MODULUS
from ..storage.topic_partition import TopicPartition
from ..storage.transactional_produce import TransactionalProduce
from .interface import TransactionService
from .messages import ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseToSettle:
    group: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Records for one partition that fit into one batch; ``indexes`` are theirs in the request."""

    topic_partition: TopicPartition
    rows: Sequence[Row]
    indexes: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlements:
    """Settlements of a transaction: leases, and offsets without membership, one request per group."""

    leases: Sequence[LeaseToSettle] = ()
    offsets: Sequence[CommitRequest] = ()


class TransactionWrites:
    def __init__(self, *, broker: Broker, groups: GroupServices, transactions: TransactionService) -> None:
        self._broker = broker
        self._groups = groups
        self._transactions = transactions

    async def append(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        batches: Sequence[RowBatch],
        *,
        acks: Acks,
        timeout_ms: int,
    ) -> list[Produced]:
        """Append batches in order; return a receipt for each.

        They are synced when the transaction ends. With ``acks`` of ``LEADER`` they may be lost before that, if the
        machine fails. The client must learn of it: whatever it adds to the transaction later could be committed
        without them, because the broker numbers the records and misses none.

        The topics exist, and accept the records. After an error some batches may have been appended: the
        transaction must be aborted.

        Raises:
            TransactionFenced: another producer has begun.
            UnknownProducerMapping, ConcurrentTransactions: see there.
            OutOfOrderSequence: another request wrote to the same transaction at the same time.
            BrokenContract: a record was refused, and its batch with it; the index is that in the request.
            InvalidBatch, InvalidRequest, StorageError, RequestTimedOut: the records were not accepted.
        """
        transaction = TransactionalProduce(transactional_id=transactional_id, adds_partitions=True)
        next_sequences: dict[TopicPartition, int] = {}
        pending: list[PendingProduce] = []
        for batch in batches:
            partition = batch.topic_partition
            sequence = next_sequences.get(partition)
            if sequence is None:
                sequence = await self._next_sequence(partition, producer)
            next_sequences[partition] = (sequence + len(batch.rows)) % SEQUENCE_MODULUS
            try:
                pending.append(
                    self._broker.produce(
                        partition.topic,
                        partition.partition,
                        build_rows(
                            batch.rows,
                            producer_id=producer.producer_id,
                            producer_epoch=producer.epoch,
                            base_sequence=sequence,
                            is_transactional=True,
                        ),
                        acks=acks,
                        transaction=transaction,
                    )
                )
            except ProducerFenced as error:
                raise _fenced(transactional_id, error) from error
        try:
            return [
                await _receipt(produce, batch, timeout_ms)
                for produce, batch in zip(pending, batches, strict=True)
            ]
        except ProducerFenced as error:
            # A commit of a shared engine judges batches later.
            raise _fenced(transactional_id, error) from error

    async def _next_sequence(self, partition: TopicPartition, producer: ProducerIdentity) -> int:
        view = await self._broker.producer(partition.topic, partition.partition, producer.producer_id)
        if view is None or view.epoch != producer.epoch:
            return 0
        return (view.last_sequence + 1) % SEQUENCE_MODULUS

    async def settle(
        self, transactional_id: str, producer: ProducerIdentity, settlements: Settlements
    ) -> None:
        """Settle leases and commit offsets when the transaction commits.

        After an error some may have been staged: the transaction must be aborted.

        Raises:
            LeaseFenced: the records of a lease were given to another client.
            TransactionFenced, UnknownProducerMapping, ConcurrentTransactions: see there.
            SteleError: as ``LeaseManager.stage_acknowledgement`` and ``GroupCoordinator.commit``.
        """

        async def stage(request: CommitRequest) -> Results:
            return await self._transactions.commit_offsets(
                transactional_id, producer, request, adds_group=True
            )

        for lease in settlements.leases:
            await self._groups.of(lease.group).leases.stage_acknowledgement(
                lease.group, lease.token, producer_id=producer.producer_id, stage=stage
            )
        for request in settlements.offsets:
            for error in await stage(request):
                if error is not None:
                    raise error


async def _receipt(produce: PendingProduce, batch: RowBatch, timeout_ms: int) -> Produced:
    try:
        return await produce.wait(timeout_ms)
    except BrokenContract as error:
        raise error.renumbered(batch.indexes) from None


def _fenced(transactional_id: str, error: ProducerFenced) -> TransactionFenced:
    return TransactionFenced(transactional_id, epoch=error.epoch, current_epoch=error.current_epoch)
