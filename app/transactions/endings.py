"""End a transaction, in the order in which it must become durable (ADR-0029).

::

    plan ─▶ data of all partitions synced ─▶ outcome, next epoch, offsets: one transaction of the store
         ─▶ offsets applied, markers appended, state complete: one turn of the event loop, or more for
            more than ``MARKERS_PER_TURN`` partitions ─▶ answer
         ─▶ later: markers synced ─▶ outcome deleted

Transactions that end together take each step together (ADR-0037), so all of them end or none.

Before the outcome is stored, a failure leaves the transaction open. After it, the outcome stands: markers
that cannot be appended are tried again, and the next start appends those that a crash prevented.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TypeVar

from stele.wire.control_record import EndTransactionMarker, MarkerType

from ..broker.broker import Broker
from ..broker.producing.transaction_gate import MarkerOrder
from ..cluster.group_store import StoreChange
from ..cluster.transaction_store import DeleteOutcome, OutcomePartition, OutcomeRecord
from ..errors import ConcurrentTransactions, SteleError, TopicError
from ..groups.base.messages import OffsetsOfTransaction
from ..groups.base.parking import answer
from ..groups.base.timers import Scheduler, Timer
from ..groups.coordinator import GroupCoordinator
from ..storage.topic_partition import TopicPartition
from ..turns import Turns
from ..work_budget import take_turn
from .messages import ProducerIdentity
from .plans import EndPlan
from .table import TransactionTable
from .transaction import Transaction

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Markers are synced soon in the background; a sync for each transaction would double the syncs.
_FORGET_AFTER_MS = 1000
# Markers that are appended in one turn of the event loop, in some 25 µs each. Readers see the end of a transaction with
# no more partitions in all of them at once, and a larger one partition by partition.
MARKERS_PER_TURN = 200
# All ending transactions together look at so many times so many partitions in one turn, in some 5 µs each.
_LOOKS_PER_TURN, _PARTITIONS_PER_LOOK = 10, 50
# Markers that could not be appended, because the disk is full, are tried again after so long.
_RETRY_AFTER_MS = 1000


def marker_orders(broker: Broker, outcome: OutcomeRecord, *, coordinator_epoch: int) -> list[MarkerOrder]:
    """Return the markers of ``outcome`` that are missing in the logs.

    A partition whose log has a later transaction of the producer open has its marker; one that was
    deleted needs none.
    """
    marker = EndTransactionMarker(
        type=MarkerType.COMMIT if outcome.is_commit else MarkerType.ABORT, coordinator_epoch=coordinator_epoch
    )
    return [
        MarkerOrder(
            topic_partition=TopicPartition(partition.topic, partition.partition),
            producer_id=outcome.producer_id,
            producer_epoch=outcome.producer_epoch,
            marker=marker,
        )
        for partition in outcome.partitions
        if _is_marker_missing(broker, outcome.producer_id, partition)
    ]


def _portions(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Yield what one look is for."""
    for first in range(0, len(items), _PARTITIONS_PER_LOOK):
        yield items[first : first + _PARTITIONS_PER_LOOK]


def _is_marker_missing(broker: Broker, producer_id: int, partition: OutcomePartition) -> bool:
    try:
        if broker.topic(partition.topic).topic_id != partition.topic_id:
            return False
        since = broker.open_since(TopicPartition(partition.topic, partition.partition), producer_id)
    except TopicError:
        return False
    return since is not None and since < partition.end_offset


@dataclass(frozen=True, slots=True)
class _Ending:
    """A transaction that is ending; ``future`` is what its caller waits for."""

    transaction: Transaction
    plan: EndPlan
    future: asyncio.Future[ProducerIdentity]


@dataclass(frozen=True, slots=True)
class _Decided:
    """The stored outcome of a transaction."""

    ending: _Ending
    outcome: OutcomeRecord | None
    offsets: OffsetsOfTransaction


