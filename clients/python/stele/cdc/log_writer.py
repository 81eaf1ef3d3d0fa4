"""Records of a connector → topics: each once, in order within its partition, whatever was killed in between.

Three things make it so (ADR-0016). A named producer, whose version grows with each run
of the connector, fences the runs before it. Its sequences make a repeated batch
harmless. And every record carries its position in the order of the slot, so that
the last record of this producer in a partition tells what of PostgreSQL's repetition
is stored there already.
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

# What is gathered before it is sent, if PostgreSQL has that much ready at once.
FLUSH_BYTES = 4 * 1024 * 1024
# Lengths, deltas and attributes of a record with three headers, with room to spare.
_ROW_OVERHEAD_BYTES = 64
# A line of NDJSON may have 2 MiB, and a value in base64 takes a third more.
_HTTP_RECORD_BYTES_MAX = 1024 * 1024
_FETCH_BYTES = 1024 * 1024
_KEYS_REMEMBERED = 65_536


class ForeignTopicError(SteleClientError):
    """A topic has records that this connector has not written."""


@dataclass(slots=True)
class _Partition:
    next_sequence: int = 0
    rows: list[Row] = field(default_factory=list[Row])
    size: int = 0
    # What is stored up to here was stored by a run before this one.
    stored: Position | None = None
    is_known: bool = False


@dataclass(slots=True)
class _Topic:
    partitions: list[_Partition]
    record_bytes_max: int
    chunk_bytes: int
    keys: dict[bytes, int] = field(default_factory=dict[bytes, int])


class LogWriter:
    """What one run writes, with ``acks=all``."""

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
        """Begin version ``version`` of producer ``name``: runs with an older one can not write any more.

        ``partitions``, ``configs``: of topics that are not there yet.

        Raises:
            SteleClientError: the broker is away, or a newer version has begun.
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
        """Make ``topic`` if it is not there, with a shape of its own."""
        if topic not in self._topics:
            self._topics[topic] = self._open(topic, partitions or self._wanted_partitions, configs)

    def add(
        self, topic: str, event: Event, headers: Headers, *, timestamp_ms: int, position: Position | None
    ) -> None:
        """Take one record, or one for each partition if it has no key; not again what is stored at ``position``.

        Raises:
            RecordTooLargeError: the topic does not take a record of this size.
            SteleClientError: records could not be stored.
        """
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = self._open(topic, self._wanted_partitions, None)
        if event.key is None:
            for number in range(len(found.partitions)):
                self._add(topic, found, number, event, headers, timestamp_ms, position)
            return
        number = found.keys.get(event.key)
        if number is None:
            if len(found.keys) >= _KEYS_REMEMBERED:
                found.keys.clear()
            number = partition_for_key(event.key, len(found.partitions), hash_name="fnv1a")
            found.keys[event.key] = number
        self._add(topic, found, number, event, headers, timestamp_ms, position)

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
            # What is behind a copy is told by the copy's own LSN; positions before it may be of a longer history.
            partition.stored = None
        elif partition.stored is not None and position <= partition.stored:
            self.repeated += 1
            return
        size = _ROW_OVERHEAD_BYTES + len(event.key or b"") + len(event.value or b"")
        for header, content in headers:
            size += len(header) + len(content or b"")
        if size > topic.record_bytes_max:
            raise RecordTooLargeError(
                f"a row for topic {name} makes a record of {size} bytes, and the topic takes {topic.record_bytes_max}; "
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
        """Raises ForeignTopicError if somebody else has written to ``topic``: two histories would be one."""
        if topic not in {found.topic for found in self._client.topics()}:
            return
        for partition in range(self._client.partition_count(topic)):
            end = self._client.list_offset(topic, partition) or 0
            if end and self._batch_of(topic, partition, end - 1, is_own=False) is not None:
                raise ForeignTopicError(
                    f"topic {topic} has records of somebody else: of another database, another --slot, or another "
                    "program; choose another --prefix"
                )

    def flush(self) -> None:
        """Returns when every record is synced. Raises SteleClientError if one is not."""
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
        found = self._client.ensure_topic(name, partitions=partitions, configs=wanted)
        # What a run before this one has stored may not be synced, and is about to be taken for stored.
        self._client.flush(name)
        limit = int(found.configs.get("max.message.bytes", CHUNK_BYTES + HEADER_ROOM_BYTES))
        limit = min(limit - HEADER_ROOM_BYTES, self._record_bytes_max)
        return _Topic(
            partitions=[_Partition() for _ in range(found.partitions)],
            record_bytes_max=max(1, limit),
            chunk_bytes=max(1, min(CHUNK_BYTES, limit)),
        )

    def _last_position(self, topic: str, partition: int) -> Position | None:
        """Of the last record that any run of this connector has stored in a partition."""
        state = self._client.call(GetProducerState(topic=topic, partition=partition, producer_id=self._id))
        offset = state.last_offset
        if offset < 0:
            # The broker has forgotten the producer, or nothing was written: the last record tells, if it is ours.
            offset = (self._client.list_offset(topic, partition) or 0) - 1
        found = None if offset < 0 else self._batch_of(topic, partition, offset, is_own=True)
        if found is None:
            return None
        batches, header = found
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
        """The batch that ends with ``offset``, if this producer has written it, or if somebody else has.

        None as well if retention has taken it: then it was confirmed long ago.
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
