"""Operations of transactions over the binary protocol (ADR-0035, ADR-0037)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..wire import messages as m
from .base import Operation, expect


class TransactionalProducer(NamedTuple):
    """The producer of the next transaction; its sequences begin at 0 in every partition."""

    producer_id: int
    producer_epoch: int


class InitTransactions(m.InitTransactionsRequest, Operation[TransactionalProducer]):
    """Begin with a transactional id: fence earlier producers with it, abort what they left open.

    The broker answers ``CONCURRENT_TRANSACTIONS``, which is retriable, while it aborts.
    """

    is_repeatable = True

    def from_frame(self, response: m.Response) -> TransactionalProducer:
        answer = expect(response, m.InitTransactionsResponse)
        return TransactionalProducer(answer.producer_id, answer.producer_epoch)


class InitUnlessOpen(m.InitUnlessOpenRequest, Operation[TransactionalProducer]):
    """Begin with a transactional id that has no open transaction.

    The broker answers ``INVALID_TXN_STATE`` if it has one: this can end nothing that another producer wrote.
    """

    is_repeatable = True

    def from_frame(self, response: m.Response) -> TransactionalProducer:
        answer = expect(response, m.InitUnlessOpenResponse)
        return TransactionalProducer(answer.producer_id, answer.producer_epoch)


class EndTransaction(Operation[TransactionalProducer]):
    """Commit or abort the open transaction, durably."""

    is_repeatable = True
    transactional_id: str
    producer: TransactionalProducer
    is_commit: bool

    def to_frame(self) -> m.Request:
        return m.EndTransactionRequest(
            transactional_id=self.transactional_id, **self.producer._asdict(), is_commit=self.is_commit
        )

    def from_frame(self, response: m.Response) -> TransactionalProducer:
        answer = expect(response, m.EndTransactionResponse)
        return TransactionalProducer(answer.producer_id, answer.producer_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTransaction:
    """An open transaction, and the producer that wrote it."""

    transactional_id: str
    producer: TransactionalProducer


class CommitTransactions(Operation[None]):
    """Commit several transactions, all or none of them, durably.

    Other open transactions whose ids start with ``abandoned_prefix`` are aborted in the same step.
    """

    is_repeatable = True
    transactions: Sequence[WrittenTransaction]
    abandoned_prefix: str | None = None

    def to_frame(self) -> m.Request:
        return m.CommitTransactionsRequest(
            transactions=[
                m.OpenTransaction(transactional_id=written.transactional_id, **written.producer._asdict())
                for written in self.transactions
            ],
            abandoned_prefix=self.abandoned_prefix,
        )

    def from_frame(self, response: m.Response) -> None:
        expect(response, m.CommitTransactionsResponse)
