"""Reading partitions: fetches, the waits for more, and what the log of a partition reports.

``PartitionReader`` serves stored partitions from the engine and virtual ones from their
owners, in one call. Callers use it through ``Broker``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from stele.wire import record_batch as rb
from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

from ...clock import Clock
from ...errors import SteleError, StorageUnavailable, UnknownPartition, UnknownTopic
from ...settings import Settings
from ...storage.engine import LogEngine, LogState, PartitionFetch, PartitionRead
from ...storage.topic_partition import TopicPartition
from ...storage.waiters import PartitionWatch
from ...work_budget import SMALL_VISIT, WorkBudget, visited
from ..counts import Counts
from ..topics import Topics
from ..virtual import MAX_TIMESTAMP, PartitionLeader, VirtualTopics
from .fetch import bytes_of, needs_more


class PartitionReader:
    """Reads the partitions of one broker.

    ``Broker`` has the same methods, and documents them.
    """

    def __init__(
        self,
        *,
        engine: LogEngine,
        topics: Topics,
        virtual: VirtualTopics,
        clock: Clock,
        settings: Settings,
        counts: Counts,
    ) -> None:
        self._engine = engine
        self._topics = topics
        self._virtual = virtual
        self._clock = clock
        self._settings = settings
        self._counts = counts
        self._is_closing = False

    def begin_close(self) -> None:
        """End the waits under way; later ones return at once."""
        self._is_closing = True
        self._engine.wake_all()

    # ── fetch ──

    async def fetch(
        self,
        requests: Sequence[PartitionFetch],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        is_scan: bool,
        with_internal: bool,
    ) -> list[PartitionRead]:
        max_wait_ms = min(max_wait_ms, self._settings.fetch_wait_ms_max)
        deadline_ms = self._clock.monotonic_ms() + max_wait_ms
        while True:
            reads = await self.read(
                requests, max_bytes=max_bytes, with_internal=with_internal, refreshes=not max_wait_ms
            )
            have = bytes_of(reads)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or self._is_closing or not needs_more(requests, reads, min_bytes):
                if not is_scan:
                    self._counts.fetched_bytes += have
                return reads
            await self.wait_for_more(requests, reads, min_bytes=min_bytes - have, timeout_ms=left_ms)

    async def read(
        self, requests: Sequence[PartitionFetch], *, max_bytes: int, with_internal: bool, refreshes: bool
    ) -> list[PartitionRead]:
        max_bytes = min(max_bytes, self._settings.fetch_bytes_max)
        reads = await self._read(requests, max_bytes, with_internal=with_internal)
        if not refreshes or bytes_of(reads):
            return reads
        names = [TopicPartition(read.topic, read.partition) for read in reads if read.error is None]
        try:
            if len(names) == len(reads) and await self._engine.refresh(names):
                return await self._read(requests, max_bytes, with_internal=with_internal)
        except StorageUnavailable as error:
            return [replace(read, error=error) for read in reads]
        return reads

    async def wait_for_more(
        self,
        requests: Sequence[PartitionFetch],
        reads: Sequence[PartitionRead],
        *,
        min_bytes: int,
        timeout_ms: int,
    ) -> None:
        isolation = _isolation_of(requests)
        positions = {
            TopicPartition(read.topic, read.partition): (
                read.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else read.high_watermark
            )
            for read in reads
        }
        await self._wait(positions, min_bytes, timeout_ms, isolation)

    def fetch_now(self, requests: Sequence[PartitionFetch], *, max_bytes: int) -> list[PartitionRead] | None:
        for request in requests:
            name = request.topic
            topic = self._topics.get(name)
            if topic is None or not 0 <= request.partition < topic.partitions or name in self._virtual:
                return None
        max_bytes = min(max_bytes, self._settings.fetch_bytes_max)
        return self._engine.read_now(requests, max_bytes)

    async def _read(
        self, requests: Sequence[PartitionFetch], max_bytes: int, *, with_internal: bool
    ) -> list[PartitionRead]:
        """Read stored and virtual partitions once, in the order of ``requests``."""
        refused: dict[int, PartitionRead] = {}
        virtual: list[int] = []
        budget = WorkBudget()
        for index, request in enumerate(requests):
            if with_internal and request.topic in self._virtual:
                virtual.append(index)
            elif (error := self._refuse_fetch(request)) is not None:
                refused[index] = PartitionRead(topic=request.topic, partition=request.partition, error=error)
            await budget.visit()
        if not refused and not virtual:
            return await self._engine.read(requests, max_bytes)
        not_stored = {*refused, *virtual}
        stored = [index for index in range(len(requests)) if index not in not_stored]
        reads = await self._engine.read([requests[index] for index in stored], max_bytes)
        left = max(0, max_bytes - sum(len(read.batches) for read in reads))
        by_index = refused | dict(zip(stored, reads, strict=True))
        if virtual:
            made = await self._virtual.fetch(
                [requests[index] for index in virtual], left, at_least_one=left == max_bytes
            )
            by_index |= zip(virtual, made, strict=True)
        return [by_index[index] for index in range(len(requests))]

    def _refuse_fetch(self, request: PartitionFetch) -> SteleError | None:
        topic = self._topics.get(request.topic)
        if topic is None:
            try:
                self._topics.topic(request.topic)
            except SteleError as error:
                return error
            return UnknownTopic(request.topic)
        if not 0 <= request.partition < topic.partitions:
            return UnknownPartition(request.topic, request.partition, partitions=topic.partitions)
        return None

    async def _wait(
        self,
        positions: Mapping[TopicPartition, int],
        min_bytes: int,
        timeout_ms: int,
        isolation: IsolationLevel,
    ) -> None:
        """``LogEngine.wait``, where some of the partitions may be virtual."""
        virtual = {name: offset for name, offset in positions.items() if name.topic in self._virtual.names}
        if not virtual:
            await self._engine.wait(positions, min_bytes, timeout_ms, isolation=isolation)
            return
        stored = {name: offset for name, offset in positions.items() if name not in virtual}
        waits = [asyncio.ensure_future(self._virtual.wait(virtual, timeout_ms))]
        if stored:
            stored_wait = self._engine.wait(stored, min_bytes, timeout_ms, isolation=isolation)
            waits.append(asyncio.ensure_future(stored_wait))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def wait_for_append(
        self, positions: Mapping[tuple[str, int], int], timeout_ms: int, *, isolation: IsolationLevel
    ) -> None:
        if not self._is_closing:
            names = {TopicPartition(*name): offset for name, offset in positions.items()}
            await self._engine.wait(names, 1, timeout_ms, isolation=isolation)

    def watch(self, *, notes_hidden: bool) -> PartitionWatch:
        return self._engine.waiters.watch(notes_hidden=notes_hidden)

    # ── one partition's log ──

    async def refresh(self, partitions: Iterable[tuple[str, int]]) -> None:
        stored: list[TopicPartition] = []
        async for name, partition in visited(partitions, SMALL_VISIT):
            topic = self._topics.get(name)
            if topic is not None and 0 <= partition < topic.partitions:
                stored.append(TopicPartition(name, partition))
        await self._engine.refresh(stored)

    async def list_offset(
        self, topic: str, partition: int, at: int, *, isolation: IsolationLevel, is_refreshed: bool
    ) -> tuple[int, int, int]:
        if topic in self._virtual:
            return await self._virtual.list_offset(topic, partition, at)
        name = self._topics.partition(topic, partition)
        if not is_refreshed:
            await self._engine.refresh([name])
        state = self._engine.state(name)
        is_committed = isolation is IsolationLevel.READ_COMMITTED
        end_offset = state.last_stable_offset if is_committed else state.high_watermark
        if at == LATEST_TIMESTAMP:
            return end_offset, rb.NO_TIMESTAMP, state.leader_epoch
        if at == EARLIEST_TIMESTAMP:
            return state.log_start_offset, rb.NO_TIMESTAMP, state.leader_epoch
        if at == MAX_TIMESTAMP:
            at = await self._engine.max_timestamp(name)
            if at == rb.NO_TIMESTAMP:
                return -1, rb.NO_TIMESTAMP, state.leader_epoch
        found = await self._engine.offset_for_time(name, at)
        # A transaction that was open may have ended meanwhile, which does not matter.
        return found if found[0] < end_offset else (-1, rb.NO_TIMESTAMP, state.leader_epoch)

    def epoch_end_offset(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        if epoch < 0:
            return -1, -1
        if topic in self._virtual:
            return self._virtual.epoch_end_offset(topic, partition, epoch)
        name = self._topics.partition(topic, partition)
        state = self._engine.state(name)
        if state.leader_epoch <= epoch <= max(state.leader_epoch, self._engine.leader_epoch(name)):
            # The current epoch may have no batch yet.
            return epoch, state.log_end_offset
        if epoch > state.leader_epoch:
            # The epoch has not begun, so its end is unknown.
            return -1, -1
        return self._engine.epoch_end_offset(name, epoch)

    def log_state(self, topic: str, partition: int) -> LogState:
        if topic in self._virtual:
            return self._virtual.state(topic, partition)
        return self._engine.state(self._topics.partition(topic, partition))

    def leader(self, topic: str, partition: int) -> PartitionLeader | None:
        return self._virtual.leader(topic, partition) if topic in self._virtual else None

    def check_partition(self, topic: str, partition: int) -> None:
        if topic in self._virtual:
            self._virtual.check(topic, partition)
        else:
            self._topics.partition(topic, partition)

    def leader_epoch(self, topic: str, partition: int) -> int:
        if topic in self._virtual:
            return self._virtual.state(topic, partition).leader_epoch
        return self._engine.leader_epoch(self._topics.partition(topic, partition))

    def oldest_leader_epoch(self, topic: str, partition: int) -> int:
        if topic in self._virtual:
            return self._virtual.state(topic, partition).leader_epoch
        return self._engine.oldest_leader_epoch(self._topics.partition(topic, partition))


def _isolation_of(requests: Sequence[PartitionFetch]) -> IsolationLevel:
    """Return READ_COMMITTED if all requests have it."""
    for request in requests:
        if request.isolation is IsolationLevel.READ_UNCOMMITTED:
            return request.isolation
    return IsolationLevel.READ_COMMITTED
