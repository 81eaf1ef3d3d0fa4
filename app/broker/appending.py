"""Appends batches: checks them, and queues those that a thread must prepare.

::

    produce ─▶ header and CRC ─┬─▶ check, write ─────────────────────────────▶ PendingProduce
                               └─▶ ProduceQueue ─▶ thread ─▶ check, write ───▶ QueuedProduce

A batch is checked against its producer's state and written in one turn of the event
loop, so that what the check found still holds when the batch gets its offset. Checks
that depend on other state, such as that of a transaction, belong beside that one in
``_append``. ``_write`` is below all checks: only batches that were checked, or that
the broker built itself, may reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stele.wire import record_batch as rb
from stele.wire.messages import ANY_PARTITION, Durability

from ..clock import Clock
from ..errors import (
    BatchTooLarge,
    BrokerClosing,
    InvalidBatch,
    StorageFull,
    UnknownPartition,
    UnknownTopic,
)
from ..settings import Settings
from ..storage.engine import AppendTicket, LogEngine, TopicPartition
from .counts import Counts
from .partitioner import Partitioner
from .produce import Acks, PendingProduce, QueuedProduce
from .produce_queue import ProduceQueue
from .producer_state import StoredBatch
from .producers import Producers
from .recompress import PreparedBatches, has_preparation, needs_preparation, preparation
from .record_keys import check_keys
from .tail_subscriptions import TailSubscriptions
from .topics import Topic, Topics


class Appender:
    """Appends to every partition of one broker; owns the produce queue."""

    def __init__(
        self,
        *,
        engine: LogEngine,
        topics: Topics,
        producers: Producers,
        partitioner: Partitioner,
        tail_subscriptions: TailSubscriptions,
        counts: Counts,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._engine = engine
        self._topics = topics
        self._producers = producers
        self._partitioner = partitioner
        self._tail_subscriptions = tail_subscriptions
        self._counts = counts
        self._clock = clock
        self.queue = ProduceQueue(
            threads=settings.produce_threads, bytes_max=settings.produce_queue_bytes_max
        )
        self._is_closing = False

    def begin_close(self) -> None:
        """Refuse new batches; those in the queue are still appended."""
        self._is_closing = True

    async def close(self) -> None:
        """Append what is in the queue."""
        self.begin_close()
        await self.queue.close()

    def produce(
        self, topic_name: str, partition: int, batches: bytearray | memoryview, acks: Acks, sync_later: bool
    ) -> PendingProduce:
        """Append ``batches`` now, or queue them for a thread: see ``Broker.produce``."""
        topic = self._topics.topic(topic_name)
        if self._is_closing:
            raise BrokerClosing
        if partition == ANY_PARTITION:
            partition = self._partitioner.choose(topic, None)
        elif not 0 <= partition < topic.partitions:
            raise UnknownPartition(topic_name, partition, partitions=topic.partitions)
        try:
            headers = rb.check_produced(batches)
        except rb.CorruptBatchError as error:
            raise InvalidBatch(str(error), is_damaged=isinstance(error, rb.CrcMismatchError)) from error
        for header in headers:
            if header.size > topic.config.max_message_bytes:
                raise BatchTooLarge(header.size, limit=topic.config.max_message_bytes)
            if header.is_control or header.is_transactional:
                raise InvalidBatch("transactional and control batches are not served")
        topic_partition = TopicPartition(topic_name, partition)
        now_ms = self._clock.now_ms()
        is_prepared = needs_preparation(topic.config, headers, now_ms)
        if topic.config.is_compacted and not is_prepared:
            check_keys(topic_name, batches, headers)
        if is_prepared or self.queue.is_busy(topic_partition):
            prepare = preparation(topic_name, topic.config, now_ms).run if is_prepared else PreparedBatches
            return self._enqueue(
                topic, topic_partition, bytearray(batches), headers, acks, sync_later, prepare
            )
        return self._append(topic, topic_partition, batches, headers, acks, sync_later)

    def _append(
        self,
        topic: Topic,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[rb.BatchHeader],
        acks: Acks,
        sync_later: bool,
    ) -> PendingProduce:
        """Append batches that parse, unless they are stored already."""
        for header in headers:
            if header.has_producer_id:
                if len(headers) != 1:
                    raise InvalidBatch("an idempotent producer sends one batch per partition at a time")
                stored = self._producers.check(topic_partition, header)
                if stored is not None:
                    return self._stored_before(topic, topic_partition, stored, acks)
        return self._write(topic, topic_partition, batches, headers, acks, sync_later)

    def _write(
        self,
        topic: Topic,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[rb.BatchHeader],
        acks: Acks,
        sync_later: bool,
    ) -> PendingProduce:
        """Give checked batches their offsets, write them, and tell readers."""
        is_put_off = sync_later and acks is Acks.ALL and topic.config.storage == "disk"
        try:
            ticket = self._engine.append(
                topic_partition, batches, headers, sync=acks is Acks.ALL and not is_put_off
            )
        except StorageFull:
            if headers[0].has_producer_id:
                self._producers.refused(topic_partition, headers[0])
            raise
        self._tail_subscriptions.appended(*topic_partition)
        counts = self._counts
        counts.appended_batches += len(headers)
        counts.appended_records += ticket.last_offset - ticket.base_offset + 1
        counts.appended_bytes += len(batches)
        sync = partial(self._engine.when_synced, topic_partition, ticket.last_offset) if is_put_off else None
        return PendingProduce(*topic_partition, ticket, acks, sync)

    def _stored_before(
        self, topic: Topic, topic_partition: TopicPartition, stored: StoredBatch, acks: Acks
    ) -> PendingProduce:
        """Answer a retry with the offsets of the first time."""
        waiting = self._engine.when_synced(topic_partition, stored.last_offset) if acks is Acks.ALL else None
        is_disk = topic.config.storage == "disk"
        durability = Durability.SYNCED if acks is Acks.ALL else Durability.APPENDED
        ticket = AppendTicket(
            base_offset=stored.base_offset,
            last_offset=stored.last_offset,
            log_append_time_ms=rb.NO_TIMESTAMP,
            log_start_offset=self._engine.state(topic_partition).log_start_offset,
            durability=durability if is_disk else Durability.NONE,
            future=waiting,
        )
        return PendingProduce(*topic_partition, ticket, acks)

    def _enqueue(
        self,
        topic: Topic,
        topic_partition: TopicPartition,
        batches: bytearray,
        headers: list[rb.BatchHeader],
        acks: Acks,
        sync_later: bool,
        prepare: Callable[[bytearray, list[rb.BatchHeader]], PreparedBatches],
    ) -> PendingProduce:
        """Reserve the position of these batches, and append what ``prepare`` returns in a thread."""

        def append(prepared: PreparedBatches) -> PendingProduce:
            current = self._topics.get(topic.name)
            if current is None or current.topic_id != topic.topic_id:
                # It was deleted while they waited.
                raise UnknownTopic(topic.name)
            return self._append(
                current, topic_partition, prepared.batches, prepared.headers, acks, sync_later
            )

        pending = QueuedProduce(*topic_partition, acks)
        self.queue.put(
            topic_partition,
            len(batches),
            prepare=partial(prepare, batches, headers),
            append=append,
            pending=pending,
        )
        return pending

    # ── room in the queue ──

    def may_queue(self, topic: Topic) -> bool:
        """Return whether batches with acceptable timestamps are queued for ``topic``."""
        is_busy = any(map(self.queue.is_busy, topic.topic_partitions()))
        return is_busy or has_preparation(topic.config)

    def must_wait_for_room(self, topic_name: str, batches: bytes | bytearray | memoryview) -> bool:
        """Return whether ``batches`` would be queued while the queue is full."""
        if not self.queue.is_full:
            return False
        topic = self._topics.get(topic_name)
        if topic is None:
            return False
        try:
            headers = list(rb.iter_headers(batches))
        except rb.CorruptBatchError:
            # Refused without being queued.
            return False
        is_busy = any(map(self.queue.is_busy, topic.topic_partitions()))
        return is_busy or needs_preparation(topic.config, headers, self._clock.now_ms())
