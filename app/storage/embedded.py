"""The engine on this machine: segments on disk, rings in memory, group commit.

Appends go to the page cache on the event loop; everything that may wait for a
disk (syncs, cold reads, recovery, deletion) runs in threads. The parts:

- ``log_dir``        the threads, and the failure that stops the directory
- ``log_manager``    opening, creating, deleting and closing logs
- ``housekeeping``   checkpoints and retention
- ``flusher``        group commit
- ``open_segments``  how many sealed segments stay open
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from stele.wire.messages import Durability
from stele.wire.record_batch import (
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    set_log_append_time,
    settle_create_time,
)

from ..clock import Clock
from ..errors import CorruptLog, LogDirFailed, SteleError, StorageError, UnknownTopic
from .data_dir import DataDir, Start
from .engine import (
    AppendTicket,
    DiskSpace,
    FetchPlan,
    FetchSpec,
    LogState,
    PartitionSpec,
    SegmentState,
    TopicPartition,
    Verification,
)
from .files import Files, disk_space
from .flusher import Flusher, SyncObserver
from .housekeeping import Housekeeping
from .inspect import VerificationStopped, verify_partition
from .log import DiskLog
from .log_dir import LogDir
from .log_manager import LogManager
from .memory_log import MemoryLog
from .open_segments import OpenSegments
from .partition_log import PartitionLog, Span
from .segment import Segment, SegmentTornError
from .segment_reader import Extent, WouldBlockError
from .topic_config import TopicConfig
from .waiters import Waiters

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Times in ms; see ``settings`` for the reasons."""

    flush_interval_ms: int = 100
    flush_bytes: int = 4 << 20
    checkpoint_interval_ms: int = 10_000
    retention_interval_ms: int = 30_000
    sync_threads: int = 8
    open_segments_max: int = 512


