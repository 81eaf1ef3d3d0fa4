"""The engine on this machine: segments on disk, rings in memory, group commit.

Appends go to the page cache on the event loop; everything that may wait for a
disk (syncs, cold reads, recovery, deletion) runs in threads, but for syncs that
are quick and that nothing else waits for (``loop_syncs``). The parts:

- ``log_dir``         the threads, and the failure that stops the directory
- ``logs.manager``, ``logs.open_logs``   opening, creating, deleting and closing logs; the open ones
- ``logs.reader``     reads by offset and by time
- ``flusher``         group commit
- ``housekeeping``    checkpoints and retention
- ``cleaner``, ``key_reader``   compaction; the newest record of each key
- ``data_dir_views``  what operators ask about the files

It is one class in one file, because it implements one interface; each part of the work has a module of its
own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import Durability
from stele.wire.record_batch import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
)

from ..clock import Clock
from ..errors import (
    InvalidConfig,
    LogDirFailed,
    NotReplicated,
    SteleError,
    StorageError,
    UnexpectedEnd,
    UnknownTopic,
)
from ..work_budget import pause, visited
from .cleaner import Cleaner, CleanerOptions
from .data_dir_views import DataDirViews
from .disk.files import Files
from .engine import (
    AppendTicket,
    CompactionCounts,
    LogState,
    PartitionCompaction,
    PartitionFetch,
    PartitionRead,
    PartitionSpec,
    TierOffsets,
)
from .housekeeping import Housekeeping
from .key_reader import KeyReader
from .keys.newest_offsets import NewestOffsets
from .logs.data_dir import DataDir, Start
from .logs.flush_work import FlushWork
from .logs.log import DiskLog
from .logs.log_changes import LogChanges
from .logs.log_dir import LogDir
from .logs.manager import LogManager
from .logs.memory_log import MemoryLog
from .logs.open_logs import PartitionLogs
from .logs.partition_log import PartitionLog
from .logs.reader import LogReader
from .replica_cover import ReplicaCover, when_both
from .segments.remote_segments import RemoteLogs
from .segments.segment import SegmentTornError
from .sequences import ProducerView, StoredBatch
from .stamps import stamp
from .syncing.flusher import Flusher, SyncObserver
from .tiering import SealedRuns, Tiering
from .topic_config import TopicConfig
from .topic_partition import TopicPartition
from .transactional_produce import TransactionalProduce
from .waiters import Waiters

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
# A larger batch is written in slices; a write of 1 MiB takes up to 2 ms.
_LARGE_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Times in ms; see ``settings`` for those that users may choose."""

    flush_interval_ms: int = 100
    # Unsynced bytes of a partition that are synced at once: one large sync delays appends, a small one hardly does.
    flush_bytes: int = 4 << 20
    checkpoint_interval_ms: int = 10_000
    first_checkpoint_ms: int = 0
    retention_interval_ms: int = 30_000
    # Files synced concurrently; the journal of the file system merges the syncs.
    sync_threads: int = 8
    # Sealed segment files kept open for reads.
    open_segments_max: int = 512
    # Partitions on disk, each of which has an open file; None: no limit.
    open_logs_max: int | None = None
    table_memory_bytes_max: int = 64 << 20
    cleaner: CleanerOptions = field(default_factory=CleanerOptions)


