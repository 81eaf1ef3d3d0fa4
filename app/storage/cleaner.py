"""Compaction of the partitions of a data directory, in the background.

One pass at a time, over the partition with the highest dirty ratio::

    event loop                             process or thread of the pass
    ─────────────────────────────────────  ────────────────────────────────────────────
    choose a partition, take its upkeep
                                           map the keys of the dirty segments
    for each group of segments:
                                           write what remains of it, ``*.cleaned``; sync
      pin the old segments
      in a thread: rename: commit, retire, install
      put the new segment into the log
    save where the pass ended
      later: remove the old files

``DiskLog.upkeep`` keeps retention and deletion away from the partition of the pass.
``abort`` ends a pass early; what it has replaced by then stays replaced. ``pass_workers``
has process and thread, ``cleaning`` the rules and the crash protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

from ..clock import Clock, PatientClock
from ..errors import StorageError
from ..work_budget import visited
from .cleaning.cleaned_segment import CLEANED_SUFFIX, CleanedSegmentTooLarge
from .cleaning.pass_state import PassCounts
from .cleaning.pass_work import PassOrder
from .cleaning.pass_workers import PassWorker, ProcessWorker, ThreadWorker
from .cleaning.planning import (
    CleaningRange,
    CleaningRules,
    SegmentFacts,
    cleaning_range,
    dirtiest,
    groups,
)
from .cleaning.replacement import Replacement
from .config_types import INT64_MAX
from .disk.files import is_refusal
from .disk.interval import Interval
from .disk.pace import WorkAborted
from .engine import CompactionCounts, PartitionCompaction
from .logs.log import DiskLog
from .logs.log_dir import LogDir
from .logs.offset_checkpoints import OffsetCheckpoints
from .passes import Passes
from .segments.loader import first_timestamp
from .segments.open_segments import OpenSegments
from .segments.segment import SUFFIXES, Segment, segment_name
from .topic_config import TopicConfig
from .topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# A step of a replacement that the system refused is tried again after this.
_STEP_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerOptions:
    """See ``settings`` for the reasons. ``bytes_per_s`` None: unlimited.

    ``uses_process``: passes run in a process of their own; otherwise in a thread.
    """

    is_enabled: bool = True
    dedupe_buffer_bytes: int = 128 << 20
    bytes_per_s: float | None = None
    uses_process: bool = False
    interval_ms: int = 15_000


class Cleaner:
    """Compacts the logs of one data directory. Methods belong to the event loop."""

    def __init__(
        self,
        log_dir: LogDir,
        checkpoints: OffsetCheckpoints,
        logs: Mapping[TopicPartition, DiskLog],
        *,
        open_segments: OpenSegments,
        on_cleaned: Callable[[DiskLog], object],
        options: CleanerOptions,
        clock: Clock,
    ) -> None:
        self.options = options
        # Between two looks for passes that are due.
        self.interval = Interval(options.interval_ms)
        self._log_dir = log_dir
        self._checkpoints = checkpoints
        self._logs = logs
        self._open_segments = open_segments
        # Called with a log after a pass over it.
        self._on_cleaned = on_cleaned
        self._clock = clock
        # Tombstones go by it, so a wall clock that jumps ahead removes none early.
        self._patient = PatientClock(clock)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-cleaner")
        self._worker: PassWorker = (
            ProcessWorker(log_dir.path)
            if options.uses_process
            else ThreadWorker(log_dir.files, clock, self._in_thread)
        )
        self._turn = asyncio.Lock()
        self._is_aborted = False
        self._is_stopping = False
        # The first timestamps of dirty segments, as of the last look for passes that are due.
        self._first_ms: WeakKeyDictionary[DiskLog, Mapping[Segment, int]] = WeakKeyDictionary()
        # Old files to remove, and when, by the monotonic clock.
        self._discards: list[tuple[int, DiskLog, Replacement]] = []
        self._passes = Passes[DiskLog](clock)

    # ── views ──

    @property
    def counts(self) -> CompactionCounts:
        """Counts since the start."""
        return self._passes.counts

    def partition_compaction(self, log: DiskLog) -> PartitionCompaction:
        """The dirty part of ``log``, and the state of its compaction.

        It reads no file, so of segments that were written since the cleaner last looked for passes that are due,
        ``max.compaction.lag.ms`` calls for none.
        """
        rules = _rules(log.config)
        to_clean = self._range(log, rules, self._first_ms.get(log, {}))
        state = self._passes.state(log, is_enabled=self.options.is_enabled, is_due=to_clean.is_due(rules))
        return PartitionCompaction(dirty_ratio=to_clean.dirty_ratio, cleaner=state)

    # ── control ──

    def abort(self, log: DiskLog) -> None:
        """End the pass over ``log``, if one runs, at its next pause.

        The log is deleted or no longer compacted.
        """
        self._passes.forget(log)
        if self._passes.running is log:
            self._abort()

    def stop(self) -> None:
        """Begin no further pass, and abort the one that runs."""
        self._is_stopping = True
        if self._passes.running is not None:
            self._abort()

    def _abort(self) -> None:
        self._is_aborted = True
        self._worker.abort()

    async def finish(self) -> None:
        """Return when the last pass has ended, after ``stop``."""
        async with self._turn:
            pass

    async def close(self) -> None:
        """End the thread or the process, when no pass runs."""
        await self._worker.close()
        self._thread.shutdown()

    # ── passes ──

    async def clean_due(self) -> int:
        """Run passes until none is due; returns how many were completed.

        Raises:
            StorageError: the directory stopped.
        """
        passes = 0
        async with self._turn:
            await self._discard_due()
            while not self._is_stopping and self._log_dir.failure is None:
                log = await self._dirtiest()
                if log is None:
                    break
                passes += await self._clean(log)
            await self._discard_due()
        return passes

    async def _dirtiest(self) -> DiskLog | None:
        ranges: dict[DiskLog, tuple[CleaningRange, CleaningRules]] = {}
        async for log in visited(list(self._logs.values())):
            if not log.config.is_compacted or not self._passes.may_begin(log):
                continue
            if log.upkeep.locked() or self._is_gone(log):
                continue
            ranges[log] = await self._range_of(log)
        return dirtiest(ranges)

    async def _range_of(self, log: DiskLog) -> tuple[CleaningRange, CleaningRules]:
        rules = _rules(log.config)
        first_ms: dict[Segment, int] = {}
        if rules.max_compaction_lag_ms != INT64_MAX:
            dirty = [segment for segment in log.segments[:-1] if segment.next_offset > log.first_dirty]
            try:
                first_ms = await self._in_thread(lambda: {s: first_timestamp(s) for s in dirty})
            except OSError as error:
                # The next time will tell; most likely retention or a deletion took them meanwhile.
                logger.info("%s: it is not known how old its records are: %s", log.directory, error)
                first_ms = {}
            self._first_ms[log] = first_ms
        return self._range(log, rules, first_ms), rules

    def _range(self, log: DiskLog, rules: CleaningRules, first_ms: Mapping[Segment, int]) -> CleaningRange:
        cleanable = log.cleanable_segments()
        stable_offset = min(log.recovery_point, log.last_stable_offset)
        if cleanable < len(log.segments):
            stable_offset = min(stable_offset, log.segments[cleanable].base_offset)
        return cleaning_range(
            _facts(log, first_ms),
            rules,
            checkpoint=log.first_dirty,
            log_start_offset=log.log_start_offset,
            stable_offset=stable_offset,
            now_ms=self._patient.now_ms(),
        )

    def _is_gone(self, log: DiskLog) -> bool:
        return self._logs.get(log.topic_partition) is not log

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _clean(self, log: DiskLog) -> bool:
        """Run one pass over ``log``; returns whether it was completed."""
        async with log.upkeep:
            if self._is_gone(log) or not log.config.is_compacted:
                return False
            counts = PassCounts()
            self._passes.begin(log)
            self._is_aborted = False
            try:
                await self._run(log, counts)
            except WorkAborted:
                logger.info("%s: the compaction was aborted", log.directory)
                return False
            except Exception as error:
                self._passes.failed(log)
                if self._log_dir.failure is not None:
                    raise self._log_dir.failure from error
                # It concerns this partition alone; the others are cleaned.
                if isinstance(error, (OSError, StorageError)):
                    logger.error("%s: the compaction failed: %s", log.directory, error)
                else:
                    logger.exception("%s: the compaction failed", log.directory)
                return False
            finally:
                self._passes.end(counts)
            self._passes.completed(log, counts, name=log.directory, end_offset=log.first_dirty)
            return True

    async def _run(self, log: DiskLog, counts: PassCounts) -> None:
        """Map, rewrite and replace; ``log.upkeep`` is held.

        Raises:
            WorkAborted: see ``abort``.
            CorruptLog: a segment is corrupt, so nothing of it may be deleted.
            OSError: a segment cannot be read or written, or the process of the pass has died.
            LogDirFailed: a replacement failed halfway.
        """
        rules = _rules(log.config)
        to_clean = self._range(log, rules, {})
        facts = _facts(log, {})
        order = PassOrder(
            directory=str(log.directory),
            segments=facts,
            first_dirty=to_clean.first_dirty,
            first_uncleanable=to_clean.first_uncleanable,
            # Those of batches that come meanwhile are after what is cleaned.
            last_batches=log.producer_state.last_batches(),
            now_ms=self._patient.now_ms(),
            delete_retention_ms=rules.delete_retention_ms,
            index_interval_bytes=log.config.index_interval_bytes,
            memory_bytes=self.options.dedupe_buffer_bytes,
            aborted=log.aborted_entries(),
        )
        try:
            mapped_end = await self._worker.begin(order, bytes_per_s=self.options.bytes_per_s)
            # From here on a record may go because of any record before the end of the map.
            log.compacted_until = max(log.compacted_until, mapped_end)
            waiting = groups(facts, rules, mapped_end=mapped_end)[::-1]
            while waiting:
                group = waiting.pop()
                try:
                    is_new = await self._rewrite(log, group, counts)
                except CleanedSegmentTooLarge:
                    # Together they are too large; one that is so alone stays as it is.
                    waiting += [[segment] for segment in group[::-1]] if len(group) > 1 else []
                    continue
                if is_new:
                    await self._replace(log, group)
        finally:
            await self._worker.end()
        log.first_dirty = mapped_end
        self._on_cleaned(log)
        await self._checkpoints.checkpoint([log.topic_partition])

    async def _rewrite(self, log: DiskLog, group: Sequence[SegmentFacts], counts: PassCounts) -> bool:
        try:
            return await self._worker.rewrite(group, counts)
        except (WorkAborted, ChildProcessError):
            # A process that was killed leaves its files.
            await self._in_thread(lambda: self._remove_cleaned(log, group[0].base_offset))
            raise

    async def _replace(self, log: DiskLog, group: Sequence[SegmentFacts]) -> None:
        """Put the cleaned segment of ``group`` in its place."""
        base_offsets = [segment.base_offset for segment in group]
        if self._is_aborted:
            await self._in_thread(lambda: self._remove_cleaned(log, base_offsets[0]))
            raise WorkAborted
        by_base = {segment.base_offset: segment for segment in log.segments}
        replaced = [by_base[base_offset] for base_offset in base_offsets]
        replacement = Replacement(self._log_dir.files, log.directory, base_offsets)
        end_offset = group[-1].next_offset
        # Readers of the new segment accept holes from its first moment on.
        holes_until = log.holes_until = max(log.holes_until, end_offset)

        def prepare() -> None:
            log.write_holes_until(holes_until)
            replacement.open()
            for segment in replaced:
                segment.indexes.pin(log_bytes=segment.size)

        try:
            await self._in_thread(prepare)
            for segment in replaced:
                segment.file()
        except OSError:
            # Nothing is replaced yet.
            replacement.close()
            for segment in replaced:
                segment.indexes.unpin()
            await self._in_thread(lambda: self._remove_cleaned(log, base_offsets[0]))
            raise
        for segment in replaced:
            segment.pin()
        try:
            for step in (replacement.commit, replacement.retire, replacement.install):
                await self._until_allowed(log, step)
            cleaned = await self._until_allowed(log, lambda: log.adopt_cleaned(replaced))
        except OSError as error:
            # Only a start can tell what is there.
            raise self._log_dir.fail(log.directory, error) from error
        finally:
            replacement.close()
        log.replace_segments(replaced, cleaned)
        for segment in replaced:
            self._open_segments.forget(segment)
        delay_ms = log.config.file_delete_delay_ms
        self._discards.append((self._clock.monotonic_ms() + delay_ms, log, replacement))

    async def _until_allowed(self, log: DiskLog, step: Callable[[], _T]) -> _T:
        """Take a step of a replacement; while it is refused, try again.

        A replacement must not end halfway.
        """
        while True:
            try:
                return await self._in_thread(step)
            except OSError as error:
                if not is_refusal(error) or self._is_stopping:
                    raise
                if self._is_gone(log):
                    # The deletion waits for this, and all of it is removed.
                    raise WorkAborted from error
                logger.warning("%s: its compaction waits: %s", log.directory, error)
            await asyncio.sleep(_STEP_AGAIN_S)

    def _remove_cleaned(self, log: DiskLog, base_offset: int) -> None:
        files = self._log_dir.files
        for suffix in SUFFIXES:
            path = log.directory / (segment_name(base_offset) + suffix + CLEANED_SUFFIX)
            if files.exists(path):
                files.remove(path)

    async def _discard_due(self) -> None:
        """Remove the files of replaced segments after ``file.delete.delay.ms``; a start removes the others."""
        now_ms = self._clock.monotonic_ms()
        due = [discard for discard in self._discards if discard[0] <= now_ms]
        self._discards = [discard for discard in self._discards if discard[0] > now_ms]
        for _, log, replacement in due:
            async with log.upkeep:
                # The files of a deleted log are gone.
                if not self._is_gone(log):
                    try:
                        await self._in_thread(replacement.discard)
                    except OSError as error:
                        raise self._log_dir.refuse(log.directory, error) from error


def _rules(config: TopicConfig) -> CleaningRules:
    return CleaningRules(
        segment_bytes=config.segment_bytes,
        index_bytes_max=config.segment_index_bytes,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
    )


def _facts(log: DiskLog, first_ms: Mapping[Segment, int]) -> list[SegmentFacts]:
    """The segments of ``log`` that are not wholly before its start."""
    return [
        SegmentFacts(
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            size=segment.size,
            newest_ms=segment.max_timestamp if segment.max_timestamp >= 0 else segment.appended_ms,
            first_ms=first_ms.get(segment, -1),
        )
        for segment in log.segments
        if segment.next_offset > log.log_start_offset or segment is log.active
    ]