class Endings:
    """Ends transactions. ``committed``, ``aborted`` count those that ended."""

    def __init__(self, *, broker: Broker, groups: GroupCoordinator, table: TransactionTable) -> None:
        self._broker = broker
        self._groups = groups
        self._table = table
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_number = 1
        # By transactional id: the outcome is stored, and markers are missing.
        self._unmarked: dict[str, OutcomeRecord] = {}
        # By transactional id: why the last attempt to end its transaction failed, or its markers are missing.
        self._failures: dict[str, SteleError] = {}
        # The markers are appended, and may not be synced.
        self._unsynced: list[OutcomeRecord] = []
        self._forgetting: Timer | None = None
        self._retrying: Timer | None = None
        self._looks = Turns(_LOOKS_PER_TURN)
        self._markings = Turns(1)
        self.committed = 0
        self.aborted = 0

    # ── life ──

    def open(self, scheduler: Scheduler, *, next_number: int) -> None:
        """Begin; outcomes get numbers from ``next_number`` on."""
        self._next_number = next_number
        self._forgetting = Timer(scheduler, self._forget_later)
        self._retrying = Timer(scheduler, self._retry)

    async def close(self) -> None:
        """Wait for the transactions that are ending.

        The next start deletes outcomes that are left.
        """
        for timer in (self._forgetting, self._retrying):
            if timer is not None:
                timer.stop()
        while self._tasks:
            await asyncio.wait(self._tasks)

    # ── ending a transaction ──

    def start(
        self, transaction: Transaction, plan: EndPlan, *, also: Sequence[StoreChange] = ()
    ) -> asyncio.Future[ProducerIdentity]:
        """End a transaction as planned. The future completes when readers see the end.

        ``also`` is stored together with the outcome.

        It goes on if the caller drops the future. Raises ``GroupStoreFailed``, ``StorageError`` from it.
        """
        (future,) = self.start_together([(transaction, plan)], also=also)
        return future

    def start_together(
        self, plans: Sequence[tuple[Transaction, EndPlan]], *, also: Sequence[StoreChange] = ()
    ) -> list[asyncio.Future[ProducerIdentity]]:
        """End transactions as planned, all or none of them; return a future for each, as ``start`` does."""
        loop = asyncio.get_running_loop()
        endings = [_Ending(transaction, plan, loop.create_future()) for transaction, plan in plans]
        for ending in endings:
            self._failures.pop(ending.transaction.transactional_id, None)
            self._table.changed(ending.transaction)
        self._run(self._end(endings, also))
        return [ending.future for ending in endings]

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, endings: Sequence[_Ending], also: Sequence[StoreChange]) -> None:
        partitions = {partition for ending in endings for partition in ending.plan.partitions}
        try:
            await self._broker.sync(await self._existing(partitions))
            outcomes = [await self._outcome(ending.transaction, ending.plan) for ending in endings]
        except SteleError as error:
            self._cancel(endings, error)
            return
        except BaseException:
            # The loop is stopping: the transactions stay open.
            self._cancel(endings, ConcurrentTransactions(endings[0].transaction.transactional_id))
            raise
        decided = [
            _Decided(
                ending,
                outcome,
                self._groups.end_offsets(ending.plan.producer.producer_id, commit=ending.plan.is_commit),
            )
            for ending, outcome in zip(endings, outcomes, strict=True)
        ]
        changes: list[StoreChange] = [*also]
        for end in decided:
            changes += [end.ending.plan.record, *end.offsets.changes]
            if end.outcome is not None:
                changes.append(end.outcome)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def written(error: SteleError | None) -> None:
            try:
                if error is not None:
                    self._cancel(endings, error)
                else:
                    self._finish(decided)
            finally:
                if not stored.done():
                    stored.set_result(None)

        self._groups.table.persist(changes, written)
        await stored

    async def _existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        existing: list[TopicPartition] = []
        for some in _portions(sorted(partitions)):
            await take_turn(self._looks)
            existing += filter(self._exists, some)
        return existing

    def _exists(self, topic_partition: TopicPartition) -> bool:
        try:
            # A topic of the same name may have been created since, with fewer partitions.
            return topic_partition.partition < self._broker.topic(topic_partition.topic).partitions
        except TopicError:
            return False

    async def _outcome(self, transaction: Transaction, plan: EndPlan) -> OutcomeRecord | None:
        """Return the outcome for the partitions that have data of the transaction; None without any."""
        partitions: list[OutcomePartition] = []
        for some in _portions(sorted(plan.partitions)):
            await take_turn(self._looks)
            partitions += (
                OutcomePartition(
                    topic=name.topic,
                    topic_id=self._broker.topic(name.topic).topic_id,
                    partition=name.partition,
                    end_offset=self._broker.log_state(name.topic, name.partition).log_end_offset,
                )
                for name in some
                if self._exists(name) and self._broker.open_since(name, plan.producer.producer_id) is not None
            )
        if not partitions:
            return None
        number, self._next_number = self._next_number, self._next_number + 1
        return OutcomeRecord(
            number=number,
            transactional_id=transaction.transactional_id,
            producer_id=plan.producer.producer_id,
            producer_epoch=plan.marker_epoch,
            is_commit=plan.is_commit,
            partitions=tuple(partitions),
        )

    def _cancel(self, endings: Iterable[_Ending], error: SteleError) -> None:
        for ending in endings:
            transaction = ending.transaction
            logger.error("the transaction of %r could not be ended: %s", transaction.transactional_id, error)
            transaction.cancel(ending.plan)
            self._failures[transaction.transactional_id] = error
            self._table.changed(transaction)
            answer(ending.future, error)

    def _finish(self, decided: Sequence[_Decided]) -> None:
        """Make stored outcomes visible: in this turn of the event loop, unless they have many partitions."""
        for end in decided:
            end.offsets.apply()
            if end.ending.plan.is_commit:
                self.committed += 1
            else:
                self.aborted += 1
        outcomes = [end.outcome for end in decided if end.outcome is not None]
        if sum(len(outcome.partitions) for outcome in outcomes) > MARKERS_PER_TURN:
            self._run(self._finish_in_turns(decided, outcomes))
            return
        try:
            self._append_markers(outcomes)
        except SteleError as error:
            self._lacks_markers(decided, error)
        else:
            self._finished(decided)

    async def _finish_in_turns(self, decided: Sequence[_Decided], outcomes: Sequence[OutcomeRecord]) -> None:
        try:
            for outcome in outcomes:
                await self._append_in_turns(outcome)
        except SteleError as error:
            self._lacks_markers(decided, error)
        else:
            self._finished(decided)

    def _lacks_markers(self, decided: Sequence[_Decided], error: SteleError) -> None:
        for end in decided:
            if end.outcome is None:
                self._complete(end.ending.transaction)
            else:
                transactional_id = end.outcome.transactional_id
                logger.error(
                    "markers of the transaction of %r are missing, and are tried again: %s",
                    *(transactional_id, error),
                )
                self._unmarked[transactional_id] = end.outcome
                self._failures[transactional_id] = error
            answer(end.ending.future, error)
        self._start(self._retrying, _RETRY_AFTER_MS)

    def _finished(self, decided: Sequence[_Decided]) -> None:
        for end in decided:
            self._complete(end.ending.transaction)
            answer(end.ending.future, end.ending.plan.next_producer)

    def _append_markers(self, outcomes: Sequence[OutcomeRecord]) -> None:
        """Append the missing markers of outcomes in this turn."""
        orders = [order for outcome in outcomes for order in self._missing(outcome)]
        if orders:
            self._broker.append_markers(orders)
        self._appended(outcomes)

    def _missing(self, outcome: OutcomeRecord) -> list[MarkerOrder]:
        return marker_orders(self._broker, outcome, coordinator_epoch=self._groups.epoch)

    def _appended(self, outcomes: Sequence[OutcomeRecord]) -> None:
        """Note that all markers of outcomes are appended."""
        if outcomes:
            self._unsynced += outcomes
            self._start(self._forgetting, _FORGET_AFTER_MS)

    async def _append_in_turns(self, outcome: OutcomeRecord) -> None:
        """Append the missing markers of an outcome, a part of them in each turn."""
        for first in range(0, len(outcome.partitions), MARKERS_PER_TURN):
            await take_turn(self._markings)
            partitions = outcome.partitions[first : first + MARKERS_PER_TURN]
            self._broker.append_markers(self._missing(replace(outcome, partitions=partitions)))
        self._appended([outcome])

    def _complete(self, transaction: Transaction) -> None:
        transaction.complete()
        self._failures.pop(transaction.transactional_id, None)
        self._table.changed(transaction)

    @staticmethod
    def _start(timer: Timer | None, after_ms: int) -> None:
        if timer is not None and not timer.is_running:
            timer.start(after_ms)

    # ── afterwards ──

    def _retry(self) -> None:
        self._run(self._append_missing())

    async def _append_missing(self) -> None:
        for transactional_id, outcome in list(self._unmarked.items()):
            try:
                await self._append_in_turns(outcome)
            except SteleError as error:
                # It was logged when it was tried first.
                self._failures[transactional_id] = error
                self._start(self._retrying, _RETRY_AFTER_MS)
                continue
            if self._unmarked.get(transactional_id) is not outcome:
                continue
            del self._unmarked[transactional_id]
            transaction = self._table.find(transactional_id)
            if transaction is not None and transaction.ending is not None:
                self._complete(transaction)

    def failure_of(self, transactional_id: str) -> SteleError | None:
        """See ``TransactionService.failure_of_end``."""
        return self._failures.get(transactional_id)

    def unmarked(self, transaction: Transaction) -> list[TopicPartition]:
        """Return the partitions of an ending transaction that have no marker yet."""
        outcome = self._unmarked.get(transaction.transactional_id)
        if outcome is None:
            return sorted(transaction.partitions)
        return sorted(order.topic_partition for order in self._missing(outcome))

    def _forget_later(self) -> None:
        self._run(self.forget_outcomes())

    async def forget_outcomes(self) -> None:
        """Delete the outcomes whose markers are synced by the end of this call."""
        outcomes, self._unsynced = self._unsynced, []
        names: set[TopicPartition] = set()
        for outcome in outcomes:
            for some in _portions(outcome.partitions):
                await take_turn(self._looks)
                names.update(TopicPartition(partition.topic, partition.partition) for partition in some)
        numbers = {outcome.number for outcome in outcomes}
        try:
            await self._broker.sync(await self._existing(names))
        except SteleError as error:
            # The log no longer accepts appends; the next start reads the outcomes.
            logger.error("outcomes of %d transactions are kept: %s", len(numbers), error)
            return
        deleted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def written(error: SteleError | None) -> None:
            # The store has logged an error; the next start finds the outcomes and deletes them.
            if not deleted.done():
                deleted.set_result(None)

        changes = [DeleteOutcome(number=number) for number in sorted(numbers)]
        self._groups.table.persist(changes, written)
        await deleted
