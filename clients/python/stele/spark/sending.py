"""Writes the rows of one task in a transaction, or idempotently without rows already stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from types import TracebackType
from typing import Self

from ..errors import InvalidRequestError, UnknownTopicError
from ..operations.produce import BeginProducerVersion, GetProducerState, InitProducerId
from ..operations.raw_fetch import RawFetch
from ..operations.transactional import WrittenTransaction
from ..producing.chunks import CHUNK_BYTES, SEQUENCE_MODULUS, ChunkSender, OpenChunk, row_room
from ..wire import messages as m
from ..wire.compression import Compression
from ..wire.isolation_level import IsolationLevel
from ..wire.partitioner import partition_for_key
from ..wire.record_batch import (
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    check_batch,
    decode_records,
)
from .fetching import Broker, DataLossError
from .options import WriteOptions
from .rows import RecordHeaders, SinkRow
from .transactions import TaskResult, TaskTransaction, abort_transaction

_FETCH_BYTES = 1024 * 1024
# Of rows in batches that are not full, in all partitions of all topics of a task.
_BUFFERED_BYTES_MAX = 16 * 1024 * 1024
_KEYS_REMEMBERED = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Name and version of a producer; see ``BeginProducerVersion``."""

    name: str
    version: int


@dataclass(slots=True)
class _Topic:
    partitions: list[OpenChunk]
    chunk_bytes: int
    # Rows stored by earlier attempts, in any partition, that this one has not seen yet.
    stored: Counter[bytes]
    # Rows without key and partition go to one partition until its batch is full.
    next_partition: int
    partition_of: Callable[[bytes], int]


