"""Background work on shared storage: retention, merging, and the deletion of unneeded objects.

Every broker does all of it; the metadata keeps two of them from doing the same merge, and every step may
be repeated or given up at any point. Nothing here is needed for a correct answer to a client, only to keep
metadata and objects few.

- *retention* deletes the oldest runs of logs
- *compaction* is in ``compactor``
- *merging* copies small runs of one log into one object, in which readers find long stretches
- *garbage collection* deletes the bytes of objects without runs, after every reader has finished with them
- *orphans* are objects of brokers that died before they committed them
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from ...errors import StorageError
from ..cleaning.transactions import NOTHING_ABORTED, AbortedBatches
from ..disk.interval import Interval
from ..disk.pace import Pace
from ..engine import SharedStorageCounts
from ..keys.key_index import KeyHasher
from ..topic_partition import TopicPartition
from .committer import Committer
from .compactor import Compactor
from .log import SharedLog
from .meta import KeptLog, MergePlan, Meta, MetaUnavailable, ObjectRef, StoreKind
from .runs.batches import CorruptRunError, batches_of, index_run
from .runs.builder import BuiltRun, key_index_of, whole_run
from .runs.merged_objects import MergedObjects
from .runs.sparse_index import SparseIndexBuilder
from .store.object_keys import MERGED, WRITTEN, prefix_of, uploader_of
from .store.object_store import DELETE_MAX, ObjectStore, ObjectStoreError
from .upkeep_rules import is_look_due

logger = logging.getLogger(__name__)

# One query asks for no more, so that it holds neither the database nor the event loop for long.
_LOGS_PER_QUERY = 1000

# Memory for the keys of one merged object of a compacted log; with more keys it has no key index.
_KEY_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions:
    """Times in ms. ``is_enabled`` is False for tests that call each part themselves.

    A log is merged with ``merge_min_bytes`` unmerged bytes, or when they are ``merge_min_age_ms`` old; a
    merged object has up to ``merged_bytes_max``. Bytes of dead objects are deleted after ``dead_ms``, their
    rows forgotten after ``forget_ms``. A broker that was silent for ``silent_ms`` is dead; its objects are looked
    for several times, until it has been silent for ``forget_ms``.
    """

    is_enabled: bool = True
    retention_interval_ms: int = 300_000
    merge_interval_ms: int = 5_000
    sweep_interval_ms: int = 30_000
    heartbeat_interval_ms: int = 10_000
    probe_interval_ms: int = 2_000
    merge_min_bytes: int = 32 << 20
    merge_min_age_ms: int = 600_000
    merged_bytes_max: int = 64 << 20
    merge_claim_ms: int = 60_000
    dead_ms: int = 900_000
    forget_ms: int = 7 * 24 * 3_600_000
    silent_ms: int = 3_600_000
    producer_expiration_ms: int = 24 * 3_600_000


class KeyIndexing(NamedTuple):
    """Builds the key index of a merged object.

    ``aborted`` tells whose keys are left out.
    """

    hasher: KeyHasher
    aborted: AbortedBatches = NOTHING_ABORTED


class Upkeep:
    """The background work of one broker."""

    def __init__(
        self,
        *,
        meta: Meta,
        stores: Mapping[StoreKind, ObjectStore],
        logs: Mapping[TopicPartition, SharedLog],
        committer: Committer,
        merged: MergedObjects,
        compactor: Compactor,
        incarnation: UUID,
        options: UpkeepOptions,
        on_start_moved: Callable[[SharedLog], None],
        history: Callable[[], int],
        counts: SharedStorageCounts,
    ) -> None:
        self._meta = meta
        self._stores = stores
        self._logs = logs
        self._committer = committer
        self._incarnation = incarnation
        self._options = options
        self._on_start_moved = on_start_moved
        self._history = history
        # The history of the metadata in which this broker has looked for forgotten incarnations.
        self._searched: int | None = None
        self._counts = counts
        self._merged = merged
        self._compactor = compactor
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def compactor(self) -> Compactor:
        return self._compactor

    def start(self) -> None:
        """Begin the background work."""
        options = self._options
        self._every(options.heartbeat_interval_ms, self.heartbeat)
        if not options.is_enabled:
            return
        self._every(options.probe_interval_ms, self._committer.probe)
        self._every(options.retention_interval_ms, self.enforce_retention)
        self._every(options.merge_interval_ms, self.merge_all)
        self._every(options.sweep_interval_ms, self.collect_garbage)
        if self._compactor.options.is_enabled:
            self._every(self._compactor.interval, self._compactor.clean_due)

    async def close(self) -> None:
        """Stop at once: everything can be given up at any point."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _every(self, given: int | Interval, work: Callable[[], Awaitable[object]]) -> None:
        interval = Interval(given) if isinstance(given, int) else given

        async def run() -> None:
            while await interval.passes():
                try:
                    await work()
                except (MetaUnavailable, ObjectStoreError, StorageError) as error:
                    logger.info("%s is tried again in %d ms: %s", work.__name__, interval.interval_ms, error)
                except Exception:  # the edge of a task: the next try may succeed
                    logger.exception("%s failed", work.__name__)

        self._tasks.append(asyncio.create_task(run()))

    async def heartbeat(self) -> None:
        """Let the other brokers know that the objects of this one are not orphans."""
        await self._meta.heartbeat(self._incarnation)

    # ── retention ──

    async def enforce_retention(self) -> int:
        """Delete what the configurations of open logs no longer keep; return the number of runs."""
        kept = [(log, limits) for log in list(self._logs.values()) if (limits := _kept(log)) is not None]
        deleted = 0
        for first in range(0, len(kept), _LOGS_PER_QUERY):
            part = kept[first : first + _LOGS_PER_QUERY]
            expiring = set(await self._meta.expiring([limits for _, limits in part]))
            for log, limits in part:
                if log.log_id in expiring:
                    deleted += await self._retain(log, limits)
        return deleted

    async def _retain(self, log: SharedLog, limits: KeptLog) -> int:
        deleted = 0
        has_more = True
        while has_more and not log.is_dropped:
            retained = await self._meta.retain(
                log.log_id, retention_s=limits.retention_s, retention_bytes=limits.retention_bytes
            )
            if retained is None:
                break
            deleted += retained.runs_deleted
            has_more = retained.has_more
            if retained.log_start > log.log_start_offset:
                rows = await self._meta.log_rows([log.log_id])
                if log.log_id in rows:
                    log.update(rows[log.log_id])
                self._on_start_moved(log)
        return deleted

    # ── merging ──

    async def merge_all(self) -> int:
        """Merge logs until none needs it; return the number of merges."""
        merges = 0
        while await self.merge_one() is not None:
            merges += 1
        return merges

    async def merge_one(self) -> bool | None:
        """Merge runs of one log; return whether that took effect, None if no log needs it."""
        options = self._options
        plan = await self._meta.plan_merge(
            claim_s=options.merge_claim_ms / 1000,
            min_bytes=options.merge_min_bytes,
            min_age_s=options.merge_min_age_ms / 1000,
            max_bytes=self._merged.bytes_max,
        )
        if plan is None:
            return None
        try:
            plan, indexing = await self.indexing_of(plan)
            loaded = await self._merged.load(plan.runs)
            built = await asyncio.get_running_loop().run_in_executor(None, merged_run, plan, loaded, indexing)
        except CorruptRunError as error:
            logger.error("the runs of log %d are not merged: %s", plan.log.log_id, error)
            return False
        except ObjectStoreError as error:
            logger.warning("the runs of log %d are not merged: %s", plan.log.log_id, error)
            return False
        size = await self._merged.replace(
            plan, built, cleaned_until=max(run.cleaned_until for run in plan.runs)
        )
        if size is None:
            return False
        self._counts.merges += 1
        self._counts.merged_bytes += size
        return True

    async def indexing_of(self, plan: MergePlan) -> tuple[MergePlan, KeyIndexing | None]:
        """Return what is merged now, and how it gets a key index.

        Only objects of compacted logs do.

        A key index has no keys of open or aborted transactions. So what is after the last stable offset is merged
        later; if there is nothing else, it is merged without a key index.
        """
        row = plan.log
        if not any(log.log_id == row.log_id and log.config.is_compacted for log in self._logs.values()):
            return plan, None
        stable = [run for run in plan.runs if run.last_offset < row.last_stable]
        if not stable:
            return plan, None
        first_offset = stable[0].base_offset
        # Rows that are missing because a pass has removed all of their transactions: it has replaced runs of this plan.
        aborted = NOTHING_ABORTED
        if first_offset <= row.last_aborted:
            found = await self._meta.aborted(row.log_id, first_offset, stable[-1].last_offset + 1)
            aborted = AbortedBatches(() if found is None else found.transactions)
        hasher = KeyHasher(await self._meta.key_salt(row.log_id))
        return replace(plan, runs=stable), KeyIndexing(hasher, aborted)

    # ── garbage collection and orphans ──

    async def collect_garbage(self) -> int:
        """Purge deleted logs, find dead objects and delete their bytes; return how many objects those had."""
        options = self._options
        await self._fence_abandoned()
        while await self._meta.purge():
            pass
        while await self._meta.sweep():
            pass
        await self._find_uploaders()
        await self._fence_orphans()
        deleted = 0
        while dead := await self._meta.dead_objects(options.dead_ms / 1000):
            await self._delete_bytes(dead)
            deleted += len(dead)
        await self._meta.forget_objects(options.forget_ms / 1000)
        await self._meta.expire_producers(options.producer_expiration_ms / 1000)
        return deleted

    async def _fence_abandoned(self) -> None:
        """Fence objects of this broker that were perhaps stored and will not be committed."""
        keys = list(self._committer.abandoned)
        if keys:
            await self._meta.fence(self._incarnation, keys)
            self._committer.abandoned = [key for key in self._committer.abandoned if key not in keys]

    async def _find_uploaders(self) -> None:
        """Have the metadata know everyone who has objects; a database that was promoted may have forgotten some."""
        history, store = self._history(), self._stores.get(StoreKind.OBJECTS)
        if store is None or history == self._searched:
            return
        for kind in (WRITTEN, MERGED):
            after = ""
            while page := await store.list_page(f"{kind}/", after=after):
                uploaders = {uploader for stored in page if (uploader := uploader_of(stored.key)) is not None}
                await self._meta.note_uploaders(sorted(uploaders))
                # More objects of the last one say nothing new.
                after = f"{page[-1].key.rpartition('/')[0]}/~"
        self._searched = history

    async def _fence_orphans(self) -> None:
        store = self._stores.get(StoreKind.OBJECTS)
        for silent in await self._meta.silent_uploaders(self._options.silent_ms / 1000):
            uploader = silent.uploader
            if uploader == self._incarnation or not is_look_due(silent):
                continue
            for kind in (WRITTEN, MERGED):
                after = ""
                while store is not None and (
                    page := await store.list_page(prefix_of(kind, uploader), after=after)
                ):
                    await self._meta.fence(uploader, [stored.key for stored in page])
                    after = page[-1].key
            # What is stored inline is stored by its commit, so it is never an orphan.
            forget_ms = 0 if store is None else self._options.forget_ms
            await self._meta.note_look(uploader, forget_ms / 1000)

    async def _delete_bytes(self, dead: Sequence[ObjectRef]) -> None:
        for kind in StoreKind:
            keys = [ref.key for ref in dead if ref.store is kind]
            store = self._stores.get(kind)
            for first in range(0, len(keys), DELETE_MAX):
                part = keys[first : first + DELETE_MAX]
                # Without a store, they were fenced before they had bytes, unless the cluster is about to move to one.
                if store is not None:
                    await store.delete(part)
                await self._meta.bytes_deleted(part)
                self._counts.deleted_objects += len(part)


