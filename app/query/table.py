"""Reads the table of a compacted topic: the newest committed record per key, and where changes follow.

A partition is read in two phases. Up to an end offset, only the records that are the
newest of their keys below it are returned. Compaction may meanwhile remove one of them,
because of a newer record after the end. So the records after the end follow, all of
them, until none can be missing (``KeyedReader.compacted_until``). A reader that applies
the records in order, where a later one replaces an earlier one and a null value deletes
the key, then has the table at exactly the position where the reading ended.

Which records are the newest is only known once all keys after them were read, which
takes seconds for millions. So the end of a long log comes first: the keys of a small
part of it are read, and its rows returned; then those of a part that is ``_GROWTH``
times as large, and what is new in it, up to the whole log. All but the last part are
read a second time, at a price of one in ``_GROWTH - 1``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from stele.wire.record_batch import BatchHeader, RecordView

from ..broker.broker import Broker
from ..broker.reading.decoded_bytes import DecodedReader
from ..broker.reading.fetch import Fetched, PartitionFetch, batch_in_turns, batches_from
from ..errors import CorruptLog, OffsetOutOfRange, SteleError, TopicRecreated
from ..storage.keys.newest_offsets import NewestOffsets
from ..work_budget import WorkBudget, pause, visited

# Concurrent snapshots; each takes a slice of every turn of the loop.
TABLES_MAX = 8
_PIECE_BYTES = 256 * 1024
# While keys or tombstones are read, an empty slice comes at this interval: clients give up on a silent answer.
PROGRESS_S = 2.0
_GROWTH = 64
# A shorter part of a log is not worth a read of its own.
_PART_OFFSETS_MIN = 1024


def part_starts(start: int, end: int) -> list[int]:
    """Return where the parts of a log from ``start`` to before ``end`` begin that are read one after the other.

    The last of them is read first.
    """
    starts, offsets = [start], (end - start) // _GROWTH
    while offsets >= _PART_OFFSETS_MIN:
        starts.append(end - offsets)
        offsets //= _GROWTH
    return starts


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
        self._topic_id = broker.topic(topic).topic_id
        self._reader = reader
        self._with_tombstones = with_tombstones
        for partition in (min(partitions), max(partitions)):
            broker.keyed.compacted_until(topic, partition)

    @property
    def is_complete(self) -> bool:
        """True when all partitions were read to their end; then ``positions`` has them all."""
        return len(self.positions) == len(self.partitions)

    async def slices(self) -> AsyncGenerator[tuple[int, list[RecordView] | SteleError]]:
        """Yield ``(partition, records or error)`` by partition; no records mean that the next ones take a while.

        In a part of the log they come by offset, the newest part first.

        The end offset of each partition is its last stable offset when the first is read.

        Tombstones are left out below the end offset unless they are requested; after it, they
        are changes, and stay. A corrupt range yields its error, and the partition continues
        after it. Any other error is the last item, such as that the topic was deleted. Ends early when the broker
        closes.
        """
        try:
            tables = await self._tables()
        except SteleError as error:
            yield -1, error
            return
        budget = WorkBudget()
        for table in tables:
            await budget.visit()
            while table.partition not in self.positions:
                try:
                    async with aclosing(table.records()) as slices:
                        async for records in slices:
                            self._check_topic()
                            yield table.partition, records
                            if self._broker.is_closing:
                                return
                    self._check_topic()
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

    def _check_topic(self) -> None:
        """Raise ``TopicRecreated``: what was read may be of another topic of this name."""
        if self._broker.topic(self._topic).topic_id != self._topic_id:
            raise TopicRecreated(self._topic, str(self._topic_id))

    async def _tables(self) -> list[_PartitionTable]:
        tables: list[_PartitionTable] = []
        async for partition in visited(self.partitions):
            state = self._broker.log_state(self._topic, partition)
            tables.append(
                _PartitionTable(
                    self._broker,
                    self._topic,
                    partition,
                    start_offset=state.log_start_offset,
                    end_offset=state.last_stable_offset,
                    reader=self._reader,
                    with_tombstones=self._with_tombstones,
                )
            )
        return tables


class _PartitionTable:
    """Reads the table of one partition, and then what follows from ``position`` on."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        partition: int,
        *,
        start_offset: int,
        end_offset: int,
        reader: DecodedReader,
        with_tombstones: bool,
    ) -> None:
        self.partition = partition
        self.position: int = end_offset
        self._end_offset = end_offset
        self._broker = broker
        self._topic = topic
        self._reader = reader
        self._with_tombstones = with_tombstones
        self._budget = WorkBudget()
        # Where the parts begin that were not read yet, and what was read; its table ends where the newer part begins.
        self._starts = part_starts(start_offset, end_offset)
        self._part: NewestOffsets | None = None
        self._read_from: int = end_offset

    @property
    def can_skip(self) -> bool:
        """Whether it can go on after a corrupt range.

        It cannot before it knows which records are the newest.
        """
        return self._part is not None or not self._starts

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
        while self._part is not None or self._starts:
            async with aclosing(self._of_part()) as slices:
                async for records in slices:
                    yield records
        keyed, topic, partition = self._broker.keyed, self._topic, self.partition
        while self.position < max(self._end_offset, keyed.compacted_until(topic, partition)):
            self.position = max(self.position, self._broker.log_state(topic, partition).log_start_offset)
            async with aclosing(self._piece(None)) as slices:
                async for records in slices:
                    yield records

    async def _of_part(self) -> AsyncGenerator[list[RecordView]]:
        """Yield what is new in the next part of the log, or the rest of it."""
        if self._part is None:
            async with aclosing(self._next_part()) as waits:
                async for _ in waits:
                    yield []
        part, loop = self._part, asyncio.get_running_loop()
        assert part is not None
        yielded_s = loop.time()
        while (position := part.next_from(self.position)) < part.end_offset:
            self.position = position
            async with aclosing(self._piece(part)) as slices:
                async for records in slices:
                    yield records
                    yielded_s = loop.time()
            if loop.time() - yielded_s >= PROGRESS_S:
                # Tombstones only.
                yield []
                yielded_s = loop.time()
        self._part, self.position = None, self._end_offset

    async def _next_part(self) -> AsyncGenerator[None]:
        """Find the newest records of the next part; yield before that takes a while, and while it does."""
        start = self._starts[-1]
        if self._read_from < self._end_offset:
            yield
        finding = asyncio.ensure_future(
            self._broker.keyed.newest_offsets(
                self._topic, self.partition, self._end_offset, start_offset=start
            )
        )
        try:
            while not (await asyncio.wait((finding,), timeout=PROGRESS_S))[0]:
                yield
            newest = finding.result()
        finally:
            finding.cancel()
            await asyncio.gather(finding, return_exceptions=True)
        begin = min(newest.start_offset, self._read_from)
        self._part = newest.within(begin, self._read_from)
        self._starts = [older for older in self._starts if older < min(start, begin)]
        self._read_from = self.position = begin

    async def _piece(self, newest: NewestOffsets | None) -> AsyncGenerator[list[RecordView]]:
        """Read once from ``position`` on: the ``newest`` records, or all."""
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
            if newest is not None:
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
        self, fetched: Fetched, header: BatchHeader, newest: NewestOffsets | None
    ) -> AsyncGenerator[list[RecordView]]:
        wanted = None if newest is None else frozenset(newest.between(self.position, header.next_offset))
        async with aclosing(
            batch_in_turns(fetched, header, self.position, self._budget, self._reader)
        ) as slices:
            async for records in slices:
                if wanted is not None:
                    records = [
                        record
                        for record in records
                        if record.offset in wanted and (self._with_tombstones or record.value is not None)
                    ]
                if records:
                    yield records
