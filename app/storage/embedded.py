"""The engine on this machine: segments on disk, rings in memory, group commit.

Appends go to the page cache on the event loop; everything that may wait for a
disk (syncs, cold reads, recovery, deletion) runs in threads. The first failed
write or sync stops the whole directory (ADR-0003): a kernel may drop the dirty
pages after reporting the error once, so a second try would lie.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stele.wire.messages import Durability
from stele.wire.record_batch import NO_TIMESTAMP, BatchHeader, CorruptBatchError, set_log_append_time

from ..clock import Clock, PatientClock
from ..errors import CorruptLog, LogDirFailed, SteleError, StorageError, StorageFull, UnknownTopic
from .checkpoint import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, write_offsets
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
from .files import DISK_FULL, Files, disk_space
from .flusher import Flusher, SyncObserver
from .inspect import VerificationStopped, verify_partition
from .log import DELETED_SUFFIX, DiskLog
from .memory_log import MemoryLog
from .recovery import Crash
from .segment import Extent, Segment, SegmentTornError, WouldBlockError
from .topic_config import TopicConfig
from .waiters import Waiters

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Logs opened at once after a crash: the disk has a queue, the CRC has cores.
_OPEN_THREADS = 4


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
    """Implements ``LogEngine``; one for a data directory."""

    def __init__(self, files: Files, path: Path, *, clock: Clock, options: EngineOptions) -> None:
        self._files = files
        self._clock = clock
        self._options = options
        self._data_dir = DataDir(files, path)
        self._disk: dict[TopicPartition, DiskLog] = {}
        self._memory: dict[TopicPartition, MemoryLog] = {}
        self._threads = ThreadPoolExecutor(options.sync_threads, thread_name_prefix="stele-disk")
        self._flusher = Flusher(self._threads, on_failure=self._sync_failed)
        self._waiters = Waiters()
        self._open_sealed: OrderedDict[Segment, None] = OrderedDict()
        self._failure: LogDirFailed | None = None
        self._start: Start | None = None
        self._leader_epoch = 0
        # What the checkpoints say of partitions that are not open (yet).
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._checkpointed: tuple[dict[TopicPartition, int], dict[TopicPartition, int]] = ({}, {})
        # Checkpoints, retention and deletion one after the other: each relies on what is on the disk.
        self._housekeeping = asyncio.Lock()
        self._next_checkpoint: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._patient_clock = PatientClock(clock)

    # ── life ──

    async def open(self) -> Start:
        """Take the data directory; partitions are opened by ``create``.

        Raises:
            DataDirLocked: another broker has it.
            OSError: it cannot be used.
        """
        self._start = await self._in_thread(self._data_dir.take)
        self._leader_epoch = self._start.leader_epoch
        path = self._data_dir.path
        self._recovery_points = await self._in_thread(_read_offsets, self._files, path / RECOVERY_POINTS)
        self._log_starts = await self._in_thread(_read_offsets, self._files, path / LOG_START_OFFSETS)
        self._checkpointed = (dict(self._recovery_points), dict(self._log_starts))
        return self._start

    def start_background(self) -> None:
        """Begin checkpoints and retention, once all partitions are open."""
        self._tasks = [
            # The first at once: it says that all is recovered.
            asyncio.create_task(
                self._every(self._options.checkpoint_interval_ms, self._checkpoint, first_ms=0)
            ),
            asyncio.create_task(self._every(self._options.retention_interval_ms, self._retain)),
        ]

    async def _every(
        self, interval_ms: int, work: Callable[[], Awaitable[None]], *, first_ms: int | None = None
    ) -> None:
        delay_ms = interval_ms if first_ms is None else first_ms
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_ms / 1000)
            if self._stopping.is_set() or self._failure is not None:
                return
            delay_ms = interval_ms
            try:
                await work()
            except StorageError as error:
                logger.error("housekeeping of %s: %s", self._data_dir.path, error)

    async def close(self) -> None:
        # Their threads must be done, so they are not cancelled.
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        # Of somebody who no longer waits for it.
        if self._next_checkpoint is not None:
            await asyncio.wait((self._next_checkpoint,))
        async with self._housekeeping:
            await self._close()

    async def _close(self) -> None:
        self._waiters.wake_all()
        for log in list(self._disk.values()):
            await self._flusher.quiesce(log)
        # A sync that failed just now is not tried again.
        is_clean = self._start is not None and self._failure is None
        try:
            if is_clean:
                await self._close_logs(clean=True)
                await self._save()
        except (OSError, StorageError) as error:
            logger.error(
                "%s was not closed in order, the next start checks it: %s", self._data_dir.path, error
            )
            is_clean = False
        await self._close_logs(clean=False)
        try:
            await self._in_thread(lambda: self._data_dir.release(clean=is_clean))
        except OSError as error:
            logger.error(
                "%s was not closed in order, the next start checks it: %s", self._data_dir.path, error
            )
        self._threads.shutdown()

    async def _close_logs(self, *, clean: bool) -> None:
        """Raises ``OSError`` for the first that failed, when all have been tried."""
        logs = list(self._disk.values())

        def close_all(mine: list[DiskLog]) -> None:
            for log in mine:
                log.close(clean=clean)

        threads = self._options.sync_threads
        shares = (self._in_thread(close_all, logs[start::threads]) for start in range(threads))
        for error in await asyncio.gather(*shares, return_exceptions=True):
            if error is not None:
                raise error

    async def _in_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    # ── failure ──

    @property
    def failure(self) -> StorageError | None:
        return self._failure

    def _refuse(self, path: Path, error: OSError) -> StorageError:
        """What to raise for ``error``: a full disk can be waited for, anything else ends the directory."""
        if error.errno in DISK_FULL:
            return StorageFull(path, error)
        return self._fail(path, error)

    def _sync_failed(self, log: DiskLog, error: OSError) -> LogDirFailed:
        return self._fail(log.directory, error)

    def _fail(self, path: Path, error: OSError) -> LogDirFailed:
        failure = LogDirFailed(path, error.strerror or str(error))
        if self._failure is None:
            self._failure = failure
            logger.critical("%s", failure)
            self._flusher.fail(failure)
            self._waiters.wake_all()
        return failure

    def observe_syncs(self, observer: SyncObserver) -> None:
        self._flusher.on_sync = observer

    # ── partitions ──

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        disk = [spec for spec in specs if spec.config.storage == "disk"]
        for spec in specs:
            if spec.config.storage == "memory":
                # What was in it before this start is lost, its producers too.
                if not self._tasks:
                    spec.ledger.clear()
                self._memory[spec.topic_partition] = MemoryLog(spec)
        logs = [
            DiskLog(self._files, self._data_dir.partition_dir(*s.topic_partition), s, self._clock)
            for s in disk
        ]
        try:
            await self._forget_predecessors(logs)
            await self._open_logs(logs)
            if logs:
                # The run that made a directory may have ended before its name was made to last.
                await self._in_thread(self._files.sync_dir, self._data_dir.path)
        except OSError as error:
            raise self._refuse(Path(error.filename or self._data_dir.path), error) from error
        assert self._start is not None
        for log in logs:
            name = log.topic_partition
            self._disk[name] = log
            self._recovery_points.pop(name, None)
            self._log_starts.pop(name, None)
            # Above all that is in the log, even if the start record was lost.
            found = log.epochs.latest if self._start.was_clean else log.epochs.latest + 1
            self._leader_epoch = max(self._leader_epoch, found)
        if any(log.has_jumped for log in logs):
            await self._checkpoint()

    async def _forget_predecessors(self, logs: Sequence[DiskLog]) -> None:
        """See that nothing of a deleted topic of the same name is taken for the new one's."""
        strangers = await self._in_thread(lambda: [log for log in logs if self._remove_stranger(log)])
        is_stale = False
        for log in strangers:
            for checkpoint in (self._recovery_points, self._log_starts):
                is_stale = checkpoint.pop(log.topic_partition, None) is not None or is_stale
        if is_stale:
            await self._checkpoint()

    def _remove_stranger(self, log: DiskLog) -> bool:
        """True if the directory did not hold this very partition."""
        found = log.found_topic_id()
        if found is not None and found != log.topic_id:
            # A topic of this name was deleted, and its files outlived a crash.
            self._set_aside(log.directory)
        return found != log.topic_id

    async def _open_logs(self, logs: Sequence[DiskLog]) -> None:
        limit = asyncio.Semaphore(_OPEN_THREADS)

        async def open_one(log: DiskLog) -> None:
            async with limit:
                await self._in_thread(self._open_log, log)

        errors = await asyncio.gather(*map(open_one, logs), return_exceptions=True)
        for error in errors:
            if error is not None:
                for log in logs:
                    log.close(clean=False)
                raise error

    def _open_log(self, log: DiskLog) -> None:
        assert self._start is not None, "open() comes first"
        recovery_point = self._recovery_points.get(log.topic_partition, 0)
        log_start_offset = self._log_starts.get(log.topic_partition, 0)
        crash = Crash(
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            same_boot=self._start.same_boot,
        )
        log.open(
            crash=None if self._start.was_clean else crash,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )

    def _set_aside(self, directory: Path) -> None:
        target = directory.with_name(f"{directory.name}.{self._clock.now_ms()}{DELETED_SUFFIX}")
        logger.warning("%s belongs to a deleted topic of the same name and is removed", directory)
        self._files.rename(directory, target)
        self._files.sync_dir(directory.parent)
        self._files.remove_tree(target)

    async def remove_strays(self) -> None:
        """Finish deletions that a crash interrupted."""

        def work() -> None:
            for name in self._files.list_dir(self._data_dir.path):
                if name.endswith(DELETED_SUFFIX):
                    self._files.remove_tree(self._data_dir.path / name)

        try:
            await self._in_thread(work)
        except OSError as error:
            raise self._refuse(self._data_dir.path, error) from error

    def configure(self, topic_partition: TopicPartition, config: TopicConfig) -> None:
        self._log(topic_partition).config = config

    async def drop(self, topic_partitions: Sequence[TopicPartition]) -> None:
        dropped: list[DiskLog] = []
        for topic_partition in topic_partitions:
            self._waiters.wake(topic_partition)
            self._memory.pop(topic_partition, None)
            log = self._disk.pop(topic_partition, None)
            if log is not None:
                dropped.append(log)
        async with self._housekeeping:
            for log in dropped:
                await self._flusher.quiesce(log)
                for segment in log.segments:
                    self._open_sealed.pop(segment, None)
                try:
                    await self._in_thread(self._delete_log, log)
                except OSError as error:
                    raise self._refuse(log.directory, error) from error
            with contextlib.suppress(StorageFull):
                # What stays in the checkpoint is taken out before the name is used again.
                await self._save()

    def _delete_log(self, log: DiskLog) -> None:
        log.close(clean=False)
        target = log.directory.with_name(f"{log.directory.name}.{self._clock.now_ms()}{DELETED_SUFFIX}")
        self._files.rename(log.directory, target)
        self._files.sync_dir(log.directory.parent)
        self._files.remove_tree(target)

    def _log(self, topic_partition: TopicPartition) -> DiskLog | MemoryLog:
        return self._disk.get(topic_partition) or self._memory[topic_partition]

    # ── append ──

    def append(
        self,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[BatchHeader],
        *,
        sync: bool,
    ) -> AppendTicket:
        log = self._disk.get(topic_partition)
        if log is None:
            return self._append_memory(topic_partition, batches, headers)
        if self._failure is not None:
            raise LogDirFailed(log.directory, self._failure.cause)
        log_append_time_ms = self._stamp(log, batches, headers)
        try:
            base_offset, last_offset = log.append(batches, headers, leader_epoch=self._leader_epoch)
        except OSError as error:
            raise self._refuse(log.directory, error) from error
        except SegmentTornError as error:
            raise self._fail(error.path, error.cause) from error
        future = None
        if sync or log.unsynced_records >= log.config.flush_messages:
            future = self._flusher.next_round(log)
        elif log.config.flush_ms >= 0:
            self._flusher.flush_later(log, log.config.flush_ms)
        elif log.unsynced_bytes >= self._options.flush_bytes:
            self._flusher.next_round(log)
        else:
            self._flusher.flush_later(log, self._options.flush_interval_ms)
        self._waiters.appended(topic_partition, len(batches))
        return AppendTicket(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log.log_start_offset,
            durability=Durability.APPENDED if future is None else Durability.SYNCED,
            future=future,
        )

    def _append_memory(
        self, topic_partition: TopicPartition, batches: bytearray | memoryview, headers: list[BatchHeader]
    ) -> AppendTicket:
        log = self._memory[topic_partition]
        log_append_time_ms = self._stamp(log, batches, headers)
        base_offset, last_offset = log.append(batches, headers, leader_epoch=self._leader_epoch)
        self._waiters.appended(topic_partition, len(batches))
        return AppendTicket(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log.log_start_offset,
            durability=Durability.NONE,
        )

    def _stamp(
        self, log: DiskLog | MemoryLog, batches: bytearray | memoryview, headers: list[BatchHeader]
    ) -> int:
        if log.config.message_timestamp_type == "CreateTime":
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
        if self._failure is not None and logs:
            raise LogDirFailed(self._failure.path, self._failure.cause)
        rounds = [self._flusher.next_round(log) for log in logs if log.is_dirty]
        if rounds:
            await asyncio.wait(rounds)
            for future in rounds:
                future.result()

    # ── read ──

    async def plan_fetch(self, specs: Sequence[FetchSpec], max_bytes: int) -> list[FetchPlan]:
        plans: list[FetchPlan] = []
        left = max_bytes
        for spec in specs:
            wanted = min(spec.max_bytes, left)
            plan = await self._plan_one(spec, wanted, is_first=left == max_bytes)
            left -= plan.size
            plans.append(plan)
        return plans

    async def _plan_one(self, spec: FetchSpec, max_bytes: int, *, is_first: bool) -> FetchPlan:
        name = spec.topic_partition
        log = self._disk.get(name) or self._memory.get(name)
        if log is None:
            # Dropped since the request was checked.
            return FetchPlan(topic_partition=name, offset=spec.offset, error=UnknownTopic(name.topic))
        found: Extent | bytes | None = None
        error: SteleError | None = None
        if max_bytes > 0 or is_first:
            try:
                if isinstance(log, MemoryLog):
                    found = log.plan(spec.offset, max_bytes)
                else:
                    found = await self._plan_disk(log, spec.offset, max_bytes)
            except SteleError as refused:
                error = refused
            except OSError as failed:
                error = LogDirFailed(self._data_dir.path, failed.strerror or str(failed))
        common = FetchPlan(
            topic_partition=name,
            offset=spec.offset,
            high_watermark=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            error=error,
        )
        if found is None:
            return common
        is_extent = isinstance(found, Extent)
        return FetchPlan(
            topic_partition=name,
            offset=spec.offset,
            high_watermark=common.high_watermark,
            log_start_offset=common.log_start_offset,
            size=found.size if is_extent else len(found),
            source=found,
            path=found.segment.path if is_extent else None,
            position=found.position if is_extent else 0,
        )

    async def _plan_disk(self, log: DiskLog, offset: int, max_bytes: int) -> Extent | None:
        segment = log.segment_of(offset)
        if segment is None:
            return None
        try:
            try:
                return segment.extent_from(offset, max_bytes, nowait=True)
            except WouldBlockError:
                look = functools.partial(segment.extent_from, offset, max_bytes, nowait=False)
                return await self._in_thread(look)
        except FileNotFoundError:
            # Retention may have taken the segment between two looks; then the log start has moved.
            if log.segment_of(offset) is segment:
                raise
            return await self._plan_disk(log, offset, max_bytes)

    async def read(self, plan: FetchPlan) -> bytes | bytearray:
        source = plan.source
        if isinstance(source, bytes):
            return source
        if not isinstance(source, Extent):
            return b""
        segment = source.segment
        try:
            self._touch(segment)
            data = segment.read_nowait(source)
            if data is None:
                data = await self._in_thread(segment.read, source)
        except FileNotFoundError:
            log = self._disk.get(plan.topic_partition)
            if log is None or segment not in log.segments:
                # Deleted since the plan was made; the next one says so.
                return b""
            raise LogDirFailed(segment.path, "the file is gone") from None
        except OSError as error:
            raise LogDirFailed(segment.path, error.strerror or str(error)) from error
        if len(data) != source.size:
            raise CorruptLog(
                path=segment.path,
                position=source.position + len(data),
                offset=plan.offset,
                next_offset=segment.next_offset,
                reason="the file is shorter than it was",
            )
        return data

    def _touch(self, segment: Segment) -> None:
        """Keep the files of the sealed segments that are read, within the limit."""
        if not segment.is_sealed:
            return
        self._open_sealed[segment] = None
        self._open_sealed.move_to_end(segment)
        while len(self._open_sealed) > self._options.open_segments_max:
            oldest, _ = self._open_sealed.popitem(last=False)
            oldest.release()

    async def wait(self, positions: Mapping[TopicPartition, int], min_bytes: int, timeout_ms: int) -> None:
        for name, offset in positions.items():
            log = self._disk.get(name) or self._memory.get(name)
            if log is None or log.log_end_offset > offset:
                return
        await self._waiters.wait(positions, min_bytes=min_bytes, timeout_ms=timeout_ms)

    def wake_all(self) -> None:
        self._waiters.wake_all()

    def state(self, topic_partition: TopicPartition) -> LogState:
        log = self._log(topic_partition)
        is_disk = isinstance(log, DiskLog)
        return LogState(
            log_start_offset=log.log_start_offset,
            high_watermark=log.log_end_offset,
            log_end_offset=log.log_end_offset,
            leader_epoch=self._leader_epoch,
            size_bytes=log.size_bytes,
            segments=len(log.segments) if is_disk else 0,
            recovery_point=log.recovery_point if is_disk else log.log_start_offset,
        )

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int]:
        log = self._log(topic_partition)
        try:
            if isinstance(log, MemoryLog):
                found = log.find_time(timestamp_ms)
            else:
                found = await self._find_time(log, timestamp_ms)
        except CorruptBatchError as error:
            raise CorruptLog(
                path=self._data_dir.path,
                position=error.position,
                offset=log.log_start_offset,
                next_offset=log.log_end_offset,
                reason=error.reason,
            ) from error
        return found or (-1, NO_TIMESTAMP, self._leader_epoch)

    async def _find_time(self, log: DiskLog, timestamp_ms: int) -> tuple[int, int, int] | None:
        segments = list(log.segments)
        try:
            return await self._in_thread(log.find_time, segments, timestamp_ms)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and segments[0] not in log.segments:
                # Retention took it meanwhile.
                return await self._find_time(log, timestamp_ms)
            raise LogDirFailed(log.directory, error.strerror or str(error)) from error

    def max_timestamp(self, topic_partition: TopicPartition) -> int:
        return self._log(topic_partition).max_timestamp

    def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        log = self._log(topic_partition)
        return log.epochs.end_offset_of(epoch, log_end_offset=log.log_end_offset)

    # ── looking ──

    async def segments(self, topic_partition: TopicPartition) -> list[SegmentState]:
        log = self._log(topic_partition)
        if isinstance(log, MemoryLog):
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
                    damages=[
                        f"bytes {damage.position} to {damage.end_position}: {damage.reason}"
                        for damage in segment.damages
                    ],
                )
                for segment in segments
            ]

        return await self._in_thread(states)

    def _index_bytes(self, segment: Segment) -> int:
        """What the index files of ``segment`` take; retention may remove them meanwhile."""
        size = 0
        for path in (segment.index_path, segment.time_index_path):
            with contextlib.suppress(FileNotFoundError):
                size += self._files.size(path)
        return size

    async def verify(
        self, topic_partition: TopicPartition, should_stop: Callable[[], bool]
    ) -> Verification | None:
        log = self._log(topic_partition)
        if isinstance(log, MemoryLog):
            return Verification(segments=0, batches=0, records=0, size_bytes=log.size_bytes, problems=[])
        segments = list(log.segments)
        look = functools.partial(
            verify_partition,
            log.directory,
            ends={segment.path: segment.size for segment in segments},
            sealed={segment.path for segment in segments if segment.is_sealed},
            should_stop=should_stop,
        )
        try:
            found = await self._in_thread(look)
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
        path = self._data_dir.path
        try:
            total_bytes, free_bytes = await self._in_thread(disk_space, path)
        except OSError as error:
            raise LogDirFailed(path, error.strerror or str(error)) from error
        return DiskSpace(path=path, total_bytes=total_bytes, free_bytes=free_bytes)

    # ── retention ──

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        log = self._log(topic_partition)
        log.advance_log_start(before_offset)
        if isinstance(log, DiskLog):
            # Deleted means deleted: the new start must outlive a crash before it is answered.
            await self._checkpoint()
        return log.log_start_offset

    async def _retain(self) -> None:
        await self.enforce_retention()

    async def enforce_retention(self) -> int:
        now_ms = self._patient_clock.now_ms()
        deleted = sum(log.expire(now_ms) for log in self._memory.values())
        for log in list(self._disk.values()):
            if self._failure is not None or self._stopping.is_set():
                break
            async with self._housekeeping:
                deleted += await self._retain_log(log, now_ms)
        return deleted

    async def _retain_log(self, log: DiskLog, now_ms: int) -> int:
        """Delete the segments of ``log`` that are past their time or size; returns how many."""
        if self._disk.get(log.topic_partition) is not log:
            return 0
        try:
            if log.active_is_expired(now_ms):
                log.roll()
                await self._flusher.next_round(log)
            segments = log.expired_segments(now_ms)
            if not segments:
                return 0
            # Nothing is deleted because of a timestamp that only a damaged index knows.
            await self._in_thread(_confirm_newest, segments)
            segments = log.expired_segments(now_ms)
            if not segments or self._disk.get(log.topic_partition) is not log:
                return 0
            for segment in segments:
                self._open_sealed.pop(segment, None)
            paths = log.detach(segments)
            # The start is saved first: a crash in between leaves files, never a log that begins twice.
            # On a full disk there is no space for that, but there will be.
            with contextlib.suppress(StorageFull):
                await self._save()
            await self._in_thread(self._remove, paths)
            await self._in_thread(lambda: self._remove(log.stale_snapshots()))
            await self._save()
        except OSError as error:
            raise self._refuse(log.directory, error) from error
        logger.info(
            "%s: %d segments deleted, it starts at %d", log.directory, len(segments), log.log_start_offset
        )
        return len(segments)

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            if self._files.exists(path):
                self._files.remove(path)

    async def _checkpoint(self) -> None:
        """Save what spares the next start some work, or may not be forgotten by it.

        All who ask before it begins share one.
        """
        if self._next_checkpoint is None:
            self._next_checkpoint = asyncio.create_task(self._run_checkpoint(), context=Context())
        await asyncio.shield(self._next_checkpoint)

    async def _run_checkpoint(self) -> None:
        async with self._housekeeping:
            self._next_checkpoint = None
            await self._save()

    async def _save(self) -> None:
        """Save recovery points and log start offsets, if they moved; ``_housekeeping`` is held, or all is quiet.

        Raises:
            StorageFull: the old ones stay.
            LogDirFailed: and the directory has stopped.
        """
        logs = dict(self._disk)
        points = {**self._recovery_points, **{n: log.checkpoint_offset for n, log in logs.items()}}
        starts = {
            **self._log_starts,
            **{n: log.log_start_offset for n, log in logs.items() if log.log_start_offset},
        }
        dirty = [log for log in logs.values() if log.epochs.is_dirty]
        # Once the background runs, every partition is open.
        is_settled = bool(self._tasks)
        path = self._data_dir.path

        def write() -> None:
            for log in dirty:
                log.epochs.write(self._files, log.directory)
            if (points, starts) != self._checkpointed:
                write_offsets(self._files, path / RECOVERY_POINTS, points.items())
                write_offsets(self._files, path / LOG_START_OFFSETS, starts.items())
            if is_settled:
                self._data_dir.settle()

        try:
            await self._in_thread(write)
        except OSError as error:
            raise self._refuse(path, error) from error
        self._checkpointed = (points, starts)


def _confirm_newest(segments: list[Segment]) -> None:
    for segment in segments:
        with contextlib.suppress(CorruptLog):
            segment.confirm_newest()


def _read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    return {TopicPartition(*name): offset for name, offset in read_offsets(files, path).items()}
