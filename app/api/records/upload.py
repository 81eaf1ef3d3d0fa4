"""Append the records of one request, and encode their results.

Records are gathered in *chunks* of at most one batch per partition, appended together.
Until its results are sent, a chunk keeps only a partition and a timestamp per record,
so a client may send all its records before it reads a result.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import msgspec
from stele.wire.lone_record import build_lone
from stele.wire.messages import Durability
from stele.wire.record_batch import HEADER_BYTES, NO_PRODUCER_ID, Row, build_rows

from ...broker.broker import Broker
from ...broker.producing.produce import Acks, PendingProduce
from ...broker.producing.timestamps import timestamp_bounds
from ...broker.topics import Topic
from ...errors import (
    BatchTooLarge,
    BrokenContract,
    InvalidRequest,
    InvalidTimestamp,
    MissingKey,
    RecordError,
    SteleError,
    UnknownPartition,
)
from ..errors import problem_of, refused_records
from .json_records import NewRecord, decode_lines

# Records per chunk: its batches are built and appended in one turn of the loop, which takes about 70 µs.
CHUNK_RECORDS_MAX = 256
_RECORD_OVERHEAD_BYTES = 32
# A larger lone record is built into a batch by a thread.
_BUILT_AHEAD_BYTES = 1024 * 1024
_ERROR = -1
# Results encoded in one turn of the loop.
RESULTS_PER_TURN = 128
# A refused record is kept with its error, which takes about a hundred times as many bytes as a stored one.
ERROR_WEIGHT = 100
# Errors in one list of an answer.
ERRORS_SHOWN_MAX = 1000
_ERROR_FIELDS = ("type", "detail", "kafka_code", "retriable")


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The idempotent producer of a request, from its three headers."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


_NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, -1, -1)


@dataclass(slots=True)
class Chunk:
    """Records appended together; ``partitions`` has -1 for a record that was refused."""

    first_index: int
    partitions: array[int] = field(default_factory=lambda: array("i"))
    timestamps: array[int] = field(default_factory=lambda: array("q"))
    appended: dict[int, PendingProduce] = field(default_factory=dict[int, PendingProduce])
    refused: dict[int, SteleError] = field(default_factory=dict[int, SteleError])
    errors: dict[int, SteleError] = field(default_factory=dict[int, SteleError])

    def __len__(self) -> int:
        return len(self.partitions)

    async def settle(self, timeout_ms: int) -> None:
        """Wait until every batch has the requested durability, or an error."""
        for partition, pending in list(self.appended.items()):
            try:
                await pending.wait(timeout_ms)
            except SteleError as error:
                del self.appended[partition]
                if isinstance(error, BrokenContract):
                    error = error.renumbered(
                        [
                            self.first_index + i
                            for i, number in enumerate(self.partitions)
                            if number == partition
                        ]
                    )
                self.refused[partition] = error

    def error_at(self, index: int) -> SteleError | None:
        """Return the error of the record at ``index`` of this chunk.

        None if it was stored.
        """
        partition = self.partitions[index]
        if partition == _ERROR:
            return self.errors[index]
        error = self.refused.get(partition)
        return error.at(self.first_index + index) if isinstance(error, BrokenContract) else error

    @property
    def weight(self) -> int:
        """What the results of this chunk keep, in stored records."""
        return len(self.partitions) + ERROR_WEIGHT * len(self.errors)

    @property
    def error_count(self) -> int:
        if not self.refused:
            return len(self.errors)
        return sum(1 for index in range(len(self)) if self.error_at(index))

    def durability(self) -> Durability | None:
        """Return the lowest durability of the batches, None if no record was stored."""
        return min((pending.result().durability for pending in self.appended.values()), default=None)


async def settle_all(chunks: list[Chunk], timeout_ms: int) -> None:
    """Settle chunks, the last one first.

    The sync of a chunk covers those before it.
    """
    for chunk in reversed(chunks):
        await chunk.settle(timeout_ms)


def record_bytes_max(record: NewRecord) -> int:
    """Return an upper bound of the bytes of ``record`` in a batch."""
    size = _RECORD_OVERHEAD_BYTES + len(record.value or b"") + len(record.key or b"")
    for name, content in record.headers:
        size += 10 + len(name) * 4 + len(content or b"")
    return size


class Upload:
    """Gathers the records of one request and appends them chunk by chunk."""

    def __init__(
        self,
        broker: Broker,
        topic: Topic,
        *,
        acks: Acks,
        partition: int | None = None,
        identity: ProducerIdentity | None = None,
        expected_end: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Begin an upload.

        With ``expected_end`` it is a conditional append: see ``Broker.produce``.

        ``check`` raises AuthorizationError if the client may no longer write to the topic.
        """
        self._broker = broker
        self.topic = topic
        self._acks = acks
        self._partition = partition
        self._identity = identity
        self._expected_end = expected_end
        # All records are one batch, which is stored as a whole or not at all.
        self.is_whole = identity is not None or expected_end is not None
        self._check = check
        self._limit = topic.config.max_message_bytes
        self._rows: dict[int, list[Row]] = {}
        self._sizes: dict[int, int] = {}
        # Batches of one large record that are built already.
        self._built: dict[int, bytearray] = {}
        self._chunk = Chunk(0)
        self.chunks: list[Chunk] = []
        self.records = 0
        # Of all chunks, also those that were taken.
        self.weight = 0

    def partition_of(self, record: NewRecord) -> int:
        """Return the partition of ``record``.

        Raises ``UnknownPartition``, ``InvalidRequest``.
        """
        partition = record.partition if record.partition is not None else self._partition
        if partition is None:
            return self._broker.choose_partition(self.topic, record.key)
        if self._partition is not None and partition != self._partition:
            raise InvalidRequest(
                f"the record names partition {partition}, but the request names {self._partition}"
            )
        if not 0 <= partition < self.topic.partitions:
            raise UnknownPartition(self.topic.name, partition, partitions=self.topic.partitions)
        return partition

    def size_of(self, record: NewRecord) -> int:
        """Return an upper bound of the bytes of ``record`` in a batch.

        Raises ``BatchTooLarge``.
        """
        size = record_bytes_max(record)
        if size + HEADER_BYTES > self._limit:
            raise BatchTooLarge(size, limit=self._limit, what="record")
        return size

    def check(self, record: NewRecord, index: int) -> None:
        """Check key and timestamp of the record at ``index`` of the request.

        A record that the topic refuses would have its whole batch refused.

        Raises:
            MissingKey: it has no key, and the topic is compacted.
            InvalidTimestamp: the topic does not accept the timestamp.
        """
        if record.key is None and self.topic.config.is_compacted:
            raise MissingKey(self.topic.name, [index])
        if record.timestamp_ms is None:
            return
        bounds = timestamp_bounds(self.topic.config, self._broker.now_ms())
        if bounds is not None and not bounds.accepts(record.timestamp_ms):
            raise InvalidTimestamp([RecordError(index, bounds.describe(record.timestamp_ms))])

    async def room(self) -> None:
        """Wait for room in the produce queue, if this topic's batches may go through it."""
        if self._broker.is_produce_queue_full and self._broker.may_queue(self.topic):
            await self._broker.produce_room()

    def add(self, record: NewRecord) -> None:
        """Add a record; an error becomes its result."""
        try:
            partition, size = self.partition_of(record), self.size_of(record)
            self.check(record, self.records)
        except SteleError as error:
            self.add_error(error)
            return
        timestamp_ms = self._broker.now_ms() if record.timestamp_ms is None else record.timestamp_ms
        self._add_row(partition, (timestamp_ms, record.key, record.value, record.headers), size)

    def add_lines(self, block: bytes) -> bool:
        """Add whole NDJSON lines; False if they must be added one by one, see ``decode_lines``."""
        now_ms = self._broker.now_ms()
        rows = decode_lines(block, now_ms)
        size = len(block) + _RECORD_OVERHEAD_BYTES * len(rows or ())
        if rows is None or size + HEADER_BYTES > self._limit:
            return False
        if self.topic.config.is_compacted and any(key is None for _, key, _, _ in rows):
            return False
        partition = 0 if self._partition is None and self.topic.partitions == 1 else self._partition
        if partition is None:
            choose, topic = self._broker.choose_partition, self.topic
            for row in rows:
                _, key, value, _ = row
                size = _RECORD_OVERHEAD_BYTES + (len(value) if value else 0) + (len(key) if key else 0)
                self._add_row(choose(topic, key), row, size)
            return True
        if not self._make_room(partition, size, len(rows)):
            return False
        self._built.pop(partition, None)
        self._sizes[partition] = self._sizes.get(partition, HEADER_BYTES) + size
        self._rows.setdefault(partition, []).extend(rows)
        self._chunk.partitions.extend(repeat(partition, len(rows)))
        self._chunk.timestamps.extend(repeat(now_ms, len(rows)))
        self.records += len(rows)
        self.weight += len(rows)
        return True

    def _make_room(self, partition: int, size: int, count: int) -> bool:
        """Begin a new chunk if ``count`` records more do not fit; False if that is not allowed."""
        if self._sizes.get(partition, HEADER_BYTES) + size > self._limit:
            if self.is_whole:
                return False
            self.append()
        elif not self.is_whole and len(self._chunk) + count > CHUNK_RECORDS_MAX:
            self.append()
        return True

    def _add_row(self, partition: int, row: Row, size: int) -> None:
        if not self._make_room(partition, size, 1):
            self.add_error(BatchTooLarge(size, limit=self._limit, what="batch that is stored as a whole"))
            return
        chunk = self._chunk
        self._built.pop(partition, None)
        self._sizes[partition] = self._sizes.get(partition, HEADER_BYTES) + size
        self._rows.setdefault(partition, []).append(row)
        chunk.partitions.append(partition)
        chunk.timestamps.append(row[0])
        self.records += 1
        self.weight += 1

    def add_error(self, error: SteleError) -> None:
        """Add ``error`` as the result of the next record."""
        chunk = self._chunk
        # Without the frames it was raised in: they hold the record.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        chunk.errors[len(chunk)] = error
        chunk.partitions.append(_ERROR)
        chunk.timestamps.append(_ERROR)
        self.records += 1
        self.weight += 1 + ERROR_WEIGHT

    def append(self) -> None:
        """Append the gathered records; the chunk keeps the errors."""
        chunk = self._chunk
        if not len(chunk):
            return
        for partition, rows in self._rows.items():
            try:
                if self._check is not None:
                    self._check()
                batch = self._built.pop(partition, None) or self._build(rows)
                chunk.appended[partition] = self._broker.produce(
                    self.topic.name,
                    partition,
                    batch,
                    acks=self._acks,
                    sync_later=True,
                    expected_end=self._expected_end,
                )
            except SteleError as error:
                chunk.refused[partition] = error
        self._rows, self._built = {}, {}
        self._sizes = {}
        self.chunks.append(chunk)
        self._chunk = Chunk(self.records)

    async def add_in_turns(self, record: NewRecord) -> None:
        """Add a record as ``add`` does; a large one gets a batch of its own, which a thread builds."""
        is_large = record_bytes_max(record) > _BUILT_AHEAD_BYTES
        if is_large and not self.is_whole:
            self.append()
        self.add(record)
        if is_large:
            await self._build_ahead()
            if not self.is_whole:
                self.append()

    async def _build_ahead(self) -> None:
        """Build batches of one record: that takes a millisecond per MiB, and to append them another."""
        for partition, rows in self._rows.items():
            if len(rows) == 1 and partition not in self._built:
                self._built[partition] = await asyncio.to_thread(self._build, rows)

    def _build(self, rows: list[Row]) -> bytearray:
        identity = self._identity or _NO_IDENTITY
        producer_id, epoch, sequence = identity.producer_id, identity.producer_epoch, identity.base_sequence
        if len(rows) == 1 and len(rows[0][2] or b"") > _BUILT_AHEAD_BYTES:
            return build_lone(rows[0], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return build_rows(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    @property
    def promised_durability(self) -> Durability:
        """The lowest durability that the results of this upload will have."""
        if self._acks is Acks.NONE or self.topic.config.storage == "memory":
            return Durability.NONE
        return Durability.SYNCED if self._acks is Acks.ALL else Durability.APPENDED

    @property
    def batch_bytes_max(self) -> int:
        """The most bytes of a batch that the topic accepts."""
        return self._limit

    @property
    def error_count(self) -> int:
        """The number of records gathered since the last ``append`` that were refused."""
        return len(self._chunk.errors)

    def refusal(self) -> dict[str, Any]:
        """Return the problem of a request that is stored as a whole, some records of which were refused."""
        return refused_records("no record was stored; see errors", errors_of([self._chunk])).problem

    def take_chunks(self) -> list[Chunk]:
        """Return the chunks appended since the last call, in order."""
        chunks, self.chunks = self.chunks, []
        return chunks


def results_of(chunk: Chunk, separator: bytes) -> Iterator[bytes]:
    """Yield the results of a settled chunk in order, as JSON texts.

    Each text is followed by ``separator``.

    Each item has as many results as are encoded in one turn of the loop.
    """
    receipts = {partition: pending.result() for partition, pending in chunk.appended.items()}
    next_offsets = {partition: receipt.base_offset for partition, receipt in receipts.items()}
    stamps = {p: r.log_append_time_ms for p, r in receipts.items() if r.log_append_time_ms >= 0}
    heads = {partition: f'{{"partition":{partition},"offset":' for partition in receipts}
    end = separator.decode()
    for start in range(0, len(chunk), RESULTS_PER_TURN):
        partitions = chunk.partitions[start : start + RESULTS_PER_TURN]
        timestamps = chunk.timestamps[start : start + RESULTS_PER_TURN]
        first, first_ms = partitions[0], timestamps[0]
        count = len(partitions)
        if (
            first in next_offsets
            and partitions.count(first) == count
            and (stamps or timestamps.count(first_ms) == count)
        ):
            # The usual case: one partition and one timestamp, so that only the offset differs.
            offset = next_offsets[first]
            next_offsets[first] = offset + count
            tail = f',"timestamp":{stamps.get(first, first_ms)}}}{end}'
            between = tail + heads[first]
            yield (heads[first] + between.join(map(str, range(offset, offset + count))) + tail).encode()
            continue
        texts: list[str] = []
        for index, (partition, timestamp_ms) in enumerate(zip(partitions, timestamps, strict=True), start):
            offset = next_offsets.get(partition)
            if offset is None:
                texts.append(_error_result(chunk, index) + end)
                continue
            next_offsets[partition] = offset + 1
            texts.append(
                f'{heads[partition]}{offset},"timestamp":{stamps.get(partition, timestamp_ms)}}}{end}'
            )
        yield "".join(texts).encode()


def _error_result(chunk: Chunk, index: int) -> str:
    error = chunk.error_at(index)
    assert error is not None
    return msgspec.json.encode({"index": chunk.first_index + index, "error": problem_of(error)}).decode()


def errors_of(chunks: list[Chunk]) -> list[dict[str, Any]]:
    """Return ``errors[]`` of an answer: index and error of the first records that were refused."""
    errors: list[dict[str, Any]] = []
    for chunk in chunks:
        for index in range(len(chunk)):
            if len(errors) == ERRORS_SHOWN_MAX:
                return errors
            error = chunk.error_at(index)
            if error is not None:
                document = problem_of(error)
                number = chunk.first_index + index
                # Of the records of a batch that one of them has broken, that one has a place.
                names = _ERROR_FIELDS + (("pointer",) if document.get("index") == number else ())
                errors.append({"index": number} | {name: document[name] for name in names})
    return errors
