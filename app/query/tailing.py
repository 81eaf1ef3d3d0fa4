"""A live tail: the records of a topic as they are appended, at a pace that its reader can follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import islice

from stele.wire.record_batch import RecordView

from ..broker.broker import Broker
from ..broker.fetch import Fetched, PartitionFetch, records_in_turns
from ..broker.tail_subscriptions import TailSubscription
from ..errors import CorruptLog, SteleError, TopicError, UnknownTopic
from ..work_budget import pause, pause_among_partitions

# Tails with conditions at once: each decodes every record of its topic for itself.
FILTERED_TAILS_MAX = 16
_TAIL_BYTES = 256 * 1024
# Read together; with all of ten thousand, one read would hold the loop.
_PARTITIONS_PER_READ = 32
# A tail that is to show so many records a second shows a quarter of them in a quarter of one.
_PACE_S = 0.25


class Tail:
    """Reads on from ``positions`` (offsets by partition), which move with what was read.

    Of all partitions only those are looked at that have records behind them:
    at first each once, then those that were appended to.
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
    ) -> None:
        self.positions = positions
        self.idle_s = idle_s
        self._broker = broker
        self._topic = topic
        self._only = only
        self._is_scan = is_scan
        self._subscription = TailSubscription(only)
        self._behind: dict[int, None] = {}

    async def records(self) -> AsyncGenerator[tuple[int, list[RecordView] | SteleError]]:
        """Records with their partition, as they come; an empty list when none came for ``idle_s``.

        Ends with an error that is not damage of the log, and when the broker closes.
        """
        with self._broker.subscribe_tail(self._topic, self._only) as self._subscription:
            try:
                partitions = range(self._broker.topic(self._topic).partitions)
                for number, partition in enumerate(partitions if self._only is None else [self._only], 1):
                    state = self._broker.log_state(self._topic, partition)
                    # Of one that was added since, nothing was seen.
                    offset = self.positions.setdefault(partition, state.log_start_offset)
                    if state.high_watermark != offset:
                        self._behind[partition] = None
                    await pause_among_partitions(number)
                while not self._broker.is_closing:
                    if not self._behind:
                        await self._subscription.wait(self.idle_s)
                    self._note_appends()
                    if not self._behind:
                        yield -1, []
                        continue
                    for offset, fetched in await self._read():
                        async with aclosing(self._records_of(offset, fetched)) as found:
                            async for records in found:
                                yield fetched.partition, records
                    await pause()
            except SteleError as error:
                yield -1, error

    def _note_appends(self) -> None:
        if self._subscription.is_ended:
            raise UnknownTopic(self._topic)
        for partition in self._subscription.take():
            if partition not in self.positions:
                self.positions[partition] = self._broker.log_state(self._topic, partition).log_start_offset
            self._behind[partition] = None

    async def _read(self) -> list[tuple[int, Fetched]]:
        requests = [
            PartitionFetch(
                topic=self._topic,
                partition=partition,
                offset=self.positions[partition],
                max_bytes=_TAIL_BYTES,
            )
            for partition in islice(self._behind, _PARTITIONS_PER_READ)
        ]
        results = await self._broker.fetch(requests, max_bytes=_TAIL_BYTES, is_scan=self._is_scan)
        return [(request.offset, fetched) for request, fetched in zip(requests, results, strict=True)]

    async def _records_of(
        self, offset: int, fetched: Fetched
    ) -> AsyncGenerator[list[RecordView] | SteleError]:
        positions, partition, error = self.positions, fetched.partition, fetched.error
        if positions[partition] != offset:
            # Left out since it was read.
            return
        if error is None:
            try:
                async with aclosing(records_in_turns(fetched, offset)) as slices:
                    async for records in slices:
                        following = positions[partition] = records[-1].offset + 1
                        yield records
                        if positions[partition] != following:
                            # Whoever takes them has left out what follows.
                            break
            except CorruptLog as damage:
                error = damage
        if error is not None:
            if not isinstance(error, CorruptLog):
                raise error
            # Reported; what is behind the damage still comes.
            yield error
            positions[partition] = max(positions[partition], error.next_offset)
        # Behind the others, if there is more of it.
        self._behind.pop(partition, None)
        if positions[partition] < fetched.high_watermark:
            self._behind[partition] = None

    async def leave_out(self, kept: int) -> dict[int, int]:
        """Go on with the newest ``kept`` records; how many were left out, by partition."""
        left_out: dict[int, int] = {}
        try:
            self._note_appends()
            kept = max(1, kept // max(1, len(self._behind)))
            for number, partition in enumerate(list(self._behind), 1):
                ahead = self._broker.log_state(self._topic, partition).high_watermark - kept
                if ahead > self.positions[partition]:
                    left_out[partition] = ahead - self.positions[partition]
                    self.positions[partition] = ahead
                await pause_among_partitions(number)
        except TopicError:
            # Deleted: the next read says so.
            pass
        return left_out


class Pace:
    """Lets so many records a second through; of the others it takes the newest, and counts what it leaves out."""

    def __init__(self, tail: Tail, per_s_max: int) -> None:
        self._tail = tail
        self._budget = max(1, round(per_s_max * _PACE_S))
        self._shown = 0
        self._until_s = 0.0

    async def spend(self, shown: int) -> dict[int, int]:
        """Records that were left out, by partition; the tail goes on behind them."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until_s:
            self._shown, self._until_s = 0, loop.time() + _PACE_S
        self._shown += shown
        if self._shown < self._budget:
            return {}
        await asyncio.sleep(self._until_s - loop.time())
        return await self._tail.leave_out(self._budget)
