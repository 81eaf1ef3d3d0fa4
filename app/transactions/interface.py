"""The interface of transactions for listeners, on one broker or with shared storage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ..cluster.group_store import StoreChange
from ..errors import SteleError
from ..groups.base.messages import CommitRequest, Results
from ..storage.topic_partition import TopicPartition
from .joint_commits import JointCommitService
from .messages import (
    PartitionTransaction,
    ProducerIdentity,
    TransactionCounts,
    TransactionDescription,
    TransactionListing,
)


class TransactionService(Protocol):
    """All requests about transactions.

    Every call may raise ``CoordinatorNotAvailable``, ``CoordinatorFenced``, ``GroupStoreFailed`` (nothing was
    changed; try again) and ``BrokerClosing``.
    """

    @property
    def joint_commits(self) -> JointCommitService:
        """Commit several transactions as one."""
        ...

    def begin_close(self) -> None:
        """Abort no more transactions that take too long."""
        ...

    async def close(self) -> None:
        """Finish the transactions that are ending; open ones stay open."""
        ...

    @property
    def counts(self) -> TransactionCounts: ...

    async def init_producer_id(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        unless_open: bool = False,
    ) -> ProducerIdentity:
        """Begin with a transactional id: earlier producers with it are fenced, an open transaction is aborted.

        ``expected`` is what the producer has, if it continues after an error (KIP-360). ``unless_open``: an open
        transaction is an error and stays open.

        Raises:
            InvalidRequest: the transactional id is empty or too long.
            InvalidTransactionTimeout: see there.
            TransactionFenced: another producer has begun since ``expected``.
            InvalidTransactionState: a transaction is open, and ``unless_open``.
            ConcurrentTransactions: try again; an open transaction is being aborted.
            TooManyTransactionalIds: a limit of the broker is reached.
        """
        ...

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, SteleError | None]:
        """Add partitions to the transaction, which begins with the first.

        Returns None for each, or an error for each, and then nothing was added: what is wrong with a
        partition, ``OperationNotAttempted`` for the others.

        Raises:
            InvalidRequest: the transactional id is empty.
            UnknownProducerMapping, TransactionFenced, ConcurrentTransactions: see there.
        """
        ...

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        """Add the committed offsets of ``group`` to the transaction.

        Raises as ``add_partitions``, ``InvalidGroupId``.
        """
        ...

    async def commit_offsets(
        self, transactional_id: str, producer: ProducerIdentity, request: CommitRequest, *, adds_group: bool
    ) -> Results:
        """Keep offsets that are committed with the transaction.

        ``adds_group``: this adds the group (TxnOffsetCommit v5); otherwise ``add_offsets`` came before. The
        results are those of ``GroupCoordinator.commit``.

        Raises:
            InvalidTransactionState: the group is not in the transaction.
            UnknownProducerMapping, TransactionFenced, ConcurrentTransactions: see there.
            InvalidGroupId, UnknownMember, FencedInstance, IllegalGeneration: as ``GroupCoordinator.commit``.
        """
        ...

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        bumps_epoch: bool,
        also: Sequence[StoreChange] = (),
    ) -> ProducerIdentity:
        """End the transaction; return what the producer continues with.

        When this returns, the outcome, the data and the offsets are durable and readers see them.
        ``bumps_epoch``: the epoch rises (EndTxn v5); otherwise it stays. ``also`` is stored together with
        the outcome, so that both are durable or neither.

        Raises:
            InvalidTransactionState: there is no transaction that can end so.
            UnknownProducerMapping, TransactionFenced, ConcurrentTransactions: see there.
            StorageError: the data could not be synced, or the markers not be written. The outcome may be
                decided: ask again.
        """
        ...

    def failure_of_end(self, transactional_id: str) -> SteleError | None:
        """Return why the last attempt to end the transaction of an id has failed.

        None if it has not, or is under way. Until it ends, the id cannot begin again.
        """
        ...

    async def is_current(self, transactional_id: str, producer: ProducerIdentity) -> bool:
        """Return whether ``producer`` may go on without ``init_producer_id``.

        It is called before the next transaction.
        """
        ...

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises ``InvalidRequest`` (the id is empty), ``TransactionalIdNotFound``."""
        ...

    async def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int = -1,
    ) -> list[TransactionListing]:
        """List transactional ids, sorted; each filter that is given must match.

        ``states`` are values of ``TransactionState``; others match nothing. ``min_duration_ms``: open for longer
        than that (-1: no filter).
        """
        ...

    async def abort(self, transactional_id: str) -> None:
        """Abort the open transaction of an id, and fence its producer.

        Returns at once if none is open.

        Raises ``TransactionalIdNotFound``, ``ConcurrentTransactions`` (it is ending), ``StorageError``.
        """
        ...

    async def open_in(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, list[PartitionTransaction]]:
        """Return what is open in the logs of partitions (None: all), oldest first.

        Only partitions that have something. The first one of a partition holds back its last stable offset. Those that do not exist are left out.
        """
        ...

    async def abort_partition(
        self, topic_partition: TopicPartition, *, producer_id: int, epoch: int, coordinator_epoch: int
    ) -> None:
        """Abort what a producer has open in one partition; a transaction that is known here is aborted whole.

        Raises:
            UnknownTopic, UnknownPartition, StorageError: see there.
            MirroredTopic: it is a copy, whose transactions end at its source, or with its promotion.
            InvalidTransactionState: the producer has nothing open there.
            ProducerFenced: ``epoch`` is older than that in the partition.
            CoordinatorFenced: ``coordinator_epoch`` is older than that of the last marker there.
        """
        ...
