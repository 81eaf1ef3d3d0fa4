# Generated from async_transaction.py by clients/python/unasync.py: edit that, then run `make format`.
"""The blocking transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar

from ..concurrency import sleep
from ..errors import SteleClientError
from ..grouping.group import Batch
from ..operations.base import Operation
from ..operations.transactions import BeginTransaction, EndTransaction, ProducerToken
from ..records import HeadersLike, NewRecord, RecordMetadata, Timestamp, TopicPartition
from ..transport.base import retry_pause_s
from ..transport.transport import Caller
from .core import TransactionCore

R = TypeVar("R")

logger: logging.Logger = logging.getLogger(__name__)


class Transaction(TransactionCore):
    """Records, leases and offsets that are committed together.

    Created by ``Client.transaction``.

    Leaving the block commits; an exception aborts, and a lease that was acknowledged in the block is
    given back. After an error of a call inside the block nothing more is accepted: leave the block
    with it, and run the block again.
    """

    def __init__(self, client: Caller, transactional_id: str, *, timeout_s: float) -> None:
        super().__init__(transactional_id, timeout_s)
        self._client = client

    def __enter__(self) -> Self:
        """Begin: fence earlier producers with the id.

        Raises:
            UnsupportedOperationError: the URL is not an ``http://`` or ``https://`` URL.
            SteleClientError: the broker does not accept the id or the timeout.
        """
        self._token = self._until_done(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and not self._is_ended:
            self.commit()
            return
        try:
            self.abort()
        except SteleClientError as failure:
            # The exception of the block is the one to report; the broker aborts after the timeout.
            logger.warning("transaction %r was not aborted: %s", self.transactional_id, failure)

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> RecordMetadata:
        """Store one record, which readers see after the commit; return its receipt."""
        record = NewRecord(value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        (receipt,) = self.produce_many(topic, [record])
        return receipt

    def produce_many(self, topic: str, records: Iterable[NewRecord | bytes | str]) -> list[RecordMetadata]:
        """Store records in one request; return receipts in the order given.

        Raises:
            TransactionFencedError: another producer has begun with the transactional id.
            SteleClientError: the transaction must be aborted.
        """
        operation = self._produce(topic, records)
        return [] if operation is None else self._step(operation)

    def ack(self, batch: Batch) -> None:
        """Acknowledge a batch when the transaction commits.

        If it aborts, the records are redelivered.

        The lease does not expire until then, and a ``with`` block of the batch does not acknowledge it.

        Raises:
            LeaseLostError: the records were given to another reader; the transaction must be aborted.
        """
        operation = self._ack(batch)
        try:
            self._step(operation)
        except SteleClientError:
            batch.is_in_transaction = False
            raise

    def commit_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Commit a group's next offset when the transaction commits."""
        self._step(self._commit_offset(group, partition, offset))

    def commit(self) -> None:
        """Commit; the end of the block does this.

        Repeated while the broker is down, for at most the client's ``timeout_s``.

        Raises:
            TransactionFencedError: nothing was committed.
            SteleClientError: see ``is_outcome_unknown``: if it is set, the transaction may be committed.
        """
        operation = self._end(is_commit=True)
        if operation is not None:
            self._until_done(operation)

    def abort(self) -> None:
        """Abort; an exception in the block does this."""
        operation = self._end(is_commit=False)
        if operation is not None:
            self._until_done(operation)

    def _step(self, operation: Operation[R]) -> R:
        try:
            return self._client.call(operation)
        except SteleClientError as error:
            self._failure = error
            raise

    def _until_done(self, operation: BeginTransaction | EndTransaction) -> ProducerToken:
        deadline_s = time.monotonic() + self._client.config.timeout_s
        failures = 0
        is_outcome_unknown = False
        while True:
            try:
                return self._client.call(operation)
            except SteleClientError as error:
                is_outcome_unknown = is_outcome_unknown or error.is_outcome_unknown
                if not error.retriable or time.monotonic() > deadline_s:
                    error.is_outcome_unknown = is_outcome_unknown and error.retriable
                    raise
                failures += 1
            sleep(retry_pause_s(failures))
