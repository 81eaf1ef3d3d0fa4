"""Sample totals and sizes of the broker at an interval, at a bounded cost.

The console, ``stele top`` and ``/metrics`` read the samples, so that no scrape and no
open page walks over thousands of partitions on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..broker.broker import Broker
from ..broker.listeners import ListenerView
from ..errors import StorageError, TopicError
from ..groups.lag import PartitionLag, group_lag
from ..groups.services import GroupServices, group_names
from ..storage.disk_views import DiskSpace
from ..storage.topic_partition import TopicPartition
from ..transactions.interface import TransactionService
from ..work_budget import PARTITIONS_PER_TURN, pause
from .group_sampler import GroupSampler
from .histories import Point, PointHistory

logger = logging.getLogger(__name__)

# Sync times kept between two samples; further syncs are only counted.
_SYNCS_KEPT = 4096
_PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class TopicSize:
    """Size of a topic; ``end_offsets`` is the sum of the end offsets of its partitions."""

    end_offsets: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CompactionState:
    """The number of partitions of compacted topics.

    ``due`` of them exceed their ``min.cleanable.dirty.ratio``.

    ``dirty_ratio_max`` is the largest part of a partition that is new since its last pass, 0 to 1.
    """

    partitions: int = 0
    due: int = 0
    dirty_ratio_max: float = 0.0


@dataclass(frozen=True, slots=True)
class StableOffsetHolds:
    """Partitions whose last stable offset is held back by an open transaction.

    ``oldest_ms`` is how long the oldest transaction that holds one back has been open, as far as known. ``hanging``
    counts the transactions per partition that no coordinator knows.
    """

    partitions: int = 0
    oldest_ms: int = 0
    hanging: int = 0


class SyncTimes:
    """Counts syncs, and keeps the times of those since the last ``take``."""

    def __init__(self) -> None:
        self.count = 0
        self._recent: deque[float] = deque(maxlen=_SYNCS_KEPT)

    def observe(self, seconds: float) -> None:
        """Add the time of one sync."""
        self.count += 1
        self._recent.append(seconds)

    def take(self) -> tuple[float | None, float | None]:
        """Return the median and 99th percentile of syncs in ms, and reset.

        None if there was no sync.
        """
        if not self._recent:
            return None, None
        ordered = sorted(self._recent)
        self._recent.clear()
        last = len(ordered) - 1
        return ordered[last // 2] * 1000, ordered[round(last * 0.99)] * 1000


class Sampler:
    """Samples the broker every ``interval_ms``, from ``start`` to ``stop``."""

    def __init__(
        self,
        broker: Broker,
        groups: GroupServices,
        transactions: TransactionService,
        listeners: Sequence[ListenerView],
    ) -> None:
        self._broker = broker
        self._groups = groups
        self._transactions = transactions
        self.listeners = listeners
        self.groups = GroupSampler(
            lambda: group_names(groups),
            self._measure_group,
            own_max=broker.settings.metrics_groups_max,
        )
        self.syncs = SyncTimes()
        self.interval_ms = broker.settings.sample_interval_ms
        self.started_ms = broker.now_ms()
        self._started_monotonic_ms = broker.monotonic_ms()
        self.history = PointHistory()
        self.topic_sizes: dict[str, TopicSize] = {}
        self.compaction = CompactionState()
        self.holds = StableOffsetHolds()
        self.disk: DiskSpace | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def uptime_ms(self) -> int:
        return self._broker.monotonic_ms() - self._started_monotonic_ms

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            begin_s = time.monotonic()
            try:
                await self.sample()
            except Exception:  # the edge of a task: one failed sample must not end sampling
                logger.exception("taking a sample failed; the next one follows at the usual interval")
            spent_s = time.monotonic() - begin_s
            await asyncio.sleep(max(self.interval_ms / 1000 - spent_s, 0.05))

    async def sample(self) -> None:
        """Take one sample of topics, groups, disk and traffic."""
        broker = self._broker
        log_bytes = await self._measure_topics()
        await self.groups.sample(broker.now_ms)
        try:
            self.disk = await broker.storage.disk_space()
        except StorageError as error:
            logger.warning("cannot read the free space of the disk: %s", error)
            self.disk = None
        traffic = [listener.traffic() for listener in self.listeners]
        p50_ms, p99_ms = self.syncs.take()
        counts = broker.counts
        self.history.add(
            Point(
                at_ms=broker.now_ms(),
                monotonic_ms=broker.monotonic_ms(),
                records_in=counts.appended_records,
                bytes_in=counts.appended_bytes,
                bytes_out=counts.fetched_bytes,
                listener_bytes_in=tuple(listener.bytes_in for listener in traffic),
                listener_bytes_out=tuple(listener.bytes_out for listener in traffic),
                listener_connections=tuple(listener.connections for listener in traffic),
                syncs=self.syncs.count,
                sync_p50_ms=p50_ms,
                sync_p99_ms=p99_ms,
                log_bytes=log_bytes,
                free_bytes=None if self.disk is None else self.disk.free_bytes,
            )
        )

    async def _measure_topics(self) -> int:
        sizes: dict[str, TopicSize] = {}
        # Dirty ratio of each compacted partition, and whether a pass is due.
        ratios: list[tuple[float, bool]] = []
        held_back: list[TopicPartition] = []
        left = PARTITIONS_PER_TURN
        for topic in self._broker.topics():
            end_offsets = records = size_bytes = 0
            is_compacted = topic.config.is_compacted
            try:
                for partition in range(topic.partitions):
                    state = self._broker.log_state(topic.name, partition)
                    end_offsets += state.high_watermark
                    records += state.high_watermark - state.log_start_offset
                    size_bytes += state.size_bytes
                    if state.last_stable_offset < state.high_watermark:
                        held_back.append(TopicPartition(topic.name, partition))
                    if is_compacted and (
                        compaction := self._broker.storage.partition_compaction(topic.name, partition)
                    ):
                        ratio = compaction.dirty_ratio
                        is_due = compaction.cleaner == "due"
                        ratios.append((ratio, is_due or ratio > topic.config.min_cleanable_dirty_ratio))
                    left -= 1
                    if not left:
                        left = PARTITIONS_PER_TURN
                        await pause()
            except TopicError:
                # Deleted during a pause.
                continue
            sizes[topic.name] = TopicSize(end_offsets, records, size_bytes)
        self.topic_sizes = sizes
        self.holds = await self._holds(held_back)
        self.compaction = CompactionState(
            partitions=len(ratios),
            due=sum(is_due for _, is_due in ratios),
            dirty_ratio_max=max((ratio for ratio, _ in ratios), default=0.0),
        )
        return sum(size.size_bytes for size in sizes.values())

    async def _holds(self, held_back: Sequence[TopicPartition]) -> StableOffsetHolds:
        if not held_back:
            return StableOffsetHolds()
        opened = [here for here in (await self._transactions.open_in(held_back)).values() if here]
        now_ms = self._broker.now_ms()
        since_ms = min((here[0].since_ms for here in opened), default=now_ms)
        hanging = sum(transaction.is_hanging for here in opened for transaction in here)
        return StableOffsetHolds(len(opened), now_ms - min(now_ms, since_ms), hanging)

    async def _measure_group(self, name: str) -> tuple[int, list[PartitionLag]]:
        coordinator = self._groups.of(name).coordinator
        lags = await group_lag(self._broker, coordinator, name)
        return coordinator.member_count(name), lags


def resident_bytes() -> int:
    """Return the resident memory of the process; its peak on systems without /proc."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


class StickyNames:
    """Chooses at most ``limit`` names that get their own label.

    A name keeps its label as long as it exists, so that the series of a topic do not
    depend on other topics that are created or deleted.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: dict[str, None] = {}

    def choose(self, existing: Iterable[str]) -> list[str]:
        """Return the names of ``existing`` that have their own label."""
        names = dict.fromkeys(existing)
        for gone in self._names.keys() - names.keys():
            del self._names[gone]
        for name in names:
            if len(self._names) >= self._limit:
                break
            self._names.setdefault(name)
        return list(self._names)
