"""Appends batches: checks them, and queues those that are large or that a thread must prepare.

::

    produce ─▶ header and CRC ─┬─▶ engine.append ──────────────────────────────────────▶ PendingProduce
                               └─▶ ProduceQueue ─▶ thread ─▶ write_ahead ─▶ append ─────▶ QueuedProduce

The engine checks a batch against its producer's state in the order of appends, and lets the
coordinator of transactions admit a transactional one (``transaction_gate``) in the turn of the event
loop that stores it. Markers are appended in one turn, too.

An engine may give an append its offsets later. Its records are counted when it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

from stele.wire import record_batch as rb
from stele.wire.control_record import marker_batch
from stele.wire.messages import ANY_PARTITION, Durability

from ...clock import Clock
from ...errors import (
    BatchTooLarge,
    BrokenContract,
    BrokerClosing,
    InvalidBatch,
    InvalidRequest,
    MirroredTopic,
    UnknownPartition,
    UnknownTopic,
)
from ...settings import Settings
from ...storage.engine import AppendTicket, LogEngine
from ...storage.topic_partition import TopicPartition
from ...storage.transactional_produce import TransactionalProduce
from ..counts import Counts
from ..topics import Topic, Topics
from .contracts import Contracts, UnknownSchemas
from .partitioner import Partitioner
from .produce import Acks, PendingProduce, QueuedProduce
from .produce_queue import Prepare, ProduceQueue, in_thread
from .producers import Producers
from .recompress import Preparation, PreparedBatches, has_preparation, needs_preparation, preparation
from .record_keys import check_keys
from .transaction_gate import MarkerOrder, TransactionGate


class Appender:
    """Appends to every partition of one broker; owns the produce queue."""

    def __init__(
        self,
        *,
        engine: LogEngine,
        topics: Topics,
        producers: Producers,
        partitioner: Partitioner,
        counts: Counts,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._engine = engine
        self._topics = topics
        self._producers = producers
        self._partitioner = partitioner
        self._counts = counts
        self._clock = clock
        self.queue = ProduceQueue(
            threads=settings.produce_threads, bytes_max=settings.produce_queue_bytes_max
        )
        self.gate: TransactionGate | None = None
        self.contracts: Contracts | None = None
        self._large_bytes = engine.large_bytes
        self._is_closing = False

    def begin_close(self) -> None:
        """Refuse new batches; those in the queue are still appended."""
        self._is_closing = True

    async def close(self) -> None:
        """Append what is in the queue."""
        self.begin_close()
        await self.queue.close()

    def produce(
        self,
        topic_name: str,
        partition: int,
        batches: bytearray | memoryview,
        acks: Acks,
        sync_later: bool,
        transaction: TransactionalProduce | None = None,
        expected_end: int | None = None,
    ) -> PendingProduce:
        """Append ``batches`` now, or queue them for a thread: see ``Broker.produce``."""
        topic = self._topics.topic(topic_name)
        if topic.config.mirror:
            raise MirroredTopic(topic_name, topic.config.mirror)
        if self._is_closing:
            raise BrokerClosing
        if partition == ANY_PARTITION:
            if expected_end is not None:
                raise InvalidRequest("a conditional append needs a partition; name one")
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
                self._check_transactional(topic, header, transaction)
        topic_partition = TopicPartition(topic_name, partition)
        if expected_end is not None:
            _check_conditional(expected_end, headers, acks)
        now_ms = self._clock.now_ms()
        is_prepared = needs_preparation(topic.config, headers, now_ms)
        if is_prepared and topic.config.has_contract and self.contracts is None:
            raise InvalidRequest("this broker has no schemas to validate the records of the topic with")
        if topic.config.is_compacted and not is_prepared:
            check_keys(topic_name, batches, headers)
        is_large = len(batches) > self._large_bytes and self._is_large(headers)
        if is_prepared or is_large or self.queue.is_busy(topic_partition):
            prepare = preparation(topic_name, topic.config, now_ms) if is_prepared else None
            waiting = _own(batches, is_large=is_large)
            return self._enqueue(
                topic,
                topic_partition,
                waiting,
                headers,
                acks,
                sync_later,
                transaction,
                expected_end,
                prepare,
            )
        return self._append(
            topic, topic_partition, batches, headers, acks, sync_later, transaction, expected_end
        )

    def _is_large(self, headers: Sequence[rb.BatchHeader]) -> bool:
        """Return whether a batch takes so long to append that it is queued, and written ahead."""
        return len(headers) == 1 and headers[0].size > self._large_bytes

    def _check_transactional(
        self, topic: Topic, header: rb.BatchHeader, transaction: TransactionalProduce | None
    ) -> None:
        """Check what does not depend on producer states, in a batch of a transaction.

        Control batches are checked, too.

        Raises ``InvalidBatch``, ``InvalidRequest``.
        """
        if header.is_control:
            raise InvalidBatch("only the broker writes control batches")
        if transaction is None:
            raise InvalidBatch("it is transactional, and the request has no transactional id")
        if not header.has_producer_id:
            raise InvalidBatch("a transactional batch needs a producer id; begin the transactional id first")
        if topic.config.storage == "memory":
            raise InvalidRequest(
                f"topic {topic.name!r} keeps its records in memory, which a restart clears; "
                "transactions need a topic with stele.storage=disk"
            )
        if self.gate is None:
            raise InvalidRequest("this broker does not serve transactions")

    def _append(
        self,
        topic: Topic,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[rb.BatchHeader],
        acks: Acks,
        sync_later: bool,
        transaction: TransactionalProduce | None,
        expected_end: int | None,
    ) -> PendingProduce:
        """Append batches that parse; the engine checks them against the states of their producers."""
        if len(headers) != 1 and any(header.has_producer_id for header in headers):
            raise InvalidBatch("an idempotent producer sends one batch per partition at a time")
        needs_state, admit = False, None
        if transaction is not None and headers[0].is_transactional:
            assert self.gate is not None
            needs_state = transaction.adds_partitions
            admit = partial(self.gate.admit, transaction, topic_partition)
        is_put_off = sync_later and acks is Acks.ALL and topic.config.storage == "disk"
        ticket = self._engine.append(
            topic_partition,
            batches,
            headers,
            sync=acks is Acks.ALL and not is_put_off,
            sync_later=is_put_off,
            needs_state=needs_state,
            admit=admit,
            transaction=transaction,
            expected_end=expected_end,
        )
        if ticket.is_placed:
            if not ticket.is_repeat:
                self._count(headers, len(batches))
        else:
            self._count_when_placed(headers, len(batches), ticket)
        sync = partial(self._engine.sync, topic_partition) if is_put_off else None
        return PendingProduce(*topic_partition, ticket, acks, sync)

    def append_copies(
        self,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[rb.BatchHeader],
        expected_end: int,
    ) -> AppendTicket:
        """Append batches of a mirror, which keep their offsets; see ``Copies``."""
        ticket = self._engine.append(
            topic_partition, batches, headers, sync=False, expected_end=expected_end, is_copy=True
        )
        if ticket.is_placed:
            self._count(headers, len(batches), is_copy=True)
        else:
            self._count_when_placed(headers, len(batches), ticket, is_copy=True)
        return ticket

    # ── markers ──

    def append_markers(self, orders: Sequence[MarkerOrder], *, sync: bool) -> list[AppendTicket]:
        """See ``Broker.append_markers``."""
        if self._is_closing:
            raise BrokerClosing
        for order in orders:
            name, partition = order.topic_partition
            topic = self._topics.topic(name)
            if not 0 <= partition < topic.partitions:
                raise UnknownPartition(name, partition, partitions=topic.partitions)
            self._must_append(order)
        return [self._append_marker(order, sync=sync) for order in orders]

    def _must_append(self, order: MarkerOrder) -> bool:
        return self._producers.must_append(
            order.topic_partition, order.producer_id, order.producer_epoch, order.marker
        )

    def _append_marker(self, order: MarkerOrder, *, sync: bool) -> AppendTicket:
        name = order.topic_partition
        if not self._must_append(order):
            state = self._engine.state(name)
            last = AppendTicket(last_offset=state.log_end_offset - 1, durability=Durability.APPENDED)
            if sync:
                self._engine.sync(name, last)
            return AppendTicket(
                log_start_offset=state.log_start_offset, durability=last.durability, future=last.future
            )
        batch = marker_batch(
            order.marker,
            producer_id=order.producer_id,
            producer_epoch=order.producer_epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        return self._engine.append(name, batch, [rb.read_header(batch)], sync=sync)

    def _count(self, headers: list[rb.BatchHeader], size_bytes: int, *, is_copy: bool = False) -> None:
        """Count what was appended."""
        counts = self._counts
        counts.appended_batches += len(headers)
        counts.copied_batches += len(headers) if is_copy else 0
        for header in headers:
            counts.appended_records += header.record_count
        counts.appended_bytes += size_bytes

    def _count_when_placed(
        self, headers: list[rb.BatchHeader], size_bytes: int, ticket: AppendTicket, *, is_copy: bool = False
    ) -> None:
        future = ticket.future
        assert future is not None, "a ticket without offsets has a future"

        def ended(_: asyncio.Future[None]) -> None:
            if ticket.is_placed and not ticket.is_repeat:
                self._count(headers, size_bytes, is_copy=is_copy)

        future.add_done_callback(ended)

    def _enqueue(
        self,
        topic: Topic,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[rb.BatchHeader],
        acks: Acks,
        sync_later: bool,
        transaction: TransactionalProduce | None,
        expected_end: int | None,
        preparation: Preparation | None,
    ) -> PendingProduce:
        """Reserve a position for these batches.

        What ``preparation`` makes of them in a thread is appended there.
        """

        def write_ahead(prepared: PreparedBatches) -> Coroutine[Any, Any, PreparedBatches] | None:
            return self._write_ahead(topic_partition, prepared) if self._is_large(prepared.headers) else None

        def append(prepared: PreparedBatches) -> PendingProduce:
            current = self._topics.get(topic.name)
            if current is None or current.topic_id != topic.topic_id:
                # It was deleted while they waited.
                raise UnknownTopic(topic.name)
            if current.config.is_compacted and not topic.config.is_compacted:
                # The topic became compacted while they waited, so no thread has looked for their keys.
                check_keys(topic.name, prepared.batches, prepared.headers)
            return self._append(
                current,
                topic_partition,
                prepared.batches,
                prepared.headers,
                acks,
                sync_later,
                transaction,
                expected_end,
            )

        pending = QueuedProduce(*topic_partition, acks)
        self.queue.put(
            topic_partition,
            len(batches),
            prepare=self._prepare(topic, batches, headers, preparation),
            write_ahead=write_ahead,
            append=append,
            pending=pending,
        )
        return pending

    def _prepare(
        self,
        topic: Topic,
        batches: bytearray | memoryview,
        headers: list[rb.BatchHeader],
        preparation: Preparation | None,
    ) -> Prepare:
        if preparation is None:
            return lambda threads: in_thread(threads, lambda: PreparedBatches(batches, headers))
        if not topic.config.has_contract:
            return lambda threads: in_thread(threads, lambda: preparation.run(batches, headers))
        return lambda threads: asyncio.ensure_future(
            self._prepare_by_contract(topic, batches, headers, preparation, threads)
        )

    async def _prepare_by_contract(
        self,
        topic: Topic,
        batches: bytearray | memoryview,
        headers: list[rb.BatchHeader],
        preparation: Preparation,
        threads: Executor,
    ) -> PreparedBatches:
        assert self.contracts is not None
        try:
            contract = await self.contracts.of(topic.name, topic.config)
            try:
                return await in_thread(
                    threads, lambda: replace(preparation, contract=contract).run(batches, headers)
                )
            except UnknownSchemas:
                complete = await contract.look_up()
                return await in_thread(
                    threads, lambda: replace(preparation, contract=complete).run(batches, headers)
                )
        except BrokenContract as error:
            self._counts.contract_refusals += error.refused
            raise

    async def _write_ahead(self, name: TopicPartition, prepared: PreparedBatches) -> PreparedBatches:
        batch = memoryview(prepared.batches)
        await self._engine.write_ahead(name, batch, prepared.headers[0])
        return PreparedBatches(batch, prepared.headers)

    # ── room in the queue ──

    def may_queue(self, topic: Topic) -> bool:
        """Return whether batches with acceptable timestamps are queued for ``topic``."""
        is_busy = any(map(self.queue.is_busy, topic.topic_partitions()))
        may_be_large = topic.config.max_message_bytes > self._large_bytes
        return is_busy or may_be_large or has_preparation(topic.config)

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
        is_queued = is_busy or self._is_large(headers)
        return is_queued or needs_preparation(topic.config, headers, self._clock.now_ms())


def _check_conditional(expected_end: int, headers: Sequence[rb.BatchHeader], acks: Acks) -> None:
    """Check what a conditional append may be, whatever the end is.

    Raises ``InvalidRequest``.
    """
    if expected_end < 0:
        raise InvalidRequest(f"the expected end is {expected_end}; it is an offset, 0 or more")
    if acks is Acks.NONE:
        raise InvalidRequest(
            "a conditional append needs acks 1 or all: otherwise nobody learns whether it took place"
        )
    if len(headers) != 1:
        raise InvalidRequest(
            f"a conditional append has one record batch, not {len(headers)}: it is stored as a whole or not at all"
        )


def _own(batches: bytearray | memoryview, *, is_large: bool) -> bytearray | memoryview:
    """Return what waits in the queue: a copy, so that it keeps no receive buffer in memory.

    A large batch that is most of its buffer is not copied.
    """
    view = memoryview(batches)
    is_most = is_large and 2 * len(view) >= memoryview(view.obj).nbytes
    return view if is_most else bytearray(view)
