"""Background work of the engine: checkpoints, retention, and passes of the cleaner."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..clock import Clock, PatientClock
from ..errors import CorruptLog, StorageError, StorageFull, StorageLimitReached
from ..work_budget import WorkBudget
from .cleaner import Cleaner
from .disk.interval import Interval
from .logs.log import DiskLog
from .logs.log_dir import LogDir
from .logs.manager import LogManager
from .logs.memory_log import MemoryLog, StoredBatch
from .segments.open_segments import OpenSegments
from .segments.reader import confirm_newest, read_record_age
from .segments.segment import Segment
from .syncing.flusher import Flusher
from .tiering import Tiering
from .topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class Housekeeping:
    """Saves checkpoints and enforces retention, from ``start`` to ``stop``.

    ``enforce_retention`` may be called in between.
    """

    def __init__(
        self,
        log_dir: LogDir,
        manager: LogManager,
        memory: Mapping[TopicPartition, MemoryLog],
        *,
        cleaner: Cleaner,
        flusher: Flusher,
        open_segments: OpenSegments,
        clock: Clock,
        on_change: Callable[[TopicPartition], object],
    ) -> None:
        self._log_dir = log_dir
        self._manager = manager
        self._checkpoints = manager.checkpoints
        self._memory = memory
        self._cleaner = cleaner
        self._flusher = flusher
        self._open_segments = open_segments
        self._clock = PatientClock(clock)
        # Called with a partition whose log start offset has moved.
        self._on_change = on_change
        # Logs of deleted topics whose files could not be removed yet.
        self._undeleted: list[DiskLog] = []
        self._is_stopping = False
        # Given once the replica is open.
        self.tiering: Tiering | None = None
        self._intervals: list[Interval] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def has_started(self) -> bool:
        return bool(self._tasks)

    def start(
        self, *, checkpoint_interval_ms: int, first_checkpoint_ms: int, retention_interval_ms: int
    ) -> None:
        """Begin checkpoints and retention, once all partitions are open.

        The first checkpoint says that all is recovered. Until then a crash counts as one of the machine if
        the last one was.
        """
        self._checkpoints.is_settled = True
        self._every(Interval(checkpoint_interval_ms, first_ms=first_checkpoint_ms), self._checkpoint)
        self._every(Interval(retention_interval_ms), self.enforce_retention)
        if self._cleaner.options.is_enabled:
            self._every(self._cleaner.interval, self._cleaner.clean_due)

    def _every(self, interval: Interval, work: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            while await interval.passes() and self._log_dir.failure is None:
                try:
                    await work()
                except StorageError as error:
                    logger.error("housekeeping of %s: %s", self._log_dir.path, error)
                except Exception:  # the edge of a task: the next time may succeed
                    logger.exception("housekeeping of %s failed", self._log_dir.path)

        self._intervals.append(interval)
        self._tasks.append(asyncio.create_task(run()))

    async def _checkpoint(self) -> None:
        # The start, or a full disk, may have used what is kept back.
        await self._log_dir.keep_space()
        await self._checkpoints.checkpoint()

    async def stop(self) -> None:
        """Return when all of it has ended.

        It is not cancelled, because its threads must finish.
        """
        self._is_stopping = True
        for interval in self._intervals:
            interval.stop()
        self._cleaner.stop()
        await asyncio.gather(*self._tasks)
        await self._cleaner.finish()
        await self._checkpoints.finish()

    # ── retention ──

    async def enforce_retention(self) -> int:
        """Delete what the configurations no longer keep.

        Returns the number of segments, and of batches in memory, that were deleted.
        """
        now_ms = self._clock.now_ms()
        deleted = 0
        for name, log in list(self._memory.items()):
            await self._log_dir.in_thread(_read_ages, log.batches_to_read(now_ms))
            if expired := log.expire(now_ms):
                deleted += expired
                self._on_change(name)
        budget = WorkBudget()
        for log in list(self._manager.logs.values()):
            await budget.visit()
            if self._log_dir.failure is not None or self._is_stopping:
                break
            if log.upkeep.locked():
                # It is being cleaned or deleted; the next time will do.
                continue
            try:
                await self._read_segment_ages(log, now_ms)
                if log.upkeep.locked():
                    continue
                async with log.upkeep, self._checkpoints.lock:
                    deleted += await self._retain(log, now_ms)
                    await self._tier(log, now_ms)
            except StorageError as error:
                if self._log_dir.failure is not None:
                    raise
                # What is refused to one log may be what frees the space that another one needs.
                logger.error("retention of %s: %s", log.directory, error)
        await self._delete_again()
        return deleted

    def _is_gone(self, log: DiskLog) -> bool:
        return self._manager.logs.get(log.topic_partition) is not log

    async def _read_segment_ages(self, log: DiskLog, now_ms: int) -> None:
        """Read the records that decide whether segments of ``log`` are past their time."""
        while (segment := log.segment_to_read(now_ms)) is not None and not self._is_stopping:
            try:
                await self._log_dir.in_thread(read_record_age, segment)
            except CorruptLog as error:
                # The corrupt range is known now, so the next call skips it.
                logger.error("%s: its age is not known yet: %s", segment.path, error)
                return
            except OSError as error:
                if self._is_gone(log) or segment not in log.segments:
                    # Deleted meanwhile.
                    return
                raise self._log_dir.refuse(segment.path, error) from error
            if segment.record_age is None:
                # Appended to meanwhile, so it is not old.
                return

    async def _retain(self, log: DiskLog, now_ms: int) -> int:
        """Delete the segments of ``log`` that are past their time or size; returns how many."""
        if self._is_gone(log):
            return 0
        try:
            if log.active_is_expired(now_ms):
                # It frees a whole segment.
                await self._log_dir.with_kept_space(partial(_roll, log))
                await self._flusher.next_round(log)
            segments = log.expired_segments(now_ms)
            if not segments:
                return 0
            # Nothing is deleted because of a timestamp that only a corrupt index has.
            await self._log_dir.in_thread(_confirm_newest, segments)
            segments = log.expired_segments(now_ms)
            if not segments or self._is_gone(log):
                return 0
            for segment in segments:
                self._open_segments.forget(segment)
            paths = log.detach(segments)
            self._on_change(log.topic_partition)
            # The start is saved first: a crash in between leaves files, never a log that begins twice.
            # On a full disk there is no space for that, but there will be.
            with contextlib.suppress(StorageFull, StorageLimitReached):
                await self._checkpoints.save([log.topic_partition])
            await self._log_dir.in_thread(self._remove, paths)
            await self._log_dir.in_thread(lambda: self._remove(log.stale_snapshots()))
            if self._log_dir.refuses_appends:
                await self._log_dir.keep_space()
            await self._checkpoints.save([log.topic_partition])
        except OSError as error:
            raise self._log_dir.refuse(log.directory, error) from error
        logger.info(
            "%s: %d segments deleted, it starts at %d", log.directory, len(segments), log.log_start_offset
        )
        return len(segments)

    async def _tier(self, log: DiskLog, now_ms: int) -> None:
        """Let segments leave the disk that are in the bucket, too."""
        if self.tiering is None or self._is_gone(log):
            return
        try:
            await self.tiering.enforce(log, now_ms, lambda: self._checkpoints.save([log.topic_partition]))
        except OSError as error:
            raise self._log_dir.refuse(log.directory, error) from error

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if self._log_dir.files.exists(path):
                self._log_dir.files.remove(path)

    # ── deletion ──

    async def delete(self, logs: Sequence[DiskLog]) -> bool:
        """Delete logs that have been taken out of the manager.

        Return False if the disk does not allow it: it is tried again with each retention.
        """
        async with contextlib.AsyncExitStack() as locks:
            for log in logs:
                await locks.enter_async_context(log.upkeep)
            await locks.enter_async_context(self._checkpoints.lock)
            left = [log for log in logs if not await self._delete(log)]
            self._undeleted += left
            if self._log_dir.refuses_appends:
                await self._log_dir.keep_space()
        # Their checkpoints are in files with those of all partitions. They are taken out by the next save of all, or
        # before one of the names is used again.
        return not left

    async def _delete(self, log: DiskLog) -> bool:
        await self._flusher.quiesce(log)
        for segment in log.segments:
            self._open_segments.forget(segment)
        try:
            await self._log_dir.in_thread(self._manager.delete, log)
        except OSError as error:
            logger.error("the files of a deleted topic stay: %s", self._log_dir.refuse(log.directory, error))
            return False
        return True

    async def _delete_again(self) -> None:
        # Another topic of the same name may be about to be created.
        async with self._manager.directories:
            await self._manager.remove_unwanted()
            waiting, self._undeleted = self._undeleted, []
            self._undeleted += [log for log in waiting if not await self._delete(log)]


async def _roll(log: DiskLog) -> None:
    log.roll()


def _confirm_newest(segments: Sequence[Segment]) -> None:
    for segment in segments:
        with contextlib.suppress(CorruptLog):
            confirm_newest(segment)


def _read_ages(batches: Sequence[StoredBatch]) -> None:
    for stored in batches:
        stored.read_age()