class EmbeddedEngine:
    """Implements ``LogEngine``; one per data directory."""

    # A disk answers or fails.
    stall = None

    def __init__(
        self,
        files: Files,
        path: Path,
        *,
        clock: Clock,
        options: EngineOptions,
        remote_logs: RemoteLogs | None = None,
    ) -> None:
        """``remote_logs`` reads what is in a bucket alone."""
        self._cover: ReplicaCover | None = None
        self._runs: SealedRuns | None = None
        self._remote_logs = remote_logs
        self._clock = clock
        self._options = options
        self._log_dir = LogDir(files, path, threads=options.sync_threads)
        self._manager = LogManager(
            self._log_dir,
            DataDir(files, path),
            clock,
            open_logs_max=options.open_logs_max,
            remote_logs=remote_logs,
        )
        self._logs = PartitionLogs(path, self._manager.logs)
        self._reader = LogReader(self._logs, self._log_dir, open_segments_max=options.open_segments_max)
        self._views = DataDirViews(self._logs, self._log_dir)
        self._waiters = Waiters()
        self._deletions: set[asyncio.Task[int]] = set()
        self._flusher = Flusher(
            self._log_dir.threads,
            threads_max=options.sync_threads,
            on_synced=self._synced,
            on_refused=lambda log, error: self._log_dir.refuse(log.directory, error),
        )
        self._log_dir.on_failure(self._flusher.fail)
        self._log_dir.on_failure(lambda _failure: self._waiters.wake_all())
        self._keys = KeyReader(
            self._logs.disk, self._log_dir, table_memory_bytes_max=options.table_memory_bytes_max
        )
        self._cleaner = Cleaner(
            self._log_dir,
            self._manager.checkpoints,
            self._manager.logs,
            open_segments=self._reader.open_segments,
            on_cleaned=self._keys.refresh,
            options=options.cleaner,
            clock=clock,
        )
        self._housekeeping = Housekeeping(
            self._log_dir,
            self._manager,
            self._logs.memory,
            cleaner=self._cleaner,
            flusher=self._flusher,
            open_segments=self._reader.open_segments,
            clock=clock,
            on_change=self._waiters.changed,
        )

    # ── life ──

    async def open(self) -> Start:
        return await self._manager.open()

    async def start(self) -> None:
        await self._manager.finish_deletions()
        self._housekeeping.start(
            checkpoint_interval_ms=self._options.checkpoint_interval_ms,
            first_checkpoint_ms=self._options.first_checkpoint_ms,
            retention_interval_ms=self._options.retention_interval_ms,
        )

    async def close(self) -> None:
        await self._keys.stop()
        await self._housekeeping.stop()
        while self._deletions:
            await asyncio.wait(self._deletions)
        async with self._manager.checkpoints.lock:
            await self._close()

    async def _close(self) -> None:
        self._waiters.wake_all()
        for log in list(self._logs.disk.values()):
            await self._flusher.quiesce(log)
        with contextlib.suppress(OSError):
            # A shutdown in order writes a little, and spares the next start a scan.
            if self._manager.is_open and await self._log_dir.find_space() is not None:
                self._log_dir.spend_kept_space()
        is_clean = self._manager.is_recovered and self._log_dir.failure is None
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
        await self._cleaner.close()
        self._keys.close()
        self._log_dir.shut_down_threads()

    def _not_closed(self, error: Exception) -> None:
        logger.error("%s was not closed in order, the next start checks it: %s", self._log_dir.path, error)

    @property
    def failure(self) -> StorageError | None:
        return self._log_dir.failure

    async def check_writable(self) -> None:
        failure = self._log_dir.failure
        if failure is not None:
            # One that is raised again and again would keep the frames of each time.
            raise LogDirFailed(failure.path, failure.cause)
        try:
            full = await self._log_dir.find_space()
        except OSError as error:
            raise self._log_dir.refuse(self._log_dir.path, error) from error
        if full is not None:
            raise full.with_traceback(None)

    async def with_kept_space(self, work: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await self._log_dir.with_kept_space(work)
        except OSError as error:
            raise self._log_dir.refuse(self._log_dir.path, error) from error

    def replicated_by(self, cover: ReplicaCover, runs: SealedRuns) -> None:
        """Use a replica: appends may wait for ``cover``, and segments of ``runs`` may leave the disk."""
        assert self._remote_logs is not None
        self._cover, self._runs = cover, runs
        self._housekeeping.tiering = Tiering(
            self._log_dir, self._reader.open_segments, runs, self._remote_logs
        )

    def follow_changes(self) -> LogChanges:
        """Return the changes of all logs on disk from now on."""
        return self._manager.follow_changes()

    @property
    def newest_leader_epoch(self) -> int:
        """The epoch in which records are written now."""
        return self._manager.leader_epoch

    def observe_syncs(self, observer: SyncObserver) -> None:
        self._flusher.on_sync = observer

    def observe_appends(
        self,
        observer: Callable[[TopicPartition], None],
        followed: Callable[[], Iterable[TopicPartition]] = tuple,
    ) -> None:
        self._waiters.observe_appends(observer, followed)

    # ── partitions ──

    @property
    def is_shared(self) -> bool:
        return False

    async def prepare(self, specs: Sequence[PartitionSpec]) -> None:
        await self.create(specs)

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        on_disk: list[PartitionSpec] = []
        async for spec in visited(specs):
            if self._logs.find(spec.topic_partition) is not None:
                continue
            if spec.config.storage == "disk":
                on_disk.append(spec)
            else:
                # What was in it before this start is lost, its producers too.
                if not self._housekeeping.has_started:
                    spec.producer_state.clear()
                self._logs.memory[spec.topic_partition] = MemoryLog(spec, self._clock)
        if on_disk:
            await self._manager.create(on_disk)

    def check_config(self, config: TopicConfig) -> None:
        for name, value, is_on in (
            ("stele.acks", config.acks, config.acks == "replicated"),
            ("remote.storage.enable", "true", config.remote_storage_enable),
        ):
            if is_on and config.storage == "memory":
                raise InvalidConfig(name, value, "a topic in memory is not in the replica")
            if is_on and self._cover is None:
                raise InvalidConfig(
                    name, value, "this broker has no replica: start it with --replicate-to URL"
                )

    def set_cleaner_backoff(self, interval_ms: int) -> None:
        self._cleaner.interval.change(interval_ms)

    def configure(self, topic_partition: TopicPartition, config: TopicConfig) -> None:
        log = self._logs[topic_partition]
        log.config = config
        if isinstance(log, DiskLog) and not config.is_compacted:
            self._cleaner.abort(log)
            self._keys.forget(log)

    async def drop(self, topic_partitions: Sequence[TopicPartition]) -> bool:
        dropped: list[DiskLog] = []
        async for topic_partition in visited(topic_partitions):
            self._waiters.wake(topic_partition)
            self._logs.memory.pop(topic_partition, None)
            log = self._manager.logs.pop(topic_partition, None)
            if log is not None:
                self._manager.checkpoints.touch(topic_partition)
                self._cleaner.abort(log)
                self._keys.forget(log)
                log.note_change()
                dropped.append(log)
        return await self._housekeeping.delete(dropped)

    async def remove_leftovers(self, topic: str, partitions: int, topic_id: UUID) -> bool:
        return await self._manager.remove_leftovers(topic, partitions, topic_id)

    # ── append ──

    @property
    def large_bytes(self) -> int:
        return _LARGE_BYTES

    async def write_ahead(
        self,
        topic_partition: TopicPartition,
        batch: memoryview,
        header: BatchHeader,
        *,
        is_copy: bool = False,
    ) -> None:
        log = self._logs.disk.get(topic_partition)
        if log is None or self._log_dir.refuses_appends:
            return
        with contextlib.suppress(OSError, SteleError):
            has_producer = header.producer_id != NO_PRODUCER_ID and not is_copy
            if has_producer and log.producer_state.check(header) is not None:
                # A repeat is not written.
                return
            for _ in log.write_ahead(batch, header, None if is_copy else self._manager.leader_epoch):
                await pause()
                if self._logs.disk.get(topic_partition) is not log:
                    # It is being deleted.
                    return

    def tiers(self, topic_partition: TopicPartition) -> TierOffsets:
        log = self._logs.disk.get(topic_partition)
        if log is None:
            return TierOffsets(self._logs[topic_partition].log_start_offset, -1)
        local_start = max(log.log_start_offset, log.segments[log.local_start()].base_offset)
        tiered_end = -1
        if log.config.remote_storage_enable and self._runs is not None:
            for segment in log.segments:
                if segment.remote is None and self._runs.sealed_runs(log, segment) is None:
                    break
                tiered_end = segment.next_offset
        return TierOffsets(local_start, tiered_end)

    def append(
        self,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[BatchHeader],
        *,
        sync: bool,
        needs_state: bool = False,
        admit: Callable[[BatchHeader], None] | None = None,
        transaction: TransactionalProduce | None = None,
        sync_later: bool = False,
        expected_end: int | None = None,
        is_copy: bool = False,
    ) -> AppendTicket:
        disk = self._logs.disk.get(topic_partition)
        log: PartitionLog = disk or self._logs.memory[topic_partition]
        if disk is not None and self._log_dir.refuses_appends:
            self._log_dir.admit_append(disk.directory, is_marker=headers[0].is_control)
        header = headers[0]
        is_idempotent = header.producer_id != NO_PRODUCER_ID and not (header.is_control or is_copy)
        if is_idempotent:
            stored = log.producer_state.check(header, needs_state=needs_state)
            if stored is not None:
                return self._repeat(log, disk, stored, sync=sync)
        if expected_end is not None and expected_end != log.log_end_offset:
            raise UnexpectedEnd(
                **topic_partition._asdict(), expected=expected_end, log_end_offset=log.log_end_offset
            )
        if admit is not None:
            admit(header)
        if disk is not None and (sync or sync_later) and disk.config.acks == "replicated":
            self._checked_cover(topic_partition).check()
        leader_epoch = None
        if is_copy:
            log_append_time_ms = NO_TIMESTAMP
            self._manager.leader_epoch = max(
                self._manager.leader_epoch, *(each.partition_leader_epoch for each in headers)
            )
        else:
            log_append_time_ms = stamp(log.config, batches, headers, self._clock)
            leader_epoch = self._manager.leader_epoch
        ends_before = log.readable_ends
        try:
            try:
                base_offset, last_offset = log.append(batches, headers, leader_epoch=leader_epoch)
            except OSError as error:
                if not header.is_control:
                    raise
                append = partial(log.append, batches, headers, leader_epoch=leader_epoch)
                base_offset, last_offset = self._log_dir.append_in_kept_space(error, append)
        except OSError as error:
            refusal = self._log_dir.refuse(self._logs.directory(topic_partition), error)
            if not isinstance(refusal, LogDirFailed) and is_idempotent:
                log.producer_state.refused(header)
            raise refusal from error
        except SegmentTornError as error:
            raise self._log_dir.fail(error.path, error.cause) from error
        future, durability, syncs_now = None, Durability.NONE, False
        is_asked = sync
        if disk is not None:
            sync = sync or disk.unsynced_records >= disk.config.flush_messages
            syncs_now = sync and self._flusher.may_sync_now(disk)
            if sync and not syncs_now:
                future = self._flusher.next_round(disk)
            elif not sync:
                self._sync_in_time(disk, sync_later=sync_later)
            durability = Durability.SYNCED if sync else Durability.APPENDED
            if (sync or sync_later) and disk.config.visibility == "synced":
                disk.hold_back(base_offset, len(batches))
        self._moved(log, ends_before, len(batches))
        if disk is not None and syncs_now:
            # Wake readers of appended records first, as when a thread makes the sync.
            future = self._flusher.sync_now(disk)
        ticket = AppendTicket(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log.log_start_offset,
            durability=durability,
            future=future,
        )
        if disk is not None and is_asked and disk.config.acks == "replicated":
            self._wait_for_cut(disk, ticket)
        return ticket

    def _repeat(
        self, log: PartitionLog, disk: DiskLog | None, stored: StoredBatch, *, sync: bool
    ) -> AppendTicket:
        """Return the ticket of a batch that is in the log already."""
        ticket = AppendTicket(
            base_offset=stored.base_offset,
            last_offset=stored.last_offset,
            log_start_offset=log.log_start_offset,
            durability=Durability.NONE if disk is None else Durability.APPENDED,
            is_repeat=True,
        )
        if sync:
            self._sync_ticket(disk, ticket)
        return ticket

    def sync(self, topic_partition: TopicPartition, ticket: AppendTicket) -> None:
        self._sync_ticket(self._logs.disk.get(topic_partition), ticket)

    def _sync_ticket(self, log: DiskLog | None, ticket: AppendTicket) -> None:
        if log is not None:
            is_synced = log.recovery_point > ticket.last_offset
            ticket.wait_for(None if is_synced else self._flusher.next_round(log), Durability.SYNCED)
            if log.config.acks == "replicated":
                self._wait_for_cut(log, ticket)

    def _wait_for_cut(self, log: DiskLog, ticket: AppendTicket) -> None:
        covered = self._checked_cover(log.topic_partition).covered()
        ticket.wait_for(when_both(ticket.future, covered), Durability.REPLICATED)

    def _checked_cover(self, topic_partition: TopicPartition) -> ReplicaCover:
        if self._cover is None:
            raise NotReplicated(
                f"{topic_partition} has stele.acks=replicated, and this broker has no replica"
            )
        return self._cover

    def _moved(self, log: PartitionLog, ends_before: tuple[int, int], size_bytes: int) -> None:
        """Notify readers of moves of last stable offset and high watermark.

        The high watermark has moved by ``size_bytes``.
        """
        ends = log.readable_ends
        if ends == ends_before:
            return
        (stable, end), (stable_before, end_before) = ends, ends_before
        name = log.topic_partition
        if stable == end and stable_before == end_before:
            self._waiters.appended(name, size_bytes)
        else:
            self._waiters.appended_in_transaction(
                name, size_bytes if end != end_before else 0, is_stable_moved=stable != stable_before
            )

    def _synced(self, log: DiskLog, work: FlushWork) -> None:
        ends_before = log.readable_ends
        size_bytes = log.flushed(work)
        if self._logs.disk.get(log.topic_partition) is log:
            self._moved(log, ends_before, size_bytes)

    def _sync_in_time(self, log: DiskLog, *, sync_later: bool) -> None:
        """Schedule the background sync of what was just appended."""
        flush_ms = log.config.flush_ms
        if sync_later:
            # It is hidden meanwhile, and its producer may be gone before it asks.
            flush_ms = min(flush_ms, self._options.flush_interval_ms)
        if flush_ms >= 0:
            self._flusher.flush_later(log, flush_ms)
        elif log.unsynced_bytes >= self._options.flush_bytes:
            self._flusher.next_round(log)
        else:
            self._flusher.flush_later(log, self._options.flush_interval_ms)

    async def flush(self, topic_partitions: Sequence[TopicPartition] | None = None) -> None:
        if topic_partitions is None:
            logs = list(self._logs.disk.values())
        else:
            logs = [log for name in topic_partitions if (log := self._logs.disk.get(name))]
        failure = self._log_dir.failure
        if failure is not None and logs:
            raise LogDirFailed(failure.path, failure.cause)
        await self._flusher.flush(logs)

    # ── read ──

    async def read(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead]:
        return await self._reader.read(requests, max_bytes)

    def read_now(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead] | None:
        return self._reader.read_now(requests, max_bytes)

    async def wait(
        self,
        positions: Mapping[TopicPartition, int],
        min_bytes: int,
        timeout_ms: int,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        is_committed = isolation is IsolationLevel.READ_COMMITTED
        for name, offset in positions.items():
            log = self._logs.find(name)
            if log is None or (log.last_stable_offset if is_committed else log.high_watermark) > offset:
                return
        await self._waiters.wait(positions, min_bytes=min_bytes, timeout_ms=timeout_ms, isolation=isolation)

    @property
    def waiters(self) -> Waiters:
        return self._waiters

    def wake_all(self) -> None:
        self._waiters.wake_all()

    async def refresh(self, topic_partitions: Collection[TopicPartition]) -> bool:
        return False

    def state(self, topic_partition: TopicPartition) -> LogState:
        log = self._logs[topic_partition]
        return LogState(
            log_start_offset=log.log_start_offset,
            last_stable_offset=log.last_stable_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            leader_epoch=self._manager.leader_epoch,
            size_bytes=log.size_bytes,
            recovery_point=log.recovery_point,
        )

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        return self._manager.leader_epoch

    oldest_leader_epoch = leader_epoch

    def last_leader_epoch(self, topic_partition: TopicPartition) -> int:
        return self._logs[topic_partition].epochs.latest

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int]:
        record = await self._reader.offset_for_time(topic_partition, timestamp_ms)
        return record or (-1, NO_TIMESTAMP, self._manager.leader_epoch)

    async def max_timestamp(self, topic_partition: TopicPartition) -> int:
        return await self._reader.max_timestamp(topic_partition)

    async def producers(self, topic_partition: TopicPartition) -> list[ProducerView]:
        return self._logs[topic_partition].producer_state.views()

    async def producer(self, topic_partition: TopicPartition, producer_id: int) -> ProducerView | None:
        return self._logs[topic_partition].producer_state.view(producer_id)

    def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        log = self._logs[topic_partition]
        return log.epochs.end_offset_of(epoch, log_end_offset=log.log_end_offset)

    @property
    def disk_views(self) -> DataDirViews:
        return self._views

    # ── deletion ──

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        # A caller that stops waiting does not stop it halfway: what is saved must be in force.
        deletion = asyncio.create_task(self._delete_records(topic_partition, before_offset))
        self._deletions.add(deletion)
        deletion.add_done_callback(self._deletions.discard)
        return await asyncio.shield(deletion)

    async def _delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        log = self._logs[topic_partition]
        before_offset = min(before_offset, log.high_watermark)
        if isinstance(log, DiskLog):
            # Deleted means deleted: the new start must outlive a crash before it is answered, or be refused.
            await self._manager.checkpoints.move_start(log, before_offset)
            if self._logs.find(topic_partition) is not log:
                raise UnknownTopic(topic_partition.topic)
        log.advance_log_start(before_offset)
        self._waiters.changed(topic_partition)
        return log.log_start_offset

    async def skip_to(self, topic_partition: TopicPartition, offset: int) -> None:
        log = self._logs.disk[topic_partition]
        if offset > log.log_end_offset:
            # First: a start takes the offsets that are left out for deleted ones, not for lost ones.
            await self._manager.checkpoints.move_start(log, offset)
        if self._logs.disk.get(topic_partition) is log and offset > log.log_end_offset:
            try:
                log.skip_to(offset)
            except OSError as error:
                raise self._log_dir.refuse(log.directory, error) from error
        await self.delete_records(topic_partition, offset)

    async def cut_copy(self, topic_partition: TopicPartition, offset: int) -> int:
        # As with deletions: what is saved must be in force.
        cut = asyncio.create_task(self._cut_copy(self._logs.disk[topic_partition], offset))
        self._deletions.add(cut)
        cut.add_done_callback(self._deletions.discard)
        return await asyncio.shield(cut)

    async def _cut_copy(self, log: DiskLog, offset: int) -> int:
        name, checkpoints = log.topic_partition, self._manager.checkpoints
        self._cleaner.abort(log)
        async with log.upkeep, checkpoints.lock:
            await self._flusher.flush([log])
            await self._flusher.quiesce(log)
            if self._logs.disk.get(name) is not log:
                raise UnknownTopic(name.topic)
            if offset >= log.log_end_offset:
                return log.log_end_offset
            try:
                cut = await self._log_dir.in_thread(log.plan_cut, offset)
            except OSError as error:
                raise self._log_dir.refuse(log.directory, error) from error
            for segment in cut.removed:
                self._reader.open_segments.forget(segment)
            log.cut_back(cut)
            self._keys.forget(log)
            self._waiters.wake(name)
            try:
                # First, so that the next start looks for batches after it, whatever is left of them.
                await checkpoints.save([name])
                log.epochs.truncate_to(log.log_end_offset)
                await self._log_dir.in_thread(log.remove_cut, cut)
            except (OSError, StorageError) as error:
                # Memory and disk differ now, so nothing may be written.
                cause = error if isinstance(error, OSError) else OSError(str(error))
                raise self._log_dir.fail(log.directory, cause) from error
        logger.warning("%s was cut back to offset %d", log.directory, log.log_end_offset)
        return log.log_end_offset

    async def stop_copies(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Do nothing: no other broker appends."""

    async def end_copies(self, topic_partition: TopicPartition) -> None:
        log = self._logs.disk[topic_partition]
        end_offset = log.log_end_offset
        try:
            await self._log_dir.in_thread(log.write_holes_until, end_offset)
            log.holes_until = end_offset
            # Those of the source: a producer that got the same id here, before, would be taken for one of them.
            log.producer_state.clear()
            log.roll()
        except OSError as error:
            raise self._log_dir.refuse(log.directory, error) from error
        self._manager.leader_epoch += 1
        await self.flush([topic_partition])
        # Otherwise a start after a crash would find them again, in the batches after the last checkpoint.
        await self._manager.checkpoints.checkpoint([topic_partition])

    async def enforce_retention(self) -> int:
        return await self._housekeeping.enforce_retention()

    # ── compaction ──

    async def compact(self) -> int:
        # A caller that stops waiting does not stop a pass halfway.
        return await asyncio.shield(asyncio.create_task(self._cleaner.clean_due()))

    @property
    def shared_counts(self) -> None:
        return None

    @property
    def compaction(self) -> CompactionCounts:
        return self._cleaner.counts

    def partition_compaction(self, topic_partition: TopicPartition) -> PartitionCompaction | None:
        log = self._logs.disk.get(topic_partition)
        if log is None or not log.config.is_compacted:
            return None
        return self._cleaner.partition_compaction(log)

    # ── the newest records of keys ──

    async def newest_offset(
        self, topic_partition: TopicPartition, key: bytes, *, is_doubted: bool = False
    ) -> int:
        return await self._keys.newest_offset(topic_partition, key, is_doubted=is_doubted)

    async def newest_offsets(
        self, topic_partition: TopicPartition, end_offset: int, *, start_offset: int = 0
    ) -> NewestOffsets:
        return await self._keys.newest_offsets(topic_partition, end_offset, start_offset)

    def compacted_until(self, topic_partition: TopicPartition) -> int:
        return self._logs.disk[topic_partition].compacted_until