class EmbeddedEngine:
    """Implements ``LogEngine``; one per data directory."""

    def __init__(self, files: Files, path: Path, *, clock: Clock, options: EngineOptions) -> None:
        self._clock = clock
        self._options = options
        self._log_dir = LogDir(files, path, threads=options.sync_threads)
        self._manager = LogManager(self._log_dir, DataDir(files, path), clock)
        self._disk: Mapping[TopicPartition, DiskLog] = self._manager.logs
        self._memory: dict[TopicPartition, MemoryLog] = {}
        self._waiters = Waiters()
        self._open_segments = OpenSegments(options.open_segments_max)
        self._flusher = Flusher(
            self._log_dir.threads, on_failure=lambda log, error: self._log_dir.fail(log.directory, error)
        )
        self._log_dir.on_failure(self._flusher.fail)
        self._log_dir.on_failure(lambda _failure: self._waiters.wake_all())
        self._housekeeping = Housekeeping(
            self._log_dir,
            self._manager,
            self._memory,
            flusher=self._flusher,
            open_segments=self._open_segments,
            clock=clock,
            on_change=self._waiters.changed,
        )

    # ── life ──

    async def open(self) -> Start:
        """Take the data directory; partitions are opened by ``create``.

        Raises:
            DataDirLocked: another broker has it.
            OSError: it cannot be used.
        """
        return await self._manager.open()

    def start_background(self) -> None:
        """Begin checkpoints and retention, once all partitions are open."""
        self._housekeeping.start(
            checkpoint_interval_ms=self._options.checkpoint_interval_ms,
            retention_interval_ms=self._options.retention_interval_ms,
        )

    async def close(self) -> None:
        await self._housekeeping.stop()
        async with self._manager.checkpoints.lock:
            await self._close()

    async def _close(self) -> None:
        self._waiters.wake_all()
        for log in list(self._disk.values()):
            await self._flusher.quiesce(log)
        # A sync that failed just now is not tried again.
        is_clean = self._manager.is_open and self._log_dir.failure is None
        threads = self._options.sync_threads
        try:
            if is_clean:
                await self._manager.close(clean=True, threads=threads)
                await self._manager.checkpoints.save()
        except (OSError, StorageError) as error:
            self._not_closed(error)
            is_clean = False
        await self._manager.close(clean=False, threads=threads)
        try:
            await self._manager.release(clean=is_clean)
        except OSError as error:
            self._not_closed(error)
        self._log_dir.threads.shutdown()

    def _not_closed(self, error: Exception) -> None:
        logger.error("%s was not closed in order, the next start checks it: %s", self._log_dir.path, error)

    @property
    def failure(self) -> StorageError | None:
        return self._log_dir.failure

    def observe_syncs(self, observer: SyncObserver) -> None:
        self._flusher.on_sync = observer

    # ── partitions ──

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        for spec in specs:
            if spec.config.storage == "memory":
                # What was in it before this start is lost, its producers too.
                if not self._housekeeping.has_started:
                    spec.producer_state.clear()
                self._memory[spec.topic_partition] = MemoryLog(spec, self._clock)
        await self._manager.create([spec for spec in specs if spec.config.storage == "disk"])

    async def remove_strays(self) -> None:
        """Finish deletions that a crash interrupted."""
        await self._manager.remove_strays()

    def configure(self, topic_partition: TopicPartition, config: TopicConfig) -> None:
        self._log(topic_partition).config = config

    async def drop(self, topic_partitions: Sequence[TopicPartition]) -> None:
        dropped: list[DiskLog] = []
        for topic_partition in topic_partitions:
            self._waiters.wake(topic_partition)
            self._memory.pop(topic_partition, None)
            log = self._manager.logs.pop(topic_partition, None)
            if log is not None:
                dropped.append(log)
        await self._housekeeping.delete(dropped)

    def _log(self, topic_partition: TopicPartition) -> PartitionLog:
        return self._disk.get(topic_partition) or self._memory[topic_partition]

    def _directory(self, topic_partition: TopicPartition) -> Path:
        """Where to look when the disk fails."""
        log = self._disk.get(topic_partition)
        return self._log_dir.path if log is None else log.directory

    def _find(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self._disk.get(topic_partition) or self._memory.get(topic_partition)

    # ── append ──

    def append(
        self,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[BatchHeader],
        *,
        sync: bool,
    ) -> AppendTicket:
        disk = self._disk.get(topic_partition)
        log: PartitionLog = disk or self._memory[topic_partition]
        if disk is not None and self._log_dir.failure is not None:
            raise LogDirFailed(disk.directory, self._log_dir.failure.cause)
        log_append_time_ms = self._stamp(log.config, batches, headers)
        try:
            base_offset, last_offset = log.append(batches, headers, leader_epoch=self._manager.leader_epoch)
        except OSError as error:
            raise self._log_dir.refuse(self._directory(topic_partition), error) from error
        except SegmentTornError as error:
            raise self._log_dir.fail(error.path, error.cause) from error
        future, durability = None, Durability.NONE
        if disk is not None:
            future = self._sync(disk, sync=sync)
            durability = Durability.APPENDED if future is None else Durability.SYNCED
        self._waiters.appended(topic_partition, len(batches))
        return AppendTicket(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log.log_start_offset,
            durability=durability,
            future=future,
        )

    def _sync(self, log: DiskLog, *, sync: bool) -> asyncio.Future[None] | None:
        """See that what was just appended is synced in time; a future if that is to be waited for."""
        if sync or log.unsynced_records >= log.config.flush_messages:
            return self._flusher.next_round(log)
        if log.config.flush_ms >= 0:
            self._flusher.flush_later(log, log.config.flush_ms)
        elif log.unsynced_bytes >= self._options.flush_bytes:
            self._flusher.next_round(log)
        else:
            self._flusher.flush_later(log, self._options.flush_interval_ms)
        return None

    def _stamp(self, config: TopicConfig, batches: bytearray | memoryview, headers: list[BatchHeader]) -> int:
        if config.message_timestamp_type == "CreateTime":
            for header in headers:
                settle_create_time(batches, header)
            return NO_TIMESTAMP
        now_ms = self._clock.now_ms()
        for header in headers:
            set_log_append_time(batches, header, now_ms)
        return now_ms

    def when_synced(self, topic_partition: TopicPartition, offset: int) -> asyncio.Future[None] | None:
        log = self._disk.get(topic_partition)
        if log is None or log.recovery_point > offset:
            return None
        return self._flusher.next_round(log)

    async def flush(self, topic_partitions: Sequence[TopicPartition] | None = None) -> None:
        if topic_partitions is None:
            logs = list(self._disk.values())
        else:
            logs = [log for name in topic_partitions if (log := self._disk.get(name))]
        failure = self._log_dir.failure
        if failure is not None and logs:
            raise LogDirFailed(failure.path, failure.cause)
        rounds = [self._flusher.next_round(log) for log in logs if log.is_dirty]
        if rounds:
            await asyncio.wait(rounds)
            for future in rounds:
                future.result()

    # ── read ──

    async def plan_fetch(self, specs: Sequence[FetchSpec], max_bytes: int) -> list[FetchPlan]:
        plans: list[FetchPlan] = []
        left, is_empty = max_bytes, True
        for spec in specs:
            plan = await self._plan_one(spec, min(spec.max_bytes, left), at_least_one=is_empty)
            is_empty = is_empty and not plan.size
            left = max(0, left - plan.size)
            plans.append(plan)
        return plans

    async def _plan_one(self, spec: FetchSpec, max_bytes: int, *, at_least_one: bool) -> FetchPlan:
        name = spec.topic_partition
        log = self._find(name)
        if log is None:
            # Dropped since the request was checked.
            return FetchPlan(topic_partition=name, offset=spec.offset, error=UnknownTopic(name.topic))
        span: Span | None = None
        error: SteleError | None = None
        try:
            span = await self._search(log, spec.offset, max_bytes, at_least_one=at_least_one)
        except SteleError as refused:
            error = refused
        except OSError as failed:
            error = LogDirFailed(self._log_dir.path, failed.strerror or str(failed))
        return FetchPlan(
            topic_partition=name,
            offset=spec.offset,
            high_watermark=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            error=error,
            size=0 if span is None else span.size,
            source=span,
            path=None if span is None else span.path,
            position=0 if span is None else span.position,
        )

    async def _search(
        self, log: PartitionLog, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> Span | None:
        deletions = log.deletions
        search = log.plan(offset, max_bytes, at_least_one=at_least_one)
        if search is None:
            return None
        try:
            try:
                return search(True)
            except WouldBlockError:
                return await self._log_dir.in_thread(search, False)
        except FileNotFoundError:
            # Retention may have taken the segment between two looks; then the log start has moved.
            if log.deletions == deletions:
                raise
            return await self._search(log, offset, max_bytes, at_least_one=at_least_one)

    async def read(self, plan: FetchPlan) -> bytes | bytearray:
        span = cast("Span | None", plan.source)
        if span is None:
            return b""
        segment = span.segment if isinstance(span, Extent) else None
        try:
            if segment is not None:
                self._open_segments.touch(segment)
            data = span.read_nowait()
            if data is None:
                data = await self._log_dir.in_thread(span.read)
        except FileNotFoundError:
            log = self._find(plan.topic_partition)
            if log is None or not log.holds(span):
                # Deleted since the plan was made; the next one says so.
                return b""
            raise LogDirFailed(plan.path or self._log_dir.path, "the file is gone") from None
        except OSError as error:
            raise LogDirFailed(plan.path or self._log_dir.path, error.strerror or str(error)) from error
        if len(data) != span.size:
            raise CorruptLog(
                path=plan.path or self._log_dir.path,
                position=span.position + len(data),
                offset=plan.offset,
                next_offset=plan.offset + 1 if segment is None else segment.next_offset,
                reason="the file is shorter than it was",
            )
        return data

    async def wait(self, positions: Mapping[TopicPartition, int], min_bytes: int, timeout_ms: int) -> None:
        for name, offset in positions.items():
            log = self._find(name)
            if log is None or log.log_end_offset > offset:
                return
        await self._waiters.wait(positions, min_bytes=min_bytes, timeout_ms=timeout_ms)

    @property
    def waiters(self) -> Waiters:
        return self._waiters

    def wake_all(self) -> None:
        self._waiters.wake_all()

    def state(self, topic_partition: TopicPartition) -> LogState:
        log = self._log(topic_partition)
        return LogState(
            log_start_offset=log.log_start_offset,
            high_watermark=log.log_end_offset,
            log_end_offset=log.log_end_offset,
            leader_epoch=self._manager.leader_epoch,
            size_bytes=log.size_bytes,
            segments=log.segment_count,
            recovery_point=log.recovery_point,
        )

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        return self._manager.leader_epoch

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int]:
        log = self._log(topic_partition)
        deletions = log.deletions
        try:
            found = await self._log_dir.in_thread(log.time_search(timestamp_ms))
        except CorruptBatchError as error:
            raise CorruptLog(
                path=self._log_dir.path,
                position=error.position,
                offset=log.log_start_offset,
                next_offset=log.log_end_offset,
                reason=error.reason,
            ) from error
        except OSError as error:
            if isinstance(error, FileNotFoundError) and log.deletions != deletions:
                # Retention took it meanwhile.
                return await self.offset_for_time(topic_partition, timestamp_ms)
            raise LogDirFailed(self._directory(topic_partition), error.strerror or str(error)) from error
        return found or (-1, NO_TIMESTAMP, self._manager.leader_epoch)

    def max_timestamp(self, topic_partition: TopicPartition) -> int:
        return self._log(topic_partition).max_timestamp

    def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        log = self._log(topic_partition)
        return log.epochs.end_offset_of(epoch, log_end_offset=log.log_end_offset)

    # ── looking ──

    async def segments(self, topic_partition: TopicPartition) -> list[SegmentState]:
        self._log(topic_partition)
        log = self._disk.get(topic_partition)
        if log is None:
            return []
        segments, recovery_point = list(log.segments), log.recovery_point

        def states() -> list[SegmentState]:
            return [
                SegmentState(
                    base_offset=segment.base_offset,
                    next_offset=segment.next_offset,
                    path=segment.path,
                    size_bytes=segment.size,
                    index_bytes=self._index_bytes(segment),
                    created_ms=segment.created_ms,
                    max_timestamp=segment.max_timestamp,
                    is_sealed=segment.is_sealed or segment is not segments[-1],
                    is_synced=segment.next_offset <= recovery_point,
                    corrupt_ranges=[
                        f"bytes {damage.position} to {damage.end_position}: {damage.reason}"
                        for damage in segment.corrupt_ranges
                    ],
                )
                for segment in segments
            ]

        return await self._log_dir.in_thread(states)

    def _index_bytes(self, segment: Segment) -> int:
        """What the index files of ``segment`` take; retention may remove them meanwhile."""
        size = 0
        for path in (segment.indexes.path, segment.indexes.time_path):
            with contextlib.suppress(FileNotFoundError):
                size += self._log_dir.files.size(path)
        return size

    async def verify(
        self, topic_partition: TopicPartition, should_stop: Callable[[], bool]
    ) -> Verification | None:
        size_bytes = self._log(topic_partition).size_bytes
        log = self._disk.get(topic_partition)
        if log is None:
            return Verification(segments=0, batches=0, records=0, size_bytes=size_bytes, problems=[])
        segments = list(log.segments)
        look = functools.partial(
            verify_partition,
            log.directory,
            ends={segment.path: segment.size for segment in segments},
            sealed={segment.path for segment in segments if segment.is_sealed},
            should_stop=should_stop,
        )
        try:
            found = await self._log_dir.in_thread(look)
        except VerificationStopped:
            return None
        except FileNotFoundError as error:
            if self._disk.get(topic_partition) is not log:
                raise UnknownTopic(topic_partition.topic) from None
            if segments[0] not in log.segments:
                # Retention took it meanwhile; what is left is looked at.
                return await self.verify(topic_partition, should_stop)
            raise LogDirFailed(log.directory, error.strerror or str(error)) from error
        except OSError as error:
            raise LogDirFailed(log.directory, error.strerror or str(error)) from error
        return Verification(
            segments=found.segments,
            batches=found.batches,
            records=found.records,
            size_bytes=found.size_bytes,
            problems=found.problems,
        )

    async def disk_space(self) -> DiskSpace:
        path = self._log_dir.path
        try:
            total_bytes, free_bytes = await self._log_dir.in_thread(disk_space, path)
        except OSError as error:
            raise LogDirFailed(path, error.strerror or str(error)) from error
        return DiskSpace(path=path, total_bytes=total_bytes, free_bytes=free_bytes)

    # ── deletion ──

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        log = self._log(topic_partition)
        log.advance_log_start(before_offset)
        self._waiters.changed(topic_partition)
        if topic_partition in self._disk:
            # Deleted means deleted: the new start must outlive a crash before it is answered.
            await self._manager.checkpoints.checkpoint()
        return log.log_start_offset

    async def enforce_retention(self) -> int:
        return await self._housekeeping.enforce_retention()
