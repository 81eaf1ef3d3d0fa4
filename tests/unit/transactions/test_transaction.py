"""The machine of one transactional id: each row of Kafka's tables (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

import pytest

from app.cluster.transaction_store import TransactionRecord
from app.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    ProducerFenced,
    SteleError,
    TransactionAbortable,
    TransactionFenced,
    UnknownProducerMapping,
)
from app.storage.topic_partition import TopicPartition
from app.transactions.messages import ProducerIdentity
from app.transactions.plans import EndPlan, Moment, StorePlan
from app.transactions.states import TransactionState
from app.transactions.transaction import EPOCH_MAX, NO_EPOCH, Transaction

NOW = Moment(1_000_000, 500)
LATER = Moment(1_060_000, 60_500)
PARTITION = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
PID, FRESH = 7, 8
EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT


def stored(transaction: Transaction, plan: ProducerIdentity | StorePlan | EndPlan | None) -> ProducerIdentity:
    assert isinstance(plan, StorePlan)
    transaction.store(plan, now=NOW)
    assert transaction.producer == plan.producer
    return plan.producer


def begun(epoch: int) -> Transaction:
    """An id in state Empty, whose producer has ``epoch``."""
    transaction = Transaction("t", now=NOW)
    stored(transaction, transaction.begin(None, timeout_ms=60_000, fresh_id=PID, now=NOW))
    transaction.epoch = epoch
    return transaction


def in_state(state: TransactionState, epoch: int = 5, *, bumps_epoch: bool = False) -> Transaction:
    """An id in ``state``, whose current epoch is ``epoch``."""
    if state is EMPTY:
        return begun(epoch)
    bump = bumps_epoch and state is not ONGOING
    transaction = begun(epoch - bump)
    stored(transaction, transaction.add(transaction.producer, partitions=[PARTITION], now=NOW))
    if state is ONGOING:
        return transaction
    plan = transaction.end(
        transaction.producer,
        commit=state in (PREPARE_COMMIT, COMPLETE_COMMIT),
        bumps_epoch=bumps_epoch,
        fresh_id=None,
        now=NOW,
    )
    assert isinstance(plan, EndPlan)
    if not state.is_preparing:
        transaction.complete()
    assert (transaction.state, transaction.epoch) == (state, epoch)
    return transaction


# ── InitProducerId ──


def test_an_unknown_id_gets_a_new_producer_id_and_epoch_0_whatever_it_expects() -> None:
    for expected in (None, ProducerIdentity(3, 9)):
        transaction = Transaction("t", now=NOW)
        plan = transaction.begin(expected, timeout_ms=60_000, fresh_id=PID, now=NOW)
        assert stored(transaction, plan) == (PID, 0)
        assert transaction.state is EMPTY


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_beginning_again_raises_the_epoch_and_forgets_the_last(state: TransactionState) -> None:
    transaction = in_state(state)
    assert stored(transaction, transaction.begin(None, timeout_ms=9, fresh_id=None, now=NOW)) == (PID, 6)
    assert (transaction.last_epoch, transaction.timeout_ms, transaction.state) == (NO_EPOCH, 9, EMPTY)
    with pytest.raises(TransactionFenced):
        transaction.begin(ProducerIdentity(PID, 5), timeout_ms=9, fresh_id=None, now=NOW)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_producer_that_continues_raises_its_epoch_once_however_often_it_asks(
    state: TransactionState,
) -> None:
    transaction = in_state(state)
    expected = ProducerIdentity(PID, 5)
    assert stored(transaction, transaction.begin(expected, timeout_ms=9, fresh_id=None, now=NOW)) == (PID, 6)
    assert transaction.begin(expected, timeout_ms=9, fresh_id=None, now=NOW) == (PID, 6)
    for fenced in (ProducerIdentity(PID, 4), ProducerIdentity(PID, 7), ProducerIdentity(3, 6)):
        with pytest.raises(TransactionFenced):
            transaction.begin(fenced, timeout_ms=9, fresh_id=None, now=NOW)


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
@pytest.mark.parametrize("expected", [None, ProducerIdentity(PID, 5)])
def test_beginning_waits_while_a_transaction_ends(
    state: TransactionState, expected: ProducerIdentity | None
) -> None:
    with pytest.raises(ConcurrentTransactions):
        in_state(state).begin(expected, timeout_ms=9, fresh_id=None, now=NOW)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_begin_that_spares_an_open_transaction_is_like_any_other_if_none_is_open(
    state: TransactionState,
) -> None:
    transaction = in_state(state)
    plan = transaction.begin(None, timeout_ms=9, fresh_id=None, unless_open=True, now=NOW)
    assert stored(transaction, plan) == (PID, 6)


def test_a_begin_that_spares_an_open_transaction_leaves_it_open() -> None:
    transaction = in_state(ONGOING)
    with pytest.raises(InvalidTransactionState, match="begin with another id"):
        transaction.begin(None, timeout_ms=9, fresh_id=None, unless_open=True, now=NOW)
    assert (transaction.state, transaction.producer) == (ONGOING, (PID, 5))
    for ending in (PREPARE_COMMIT, PREPARE_ABORT):
        with pytest.raises(ConcurrentTransactions):
            in_state(ending).begin(None, timeout_ms=9, fresh_id=None, unless_open=True, now=NOW)


def test_everything_waits_while_a_change_is_being_stored() -> None:
    transaction = in_state(EMPTY)
    plan = transaction.begin(None, timeout_ms=9, fresh_id=None, now=NOW)
    assert isinstance(plan, StorePlan)
    with pytest.raises(ConcurrentTransactions):
        transaction.begin(None, timeout_ms=9, fresh_id=None, now=NOW)
    with pytest.raises(ConcurrentTransactions):
        transaction.add(transaction.producer, partitions=[PARTITION], now=NOW)
    with pytest.raises(ConcurrentTransactions):
        admit(transaction, adds=True)
    for bumps_epoch in (True, False):
        with pytest.raises(ConcurrentTransactions):
            end(transaction, commit=True, bumps_epoch=bumps_epoch)
    transaction.cancel(plan)
    assert (transaction.producer, transaction.state) == ((PID, 5), EMPTY)


@pytest.mark.parametrize("epoch", [32766, 32767])
@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize("is_expected", [False, True])
def test_used_up_epochs_give_a_new_producer_id(
    state: TransactionState, epoch: int, is_expected: bool
) -> None:
    transaction = in_state(state, epoch)
    expected = ProducerIdentity(PID, epoch) if is_expected else None
    assert stored(transaction, transaction.begin(expected, timeout_ms=9, fresh_id=FRESH, now=NOW)) == (
        FRESH,
        0,
    )
    assert transaction.previous_producer_id == PID
    if is_expected:
        # A retry.
        assert transaction.begin(expected, timeout_ms=9, fresh_id=None, now=NOW) == (FRESH, 0)
    else:
        with pytest.raises(TransactionFenced):
            transaction.begin(ProducerIdentity(PID, epoch), timeout_ms=9, fresh_id=None, now=NOW)


@pytest.mark.parametrize("is_expected", [False, True])
def test_beginning_aborts_an_open_transaction_and_then_begins(is_expected: bool) -> None:
    transaction = in_state(ONGOING)
    expected = transaction.producer if is_expected else None
    for fenced in (ProducerIdentity(PID, 4), ProducerIdentity(3, 5)):
        with pytest.raises(TransactionFenced):
            transaction.begin(fenced, timeout_ms=9, fresh_id=None, now=NOW)
    plan = transaction.begin(expected, timeout_ms=9, fresh_id=None, now=NOW)
    assert isinstance(plan, EndPlan)
    assert (plan.is_commit, plan.producer, plan.marker_epoch) == (False, (PID, 5), 6)
    assert plan.partitions == {PARTITION}
    transaction.complete()
    again = transaction.begin(expected, timeout_ms=9, fresh_id=None, now=NOW)
    if is_expected:
        # Nobody has begun in between: the epoch of the markers is the producer's.
        assert again == (PID, 6)
    else:
        assert stored(transaction, again) == (PID, 7)


# ── AddPartitions, AddOffsets ──


@pytest.mark.parametrize("state", list(TransactionState))
def test_adding_checks_the_producer_first(state: TransactionState) -> None:
    transaction = in_state(state)
    with pytest.raises(UnknownProducerMapping):
        transaction.add(ProducerIdentity(3, 5), partitions=[OTHER], now=NOW)
    for epoch in (4, 6):
        with pytest.raises(TransactionFenced):
            transaction.add(ProducerIdentity(PID, epoch), partitions=[OTHER], now=NOW)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partition_begins_the_transaction(state: TransactionState) -> None:
    transaction = in_state(state)
    plan = transaction.add(transaction.producer, partitions=[PARTITION], now=NOW)
    assert transaction.state is state
    stored(transaction, plan)
    assert (transaction.state, transaction.partitions) == (ONGOING, {PARTITION})
    assert transaction.deadline_ms == NOW.monotonic_ms + 60_000
    assert transaction.add(transaction.producer, partitions=[PARTITION], now=NOW) is None
    stored(transaction, transaction.add(transaction.producer, partitions=[OTHER, PARTITION], now=LATER))
    assert transaction.partitions == {PARTITION, OTHER}
    assert transaction.deadline_ms == NOW.monotonic_ms + 60_000
    stored(transaction, transaction.add(transaction.producer, groups=["g"], now=LATER))
    assert transaction.add(transaction.producer, groups=["g"], now=LATER) is None


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_adding_waits_while_a_transaction_ends(state: TransactionState) -> None:
    transaction = in_state(state)
    with pytest.raises(ConcurrentTransactions):
        transaction.add(transaction.producer, partitions=[OTHER], now=NOW)


def test_an_addition_that_cannot_be_stored_adds_nothing() -> None:
    transaction = in_state(EMPTY)
    plan = transaction.add(transaction.producer, partitions=[PARTITION], now=NOW)
    assert plan is not None
    transaction.cancel(plan)
    assert (transaction.state, transaction.partitions) == (EMPTY, set())


# ── EndTxn ──

E = 5
WAIT, REFUSE, FENCE = ConcurrentTransactions, InvalidTransactionState, TransactionFenced


def end(
    transaction: Transaction, *, commit: bool, bumps_epoch: bool, epoch: int | None = None, pid: int = PID
) -> ProducerIdentity | StorePlan | EndPlan:
    producer = ProducerIdentity(pid, transaction.epoch if epoch is None else epoch)
    return transaction.end(producer, commit=commit, bumps_epoch=bumps_epoch, fresh_id=FRESH, now=NOW)


@pytest.mark.parametrize(
    ("state", "commit", "result"),
    [
        (ONGOING, True, PREPARE_COMMIT),
        (ONGOING, False, PREPARE_ABORT),
        (PREPARE_COMMIT, True, WAIT),
        (PREPARE_COMMIT, False, REFUSE),
        (PREPARE_ABORT, True, REFUSE),
        (PREPARE_ABORT, False, WAIT),
        (COMPLETE_COMMIT, True, None),
        (COMPLETE_COMMIT, False, REFUSE),
        (COMPLETE_ABORT, True, REFUSE),
        (COMPLETE_ABORT, False, None),
        (EMPTY, True, REFUSE),
        (EMPTY, False, REFUSE),
    ],
)
def test_the_end_where_epochs_stay(
    state: TransactionState, commit: bool, result: type[SteleError] | TransactionState | None
) -> None:
    transaction = in_state(state, E)
    with pytest.raises(UnknownProducerMapping):
        end(transaction, commit=commit, bumps_epoch=False, pid=3)
    for epoch in (E - 1, E + 1):
        with pytest.raises(TransactionFenced):
            end(transaction, commit=commit, bumps_epoch=False, epoch=epoch)
    if isinstance(result, type):
        with pytest.raises(result):
            end(transaction, commit=commit, bumps_epoch=False)
        assert transaction.state is state
        return
    plan = end(transaction, commit=commit, bumps_epoch=False)
    if result is None:
        assert plan == (PID, E)
        return
    assert isinstance(plan, EndPlan)
    assert (transaction.state, plan.is_commit, plan.marker_epoch) == (result, commit, E)
    transaction.complete()
    assert (transaction.producer, transaction.partitions) == ((PID, E), set())


@pytest.mark.parametrize(
    ("state", "commit", "before", "current"),
    [
        (ONGOING, True, FENCE, PREPARE_COMMIT),
        (ONGOING, False, FENCE, PREPARE_ABORT),
        (PREPARE_COMMIT, True, WAIT, FENCE),
        (PREPARE_COMMIT, False, REFUSE, FENCE),
        (PREPARE_ABORT, True, REFUSE, FENCE),
        (PREPARE_ABORT, False, WAIT, FENCE),
        (COMPLETE_COMMIT, True, None, REFUSE),
        (COMPLETE_COMMIT, False, REFUSE, "bump"),
        (COMPLETE_ABORT, True, REFUSE, REFUSE),
        (COMPLETE_ABORT, False, None, "bump"),
        (EMPTY, True, FENCE, REFUSE),
        (EMPTY, False, FENCE, "bump"),
    ],
)
def test_the_end_that_raises_the_epoch(
    state: TransactionState,
    commit: bool,
    before: type[SteleError] | None,
    current: type[SteleError] | TransactionState | str,
) -> None:
    """``before`` is the result with epoch E - 1, and None the same answer as the first time."""
    transaction = in_state(state, E, bumps_epoch=True)
    with pytest.raises(UnknownProducerMapping):
        end(transaction, commit=commit, bumps_epoch=True, pid=3)
    for epoch in (E - 2, E + 1):
        with pytest.raises(TransactionFenced):
            end(transaction, commit=commit, bumps_epoch=True, epoch=epoch)
    if before is None:
        assert end(transaction, commit=commit, bumps_epoch=True, epoch=E - 1) == (PID, E)
    else:
        with pytest.raises(before):
            end(transaction, commit=commit, bumps_epoch=True, epoch=E - 1)
    assert transaction.state is state
    if isinstance(current, type):
        with pytest.raises(current):
            end(transaction, commit=commit, bumps_epoch=True)
        assert transaction.state is state
        return
    plan = end(transaction, commit=commit, bumps_epoch=True)
    if current == "bump":
        assert stored(transaction, plan) == (PID, E + 1)
        assert transaction.state is COMPLETE_ABORT
    else:
        assert isinstance(plan, EndPlan)
        assert (transaction.state, plan.marker_epoch, plan.next_producer) == (current, E + 1, (PID, E + 1))
        transaction.complete()
    # A retry gets the same answer.
    assert end(transaction, commit=commit, bumps_epoch=True, epoch=E) == (PID, E + 1)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_that_uses_up_the_epochs_continues_with_a_new_producer_id(commit: bool) -> None:
    transaction = in_state(ONGOING, 32766)
    plan = end(transaction, commit=commit, bumps_epoch=True)
    assert isinstance(plan, EndPlan)
    assert (plan.producer, plan.marker_epoch, plan.next_producer) == ((PID, 32766), 32767, (FRESH, 0))
    with pytest.raises(ConcurrentTransactions):
        end(transaction, commit=commit, bumps_epoch=True, epoch=32766)
    transaction.complete()
    assert end(transaction, commit=commit, bumps_epoch=True, epoch=32766, pid=PID) == (FRESH, 0)
    restored = Transaction.restored(plan.record, now=NOW)
    assert end(restored, commit=commit, bumps_epoch=True, epoch=32766, pid=PID) == (FRESH, 0)
    with pytest.raises(InvalidTransactionState):
        end(transaction, commit=not commit, bumps_epoch=True, epoch=32766, pid=PID)


def test_a_bump_that_uses_up_the_epochs_continues_with_a_new_producer_id() -> None:
    transaction = in_state(EMPTY, 32766)
    assert stored(transaction, end(transaction, commit=False, bumps_epoch=True)) == (FRESH, 0)
    assert end(transaction, commit=False, bumps_epoch=True, epoch=32766, pid=PID) == (FRESH, 0)


def test_an_end_that_cannot_be_stored_leaves_the_transaction_open() -> None:
    transaction = in_state(ONGOING)
    plan = end(transaction, commit=True, bumps_epoch=True)
    assert isinstance(plan, EndPlan)
    transaction.cancel(plan)
    assert (transaction.state, transaction.producer, transaction.partitions) == (
        ONGOING,
        (PID, 5),
        {PARTITION},
    )
    assert isinstance(end(transaction, commit=True, bumps_epoch=True), EndPlan)


# ── timeouts ──


def test_after_a_timeout_the_producer_is_fenced_or_learns_its_next_epoch() -> None:
    transaction = in_state(ONGOING)
    plan = transaction.abort(now=LATER)
    assert (plan.is_commit, plan.marker_epoch, plan.next_producer) == (False, 6, (PID, 6))
    transaction.complete()
    with pytest.raises(ProducerFenced):
        admit(transaction, epoch=5, adds=True)
    for commit in (True, False):
        with pytest.raises(TransactionFenced):
            end(transaction, commit=commit, bumps_epoch=False, epoch=5)
    with pytest.raises(InvalidTransactionState):
        end(transaction, commit=True, bumps_epoch=True, epoch=5)
    assert end(transaction, commit=False, bumps_epoch=True, epoch=5) == (PID, 6)


def test_a_transaction_of_the_last_epoch_can_be_aborted() -> None:
    transaction = in_state(ONGOING, 32766)
    assert transaction.abort(now=LATER).marker_epoch == 32767
    transaction.complete()
    # A producer that raises its epoch with each end continues with the epoch of the marker.
    assert end(transaction, commit=False, bumps_epoch=True, epoch=32766) == (PID, 32767)
    stored(transaction, transaction.add(transaction.producer, partitions=[PARTITION], now=NOW))
    plan = end(transaction, commit=True, bumps_epoch=True)
    assert isinstance(plan, EndPlan)
    assert (plan.marker_epoch, plan.next_producer) == (32767, (FRESH, 0))
    transaction.complete()
    assert end(transaction, commit=True, bumps_epoch=True, epoch=32767) == (FRESH, 0)


# ── produce ──


def admit(
    transaction: Transaction,
    *,
    adds: bool,
    epoch: int | None = None,
    pid: int = PID,
    partition: TopicPartition = PARTITION,
    is_abortable_known: bool = True,
) -> None:
    producer = ProducerIdentity(pid, transaction.epoch if epoch is None else epoch)
    transaction.admit(producer, partition, adds=adds, is_abortable_known=is_abortable_known, now=NOW)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("state", list(TransactionState))
def test_a_batch_needs_the_current_producer(state: TransactionState, adds: bool) -> None:
    transaction = in_state(state)
    with pytest.raises(UnknownProducerMapping):
        admit(transaction, adds=adds, pid=3)
    for epoch in (4, 6):
        with pytest.raises(ProducerFenced):
            admit(transaction, adds=adds, epoch=epoch)
    if state.is_preparing:
        with pytest.raises(ConcurrentTransactions):
            admit(transaction, adds=adds)


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_batch_for_a_partition_that_was_not_added(state: TransactionState) -> None:
    transaction = in_state(state)
    with pytest.raises(InvalidTransactionState):
        admit(transaction, adds=False, partition=OTHER, is_abortable_known=False)
    with pytest.raises(TransactionAbortable):
        admit(transaction, adds=False, partition=OTHER)
    admit(transaction, adds=True, partition=OTHER)
    assert transaction.state is ONGOING
    assert OTHER in transaction.partitions
    admit(transaction, adds=False, partition=OTHER)


def test_batches_go_on_while_a_partition_is_being_added() -> None:
    transaction = in_state(ONGOING)
    plan = transaction.add(transaction.producer, partitions=[OTHER], now=NOW)
    admit(transaction, adds=False)
    with pytest.raises(ConcurrentTransactions):
        admit(transaction, adds=False, partition=OTHER)
    stored(transaction, plan)
    admit(transaction, adds=False, partition=OTHER)


def test_what_a_batch_adds_stays_when_an_addition_is_stored() -> None:
    transaction = in_state(EMPTY)
    plan = transaction.add(transaction.producer, groups=["g"], now=NOW)
    admit(transaction, adds=True)
    stored(transaction, plan)
    assert (transaction.partitions, transaction.groups) == ({PARTITION}, {"g"})


# ── restarts ──


@pytest.mark.parametrize("bumps_epoch", [True, False])
@pytest.mark.parametrize("state", [COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_retry_of_an_end_gets_the_same_answer_after_a_restart(
    state: TransactionState, bumps_epoch: bool
) -> None:
    transaction = in_state(ONGOING)
    commit = state is COMPLETE_COMMIT
    plan = end(transaction, commit=commit, bumps_epoch=bumps_epoch)
    assert isinstance(plan, EndPlan)
    restored = Transaction.restored(plan.record, now=LATER)
    assert restored.state is state
    assert end(restored, commit=commit, bumps_epoch=bumps_epoch, epoch=5) == plan.next_producer


def test_an_open_transaction_is_restored_and_its_timeout_starts_again() -> None:
    transaction = in_state(EMPTY)
    plan = transaction.add(transaction.producer, partitions=[PARTITION], groups=["g"], now=NOW)
    assert plan is not None
    restored = Transaction.restored(plan.record, now=LATER)
    assert (restored.state, restored.partitions, restored.groups) == (ONGOING, {PARTITION}, {"g"})
    assert (restored.started_at_ms, restored.deadline_ms) == (NOW.wall_ms, LATER.monotonic_ms + 60_000)


# ── epochs that a lost part of the store may have given out (ADR-0071) ──


def doubted(transaction: Transaction) -> Transaction:
    """The machine as it is restored in another history of the database."""
    record = TransactionRecord(
        transactional_id="t",
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
        previous_producer_id=transaction.previous_producer_id,
        last_epoch=transaction.last_epoch,
        timeout_ms=transaction.timeout_ms,
        state=transaction.state.value,
        started_at_ms=transaction.started_at_ms,
        updated_at_ms=transaction.updated_at_ms,
        partitions=tuple(transaction.partitions),
        epochs_may_repeat=True,
    )
    return Transaction.restored(record, now=NOW)


def test_a_producer_that_begins_in_another_history_gets_another_producer_id() -> None:
    transaction = doubted(begun(5))
    assert transaction.is_exhausted
    plan = transaction.begin(None, timeout_ms=60_000, fresh_id=FRESH, now=NOW)
    assert stored(transaction, plan) == (FRESH, 0)
    assert not transaction.is_exhausted
    assert stored(transaction, transaction.begin(None, timeout_ms=60_000, fresh_id=None, now=NOW)) == (
        FRESH,
        1,
    )


def test_a_producer_goes_on_in_another_history_with_the_epoch_that_is_known() -> None:
    transaction = doubted(begun(5))
    stored(transaction, transaction.add(ProducerIdentity(PID, 5), partitions=[PARTITION], now=NOW))
    plan = end(transaction, commit=True, bumps_epoch=False, epoch=5)
    assert isinstance(plan, EndPlan)
    assert (plan.marker_epoch, plan.next_producer) == (5, (PID, 5))


def test_an_end_that_raises_the_epoch_gives_another_producer_id_in_another_history() -> None:
    transaction = doubted(in_state(ONGOING))
    plan = end(transaction, commit=True, bumps_epoch=True, epoch=5)
    assert isinstance(plan, EndPlan)
    assert (plan.marker_epoch, plan.next_producer) == (6, (FRESH, 0))
    transaction.complete()
    # A repeat of the call gets the same answer.
    assert end(transaction, commit=True, bumps_epoch=True, epoch=5, pid=PID) == (FRESH, 0)


@pytest.mark.parametrize("how", ["an operator or the timeout", "its own producer", "another producer"])
def test_an_abort_in_another_history_fences_all_epochs_of_the_producer_id(how: str) -> None:
    transaction = doubted(in_state(ONGOING))
    if how == "an operator or the timeout":
        plan = transaction.abort(fresh_id=FRESH, now=NOW)
    else:
        expected = ProducerIdentity(PID, 5) if how == "its own producer" else None
        begin = transaction.begin(expected, timeout_ms=60_000, fresh_id=FRESH, now=NOW)
        assert isinstance(begin, EndPlan)
        plan = begin
    assert (plan.marker_epoch, plan.next_producer) == (EPOCH_MAX, (FRESH, 0))
    transaction.complete()
    # The producer of the known epoch goes on; one of an epoch that is forgotten does not.
    own = transaction.begin(ProducerIdentity(PID, 5), timeout_ms=60_000, fresh_id=None, now=NOW)
    assert own == (FRESH, 0)
    with pytest.raises(TransactionFenced):
        transaction.begin(ProducerIdentity(PID, 6), timeout_ms=60_000, fresh_id=None, now=NOW)


def test_only_the_first_epoch_of_a_producer_id_follows_the_last_one_of_another() -> None:
    transaction = doubted(begun(0))
    stored(transaction, transaction.begin(None, timeout_ms=60_000, fresh_id=FRESH, now=NOW))
    expected = ProducerIdentity(FRESH, 0)
    stored(transaction, transaction.begin(expected, timeout_ms=60_000, fresh_id=None, now=NOW))
    assert (transaction.producer, transaction.last_epoch) == ((FRESH, 1), 0)
    with pytest.raises(TransactionFenced):
        transaction.begin(ProducerIdentity(PID, 0), timeout_ms=60_000, fresh_id=None, now=NOW)
