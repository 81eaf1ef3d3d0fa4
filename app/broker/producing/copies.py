"""Writes what mirrors copy from other clusters, at the offsets that it has there, and ends copies.

A topic with ``stele.mirror`` is a copy: only its mirror writes to it, through ``Copies.append``. Where a copy ends is
where its mirror goes on, so a batch is stored once, whatever crashed in between. ``docs/mirror.md`` has the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.control_record import EndTransactionMarker, MarkerType, read_marker
from stele.wire.messages.mirrors import BATCHES_PER_APPEND_MAX

from ...errors import (
    BrokerClosing,
    InvalidBatch,
    InvalidRequest,
    TopicRecreated,
    UnexpectedEnd,
)
from ...storage.engine import LogEngine
from ...storage.topic_config import BATCH_BYTES_MAX, MIRROR
from ...storage.topic_partition import TopicPartition
from ...work_budget import WorkBudget
from ..topics import Topic, Topics
from .appending import Appender
from .copy_pace import CopyPace
from .producers import Producers
from .transaction_gate import MarkerOrder

# A leader epoch rises by one with each start; this leaves room for as many.
_LEADER_EPOCH_MAX = 2**31 - 2**20
_OFFSET_MAX = 2**63 - 2
# A marker is one small record.
_CONTROL_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """``leader_epoch`` is that of the last batch, -1 if there is none."""

    log_start_offset: int
    log_end_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """A transaction whose coordinator stayed behind, and which was aborted."""

    topic_partition: TopicPartition
    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCopy:
    """A copy that was cut back from ``before`` to ``after``; ``groups`` had committed offsets past that."""

    topic_partition: TopicPartition
    before: int
    after: int
    groups: Sequence[str]


class Copies:
    """The copies of one broker."""

    def __init__(
        self,
        *,
        engine: LogEngine,
        topics: Topics,
        producers: Producers,
        appender: Appender,
        activity: Callable[[], int],
    ) -> None:
        """``activity``: see ``CopyPace``."""
        self._pace = CopyPace(activity)
        self._engine = engine
        self._topics = topics
        self._producers = producers
        self._appender = appender
        # Topics that take no copies now: they are promoted, or cut back.
        self._changing: set[str] = set()
        self._is_closing = False

    def begin_close(self) -> None:
        """Refuse copies from now on."""
        self._is_closing = True

    async def append(
        self,
        topic_name: str,
        topic_id: UUID,
        partition: int,
        *,
        expected_end: int,
        log_start_offset: int,
        batches: bytearray | memoryview,
    ) -> CopyState:
        """Append ``batches`` as they are to a copy that ends at ``expected_end``; return what it has then.

        Its log start offset moves up to ``log_start_offset``, and with it the end, if that is before; -1 leaves it. Without
        batches nothing is appended; if the end does not move either, ``expected_end`` does not matter.

        Raises:
            UnknownTopic, UnknownPartition, TopicRecreated, InvalidRequest: there is no such copy.
            UnexpectedEnd: the copy ends elsewhere; nothing was appended, but its log start may have moved.
            InvalidBatch: the batches cannot be those of a log from there on; nothing was appended.
            StorageFull, StorageUnavailable, LogDirFailed, BrokerClosing: nothing was appended.
        """
        name = self._copy(topic_name, topic_id, partition)
        if not batches or log_start_offset > self._engine.state(name).log_end_offset:
            # Another broker may have appended; with batches, the engine compares the end when it stores them.
            await self._engine.refresh([name])
            self._copy(topic_name, topic_id, partition)
        if log_start_offset > self._engine.state(name).log_end_offset:
            self._check_end(name, expected_end)
            await self._engine.skip_to(name, log_start_offset)
            self._copy(topic_name, topic_id, partition)
            expected_end = log_start_offset
        if batches:
            # Other clients get a turn between the check and the write, each of which takes tens of microseconds.
            async with self._pace:
                headers = await _checked(batches)
            async with self._pace:
                is_large = len(headers) == 1 and headers[0].size > self._engine.large_bytes
                if is_large:
                    batches = memoryview(batches)
                    await self._engine.write_ahead(name, batches, headers[0], is_copy=True)
                self._copy(topic_name, topic_id, partition)
                self._check_end(name, expected_end)
                if headers[0].base_offset < expected_end:
                    raise InvalidBatch(
                        f"it begins at offset {headers[0].base_offset}, and {name} ends at {expected_end}"
                    )
                ticket = self._appender.append_copies(name, batches, headers, expected_end)
            if ticket.future is not None:
                await asyncio.shield(ticket.future)
                self._copy(topic_name, topic_id, partition)
        state = self._engine.state(name)
        if state.log_start_offset < log_start_offset:
            await self._engine.delete_records(name, log_start_offset)
            self._copy(topic_name, topic_id, partition)
            state = self._engine.state(name)
        return CopyState(
            log_start_offset=state.log_start_offset,
            log_end_offset=state.log_end_offset,
            leader_epoch=self._engine.last_leader_epoch(name),
        )

    def _check_end(self, name: TopicPartition, expected_end: int) -> None:
        end_offset = self._engine.state(name).log_end_offset
        if end_offset != expected_end:
            raise UnexpectedEnd(**name._asdict(), expected=expected_end, log_end_offset=end_offset)

    def _copy(self, topic_name: str, topic_id: UUID, partition: int) -> TopicPartition:
        if self._is_closing:
            raise BrokerClosing
        topic = self._topics.topic(topic_name)
        if topic.topic_id != topic_id:
            raise TopicRecreated(topic_name, str(topic_id))
        if not topic.config.mirror or topic_name in self._changing:
            raise InvalidRequest(f"topic {topic_name!r} is no copy of a mirror; nothing was stored")
        return self._topics.partition(topic_name, partition)

    async def promote(self, topic_name: str) -> list[EndedTransaction]:
        """Make a copy an ordinary topic; when this returns, that survives a loss of power.

        Transactions that are open are aborted, because their coordinator stays behind, and are returned. Producer ids
        given out from now on are above those in the copy. If it fails, the topic is a copy still, and it may be called again.

        Raises:
            UnknownTopic: there is none of this name.
            InvalidRequest: it is no copy.
            StorageFull, StorageUnavailable, LogDirFailed, CatalogFailed, BrokerClosing: as of any change.
        """
        topic = self._topics.topic(topic_name)
        if not topic.config.mirror:
            raise InvalidRequest(
                f"topic {topic_name!r} is no copy of a mirror, so there is nothing to promote"
            )
        self._changing.add(topic_name)
        try:
            await self._engine.stop_copies(topic.topic_partitions())
            ended = await self._end_transactions(topic)
            for name in topic.topic_partitions():
                await self._engine.end_copies(name)
            await self._topics.alter(topic_name, partitions=None, configs={MIRROR: None}, ends_mirror=True)
        finally:
            self._changing.discard(topic_name)
        return ended

    async def cut(self, name: TopicPartition, offset: int) -> int:
        """Remove the batches of a copy that end after ``offset``, which its source has lost; return its new end.

        Its mirror does not run meanwhile. What was removed is copied again from there, as the source has it now.

        Raises:
            UnknownTopic, UnknownPartition, InvalidRequest: there is no such copy.
            StorageError, BrokerClosing: nothing was removed, or the data directory has stopped.
        """
        self._copy(name.topic, self._topics.topic(name.topic).topic_id, name.partition)
        self._changing.add(name.topic)
        try:
            return await self._engine.cut_copy(name, offset)
        finally:
            self._changing.discard(name.topic)

    async def _end_transactions(self, topic: Topic) -> list[EndedTransaction]:
        orders: list[MarkerOrder] = []
        ended: list[EndedTransaction] = []
        newest_id, budget = -1, WorkBudget()
        for name in topic.topic_partitions():
            for producer in await self._engine.producers(name):
                newest_id = max(newest_id, producer.producer_id)
                if producer.transaction_start_offset >= 0:
                    marker = EndTransactionMarker(
                        type=MarkerType.ABORT, coordinator_epoch=max(0, producer.coordinator_epoch)
                    )
                    orders.append(
                        MarkerOrder(
                            topic_partition=name,
                            producer_id=producer.producer_id,
                            producer_epoch=producer.epoch,
                            marker=marker,
                        )
                    )
                    ended.append(
                        EndedTransaction(
                            topic_partition=name,
                            producer_id=producer.producer_id,
                            first_offset=producer.transaction_start_offset,
                        )
                    )
                await budget.visit()
        await self._producers.reserve_ids(newest_id)
        stored: list[asyncio.Future[None]] = []
        for order in orders:
            # ``end_copies`` syncs them.
            (ticket,) = self._appender.append_markers([order], sync=False)
            if ticket.future is not None:
                stored.append(ticket.future)
            await budget.visit()
        await asyncio.gather(*stored)
        return ended


async def _checked(batches: bytearray | memoryview) -> list[rb.BatchHeader]:
    """Check batches as a log may hold them, compacted ones and markers too; return their headers.

    Raises ``InvalidBatch``.
    """
    headers: list[rb.BatchHeader] = []
    budget = WorkBudget()
    position, expected, size = 0, 0, len(batches)
    try:
        while position < size:
            header = rb.check_batch(batches, position)
            header.position = position
            _check(batches, header, expected)
            headers.append(header)
            if len(headers) > BATCHES_PER_APPEND_MAX:
                raise rb.CorruptBatchError(
                    f"there are more than {BATCHES_PER_APPEND_MAX} batches in one request"
                )
            position, expected = position + header.size, header.next_offset
            await budget.visit()
    except rb.CorruptBatchError as error:
        raise InvalidBatch(str(error), is_damaged=isinstance(error, rb.CrcMismatchError)) from error
    return headers


def _check(batches: bytearray | memoryview, header: rb.BatchHeader, expected: int) -> None:
    def refuse(reason: str) -> rb.CorruptBatchError:
        return rb.CorruptBatchError(reason, position=header.position)

    if not expected <= header.base_offset <= _OFFSET_MAX - max(0, header.last_offset_delta):
        raise refuse(f"base offset {header.base_offset} does not follow {expected}")
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise refuse(f"{header.record_count} records do not fit last offset delta {header.last_offset_delta}")
    if header.compression > Compression.ZSTD:
        raise refuse(f"codec {header.compression} does not exist")
    if header.compression == 0 and header.record_count * 7 > header.size - rb.HEADER_BYTES:
        raise refuse(f"{header.record_count} records do not fit in {header.size} bytes")
    if header.size > BATCH_BYTES_MAX:
        raise refuse(f"it has {header.size} bytes; a batch has at most {BATCH_BYTES_MAX}")
    if not -1 <= header.partition_leader_epoch < _LEADER_EPOCH_MAX:
        raise refuse(f"leader epoch {header.partition_leader_epoch} is out of bounds")
    if header.is_control:
        if header.size > _CONTROL_BYTES_MAX or header.record_count > 1:
            raise refuse("a control batch has one small record")
        read_marker(batches, header)
