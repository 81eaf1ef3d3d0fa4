"""Requests to the machine of a transactional id, and their effects.

That is what the answer of the machine changes in the database. No I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias, TypeVar

from ..cluster.shared_transactions import EndOfTransaction, OpenInLog, TransactionUpdate
from ..cluster.transaction_store import StoredAnswer, TransactionRecord
from ..storage.topic_partition import TopicPartition
from .messages import PartitionTransaction, ProducerIdentity
from .plans import EndPlan, Moment, StorePlan
from .states import TransactionState
from .transaction import Transaction

_T = TypeVar("_T")

# None: nothing changes.
Result: TypeAlias = ProducerIdentity | StorePlan | EndPlan | None
# Gets an unused producer id, if the one before raised ``NeedsProducerId``.
Request: TypeAlias = Callable[[Transaction, int | None, Moment], Result]


class NeedsProducerId(Exception):
    """The next epoch needs a new producer id."""


class NeedsProducerIds(Exception):
    """The next epochs of transactional ids need new producer ids."""

    def __init__(self, ids: Collection[str]) -> None:
        super().__init__(", ".join(ids))
        self.ids = ids


def machine(records: Mapping[str, TransactionRecord], transactional_id: str, now: Moment) -> Transaction:
    """Return the machine of an id as it was stored, or a new one."""
    record = records.get(transactional_id)
    if record is None:
        return Transaction(transactional_id, now=now)
    return Transaction.restored(record, now=now)


def aborts_of_torn(
    records: Mapping[str, TransactionRecord], fresh_ids: Mapping[str, int], now: Moment
) -> list[EndPlan]:
    """Abort each transaction of which a part may be lost, and fence its producer.

    The database may have lost it (ADR-0071). Raises ``NeedsProducerIds`` for ids that ``fresh_ids`` lacks.
    """
    torn = [transactional_id for transactional_id, record in records.items() if record.may_be_torn]
    if missing := [
        transactional_id
        for transactional_id in torn
        if records[transactional_id].epochs_may_repeat and transactional_id not in fresh_ids
    ]:
        raise NeedsProducerIds(missing)
    return [
        machine(records, transactional_id, now).abort(fresh_id=fresh_ids.get(transactional_id), now=now)
        for transactional_id in torn
    ]


def update_of(
    result: _T, plans: Sequence[Result], *, answer: StoredAnswer | None = None, answer_kept_ms: int = 0
) -> TransactionUpdate[_T]:
    """Return what is stored of ``plans``."""
    return TransactionUpdate(
        result=result,
        records=[plan.record for plan in plans if isinstance(plan, (StorePlan, EndPlan))],
        ends=[
            EndOfTransaction(
                plan.producer.producer_id, plan.producer.epoch, plan.marker_epoch, is_commit=plan.is_commit
            )
            for plan in plans
            if isinstance(plan, EndPlan)
        ],
        answer=answer,
        answer_kept_ms=answer_kept_ms,
    )


def producer_after(result: Result) -> ProducerIdentity:
    """Return what the producer continues with."""
    match result:
        case EndPlan():
            return result.next_producer
        case StorePlan():
            return result.producer
        case ProducerIdentity():
            return result
        case None:
            raise AssertionError("the request has no producer to answer with")


def end(
    transaction: Transaction,
    producer: ProducerIdentity,
    *,
    commit: bool,
    bumps_epoch: bool,
    fresh_id: int | None,
    now: Moment,
) -> ProducerIdentity | StorePlan | EndPlan:
    """As ``Transaction.end``. Raises ``NeedsProducerId``, too."""
    if bumps_epoch and transaction.is_exhausted and fresh_id is None:
        raise NeedsProducerId
    return transaction.end(producer, commit=commit, bumps_epoch=bumps_epoch, fresh_id=fresh_id, now=now)


def abort(transaction: Transaction, fresh_id: int | None, now: Moment) -> Result:
    """Abort what is open, and fence its producer. Raises ``NeedsProducerId``."""
    if transaction.state is not TransactionState.ONGOING:
        return None
    if transaction.epochs_may_repeat and fresh_id is None:
        raise NeedsProducerId
    return transaction.abort(fresh_id=fresh_id, now=now)


def abort_overdue(transaction: Transaction, fresh_id: int | None, now: Moment) -> Result:
    """As ``abort``, if the transaction has been open for longer than its timeout."""
    is_overdue = now.wall_ms > transaction.started_at_ms + transaction.timeout_ms
    return abort(transaction, fresh_id, now) if is_overdue else None


def opened(hold: OpenInLog, name: TopicPartition, *, holds_back: bool) -> PartitionTransaction:
    return PartitionTransaction(
        topic_partition=name,
        transactional_id=hold.transactional_id,
        producer_id=hold.producer_id,
        producer_epoch=hold.producer_epoch,
        coordinator_epoch=0,
        first_offset=hold.first_offset,
        since_ms=hold.since_ms,
        holds_back=holds_back,
    )
