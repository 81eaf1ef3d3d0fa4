"""The engine that brokers share: bytes in an object store, offsets in PostgreSQL (ADR-0040).

A broker keeps nothing of its own. Its appends are packed into objects, and one transaction gives all
batches of an object their offsets; then they are acknowledged, and every broker can read them. The parts:

- ``write_buffer``  appends until their object is full, or ``linger_ms`` after the last one
- ``committer``     objects stored in parallel, committed in order
- ``reader``        plans of reads, and the ``block_cache``
- ``log_ends``      what other brokers appended
- ``upkeep``        retention, merging, garbage collection
- ``compactor``     compaction
- ``key_reader``   reads by key

It is one class in one file, because it implements one interface; each part of the work has a module of its
own.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from stele.wire.control_record import MarkerType, read_marker
from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import Durability
from stele.wire.record_batch import NO_TIMESTAMP, BatchHeader, set_log_append_time, settle_create_time

from ...clock import Clock
from ...errors import (
    InvalidBatch,
    InvalidConfig,
    StorageError,
    StorageUnavailable,
    UnexpectedEnd,
    UnknownTopic,
)
from ..disk_views import DiskViews
from ..engine import (
    AppendTicket,
    CompactionCounts,
    EngineStart,
    LogState,
    PartitionCompaction,
    PartitionFetch,
    PartitionRead,
    PartitionSpec,
    SharedStorageCounts,
    TierOffsets,
)
from ..keys.newest_offsets import NewestOffsets
from ..sequences import ProducerView
from ..topic_config import TopicConfig
from ..topic_partition import ByPartition, TopicPartition
from ..transactional_produce import TransactionalProduce
from ..waiters import Waiters
from .commit_rules import copy_ended, view_of
from .committer import Committer
from .compactor import Compactor
from .histories import Histories
from .key_reader import SharedKeyReader
from .log import SharedLog
from .log_ends import LogEnds
from .meta import CopyPhase, Meta, MetaUnavailable, StoreKind
from .options import SharedOptions
from .reader import SharedReader
from .runs.merged_objects import MergedObjects
from .runs.object_reads import ObjectReads
from .runs.reader import RunReader
from .store.block_cache import BlockCache
from .store.object_keys import WRITTEN, ObjectKeys
from .store.object_store import ObjectStore
from .upkeep import Upkeep
from .write_buffer import QueuedAppend, Rotation, WriteBuffer

_T = TypeVar("_T")

# Leader epochs of histories are seconds since 2025, and none is in force before its second (ADR-0071). One that was copied
# may be ahead of the clock by that much, or of the first months: the next history is above, and waits for its second.
_EPOCHS_BEGIN_MS = 1_735_689_600_000
_EPOCHS_AHEAD_S = 60
_COPIED_EPOCH_FREE = 1 << 24


class SharedEngine:
    """Implements ``LogEngine`` for a broker that keeps nothing itself.

    There may be other brokers on the same storage. Each start chooses another ``incarnation``.
    """

    # Tests put mistakes in their place, which the simulation must notice.
    committer_class = Committer
    log_ends_class = LogEnds
    compactor_class = Compactor
    upkeep_class = Upkeep
    histories_class = Histories

    def __init__(
        self,
        meta: Meta,
        stores: Mapping[StoreKind, ObjectStore],
        *,
        incarnation: UUID,
        clock: Clock,
        options: SharedOptions,
    ) -> None:
        self._meta = meta
        self._incarnation = incarnation
        self._clock = clock
        self._options = options
        self._logs = ByPartition[SharedLog]()
        self._waiters = Waiters()
        self._sync_observers: list[Callable[[float], None]] = []
        self._is_closing = False
        self._linger: asyncio.TimerHandle | None = None
        self._rotated_s = float("-inf")
        self._buffer = WriteBuffer(
            object_bytes=options.object_bytes, buffered_bytes_max=options.buffered_bytes_max
        )
        self._counts = SharedStorageCounts()
        objects = ObjectReads(stores, options.read, self._counts)
        self._cache = BlockCache(objects.load, bytes_max=options.cache_bytes_max, loads_max=options.loads_max)
        self._committer = self.committer_class(
            meta=meta,
            stores=stores,
            keys=ObjectKeys(WRITTEN, incarnation),
            uploader=incarnation,
            clock=clock,
            options=options.commit,
            on_ended=self._ended,
            on_committed=self._grown,
            keep=self._cache.put,
            counts=self._counts,
        )
        self._histories = self.histories_class(
            meta=meta,
            logs=self._logs,
            on_adopted=self._adopted,
            heartbeat=lambda: meta.heartbeat(incarnation),
            counts=self._counts,
        )
        # What the brokers have agreed on; None if there is only this one.
        self._shown_epoch: int | None = None
        self._ends = self.log_ends_class(
            meta=meta,
            logs=self._logs,
            waiters=self._waiters,
            on_grown=self._grown,
            on_start_moved=self._start_moved,
            adopt=self._histories.adopt,
            poll_interval_ms=options.poll_interval_ms,
            idle_poll_interval_ms=options.idle_poll_interval_ms,
        )
        self._reader = SharedReader(
            meta=meta,
            logs=self._logs,
            runs=RunReader(self._cache, options=options.read, read_ahead_blocks=options.read_ahead_blocks),
            clock=clock,
            refresh=self._ends.refresh,
        )
        self._key_reader = SharedKeyReader(
            meta=meta,
            logs=self._logs,
            cache=self._cache,
            memory_bytes=options.table_memory_bytes_max,
            reads=options.read,
        )
        merged = MergedObjects(
            meta=meta,
            store=stores.get(StoreKind.OBJECTS),
            load=objects.load,
            incarnation=incarnation,
            bytes_max=options.upkeep.merged_bytes_max,
            abandon=self.abandon,
        )
        self._compactor = self.compactor_class(
            meta=meta, logs=self._logs, merged=merged, clock=clock, options=options.compaction
        )
        self._upkeep = self.upkeep_class(
            meta=meta,
            stores=stores,
            logs=self._logs,
            committer=self._committer,
            merged=merged,
            compactor=self._compactor,
            incarnation=incarnation,
            options=options.upkeep,
            on_start_moved=self._start_moved,
            history=lambda: self._histories.epoch,
            counts=self._counts,
        )

    # ── life ──

    async def open(self) -> EngineStart:
        try:
            # Before the first object: without it, this broker's objects would look like those of a dead one.
            await self._upkeep.heartbeat()
        except MetaUnavailable as error:
            raise _unavailable("the start", error) from error
        self._committer.start()
        return EngineStart(is_new=False, was_clean=True)

    async def start(self) -> None:
        self._ends.start()
        self._upkeep.start()

    async def close(self) -> None:
        self._is_closing = True
        self._waiters.wake_all()
        self._rotate()
        await self._committer.drain()
        await self._upkeep.close()
        await self._compactor.close()
        await self._key_reader.close()
        await self._ends.close()
        await self._histories.close()
        await self._committer.close()
        await self._cache.close()

    @property
    def failure(self) -> StorageError | None:
        return None

    async def check_writable(self) -> None:
        """Do nothing: this broker writes to no disk."""

    async def with_kept_space(self, work: Callable[[], Awaitable[_T]]) -> _T:
        return await work()

    @property
    def stall(self) -> StorageError | None:
        reason = self._committer.stall
        return None if reason is None else StorageUnavailable("storing records", reason)

    # ── other histories of the metadata ──

    async def adopt(self, history: int) -> None:
        """Forget what is known of logs that is older than ``history`` of the metadata.

        Raises ``StorageUnavailable``.
        """
        try:
            await self._histories.adopt(history)
        except MetaUnavailable as error:
            raise _unavailable("taking over the history of the database", error) from error

    def _adopted(self, log: SharedLog) -> None:
        self._forget_keys(log)
        self._committer.history_changed()
        self._waiters.changed(log.topic_partition)

    def show_epoch(self, epoch: int) -> None:
        """Show clients this leader epoch from now on; -1: none."""
        self._shown_epoch = epoch

    def abandon(self, key: str) -> None:
        """Have an object deleted that this broker perhaps stored and will not commit."""
        self._committer.abandoned.append(key)

    def observe_syncs(self, observer: Callable[[float], None]) -> None:
        self._sync_observers.append(observer)

    def observe_appends(
        self,
        observer: Callable[[TopicPartition], None],
        followed: Callable[[], Iterable[TopicPartition]] = tuple,
    ) -> None:
        self._waiters.observe_appends(observer, followed)

    # ── partitions ──

    @property
    def is_shared(self) -> bool:
        return True

    async def prepare(self, specs: Sequence[PartitionSpec]) -> None:
        """Do nothing: partitions are made of what the catalog has."""

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        by_topic: dict[UUID, list[PartitionSpec]] = {}
        for spec in specs:
            by_topic.setdefault(spec.topic_id, []).append(spec)
        for topic_id, of_topic in by_topic.items():
            partitions = max(spec.topic_partition.partition for spec in of_topic) + 1
            try:
                rows = await self._meta.create_logs(topic_id, partitions)
            except MetaUnavailable as error:
                raise _unavailable("creating partitions", error) from error
            by_partition = {row.partition_id.partition: row for row in rows}
            for spec in of_topic:
                name = spec.topic_partition
                if name.partition not in by_partition:
                    # Another broker has deleted the topic in the meantime.
                    raise UnknownTopic(name.topic)
                self._logs[name] = SharedLog(name, spec.config, by_partition[name.partition])

    def check_config(self, config: TopicConfig) -> None:
        if config.storage == "memory":
            raise InvalidConfig(
                "stele.storage",
                config.storage,
                "brokers with shared storage have no topics in memory; use disk",
            )
        for name, value, is_on in (
            ("stele.acks", config.acks, config.acks == "replicated"),
            ("remote.storage.enable", "true", config.remote_storage_enable),
        ):
            if is_on:
                reason = "brokers with shared storage have no replica: all of their records are in the object store"
                raise InvalidConfig(name, value, reason)

    def tiers(self, topic_partition: TopicPartition) -> TierOffsets:
        return TierOffsets(self._logs[topic_partition].state().log_start_offset, -1)

    def configure(self, topic_partition: TopicPartition, config: TopicConfig) -> None:
        log = self._logs[topic_partition]
        log.config = config
        if not config.is_compacted:
            self._forget_keys(log)

    def set_cleaner_backoff(self, interval_ms: int) -> None:
        self._compactor.interval.change(interval_ms)

    def _forget_keys(self, log: SharedLog) -> None:
        self._compactor.abort(log)
        self._key_reader.forget(log)

    async def remove_leftovers(self, topic: str, partitions: int, topic_id: UUID) -> bool:
        return True

    async def drop(self, topic_partitions: Sequence[TopicPartition]) -> bool:
        """See ``LogEngine.drop``; the topic is deleted with all its partitions."""
        self._rotate()
        await self._committer.drain()
        topic_ids: dict[UUID, None] = {}
        for name in topic_partitions:
            log = self._logs.pop(name, None)
            if log is not None:
                log.is_dropped = True
                self._forget_keys(log)
                topic_ids[log.partition_id.topic_id] = None
            self._waiters.wake(name)
        for topic_id in topic_ids:
            try:
                await self._meta.delete_logs(topic_id)
            except MetaUnavailable as error:
                raise _unavailable("deleting partitions", error) from error
        return True

    # ── append ──

    @property
    def large_bytes(self) -> int:
        """Return more than any batch has, because an append only keeps it."""
        return sys.maxsize

    async def write_ahead(
        self,
        topic_partition: TopicPartition,
        batch: memoryview,
        header: BatchHeader,
        *,
        is_copy: bool = False,
    ) -> None:
        """Do nothing."""

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
        log = self._logs[topic_partition]
        header = headers[0]
        copies = self._copies(batches, headers) if is_copy else None
        assert copies is None or expected_end is not None, "copies come with the end that they expect"
        marker = read_marker(batches, header) if header.is_control and not is_copy else None
        if admit is not None:
            admit(header)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whether it is more than synced, the session that commits it knows.
        ticket = AppendTicket(durability=Durability.SYNCED, future=future)
        append = QueuedAppend(
            log=log,
            batches=batches,
            headers=headers,
            ticket=ticket,
            future=future,
            log_append_time_ms=NO_TIMESTAMP if is_copy else self._stamp(log.config, batches, headers),
            needs_state=needs_state,
            is_abort=marker is not None and marker.type is MarkerType.ABORT,
            transaction=transaction if header.is_transactional else None,
            expected_end=expected_end,
            copies=copies,
        )
        if self._is_closing or not self._buffer.has_room(append.buffered_bytes):
            if not is_copy:
                self._committer.refused(log, header)
            waiting = f"{self._buffer.buffered_bytes} bytes of earlier appends wait for it"
            reason = "the broker is closing" if self._is_closing else waiting
            raise StorageUnavailable(f"the append to {topic_partition}", reason)
        self._buffer.add(append)
        # An append whose caller does not wait (acks=0) may fail without anybody asking.
        future.add_done_callback(_retrieve)
        if self._buffer.is_full:
            self._rotate()
        elif self._linger is None:
            self._linger = self._begin_linger()
        return ticket

    def _copies(
        self, batches: bytearray | memoryview, headers: Sequence[BatchHeader]
    ) -> list[MarkerType | None]:
        """Return the type of the marker in each batch of a mirror. Raises ``InvalidBatch``."""
        newest = (self._clock.now_ms() - _EPOCHS_BEGIN_MS) // 1000 + _EPOCHS_AHEAD_S
        for header in headers:
            if header.partition_leader_epoch > max(newest, _COPIED_EPOCH_FREE):
                raise InvalidBatch(
                    f"leader epoch {header.partition_leader_epoch} of the source is ahead of the clock here; those of Stele"
                    " are seconds since 2025: compare the clocks"
                )
        markers = (read_marker(batches, header) if header.is_control else None for header in headers)
        return [None if marker is None else marker.type for marker in markers]

    def _begin_linger(self) -> asyncio.TimerHandle:
        """Wait until ``linger_ms`` after the last object was begun.

        So, apart from full ones, there are no more objects than one per linger, and an append after a pause waits only for the appends
        that come in the same turn of the event loop.
        """
        loop = asyncio.get_running_loop()
        return loop.call_at(
            max(loop.time(), self._rotated_s + self._options.linger_ms / 1000), self._linger_over
        )

    def _stamp(self, config: TopicConfig, batches: bytearray | memoryview, headers: list[BatchHeader]) -> int:
        if config.message_timestamp_type == "CreateTime":
            for header in headers:
                settle_create_time(batches, header)
            return NO_TIMESTAMP
        now_ms = self._clock.now_ms()
        for header in headers:
            set_log_append_time(batches, header, now_ms)
        return now_ms

    def _linger_over(self) -> None:
        """Write what was appended, unless waiting for objects in flight makes fewer."""
        self._linger = None
        if self._committer.in_flight < self._options.commit.uploads_max:
            self._rotate()

    def _rotate(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        rotation = self._buffer.take()
        if rotation is not None:
            self._rotated_s = asyncio.get_running_loop().time()
            self._committer.submit(rotation)

    def _ended(self, rotation: Rotation) -> None:
        self._buffer.release(rotation)
        if self._linger is None and not self._buffer.is_empty:
            # Its time was over while too many were on their way.
            self._rotate()

    def _grown(self, log: SharedLog, size: int) -> None:
        progress = log.tell()
        if progress.is_in_transaction:
            self._waiters.appended_in_transaction(
                log.topic_partition, size, is_stable_moved=progress.is_stable_moved
            )
        else:
            self._waiters.appended(log.topic_partition, size)

    def _start_moved(self, log: SharedLog) -> None:
        self._waiters.changed(log.topic_partition)

    def sync(self, topic_partition: TopicPartition, ticket: AppendTicket) -> None:
        """Do nothing: a ticket is done only when its records are durable."""

    async def flush(self, topic_partitions: Sequence[TopicPartition] | None = None) -> None:
        begun_s = time.perf_counter()
        self._rotate()
        await self._committer.drain()
        for observer in self._sync_observers:
            observer(time.perf_counter() - begun_s)

    # ── read ──

    async def read(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead]:
        return await self._reader.read(requests, max_bytes)

    def read_now(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead] | None:
        """Return None: every read asks for what is cached and what is not."""
        return None

    async def wait(
        self,
        positions: Mapping[TopicPartition, int],
        min_bytes: int,
        timeout_ms: int,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        for name, offset in positions.items():
            log = self._logs.get(name)
            if log is None:
                return
            is_committed = isolation is IsolationLevel.READ_COMMITTED
            if (log.last_stable_offset if is_committed else log.next_offset) > offset:
                return
        if not self._is_closing:
            await self._waiters.wait(
                positions, min_bytes=min_bytes, timeout_ms=timeout_ms, isolation=isolation
            )

    @property
    def waiters(self) -> Waiters:
        return self._waiters

    def wake_all(self) -> None:
        self._waiters.wake_all()

    async def refresh(self, topic_partitions: Collection[TopicPartition]) -> bool:
        return await self._ends.refresh(topic_partitions)

    def state(self, topic_partition: TopicPartition) -> LogState:
        return self._logs[topic_partition].state()

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        latest = self._logs[topic_partition].epochs.latest
        shown = self._shown_epoch
        return latest if shown is None else -1 if shown < 0 else max(shown, latest)

    def last_leader_epoch(self, topic_partition: TopicPartition) -> int:
        return self._logs[topic_partition].epochs.latest

    def oldest_leader_epoch(self, topic_partition: TopicPartition) -> int:
        return self._logs[topic_partition].history

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int]:
        log = self._logs[topic_partition]
        record = await self._reader.offset_for_time(log, timestamp_ms)
        if record is None:
            return -1, NO_TIMESTAMP, log.epochs.latest
        return *record, log.epochs.epoch_at(record[0])

    async def max_timestamp(self, topic_partition: TopicPartition) -> int:
        return await self._reader.newest_time(self._logs[topic_partition])

    async def producers(self, topic_partition: TopicPartition) -> list[ProducerView]:
        try:
            rows = await self._meta.producers(self._logs[topic_partition].log_id)
        except MetaUnavailable as error:
            raise _unavailable("listing producers", error) from error
        return [view_of(row) for row in rows]

    async def producer(self, topic_partition: TopicPartition, producer_id: int) -> ProducerView | None:
        views = await self.producers(topic_partition)
        return next((view for view in views if view.producer_id == producer_id), None)

    def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        log = self._logs[topic_partition]
        return log.epochs.end_offset_of(epoch, log_end_offset=log.next_offset)

    @property
    def disk_views(self) -> DiskViews | None:
        return None

    # ── deletion ──

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        log = self._logs[topic_partition]
        try:
            row = await self._meta.delete_records(log.log_id, before_offset)
        except MetaUnavailable as error:
            raise _unavailable("deleting records", error) from error
        if row is None:
            raise UnknownTopic(topic_partition.topic)
        log.update(row)
        self._start_moved(log)
        return row.log_start

    async def skip_to(self, topic_partition: TopicPartition, offset: int) -> None:
        log = self._logs[topic_partition]
        expected_end = log.next_offset
        try:
            row = await self._meta.skip_copies(log.log_id, expected_end=expected_end, offset=offset)
        except MetaUnavailable as error:
            raise _unavailable("skipping what the source has deleted", error) from error
        if row is None:
            raise UnknownTopic(topic_partition.topic)
        log.update(row)
        self._start_moved(log)
        if log.has_news:
            self._grown(log, 1)
        if row.copy_phase is CopyPhase.ENDED:
            raise copy_ended(topic_partition)
        if row.log_start != offset:
            raise UnexpectedEnd(
                **topic_partition._asdict(), expected=expected_end, log_end_offset=row.next_offset
            )

    async def cut_copy(self, topic_partition: TopicPartition, offset: int) -> int:
        raise StorageError(
            f"copies on shared storage cannot be cut back, so {topic_partition} stays as it is"
        )

    async def stop_copies(self, topic_partitions: Sequence[TopicPartition]) -> None:
        logs = {log.log_id: log for log in map(self._logs.__getitem__, topic_partitions)}
        try:
            rows = await self._meta.end_copies(list(logs))
        except MetaUnavailable as error:
            raise _unavailable("the promotion", error) from error
        for log_id, log in logs.items():
            if log_id not in rows:
                raise UnknownTopic(log.topic_partition.topic)
            log.update(rows[log_id])
            if log.has_news:
                self._grown(log, 1)

    async def end_copies(self, topic_partition: TopicPartition) -> None:
        # An id of another cluster may be that of a producer here, whose batches are not repeats of those that were copied.
        try:
            await self._meta.forget_producers(self._logs[topic_partition].log_id)
        except MetaUnavailable as error:
            raise _unavailable("the promotion", error) from error

    async def enforce_retention(self) -> int:
        return await self._upkeep.enforce_retention()

    def log(self, topic_partition: TopicPartition) -> SharedLog:
        """Return what this broker knows of a log."""
        return self._logs[topic_partition]

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes of appends that are not committed yet."""
        return self._buffer.buffered_bytes

    @property
    def upkeep(self) -> Upkeep:
        """Return the background work, of which each part can be called by itself."""
        return self._upkeep

    # ── compaction ──

    async def compact(self) -> int:
        try:
            return await self._compactor.clean_due()
        except MetaUnavailable as error:
            raise _unavailable("compaction", error) from error

    @property
    def shared_counts(self) -> SharedStorageCounts:
        counts, cache = self._counts, self._cache.counts
        counts.in_flight = self._committer.in_flight
        now_ms = self._clock.monotonic_ms()
        counts.commit_age_ms = now_ms - self._committer.committed_ms
        if self._committer.has_store:
            counts.upload_age_ms = now_ms - self._committer.uploaded_ms
        counts.cache_hits, counts.cache_misses = cache.hits, cache.misses
        counts.loaded_bytes, counts.refused_loads = cache.loaded_bytes, cache.refused
        counts.loads_waiting = self._cache.waiting
        return counts

    @property
    def compaction(self) -> CompactionCounts:
        return self._compactor.counts

    def partition_compaction(self, topic_partition: TopicPartition) -> PartitionCompaction | None:
        return self._compactor.partition_compaction(self._logs[topic_partition])

    async def newest_offset(
        self, topic_partition: TopicPartition, key: bytes, *, is_doubted: bool = False
    ) -> int:
        return await self._key_reader.newest_offset(topic_partition, key, is_doubted=is_doubted)

    async def newest_offsets(
        self, topic_partition: TopicPartition, end_offset: int, *, start_offset: int = 0
    ) -> NewestOffsets:
        return await self._key_reader.newest_offsets(topic_partition, end_offset, start_offset)

    def compacted_until(self, topic_partition: TopicPartition) -> int:
        return self._logs[topic_partition].compacted_until


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


def _unavailable(what: str, error: MetaUnavailable) -> StorageUnavailable:
    return StorageUnavailable(what, str(error))
