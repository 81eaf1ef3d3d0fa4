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
import builtins
import contextlib
from collections.abc import Collection, Mapping, Sequence

from stele.wire.control_record import EndTransactionMarker, MarkerType
from stele.wire.record_batch import BatchHeader

from ..broker.broker import Broker
from ..broker.producing.producer_state import OpenTransaction
from ..broker.producing.transaction_gate import MarkerOrder
from ..clock import Clock
from ..cluster.group_store import StoreChange
from ..errors import (
    ConcurrentTransactions,
    MirroredTopic,
    SteleError,
    TransactionalIdNotFound,
    UnknownPartition,
    UnknownProducerMapping,
    UnknownTopic,
)
from ..groups.base.checks import check_group_id
from ..groups.base.messages import CommitRequest, Results
from ..groups.base.parking import answer
from ..groups.base.timers import Scheduler
from ..groups.coordinator import GroupCoordinator
from ..settings import Settings
from ..storage.topic_partition import TopicPartition
from ..storage.transactional_produce import TransactionalProduce
from ..work_budget import WorkBudget
from .descriptions import description_of, listings_of, open_of_producer
from .endings import Endings
from .joint_commits import JointCommits
from .messages import (
    PartitionTransaction,
    ProducerIdentity,
    TransactionCounts,
    TransactionDescription,
    TransactionListing,
)
from .plans import EndPlan, Moment, StorePlan
from .recovery import recover
from .request_checks import check_groups, check_timeout, check_transactional_id, refused_partitions
from .states import TransactionState
from .table import TransactionTable
from .timeouts import Timeouts
from .transaction import Transaction


