"""What both producers share: batching, partitions and outcomes, without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ..calls import now_ms
from ..errors import (
    ClosedError,
    ProduceError,
    RecordTooLargeError,
    RequestTimedOutError,
    SerializationError,
    SteleClientError,
)
from ..operations.produce import Produce, RecordOutcome
from ..partitioners import make_partitioner
from ..records import (
    HeadersLike,
    OutgoingRecord,
    RecordMetadata,
    Timestamp,
    to_bytes,
    to_headers,
    to_timestamp_ms,
)
from ..serializers import HeadedSerializer, Serializer
from ..transport.base import BACKOFF_FIRST_S, BACKOFF_MAX_S, retry_pause_s
from ..wire.messages import Durability
from .lane import Batch, Identity, Lane
from .options import ProducerOptions

V = TypeVar("V")

# Failures that flush() lists.
REPORTED_FAILURES_MAX = 1000


class Due(NamedTuple):
    """What to send now by partition, and when to look again; None if only a change can make more due."""

    batches: list[tuple[int, Batch]]
    needs_producer_id: bool
    wake_at_s: float | None


class ProducerCore(Generic[V]):
    """Turns records into produce operations, and their outcomes into those of the records.

    The caller does I/O and serialises access. Its futures, of asyncio or of threads, get the outcomes.
    """

    def __init__(
        self, topic: str, serializer: Serializer[V], options: ProducerOptions, *, keeps_order: bool
    ) -> None:
        self.topic = topic
        self.options = options
        self.lanes: dict[int, Lane] = {}
        self.busy: set[int] = set()
        self.buffered_bytes: int = 0
        self.last_error: SteleClientError | None = None
        self._serializer = serializer
        self._headers = serializer.headers if isinstance(serializer, HeadedSerializer) else ()
        self._partitioner = make_partitioner(options.partitioner)
        # A transport without order needs a limit of one batch in flight.
        self._in_flight_max = options.in_flight_max if keeps_order else 1
        self._producer_id: tuple[int, int] | None = None
        self._ask_not_before_s = 0.0
        self._failures: dict[int, SteleClientError] = {}
        self.sent_count: int = 0

    def restart(self) -> list[Any]:
        """Forget records, failures and producer id; return the futures of the records.

        For the child of a fork: what the parent has accepted, the parent stores.
        """
        futures = [
            acked for lane in self.lanes.values() for batch in lane.batches() for acked, _ in batch.tokens
        ]
        self.lanes = {}
        self.busy = set()
        self.buffered_bytes = 0
        self.last_error = None
        self._producer_id = None
        self._ask_not_before_s = 0.0
        self._failures, self.sent_count = {}, 0
        return futures

    # ── records in ──

    def outgoing(
        self,
        value: V | None,
        key: bytes | str | None,
        headers: HeadersLike,
        timestamp: Timestamp | None,
    ) -> tuple[OutgoingRecord, int]:
        """Serialise a record; return it with its size in bytes.

        Raises:
            SerializationError, RecordTooLargeError, TypeError, ValueError: the record was
                not accepted.
        """
        if value is None:
            data = None
        else:
            try:
                data = self._serializer(value)
            except Exception as error:  # a serializer is the user's and may raise anything
                raise SerializationError(
                    f"the value for topic {self.topic!r} cannot be serialized: {error}"
                ) from error
            if not isinstance(data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SerializationError(f"the serializer gave {type(data).__name__}; it must give bytes")
        record = OutgoingRecord(
            now_ms() if timestamp is None else to_timestamp_ms(timestamp),
            to_bytes(key),
            data,
            to_headers(headers) if headers else [],
        )
        if self._headers and data is not None:
            record.headers.extend(self._headers)
        size = record.size
        if size > self.options.buffer_bytes_max:
            raise RecordTooLargeError(
                f"a record of about {size} bytes does not fit in a buffer of {self.options.buffer_bytes_max}; "
                "raise buffer_bytes_max"
            )
        return record, size

    def reserve(self, size: int) -> bool:
        """Reserve buffer space for ``put``; ``release`` returns it.

        False if it is full.
        """
        if self.buffered_bytes + size > self.options.buffer_bytes_max:
            return False
        self.buffered_bytes += size
        return True

    def release(self, size: int) -> None:
        self.buffered_bytes -= size

    def put(
        self,
        record: OutgoingRecord,
        size: int,
        partition: int | None,
        count: int,
        acked: Any,
        now_s: float,
        *,
        is_counted: bool,
    ) -> None:
        """Add a record with its future to ``partition``, or to one of ``count``; space is reserved.

        ``is_counted``: ``flush`` raises its failure.
        """
        if partition is None:
            partition = self._partitioner(record.key, count, size)
        index = -1
        if is_counted:
            index = self.sent_count
            self.sent_count = index + 1
        lane = self.lanes.get(partition)
        if lane is None:
            lane = self.lanes[partition] = Lane(self.options, in_flight_max=self._in_flight_max)
        self.busy.add(partition)
        lane.append(record, (acked, index), size=size, now_s=now_s)

    # ── producer ids ──

    def _give_identity(self, lane: Lane) -> bool:
        """Give ``lane`` a new identity; return False if a new producer id is needed first."""
        if self._producer_id is None or self._producer_id[0] == lane.last_producer_id:
            return False
        producer_id, producer_epoch = self._producer_id
        lane.last_producer_id = producer_id
        lane.identity = Identity(producer_id, producer_epoch)
        return True

    def set_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        self._producer_id = (producer_id, producer_epoch)

    def lack_producer_id(self, error: SteleClientError, now_s: float) -> None:
        """Note that there is no producer id because of ``error``; ask again later, or fail what needs one."""
        self.last_error = error
        if error.retriable:
            self._ask_not_before_s = now_s + BACKOFF_MAX_S
        else:
            self.fail_unsent(error)

    # ── batches out ──

    def due(self, now_s: float) -> Due:
        """Fail what has expired, and take what is due; ``finish`` must follow for each batch."""
        batches: list[tuple[int, Batch]] = []
        needs_producer_id = False
        wake_at_s: float | None = None
        for partition in list(self.busy):
            lane = self.lanes[partition]
            self._settle_failed(lane.expire(now_s))
            if lane.needs_identity(now_s) and not self._give_identity(lane):
                if now_s >= self._ask_not_before_s:
                    needs_producer_id = True
                    continue
                at_s: float | None = self._ask_not_before_s
            else:
                while (batch := lane.take(now_s)) is not None:
                    batches.append((partition, batch))
                if lane.is_idle:
                    self.busy.discard(partition)
                    continue
                at_s = lane.wake_at_s()
            if at_s is not None and (wake_at_s is None or at_s < wake_at_s):
                wake_at_s = at_s
        return Due(batches, needs_producer_id, wake_at_s)

    def operation(self, partition: int, batch: Batch) -> Produce:
        return Produce(
            topic=self.topic,
            partition=partition,
            records=batch.records,
            acks=self.options.acks,
            timeout_ms=int(self.options.request_timeout_s * 1000),
            compression=self.options.compression,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )

    def finish(
        self, partition: int, batch: Batch, outcome: list[RecordOutcome] | SteleClientError, now_s: float
    ) -> None:
        """Settle the records of a sent batch, or queue the batch for a retry."""
        lane = self.lanes[partition]
        if isinstance(outcome, SteleClientError) and lane.is_stored_already(batch, outcome):
            outcome = self._outcomes_of_repeated(partition, batch)
        if isinstance(outcome, SteleClientError):
            self.last_error = outcome
            pause_s = retry_pause_s(lane.failures_in_a_row + 1)
            lost = lane.failed(batch, outcome, now_s, retry_pause_s=pause_s)
        else:
            self.last_error = None
            self._settle(batch, outcome)
            lost = lane.acked(batch, now_s, retry_pause_s=BACKOFF_FIRST_S)
        self._settle_failed(lost)

    def _outcomes_of_repeated(self, partition: int, batch: Batch) -> list[RecordOutcome]:
        """Return receipts without offsets, for a repeated and forgotten batch."""
        durability = Durability.APPENDED if self.options.acks else Durability.NONE
        return [RecordMetadata(self.topic, partition, -1, r.timestamp, durability) for r in batch.records]

    def _settle(self, batch: Batch, outcomes: list[RecordOutcome]) -> None:
        """Deliver the outcome of every record and release its buffer space."""
        self.release(batch.size)
        for token, outcome in zip(batch.tokens, outcomes, strict=True):
            self.deliver(token, outcome)

    def _settle_failed(self, batches: Iterable[Batch]) -> None:
        """Deliver the error of each failed batch to its records."""
        for batch in batches:
            error = batch.error or self._not_delivered()
            # One instance per record, because raising adds a traceback to the instance.
            self._settle(batch, cast("list[RecordOutcome]", [error.twin() for _ in batch.tokens]))

    def deliver(self, token: tuple[Any, int], outcome: RecordOutcome) -> None:
        """Give the future of a record its outcome, unless its caller has cancelled it."""
        acked, index = token
        is_done = acked.done()
        if not isinstance(outcome, SteleClientError):
            if not is_done:
                acked.set_result(outcome)
            return
        if is_done and not acked.cancelled():
            # The end of the producer has settled it.
            return
        if index >= 0 and len(self._failures) < REPORTED_FAILURES_MAX:
            self._failures[index] = outcome
        if not is_done:
            acked.set_exception(outcome)
            # Marks it as retrieved; flush reports the failures of futures that are never awaited.
            acked.exception()

    def fail_unsent(self, error: SteleClientError) -> None:
        """Fail all records whose batch is not in flight."""
        for lane in self.lanes.values():
            self._settle_failed(lane.give_up(error))

    def abandon(self) -> None:
        """Fail all records, also those in flight, whose request may last long."""
        for lane in self.lanes.values():
            for batch in lane.batches():
                error = batch.error or self.last_error or ClosedError("producer")
                for token in batch.tokens:
                    twin = error.twin()
                    twin.is_outcome_unknown = True
                    self.deliver(token, twin)

    def flush(self) -> list[Any]:
        """Close the open batches; return the futures of all records without an outcome."""
        futures: list[Any] = []
        for partition in self.busy:
            lane = self.lanes[partition]
            lane.flush()
            for batch in lane.batches():
                futures += [acked for acked, _ in batch.tokens]
        return futures

    def _not_delivered(self) -> SteleClientError:
        if self.last_error is not None:
            return self.last_error
        return RequestTimedOutError(
            f"the record was not delivered within {self.options.delivery_timeout_s:g} s; send it again"
        )

    def raise_failures(self) -> None:
        """Raise ProduceError for failures since the last call.

        Indexes count calls of ``send``.
        """
        failures, total = self._failures, self.sent_count
        self._failures, self.sent_count = {}, 0
        if failures:
            raise ProduceError(failures, total=total)
