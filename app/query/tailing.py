"""Follow the records of a topic live, at a rate that the reader can set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import islice

from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import RecordView

from ..broker.broker import Broker
from ..broker.fetch import Fetched, PartitionFetch, batch_in_turns, batches_from, read_bound
from ..broker.tail_subscriptions import TailSubscription
from ..errors import CorruptLog, SteleError, TopicError, UnknownTopic
from ..storage.engine import LogState
from ..work_budget import WorkBudget, pause, pause_among_partitions

# Concurrent tails with conditions; each decodes every record of its topic.
FILTERED_TAILS_MAX = 16
_TAIL_BYTES = 256 * 1024
# Reading all of 10,000 partitions at once would hold the loop for too long.
_PARTITIONS_PER_READ = 32
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
        only: int | None,
        is_scan: bool,
        idle_s: float,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self.positions = positions
        self.idle_s = idle_s
        self._broker = broker
        self._topic = topic
        self._only = only
        self._is_scan = is_scan
        self._isolation = isolation
        self._subscription = TailSubscription(only)
        self._unread: dict[int, None] = {}

    async def records(self) -> AsyncGenerator[tuple[int, list[RecordView] | SteleError]]:
        """Yield ``(partition, records or error)``.

        ``(-1, [])`` after ``idle_s`` without records.

        A corrupt range yields its error, and the tail continues after it. Any other
        error is yielded as the last item. Ends when the broker closes.
        """
        with self._broker.subscribe_tail(self._topic, self._only) as self._subscription:
            try:
                partitions = range(self._broker.topic(self._topic).partitions)
                for number, partition in enumerate(partitions if self._only is None else [self._only], 1):
                    state = self._broker.log_state(self._topic, partition)
                    # A partition added since the request is read from its start.
                    offset = self.positions.setdefault(partition, state.log_start_offset)
                    if self._end_of(state) != offset:
                        self._unread[partition] = None
                    await pause_among_partitions(number)
                while not self._broker.is_closing:
                    if not self._unread:
                        await self._subscription.wait(self.idle_s)
                    self._note_appends()
                    if not self._unread:
                        yield -1, []
                        continue
                    reads = await self._read()
                    if not any(fetched.batches or fetched.error for _, fetched in reads):
                        # Nothing more until the next append, whatever their ends are.
                        for _, fetched in reads:
                            self._unread.pop(fetched.partition, None)
                        continue
                    for offset, fetched in reads:
                        async with aclosing(self._records_of(offset, fetched)) as slices:
                            async for records in slices:
                                yield fetched.partition, records
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

    async def _read(self) -> list[tuple[int, Fetched]]:
        requests = [
            PartitionFetch(
                topic=self._topic,
                partition=partition,
                offset=self.positions[partition],
                max_bytes=_TAIL_BYTES,
                isolation=self._isolation,
            )
            for partition in islice(self._unread, _PARTITIONS_PER_READ)
        ]
        results = await self._broker.fetch(requests, max_bytes=_TAIL_BYTES, is_scan=self._is_scan)
        return [(request.offset, fetched) for request, fetched in zip(requests, results, strict=True)]

    async def _records_of(
        self, offset: int, fetched: Fetched
    ) -> AsyncGenerator[list[RecordView] | SteleError]:
        positions, partition, error = self.positions, fetched.partition, fetched.error
        if positions[partition] != offset:
            # ``skip`` has moved the position since the read.
            return
        if error is None:
            try:
                turn = WorkBudget()
                for header in batches_from(fetched, offset):
                    following = positions[partition]
                    async with aclosing(batch_in_turns(fetched, header, offset, turn)) as slices:
                        async for records in slices:
                            following = positions[partition] = records[-1].offset + 1
                            yield records
                            if positions[partition] != following:
                                break
                    if positions[partition] != following:
                        # The consumer has called ``skip`` meanwhile.
                        break
                    # Compaction may have removed the last records of the batch.
                    positions[partition] = header.next_offset
            except CorruptLog as corrupt:
                error = corrupt
        if error is not None:
            if not isinstance(error, CorruptLog):
                raise error
            # Reported; the records after the corrupt range follow.
            yield error
            positions[partition] = max(positions[partition], error.next_offset)
        # Reading the rest of this partition waits until the others have been read.
        self._unread.pop(partition, None)
        if positions[partition] < read_bound(fetched):
            self._unread[partition] = None

    async def skip(self, kept: int) -> dict[int, int]:
        """Skip to the newest ``kept`` records.

        Returns the number of skipped ones per partition.
        """
        skipped: dict[int, int] = {}
        try:
            self._note_appends()
            kept = max(1, kept // max(1, len(self._unread)))
            for number, partition in enumerate(list(self._unread), 1):
                ahead = self._end_of(self._broker.log_state(self._topic, partition)) - kept
                if ahead > self.positions[partition]:
                    skipped[partition] = ahead - self.positions[partition]
                    self.positions[partition] = ahead
                await pause_among_partitions(number)
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
