"""What both producers share: batching, partitions and outcomes, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from ..calls import now_ms
from ..errors import (
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
from ..serializers import Serializer
from ..transport.base import BACKOFF_FIRST_S, retry_pause_s
from ..wire.messages import Durability
from .lane import Batch, Identity, Lane
from .options import ProducerOptions

V = TypeVar("V")

# Receives the token that the caller passed with a record, and the outcome of the record.
Deliver = Callable[[Any, RecordOutcome], None]

# Failures that flush() lists; further ones are only counted.
REPORTED_FAILURES_MAX = 1000


class ProducerCore(Generic[V]):
    """Turns records into produce operations.

    The caller does I/O and serialises access.
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
        self._partitioner = make_partitioner(options.partitioner)
        # A transport without order needs a limit of one batch in flight.
        self._in_flight_max = options.in_flight_max if keeps_order else 1
        self._producer_id: tuple[int, int] | None = None
        self._failures: dict[int, SteleClientError] = {}
        self._failure_count = 0
        self._sent_count = 0

    def restart(self) -> list[Any]:
        """Forget records, failures and producer id; return the tokens of the records.

        For the child of a fork: what the parent has accepted, the parent stores.
        """
        tokens = [token for lane in self.lanes.values() for batch in lane.batches() for token in batch.tokens]
        self.lanes = {}
        self.busy = set()
        self.buffered_bytes = 0
        self.last_error = None
        self._producer_id = None
        self._failures, self._failure_count, self._sent_count = {}, 0, 0
        return tokens

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
        size = record.size
        if size > self.options.buffer_bytes_max:
            raise RecordTooLargeError(
                f"a record of about {size} bytes does not fit in a buffer of {self.options.buffer_bytes_max}; "
                "raise buffer_bytes_max"
            )
        return record, size

    def reserve(self, size: int) -> bool:
        """Reserve buffer space for ``append``; ``release`` returns it.

        False if it is full.
        """
        if self.buffered_bytes + size > self.options.buffer_bytes_max:
            return False
        self.buffered_bytes += size
        return True

    def release(self, size: int) -> None:
        self.buffered_bytes -= size

    def choose_partition(self, key: bytes | None, partitions: int, size: int) -> int:
        return self._partitioner(key, partitions, size)

    def append(self, partition: int, record: OutgoingRecord, token: Any, size: int, now_s: float) -> None:
        lane = self.lanes.get(partition)
        if lane is None:
            lane = self.lanes[partition] = Lane(self.options, in_flight_max=self._in_flight_max)
        self.busy.add(partition)
        lane.append(record, token, size=size, now_s=now_s)

    # ── producer ids ──

    def give_identity(self, lane: Lane) -> bool:
        """Give ``lane`` a new identity; return False if a new producer id is needed first."""
        if self._producer_id is None or self._producer_id[0] == lane.last_producer_id:
            return False
        producer_id, producer_epoch = self._producer_id
        lane.last_producer_id = producer_id
        lane.identity = Identity(producer_id, producer_epoch)
        return True

    def set_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        self._producer_id = (producer_id, producer_epoch)

    # ── batches out ──

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
        self,
        partition: int,
        batch: Batch,
        outcome: list[RecordOutcome] | SteleClientError,
        now_s: float,
        deliver: Deliver,
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
            self._settle(batch, outcome, deliver)
            lost = lane.acked(batch, now_s, retry_pause_s=BACKOFF_FIRST_S)
        self.settle_failed(lost, deliver)

    def _outcomes_of_repeated(self, partition: int, batch: Batch) -> list[RecordOutcome]:
        """Return receipts without offsets, for a repeated and forgotten batch."""
        durability = Durability.APPENDED if self.options.acks else Durability.NONE
        return [RecordMetadata(self.topic, partition, -1, r.timestamp, durability) for r in batch.records]

    def _settle(self, batch: Batch, outcomes: list[RecordOutcome], deliver: Deliver) -> None:
        """Deliver the outcome of every record and release its buffer space."""
        self.release(batch.size)
        for token, outcome in zip(batch.tokens, outcomes, strict=True):
            deliver(token, outcome)

    def settle_failed(self, batches: Iterable[Batch], deliver: Deliver) -> None:
        """Deliver the error of each failed batch to its records."""
        for batch in batches:
            error = batch.error or self._not_delivered()
            # One instance per record, because raising adds a traceback to the instance.
            self._settle(batch, cast("list[RecordOutcome]", [error.twin() for _ in batch.tokens]), deliver)

    def fail_unsent(self, error: SteleClientError, deliver: Deliver) -> None:
        """Fail all records whose batch is not in flight."""
        for lane in self.lanes.values():
            self.settle_failed(lane.give_up(error), deliver)

    def flush(self) -> list[Any]:
        """Close the open batches; return the tokens of all records without an outcome."""
        tokens: list[Any] = []
        for partition in self.busy:
            lane = self.lanes[partition]
            lane.flush()
            for batch in lane.batches():
                tokens += batch.tokens
        return tokens

    def _not_delivered(self) -> SteleClientError:
        if self.last_error is not None:
            return self.last_error
        return RequestTimedOutError(
            f"the record was not delivered within {self.options.delivery_timeout_s:g} s; send it again"
        )

    # ── failures that flush() reports ──

    def count_sent(self) -> int:
        index = self._sent_count
        self._sent_count += 1
        return index

    def note_failure(self, index: int, error: SteleClientError) -> None:
        self._failure_count += 1
        if len(self._failures) < REPORTED_FAILURES_MAX:
            self._failures[index] = error

    def raise_failures(self) -> None:
        """Raise ProduceError for failures since the last call.

        Indexes count calls of ``send``.
        """
        failures, total = self._failures, self._sent_count
        self._failures, self._failure_count, self._sent_count = {}, 0, 0
        if failures:
            raise ProduceError(failures, total=total)
