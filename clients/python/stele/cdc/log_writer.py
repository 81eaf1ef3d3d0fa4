"""Writes the records of a connector, exactly once and in order per partition.

It holds even if a process is killed at any time, for three reasons (ADR-0016). A named
producer, whose version grows with each run, fences earlier runs. Its sequences make a
repeated batch harmless. Every record has its position in the order of the slot, so the
last record of the producer in a partition tells which of the changes that PostgreSQL
sends again are already stored.

With transactions (ADR-0035) a transactional id fences instead, and each transaction of
the log has a record with the position up to which it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from ..client import Client
from ..errors import (
    InvalidRecordError,
    OffsetOutOfRangeError,
    ProducerStateError,
    RecordTooLargeError,
    SteleClientError,
)
from ..operations.produce import BeginProducerVersion, GetProducerState
from ..operations.raw_fetch import RawFetch
from ..producing.chunks import CHUNK_BYTES, HEADER_ROOM_BYTES, ChunkSender, OpenChunk, row_room
from ..wire.framing import FRAME_BYTES_MAX
from ..wire.isolation_level import IsolationLevel
from ..wire.partitioner import fnv1a_32_all, partition_for_key
from ..wire.record_batch import LOG_OVERHEAD_BYTES, BatchHeader, Row, check_batch, decode_records
from .errors import CdcError
from .log_transaction import POSITION_KEY, POSITIONS_CONFIGS, LogTransaction, committed_position
from .records.events import EVENT_ID, Event, Headers, Position

# Bytes to buffer before they are stored.
FLUSH_BYTES = 4 * 1024 * 1024
# Bytes to buffer before they are sent; as many may be sent and not stored yet.
_SEND_BYTES = FLUSH_BYTES // 2
# An upper bound for lengths, deltas and attributes of a record with three headers.
_ROW_OVERHEAD_BYTES = 64
# A line of NDJSON may have 2 MiB, and base64 adds a third.
_HTTP_RECORD_BYTES_MAX = 1024 * 1024
_FETCH_BYTES = 1024 * 1024
_KEYS_REMEMBERED = 65_536
# Of those that are hashed together.
_KEYS_MIN, _KEY_BYTES_MAX = 8, 64
# Of a transactional id that only fences.
_FENCING_TIMEOUT_S = 60


def _needs_key(topic: str) -> InvalidRecordError:
    return InvalidRecordError(f"topic {topic} is compacted, so its records need a key")


class ForeignTopicError(SteleClientError):
    """A topic has records of another writer."""


@dataclass(slots=True)
class _Partition(OpenChunk):
    # Changes up to here were stored by earlier runs.
    stored: Position | None = None
    is_known: bool = False


@dataclass(slots=True)
class _Topic:
    partitions: list[_Partition]
    record_bytes_max: int
    chunk_bytes: int
    partition_of: Callable[[bytes], int]
    needs_key: bool

    def partitions_of(self, keys: Sequence[bytes]) -> list[int]:
        if len(keys) < _KEYS_MIN or max(map(len, keys)) > _KEY_BYTES_MAX:
            return list(map(self.partition_of, keys))
        count = len(self.partitions)
        return [hashed % count for hashed in fnv1a_32_all(keys)]


class LogWriter:
    """Writes the records of one run, with ``acks=all``.

    Records with a position belong to a transaction of PostgreSQL, which ``end_transaction``
    ends. Records without one stand for themselves.
    """

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
        positions_topic: str,
        was_transactional: bool | None,
        transaction_timeout_s: float | None,
    ) -> None:
        """Begin ``version`` of producer ``name``, which fences runs of older versions.

        ``partitions`` and ``configs`` apply to created topics. ``was_transactional``: whether the
        run before wrote transactions; None if no run has. ``transaction_timeout_s`` None writes
        without transactions.

        Raises:
            SteleClientError: the broker is down, or a newer version has begun.
        """
        self.buffered_bytes: int = 0
        self.written: int = 0
        self.repeated: int = 0
        self._client = client
        self._wanted_partitions = partitions
        self._configs = configs
        self._topics: dict[str, _Topic] = {}
        self._sender = ChunkSender(client, patience_s=patience_s, pause=pause)
        self._record_bytes_max = (
            _HTTP_RECORD_BYTES_MAX if client.url.startswith("http") else FRAME_BYTES_MAX - HEADER_ROOM_BYTES
        )
        producer = client.call(BeginProducerVersion(name=name, version=version))
        self._named_id = producer.producer_id
        self.epoch: int = producer.producer_epoch
        self._sender.producer = producer.producer_id, producer.producer_epoch
        self._transaction: LogTransaction | None = None
        self._positions_topic = positions_topic
        self._is_whole = True
        # What of the last ended transaction is not stored yet: its commit LSN and time.
        self._ended: tuple[int, int] | None = None
        if transaction_timeout_s is not None or was_transactional:
            transaction = LogTransaction(
                client,
                transactional_id=name,
                timeout_s=transaction_timeout_s or _FENCING_TIMEOUT_S,
                patience_s=patience_s,
                pause=pause,
            )
            if transaction_timeout_s is not None:
                self._transaction = transaction
                self._sender.transactional_id = transaction.transactional_id
                self.open(positions_topic, partitions=1, configs=POSITIONS_CONFIGS)
        # All changes up to here were committed by earlier runs.
        self._committed = (
            None
            if self._transaction is None and was_transactional is None
            else committed_position(client, positions_topic)
        )

    @property
    def is_stored(self) -> bool:
        """Whether everything that was added is stored, and committed."""
        return (
            not self.buffered_bytes
            and not self._sender.is_sending
            and (self._transaction is None or not self._transaction.is_open)
        )

    @property
    def is_transactional(self) -> bool:
        return self._transaction is not None

    @property
    def committed_lsn(self) -> int:
        """The commit LSN up to which earlier runs have stored everything; 0 if that is unknown."""
        return 0 if self._committed is None else self._committed.commit_lsn

    @property
    def holds_ended(self) -> bool:
        """Whether an ended transaction of PostgreSQL is not stored."""
        return self._ended is not None

    def end_transaction(self, commit_lsn: int, commit_ms: int) -> bool:
        """End a transaction of PostgreSQL; return whether to ``flush`` now."""
        if self._is_whole:
            return False
        self._is_whole = True
        self._ended = commit_lsn, commit_ms
        return self._transaction is not None and self._transaction.is_due

    def close(self) -> None:
        """Abort an open transaction. Raises SteleClientError."""
        if self._transaction is not None:
            self._transaction.abort()

    def open(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create ``topic`` with its own partitions and configuration, if missing."""
        if topic not in self._topics:
            self._topics[topic] = self._open(topic, partitions or self._wanted_partitions, configs)

    def add(
        self,
        topic: str,
        event: Event,
        headers: Headers,
        *,
        timestamp_ms: int,
        position: Position | None,
    ) -> None:
        """Buffer a record, or one per partition if it has neither a key nor something instead.

        A record at a ``position`` that is already stored is dropped.

        Raises:
            RecordTooLargeError: the topic does not accept a record of this size.
            InvalidRecordError: the topic is compacted, and a record without a key is not for all partitions.
            SteleClientError: records could not be stored.
        """
        state = self._topic(topic)
        key, value = event.key, event.value
        size = _ROW_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for header, content in headers:
            size += len(header) + len(content or b"")
        row = timestamp_ms, key, value, headers
        chosen_by = event.instead_of_key if key is None else key
        if chosen_by is None:
            for number in range(len(state.partitions)):
                self._add(topic, state, number, row, size, position)
            return
        if key is None and state.needs_key:
            raise _needs_key(topic)
        self._add(topic, state, state.partition_of(chosen_by), row, size, position)

    def add_rows(
        self, topic: str, rows: Sequence[Row], *, first: Position, instead_of_key: bytes, header_bytes: int
    ) -> None:
        """Buffer records of inserts and updates, in the order of their positions; the last header of each is its own.

        Otherwise it does what ``add`` does for each. ``first`` is the position of the first record. Either all have keys
        or none. ``header_bytes`` are what the headers of a record have at most.

        Raises:
            As ``add``.
        """
        state = self._topic(topic)
        keys = [instead_of_key if row[1] is None else row[1] for row in rows]
        if state.needs_key and rows[0][1] is None:
            raise _needs_key(topic)
        overhead = _ROW_OVERHEAD_BYTES + header_bytes
        sizes = [overhead + len(key) + len(row[2] or b"") for key, row in zip(keys, rows, strict=True)]
        by_partition: dict[int, list[int]] = {}
        for index, number in enumerate(state.partitions_of(keys)):
            by_partition.setdefault(number, []).append(index)
        for number, indexes in by_partition.items():
            partition, stored = state.partitions[number], state.partitions[number].stored
            size = sum([sizes[index] for index in indexes])
            if (
                partition.size + size <= state.chunk_bytes
                and (stored is None or stored < first)
                and partition.is_known
            ):
                partition.rows += [rows[index] for index in indexes]
                partition.size += size
                self.buffered_bytes += size
                self.written += len(indexes)
                self._is_whole = False
                continue
            for index in indexes:
                position = Position.parse((rows[index][3][-1][1] or b"").decode())
                self._add(topic, state, number, rows[index], sizes[index], position)

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._open(name, self._wanted_partitions, None)
        return topic

    def _add(
        self, name: str, topic: _Topic, number: int, row: Row, size: int, position: Position | None
    ) -> None:
        partition = topic.partitions[number]
        if not partition.is_known:
            stored = (self._last_position(name, number), self._committed)
            partition.stored = max((position for position in stored if position is not None), default=None)
            partition.is_known = True
        if position is None:
            # The LSN of a copy decides about the changes after it; stored positions may be of an older history.
            partition.stored = None
        elif partition.stored is not None and position <= partition.stored:
            self.repeated += 1
            return
        if size > topic.record_bytes_max:
            raise RecordTooLargeError(
                f"a row for topic {name} is a record of {size} bytes, and the topic accepts {topic.record_bytes_max}; "
                f"{self._advice(name, size)}"
            )
        if position is not None:
            self._is_whole = False
        self._put(name, topic, number, row, size)
        self.written += 1

    def _put(self, name: str, topic: _Topic, number: int, row: Row, size: int) -> None:
        partition = topic.partitions[number]
        if partition.rows and partition.size + size > topic.chunk_bytes:
            self._close_chunk(name, number, partition)
        partition.rows.append(row)
        partition.size += size
        self.buffered_bytes += size

    def _advice(self, name: str, size: int) -> str:
        if size <= self._record_bytes_max:
            return f"stele topics alter {name} --config max.message.bytes={size + HEADER_ROOM_BYTES}"
        if self._record_bytes_max == _HTTP_RECORD_BYTES_MAX:
            return "no request can hold more; over stele:// one can, up to 15 MB"
        return (
            "no request can hold more; publish the table without its large column (ALTER PUBLICATION … SET TABLE, with a list "
            "of columns, since PostgreSQL 15), drop the slot, and run once with --snapshot again"
        )

    def existing_topics(self) -> set[str]:
        """Return the names of all topics. Raises SteleClientError."""
        return {existing.topic for existing in self._client.topics()}

    def check_owner(self, topic: str) -> None:
        """Raise ForeignTopicError if another writer wrote to an existing topic."""
        for partition in range(self._client.partition_count(topic)):
            end = self._client.list_offset(topic, partition) or 0
            if end and self._batch_of(topic, partition, end - 1, is_own=False) is not None:
                raise ForeignTopicError(
                    f"topic {topic} has records of another database, another --slot or another program; "
                    "choose another --prefix"
                )

    def stored_lsn(self, topics: Iterable[str]) -> int:
        """Return the largest commit LSN of what earlier runs stored in ``topics``.

        0 if they have stored nothing. Raises SteleClientError.
        """
        stored = [] if self._committed is None else [self._committed]
        for topic in topics:
            self.open(topic)
            for number in range(len(self._topics[topic].partitions)):
                position = self._last_position(topic, number)
                if position is not None:
                    stored.append(position)
        # A row of a copy was committed before the position of the copy.
        return max((lsn if change_lsn else lsn - 1 for lsn, change_lsn, _ in stored), default=0)

    def keys_of_rows(self, topic: str) -> Iterator[bytes]:
        """Yield the keys of the records of ``topic`` that are no tombstones.

        Those of an open transaction count, too. A key may come more than once.

        Raises:
            SteleClientError
        """
        self.flush()
        state = self._topic(topic)
        for number in range(len(state.partitions)):
            end = self._client.list_offset(topic, number, isolation="read_uncommitted") or 0
            offset = self._client.list_offset(topic, number, "earliest") or 0
            seen = set[bytes]()
            while offset < end:
                page = self._client.fetch(topic, number, offset, isolation="read_uncommitted")
                for record in page.records:
                    if record.value is None or record.key is None or record.key in seen:
                        continue
                    if len(seen) >= _KEYS_REMEMBERED:
                        seen.clear()
                    seen.add(record.key)
                    yield record.key
                if page.next_offset <= offset:
                    break
                offset = page.next_offset

    def flush(self) -> None:
        """Send all buffered records and wait until they are synced.

        Within a transaction of PostgreSQL, a transaction of the log stays open until it ends.

        Raises:
            SteleClientError: a record could not be stored.
            TransactionTimedOut: the broker has aborted the transaction, because it took too long.
        """
        transaction = self._transaction
        if self.is_stored:
            self._ended = None
            return
        if transaction is not None and self._is_whole and self._ended is not None:
            self._put_position(*self._ended)
        self._close_chunks()
        self._send(self._sender.send)
        if transaction is not None:
            if not self._is_whole:
                return
            transaction.commit()
            for topic in self._topics.values():
                for partition in topic.partitions:
                    partition.next_sequence = 0
        self._ended = None

    def send_if_full(self) -> None:
        """Send the buffered records if there are many; more can be read before the next flush waits for them.

        Raises as ``flush`` does, for records that were sent before.
        """
        if self.buffered_bytes >= _SEND_BYTES:
            self._close_chunks()
            self._send(self._sender.start)

    def _close_chunks(self) -> None:
        for name, topic in self._topics.items():
            for number, partition in enumerate(topic.partitions):
                if partition.rows:
                    self._close_chunk(name, number, partition)
        self.buffered_bytes = 0

    def _put_position(self, commit_lsn: int, commit_ms: int) -> None:
        row: Row = (commit_ms, POSITION_KEY, b"%X" % commit_lsn, [])
        self._put(self._positions_topic, self._topics[self._positions_topic], 0, row, _ROW_OVERHEAD_BYTES)

    def _send(self, send: Callable[[], None]) -> None:
        try:
            send()
        except ProducerStateError as error:
            raise error if self._transaction is None else self._transaction.cause(error) from error

    def _close_chunk(self, name: str, number: int, partition: _Partition) -> None:
        if self._transaction is not None:
            self._transaction.open()
            self._sender.producer = self._transaction.producer
        self._sender.close(name, number, partition)
        if self._sender.is_full:
            self._send(self._sender.send)

    def _open(self, name: str, partitions: int, configs: Mapping[str, str] | None) -> _Topic:
        wanted = self._configs if configs is None else configs
        topic = self._client.ensure_topic(name, partitions=partitions, configs=wanted)
        # Records of an earlier run may be unsynced, and are about to be treated as stored.
        self._client.flush(name)
        if "compact" in wanted.get("cleanup.policy", "") and "compact" not in topic.configs.get(
            "cleanup.policy", ""
        ):
            raise CdcError(
                f"topic {name} exists and is not compacted; run: "
                f"stele topics alter {name} --config cleanup.policy=compact"
            )
        limit = min(row_room(topic.configs), self._record_bytes_max)
        choose = partial(partition_for_key, partitions=topic.partitions, hash_name="fnv1a")
        return _Topic(
            partitions=[_Partition() for _ in range(topic.partitions)],
            record_bytes_max=max(1, limit),
            chunk_bytes=max(1, min(CHUNK_BYTES, limit)),
            partition_of=lru_cache(_KEYS_REMEMBERED)(choose),
            needs_key="compact" in topic.configs.get("cleanup.policy", ""),
        )

    def _last_position(self, topic: str, partition: int) -> Position | None:
        """Return the position of the connector's last record in a partition, of any run."""
        state = self._client.call(
            GetProducerState(topic=topic, partition=partition, producer_id=self._named_id)
        )
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

        Also None if retention has deleted it, in which case it was confirmed long ago.
        """
        fetch = RawFetch(
            topic=topic,
            partition=partition,
            offset=offset,
            max_bytes=_FETCH_BYTES,
            # It may lie after the beginning of a transaction that is open.
            isolation=IsolationLevel.READ_UNCOMMITTED,
        )
        try:
            batches = self._client.call(fetch).batches
        except OffsetOutOfRangeError:
            return None
        if len(batches) < LOG_OVERHEAD_BYTES:
            return None
        header = check_batch(batches, 0)
        return (batches, header) if (header.producer_id == self._named_id) == is_own else None
