"""Positions, buffer and errors of a consumer, without I/O.

A partition has two positions: ``fetch_offset`` is the next offset to fetch, and
``position`` the next offset that the application gets. The buffer holds the records
between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypedDict, TypeVar

from ..calls import At, Isolation, parse_isolation
from ..errors import (
    DeserializationError,
    OffsetOutOfRangeError,
    SteleClientError,
    UnsupportedOperationError,
)
from ..operations.fetch import FETCH_BYTES_MAX, PARTITION_BYTES_MAX, Fetch, FetchOutcome
from ..records import FetchedRecords, Record
from ..serializers import Deserializer, headed
from ..transport.base import retry_pause_s
from ..wire.messages import FetchPartition

V = TypeVar("V")

Start = Literal["earliest", "latest"] | int | datetime | Mapping[int, int]
OutOfRange = Literal["error", "earliest", "latest"]


class ConsumerSettings(TypedDict, total=False):
    """Keyword arguments of a consumer's constructor; see ``ConsumerOptions``."""

    partitions: int | Sequence[int] | None
    start: Start
    follow: bool
    on_out_of_range: OutOfRange
    wait_ms: int
    max_bytes: int
    isolation: Isolation
    outage_timeout_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Validated settings of a consumer.

    - ``partitions``: one, several, or None for all that the topic has at the start.
    - ``start``: ``"earliest"``, ``"latest"``, an offset, a time (the first record at or
      after it), or an offset per partition. Used once; after that the consumer's own
      position counts.
    - ``follow``: False ends the iteration at the log end of the moment of the start.
    - ``on_out_of_range``: raise (``"error"``), or continue at ``"earliest"`` or
      ``"latest"``, if retention has deleted the record at the position.
    - ``wait_ms``: the longest wait of a fetch for data.
    - ``max_bytes``: the most bytes per partition and fetch.
    - ``isolation``: ``"read_uncommitted"`` also returns records of open and aborted
      transactions.
    - ``outage_timeout_s``: how long to retry while the broker is down before the error
      is raised; None retries without end. Iterating again after the error is safe.

    Raises:
        ValueError: a setting has an invalid value.
    """

    partitions: int | Sequence[int] | None = None
    start: Start = "earliest"
    follow: bool = True
    on_out_of_range: OutOfRange = "error"
    wait_ms: int = 5000
    max_bytes: int = PARTITION_BYTES_MAX
    isolation: Isolation = "read_committed"
    outage_timeout_s: float | None = 60.0

    def __post_init__(self) -> None:
        if self.on_out_of_range not in ("error", "earliest", "latest"):
            raise ValueError(
                f"on_out_of_range is {self.on_out_of_range!r}; it must be error, earliest or latest"
            )
        if isinstance(self.start, str) and self.start not in ("earliest", "latest"):
            raise ValueError(f"start is {self.start!r}; it must be earliest, latest, an offset or a time")
        if isinstance(self.start, int) and self.start < 0:
            raise ValueError(f"start is offset {self.start}; offsets begin at 0")
        if isinstance(self.start, datetime) and self.start.tzinfo is None:
            raise ValueError(f"start {self.start!r} has no time zone; write e.g. datetime(..., tzinfo=UTC)")
        parse_isolation(self.isolation)
        if self.wait_ms < 0 or not 0 < self.max_bytes <= FETCH_BYTES_MAX:
            raise ValueError(f"wait_ms must not be negative, max_bytes from 1 to {FETCH_BYTES_MAX}")

    def start_of(self, partition: int) -> int | At:
        """Return the start of a partition: an offset, or a name or time to look up."""
        if isinstance(self.start, Mapping):
            return self.start.get(partition, "earliest")
        return self.start


@dataclass(slots=True)
class _Partition:
    fetch_offset: int
    position: int
    end: int | None
    high_watermark: int = -1
    # Records in the buffer.
    buffered: int = 0
    # Orders the partitions of a fetch: one that returned records goes to the end, so that none starves.
    turn: int = 0

    @property
    def is_finished(self) -> bool:
        return self.end is not None and self.fetch_offset >= self.end


class ConsumerCore(Generic[V]):
    """Positions, buffer and errors of one consumer.

    The caller does the I/O and serialises access.
    """

    def __init__(
        self, topic: str, deserializer: Deserializer[V], options: ConsumerOptions, *, fetches_many: bool
    ) -> None:
        self.topic = topic
        self.options = options
        self._deserialize = headed(deserializer)
        self._fetches_many = fetches_many
        # None before the start, and with a broker that is older than fetches by id.
        self.topic_id: str | None = None
        self._partitions: dict[int, _Partition] = {}
        self._turns = 0
        self._buffer: deque[Record[bytes]] = deque()
        self._errors: deque[SteleClientError] = deque()
        self._failures = 0
        self._outage_since_s: float | None = None

    # ── positions ──

    def assign(self, partition: int, offset: int, end: int | None) -> None:
        self._partitions[partition] = _Partition(offset, offset, end)

    @property
    def partitions(self) -> list[int]:
        return list(self._partitions)

    def position(self, partition: int) -> int:
        return self._partitions[partition].position

    def lag(self, partition: int) -> int | None:
        state = self._partitions[partition]
        return None if state.high_watermark < 0 else max(state.high_watermark - state.position, 0)

    def seek(self, partition: int, offset: int) -> None:
        """Move the position, and drop what was or is being fetched of the partition."""
        state = self._partitions[partition]
        state.fetch_offset = state.position = offset
        state.buffered = 0
        self._buffer = deque(record for record in self._buffer if record.partition != partition)

    # ── fetches ──

    def groups(self) -> list[tuple[int, ...]]:
        """Return the unfinished partitions, grouped by those that one fetch can read."""
        partitions = [partition for partition, state in self._partitions.items() if not state.is_finished]
        if self._fetches_many:
            partitions.sort(key=lambda partition: self._partitions[partition].turn)
            return [tuple(partitions)] if partitions else []
        return [(partition,) for partition in partitions]

    def fetch(self, group: Sequence[int], *, wait_ms: int) -> Fetch:
        return Fetch(
            partitions=[
                FetchPartition(
                    topic=self.topic,
                    partition=partition,
                    offset=self._partitions[partition].fetch_offset,
                    max_bytes=self.options.max_bytes,
                )
                for partition in group
            ],
            wait_ms=wait_ms,
            isolation=parse_isolation(self.options.isolation),
            topic_id=self.topic_id,
        )

    def accept(self, fetch: Fetch, outcomes: Sequence[FetchOutcome]) -> list[int]:
        """Buffer the result of a fetch.

        Return the partitions whose position must be reset.

        Errors are kept until the application has taken the buffered records
        (``take_error``).
        """
        to_reset: list[int] = []
        for requested, outcome in zip(fetch.partitions, outcomes, strict=True):
            state = self._partitions.get(requested.partition)
            if state is None or state.fetch_offset != requested.offset:
                # ``seek`` was called while the fetch was under way.
                continue
            if isinstance(outcome, FetchedRecords):
                self._take(state, outcome)
            elif isinstance(outcome, OffsetOutOfRangeError) and self.options.on_out_of_range != "error":
                to_reset.append(requested.partition)
            else:
                self._errors.append(outcome)
        if not self._errors:
            self._failures, self._outage_since_s = 0, None
        return to_reset

    def _take(self, state: _Partition, fetched: FetchedRecords) -> None:
        records, next_offset = fetched.records, fetched.next_offset
        if records:
            self._turns += 1
            state.turn = self._turns
        if state.end is not None and next_offset > state.end:
            while records and records[-1].offset >= state.end:
                records.pop()
            next_offset = state.end
        state.high_watermark = fetched.high_watermark
        state.fetch_offset = next_offset
        self._buffer.extend(records)
        state.buffered += len(records)
        if not state.buffered:
            state.position = next_offset

    def pause_s_after(self, error: SteleClientError, now_s: float) -> float:
        """Return how long to pause after a retriable failure.

        Raises:
            SteleClientError: ``error``, if it is not retriable or the outage has lasted
                for ``outage_timeout_s``.
        """
        if isinstance(error, UnsupportedOperationError) and self.topic_id is not None:
            # Without the id, it fetches from any topic of this name.
            self.topic_id = None
            return 0.0
        if not error.retriable:
            raise error
        if self._outage_since_s is None:
            self._outage_since_s = now_s
        limit_s = self.options.outage_timeout_s
        if limit_s is not None and now_s - self._outage_since_s >= limit_s:
            self._outage_since_s = None
            raise error
        self._failures += 1
        return retry_pause_s(self._failures)

    # ── records for the application ──

    @property
    def has_records(self) -> bool:
        return bool(self._buffer)

    @property
    def is_finished(self) -> bool:
        return (
            not self._buffer
            and not self._errors
            and bool(self._partitions)
            and all(state.is_finished for state in self._partitions.values())
        )

    def next_record(self) -> Record[V]:
        """Take the next record from the buffer, which must not be empty.

        Raises:
            DeserializationError: the deserializer rejected the value; the position
                is past the record, so the next call returns the one after it.
        """
        record = self._take_first()
        return self._deserialized(record)

    def next_records(self, max_records: int) -> list[Record[V]]:
        """Take up to ``max_records`` records from the buffer.

        An empty list if it is empty.

        The list ends before a record whose value the deserializer rejects, and that
        record stays in the buffer: the next call raises its error.

        Raises:
            DeserializationError: the deserializer rejected the first record's value;
                the position is past that record.
        """
        records: list[Record[V]] = []
        while self._buffer and len(records) < max_records:
            if not records:
                records.append(self.next_record())
                continue
            try:
                record = self._deserialized(self._buffer[0])
            except DeserializationError:
                break
            self._take_first()
            records.append(record)
        return records

    def _take_first(self) -> Record[bytes]:
        """Remove the first record from the buffer and move the position past it."""
        record = self._buffer.popleft()
        state = self._partitions[record.partition]
        state.buffered -= 1
        # The offsets after the last record that was fetched may hold none.
        state.position = record.offset + 1 if state.buffered else state.fetch_offset
        return record

    def _deserialized(self, record: Record[bytes]) -> Record[V]:
        if record.value is None:
            value = None
        else:
            try:
                value = self._deserialize(record.value, record.headers)
            except Exception as error:  # a deserializer is the user's and may raise anything
                raise DeserializationError(
                    f"the value of {record.topic}-{record.partition} offset {record.offset} "
                    f"cannot be deserialized: {error}",
                    record,
                ) from error
        return Record(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.key,
            value,
            record.headers,
        )

    def take_error(self) -> SteleClientError | None:
        return self._errors.popleft() if self._errors else None
