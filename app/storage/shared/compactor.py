"""Compaction of logs in shared storage: one pass at a time at each broker.

::

    event loop                                 thread of the pass
    ─────────────────────────────────────────  ─────────────────────────────────────────
    choose a log, claim it
    load the dirty runs, some at a time        map their keys
    for each group of runs, oldest first:
      load it                                  write what remains of it into one run
      store an object, put it in its place
    note where the next pass begins

Each group is replaced by a transaction of its own, which is refused if its runs no longer exist. A
record goes because of a later one that is committed, so a pass may end at any point. Groups are replaced
from the log start on: a tombstone gets its time to go only after all older records of its key went, a marker
only after all batches of its transaction. No run is cleaned in which a transaction is open. The claim only saves
work; two passes over one log refuse each other's groups.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from ...clock import Clock
from ..cleaning.pass_state import PassCounts, PassScope
from ..disk.interval import Interval
from ..disk.pace import Pace, WorkAborted, in_paced_thread
from ..engine import CompactionCounts, PartitionCompaction
from ..passes import Passes
from ..topic_partition import TopicPartition
from .cleaning_rules import CleaningRules, dirty_ratio, first_uncleanable, groups, is_due, rules_of
from .cleaning_work import CleaningWork
from .log import SharedLog
from .meta import CleaningPlan, LogDirt, MergePlan, Meta, MetaUnavailable, RunRead
from .runs.batches import CorruptRunError
from .runs.merged_objects import MergedObjects
from .store.object_store import ObjectNotFound, ObjectStoreError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# A claim is not extended more often.
_CLAIM_MS_MIN = 1_000
# One query asks for no more logs.
_LOGS_PER_QUERY = 1000
# Runs that are loaded at a time to map their keys, unless one is larger.
_MAPPED_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorOptions:
    """``wait_bytes`` and ``wait_ms``: see ``CleaningRules``.

    ``bytes_per_s`` None: unlimited. A marker stays for ``marker_ms_min`` after the batches of its transaction, longer
    than any read that may have begun before they went (``reader``).
    """

    is_enabled: bool = True
    interval_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    bytes_per_s: float | None = None
    wait_bytes: int = 32 << 20
    wait_ms: int = 600_000
    claim_ms: int = 10_000
    marker_ms_min: int = 900_000


class _PlanOutdatedError(Exception):
    """Runs were merged, cleaned or deleted meanwhile; a later pass plans again."""


class Compactor:
    """Compacts the open logs of one broker. Methods belong to the event loop."""

    def __init__(
        self,
        *,
        meta: Meta,
        logs: Mapping[TopicPartition, SharedLog],
        merged: MergedObjects,
        clock: Clock,
        options: CompactorOptions,
    ) -> None:
        self._meta = meta
        self._logs = logs
        self._merged = merged
        self._clock = clock
        self._options = options
        # Between two looks for passes that are due.
        self.interval = Interval(options.interval_ms)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-cleaner")
        self._turn = asyncio.Lock()
        self._aborted = threading.Event()
        self._is_stopping = False
        # As of the last look for logs that are due.
        self._dirt: dict[SharedLog, LogDirt] = {}
        self._passes = Passes[SharedLog](clock)

    # ── views ──

    @property
    def options(self) -> CompactorOptions:
        return self._options

    @property
    def counts(self) -> CompactionCounts:
        """This broker's counts since its start."""
        return self._passes.counts

    def partition_compaction(self, log: SharedLog) -> PartitionCompaction | None:
        """Return how dirty a log was when this broker looked last; None if it is not compacted."""
        if not log.config.is_compacted:
            return None
        dirt = self._dirt.get(log)
        state = self._passes.state(
            log,
            is_enabled=self._options.is_enabled,
            is_due=dirt is not None and is_due(dirt, self._rules(log)),
        )
        return PartitionCompaction(dirty_ratio=0.0 if dirt is None else dirty_ratio(dirt), cleaner=state)

    # ── control ──

    def abort(self, log: SharedLog) -> None:
        """End the pass over ``log`` at its next pause.

        The log is deleted or no longer compacted.
        """
        self._dirt.pop(log, None)
        self._passes.forget(log)
        if self._passes.running is log:
            self._aborted.set()

    async def close(self) -> None:
        """End the pass that runs, and the thread."""
        self._is_stopping = True
        self._aborted.set()
        async with self._turn:
            self._thread.shutdown()

    # ── passes ──

    async def clean_due(self) -> int:
        """Run passes until none is due; return how many were completed.

        Raises ``MetaUnavailable``.
        """
        passes = 0
        # Claimed by another broker, or failed.
        skipped: set[SharedLog] = set()
        async with self._turn:
            while not self._is_stopping:
                due = [log for log in await self._due() if log not in skipped]
                if not due:
                    break
                for log in due:
                    if not self._is_stopping and await self._clean(log):
                        passes += 1
                    else:
                        skipped.add(log)
        return passes

    def _rules(self, log: SharedLog) -> CleaningRules:
        options = self._options
        return rules_of(log.config, wait_bytes=options.wait_bytes, wait_ms=options.wait_ms)

    async def _due(self) -> list[SharedLog]:
        """Look at all compacted logs; return those that are due, the dirtiest first."""
        logs = {log.log_id: log for log in self._logs.values() if log.config.is_compacted}
        found: dict[SharedLog, LogDirt] = {}
        ids = sorted(logs)
        for first in range(0, len(ids), _LOGS_PER_QUERY):
            rows = await self._meta.dirt(ids[first : first + _LOGS_PER_QUERY])
            found.update((logs[log_id], dirt) for log_id, dirt in rows.items())
        self._dirt = found
        due = [
            log
            for log, dirt in found.items()
            if is_due(dirt, self._rules(log)) and self._passes.may_begin(log) and not self._is_gone(log)
        ]
        return sorted(due, key=lambda log: (-dirty_ratio(found[log]), log.log_id))

    def _is_gone(self, log: SharedLog) -> bool:
        return self._logs.get(log.topic_partition) is not log or not log.config.is_compacted

    async def _clean(self, log: SharedLog) -> bool:
        """Run one pass over ``log``; return whether it was completed and got further."""
        if self._is_gone(log):
            return False
        plan = await self._meta.plan_cleaning(log.log_id, claim_s=self._options.claim_ms / 1000)
        if plan is None:
            # Another broker is at it.
            return False
        counts = PassCounts()
        self._passes.begin(log)
        self._aborted = threading.Event()
        mapped_end: int | None = None
        claim = asyncio.create_task(self._keep_claim(log))
        try:
            mapped_end = await self._run(log, plan, counts)
        except WorkAborted:
            logger.info("%s: the compaction was aborted", log.topic_partition)
        except _PlanOutdatedError:
            logger.info("%s: the compaction ends early: its objects were replaced", log.topic_partition)
        except (ObjectStoreError, MetaUnavailable) as error:
            self._passes.failed(log, is_lasting=False)
            logger.warning("%s: the compaction failed: %s", log.topic_partition, error)
        except CorruptRunError as error:
            self._passes.failed(log)
            logger.error("%s: the compaction failed: %s", log.topic_partition, error)
        except Exception:
            # It concerns this log alone; the others are cleaned.
            self._passes.failed(log)
            logger.exception("%s: the compaction failed", log.topic_partition)
        finally:
            claim.cancel()
            self._passes.end(counts)
        with suppress(MetaUnavailable):
            # Otherwise the claim ends by itself, and the same keys are mapped again.
            await self._meta.end_cleaning(log.log_id, mapped_end)
        if mapped_end is None:
            return False
        self._passes.completed(log, counts, name=log.topic_partition, end_offset=mapped_end)
        return mapped_end > plan.first_dirty

    async def _keep_claim(self, log: SharedLog) -> None:
        """Extend the claim while a pass runs; it ends soon after a broker that dies."""
        while True:
            await asyncio.sleep(max(self._options.claim_ms / 3, _CLAIM_MS_MIN) / 1000)
            try:
                await self._meta.extend_claim(log.log_id, claim_s=self._options.claim_ms / 1000)
            except MetaUnavailable as error:
                logger.debug("%s: the claim is not extended: %s", log.topic_partition, error)

    async def _run(self, log: SharedLog, plan: CleaningPlan, counts: PassCounts) -> int | None:
        """Map and rewrite; return the offset up to which the log is clean.

        None if nothing new may be cleaned, so nothing was done.

        Raises:
            WorkAborted: see ``abort`` and ``close``.
            CorruptRunError: a run is damaged, so nothing of it may be deleted.
            _PlanOutdatedError, ObjectStoreError, MetaUnavailable: a later pass tries again.
        """
        end = first_uncleanable(
            plan.runs,
            self._rules(log),
            first_dirty=plan.first_dirty,
            last_stable=plan.log.last_stable,
            now_ms=plan.now_ms,
        )
        if end <= plan.first_dirty:
            return None
        scope = PassScope(
            first_dirty=plan.first_dirty,
            first_uncleanable=end,
            now_ms=plan.now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            memory_bytes=self._options.dedupe_buffer_bytes,
        )
        work = CleaningWork(
            scope,
            marker_ms_min=self._options.marker_ms_min,
            aborted=plan.aborted,
            key_salt=plan.key_salt,
            pace=Pace(self._aborted, clock=self._clock, bytes_per_s=self._options.bytes_per_s),
        )
        try:
            mapped_end = await self.map_keys(plan, work, end)
            work.end_mapping(mapped_end)
            for group in groups(
                plan.runs,
                log_start=plan.log.log_start,
                mapped_end=mapped_end,
                max_bytes=self._merged.bytes_max,
            ):
                await self._rewrite(log, plan, work, group, mapped_end, counts)
        finally:
            work.close()
        return mapped_end

    async def map_keys(self, plan: CleaningPlan, work: CleaningWork, end: int) -> int:
        """Map the keys of the dirty runs; return the offset up to which all are known, at most ``end``."""
        dirty = [
            committed.run
            for committed in plan.runs
            if committed.run.last_offset >= plan.first_dirty and committed.run.base_offset < end
        ]
        for some in _parts(dirty):
            for run, data in zip(some, await self._load(some), strict=True):
                full_at = await self._in_thread(lambda run=run, data=data: work.map_run(run, data))
                if full_at is not None:
                    return full_at
        return end

    async def _rewrite(
        self,
        log: SharedLog,
        plan: CleaningPlan,
        work: CleaningWork,
        group: Sequence[RunRead],
        mapped_end: int,
        counts: PassCounts,
    ) -> None:
        data = await self._load(group)
        cleaned = await self._in_thread(lambda: work.rewrite(group, data, counts))
        if self._aborted.is_set() or self._is_gone(log):
            raise WorkAborted
        if cleaned is None:
            return
        replaced = await self._merged.replace(
            MergePlan(log=plan.log, runs=group),
            cleaned.built,
            cleaned_until=mapped_end,
            gone_markers=cleaned.gone_markers,
            keeps_claim=True,
        )
        if replaced is None:
            raise _PlanOutdatedError

    async def _load(self, runs: Sequence[RunRead]) -> list[bytearray]:
        if self._aborted.is_set():
            raise WorkAborted
        try:
            return [bytearray(data) for data in await self._merged.load(runs)]
        except ObjectNotFound as error:
            raise _PlanOutdatedError from error

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await in_paced_thread(self._thread, work, self._aborted)


def _parts(runs: Sequence[RunRead]) -> Iterator[list[RunRead]]:
    """Yield runs in parts of at most ``_MAPPED_BYTES``, or one run."""
    part: list[RunRead] = []
    length = 0
    for run in runs:
        if part and length + run.length > _MAPPED_BYTES:
            yield part
            part, length = [], 0
        part.append(run)
        length += run.length
    if part:
        yield part