class TopicWriter:
    """Writes the rows of one task to any number of topics; use it in a ``with`` block.

    With a transaction, which begins with the first row, readers see nothing until the driver commits it;
    after an error it is aborted. Without an identity it uses a new producer: retries within the task are
    harmless, but another attempt of the task stores its rows again.
    """

    def __init__(
        self, options: WriteOptions, identity: Identity | TaskTransaction | None, *, task_partition: int
    ) -> None:
        self.written: int = 0
        self.repeated: int = 0
        self._options = options
        self._identity = identity
        self._task_partition = task_partition
        self._topics: dict[str, _Topic] = {}
        self._buffered_bytes = 0
        self._broker = Broker(options.connection)
        self._sender = ChunkSender(
            self._broker.client,
            patience_s=options.connection.broker_timeout_ms / 1000,
            acks=m.ACKS_ALL if options.acks == "all" else 1,
            compression=Compression[options.compression.upper()],
        )
        self._is_resumed = False
        self._transaction: WrittenTransaction | None = None
        try:
            if not isinstance(identity, TaskTransaction):
                self._begin(identity)
        except BaseException:
            # The caller has no object to close.
            self._broker.client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._transaction is not None:
            abort_transaction(lambda end: self._broker.client.call(end), self._transaction)
        self._broker.client.close()

    def _begin(self, identity: Identity | TaskTransaction | None) -> None:
        if isinstance(identity, TaskTransaction):
            begun = self._transaction = identity.begin(self._broker)
            self._sender.producer, self._sender.transactional_id = begun.producer, begun.transactional_id
            return
        if identity is None:
            self._sender.producer = self._broker.call(InitProducerId())
            return
        producer = self._broker.call(BeginProducerVersion(name=identity.name, version=identity.version))
        self._sender.producer = producer.producer_id, producer.producer_epoch
        # Also true if the response to this very request was lost; recalling then finds nothing.
        self._is_resumed = producer.is_resumed

    @property
    def result(self) -> TaskResult | None:
        """The transaction for the driver to commit; None without rows, or without a transaction."""
        if self._transaction is None:
            return None
        topics = tuple((name, len(topic.partitions)) for name, topic in self._topics.items())
        return TaskResult(transaction=self._transaction, topics=topics, rows=self.written)

    @property
    def strays(self) -> int:
        """The number of rows stored by an earlier attempt that did not come again."""
        return sum(topic.stored.total() for topic in self._topics.values())

    def add(self, row: SinkRow, *, match_timestamp: bool) -> None:
        """Add a row; ``match_timestamp`` if its timestamp is part of the row."""
        topic = self._topics.get(row.topic)
        if topic is None:
            topic = self._topics[row.topic] = self._open(row.topic, match_timestamp=match_timestamp)
        if topic.stored:
            mark = _mark(row.key, row.value, row.headers, row.timestamp_ms if match_timestamp else None)
            if topic.stored[mark] > 0:
                topic.stored[mark] -= 1
                if not topic.stored[mark]:
                    del topic.stored[mark]
                self.repeated += 1
                return
        number = self._choose(topic, row)
        partition = topic.partitions[number]
        size = _size(row)
        if partition.rows and partition.size + size > topic.chunk_bytes:
            self._close_chunk(row.topic, number)
            # The next rows without key and partition go to the next partition.
            topic.next_partition += row.partition is None and row.key is None
        partition.rows.append((row.timestamp_ms, row.key, row.value, row.headers))
        partition.size += size
        self._buffered_bytes += size
        self.written += 1
        if self._buffered_bytes > _BUFFERED_BYTES_MAX:
            self.flush()

    def _choose(self, topic: _Topic, row: SinkRow) -> int:
        partitions = len(topic.partitions)
        if row.partition is not None:
            if not 0 <= row.partition < partitions:
                raise UnknownTopicError(
                    f"a row asks for {row.topic}-{row.partition}, and {row.topic} has {partitions} partitions, "
                    "from 0 on; correct the column partition, or leave it null"
                )
            return row.partition
        if row.key is None:
            return topic.next_partition % partitions
        return topic.partition_of(row.key)

    def flush(self) -> None:
        """Wait until every row is acked.

        Raises:
            SteleClientError: rows are not stored; the task must be run again.
        """
        for name, topic in self._topics.items():
            for number, partition in enumerate(topic.partitions):
                if partition.rows:
                    self._close_chunk(name, number)
        self._sender.send()

    def _close_chunk(self, name: str, number: int) -> None:
        partition = self._topics[name].partitions[number]
        self._buffered_bytes -= partition.size
        self._sender.close(name, number, partition)
        if self._sender.is_full:
            self._sender.send()

    # ── rows of earlier attempts ──

    def _open(self, name: str, *, match_timestamp: bool) -> _Topic:
        client = self._broker.client
        partitions = self._broker.patiently(lambda: client.partition_count(name, auto_create=True))
        configs = self._broker.patiently(lambda: client.describe_topic(name)).configs
        if isinstance(self._identity, TaskTransaction):
            if configs.get("stele.storage") == "memory":
                raise InvalidRequestError(
                    f"topic {name!r} is in memory, so it cannot be in a transaction; write with transactional=false, or to a "
                    "topic on disk"
                )
            if self._transaction is None:
                self._begin(self._identity)
        topic = _Topic(
            partitions=[OpenChunk() for _ in range(partitions)],
            chunk_bytes=max(1, min(CHUNK_BYTES, row_room(configs))),
            stored=Counter(),
            next_partition=self._task_partition,
            partition_of=lru_cache(_KEYS_REMEMBERED)(partial(partition_for_key, partitions=partitions)),
        )
        if self._is_resumed:
            for number, partition in enumerate(topic.partitions):
                self._recall(name, number, partition, topic.stored, match_timestamp=match_timestamp)
        return topic

    def _recall(
        self,
        topic: str,
        number: int,
        partition: OpenChunk,
        stored: Counter[bytes],
        *,
        match_timestamp: bool,
    ) -> None:
        """Read back the rows of earlier attempts in a partition, and continue after them."""
        get = GetProducerState(topic=topic, partition=number, producer_id=self._sender.producer[0])
        state = self._broker.call(get)
        if state.producer_epoch != self._sender.producer[1] or state.last_sequence < 0:
            return
        wanted = state.last_sequence + 1
        window = wanted
        while True:
            start = max(0, state.last_offset + 1 - window)
            marks = list(self._own(topic, number, start, state.last_offset, match_timestamp=match_timestamp))
            if len(marks) >= wanted:
                break
            log_start = self._broker.log_start(topic, number)
            if start <= log_start:
                raise DataLossError(
                    f"{wanted} records of this task were stored in {topic}-{number} before it failed, and only "
                    f"{len(marks)} of them are still there: so it is unknown which rows are missing. Make "
                    "retention.ms or retention.bytes of the topic larger; continue with another txnAppId"
                )
            # Other producers have written in between.
            window *= 4
        stored.update(marks)
        partition.next_sequence = wanted % SEQUENCE_MODULUS

    def _own(
        self, topic: str, partition: int, start: int, last: int, *, match_timestamp: bool
    ) -> Iterator[bytes]:
        """Yield digests of this producer's records from ``start`` to ``last``, inclusive."""
        offset = max(start, self._broker.log_start(topic, partition))
        while offset <= last:
            fetch = RawFetch(
                topic=topic,
                partition=partition,
                offset=offset,
                max_bytes=_FETCH_BYTES,
                # They are in no transaction, but may lie after the beginning of one that is open.
                isolation=IsolationLevel.READ_UNCOMMITTED,
            )
            fetched = self._broker.call(fetch)
            position, size = 0, len(fetched.batches)
            if size < LOG_OVERHEAD_BYTES:
                return
            while position < size and offset <= last:
                header = check_batch(fetched.batches, position)
                position += header.size
                offset = header.next_offset
                if (header.producer_id, header.producer_epoch) == self._sender.producer:
                    yield from _marks(fetched.batches, header, match_timestamp=match_timestamp)


def _marks(batches: bytes, header: BatchHeader, *, match_timestamp: bool) -> Iterator[bytes]:
    for record in decode_records(batches, header):
        timestamp_ms = record.timestamp if match_timestamp else None
        yield _mark(record.key, record.value, record.headers, timestamp_ms)


def _mark(key: bytes | None, value: bytes | None, headers: RecordHeaders, timestamp_ms: int | None) -> bytes:
    """Return a digest of a record, 16 bytes."""
    digest = blake2b(digest_size=16)
    parts: list[bytes | None] = [key, value]
    for name, content in headers:
        parts += (name.encode(), content)
    for part in parts:
        digest.update(b"\xff" if part is None else len(part).to_bytes(5, "big") + part)
    digest.update(b"" if timestamp_ms is None else timestamp_ms.to_bytes(8, "big", signed=True))
    return digest.digest()


def _size(row: SinkRow) -> int:
    """Return an upper bound of the size of a row in a batch, in bytes."""
    size = 32 + len(row.key or b"") + len(row.value or b"")
    for name, content in row.headers:
        # A character of UTF-8 takes at most 4 bytes.
        size += 10 + 4 * len(name) + len(content or b"")
    return size
