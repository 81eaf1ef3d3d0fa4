"""Reads the table of a compacted topic: the newest committed record per key, and where changes follow.

A partition is read in two phases. Up to an end offset, only the records that are the
newest of their keys below it are returned. Compaction may meanwhile remove one of them,
because of a newer record after the end. So the records after the end follow, all of
them, until none can be missing (``KeyedReader.compacted_until``). A reader that applies
the records in order, where a later one replaces an earlier one and a null value deletes
the key, then has the table at exactly the position where the reading ended.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from stele.wire.record_batch import BatchHeader, RecordView

from ..broker.broker import Broker
from ..broker.reading.decoded_bytes import DecodedReader
from ..broker.reading.fetch import Fetched, PartitionFetch, batch_in_turns, batches_from
from ..errors import CorruptLog, OffsetOutOfRange, SteleError
from ..storage.keys.newest_offsets import NewestOffsets
from ..work_budget import WorkBudget, pause, pause_among_partitions

# Concurrent snapshots; each takes a slice of every turn of the loop.
TABLES_MAX = 8
_PIECE_BYTES = 256 * 1024


class TableSnapshot:
    """The tables of some partitions of a topic; iterate over ``slices``, then read ``positions``."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        partitions: Sequence[int],
        *,
        reader: DecodedReader,
        with_tombstones: bool = False,
    ) -> None:
        """``partitions`` has at least one.

        Raises:
            UnknownTopic, UnknownPartition, InternalTopic: a partition does not exist.
            TopicNotCompacted: the topic keeps no newest record per key.
        """
        self.partitions = list(partitions)
        self.positions: dict[int, int] = {}
        self._broker = broker
        self._topic = topic
        self._reader = reader
        self._with_tombstones = with_tombstones
        for partition in (min(partitions), max(partitions)):
            broker.keyed.compacted_until(topic, partition)

    @property
    def is_complete(self) -> bool:
        """True when all partitions were read to their end; then ``positions`` has them all."""
        return len(self.positions) == len(self.partitions)

    async def slices(self) -> AsyncGenerator[tuple[int, list[RecordView] | SteleError]]:
        """Yield ``(partition, records or error)`` by partition, then by offset.

        The end offset of each partition is its last stable offset when the first is read.

        Tombstones are left out below the end offset unless they are requested; after it, they
        are changes, and stay. A corrupt range yields its error, and the partition continues
        after it. Any other error is the last item. Ends early when the broker closes.
        """
        try:
            tables = await self._tables()
        except SteleError as error:
            yield -1, error
            return
        for number, table in enumerate(tables, 1):
            await pause_among_partitions(number)
            while table.partition not in self.positions:
                try:
                    async with aclosing(table.records()) as slices:
                        async for records in slices:
                            yield table.partition, records
                            if self._broker.is_closing:
                                return
                except CorruptLog as error:
                    yield table.partition, error
                    if not table.can_skip:
                        return
                    table.skip_to(error.next_offset)
                except SteleError as error:
                    yield table.partition, error
                    return
                else:
                    self.positions[table.partition] = table.position

    async def _tables(self) -> list[_PartitionTable]:
        tables: list[_PartitionTable] = []
        for number, partition in enumerate(self.partitions, 1):
            state = self._broker.log_state(self._topic, partition)
            tables.append(
                _PartitionTable(
                    self._broker,
                    self._topic,
                    partition,
                    position=state.log_start_offset,
                    end_offset=state.last_stable_offset,
                    reader=self._reader,
                    with_tombstones=self._with_tombstones,
                )
            )
            await pause_among_partitions(number)
        return tables


class _PartitionTable:
    """Reads the table of one partition from ``position`` on, and advances it."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        partition: int,
        *,
        position: int,
        end_offset: int,
        reader: DecodedReader,
        with_tombstones: bool,
    ) -> None:
        self.partition = partition
        self.position = position
        self.end_offset = end_offset
        self._broker = broker
        self._topic = topic
        self._reader = reader
        self._with_tombstones = with_tombstones
        self._budget = WorkBudget()
        self._newest: NewestOffsets | None = None

    @property
    def can_skip(self) -> bool:
        """Whether it can go on after a corrupt range.

        It cannot before it knows which records are the newest.
        """
        return self._newest is not None

    def skip_to(self, offset: int) -> None:
        """Go on at ``offset``, after a corrupt range."""
        self.position = max(self.position + 1, offset)

    async def records(self) -> AsyncGenerator[list[RecordView]]:
        """Yield the newest records up to the end offset, then all that follow.

        It ends when none can be missing.

        Raises:
            CorruptLog: records cannot be read, those from ``position`` on if it ``can_skip`` them; ``skip_to`` goes on.
            SteleError: as ``KeyedReader.newest_offsets`` and ``Broker.fetch``.
        """
        keyed, topic, partition = self._broker.keyed, self._topic, self.partition
        newest = self._newest
        if newest is None:
            newest = self._newest = await keyed.newest_offsets(topic, partition, self.end_offset)
        while True:
            if self.position < self.end_offset:
                self._seek(newest)
            if self.position >= max(self.end_offset, keyed.compacted_until(topic, partition)):
                # Nothing was awaited since the last read.
                return
            if self.position >= self.end_offset:
                self.position = max(self.position, self._broker.log_state(topic, partition).log_start_offset)
            async with aclosing(self._piece(newest)) as slices:
                async for records in slices:
                    yield records

    def _seek(self, newest: NewestOffsets) -> None:
        """Go to the next record to return, or to the end offset.

        Raises ``CorruptLog`` for a range before it.
        """
        self.position = newest.next_from(self.position)

    async def _piece(self, newest: NewestOffsets) -> AsyncGenerator[list[RecordView]]:
        """Read once from ``position`` on."""
        request = PartitionFetch(
            topic=self._topic, partition=self.partition, offset=self.position, max_bytes=_PIECE_BYTES
        )
        (fetched,) = await self._broker.fetch([request], max_bytes=_PIECE_BYTES)
        if fetched.error is not None:
            if isinstance(fetched.error, OffsetOutOfRange) and fetched.error.is_gone:
                self.position = fetched.error.log_start_offset
                return
            raise fetched.error
        if not fetched.batches:
            # Deleted since it was found; the next read reports that.
            await pause()
            return
        for header in batches_from(fetched, self.position):
            if self.position < self.end_offset:
                wanted = newest.at_or_after(self.position)
                if wanted is None:
                    return
                if wanted >= header.next_offset:
                    self.position = header.next_offset
                    continue
            async with aclosing(self._of_batch(fetched, header, newest)) as slices:
                async for records in slices:
                    yield records
            self.position = header.next_offset
            await self._budget.spend(header.size, 0)

    async def _of_batch(
        self, fetched: Fetched, header: BatchHeader, newest: NewestOffsets
    ) -> AsyncGenerator[list[RecordView]]:
        wanted = frozenset(newest.between(self.position, header.next_offset))
        end_offset = self.end_offset
        async with aclosing(
            batch_in_turns(fetched, header, self.position, self._budget, self._reader)
        ) as slices:
            async for records in slices:
                chosen = [
                    record for record in records if record.offset in wanted or record.offset >= end_offset
                ]
                if not self._with_tombstones:
                    chosen = [
                        record for record in chosen if record.value is not None or record.offset >= end_offset
                    ]
                if chosen:
                    yield chosen
