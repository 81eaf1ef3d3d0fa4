"""The metadata of the shared engine as dictionaries: what ``PostgresMeta`` must be equal to.

Every call is atomic, because none awaits anything that waits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from app.cluster.postgres.catalog import SKIPPED_EPOCHS
from app.storage.engine import AbortedTransaction
from app.storage.keys.key_index import SALT_BYTES
from app.storage.shared.commit_rules import (
    Decision,
    IdRow,
    ProducerKey,
    decide_commit,
    log_ids,
    logs_of_producers,
    producer_keys,
)
from app.storage.shared.meta import (
    ROWS_MAX,
    RUNS_DELETED_MAX,
    RUNS_PLANNED_MAX,
    RUNS_READ_MAX,
    AbortedFound,
    CleaningPlan,
    CommitAnswer,
    CommittedRun,
    CopyPhase,
    KeptLog,
    KeyRuns,
    KnownLog,
    LogDirt,
    LogRow,
    MergedObject,
    MergePlan,
    ObjectFenced,
    ObjectRef,
    ObjectWrite,
    PartitionId,
    ProducerRow,
    Retained,
    RunRead,
    RunsFound,
    RunsWanted,
    SilentUploader,
    StoreKind,
)
from app.storage.shared.upkeep_rules import (
    expired_runs,
    merged_log,
    runs_read_max,
    runs_to_merge,
    without_runs,
)

# What does not go back when a standby is promoted.
_KEPT = frozenset(("_now_ms", "history", "id_rows", "on_begun", "on_history", "watchers"))


@dataclass(slots=True)
class _Log:
    row: LogRow
    epochs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    unmerged_since_ms: int | None = None
    is_deleted: bool = False


@dataclass(slots=True)
class ModelObject:
    """``state`` as in the database: c, d or f."""

    state: str
    store: StoreKind
    size: int
    uploader: UUID
    committed_ms: int = -1
    dead_at_ms: int | None = None
    has_bytes: bool = True


class ModelMeta:
    """Implements ``Meta``. ``now_ms`` is the clock of the database.

    Tests may read its attributes: ``runs_of`` a log, oldest first, ``objects`` by key, ``inline`` the bytes of
    inline objects by key.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        # The epoch of the history.
        self.history = 1
        self._logs: dict[int, _Log] = {}
        self._log_ids: dict[PartitionId, int] = {}
        # Ids are never given out twice, also in another history.
        self._log_ids_skipped = 0
        self.runs_of: dict[int, list[RunRead]] = {}
        self.objects: dict[str, ModelObject] = {}
        self.inline: dict[str, bytes] = {}
        self._producers: dict[ProducerKey, ProducerRow] = {}
        self._open: dict[ProducerKey, int] = {}
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        self._suspects: list[str] = []
        self._claims: dict[int, float] = {}
        self.uploaders: dict[UUID, int] = {}
        # When the objects of a silent one were listed last.
        self._looked: dict[UUID, int] = {}
        self._first_dirty: dict[int, int] = {}
        # The newest epochs of named producers, by producer id.
        self.named_epochs: dict[int, int] = {}
        # The histories in which they were given out.
        self._named_in: dict[int, int] = {}
        # The transactional ids, by producer id, and what is called with those that a commit begins.
        self.id_rows: Callable[[], dict[int, IdRow]] = dict
        self.on_begun: Callable[[Sequence[int]], None] = lambda producer_ids: None
        # Called when another history has begun.
        self.on_history: Callable[[], None] = lambda: None
        # Called with each commit, before anything else happens.
        self.watchers: list[Callable[[Sequence[ObjectWrite], Decision], None]] = []

    def _row(self, log_id: int) -> LogRow | None:
        log = self._logs.get(log_id)
        if log is None or log.is_deleted:
            return None
        return replace(log.row, history=self.history)

    def _row_with_epochs(self, log_id: int) -> LogRow | None:
        row = self._row(log_id)
        return None if row is None else replace(row, epochs=tuple(self._logs[log_id].epochs))

    def _is_past(self, then_ms: int, age_s: float) -> bool:
        return then_ms <= self._now_ms() - age_s * 1000

    @property
    def live_logs(self) -> list[LogRow]:
        return [log.row for log in self._logs.values() if not log.is_deleted]

    # ── logs ──

    async def create_logs(self, topic_id: UUID, partitions: int) -> list[LogRow]:
        rows: list[LogRow] = []
        for partition in range(partitions):
            partition_id = PartitionId(topic_id, partition)
            if partition_id not in self._log_ids:
                log_id = self._log_ids[partition_id] = self._log_ids_skipped + len(self._log_ids) + 1
                self._logs[log_id] = _Log(
                    LogRow(
                        log_id=log_id,
                        partition_id=partition_id,
                        log_start=0,
                        next_offset=0,
                        size_bytes=0,
                        unmerged_bytes=0,
                        merged_until=0,
                    )
                )
                self.runs_of[log_id] = []
            row = self._row_with_epochs(self._log_ids[partition_id])
            if row is not None:
                rows.append(row)
        return rows

    async def delete_logs(self, topic_id: UUID) -> None:
        for log in self._logs.values():
            if log.row.partition_id.topic_id == topic_id:
                log.is_deleted = True

    async def log_rows(self, log_ids: Sequence[int]) -> dict[int, LogRow]:
        return {log_id: row for log_id in log_ids if (row := self._row_with_epochs(log_id)) is not None}

    async def moved_logs(self, known: Sequence[KnownLog]) -> dict[int, LogRow]:
        return {
            log.log_id: row
            for log in known
            if (row := self._row(log.log_id)) is not None
            and (row.log_start, row.next_offset, row.size_bytes, row.history) != log[1:]
        }

    # ── T1 ──

    async def begin_version(self, producer_id: int) -> int:
        """Begin a version of a named producer; return its epoch."""
        before, history = self.named_epochs.get(producer_id), self._named_in.get(producer_id, self.history)
        epoch = 0 if before is None else before + 1 + (SKIPPED_EPOCHS if history < self.history else 0)
        self.named_epochs[producer_id], self._named_in[producer_id] = epoch, self.history
        return epoch

    def epochs_of_names(self) -> dict[int, int]:
        """Return what a commit knows of named producers."""
        return self.named_epochs

    def decide(self, objects: Sequence[ObjectWrite]) -> Decision:
        """Return what a commit of new objects would do now."""
        with_producers = logs_of_producers(objects)
        return decide_commit(
            objects,
            {log_id: row for log_id in log_ids(objects) if (row := self._row(log_id)) is not None},
            {key: self._producers[key] for key in producer_keys(objects) if key in self._producers},
            {key: first for key, first in self._open.items() if key.log_id in with_producers},
            self.epochs_of_names(),
            self.id_rows(),
        )

    async def commit_objects(
        self, objects: Sequence[ObjectWrite], *, computed: CommitAnswer | None = None
    ) -> CommitAnswer:
        known = {written.key: self.objects[written.key] for written in objects if written.key in self.objects}
        fenced = sorted(key for key, found in known.items() if found.state == "f")
        if fenced:
            raise ObjectFenced(fenced)
        if known:
            assert computed is not None
            assert len(known) == len(objects)
            return computed
        return self.place(objects).answer

    def open_in_logs(self) -> dict[ProducerKey, int]:
        """Return the first offsets of open transactions."""
        return dict(self._open)

    def place(self, objects: Sequence[ObjectWrite]) -> Decision:
        """Commit new objects."""
        decision = self.decide(objects)
        self.on_begun(decision.begun)
        for key in decision.closed:
            del self._open[key]
        self._open.update(decision.opened)
        for log_id, aborted in decision.aborted:
            self._aborted.setdefault(log_id, []).append(aborted)
        for at, written in enumerate(objects):
            self.objects[written.key] = ModelObject(
                "c", written.store, written.size, written.uploader, self._now_ms()
            )
            if written.inline is not None:
                self.inline[written.key] = bytes(written.inline)
            if not any(run.object_at == at for run in decision.runs):
                self._suspects.append(written.key)
        for run in decision.runs:
            written = objects[run.object_at]
            self.runs_of[run.log_id].append(
                RunRead(
                    run.base_offset,
                    run.last_offset,
                    ObjectRef(written.key, self.objects[written.key].store),
                    run.position,
                    run.length,
                    run.max_timestamp,
                    is_merged=False,
                    cleaned_until=run.cleaned_until,
                )
            )
        for row in decision.logs.values():
            log = self._logs[row.log_id]
            if not log.row.unmerged_bytes:
                log.unmerged_since_ms = self._now_ms()
            if row.copy_phase is CopyPhase.COPIED:
                log.row = row
                continue
            if row.epoch < self.history and decision.runs:
                log.epochs = [
                    *_needed(log.epochs, row.log_start, self.history - 86400),
                    (self.history, log.row.next_offset),
                ]
            log.row = replace(row, epoch=self.history) if decision.runs else row
        now_ms = self._now_ms()
        for key, producer in decision.producers.items():
            self._producers[key] = producer._replace(last_timestamp_ms=now_ms)
        for watcher in self.watchers:
            watcher(objects, decision)
        return decision

    # ── another history ──

    def go_on_in(self, history: int, last_log_id: int) -> None:
        """Begin another history that has lost nothing. ``last_log_id`` was the last one given out or skipped."""
        self.history = history
        self._log_ids_skipped = last_log_id - len(self._log_ids)
        self.on_history()

    def standby(self) -> dict[str, Any]:
        """Return what an asynchronous standby has now."""
        return copy.deepcopy({name: value for name, value in vars(self).items() if name not in _KEPT})

    def fail_over(self, standby: dict[str, Any]) -> None:
        """Go on with what a standby had, in another history."""
        inline, skipped = self.inline, self._log_ids_skipped + len(self._log_ids)
        vars(self).update(copy.deepcopy(standby))
        # The store of inline objects reads the same dictionary.
        inline.clear()
        inline.update(self.inline)
        self.inline, self._log_ids_skipped = inline, skipped
        self.history += 1
        self.on_history()

    # ── copies of a mirror ──

    async def skip_copies(self, log_id: int, *, expected_end: int, offset: int) -> LogRow | None:
        row = self._row(log_id)
        if row is None or row.copy_phase is CopyPhase.ENDED or row.next_offset != expected_end:
            return row
        self._delete_oldest(log_id, list(self.runs_of[log_id]))
        await self.forget_producers(log_id)
        self._open = {key: first for key, first in self._open.items() if key.log_id != log_id}
        self._aborted.pop(log_id, None)
        self._logs[log_id].row = row.skipped_to(offset)
        return self._row(log_id)

    async def end_copies(self, log_ids: Sequence[int]) -> dict[int, LogRow]:
        ended = {log_id: row.ended_copy() for log_id in log_ids if (row := self._row(log_id)) is not None}
        for log_id, row in ended.items():
            self._logs[log_id].row = row
        return ended

    async def forget_producers(self, log_id: int) -> None:
        self._producers = {key: row for key, row in self._producers.items() if key.log_id != log_id}

    # ── T2 ──

    async def runs(self, wanted: Sequence[RunsWanted]) -> dict[int, RunsFound]:
        return {one.log_id: found for one in wanted if (found := self._plan(one)) is not None}

    def _plan(self, wanted: RunsWanted) -> RunsFound | None:
        log = self._row(wanted.log_id)
        if log is None:
            return None
        plan: list[RunRead] = []
        length = 0
        if wanted.offset >= log.log_start:
            near = [run for run in self.runs_of[log.log_id] if run.last_offset >= wanted.offset]
            for run in near[: runs_read_max(wanted.max_bytes, RUNS_READ_MAX)]:
                if plan and length >= wanted.max_bytes:
                    break
                plan.append(run)
                length += run.length
        return RunsFound(log, plan)

    def _visible(self, log_id: int) -> list[RunRead]:
        log = self._row(log_id)
        if log is None:
            return []
        return [run for run in self.runs_of[log_id] if run.last_offset >= log.log_start]

    async def run_at_time(self, log_id: int, timestamp: int) -> RunRead | None:
        return next((run for run in self._visible(log_id) if run.max_timestamp >= timestamp), None)

    async def newest_run(self, log_id: int, from_offset: int) -> RunRead | None:
        runs = [run for run in self._visible(log_id) if run.base_offset >= from_offset]
        return max(runs, key=lambda run: run.max_timestamp, default=None)

    # ── producers ──

    async def producers(self, log_id: int) -> list[ProducerRow]:
        return [
            row._replace(first_open=self._open.get(key, -1))
            for key, row in sorted(self._producers.items())
            if key.log_id == log_id
        ]

    async def expire_producers(self, idle_s: float) -> int:
        old = [
            key
            for key, row in self._producers.items()
            if self._is_past(row.last_timestamp_ms, idle_s) and key not in self._open
        ]
        for key in old[:ROWS_MAX]:
            del self._producers[key]
        return len(old[:ROWS_MAX])

    # ── transactions ──

    async def aborted(self, log_id: int, offset: int, end_offset: int) -> AbortedFound | None:
        row = self._row(log_id)
        return None if row is None else AbortedFound(row, self._aborted_of(row, offset, end_offset))

    def _aborted_of(
        self, row: LogRow, offset: int = 0, end_offset: int | None = None
    ) -> list[AbortedTransaction]:
        end_offset = row.last_stable if end_offset is None else min(end_offset, row.last_stable)
        return sorted(
            (
                aborted
                for aborted in self._aborted.get(row.log_id, ())
                if aborted.last_offset >= max(offset, row.log_start) and aborted.first_offset < end_offset
            ),
            key=lambda aborted: aborted.first_offset,
        )

    def _forget_aborted(self, log_id: int) -> None:
        log_start = self._logs[log_id].row.log_start
        kept = [aborted for aborted in self._aborted.get(log_id, ()) if aborted.last_offset >= log_start]
        self._aborted[log_id] = kept

    # ── T4 ──

    def _delete_oldest(self, log_id: int, gone: Sequence[RunRead]) -> None:
        del self.runs_of[log_id][: len(gone)]
        self._suspects += sorted({run.object.key for run in gone})

    async def delete_records(self, log_id: int, before_offset: int) -> LogRow | None:
        row = self._row(log_id)
        if row is None:
            return None
        moved = row.moved_start(before_offset)
        gone = [run for run in self.runs_of[log_id][:RUNS_DELETED_MAX] if run.last_offset < moved.log_start]
        self._delete_oldest(log_id, gone)
        self._logs[log_id].row = without_runs(moved, gone)
        self._forget_aborted(log_id)
        return self._logs[log_id].row

    async def expiring(self, kept: Sequence[KeptLog]) -> list[int]:
        return sorted(
            log.log_id
            for log in kept
            if (row := self._row(log.log_id)) is not None
            and expired_runs(
                row,
                [
                    CommittedRun(run, self.objects[run.object.key].committed_ms)
                    for run in self.runs_of[log.log_id][:1]
                ],
                now_ms=self._now_ms(),
                retention_s=log.retention_s,
                retention_bytes=log.retention_bytes,
            )
        )

    async def retain(
        self, log_id: int, *, retention_s: float | None, retention_bytes: int | None
    ) -> Retained | None:
        row = self._row(log_id)
        if row is None:
            return None
        oldest = self.runs_of[log_id][: RUNS_DELETED_MAX + 1]
        count = expired_runs(
            row,
            [CommittedRun(run, self.objects[run.object.key].committed_ms) for run in oldest],
            now_ms=self._now_ms(),
            retention_s=retention_s,
            retention_bytes=retention_bytes,
        )
        self._delete_oldest(log_id, oldest[:count])
        after = self._logs[log_id].row = without_runs(row, oldest[:count])
        self._forget_aborted(log_id)
        return Retained(after.log_start, count, count == RUNS_DELETED_MAX < len(oldest))

    async def purge(self) -> int:
        log_id = next((log_id for log_id, log in sorted(self._logs.items()) if log.is_deleted), None)
        if log_id is None:
            return 0
        gone = self.runs_of[log_id][:ROWS_MAX]
        self._delete_oldest(log_id, gone)
        if self.runs_of[log_id]:
            return len(gone)
        self._producers = {key: row for key, row in self._producers.items() if key.log_id != log_id}
        self._open = {key: first for key, first in self._open.items() if key.log_id != log_id}
        self._aborted.pop(log_id, None)
        self._claims.pop(log_id, None)
        self._first_dirty.pop(log_id, None)
        del self.runs_of[log_id], self._logs[log_id]
        return len(gone) + 1

    # ── T5 ──

    async def plan_merge(
        self, *, claim_s: float, min_bytes: int, min_age_s: float, max_bytes: int
    ) -> MergePlan | None:
        now_ms = self._now_ms()
        candidates = [
            log.row
            for log in self._logs.values()
            if not log.is_deleted
            and log.row.unmerged_bytes > 0
            and log.unmerged_since_ms is not None
            and (log.row.unmerged_bytes >= min_bytes or self._is_past(log.unmerged_since_ms, min_age_s))
            and self._claims.get(log.row.log_id, now_ms) <= now_ms
        ]
        if not candidates:
            return None
        log = min(candidates, key=lambda row: (-row.unmerged_bytes, row.log_id))
        self._claims[log.log_id] = now_ms + claim_s * 1000
        unmerged = [
            run
            for run in self.runs_of[log.log_id]
            if run.last_offset >= log.merged_until and not run.is_merged
        ]
        if not unmerged:
            return None
        return MergePlan(
            log=replace(log, history=self.history), runs=runs_to_merge(unmerged[:RUNS_DELETED_MAX], max_bytes)
        )

    async def commit_merge(self, plan: MergePlan, merged: MergedObject) -> bool:
        known = self.objects.get(merged.key)
        if known is not None:
            return known.state != "f"
        log_id = plan.log.log_id
        row = self._row(log_id)
        runs = self.runs_of.get(log_id, [])
        first = plan.runs[0]
        places = [_place(run) for run in runs]
        planned = [_place(run) for run in plan.runs]
        at = places.index(planned[0]) if row is not None and planned[0] in places else -1
        is_outdated = row is None or at < 0 or places[at : at + len(planned)] != planned
        if is_outdated or not merged.keeps_claim:
            self._claims.pop(log_id, None)
        if row is None or is_outdated:
            self.objects[merged.key] = ModelObject(
                "f", merged.store, merged.size, merged.uploader, dead_at_ms=self._now_ms()
            )
            return False
        self.objects[merged.key] = ModelObject(
            "c", merged.store, merged.size, merged.uploader, self._now_ms()
        )
        if merged.inline is not None:
            self.inline[merged.key] = bytes(merged.inline)
        runs[at : at + len(plan.runs)] = [
            RunRead(
                first.base_offset,
                plan.runs[-1].last_offset,
                ObjectRef(merged.key, merged.store),
                merged.position,
                merged.length,
                merged.max_timestamp,
                is_merged=True,
                sparse_index=merged.sparse_index,
                cleaned_until=merged.cleaned_until,
                keys=merged.keys,
            )
        ]
        self._suspects += sorted({run.object.key for run in plan.runs})
        self._aborted[log_id] = [
            aborted
            for aborted in self._aborted.get(log_id, ())
            if aborted.last_offset not in merged.gone_markers
        ]
        self._logs[log_id].row = merged_log(row, plan.runs, merged.length)
        self._logs[log_id].unmerged_since_ms = self._now_ms()
        return True

    # ── compaction ──

    async def dirt(self, log_ids: Sequence[int]) -> dict[int, LogDirt]:
        return {log_id: self._dirt_of(row) for log_id in log_ids if (row := self._row(log_id)) is not None}

    def _dirt_of(self, row: LogRow) -> LogDirt:
        first_dirty = max(self._first_dirty.get(row.log_id, 0), row.log_start)
        runs = self._visible(row.log_id)
        dirty = [run for run in runs if run.last_offset >= first_dirty]
        since_ms = None
        if dirty and dirty[0].last_offset < row.last_stable:
            committed_ms, newest_ms = self._committed_ms(dirty[0]), dirty[0].max_timestamp
            since_ms = min(committed_ms, newest_ms) if newest_ms >= 0 else committed_ms
        return LogDirt(
            log=row,
            first_dirty=first_dirty,
            clean_bytes=sum(run.length for run in runs if run.last_offset < first_dirty),
            dirty_since_ms=since_ms,
            now_ms=self._now_ms(),
        )

    def _committed_ms(self, run: RunRead) -> int:
        return self.objects[run.object.key].committed_ms

    def _short_runs(self, log_id: int, offset: int) -> list[RunRead]:
        near = [run for run in self._visible(log_id) if run.last_offset >= offset]
        return [run._replace(sparse_index=b"") for run in near[:RUNS_PLANNED_MAX]]

    async def plan_cleaning(self, log_id: int, *, claim_s: float) -> CleaningPlan | None:
        now_ms = self._now_ms()
        row = self._row(log_id)
        if row is None or self._claims.get(log_id, now_ms) > now_ms:
            return None
        self._claims[log_id] = now_ms + claim_s * 1000
        return CleaningPlan(
            log=row,
            first_dirty=max(self._first_dirty.setdefault(log_id, 0), row.log_start),
            key_salt=await self.key_salt(log_id),
            runs=[CommittedRun(run, self._committed_ms(run)) for run in self._short_runs(log_id, 0)],
            now_ms=now_ms,
            aborted=self._aborted_of(row),
        )

    async def extend_claim(self, log_id: int, *, claim_s: float) -> None:
        if log_id in self._claims:
            self._claims[log_id] = self._now_ms() + claim_s * 1000

    async def end_cleaning(self, log_id: int, first_dirty: int | None) -> None:
        if first_dirty is not None and log_id in self._first_dirty:
            self._first_dirty[log_id] = max(self._first_dirty[log_id], first_dirty)
        self._claims.pop(log_id, None)

    async def key_salt(self, log_id: int) -> bytes:
        return log_id.to_bytes(SALT_BYTES)

    async def key_runs(self, log_id: int, offset: int) -> KeyRuns | None:
        row = self._row(log_id)
        if row is None:
            return None
        return KeyRuns(
            log=row,
            key_salt=await self.key_salt(log_id),
            runs=self._short_runs(log_id, offset),
            stable_offset=row.last_stable,
            aborted=self._aborted_of(row, offset),
        )

    # ── T3, garbage collection ──

    async def heartbeat(self, uploader: UUID) -> None:
        self.uploaders[uploader] = self._now_ms()
        self._looked.pop(uploader, None)

    async def note_uploaders(self, uploaders: Sequence[UUID]) -> None:
        for uploader in uploaders:
            self.uploaders.setdefault(uploader, self._now_ms())

    def silent_ms(self, uploader: UUID) -> float:
        """Return how long ago the last heartbeat was."""
        return self._now_ms() - self.uploaders[uploader]

    @property
    def longest_silence_ms(self) -> float:
        return max(map(self.silent_ms, self.uploaders), default=0)

    async def silent_uploaders(self, silent_s: float) -> list[SilentUploader]:
        silent = [uploader for uploader, seen in self.uploaders.items() if self._is_past(seen, silent_s)]
        silent.sort(key=lambda uploader: (self._looked.get(uploader, self.uploaders[uploader]), uploader))
        return [
            SilentUploader(
                uploader,
                self.silent_ms(uploader) / 1000,
                (self._looked[uploader] - self.uploaders[uploader]) / 1000
                if uploader in self._looked
                else None,
            )
            for uploader in silent[:ROWS_MAX]
        ]

    async def note_look(self, uploader: UUID, forget_s: float) -> None:
        seen_ms = self.uploaders.get(uploader)
        if seen_ms is None:
            return
        if self._is_past(seen_ms, forget_s):
            del self.uploaders[uploader]
            self._looked.pop(uploader, None)
        else:
            self._looked[uploader] = self._now_ms()

    async def fence(self, uploader: UUID, keys: Sequence[str]) -> list[str]:
        for key in keys:
            if key not in self.objects:
                self.objects[key] = ModelObject(
                    "f", StoreKind.OBJECTS, 0, uploader, dead_at_ms=self._now_ms()
                )
            elif (found := self.objects[key]).state != "c" and not found.has_bytes:
                found.has_bytes, found.dead_at_ms = True, self._now_ms()
        return sorted({key for key in keys if self.objects[key].state == "f"})

    async def sweep(self) -> int:
        taken, self._suspects = self._suspects[:ROWS_MAX], self._suspects[ROWS_MAX:]
        used = {run.object.key for runs in self.runs_of.values() for run in runs}
        for key in taken:
            found = self.objects.get(key)
            if found is not None and found.state == "c" and key not in used:
                found.state = "d"
                found.dead_at_ms = self._now_ms()
        return len(taken)

    def _dead(self, dead_s: float) -> list[tuple[int, str, ModelObject]]:
        dead = [
            (found.dead_at_ms, key, found)
            for key, found in self.objects.items()
            if found.dead_at_ms is not None and self._is_past(found.dead_at_ms, dead_s)
        ]
        return sorted(dead, key=lambda entry: entry[:2])

    async def dead_objects(self, dead_s: float) -> list[ObjectRef]:
        dead = [ObjectRef(key, found.store) for _, key, found in self._dead(dead_s) if found.has_bytes]
        return dead[:ROWS_MAX]

    async def bytes_deleted(self, keys: Sequence[str]) -> None:
        for key in keys:
            found = self.objects.get(key)
            if found is not None and found.state != "c":
                found.has_bytes = False

    async def forget_objects(self, dead_s: float) -> int:
        old = [key for _, key, found in self._dead(dead_s) if not found.has_bytes][:ROWS_MAX]
        for key in old:
            del self.objects[key]
        return len(old)

    async def close(self) -> None:
        """Do nothing: brokers share it."""


def _place(run: RunRead) -> tuple[int, int, str, int, int]:
    """Return what a merge compares of a run."""
    return run.base_offset, run.last_offset, run.object.key, run.position, run.length


def _needed(epochs: Sequence[tuple[int, int]], log_start: int, oldest: int) -> list[tuple[int, int]]:
    """Leave out epochs before ``oldest`` that end at the log start or before it."""
    return [
        entry
        for at, entry in enumerate(epochs)
        if entry[0] >= oldest or not any(later[1] <= log_start for later in epochs[at + 1 :])
    ]
