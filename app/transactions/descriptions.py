"""Transactions as operators list and describe them, on one broker or with shared storage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from ..errors import InvalidTransactionState, ProducerFenced
from ..storage.topic_partition import TopicPartition
from ..work_budget import WorkBudget, sorted_in_turns
from .messages import NOT_STARTED, TransactionDescription, TransactionListing
from .transaction import Transaction


class _Opened(Protocol):
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...


_O = TypeVar("_O", bound=_Opened)


async def listings_of(
    transactions: Iterable[Transaction],
    *,
    states: Collection[str],
    producer_ids: Collection[int],
    min_duration_ms: int,
    now_ms: int,
) -> list[TransactionListing]:
    """List the transactions that have one of the states and of the producers, or any if none is given.

    With a ``min_duration_ms``, those that have been open for longer. They are sorted by their ids. There may
    be a hundred thousand, so this pauses.
    """
    budget = WorkBudget()
    found: list[TransactionListing] = []
    for transaction in transactions:
        await budget.visit()
        if (
            (not states or transaction.state.value in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (
                min_duration_ms < 0
                or (transaction.state.is_open and now_ms - transaction.started_at_ms > min_duration_ms)
            )
        ):
            found.append(
                TransactionListing(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    state=transaction.state,
                    started_at_ms=_started_at_ms(transaction),
                )
            )
    return await sorted_in_turns(found, lambda listing: listing.transactional_id)


def description_of(transaction: Transaction, partitions: Sequence[TopicPartition]) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=transaction.transactional_id,
        state=transaction.state,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        timeout_ms=transaction.timeout_ms,
        started_at_ms=_started_at_ms(transaction),
        partitions=partitions,
    )


def _started_at_ms(transaction: Transaction) -> int:
    return transaction.started_at_ms if transaction.state.is_open else NOT_STARTED


def open_of_producer(
    opened: Iterable[_O], topic_partition: TopicPartition, *, producer_id: int, epoch: int
) -> list[_O]:
    """Return those of the transactions open in a partition that a producer with ``epoch`` may end.

    Raises:
        InvalidTransactionState: the producer has none there.
        ProducerFenced: one has a later epoch.
    """
    theirs = [transaction for transaction in opened if transaction.producer_id == producer_id]
    if not theirs:
        raise InvalidTransactionState(
            None, f"producer {producer_id} has no open transaction in {topic_partition}"
        )
    current_epoch = max(transaction.producer_epoch for transaction in theirs)
    if epoch < current_epoch:
        raise ProducerFenced(producer_id=producer_id, epoch=epoch, current_epoch=current_epoch)
    return theirs