class TransactionCoordinator:
    """Serves the transactional ids in the store of ``groups``.

    Implements ``TransactionService`` and ``TransactionGate``.

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
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        unless_open: bool = False,
    ) -> ProducerIdentity:
        self._groups.table.check_open()
        check_transactional_id(transactional_id)
        check_timeout(transactional_id, timeout_ms, limit=self._settings.transaction_max_timeout_ms)
        fresh_id: int | None = None
        while (transaction := self._table.find(transactional_id)) is None or transaction.is_exhausted:
            if fresh_id is not None:
                break
            if transaction is None:
                self._table.check_room(transactional_id)
            fresh_id, _ = await self._broker.init_producer_id()
            self._groups.table.check_open()
        transaction = self._table.existing_or_new(transactional_id, now=self._now())
        result = transaction.begin(
            expected, timeout_ms=timeout_ms, fresh_id=fresh_id, unless_open=unless_open, now=self._now()
        )
        if isinstance(result, EndPlan):
            self._endings.start(transaction, result)
            raise ConcurrentTransactions(transactional_id)
        return await self._settle(transaction, result)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, SteleError | None]:
        self._groups.table.check_open()
        errors = await refused_partitions(self._broker, partitions)
        if errors:
            return errors
        self._groups.table.check_open()
        transaction = self._known(transactional_id, producer)
        plan = transaction.add(producer, partitions=partitions, now=self._now())
        if plan is not None:
            await self._store(transaction, plan)
        return dict.fromkeys(partitions)

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        transaction = self._known(transactional_id, producer)
        check_group_id(group)
        plan = self._add_group(transaction, producer, group)
        if plan is not None:
            await self._store(transaction, plan)

    def _add_group(
        self, transaction: Transaction, producer: ProducerIdentity, group: str
    ) -> StorePlan | None:
        check_groups(transaction, group)
        return transaction.add(producer, groups=[group], now=self._now())

    async def commit_offsets(
        self, transactional_id: str, producer: ProducerIdentity, request: CommitRequest, *, adds_group: bool
    ) -> Results:
        request = await self._groups.checked(request)
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
        fresh_id: int | None = None
        while (transaction := self._known(transactional_id, producer)).is_exhausted and bumps_epoch:
            if fresh_id is not None:
                break
            fresh_id, _ = await self._broker.init_producer_id()
        result = transaction.end(
            producer, commit=commit, bumps_epoch=bumps_epoch, fresh_id=fresh_id, now=self._now()
        )
        return await self._settle(transaction, result, also)

    def failure_of_end(self, transactional_id: str) -> SteleError | None:
        return self._endings.failure_of(transactional_id)

    async def is_current(self, transactional_id: str, producer: ProducerIdentity) -> bool:
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

    # ── operators ──

    def _holder(self, producer_id: int, topic_partition: TopicPartition) -> Transaction | None:
        """Return the open transaction of a producer that holds the partition."""
        transaction = self._table.of_producer(producer_id)
        if transaction is None or not transaction.state.is_open:
            return None
        return transaction if topic_partition in transaction.partitions else None

    async def open_in(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, builtins.list[PartitionTransaction]]:
        if partitions is None:
            partitions = dict.fromkeys(opened.topic_partition for opened in self._broker.open_transactions())
        found: dict[TopicPartition, builtins.list[PartitionTransaction]] = {}
        budget = WorkBudget()
        # A thousand transactions may be open in each of a hundred partitions.
        for name in partitions:
            with contextlib.suppress(UnknownTopic, UnknownPartition):
                for opened in self._broker.open_transactions(name):
                    listed = found.setdefault(name, [])
                    listed.append(self._opened(opened, holds_back=not listed))
                    await budget.visit()
            await budget.visit()
        return found

    def _opened(self, opened: OpenTransaction, *, holds_back: bool) -> PartitionTransaction:
        holder = self._holder(opened.producer_id, opened.topic_partition)
        return PartitionTransaction(
            topic_partition=opened.topic_partition,
            transactional_id=None if holder is None else holder.transactional_id,
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            coordinator_epoch=opened.coordinator_epoch,
            first_offset=opened.first_offset,
            since_ms=opened.last_timestamp_ms if holder is None else holder.started_at_ms,
            holds_back=holds_back,
        )

    async def describe(self, transactional_id: str) -> TransactionDescription:
        transaction = self._existing(transactional_id)
        partitions = (
            self._endings.unmarked(transaction)
            if transaction.state.is_preparing
            else sorted(transaction.partitions)
        )
        return description_of(transaction, partitions)

    async def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int = -1,
    ) -> list[TransactionListing]:
        self._groups.table.check_open()
        return await listings_of(
            [transaction for transaction in self._table if not transaction.is_new],
            states=states,
            producer_ids=producer_ids,
            min_duration_ms=min_duration_ms,
            now_ms=self._clock.now_ms(),
        )

    async def abort(self, transactional_id: str) -> None:
        transaction = self._existing(transactional_id)
        if transaction.pending is not None or transaction.state.is_preparing:
            raise ConcurrentTransactions(transactional_id)
        if transaction.state is TransactionState.ONGOING:
            await self._endings.start(transaction, transaction.abort(now=self._now()))

    async def abort_partition(
        self, topic_partition: TopicPartition, *, producer_id: int, epoch: int, coordinator_epoch: int
    ) -> None:
        self._groups.table.check_open()
        if mirror := self._broker.topic(topic_partition.topic).config.mirror:
            raise MirroredTopic(topic_partition.topic, mirror)
        opened = self._broker.open_transactions(topic_partition)
        open_of_producer(opened, topic_partition, producer_id=producer_id, epoch=epoch)
        holder = self._holder(producer_id, topic_partition)
        if holder is not None:
            await self.abort(holder.transactional_id)
            return
        # Otherwise a made-up epoch would fence the markers of this coordinator, also those of its next start.
        marker_epoch = min(coordinator_epoch, self._groups.epoch)
        order = MarkerOrder(
            topic_partition=topic_partition,
            producer_id=producer_id,
            producer_epoch=epoch,
            marker=EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=marker_epoch),
        )
        self._broker.append_markers([order])
        await self._broker.sync([topic_partition])

    @property
    def counts(self) -> TransactionCounts:
        now_ms = self._clock.now_ms()
        oldest = self._table.oldest_open
        oldest_ms = now_ms if oldest is None else oldest.started_at_ms
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