def merged_run(plan: MergePlan, loaded: Sequence[bytes], indexing: KeyIndexing | None) -> BuiltRun:
    """Return merged runs as one, with a key index if ``indexing`` is given; for threads.

    ``loaded`` has their bytes. The batches get their offsets; those of copies have them.

    Raises:
        CorruptRunError: a batch is damaged, or the runs have other offsets than the plan says.
    """
    base_offset, end_offset = plan.runs[0].base_offset, plan.runs[-1].last_offset + 1
    has_copies = any(planned.cleaned_until for planned in plan.runs)
    if has_copies:
        run, index = bytearray(), SparseIndexBuilder()
        for planned, data in zip(plan.runs, loaded, strict=True):
            for batch, header in whole_run(planned, bytearray(data)):
                index.add(header.base_offset - base_offset, len(run))
                run += batch
        sparse_index = index.build()
    else:
        run = bytearray().join(loaded)
        sparse_index, next_offset = index_run(run, base_offset)
        if next_offset != end_offset:
            raise CorruptRunError(
                f"the batches end at offset {next_offset}, not {end_offset}", position=len(run)
            )
    keys = b""
    if indexing is not None:
        keys = key_index_of(
            batches_of(run, base_offset, is_cleaned=has_copies),
            indexing.hasher,
            log_bytes=len(run),
            next_offset=end_offset,
            memory_bytes=_KEY_BYTES_MAX,
            pace=Pace(threading.Event()),
            aborted=indexing.aborted,
        )
    return BuiltRun(
        batches=run,
        sparse_index=sparse_index,
        keys=keys,
        max_timestamp=max(planned.max_timestamp for planned in plan.runs),
    )


def _kept(log: SharedLog) -> KeptLog | None:
    """Return what retention keeps of a log; None if it keeps everything."""
    config = log.config
    retention_s = config.retention_ms / 1000 if config.retention_ms >= 0 else None
    retention_bytes = config.retention_bytes if config.retention_bytes >= 0 else None
    if retention_s is None and retention_bytes is None and not config.is_compacted:
        return None
    return KeptLog(log.log_id, retention_s, retention_bytes)
