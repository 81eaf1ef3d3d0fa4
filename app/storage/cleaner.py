"""Compaction of the partitions of a data directory, in the background.

One pass at a time, over the partition with the highest dirty ratio::

    event loop                             thread of the cleaner
    ─────────────────────────────────────  ────────────────────────────────────────────
    choose a partition, take its upkeep
                                           map the keys of the dirty segments
    for each group of segments:
                                           write what remains of it, ``*.cleaned``; sync
      pin the old segments
                                           rename: commit, retire, install
      put the new segment into the log
    save where the pass ended
                                           later: remove the old files

``DiskLog.upkeep`` keeps retention and deletion away from the partition of the pass.
``abort`` ends a pass early; what it has replaced by then stays replaced. The thread
gives up the interpreter lock after every millisecond of work, and waits when it is
faster than the byte rate. ``cleaning`` has the rules and the crash protocol.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from stele.wire.record_batch import BatchHeader

from ..clock import Clock, PatientClock
from ..errors import StorageError
from ..work_budget import pause_among_partitions
from .cleaning.batch_filter import PLAIN, BatchFilter, Treatment
from .cleaning.byte_rate import ByteRate
from .cleaning.cleaned_segment import CLEANED_SUFFIX, CleanedSegmentTooLarge
from .cleaning.cleaning_pass import PassCounts, SegmentSource, map_keys, rewrite
from .cleaning.key_map import KeyMap
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
from .engine import CompactionCounts, TopicPartition
from .log import DiskLog
from .log_dir import LogDir
from .offset_checkpoints import OffsetCheckpoints
from .open_segments import OpenSegments
from .segment import SUFFIXES, Segment, segment_name
from .segment_loader import first_timestamp
from .topic_config import TopicConfig

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_KEEP_PLACE = Treatment(keep_place=True)
# Work between two pauses, and how long a pause is: with 1 ms the loop of a busy broker wakes within 3 ms.
_WORK_S = 0.001
_PAUSE_S = 0.000_2
# A partition whose pass failed is not tried again before this, unless the broker restarts.
_RETRY_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerOptions:
    """See ``settings`` for the reasons. ``bytes_per_s`` None: unlimited."""

    is_enabled: bool = True
    dedupe_buffer_bytes: int = 128 << 20
    bytes_per_s: float | None = None
    interval_ms: int = 15_000


class PassAborted(Exception):
    """The partition is deleted or no longer compacted, or the broker shuts down."""


class _Pace:
    """Makes room for the event loop, keeps to the byte rate, and ends the pass when it is aborted."""

    def __init__(self, bytes_per_s: float | None, clock: Clock, aborted: threading.Event) -> None:
        self._clock = clock
        self._rate = None if bytes_per_s is None else ByteRate(bytes_per_s, now_ms=clock.monotonic_ms())
        self._aborted = aborted
        self._paused_s = time.perf_counter()

    def __call__(self, size: int) -> None:
        if self._aborted.is_set():
            raise PassAborted
        if self._rate is not None and size:
            delay_ms = self._rate.delay_ms(size, now_ms=self._clock.monotonic_ms())
            if delay_ms and self._aborted.wait(delay_ms / 1000):
                raise PassAborted
        if time.perf_counter() - self._paused_s >= _WORK_S:
            time.sleep(_PAUSE_S)
            self._paused_s = time.perf_counter()


class Cleaner:
    """Compacts the logs of one data directory. Methods belong to the event loop."""

    def __init__(
        self,
        log_dir: LogDir,
        checkpoints: OffsetCheckpoints,
        logs: Mapping[TopicPartition, DiskLog],
        *,
        open_segments: OpenSegments,
        options: CleanerOptions,
        clock: Clock,
    ) -> None:
        self.options = options
        self._log_dir = log_dir
        self._checkpoints = checkpoints
        self._logs = logs
        self._open_segments = open_segments
        self._clock = clock
        # Tombstones go by it, so a wall clock that jumps ahead removes none early.
        self._patient = PatientClock(clock)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-cleaner")
        self._turn = asyncio.Lock()
        self._running: tuple[DiskLog, threading.Event] | None = None
        self._is_stopping = False
        self._retry_ms: dict[DiskLog, int] = {}
        # Old files to remove, and when, by the monotonic clock.
        self._discards: list[tuple[int, DiskLog, Replacement]] = []
        self._totals = PassCounts()
        self._passes = 0
        self._failures = 0
        self._last_pass_ms = -1
        self._last_duration_ms = -1

    # ── views ──

    @property
    def counts(self) -> CompactionCounts:
        """What was done since the start."""
        return CompactionCounts(
            passes=self._passes,
            failures=self._failures,
            bytes_read=self._totals.bytes_read,
            bytes_written=self._totals.bytes_written,
            records_read=self._totals.records_read,
            records_kept=self._totals.records_kept,
            last_pass_ms=self._last_pass_ms,
            last_duration_ms=self._last_duration_ms,
        )

    def dirty_ratio(self, log: DiskLog) -> float:
        """The part of what a pass would read that no pass has read yet, 0 to 1."""
        return self._range(log, _rules(log.config), {}).dirty_ratio

    # ── control ──

    def abort(self, log: DiskLog) -> None:
        """End the pass over ``log``, if one runs, at its next pause."""
        if self._running is not None and self._running[0] is log:
            self._running[1].set()

    def stop(self) -> None:
        """Begin no pass any more, and abort the one that runs."""
        self._is_stopping = True
        if self._running is not None:
            self._running[1].set()

    async def finish(self) -> None:
        """Return when no pass runs any more, after ``stop``."""
        async with self._turn:
            pass

    def close(self) -> None:
        """Give back the thread, when no pass runs."""
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
        now_ms = self._clock.monotonic_ms()
        for number, log in enumerate(list(self._logs.values())):
            await pause_among_partitions(number)
            retry_ms = self._retry_ms.get(log)
            if not log.config.is_compacted or (retry_ms is not None and retry_ms > now_ms):
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
            except FileNotFoundError:
                # Retention or a deletion took them meanwhile; the next time will tell.
                first_ms = {}
        return self._range(log, rules, first_ms), rules

    def _range(self, log: DiskLog, rules: CleaningRules, first_ms: Mapping[Segment, int]) -> CleaningRange:
        cleanable = log.cleanable_segments()
        stable_offset = log.recovery_point
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
            aborted, counts = threading.Event(), PassCounts()
            self._running = log, aborted
            started_ms = self._clock.monotonic_ms()
            try:
                await self._run(log, aborted, counts)
            except PassAborted:
                logger.info("%s: the compaction was aborted", log.directory)
                return False
            except Exception as error:
                self._failures += 1
                self._retry_ms[log] = self._clock.monotonic_ms() + _RETRY_MS
                if self._log_dir.failure is not None:
                    raise self._log_dir.failure from error
                # It concerns this partition alone; the others are cleaned.
                if isinstance(error, (OSError, StorageError)):
                    logger.error("%s: the compaction failed: %s", log.directory, error)
                else:
                    logger.exception("%s: the compaction failed", log.directory)
                return False
            finally:
                self._running = None
                self._add(counts)
            self._passes += 1
            self._last_pass_ms = self._clock.now_ms()
            self._last_duration_ms = self._clock.monotonic_ms() - started_ms
            self._retry_ms.pop(log, None)
            logger.info(
                "%s: compacted up to offset %d, %d of %d records remain, %d of %d bytes",
                log.directory,
                log.first_dirty,
                counts.records_kept,
                counts.records_read,
                counts.bytes_written,
                counts.bytes_read,
            )
            return True

    def _add(self, counts: PassCounts) -> None:
        self._totals.bytes_read += counts.bytes_read
        self._totals.bytes_written += counts.bytes_written
        self._totals.records_read += counts.records_read
        self._totals.records_kept += counts.records_kept
        self._totals.unreadable_batches += counts.unreadable_batches

    async def _run(self, log: DiskLog, aborted: threading.Event, counts: PassCounts) -> None:
        """Map, rewrite and replace; ``log.upkeep`` is held.

        Raises:
            PassAborted: see ``abort``.
            CorruptLog: a segment is corrupt, so nothing of it may be deleted.
            OSError: a segment cannot be read or written.
            LogDirFailed: a replacement failed halfway.
        """
        rules = _rules(log.config)
        to_clean = self._range(log, rules, {})
        facts = _facts(log, {})
        pace = _Pace(self.options.bytes_per_s, self._clock, aborted)
        source = SegmentSource(files=self._log_dir.files, directory=log.directory)
        # Those of batches that come meanwhile are after what is cleaned.
        last_batches = log.producer_state.last_batches()

        def treatment_of(header: BatchHeader) -> Treatment:
            return _KEEP_PLACE if header.base_offset in last_batches else PLAIN

        keys_max = to_clean.first_uncleanable - to_clean.first_dirty
        with KeyMap.for_keys(keys_max, memory_bytes=self.options.dedupe_buffer_bytes) as keys:
            mapped_end = await self._in_thread(
                lambda: map_keys(
                    source,
                    facts,
                    keys,
                    first_dirty=to_clean.first_dirty,
                    first_uncleanable=to_clean.first_uncleanable,
                    pace=pace,
                )
            )
            batch_filter = BatchFilter(
                keys,
                mapped_end=mapped_end,
                now_ms=self._patient.now_ms(),
                delete_retention_ms=rules.delete_retention_ms,
                pause=lambda: pace(0),
            )

            def rewrite_group(group: Sequence[SegmentFacts]) -> bool:
                return (
                    rewrite(
                        source,
                        group,
                        batch_filter,
                        counts,
                        index_interval_bytes=log.config.index_interval_bytes,
                        treatment_of=treatment_of,
                        pace=pace,
                    )
                    is not None
                )

            waiting = groups(facts, rules, mapped_end=mapped_end)[::-1]
            while waiting:
                group = waiting.pop()
                try:
                    is_new = await self._in_thread(lambda group=group: rewrite_group(group))
                except CleanedSegmentTooLarge:
                    # Together they are too large; one that is so alone stays as it is.
                    waiting += [[segment] for segment in group[::-1]] if len(group) > 1 else []
                    continue
                if is_new:
                    await self._replace(log, group, aborted)
        log.first_dirty = mapped_end
        await self._checkpoints.checkpoint()

    async def _replace(self, log: DiskLog, group: Sequence[SegmentFacts], aborted: threading.Event) -> None:
        """Put the cleaned segment of ``group`` in its place."""
        base_offsets = [segment.base_offset for segment in group]
        if aborted.is_set():
            await self._in_thread(lambda: self._remove_cleaned(log, base_offsets[0]))
            raise PassAborted
        by_base = {segment.base_offset: segment for segment in log.segments}
        replaced = [by_base[base_offset] for base_offset in base_offsets]
        replacement = Replacement(self._log_dir.files, log.directory, base_offsets)
        end_offset = group[-1].next_offset
        # Readers of the new segment accept holes from its first moment on.
        holes_until = log.holes_until = max(log.holes_until, end_offset)

        def prepare() -> None:
            try:
                log.write_holes_until(holes_until)
            except OSError:
                self._remove_cleaned(log, base_offsets[0])
                raise

        def swap() -> Segment:
            for segment in replaced:
                segment.indexes.pin(log_bytes=segment.size)
            replacement.commit()
            replacement.retire()
            replacement.install()
            return log.adopt_cleaned(replaced)

        await self._in_thread(prepare)
        for segment in replaced:
            segment.pin()
        try:
            cleaned = await self._in_thread(swap)
        except OSError as error:
            # Only a start can tell what is there.
            raise self._log_dir.fail(log.directory, error) from error
        log.replace_segments(replaced, cleaned)
        for segment in replaced:
            self._open_segments.forget(segment)
        delay_ms = log.config.file_delete_delay_ms
        self._discards.append((self._clock.monotonic_ms() + delay_ms, log, replacement))

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
