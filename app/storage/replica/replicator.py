"""Keeps a replica of a data directory in a bucket, by cuts.

::

    one turn of the event loop     where the logs stand │ stores: begin
    threads, beside the loop       new bytes of segments ──▶ objects ──▶ bucket
                                   new chunks of stores  ──▶ objects ──▶ bucket
    last                           the cut ──▶ bucket: from now on it exists

Logs and stores must be of one moment: a group commits what it has read from a log, and the markers of a transaction come
into the logs after its outcome is stored. The state of a cut is one that a crash could have left.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

import msgspec

from ...clock import Clock, PatientClock
from ...work_budget import WorkBudget, visited
from ..disk.interval import Interval
from ..logs.log import DiskLog
from ..logs.log_changes import LogChanges
from ..segments.remote_segments import RunSpan
from ..segments.segment import Segment
from ..setup_problems import InvalidStorage, store_problem
from ..shared.store.object_keys import prefix_of
from ..shared.store.object_store import ConditionalStore, ObjectNotFound, ObjectStoreError
from .awaited_cuts import AwaitedCuts
from .bucket import KINDS, SEALED, Bucket
from .chain import CutChain, NotConditional, Overtaken
from .comparison import ReplicaOfAnother, check_identity, check_remote, recognize_all
from .cut import Change, CorruptCut, CutHeader, Deleted, PartitionGone, compress_cut, encode_line
from .generations import take_generation
from .marks import LogMark, key_of, mark_of
from .options import ReplicaOptions
from .retention import Retention
from .segment_bytes import SegmentVanished
from .segment_uploads import SegmentUploads
from .state import ReplicaState, change_of
from .status import ReplicaStatus
from .store_uploads import StoreSource, StoreUploads

logger = logging.getLogger(__name__)


class _Marks(NamedTuple):
    """The moment of a cut. ``stores`` are those that have changed."""

    time_ms: int
    logs: Sequence[LogMark]
    gone: Sequence[DiskLog]
    stores: Sequence[StoreUploads]


class Replicator:
    """One replica. ``changes`` are those of the logs, and ``stores`` what belongs to the same moment."""

    def __init__(
        self,
        store: ConditionalStore,
        *,
        url: str,
        cluster_id: str,
        incarnation: UUID,
        leader_epoch: Callable[[], int],
        changes: LogChanges,
        stores: Sequence[StoreSource],
        clock: Clock,
        options: ReplicaOptions,
    ) -> None:
        self._status = ReplicaStatus(url=url)
        self._options = options
        self._clock = clock
        self._patient_clock = PatientClock(clock)
        self._cluster_id = cluster_id
        self._incarnation = incarnation
        self._leader_epoch = leader_epoch
        self._changes = changes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-replica")
        self._bucket = Bucket(store, incarnation=incarnation, options=options, status=self._status)
        self._chain = CutChain(store)
        self._retention = Retention(self._bucket, self._chain, options.retention_ms)
        self._sources = stores
        self._forget_uploads()
        self._generation = 1
        # This start has taken its generation, before it uploads anything.
        self._has_claimed = False
        # No cut of this start exists yet.
        self._is_first = True
        self._is_committing = False
        self._is_checked = False
        # The last cut has been written.
        self._is_complete = False
        self._base_bytes = 0
        self._bytes_since_base = 0
        self._deleted: list[str] = []
        # All changes up to this moment are in the bucket.
        self._covered_ms = clock.now_ms()
        self._interval = Interval(options.interval_ms)
        self.cover = AwaitedCuts()
        self._tasks: list[asyncio.Task[None]] = []
        # When it was last looked for what is too old.
        self._cleaned_ms: int | None = None
        self._is_swept = False

    # ── life ──

    async def open(self) -> None:
        """Check that the bucket is one that this broker may write to, and begin to replicate.

        If it cannot be reached now, that goes on until it can.

        Raises:
            InvalidStorage: the bucket refuses requests, or has the replica of another data directory.
        """
        try:
            async with asyncio.timeout(self._options.open_timeout_ms / 1000):
                await self._check()
        except (ObjectStoreError, TimeoutError) as error:
            problem = store_problem(self._status.url, str(error), named_by="STELE_REPLICATE_TO")
            if problem.is_mistake:
                raise InvalidStorage(problem.text) from error
            logger.error("the broker starts without a replica, and tries again: %s", problem.text)
        except (ReplicaOfAnother, NotConditional, CorruptCut) as error:
            raise InvalidStorage(str(error)) from error
        self._tasks.append(asyncio.create_task(self._run()))

    async def _check(self) -> None:
        if self._is_checked:
            return
        await self._chain.check_conditional_writes()
        newest = await self._chain.newest()
        if newest is not None:
            check_identity(newest, self._cluster_id, self._status.url)
        self._is_checked = True

    async def close(self) -> None:
        """Write a last cut, if the bucket answers in time, and stop. Nothing changes any more."""
        self._interval.stop()
        if self._tasks:
            await asyncio.wait(self._tasks[:1], timeout=self._options.close_timeout_ms / 1000)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cover.end("the broker shuts down")
        if self._status.phase != "overtaken":
            self._status.phase = "stopped"
            if not self._is_complete:
                logger.error(
                    "the replica lacks the changes of the last %d ms: %s",
                    self._lag_ms(),
                    self._status.problem,
                )
        for store in self._stores:
            with suppress(sqlite3.Error):
                await store.close()
        self._thread.shutdown()

    @property
    def status(self) -> ReplicaStatus:
        """What is known now."""
        status = self._status
        status.lag_ms = self._lag_ms()
        status.oldest_ms = self._retention.oldest_ms
        status.deleted_objects = self._retention.deleted_objects
        status.replica_bytes, status.retained_bytes = self._state.used_bytes, self._state.unused_bytes
        if status.phase in ("replicating", "failing"):
            status.phase = "failing" if self._bucket.is_failing else "replicating"
        return status

    # ── what is in the bucket ──

    def sealed_runs(self, log: DiskLog, segment: Segment) -> Sequence[RunSpan] | None:
        """Implements ``SealedRuns``."""
        if self._is_first or self._is_committing or self.cover.has_ended:
            return None
        replica = self._state.partitions.get(key_of(log))
        known = None if replica is None else replica.segment(segment.base_offset)
        if known is None or (known.size, known.next_offset) != (segment.size, segment.next_offset):
            return None
        return known.runs if all(run.object.startswith(SEALED) for run in known.runs) else None

    def _lag_ms(self) -> int:
        return max(0, self._clock.now_ms() - self._covered_ms)

    # ── the work ──

    async def _run(self) -> None:
        try:
            while not await self._is_replicated():
                # The other broker may delete what was uploaded.
                for task in self._tasks[1:]:
                    task.cancel()
                self._forget_uploads()
                self._changes.note_all()
            self._is_complete = not self._changes
        except Overtaken as error:
            self._status.phase, self._status.problem = "overtaken", str(error)
            self.cover.end(str(error))
            logger.critical(
                "the replica %s is written by another broker now (%s): this one goes on without a replica. If both serve "
                "the same data directory's copy, stop one of them",
                self._status.url,
                error,
            )
        except (ReplicaOfAnother, NotConditional, CorruptCut) as error:
            self._stopped(error)
        except Exception as error:  # the edge of a task: operators must see that it has ended
            logger.exception("the replica has ended")
            self._stopped(error)
        finally:
            for task in self._tasks[1:]:
                task.cancel()

    async def _is_replicated(self) -> bool:
        """Write cuts until the end; return False if the first chain of the bucket was begun by another broker."""
        await self._begin()
        self._status.phase = "copying"
        self._tasks[1:] = [asyncio.create_task(self._write_sealed())]
        is_last = self._interval.is_stopped
        while True:
            try:
                await self._cut()
            except Overtaken:
                if self._has_claimed or not self._is_first:
                    raise
                return False
            await self._clean()
            if is_last:
                return True
            is_last = not await self._interval.passes()

    def _forget_uploads(self) -> None:
        self._segments = SegmentUploads(
            self._bucket, self._thread, self._options, is_open=self._changes.is_open
        )
        self._stores = [
            StoreUploads(source, self._bucket, self._thread, object_bytes=self._options.object_bytes)
            for source in self._sources
        ]
        for store in self._stores:
            store.abandon()
        self._state = ReplicaState()

    def _stopped(self, error: Exception) -> None:
        self._status.phase, self._status.problem = "stopped", str(error)
        self.cover.end(str(error))
        logger.critical("this broker goes on without a replica, until it is started again: %s", error)

    async def _begin(self) -> None:
        """Read what the bucket has, and compare the directory with it."""
        await self._bucket.persist("checking the bucket", self._check)
        sequences = await take_generation(self._bucket, self._chain, self._claim_of)
        self._has_claimed = bool(sequences)
        self._retention.begin(sequences)
        logs = self._changes.take()
        if sequences:
            self._state = await self._bucket.persist(
                "reading the newest cut", lambda: self._state_at(sequences[-1])
            )
            assert self._state.header is not None
            # Until there is another cut, a restore has this one.
            self._status.sequence, self._status.cut_ms = sequences[-1], self._state.header.time_ms
            self._covered_ms = min(self._covered_ms, self._state.header.time_ms)
        await check_remote(self._state, logs, url := self._status.url)
        await recognize_all(
            self._state, logs, self._segments, url=url, retention_ms=self._options.retention_ms
        )
        self._status.generation = self._generation
        self._changes.put_back(logs)

    async def _state_at(self, sequence: int) -> ReplicaState:
        try:
            return await self._chain.state_at(sequence)
        except ObjectNotFound:
            # If another start has followed this one, it may have deleted what is past its retention.
            await self._retention.check_newest()
            raise

    def _claim_of(self, newest: CutHeader) -> CutHeader:
        check_identity(newest, self._cluster_id, self._status.url)
        self._generation = newest.generation + 1
        return msgspec.structs.replace(
            newest,
            sequence=newest.sequence + 1,
            generation=self._generation,
            incarnation=str(self._incarnation),
            leader_epoch=self._leader_epoch(),
        )

    async def _cut(self) -> None:
        """Write a cut if anything has changed."""
        try:
            marks = await self._mark()
            if not (marks.logs or marks.gone or marks.stores or self._deleted or self._is_first):
                self._cover(marks)
                return
            await self._upload(marks)
        except SegmentVanished as error:
            logger.debug("the cut begins anew, because a segment was removed meanwhile: %s", error)
        except (OSError, sqlite3.Error) as error:
            # Of the disk: those of the bucket are repeated where they arise.
            problem = f"the data directory cannot be read: {error}"
            if problem != self._status.problem:
                logger.error("no cut is written, and is tried again: %s", problem)
            self._status.problem = problem
        else:
            await self._commit(marks, [change async for change in self._changes_of(marks)])

    def _cover(self, marks: _Marks) -> None:
        """Note that the bucket has everything up to a moment."""
        self._covered_ms = marks.time_ms
        self.cover.written()

    async def _upload(self, marks: _Marks) -> None:
        try:
            await self._segments.upload(marks.logs)
            for store in marks.stores:
                await store.upload()
        except BaseException:
            self._changes.put_back([*(mark.log for mark in marks.logs), *marks.gone])
            for store in marks.stores:
                store.abandon()
            raise

    async def _mark(self) -> _Marks:
        """Note where everything stands, at one moment."""
        marks: dict[DiskLog, LogMark | None] = {}
        # Most of the work is done before that moment, in steps; what changes meanwhile is noted once more.
        async for log in visited(self._changes.take()):
            marks[log] = self._mark_of(log)
        for log in self._changes.take():
            marks[log] = self._mark_of(log)
        self.cover.marked()
        begun = [store.begin() for store in self._stores]
        time_ms = self._clock.now_ms()
        # All of them: one that begins after ``abandon`` would count as used.
        has_changed = await asyncio.gather(*begun, return_exceptions=True)
        if failures := [one for one in has_changed if isinstance(one, BaseException)]:
            # What was held is read with the next cut.
            for store in self._stores:
                store.abandon()
            self._changes.put_back(marks)
            raise failures[0]
        return _Marks(
            time_ms=time_ms,
            logs=[mark for mark in marks.values() if mark is not None],
            gone=[log for log, mark in marks.items() if mark is None],
            stores=[store for store, changed in zip(self._stores, has_changed, strict=True) if changed],
        )

    def _mark_of(self, log: DiskLog) -> LogMark | None:
        return mark_of(log) if self._changes.is_open(log) else None

    async def _changes_of(self, marks: _Marks) -> AsyncIterator[Change]:
        known = self._state.partitions
        for log in marks.gone:
            self._segments.forget(log)
            if key_of(log) in known:
                yield PartitionGone(topic_id=key_of(log).topic_id, partition=key_of(log).partition)
        if self._is_first:
            here = {mark.key for mark in marks.logs}
            for key in [key for key in known if key not in here]:
                # Deleted by a broker that wrote no cut of it.
                yield PartitionGone(topic_id=key.topic_id, partition=key.partition)
        async for mark in visited(marks.logs):
            change = change_of(known.get(mark.key), mark.key, self._segments.replica_of(mark))
            if change is not None:
                yield change
        for store in marks.stores:
            change = store.change(self._state.stores.get(store.name))
            if change is not None:
                yield change
        if self._deleted:
            yield Deleted(objects=tuple(self._deleted))

    async def _commit(self, marks: _Marks, changes: Sequence[Change]) -> None:
        newest = self._state.header
        sequence = 0 if newest is None else newest.sequence + 1
        is_base = (
            self._is_first
            or newest is None
            or sequence - newest.base >= self._options.base_cuts
            or self._bytes_since_base > max(self._base_bytes, self._options.base_bytes_min)
        )
        header = CutHeader(
            sequence=sequence,
            base=sequence if is_base or newest is None else newest.base,
            generation=self._generation,
            # A clock that was put back does not put the chain back.
            time_ms=max(marks.time_ms, 0 if newest is None else newest.time_ms),
            cluster_id=self._cluster_id,
            incarnation=str(self._incarnation),
            leader_epoch=self._leader_epoch(),
            oldest_ms=self._retention.oldest_ms,
        )
        # The state is ahead of the bucket from here on; if the cut is not written, this task ends.
        self._is_committing = True
        budget = WorkBudget()
        for change in changes:
            self._state.apply_change(change, header.time_ms)
            await budget.visit()
        self._state.header = header
        lines = [encode_line(header)]
        async for change in visited(self._state.changes() if is_base else changes):
            lines.append(encode_line(change))
        data = await asyncio.get_running_loop().run_in_executor(self._thread, compress_cut, lines)
        before = None if newest is None else newest.base
        await self._bucket.persist(
            f"writing cut {sequence}", lambda: self._chain.append(sequence, data, base=before)
        )
        self._retention.added(sequence)
        self._bytes_since_base += len(data)
        if is_base:
            self._base_bytes, self._bytes_since_base = len(data), 0
        if self._is_first:
            logger.info("generation %d of the replica %s begins", self._generation, self._status.url)
        self._is_first = self._is_committing = False
        self._deleted = []
        self._cover(marks)
        status = self._status
        status.phase, status.sequence, status.cut_ms = "replicating", sequence, header.time_ms
        status.cuts += 1
        if not self._bucket.is_failing:
            status.problem = None
        status.uploaded_bytes += len(data)

    async def _write_sealed(self) -> None:
        """Write sealed segments as objects of their own."""
        while True:
            try:
                self._changes.put_back([await self._segments.next_sealed()])
            except OSError as error:
                logger.error("a sealed segment stays in parts in the bucket: %s", error)
            except Exception:  # the edge of a task: others can be written
                logger.exception("a sealed segment stays in parts in the bucket")

    async def _clean(self) -> None:
        """Delete what is too old, and once what earlier brokers have left."""
        if self._is_first:
            return
        now_ms = self._clock.monotonic_ms()
        if self._cleaned_ms is not None and now_ms - self._cleaned_ms < self._options.clean_interval_ms:
            return
        self._cleaned_ms = now_ms
        try:
            self._deleted += await self._retention.enforce(self._state, self._patient_clock.now_ms())
            if not self._is_swept:
                prefixes = [prefix_of(kind, self._incarnation) for kind in KINDS]
                if swept := await self._retention.sweep(self._state, prefixes):
                    logger.info("%d objects of the replica that no cut names were deleted", swept)
                self._is_swept = True
        except ObjectStoreError as error:
            # Credentials that may not delete must not keep new cuts from being written.
            logger.warning("the bucket of the replica keeps what is too old until this succeeds: %s", error)
