"""The transactions of the log in which a run writes (ADR-0035)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ..client import Client
from ..errors import ProducerStateError, SteleClientError
from ..operations.base import Operation
from ..operations.transactional import EndTransaction, InitTransactions, TransactionalProducer
from ..producing.last_record import last_committed_value
from ..transport.base import retry_pause_s
from .errors import TransactionTimedOut
from .records.events import Position

T = TypeVar("T")

POSITION_KEY = b"position"
# The newest record counts; what is older may go.
POSITIONS_CONFIGS = {
    "retention.ms": "-1",
    "retention.bytes": str(16 * 1024 * 1024),
    "segment.bytes": "4194304",
}
_CHANGE_LSN_MAX = 2**64 - 1
# Open for longer, it ends with the transaction of PostgreSQL that it is in, so that two large ones do not share it.
_COMMIT_S = 0.1


class LogTransaction:
    """One transaction after the other; the first batch that is sent opens the next."""

    def __init__(
        self,
        client: Client,
        *,
        transactional_id: str,
        timeout_s: float,
        patience_s: float,
        pause: Callable[[float], None],
    ) -> None:
        """Fence earlier runs, and abort what they left open.

        Raises:
            SteleClientError: the broker is down, or does not allow a timeout this long.
        """
        self.transactional_id = transactional_id
        self._client = client
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._pause = pause
        self._opened_s: float | None = None
        self.producer: TransactionalProducer = self._call(
            InitTransactions(transactional_id=transactional_id, timeout_ms=int(timeout_s * 1000))
        )

    @property
    def is_open(self) -> bool:
        return self._opened_s is not None

    @property
    def is_due(self) -> bool:
        """Whether to commit as soon as what it has is whole."""
        return self._opened_s is not None and time.monotonic() - self._opened_s >= _COMMIT_S

    def open(self) -> None:
        """Note that a batch is about to be sent."""
        if self._opened_s is None:
            self._opened_s = time.monotonic()

    def commit(self) -> None:
        """Commit; the next transaction has another producer epoch.

        Raises:
            TransactionTimedOut: the broker has aborted the transaction, because it took too long.
            SteleClientError
        """
        operation = EndTransaction(
            transactional_id=self.transactional_id, producer=self.producer, is_commit=True
        )
        try:
            self.producer = self._call(operation)
        except ProducerStateError as error:
            raise self.cause(error) from error
        self._opened_s = None

    def abort(self) -> None:
        """Abort what is open, with one attempt. Raises SteleClientError."""
        if self._opened_s is not None:
            self._opened_s = None
            operation = EndTransaction(
                transactional_id=self.transactional_id, producer=self.producer, is_commit=False
            )
            self.producer = self._client.call(operation)

    def cause(self, error: ProducerStateError) -> Exception:
        """Return what to raise: ``error``, or that the transaction took too long."""
        if self._opened_s is None or time.monotonic() - self._opened_s < self._timeout_s:
            return error
        return TransactionTimedOut(
            f"a transaction was open for more than {self._timeout_s:g} s, so the broker has aborted it ({error}); "
            "if one transaction of PostgreSQL needs longer, raise --transaction-timeout, and "
            "STELE_TRANSACTION_MAX_TIMEOUT_MS of the broker, which limits it"
        )

    def _call(self, operation: Operation[T]) -> T:
        give_up_s = time.monotonic() + self._patience_s
        failures = 0
        while True:
            try:
                return self._client.call(operation)
            except SteleClientError as error:
                pause_s = retry_pause_s(failures)
                if not error.retriable or time.monotonic() + pause_s >= give_up_s:
                    raise
                failures += 1
            self._pause(pause_s)


def committed_position(client: Client, topic: str) -> Position | None:
    """Return the position up to which earlier runs have committed all changes; None if they have not.

    All earlier runs must be fenced. Raises SteleClientError.
    """
    last = last_committed_value(client, topic)
    return None if last is None else Position(int(last, 16), _CHANGE_LSN_MAX, 0)
