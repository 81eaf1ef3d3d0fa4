"""Writes the records of a connector, exactly once and in order per partition.

It holds even if a process is killed at any time, for three reasons (ADR-0016). A named
producer, whose version grows with each run, fences earlier runs. Its sequences make a
repeated batch harmless. Every record has its position in the order of the slot, so the
last record of the producer in a partition tells which of the changes that PostgreSQL
sends again are already stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..client import Client
from ..errors import OffsetOutOfRangeError, RecordTooLargeError, SteleClientError
from ..operations.produce import BeginProducerVersion, GetProducerState
from ..operations.raw_fetch import RawFetch
from ..producing.chunks import CHUNK_BYTES, HEADER_ROOM_BYTES, SEQUENCE_MODULUS, ChunkSender, ProduceChunk
from ..wire import messages as m
from ..wire.compression import Compression
from ..wire.framing import FRAME_BYTES_MAX
from ..wire.partitioner import partition_for_key
from ..wire.record_batch import LOG_OVERHEAD_BYTES, BatchHeader, Row, check_batch, decode_records
from .events import EVENT_ID, Event, Headers, Position

# Bytes to buffer before they are sent, if PostgreSQL has that much ready.
FLUSH_BYTES = 4 * 1024 * 1024
# An upper bound for lengths, deltas and attributes of a record with three headers.
_ROW_OVERHEAD_BYTES = 64
# A line of NDJSON may have 2 MiB, and base64 adds a third.
_HTTP_RECORD_BYTES_MAX = 1024 * 1024
_FETCH_BYTES = 1024 * 1024
_KEYS_REMEMBERED = 65_536


class ForeignTopicError(SteleClientError):
    """A topic has records of another writer."""


@dataclass(slots=True)
class _Partition:
    next_sequence: int = 0
    rows: list[Row] = field(default_factory=list[Row])
    size: int = 0
    # Changes up to here were stored by earlier runs.
    stored: Position | None = None
    is_known: bool = False


@dataclass(slots=True)
class _Topic:
    partitions: list[_Partition]
    record_bytes_max: int
    chunk_bytes: int
    keys: dict[bytes, int] = field(default_factory=dict[bytes, int])


class LogWriter:
    """Writes the records of one run, with ``acks=all``."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        version: int,
        partitions: int,
        configs: Mapping[str, str],
        patience_s: float,
        pause: Callable[[float], None],
    ) -> None:
        """Begin ``version`` of producer ``name``, which fences runs of older versions.

        ``partitions`` and ``configs`` apply to created topics.

        Raises:
            SteleClientError: the broker is down, or a newer version has begun.
        """
        self.buffered_bytes = 0
        self.written = 0
        self.repeated = 0
        self._client = client
        self._wanted_partitions = partitions
        self._configs = configs
        self._topics: dict[str, _Topic] = {}
        self._sender = ChunkSender(client, patience_s=patience_s, pause=pause)
        self._record_bytes_max = (
            _HTTP_RECORD_BYTES_MAX if client.url.startswith("http") else FRAME_BYTES_MAX - HEADER_ROOM_BYTES
        )
        self._timeout_ms = int(client.config.timeout_s * 1000)
        producer = client.call(BeginProducerVersion(name=name, version=version))
        self._id, self._epoch = producer.producer_id, producer.producer_epoch

    def open(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create ``topic`` if it does not exist, with its own partitions and configuration."""
        if topic not in self._topics:
            self._topics[topic] = self._open(topic, partitions or self._wanted_partitions, configs)

    def add(
        self, topic: str, event: Event, headers: Headers, *, timestamp_ms: int, position: Position | None
    ) -> None:
        """Buffer a record, or one per partition if it has no key.

        A record at a ``position`` that is already stored is dropped.

        Raises:
            RecordTooLargeError: the topic does not accept a record of this size.
            SteleClientError: records could not be stored.
        """
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = self._open(topic, self._wanted_partitions, None)
        if event.key is None:
            for number in range(len(state.partitions)):
                self._add(topic, state, number, event, headers, timestamp_ms, position)
            return
        number = state.keys.get(event.key)
        if number is None:
            if len(state.keys) >= _KEYS_REMEMBERED:
                state.keys.clear()
            number = partition_for_key(event.key, len(state.partitions), hash_name="fnv1a")
            state.keys[event.key] = number
        self._add(topic, state, number, event, headers, timestamp_ms, position)

    def _add(
        self,
        name: str,
        topic: _Topic,
        number: int,
        event: Event,
        headers: Headers,
        timestamp_ms: int,
        position: Position | None,
    ) -> None:
        partition = topic.partitions[number]
        if not partition.is_known:
            partition.stored = self._last_position(name, number)
            partition.is_known = True
        if position is None:
            # The LSN of a copy decides about the changes after it; stored positions may be of an older history.
            partition.stored = None
        elif partition.stored is not None and position <= partition.stored:
            self.repeated += 1
            return
        size = _ROW_OVERHEAD_BYTES + len(event.key or b"") + len(event.value or b"")
        for header, content in headers:
            size += len(header) + len(content or b"")
        if size > topic.record_bytes_max:
            raise RecordTooLargeError(
                f"a row for topic {name} is a record of {size} bytes, and the topic accepts {topic.record_bytes_max}; "
                f"{self._advice(name, size)}"
            )
        if partition.rows and partition.size + size > topic.chunk_bytes:
            self._close_chunk(name, number, partition)
        partition.rows.append((timestamp_ms, event.key, event.value, headers))
        partition.size += size
        self.buffered_bytes += size
        self.written += 1

    def _advice(self, name: str, size: int) -> str:
        if size <= self._record_bytes_max:
            return f"stele topics alter {name} --config max.message.bytes={size + HEADER_ROOM_BYTES}"
        is_http = self._record_bytes_max == _HTTP_RECORD_BYTES_MAX
        return "no request can hold more" + ("; over stele:// one can, up to 15 MB" if is_http else "")

    def check_owner(self, topic: str) -> None:
        """Raise ForeignTopicError if another writer has written to ``topic``."""
        if topic not in {existing.topic for existing in self._client.topics()}:
            return
        for partition in range(self._client.partition_count(topic)):
            end = self._client.list_offset(topic, partition) or 0
            if end and self._batch_of(topic, partition, end - 1, is_own=False) is not None:
                raise ForeignTopicError(
                    f"topic {topic} has records of another database, another --slot or another program; "
                    "choose another --prefix"
                )

    def flush(self) -> None:
        """Send all buffered records and wait until they are synced.

        Raises:
            SteleClientError: a record could not be stored.
        """
        if not self.buffered_bytes:
            return
        for name, topic in self._topics.items():
            for number, partition in enumerate(topic.partitions):
                if partition.rows:
                    self._close_chunk(name, number, partition)
        self._sender.send()
        self.buffered_bytes = 0

    def _close_chunk(self, name: str, number: int, partition: _Partition) -> None:
        rows, sequence = partition.rows, partition.next_sequence
        partition.next_sequence = (sequence + len(rows)) % SEQUENCE_MODULUS
        partition.rows, partition.size = [], 0
        self._sender.put(
            ProduceChunk(
                topic=name,
                partition=number,
                rows=rows,
                acks=m.ACKS_ALL,
                timeout_ms=self._timeout_ms,
                compression=Compression.NONE,
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=sequence,
            )
        )

    def _open(self, name: str, partitions: int, configs: Mapping[str, str] | None) -> _Topic:
        wanted = self._configs if configs is None else configs
        topic = self._client.ensure_topic(name, partitions=partitions, configs=wanted)
        # Records of an earlier run may be unsynced, and are about to be treated as stored.
        self._client.flush(name)
        limit = int(topic.configs.get("max.message.bytes", CHUNK_BYTES + HEADER_ROOM_BYTES))
        limit = min(limit - HEADER_ROOM_BYTES, self._record_bytes_max)
        return _Topic(
            partitions=[_Partition() for _ in range(topic.partitions)],
            record_bytes_max=max(1, limit),
            chunk_bytes=max(1, min(CHUNK_BYTES, limit)),
        )

    def _last_position(self, topic: str, partition: int) -> Position | None:
        """Return the position of the connector's last record in a partition, of any run."""
        state = self._client.call(GetProducerState(topic=topic, partition=partition, producer_id=self._id))
        offset = state.last_offset
        if offset < 0:
            # The broker has forgotten the producer, or nothing was written. Look at the last record.
            offset = (self._client.list_offset(topic, partition) or 0) - 1
        batch = None if offset < 0 else self._batch_of(topic, partition, offset, is_own=True)
        if batch is None:
            return None
        batches, header = batch
        for name, content in decode_records(batches, header)[-1].headers:
            if name == EVENT_ID and content is not None:
                try:
                    return Position.parse(content.decode("ascii"))
                except ValueError:
                    return None
        return None

    def _batch_of(
        self, topic: str, partition: int, offset: int, *, is_own: bool
    ) -> tuple[bytes, BatchHeader] | None:
        """Return the batch at ``offset`` if it is this producer's, or another's.

        None also if retention has deleted it, in which case it was confirmed long ago.
        """
        fetch = RawFetch(topic=topic, partition=partition, offset=offset, max_bytes=_FETCH_BYTES)
        try:
            batches = self._client.call(fetch).batches
        except OffsetOutOfRangeError:
            return None
        if len(batches) < LOG_OVERHEAD_BYTES:
            return None
        header = check_batch(batches, 0)
        return (batches, header) if (header.producer_id == self._id) == is_own else None
