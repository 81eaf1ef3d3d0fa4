"""One partition's way from accepted records to acked batches: decisions only, no I/O, no clock.

Records are gathered into an open batch, closed batches wait in order, and a few
are under way at once::

    append ──▶ open ──▶ ready ──▶ under way ──▶ acked
                          ▲           │
                          └── retry ──┘   all that failed, in order, when none is under way

Idempotence: a batch gets its sequence numbers when it is first sent and keeps
them for every repetition, so the broker stores it once. After a failure nothing
new is sent until every batch under way has its answer; then those that failed are
sent again, oldest first. When the broker can no longer accept a sequence, the
batch certainly is not stored, and it gets a new place:

- a batch before it was rejected for good: the sequences close the gap;
- the broker has forgotten the producer, or a batch before it was given up on with
  an unknown outcome: the lane goes on with a new producer id. Batches of two
  producer ids are never under way together, for nothing would keep their order.

A batch that is too large is split and its halves are sent.

Two rules of the caller: ``take`` is followed by exactly one of ``acked`` and
``failed`` for that batch, and times come from one monotonic clock, in seconds.
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


@dataclass(slots=True, eq=False)
class Identity:
    """A producer id as one lane uses it; ``next_sequence`` is for the next record first sent."""

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
    """Records that are stored together, or not at all.

    ``tokens`` stand beside the records: whatever the caller wants back with an
    outcome. ``opened_s`` starts linger and delivery timeout.
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
    """See the module. ``identity`` is set by the caller when ``needs_identity`` says so."""

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

    # ── what the caller asks ──

    @property
    def is_idle(self) -> bool:
        return self._open is None and not self._ready and not self._under_way

    @property
    def failures_in_a_row(self) -> int:
        return self._failures_in_a_row

    def needs_identity(self, now_s: float) -> bool:
        """A batch could be sent if it had a producer id."""
        if not self._options.idempotent or self.identity is not None:
            return False
        batch = self._next(now_s)
        return batch is not None and batch.identity is None

    def wake_at_s(self) -> float | None:
        """When ``take`` may give a batch though nothing else happens; None: not by time alone."""
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
        """Do not let what is there now linger."""
        self._close_open()

    def _close_open(self) -> None:
        if self._open is not None:
            self._open.state = BatchState.READY
            self._ready.append(self._open)
            self._open = None

    # ── batches out ──

    def take(self, now_s: float) -> Batch | None:
        """The batch to send now, if there is one. It has its sequences."""
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
            # As Kafka: sequences go on at 0 after 2³¹ - 1.
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
        """Nothing may be sent before an answer comes."""
        if self._is_draining or len(self._under_way) >= self._in_flight_max:
            return True
        if not self._under_way or not self._options.idempotent:
            return False
        following = self._ready[0].identity if self._ready else None
        return (following or self.identity) is not self._under_way[-1].identity

    # ── outcomes ──

    @staticmethod
    def is_stored_already(batch: Batch, error: SteleClientError) -> bool:
        """``error`` means that an earlier attempt, whose outcome was unknown, had succeeded.

        Without such an attempt the same answer is a mix-up of sequences, and the batch is not stored.
        """
        return error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.is_outcome_unknown

    def acked(self, batch: Batch, now_s: float, *, retry_pause_s: float = 0.0) -> list[Batch]:
        """``batch`` is stored. Returns batches that thereby failed for good (after a drain)."""
        batch.state = BatchState.ACKED
        self._under_way.remove(batch)
        self._failures_in_a_row = 0
        return self._after_answer(now_s, retry_pause_s)

    def failed(
        self, batch: Batch, error: SteleClientError, now_s: float, *, retry_pause_s: float
    ) -> list[Batch]:
        """The attempt failed. Returns the batches that failed for good, each with its ``error``.

        ``retry_pause_s``: how long to wait before the next attempt, if there is one.
        """
        batch.error = error
        batch.state = BatchState.FAILED
        batch.is_outcome_unknown = batch.is_outcome_unknown or error.is_outcome_unknown
        self._is_draining = True
        return self._after_answer(now_s, retry_pause_s)

    def give_up(self, error: SteleClientError) -> list[Batch]:
        """Everything that is not under way fails, with ``error`` unless an attempt failed before."""
        self._close_open()
        batches = list(self._ready)
        self._ready.clear()
        for batch in batches:
            batch.error = batch.error or error
            batch.state = BatchState.FAILED
        return batches

    def expire(self, now_s: float) -> list[Batch]:
        """Unsent batches older than the delivery timeout; ``error`` is that of the last attempt, if any."""
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
            elif self._is_expired(batch, now_s) or not self._may_retry(batch, error, again):
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

    def _may_retry(self, batch: Batch, error: SteleClientError, before: list[Batch]) -> bool:
        """Whether to send it again; a batch that was refused for its sequence is freed from it."""
        if not isinstance(error, ProducerStateError):
            return error.retriable
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            return False
        if batch.identity is None:
            # A batch before it was left out meanwhile, and its place is free already.
            return True
        if error.code is ErrorCode.UNKNOWN_PRODUCER_ID and batch.is_outcome_unknown:
            # Stored before the broker forgot, or not at all: nobody can tell any more.
            return False
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and any(
            earlier.identity is batch.identity for earlier in before
        ):
            # Its predecessor is missing and about to be sent: then the sequence is right.
            return True
        if self.identity is batch.identity:
            self.identity = None
        _free(batch)
        return True

    def _leave_out(self, batch: Batch, later: list[Batch]) -> None:
        """Let the sequences go on without ``batch``; ``later`` are those that may have followed it."""
        identity = batch.identity
        if identity is None:
            return
        followers = [other for other in later if other.identity is identity]
        if batch.is_outcome_unknown or any(
            other.is_outcome_unknown or other.state is BatchState.UNDER_WAY for other in followers
        ):
            # What the broker expects next is not known.
            if self.identity is identity:
                self.identity = None
            return
        if isinstance(batch.error, ProducerStateError):
            if self.identity is identity:
                self.identity = None
        else:
            identity.next_sequence = batch.base_sequence
        for other in followers:
            _free(other)

    def batches(self) -> Iterator[Batch]:
        """All that is not acked and has not failed, oldest first."""
        yield from self._under_way
        yield from self._ready
        if self._open is not None:
            yield self._open


def _free(batch: Batch) -> None:
    """It is certainly not stored, so it may take another place in the sequence."""
    batch.identity = None
    batch.base_sequence = -1
    batch.is_outcome_unknown = False


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch.records) // 2
    size = batch.size // 2
    return (
        Batch(batch.opened_s, batch.records[:middle], batch.tokens[:middle], size, BatchState.READY),
        # Sizes must add up to the whole, which was accounted for.
        Batch(
            batch.opened_s, batch.records[middle:], batch.tokens[middle:], batch.size - size, BatchState.READY
        ),
    )
