"""The state of a transaction, and its operations, without I/O."""

from __future__ import annotations

from collections.abc import Iterable

from .. import forks
from ..calls import prepare
from ..errors import SteleClientError, TransactionError, TransactionFencedError
from ..grouping.core import BatchCore
from ..operations.transactions import (
    BeginTransaction,
    EndTransaction,
    ProduceInTransaction,
    ProducerToken,
    SettleLease,
    SettleOffset,
)
from ..records import NewRecord, TopicPartition


class TransactionCore:
    """A transaction that the subclasses execute step by step."""

    def __init__(self, transactional_id: str, timeout_s: float) -> None:
        """Raises ValueError if ``timeout_s`` is not more than 0."""
        if timeout_s <= 0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be more than 0")
        self.transactional_id = transactional_id
        self._timeout_ms = max(1, int(timeout_s * 1000))
        self._token: ProducerToken | None = None
        self._has_content = False
        self._is_ended = False
        self._failure: SteleClientError | None = None
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        """Leave an open transaction to the parent, which ends it."""
        if self._token is not None:
            self._failure = TransactionFencedError(
                f"transaction {self.transactional_id!r} was begun before this process was forked, and is the parent's; "
                "begin another one, with another transactional id"
            )

    def _begin(self) -> BeginTransaction:
        if self._token is not None:
            raise TransactionError("a transaction is used once; call client.transaction again")
        return BeginTransaction(transactional_id=self.transactional_id, timeout_ms=self._timeout_ms)

    @property
    def _open(self) -> ProducerToken:
        """The token of the open transaction. Raises ``TransactionError``."""
        if self._token is None:
            raise TransactionError("the transaction has not begun; use it in a with block")
        if self._is_ended:
            raise TransactionError("the transaction has ended; call client.transaction again")
        if self._failure is not None:
            raise TransactionError(f"the transaction must be aborted, because of: {self._failure}")
        return self._token

    def _produce(self, topic: str, given: Iterable[NewRecord | bytes | str]) -> ProduceInTransaction | None:
        token = self._open
        records, partitions = prepare(given)
        if not records:
            return None
        self._has_content = True
        return ProduceInTransaction(
            transactional_id=self.transactional_id,
            token=token,
            topic=topic,
            records=records,
            partitions=partitions,
        )

    def _ack(self, batch: BatchCore) -> SettleLease:
        token = self._open
        batch.check()
        self._has_content = True
        batch.is_in_transaction = True
        return SettleLease(
            transactional_id=self.transactional_id, token=token, group=batch.group_id, lease=batch.lease
        )

    def _commit_offset(self, group: str, partition: TopicPartition, offset: int) -> SettleOffset:
        token = self._open
        self._has_content = True
        return SettleOffset(
            transactional_id=self.transactional_id,
            token=token,
            group=group,
            partition=partition,
            offset=offset,
        )

    def _end(self, *, is_commit: bool) -> EndTransaction | None:
        """Return the operation that ends the transaction; None if it is empty, or over."""
        if is_commit:
            token = self._open
        elif self._token is None or self._is_ended or isinstance(self._failure, TransactionFencedError):
            # There is nothing to abort: a producer that fences has aborted it.
            return None
        else:
            token = self._token
        self._is_ended = True
        if not self._has_content:
            return None
        return EndTransaction(transactional_id=self.transactional_id, token=token, is_commit=is_commit)
