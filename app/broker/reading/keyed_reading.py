"""Reads compacted topics by key: the newest record of one key, and which records are the newest.

Producers assign keys to partitions in different ways: Java clients, and Stele, hash
with murmur2, librdkafka with CRC32 by default, and any producer may
choose a partition itself. So a key is looked for in all partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

from stele.wire.record_batch import RecordView

from ...errors import OffsetOutOfRange, TopicNotCompacted
from ...storage.engine import LogEngine, PartitionFetch, TopicPartition
from ...storage.keys.newest_offsets import NewestOffsets
from ...work_budget import WorkBudget
from ..topics import Topics
from .decoded_bytes import DecodedReader
from .fetch import OpenRecord, record_at


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """The newest record of a key, and its partition. A tombstone has no value.

    Room is held for a large record until ``opened`` is closed.
    """

    partition: int
    opened: OpenRecord

    @property
    def record(self) -> RecordView:
        return self.opened.record


class KeyedReader:
    """Reads the compacted topics of one broker by key."""

    def __init__(self, *, engine: LogEngine, topics: Topics) -> None:
        self._engine = engine
        self._topics = topics

    def _partition(self, topic: str, partition: int) -> TopicPartition:
        """Raises ``UnknownTopic``, ``UnknownPartition``, ``TopicNotCompacted``."""
        name = self._topics.partition(topic, partition)
        if not self._topics.topic(topic).config.is_compacted:
            raise TopicNotCompacted(topic)
        return name

    async def newest_record(
        self, topic: str, key: bytes, reader: DecodedReader, *, partition: int | None = None
    ) -> KeyedRecord | None:
        """Return the newest committed record of ``key``, which may be a tombstone; None if there is none.

        Without ``partition`` all partitions are looked at. If several have records of the
        key, the record with the newest timestamp counts, among equal ones that of the
        highest partition.

        Raises:
            UnknownTopic, UnknownPartition, InternalTopic: the partition does not exist.
            TopicNotCompacted: the topic keeps no newest record per key.
            CorruptLog: the record may be in a corrupt range.
            ReadMemoryFull: other reads hold the room that the record needs.
        """
        partitions = range(self._topics.topic(topic).partitions) if partition is None else (partition,)
        # Its timestamp and partition, and the record unless it is large: the room for one is needed for the next.
        newest: tuple[int, int, OpenRecord | None] | None = None
        budget = WorkBudget()
        for number in partitions:
            await budget.visit()
            name = self._partition(topic, number)
            state = self._engine.state(name)
            if state.log_start_offset == state.high_watermark:
                continue
            opened = await self._newest_in(name, key, reader)
            if opened is None:
                continue
            if len(partitions) == 1:
                return KeyedRecord(number, opened)
            timestamp = opened.record.timestamp
            if newest is None or timestamp >= newest[0]:
                newest = timestamp, number, None if opened.is_large else opened
            await opened.close()
            del opened
        if newest is None:
            return None
        _, number, opened = newest
        if opened is None:
            opened = await self._newest_in(self._partition(topic, number), key, reader)
        return None if opened is None else KeyedRecord(number, opened)

    async def _newest_in(self, name: TopicPartition, key: bytes, reader: DecodedReader) -> OpenRecord | None:
        before, is_doubted = -1, False
        while True:
            offset = await self._engine.newest_offset(name, key, is_doubted=is_doubted)
            if offset < 0:
                return None
            opened = await self._record_at(name, offset, reader)
            if opened is not None and opened.record.key == key:
                return opened
            if opened is not None:
                await opened.close()
            # Compaction or retention removed it meanwhile; then there is a newer one, or none. If it is found at
            # the same place again, an index is wrong.
            before, is_doubted = offset, offset == before

    async def _record_at(self, name: TopicPartition, offset: int, reader: DecodedReader) -> OpenRecord | None:
        request = PartitionFetch(
            topic=name.topic, partition=name.partition, offset=offset, max_bytes=1, until_offset=offset + 1
        )
        (read,) = await self._engine.read([request], 1)
        if read.error is not None:
            if read.log_start_offset > offset:
                return None
            raise read.error
        return await record_at(read, offset, reader)

    async def newest_offsets(
        self, topic: str, partition: int, end_offset: int, *, start_offset: int = 0
    ) -> NewestOffsets:
        """Return which records below ``end_offset`` are the newest of their keys.

        Those before ``start_offset`` need not be read: what the result says begins at its ``start_offset``, which is
        not after the requested one, or is the log start. A result from the log start on is remembered for a while,
        within ``table_memory_bytes_max``.

        Raises:
            UnknownTopic, UnknownPartition, InternalTopic: the partition does not exist.
            TopicNotCompacted: the topic keeps no newest record per key.
            OffsetOutOfRange: ``end_offset`` is past the last stable offset.
            InvalidRequest: there are more keys than the memory allows.
        """
        name = self._partition(topic, partition)
        state = self._engine.state(name)
        if end_offset > state.last_stable_offset:
            raise OffsetOutOfRange(
                topic=topic,
                partition=partition,
                offset=end_offset,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.last_stable_offset,
            )
        return await self._engine.newest_offsets(name, end_offset, start_offset=start_offset)

    def compacted_until(self, topic: str, partition: int) -> int:
        """Return an offset before which each compacted record has a newer one of its key.

        Raises ``UnknownTopic``, ``UnknownPartition``, ``TopicNotCompacted``.
        """
        name = self._partition(topic, partition)
        # All that a pass has removed is older than a record that was committed then.
        return min(self._engine.compacted_until(name), self._engine.state(name).last_stable_offset)
