"""State machine of one transactional id (KIP-98, KIP-360, KIP-890).

A pure machine: no clock, no store, no log. Requests that change what must be durable return a
plan, with the record to store. Until ``store`` or ``cancel`` is called with it, the machine is
**pending** and answers most requests with ``ConcurrentTransactions``.

A transaction ends in steps: a plan (the state is Prepare…, nothing more is admitted); ``decided``
once the outcome is stored; ``complete`` once the markers are in the logs. ``cancel`` of such
a plan opens the transaction again.

It is one file, because it is one state machine, which is easier to check when it is read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..cluster.transaction_store import TransactionRecord
from ..errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    ProducerFenced,
    SteleError,
    TransactionAbortable,
    TransactionFenced,
    UnknownProducerMapping,
)
from ..storage.topic_partition import TopicPartition
from .messages import NOT_STARTED, ProducerIdentity
from .plans import EndPlan, Moment, Pending, StorePlan
from .states import END, END_AND_BUMP, EndAction, TransactionState

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
# The epoch after this one may be needed for a marker that fences, and is never given to a producer that begins.
_LAST_EPOCH = EPOCH_MAX - 1


class Transaction:
    """``deadline_ms`` is when the open transaction is aborted.

    The clock is monotonic.
    """

    def __init__(self, transactional_id: str, *, now: Moment) -> None:
        self.transactional_id = transactional_id
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.previous_producer_id = NO_PRODUCER_ID
        self.last_epoch = NO_EPOCH
        self.timeout_ms = 0
        self.state = TransactionState.EMPTY
        self.started_at_ms = NOT_STARTED
        self.updated_at_ms = now.wall_ms
        self.deadline_ms = 0
        self.partitions: set[TopicPartition] = set()
        # At least those of ``partitions``.
        self._topics: set[str] = set()
        self.groups: set[str] = set()
        self.pending: Pending | None = None
        self._ending: EndPlan | None = None
        # Later epochs of the producer id may have been given out and forgotten (ADR-0071).
        self.epochs_may_repeat = False

    @classmethod
    def restored(cls, record: TransactionRecord, *, now: Moment) -> Transaction:
        """Return the machine as it was stored; the timeout of an open transaction starts again."""
        transaction = cls(record.transactional_id, now=now)
        transaction._take(record)
        transaction._add_partitions(TopicPartition(*partition) for partition in record.partitions)
        transaction.groups = set(record.groups)
        if transaction.state is TransactionState.ONGOING:
            transaction.deadline_ms = now.monotonic_ms + record.timeout_ms
        return transaction

    # ── what it is ──

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def is_new(self) -> bool:
        """Whether it was never stored."""
        return self.producer_id == NO_PRODUCER_ID

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch needs another producer id.

        This one has no more, or they may have been given out in a part of the store that is lost (ADR-0071).
        """
        return self.epoch >= _LAST_EPOCH or self.epochs_may_repeat

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open and nothing is being stored."""
        return not self.state.is_open and self.pending is None

    @property
    def ending(self) -> EndPlan | None:
        """The outcome of the transaction, in a state of preparation."""
        return self._ending

    # ── begin ──

    def begin(
        self,
        expected: ProducerIdentity | None,
        *,
        timeout_ms: int,
        fresh_id: int | None,
        now: Moment,
        unless_open: bool = False,
    ) -> ProducerIdentity | StorePlan | EndPlan:
        """Begin with the id (InitProducerId).

        An ``EndPlan`` aborts; the caller has to ask again.

        ``fresh_id`` is needed if the machine ``is_new`` or ``is_exhausted``.

        Raises ``ConcurrentTransactions``, ``TransactionFenced``; ``InvalidTransactionState`` if a transaction is
        open and ``unless_open``.
        """
        if self.pending is not None:
            raise ConcurrentTransactions(self.transactional_id)
        if self.is_new:
            assert fresh_id is not None
            return self._plan_begin(fresh_id, 0, NO_PRODUCER_ID, NO_EPOCH, timeout_ms, now)
        if expected is not None and not self._is_known(expected):
            raise self._fenced(expected)
        if self.state.is_preparing:
            raise ConcurrentTransactions(self.transactional_id)
        if self.state is TransactionState.ONGOING:
            if expected is not None and expected != self.producer:
                raise self._fenced(expected)
            if unless_open:
                raise InvalidTransactionState(
                    self.transactional_id, "a transaction of another producer is open; begin with another id"
                )
            return self._fence(fresh_id, last_epoch=NO_EPOCH if expected is None else self.epoch, now=now)
        if expected is not None and expected != self.producer:
            if expected.epoch != self.last_epoch:
                raise self._fenced(expected)
            # A retry of the call that gave out the current epoch.
            return self.producer
        last_epoch = NO_EPOCH if expected is None else self.epoch
        if self.is_exhausted:
            assert fresh_id is not None
            return self._plan_begin(fresh_id, 0, self.producer_id, last_epoch, timeout_ms, now)
        return self._plan_begin(
            self.producer_id, self.epoch + 1, self.previous_producer_id, last_epoch, timeout_ms, now
        )

    def _is_known(self, producer: ProducerIdentity) -> bool:
        return producer.producer_id == self.producer_id or self._is_before_rotation(producer)

    def _is_before_rotation(self, producer: ProducerIdentity) -> bool:
        """Whether it was the last producer before its producer id was exhausted, which the next call replaced."""
        before = ProducerIdentity(self.previous_producer_id, self.last_epoch)
        return self.epoch == 0 and producer == before

    def _plan_begin(
        self, producer_id: int, epoch: int, previous: int, last_epoch: int, timeout_ms: int, now: Moment
    ) -> StorePlan:
        self.pending = Pending.BEGIN
        return StorePlan(
            record=TransactionRecord(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                epoch=epoch,
                previous_producer_id=previous,
                last_epoch=last_epoch,
                timeout_ms=timeout_ms,
                state=TransactionState.EMPTY.value,
                started_at_ms=NOT_STARTED,
                updated_at_ms=now.wall_ms,
            )
        )

    # ── add ──

    def check_add(self, producer: ProducerIdentity) -> None:
        """Check that a request may add to the transaction.

        Raises ``UnknownProducerMapping``, ``TransactionFenced``, ``ConcurrentTransactions``.
        """
        self._check_producer(producer)
        if self.pending is not None or self.state.is_preparing:
            raise ConcurrentTransactions(self.transactional_id)

    def add(
        self,
        producer: ProducerIdentity,
        *,
        partitions: Iterable[TopicPartition] = (),
        groups: Iterable[str] = (),
        now: Moment,
    ) -> StorePlan | None:
        """Add to the transaction, or begin it. None if there is nothing to store.

        Raises as ``check_add``.
        """
        self.check_add(producer)
        new_partitions, new_groups = set(partitions), set(groups)
        is_ongoing = self.state is TransactionState.ONGOING
        if is_ongoing and new_partitions <= self.partitions and new_groups <= self.groups:
            return None
        self.pending = Pending.ADD
        record = self._record(
            state=TransactionState.ONGOING,
            started_at_ms=self.started_at_ms if is_ongoing else now.wall_ms,
            now=now,
            partitions=self.partitions | new_partitions,
            groups=self.groups | new_groups,
        )
        return StorePlan(record=record)

    def check_commit(self, producer: ProducerIdentity, group: str) -> None:
        """Check that offsets of ``group`` may be committed with the transaction.

        Raises as ``check_add``, and ``InvalidTransactionState``: the group was not added.
        """
        self._check_producer(producer)
        if self.state.is_preparing or self.pending not in (None, Pending.ADD):
            raise ConcurrentTransactions(self.transactional_id)
        if self.state is not TransactionState.ONGOING or group not in self.groups:
            raise InvalidTransactionState(
                self.transactional_id, f"group {group!r} is not in the transaction; add it first"
            )

    # ── produce ──

    def admit(
        self,
        producer: ProducerIdentity,
        topic_partition: TopicPartition,
        *,
        adds: bool,
        is_abortable_known: bool,
        now: Moment,
    ) -> None:
        """Allow a batch; with ``adds`` it adds its partition, and nothing has to be stored for that.

        Raises as ``TransactionGate.admit``.
        """
        if producer.producer_id != self.producer_id:
            raise UnknownProducerMapping(self.transactional_id, producer_id=producer.producer_id)
        if producer.epoch != self.epoch:
            raise ProducerFenced(
                producer_id=producer.producer_id, epoch=producer.epoch, current_epoch=self.epoch
            )
        if self.state.is_preparing or self.pending not in (None, Pending.ADD):
            raise ConcurrentTransactions(self.transactional_id)
        if self.state is TransactionState.ONGOING and topic_partition in self.partitions:
            return
        if adds:
            self._start(now)
            self._add_partitions((topic_partition,))
            return
        if self.pending is not None:
            # The partition may be on its way to the store.
            raise ConcurrentTransactions(self.transactional_id)
        reason = f"partition {topic_partition} is not in the transaction; add it first"
        if is_abortable_known:
            raise TransactionAbortable(self.transactional_id, reason)
        raise InvalidTransactionState(self.transactional_id, reason)

    def _start(self, now: Moment) -> None:
        if self.state is not TransactionState.ONGOING:
            self.state = TransactionState.ONGOING
            self.started_at_ms = now.wall_ms
            self.deadline_ms = now.monotonic_ms + self.timeout_ms

    # ── end ──

    def end(
        self,
        producer: ProducerIdentity,
        *,
        commit: bool,
        bumps_epoch: bool,
        fresh_id: int | None,
        now: Moment,
    ) -> ProducerIdentity | StorePlan | EndPlan:
        """End the transaction (EndTxn); ``bumps_epoch`` from version 5 on.

        ``fresh_id`` is needed if ``bumps_epoch`` and the machine ``is_exhausted``.

        Raises ``UnknownProducerMapping``, ``TransactionFenced``, ``ConcurrentTransactions``,
        ``InvalidTransactionState``.
        """
        action = (
            self._action_and_bump(producer, commit=commit)
            if bumps_epoch
            else self._action(producer, commit=commit)
        )
        match action:
            case EndAction.FENCE:
                raise self._fenced(producer)
            case EndAction.WAIT:
                raise ConcurrentTransactions(self.transactional_id)
            case EndAction.REFUSE:
                verb = "committed" if commit else "aborted"
                raise InvalidTransactionState(
                    self.transactional_id, f"its state is {self.state.value}, so it cannot be {verb}"
                )
            case EndAction.REPEAT:
                return self.producer
            case EndAction.BUMP_EPOCH:
                self.pending = Pending.CHANGE
                producer_id, epoch, previous = self._next_identity(fresh_id)
                record = self._record(
                    state=TransactionState.COMPLETE_ABORT,
                    now=now,
                    producer_id=producer_id,
                    epoch=epoch,
                    previous_producer_id=previous,
                    last_epoch=self.epoch,
                )
                return StorePlan(record=record)
            case EndAction.PREPARE:
                if not bumps_epoch:
                    return self._prepare(
                        now=now, is_commit=commit, marker_epoch=self.epoch, producer_id=self.producer_id,
                        epoch=self.epoch, last_epoch=self.last_epoch,
                    )  # fmt: skip
                marker_epoch = min(self.epoch + 1, EPOCH_MAX)
                producer_id, epoch, _ = self._next_identity(fresh_id)
                return self._prepare(
                    now=now, is_commit=commit, marker_epoch=marker_epoch, producer_id=producer_id, epoch=epoch,
                    last_epoch=self.epoch,
                )  # fmt: skip

    def _action(self, producer: ProducerIdentity, *, commit: bool) -> EndAction:
        self._check_producer(producer)
        if self.pending is not None:
            raise ConcurrentTransactions(self.transactional_id)
        return END[self.state, commit]

    def _action_and_bump(self, producer: ProducerIdentity, *, commit: bool) -> EndAction:
        if self.pending is not None:
            raise ConcurrentTransactions(self.transactional_id)
        if self._is_before_rotation(producer):
            return END_AND_BUMP[self.state, commit, True]
        if producer.producer_id != self.producer_id:
            raise UnknownProducerMapping(self.transactional_id, producer_id=producer.producer_id)
        if producer.epoch not in (self.epoch, self.epoch - 1):
            return EndAction.FENCE
        return END_AND_BUMP[self.state, commit, producer.epoch != self.epoch]

    def _next_identity(self, fresh_id: int | None) -> tuple[int, int, int]:
        """Return the next producer id and epoch, and the producer id before."""
        if not self.is_exhausted:
            return self.producer_id, self.epoch + 1, self.previous_producer_id
        assert fresh_id is not None
        return fresh_id, 0, self.producer_id

    def abort(self, *, fresh_id: int | None = None, now: Moment) -> EndPlan:
        """Abort the open transaction and fence its producer: it took too long, or an operator says so.

        ``fresh_id`` is needed if ``epochs_may_repeat``.
        """
        assert self.state is TransactionState.ONGOING
        assert self.pending is None
        return self._fence(fresh_id, last_epoch=NO_EPOCH, now=now)

    def _fence(self, fresh_id: int | None, *, last_epoch: int, now: Moment) -> EndPlan:
        """Abort what is open under an epoch that refuses all later requests of the producer."""
        if self.epochs_may_repeat:
            # The epochs after this one are refused, too, and a producer that asks goes on with another id.
            assert fresh_id is not None
            return self._prepare(
                now=now, is_commit=False, marker_epoch=EPOCH_MAX, producer_id=fresh_id, epoch=0,
                last_epoch=self.epoch,
            )  # fmt: skip
        epoch = min(self.epoch + 1, EPOCH_MAX)
        return self._prepare(
            now=now, is_commit=False, marker_epoch=epoch, producer_id=self.producer_id, epoch=epoch,
            last_epoch=last_epoch,
        )  # fmt: skip

    def _prepare(
        self,
        *,
        now: Moment,
        is_commit: bool,
        marker_epoch: int,
        producer_id: int,
        epoch: int,
        last_epoch: int,
    ) -> EndPlan:
        is_rotated = producer_id != self.producer_id
        record = self._record(
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            now=now,
            producer_id=producer_id,
            epoch=epoch,
            previous_producer_id=self.producer_id if is_rotated else self.previous_producer_id,
            last_epoch=last_epoch,
        )
        plan = self._ending = EndPlan(
            is_commit=is_commit,
            producer=self.producer,
            marker_epoch=marker_epoch,
            partitions=frozenset(self.partitions),
            record=record,
        )
        self.state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        # A retry is recognized by its epoch, which is the one before this.
        self.epoch = marker_epoch
        return plan

    # ── the outcome of a plan ──

    def store(self, plan: StorePlan, *, now: Moment) -> None:
        """Take over what was stored."""
        pending, self.pending = self.pending, None
        record = plan.record
        if pending is Pending.ADD:
            # A produce request may have added more meanwhile.
            self._start(now)
            self._add_partitions(TopicPartition(*partition) for partition in record.partitions)
            self.groups.update(record.groups)
            self.updated_at_ms = record.updated_at_ms
        else:
            self._take(record)

    def expire(self) -> None:
        """Begin to forget the id, which ``is_idle``; ``cancel_expiry`` if it could not be deleted."""
        assert self.is_idle
        self.pending = Pending.CHANGE

    def cancel_expiry(self) -> None:
        self.pending = None

    def complete(self) -> None:
        """Take over what was stored of the end: the markers are in the logs."""
        assert self._ending is not None
        self._take(self._ending.record)
        self._ending = None
        self.partitions, self._topics = set(), set()
        self.groups = set()

    def cancel(self, plan: StorePlan | EndPlan) -> None:
        """Go back to before ``plan``: it could not be stored."""
        if isinstance(plan, StorePlan):
            self.pending = None
            return
        assert self._ending is plan
        self._ending = None
        self.state = TransactionState.ONGOING
        self.epoch = plan.producer.epoch

    def forget_topic(self, topic: str) -> None:
        """Remove the partitions of a deleted topic."""
        if topic not in self._topics:
            return
        self._topics.remove(topic)
        self.partitions = {partition for partition in self.partitions if partition.topic != topic}

    def _add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.partitions.add(partition)
            self._topics.add(partition.topic)

    def adopt(self, topic_partition: TopicPartition, *, now: Moment) -> None:
        """Add a partition whose log shows an open transaction of the current producer; for recovery."""
        self._start(now)
        self._add_partitions((topic_partition,))

    def adopt_group(self, group: str, *, now: Moment) -> None:
        """Add a group that has pending offsets of the current producer; for recovery."""
        self._start(now)
        self.groups.add(group)

    # ── records and checks ──

    def _take(self, record: TransactionRecord) -> None:
        self.producer_id = record.producer_id
        self.epoch = record.epoch
        self.previous_producer_id = record.previous_producer_id
        self.last_epoch = record.last_epoch
        self.timeout_ms = record.timeout_ms
        self.state = TransactionState(record.state)
        self.started_at_ms = record.started_at_ms
        self.updated_at_ms = record.updated_at_ms
        self.epochs_may_repeat = record.epochs_may_repeat

    def _record(
        self,
        *,
        state: TransactionState,
        now: Moment,
        started_at_ms: int = NOT_STARTED,
        producer_id: int | None = None,
        epoch: int | None = None,
        previous_producer_id: int | None = None,
        last_epoch: int | None = None,
        partitions: Iterable[TopicPartition] = (),
        groups: Iterable[str] = (),
    ) -> TransactionRecord:
        """Return what is to be stored; what is not given stays."""
        return TransactionRecord(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            epoch=self.epoch if epoch is None else epoch,
            previous_producer_id=(
                self.previous_producer_id if previous_producer_id is None else previous_producer_id
            ),
            last_epoch=self.last_epoch if last_epoch is None else last_epoch,
            timeout_ms=self.timeout_ms,
            state=state.value,
            started_at_ms=started_at_ms,
            updated_at_ms=now.wall_ms,
            partitions=tuple(sorted(partitions)),
            groups=tuple(sorted(groups)),
        )

    def _check_producer(self, producer: ProducerIdentity) -> None:
        if producer.producer_id != self.producer_id:
            raise UnknownProducerMapping(self.transactional_id, producer_id=producer.producer_id)
        if producer.epoch != self.epoch:
            raise self._fenced(producer)

    def _fenced(self, producer: ProducerIdentity) -> SteleError:
        return TransactionFenced(self.transactional_id, epoch=producer.epoch, current_epoch=self.epoch)
