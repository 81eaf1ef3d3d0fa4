"""Follow the records of a topic live, at a rate that the reader can set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import islice
from uuid import UUID

from stele.wire.isolation_level import IsolationLevel

from ..broker.broker import Broker
from ..broker.reading.decoded_bytes import DecodedReader
from ..broker.reading.fetch import batch_in_turns
from ..broker.reading.tail_subscriptions import TailSubscription
from ..errors import CorruptLog, SteleError, TopicError, UnknownTopic
from ..storage.engine import LogState
from ..work_budget import WorkBudget, pause
from .tail_reads import TailRead, TailReads, TailSlice

# Concurrent tails with conditions; each decodes every record of its topic.
FILTERED_TAILS_MAX = 16
# Between two looks for new appends.
_PARTITIONS_PER_ROUND = 32
# A rate per second is enforced per quarter of a second.
_PACE_S = 0.25


class Tail:
    """Reads from ``positions`` (offset per partition) on, and advances them.

    The tail reads only partitions that have unread records: it checks each partition
    once at the start, and later those that records were appended to.
    """

    def __init__(
        self,
        broker: Broker,
        topic: str,
        positions: dict[int, int],
        *,
        topic_id: UUID | None = None,
        only: int | None,
        is_scan: bool,
        idle_s: float,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        reads: TailReads | None = None,
        reader: DecodedReader | None = None,
    ) -> None:
        """``reads`` are shared with other tails; ``reader`` holds room for large batches.

        With ``topic_id``, the positions are those of the topic with this id.
        """
        self.positions = positions
        self.idle_s = idle_s
        self._broker = broker
        self._topic = topic
        self._topic_id = topic_id
        self._only = only
        self._is_scan = is_scan
        self._reads = reads or TailReads(broker)
        self._reader = reader or broker.decoded.reader()
        self._isolation = isolation
        # While ``records`` runs.
        self._subscription: TailSubscription
        self._unread: dict[int, None] = {}

    async def records(self) -> AsyncGenerator[tuple[int, TailSlice | SteleError | None]]:
        """Yield ``(partition, records or error)``.

        ``(-1, None)`` after ``idle_s`` without records.

        A corrupt range yields its error, and the tail continues after it. Any other
        error is yielded as the last item. Ends when the broker closes.
        """
        with self._broker.subscribe_tail(self._topic, self._only) as self._subscription:
            try:
                topic = self._broker.topic(self._topic)
                if self._topic_id not in (None, topic.topic_id):
                    raise UnknownTopic(self._topic)
                partitions = range(topic.partitions)
                budget = WorkBudget()
                for partition in partitions if self._only is None else [self._only]:
                    state = self._broker.log_state(self._topic, partition)
                    # A partition added since the request is read from its start.
                    offset = self.positions.setdefault(partition, state.log_start_offset)
                    if self._end_of(state) != offset:
                        self._unread[partition] = None
                    await budget.visit()
                while not self._broker.is_closing:
                    if not self._unread:
                        await self._subscription.wait(self.idle_s)
                    self._note_appends()
                    if not self._unread:
                        yield -1, None
                        continue
                    for partition in list(islice(self._unread, _PARTITIONS_PER_ROUND)):
                        read = await self._reads.read(
                            self._topic,
                            partition,
                            self.positions[partition],
                            self._isolation,
                            is_scan=self._is_scan,
                        )
                        if self._subscription.is_ended:
                            # What was read may be of another topic of this name.
                            raise UnknownTopic(self._topic)
                        if not read.fetched.batches and read.fetched.error is None:
                            # Nothing more until the next append, whatever its end is.
                            self._unread.pop(partition, None)
                            continue
                        async with aclosing(self._slices_of(read)) as slices:
                            async for piece in slices:
                                yield partition, piece
                        # Otherwise it would be kept alive by a tail that waits.
                        del read
                    if self._unread or self._subscription.has_news:
                        await pause()
            except SteleError as error:
                yield -1, error

    def _end_of(self, state: LogState) -> int:
        is_committed = self._isolation is IsolationLevel.READ_COMMITTED
        return state.last_stable_offset if is_committed else state.high_watermark

    def _note_appends(self) -> None:
        if self._subscription.is_ended:
            raise UnknownTopic(self._topic)
        for partition in self._subscription.take():
            if partition not in self.positions:
                self.positions[partition] = self._broker.log_state(self._topic, partition).log_start_offset
            self._unread[partition] = None

    async def _slices_of(self, read: TailRead) -> AsyncGenerator[TailSlice | SteleError]:
        positions, fetched = self.positions, read.fetched
        partition, error = fetched.partition, fetched.error or read.corrupt
        turn = WorkBudget()
        if read.size:
            self._reader.share(read.size)
        try:
            for header, known in read.parts:
                following = positions[partition]
                if known is None:
                    async with aclosing(
                        batch_in_turns(fetched, header, read.offset, turn, self._reader)
                    ) as slices:
                        async for records in slices:
                            following = positions[partition] = records[-1].offset + 1
                            yield TailSlice(records)
                            if positions[partition] != following:
                                break
                elif not known:
                    # There may be any number of them in a row.
                    await turn.visit()
                else:
                    for piece in known:
                        following = positions[partition] = piece.records[-1].offset + 1
                        yield piece
                        if positions[partition] != following:
                            break
                        await turn.spend(piece.size, len(piece.records))
                if positions[partition] != following:
                    # The consumer has called ``skip`` meanwhile.
                    error = None
                    break
                # Compaction may have removed the last records of the batch.
                positions[partition] = header.next_offset
        except CorruptLog as corrupt:
            error = corrupt
        finally:
            if read.size:
                self._reader.unshare(read.size)
        if error is not None:
            if not isinstance(error, CorruptLog):
                raise error
            # Reported; the records after the corrupt range follow.
            yield error
            positions[partition] = max(positions[partition], error.next_offset)
        # Reading the rest of this partition waits until the others have been read.
        self._unread.pop(partition, None)
        # The read may be older than the last append that this tail knows of.
        if positions[partition] < self._end_of(self._broker.log_state(self._topic, partition)):
            self._unread[partition] = None

    async def skip(self, kept: int) -> dict[int, int]:
        """Skip to the newest ``kept`` records; returns the number of skipped ones per partition."""
        skipped: dict[int, int] = {}
        try:
            self._note_appends()
            kept = max(1, kept // max(1, len(self._unread)))
            budget = WorkBudget()
            for partition in list(self._unread):
                ahead = self._end_of(self._broker.log_state(self._topic, partition)) - kept
                if ahead > self.positions[partition]:
                    skipped[partition] = ahead - self.positions[partition]
                    self.positions[partition] = ahead
                await budget.visit()
        except TopicError:
            # Deleted; the next read reports it.
            pass
        return skipped


class Pace:
    """Limits a tail to ``per_s_max`` records per second, of which the newest are kept."""

    def __init__(self, tail: Tail, per_s_max: int) -> None:
        self._tail = tail
        self._budget = max(1, round(per_s_max * _PACE_S))
        self._shown = 0
        self._until_s = 0.0

    async def spend(self, shown: int) -> dict[int, int]:
        """Count ``shown`` records; beyond the rate, wait and skip.

        Returns the number of skipped records per partition.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until_s:
            self._shown, self._until_s = 0, loop.time() + _PACE_S
        self._shown += shown
        if self._shown < self._budget:
            return {}
        await asyncio.sleep(self._until_s - loop.time())
        return await self._tail.skip(self._budget)
