"""Batches, sequences and retries of one partition, without I/O or a clock.

A lane gathers records into an open batch. Closed batches wait in order, and a few are
in flight at once::

    append ──▶ open ──▶ ready ──▶ in flight ──▶ acked
                          ▲           │
                          └── retry ──┘   all failed batches, in order, once none is in flight

Idempotence: a batch gets its sequence numbers when it is first sent and keeps them in
every retry, so the broker stores it once. After a failure the lane drains: it sends
nothing new until every batch in flight has a response, then sends the failed batches
again, oldest first. If the broker can no longer accept a sequence, the batch is not
stored, and it gets new sequence numbers:

- if an earlier batch was rejected for good, the following sequences close the gap;
- if the broker lacks an earlier batch, or one was abandoned with an unknown outcome, the
  lane continues in the producer's next epoch (KIP-360). A partition that has a batch of it
  refuses what an earlier attempt still brings. Batches of two epochs are never in flight
  together, because nothing would keep their order.

A batch that is too large is split, and its halves are sent.

The caller must follow ``take`` by exactly one of ``acked`` and ``failed`` for that batch,
and pass times of one monotonic clock, in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ..errors import ProducerStateError, RecordTooLargeError, SteleClientError
from ..records import OutgoingRecord
from ..wire.error_codes import ErrorCode
from ..wire.record_batch import NO_PRODUCER_ID
from .options import ProducerOptions

_SEQUENCES = 1 << 31
_EPOCH_MAX = (1 << 15) - 1


@dataclass(slots=True, eq=False)
class Identity:
    """Producer id and epoch of a lane; ``next_sequence`` is for the next new record."""

    producer_id: int
    producer_epoch: int
    next_sequence: int = 0


class BatchState(Enum):
    OPEN = auto()
    READY = auto()
    UNDER_WAY = auto()
    ACKED = auto()
    FAILED = auto()


@dataclass(slots=True, eq=False)
class Batch:
    """Records that are stored together or not at all.

    ``tokens`` has a value of the caller per record, returned with its outcome. Linger
    and delivery timeout count from ``opened_s``.
    """

    opened_s: float
    records: list[OutgoingRecord] = field(default_factory=list[OutgoingRecord])
    tokens: list[Any] = field(default_factory=list[Any])
    size: int = 0
    state: BatchState = BatchState.OPEN
    identity: Identity | None = None
    base_sequence: int = -1
    error: SteleClientError | None = None
    is_outcome_unknown: bool = False

    @property
    def producer_id(self) -> int:
        return NO_PRODUCER_ID if self.identity is None else self.identity.producer_id

    @property
    def producer_epoch(self) -> int:
        return -1 if self.identity is None else self.identity.producer_epoch


class Lane:
    """Batches of one partition; see the module.

    The caller sets ``identity`` if ``needs_identity`` is true.
    """

    def __init__(self, options: ProducerOptions, *, in_flight_max: int) -> None:
        self._options = options
        self._in_flight_max = in_flight_max
        self._open: Batch | None = None
        self._ready: deque[Batch] = deque()
        self._under_way: deque[Batch] = deque()
        self._is_draining = False
        self._not_before_s = 0.0
        self._failures_in_a_row = 0
        self.identity: Identity | None = None
        self.last_producer_id = NO_PRODUCER_ID

    # ── state ──

    @property
    def is_idle(self) -> bool:
        return self._open is None and not self._ready and not self._under_way

    @property
    def failures_in_a_row(self) -> int:
        return self._failures_in_a_row

    def needs_identity(self, now_s: float) -> bool:
        """Return whether a batch could be sent if it had a producer id."""
        if not self._options.idempotent or self.identity is not None:
            return False
        batch = self._next(now_s)
        return batch is not None and batch.identity is None

    def wake_at_s(self) -> float | None:
        """Return when ``take`` may have a batch; None if time alone does not suffice."""
        if self._is_blocked():
            return None
        if self._ready:
            return self._not_before_s
        if self._open is None or (self._options.linger_ms <= 0 and self._under_way):
            return None
        return max(self._not_before_s, self._open.opened_s + self._options.linger_ms / 1000)

    # ── records in ──

    def append(self, record: OutgoingRecord, token: Any, *, size: int, now_s: float) -> None:
        batch = self._open
        if batch is not None and batch.size + size > self._options.batch_bytes_max:
            self._close_open()
            batch = None
        if batch is None:
            batch = self._open = Batch(now_s)
        batch.records.append(record)
        batch.tokens.append(token)
        batch.size += size
        if (
            batch.size >= self._options.batch_bytes_max
            or len(batch.records) >= self._options.batch_records_max
        ):
            self._close_open()

    def flush(self) -> None:
        """Close the open batch, so that it does not linger."""
        self._close_open()

    def _close_open(self) -> None:
        if self._open is not None:
            self._open.state = BatchState.READY
            self._ready.append(self._open)
            self._open = None

    # ── batches out ──

    def take(self, now_s: float) -> Batch | None:
        """Return the next batch to send, with its sequences assigned.

        None if there is none.
        """
        batch = self._next(now_s)
        if batch is None:
            return None
        if batch is self._open:
            self._close_open()
        if self._options.idempotent and batch.identity is None:
            if self.identity is None:
                return None
            batch.identity = self.identity
            batch.base_sequence = self.identity.next_sequence
            # As in Kafka, sequences continue with 0 after 2³¹ - 1.
            self.identity.next_sequence = (batch.base_sequence + len(batch.records)) % _SEQUENCES
        self._ready.popleft()
        batch.state = BatchState.UNDER_WAY
        self._under_way.append(batch)
        return batch

    def _next(self, now_s: float) -> Batch | None:
        if now_s < self._not_before_s or self._is_blocked():
            return None
        if self._ready:
            return self._ready[0]
        if self._open is None:
            return None
        if self._options.linger_ms > 0:
            return self._open if now_s >= self._open.opened_s + self._options.linger_ms / 1000 else None
        return None if self._under_way else self._open

    def _is_blocked(self) -> bool:
        """Return whether nothing may be sent before the next response."""
        if self._is_draining or len(self._under_way) >= self._in_flight_max:
            return True
        if not self._under_way or not self._options.idempotent:
            return False
        following = self._ready[0].identity if self._ready else None
        return (following or self.identity) is not self._under_way[-1].identity

    # ── outcomes ──

    @staticmethod
    def is_stored_already(batch: Batch, error: SteleClientError) -> bool:
        """Return whether ``error`` proves that an earlier attempt succeeded.

        Only an attempt with an unknown outcome can have. Otherwise the error means that
        sequences are mixed up, and the batch is not stored.
        """
        return error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.is_outcome_unknown

    def acked(self, batch: Batch, now_s: float, *, retry_pause_s: float = 0.0) -> list[Batch]:
        """Note that ``batch`` is stored.

        Return batches that failed for good after a drain.
        """
        batch.state = BatchState.ACKED
        self._under_way.remove(batch)
        self._failures_in_a_row = 0
        return self._after_answer(now_s, retry_pause_s)

    def failed(
        self, batch: Batch, error: SteleClientError, now_s: float, *, retry_pause_s: float
    ) -> list[Batch]:
        """Note a failed attempt.

        Return the batches that failed for good, with ``error`` set.

        ``retry_pause_s``: the pause before the next attempt.
        """
        batch.error = error
        batch.state = BatchState.FAILED
        batch.is_outcome_unknown = batch.is_outcome_unknown or error.is_outcome_unknown
        self._is_draining = True
        return self._after_answer(now_s, retry_pause_s)

    def give_up(self, error: SteleClientError) -> list[Batch]:
        """Fail all batches not in flight, with their last error, otherwise ``error``."""
        self._close_open()
        batches = list(self._ready)
        self._ready.clear()
        for batch in batches:
            batch.error = batch.error or error
            batch.state = BatchState.FAILED
        return batches

    def expire(self, now_s: float) -> list[Batch]:
        """Remove and return unsent batches older than the delivery timeout.

        Their ``error`` is that of the last attempt, if there was one.
        """
        if self._open is not None and self._is_expired(self._open, now_s):
            self._close_open()
        expired: list[Batch] = []
        while self._ready and self._is_expired(self._ready[0], now_s):
            batch = self._ready.popleft()
            batch.state = BatchState.FAILED
            self._leave_out(batch, [*self._under_way, *self._ready])
            expired.append(batch)
        return expired

    def _after_answer(self, now_s: float, retry_pause_s: float) -> list[Batch]:
        if not self._is_draining or any(b.state is BatchState.UNDER_WAY for b in self._under_way):
            return []
        self._is_draining = False
        failed, self._under_way = list(self._under_way), deque[Batch]()
        given_up: list[Batch] = []
        again: list[Batch] = []
        for index, batch in enumerate(failed):
            error, later = batch.error, failed[index + 1 :]
            assert error is not None
            if (
                isinstance(error, RecordTooLargeError)
                and len(batch.records) > 1
                and not batch.is_outcome_unknown
            ):
                self._leave_out(batch, later)
                again += _halves(batch)
            elif self._is_expired(batch, now_s) or not self._may_retry(batch, error, again, later):
                self._leave_out(batch, later)
                given_up.append(batch)
            else:
                batch.state = BatchState.READY
                again.append(batch)
        self._ready.extendleft(reversed(again))
        if again:
            self._failures_in_a_row += 1
            self._not_before_s = now_s + retry_pause_s
        return given_up

    def _is_expired(self, batch: Batch, now_s: float) -> bool:
        return now_s - batch.opened_s >= self._options.delivery_timeout_s

    def _may_retry(
        self, batch: Batch, error: SteleClientError, before: list[Batch], later: list[Batch]
    ) -> bool:
        """Return whether to retry; free a batch, and those after it, from a sequence that the broker rejected."""
        if not isinstance(error, ProducerStateError):
            return error.retriable
        if batch.identity is None:
            # An earlier batch was freed from its sequence meanwhile, and this one with it.
            return True
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            return False
        if error.code is ErrorCode.UNKNOWN_PRODUCER_ID and batch.is_outcome_unknown:
            # Whether it was stored before the broker forgot the producer cannot be known.
            return False
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and any(
            earlier.identity is batch.identity for earlier in before
        ):
            # Its predecessor is sent again first, after which the sequence is right.
            return True
        identity = batch.identity
        self._begin_epoch(identity)
        for dependent in (batch, *later):
            if dependent.identity is identity:
                _free(dependent)
        return True

    def _begin_epoch(self, identity: Identity) -> None:
        """Replace ``identity``, if it is still the lane's, by the next epoch of the producer."""
        if self.identity is not identity:
            return
        # After the last epoch, another producer id is needed.
        self.identity = (
            Identity(identity.producer_id, identity.producer_epoch + 1)
            if identity.producer_epoch < _EPOCH_MAX
            else None
        )

    def _leave_out(self, batch: Batch, later: list[Batch]) -> None:
        """Continue the sequences without ``batch``; ``later`` are the batches after it."""
        identity = batch.identity
        if identity is None:
            return
        dependents = [other for other in later if other.identity is identity]
        if batch.is_outcome_unknown or any(
            other.is_outcome_unknown or other.state is BatchState.UNDER_WAY for other in dependents
        ):
            # The sequence that the broker expects next is unknown.
            self._begin_epoch(identity)
            return
        if isinstance(batch.error, ProducerStateError):
            if self.identity is identity:
                self.identity = None
        else:
            identity.next_sequence = batch.base_sequence
        for other in dependents:
            _free(other)

    def batches(self) -> Iterator[Batch]:
        """Yield all batches that are neither acked nor failed, oldest first."""
        yield from self._under_way
        yield from self._ready
        if self._open is not None:
            yield self._open


def _free(batch: Batch) -> None:
    """Remove the sequence of a batch that is certainly not stored."""
    batch.identity = None
    batch.base_sequence = -1
    batch.is_outcome_unknown = False


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch.records) // 2
    size = batch.size // 2
    return (
        Batch(batch.opened_s, batch.records[:middle], batch.tokens[:middle], size, BatchState.READY),
        # The sizes must add up to that of the whole batch, which was reserved.
        Batch(
            batch.opened_s, batch.records[middle:], batch.tokens[middle:], batch.size - size, BatchState.READY
        ),
    )
