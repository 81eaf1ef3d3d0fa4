"""The transaction coordinator: all that a listener may call about transactions.

It runs on the event loop of the broker. An answer that promises something is given when that is
durable (ADR-0029). Each call finds the machine of its transactional id, asks it what to do, and hands what
must be stored to the writer of the group store, or an end to ``Endings``.

Every call may raise ``CoordinatorNotAvailable`` (the broker is closing), ``CoordinatorFenced`` and
``GroupStoreFailed`` (nothing was changed; try again).

It is one class in one file, because it is the facade of transactions: a method per request, over the parts
beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from stele.wire.control_record import EndTransactionMarker, MarkerType
from stele.wire.record_batch import BatchHeader

from ..broker.broker import Broker
from ..broker.transaction_gate import MarkerOrder, TransactionalProduce
from ..clock import Clock
from ..cluster.group_store import StoreChange
from ..errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    OperationNotAttempted,
    ProducerFenced,
    SteleError,
    TransactionalIdNotFound,
    UnknownPartition,
    UnknownProducerMapping,
)
from ..groups.checks import check_group_id
from ..groups.coordinator import GroupCoordinator
from ..groups.messages import CommitRequest, Results
from ..groups.parking import answer
from ..groups.timers import Scheduler
from ..settings import Settings
from ..storage.topic_partition import TopicPartition
from .endings import Endings
from .joint_commits import JointCommits
from .messages import (
    NOT_STARTED,
    ProducerIdentity,
    TransactionCounts,
    TransactionDescription,
    TransactionListing,
)
from .plans import EndPlan, Moment, StorePlan
from .recovery import recover
from .states import TransactionState
from .timeouts import Timeouts
from .transaction import Transaction
from .transaction_table import TransactionTable
from .transactional_id import check_transactional_id

# Each is stored with every change of its transaction. Programs use one.
GROUPS_OF_TRANSACTION_MAX = 1000


class TransactionCoordinator:
    """Serves the transactional ids in the store of ``groups``.

    Implements ``TransactionGate``.

    ``scheduler`` (default: the running loop) is for tests.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        groups: GroupCoordinator,
        clock: Clock,
        settings: Settings,
        scheduler: Scheduler | None = None,
    ) -> None:
        self._broker = broker
        self._groups = groups
        self._clock = clock
        self._settings = settings
        self._scheduler = scheduler
        self._table = TransactionTable(ids_max=settings.transactional_ids_max)
        self._endings = Endings(broker=broker, groups=groups, table=self._table)
        self.joint_commits = JointCommits(
            broker=broker, table=self._table, endings=self._endings, known=self._known, now=self._now
        )
        self._timeouts = Timeouts(
            groups=groups,
            table=self._table,
            endings=self._endings,
            clock=clock,
            settings=settings,
            now=self._now,
        )

    def _now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    # ── life ──

    async def open(self) -> None:
        """Finish what a crash interrupted, and continue where the last coordinator ended.

        The broker and the groups must be open, the listeners not yet.

        Raises ``GroupStoreFailed``, ``StorageError``.
        """
        number = await recover(broker=self._broker, groups=self._groups, table=self._table, now=self._now())
        scheduler = self._scheduler or asyncio.get_running_loop()
        self._endings.open(scheduler, next_number=number)
        self._timeouts.start(scheduler)
        self._broker.set_transaction_gate(self)
        self._broker.observe_deletions(self._forget_topic)

    def begin_close(self) -> None:
        """Abort no more transactions that take too long; the groups refuse all calls."""
        self._timeouts.stop()

    async def close(self) -> None:
        """Finish the transactions that are ending.

        Open ones stay open until the next start.
        """
        self.begin_close()
        await self._endings.close()

    def _forget_topic(self, topic: str) -> None:
        for transaction in self._table.open:
            transaction.forget_topic(topic)

    # ── finding and storing ──

    def _known(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        """Raises ``InvalidRequest``, ``UnknownProducerMapping``."""
        self._groups.table.check_open()
        check_transactional_id(transactional_id)
        transaction = self._table.find(transactional_id)
        if transaction is None or transaction.is_new:
            raise UnknownProducerMapping(transactional_id, producer_id=producer.producer_id)
        return transaction

    def _existing(self, transactional_id: str) -> Transaction:
        """Raises ``InvalidRequest``, ``TransactionalIdNotFound``."""
        self._groups.table.check_open()
        check_transactional_id(transactional_id)
        transaction = self._table.find(transactional_id)
        if transaction is None or transaction.is_new:
            raise TransactionalIdNotFound(transactional_id)
        return transaction

    def _store(self, transaction: Transaction, plan: StorePlan) -> asyncio.Future[ProducerIdentity]:
        """Store what a plan changes; completes with the producer after it."""
        future: asyncio.Future[ProducerIdentity] = asyncio.get_running_loop().create_future()

        def stored(error: SteleError | None) -> None:
            if error is None:
                transaction.store(plan, now=self._now())
                self._table.changed(transaction)
            else:
                transaction.cancel(plan)
                if transaction.is_new:
                    self._table.remove(transaction)
            answer(future, plan.producer if error is None else error)

        self._groups.table.persist([plan.record], stored)
        return future

    async def _settle(
        self,
        transaction: Transaction,
        result: ProducerIdentity | StorePlan | EndPlan,
        also: Sequence[StoreChange] = (),
    ) -> ProducerIdentity:
        """Do what the machine planned, and return the producer for the answer."""
        if isinstance(result, EndPlan):
            return await self._endings.start(transaction, result, also=also)
        if isinstance(result, StorePlan):
            return await self._store(transaction, result)
        return result

    # ── producers ──

    async def init_producer_id(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Begin with a transactional id.

        Earlier producers with it are fenced, an open transaction is aborted.

        ``expected`` is what the producer has, if it continues after an error (KIP-360).

        Raises:
            InvalidRequest: the transactional id is empty or too long.
            InvalidTransactionTimeout: see there.
            TransactionFenced: another producer has begun since ``expected``.
            ConcurrentTransactions: try again; an open transaction is being aborted.
            TooManyTransactionalIds: a limit of the broker is reached.
        """
        if self._settings.storage == "shared":
            raise InvalidRequest("shared storage does not support transactions yet; produce without them")
        self._groups.table.check_open()
        check_transactional_id(transactional_id)
        limit = self._settings.transaction_max_timeout_ms
        if not 0 < timeout_ms <= limit:
            raise InvalidTransactionTimeout(transactional_id, timeout_ms, limit=limit)
        fresh_id: int | None = None
        while (transaction := self._table.find(transactional_id)) is None or transaction.is_exhausted:
            if fresh_id is not None:
                break
            if transaction is None:
                self._table.check_room(transactional_id)
            fresh_id, _ = await self._broker.init_producer_id()
            self._groups.table.check_open()
        transaction = self._table.existing_or_new(transactional_id, now=self._now())
        result = transaction.begin(expected, timeout_ms=timeout_ms, fresh_id=fresh_id, now=self._now())
        if isinstance(result, EndPlan):
            self._endings.start(transaction, result)
            raise ConcurrentTransactions(transactional_id)
        return await self._settle(transaction, result)

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
        self._groups.table.check_open()
        errors = {
            partition: error for partition in partitions if (error := self._error_of(partition)) is not None
        }
        if errors:
            return {
                partition: errors.get(partition) or OperationNotAttempted(f"adding partition {partition}")
                for partition in partitions
            }
        transaction = self._known(transactional_id, producer)
        plan = transaction.add(producer, partitions=partitions, now=self._now())
        if plan is not None:
            await self._store(transaction, plan)
        return dict.fromkeys(partitions)

    def _error_of(self, topic_partition: TopicPartition) -> SteleError | None:
        """Return why a partition cannot be in a transaction."""
        name, partition = topic_partition
        try:
            topic = self._broker.topic(name)
            if not 0 <= partition < topic.partitions:
                raise UnknownPartition(name, partition, partitions=topic.partitions)
            if topic.config.storage == "memory":
                raise InvalidRequest(
                    f"topic {name!r} is in memory, so it cannot be in a transaction; use a topic on disk"
                )
        except SteleError as error:
            return error
        return None

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        """Add the committed offsets of ``group`` to the transaction.

        Raises as ``add_partitions``, ``InvalidGroupId``.
        """
        transaction = self._known(transactional_id, producer)
        check_group_id(group)
        plan = self._add_group(transaction, producer, group)
        if plan is not None:
            await self._store(transaction, plan)

    def _add_group(
        self, transaction: Transaction, producer: ProducerIdentity, group: str
    ) -> StorePlan | None:
        if len(transaction.groups) >= GROUPS_OF_TRANSACTION_MAX and group not in transaction.groups:
            raise InvalidRequest(
                f"the transaction commits offsets of {GROUPS_OF_TRANSACTION_MAX} groups already, which is the limit"
            )
        return transaction.add(producer, groups=[group], now=self._now())

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
        transaction = self._known(transactional_id, producer)
        check_group_id(request.group)
        adding: asyncio.Future[ProducerIdentity] | None = None
        if adds_group:
            plan = self._add_group(transaction, producer, request.group)
            if plan is not None:
                # Stored before the offsets: after a crash they belong to an open transaction.
                adding = self._store(transaction, plan)
        else:
            transaction.check_commit(producer, request.group)
        staging: asyncio.Future[Results] | None = None
        try:
            staging = self._groups.stage_offsets(
                request, producer_id=producer.producer_id, producer_epoch=producer.epoch
            )
        finally:
            if adding is not None:
                await adding
        return await staging

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
            InvalidTransactionState: there is no transaction to end in this way.
            UnknownProducerMapping, TransactionFenced, ConcurrentTransactions: see there.
            StorageError: the data could not be synced, or the markers not be written. The outcome may be
                decided: ask again.
        """
        fresh_id: int | None = None
        while (transaction := self._known(transactional_id, producer)).is_exhausted and bumps_epoch:
            if fresh_id is not None:
                break
            fresh_id, _ = await self._broker.init_producer_id()
        result = transaction.end(
            producer, commit=commit, bumps_epoch=bumps_epoch, fresh_id=fresh_id, now=self._now()
        )
        return await self._settle(transaction, result, also)

    def is_current(self, transactional_id: str, producer: ProducerIdentity) -> bool:
        """Return whether ``producer`` may go on without ``init_producer_id``.

        It is asked before its next transaction.
        """
        transaction = self._table.find(transactional_id)
        return transaction is not None and transaction.producer == producer and transaction.is_idle

    # ── the gate: see ``TransactionGate`` ──

    def admit(
        self, produce: TransactionalProduce, topic_partition: TopicPartition, header: BatchHeader
    ) -> None:
        self._groups.table.check_open()
        transaction = self._known(produce.transactional_id, producer_of(header))
        was_open = transaction.state.is_open
        transaction.admit(
            producer_of(header),
            topic_partition,
            adds=produce.adds_partitions,
            is_abortable_known=produce.is_abortable_known,
            now=self._now(),
        )
        if not was_open:
            self._table.changed(transaction)

    def is_open(self, producer_id: int, topic_partition: TopicPartition) -> bool:
        transaction = self._table.of_producer(producer_id)
        return (
            transaction is not None
            and transaction.state.is_open
            and topic_partition in transaction.partitions
        )

    # ── operators ──

    def holder(self, producer_id: int, topic_partition: TopicPartition) -> TransactionListing | None:
        """Return the open transaction of a producer that holds the partition.

        None if there is none.
        """
        transaction = self._table.of_producer(producer_id)
        if transaction is None or not self.is_open(producer_id, topic_partition):
            return None
        return self._listing(transaction)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises ``InvalidRequest`` (the id is empty), ``TransactionalIdNotFound``."""
        transaction = self._existing(transactional_id)
        partitions = (
            self._endings.unmarked(transaction)
            if transaction.state.is_preparing
            else sorted(transaction.partitions)
        )
        return TransactionDescription(
            transactional_id=transactional_id,
            state=transaction.state,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            timeout_ms=transaction.timeout_ms,
            started_at_ms=transaction.started_at_ms if transaction.state.is_open else NOT_STARTED,
            partitions=partitions,
        )

    def list(
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
        self._groups.table.check_open()
        now_ms = self._clock.now_ms()
        return [
            self._listing(transaction)
            for transaction in sorted(self._table, key=lambda transaction: transaction.transactional_id)
            if not transaction.is_new
            and (not states or transaction.state.value in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (
                min_duration_ms < 0
                or (transaction.state.is_open and now_ms - transaction.started_at_ms > min_duration_ms)
            )
        ]

    @staticmethod
    def _listing(transaction: Transaction) -> TransactionListing:
        return TransactionListing(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            state=transaction.state,
            started_at_ms=transaction.started_at_ms if transaction.state.is_open else NOT_STARTED,
        )

    async def abort(self, transactional_id: str) -> None:
        """Abort the open transaction of an id, and fence its producer.

        Returns at once if none is open.

        Raises ``TransactionalIdNotFound``, ``ConcurrentTransactions`` (it is ending), ``StorageError``.
        """
        transaction = self._existing(transactional_id)
        if transaction.pending is not None or transaction.state.is_preparing:
            raise ConcurrentTransactions(transactional_id)
        if transaction.state is TransactionState.ONGOING:
            await self._endings.start(transaction, transaction.abort(now=self._now()))

    async def abort_partition(
        self, topic_partition: TopicPartition, *, producer_id: int, epoch: int, coordinator_epoch: int
    ) -> None:
        """Abort what a producer has open in one partition.

        A transaction that is known here is aborted whole.

        Raises:
            UnknownTopic, UnknownPartition, StorageError: see there.
            InvalidTransactionState: the producer has nothing open there.
            ProducerFenced: ``epoch`` is older than that in the partition.
            CoordinatorFenced: ``coordinator_epoch`` is older than that of the last marker there.
        """
        self._groups.table.check_open()
        opened = [
            transaction
            for transaction in self._broker.open_transactions(topic_partition)
            if transaction.producer_id == producer_id
        ]
        if not opened:
            raise InvalidTransactionState(
                None, f"producer {producer_id} has no open transaction in {topic_partition}"
            )
        current_epoch = max(transaction.producer_epoch for transaction in opened)
        if epoch < current_epoch:
            raise ProducerFenced(producer_id=producer_id, epoch=epoch, current_epoch=current_epoch)
        known = self._table.of_producer(producer_id)
        if known is not None and self.is_open(producer_id, topic_partition):
            await self.abort(known.transactional_id)
            return
        order = MarkerOrder(
            topic_partition=topic_partition,
            producer_id=producer_id,
            producer_epoch=epoch,
            marker=EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=coordinator_epoch),
        )
        self._broker.append_markers([order])
        await self._broker.sync([topic_partition])

    @property
    def counts(self) -> TransactionCounts:
        now_ms = self._clock.now_ms()
        oldest_ms = min((transaction.started_at_ms for transaction in self._table.open), default=now_ms)
        return TransactionCounts(
            ids=len(self._table),
            open=self._table.open_count,
            oldest_ms=max(0, now_ms - oldest_ms),
            committed=self._endings.committed,
            aborted=self._endings.aborted,
            timed_out=self._timeouts.timed_out,
        )


def producer_of(header: BatchHeader) -> ProducerIdentity:
    return ProducerIdentity(header.producer_id, header.producer_epoch)
