"""Reads of a shared engine: plan the runs, load their bytes, cut out whole batches.

A consumer that follows the end of a log reads runs that this broker knows, from the block cache. Other
reads ask the metadata for a plan first, with one query for all partitions of a request. A run may be
merged or deleted between plan and load; its bytes stay for minutes, and if they are gone all the same,
the reader plans once more.

Aborted transactions are queried after the load, so that the answer has none that is not in the
batches. A pass of compaction forgets a transaction with its marker, which it keeps for minutes after the
batches. So a read that takes longer, because the broker was paused, fails and is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence

from stele.wire import record_batch as rb
from stele.wire.isolation_level import IsolationLevel

from ...clock import Clock
from ...errors import CorruptLog, OffsetOutOfRange, SteleError, StorageUnavailable, UnknownTopic
from ...work_budget import WorkBudget
from ..engine import AbortedTransaction, PartitionFetch, PartitionRead
from ..segments.age import newest_in_batch
from ..topic_partition import TopicPartition
from .log import SharedLog, of_another_history
from .meta import Meta, MetaUnavailable, RunRead, RunsFound, RunsWanted
from .runs.reader import Batches, LateRead, PlannedRead, ReadCall, RunReader, corrupt_run
from .store.object_store import ObjectNotFound

# A plan for less would make readers with a small limit plan for each batch.
_PLAN_BYTES_MIN = 256 << 10
# What one step of a search by time loads.
_SEARCH_BYTES = 1 << 20
# Of a compacted log, far less than the time for which a marker stays (``CompactorOptions.marker_ms_min``).
_READ_MS_MAX = 60_000


class SharedReader:
    """Reads open logs by offset and by time.

    ``refresh`` brings the ends of logs up to date. ``runs`` reads what was planned.
    """

    def __init__(
        self,
        *,
        meta: Meta,
        logs: Mapping[TopicPartition, SharedLog],
        runs: RunReader,
        clock: Clock,
        refresh: Callable[[Collection[TopicPartition]], Awaitable[bool]],
    ) -> None:
        self._meta = meta
        self._logs = logs
        self._runs = runs
        self._clock = clock
        self._refresh = refresh

    # ── by offset ──

    async def read(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead]:
        """See ``LogEngine.read``."""
        past_end = {
            request.topic_partition
            for request in requests
            if (log := self._logs.get(request.topic_partition)) is not None
            and request.offset > log.next_offset
        }
        failure: SteleError | None = None
        begun_ms = self._clock.monotonic_ms()
        try:
            if past_end:
                # Another broker may have appended: only the metadata knows that an offset is out of range.
                await self._refresh(past_end)
            seen = self._seen(requests)
            try:
                plans = await self._plan(requests, seen, max_bytes)
            except _HistoryChanged:
                # The logs here are of the history before; once they are taken over, the plan is for them.
                await self._refresh({r.topic_partition for r in requests if r.topic_partition in self._logs})
                seen = self._seen(requests)
                plans = await self._plan(requests, seen, max_bytes)
        except _HistoryChanged:
            failure, plans, seen = of_another_history(), {}, self._seen(requests)
        except (MetaUnavailable, StorageUnavailable) as unavailable:
            failure, plans, seen = _unavailable(unavailable), {}, self._seen(requests)
        call = self._runs.begin(_planned_reads(requests, seen, plans), max_bytes)
        reads: list[PartitionRead] = []
        left, is_empty = max_bytes, True
        for index, request in enumerate(requests):
            # Not the one of that name now: a topic may have been deleted and created again since the plan.
            log, history = seen[index]
            found = Batches()
            aborted: Sequence[AbortedTransaction] = ()
            error: SteleError | None = None
            if log is None or log.is_dropped:
                log, error = None, UnknownTopic(request.topic)
            elif not log.log_start_offset <= request.offset <= log.next_offset:
                error = failure if request.offset > log.next_offset else None
                error = error or _out_of_range(log, request.offset)
            elif request.offset < (end := _end_of(log, request)) and (is_empty or left >= rb.HEADER_BYTES):
                limit = min(request.max_bytes, left)
                try:
                    if failure is not None and index not in plans:
                        raise failure
                    found = await self._read_log(
                        call, log, request, plans.get(index, ()), limit, end=end, at_least_one=is_empty
                    )
                    if request.isolation is IsolationLevel.READ_COMMITTED:
                        aborted = await self._aborted(log, request.offset, found.batches, begun_ms)
                    log.check_same(history)
                except LateRead:
                    found = Batches()
                except SteleError as refused:
                    found, error = Batches(), refused
            if found.batches:
                is_empty = False
                left = max(0, left - len(found.batches))
            reads.append(_partition_read(request, log, found, aborted, error))
        return reads

    def _seen(self, requests: Sequence[PartitionFetch]) -> list[tuple[SharedLog | None, int]]:
        """Return the log of each request, and its history."""
        logs = [self._logs.get(request.topic_partition) for request in requests]
        return [(log, 0 if log is None else log.history) for log in logs]

    async def _aborted(
        self, log: SharedLog, offset: int, batches: bytes | bytearray, begun_ms: int
    ) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions of what was read from ``offset`` on.

        There must be none too many. The read was planned at ``begun_ms`` or later.

        Raises:
            OffsetOutOfRange, UnknownTopic: the records were deleted meanwhile, and what is known of them.
            StorageUnavailable: see there.
        """
        if offset > log.last_aborted or not batches:
            return ()
        end_offset = max(header.next_offset for header in rb.iter_headers(batches))
        try:
            found = await self._meta.aborted(log.log_id, offset, end_offset)
        except MetaUnavailable as error:
            raise _unavailable(error) from error
        read_ms = self._clock.monotonic_ms() - begun_ms
        if log.config.is_compacted and read_ms > _READ_MS_MAX:
            raise StorageUnavailable("the read", f"it took {read_ms} ms, and compaction goes on meanwhile")
        if found is None:
            raise UnknownTopic(log.topic_partition.topic)
        if offset < found.log.log_start:
            log.update(found.log)
            raise _out_of_range(log, offset)
        return found.transactions

    async def _plan(
        self,
        requests: Sequence[PartitionFetch],
        seen: Sequence[tuple[SharedLog | None, int]],
        max_bytes: int,
    ) -> dict[int, Sequence[RunRead]]:
        """Return the runs for each request, by its index, that has records to read."""
        plans: dict[int, Sequence[RunRead]] = {}
        # The metadata plans each log once per query, but a request may name a partition twice.
        rounds: list[dict[int, tuple[int, RunsWanted]]] = []
        by_id: dict[int, SharedLog] = {}
        for index, (request, (log, _)) in enumerate(zip(requests, seen, strict=True)):
            if log is None or not log.log_start_offset <= request.offset < _end_of(log, request):
                continue
            size = max(min(request.max_bytes, max_bytes), _PLAN_BYTES_MIN)
            recent = log.recent_runs(request.offset, size, self._clock.monotonic_ms())
            if recent:
                plans[index] = recent
                continue
            by_id[log.log_id] = log
            free = next((wanted for wanted in rounds if log.log_id not in wanted), None)
            if free is None:
                rounds.append(free := {})
            free[log.log_id] = (index, RunsWanted(log.log_id, request.offset, size))
        for wanted in rounds:
            found = await self._meta.runs([entry for _, entry in wanted.values()])
            for log_id, (index, _) in wanted.items():
                plans[index] = self._planned(by_id[log_id], found.get(log_id))
        return plans

    def _planned(self, log: SharedLog, found: RunsFound | None) -> Sequence[RunRead]:
        if found is None:
            return ()
        if found.log.history != log.history:
            raise _HistoryChanged
        log.update(found.log)
        log.note_cleaned(found.runs)
        return found.runs

    async def _read_log(
        self,
        call: ReadCall,
        log: SharedLog,
        request: PartitionFetch,
        runs: Sequence[RunRead],
        max_bytes: int,
        *,
        end: int,
        at_least_one: bool,
    ) -> Batches:
        """Read runs up to the offset ``end``.

        They are planned once more if an object is gone, and loaded once more if one is damaged: it may have been
        restored, or its bytes changed in transit.

        Raises:
            OffsetOutOfRange: the records were deleted meanwhile.
            CorruptLog, StorageUnavailable, LateRead: see there.
        """

        async def read() -> Batches:
            return await self._runs.read(
                call,
                request,
                runs,
                max_bytes,
                log_start=log.log_start_offset,
                end=end,
                at_least_one=at_least_one,
                epochs=log.epochs,
            )

        try:
            return await read()
        except ObjectNotFound:
            log.forget_runs()
        except CorruptLog as error:
            self._runs.forget([run for run in runs if run.object.key == str(error.path)])
            return await read()
        try:
            wanted = RunsWanted(log.log_id, request.offset, max(max_bytes, _PLAN_BYTES_MIN))
            try:
                runs = self._planned(log, (await self._meta.runs([wanted])).get(log.log_id))
            except _HistoryChanged:
                raise of_another_history() from None
            if request.offset < log.log_start_offset:
                raise _out_of_range(log, request.offset)
            return await read()
        except MetaUnavailable as error:
            raise _unavailable(error) from error
        except ObjectNotFound as error:
            raise corrupt_run(runs[0], 0, f"object {error.key} does not exist", request.offset) from error

    # ── by time ──

    async def offset_for_time(self, log: SharedLog, timestamp_ms: int) -> tuple[int, int] | None:
        """Return offset and time of the first record at or after ``timestamp_ms``; None if there is none.

        Raises:
            CorruptLog, StorageUnavailable: see there.
        """
        history = log.history
        try:
            run = await self._meta.run_at_time(log.log_id, timestamp_ms)
            while run is not None:
                record = await self._search(log, run, timestamp_ms)
                log.check_same(history)
                if record is not None:
                    return record
                # The records that are late enough are deleted, or the header of their batch is wrong.
                run = await self._next_run_at_time(log, run.last_offset + 1, timestamp_ms)
        except MetaUnavailable as error:
            raise _unavailable(error) from error
        return None

    async def _next_run_at_time(self, log: SharedLog, offset: int, timestamp_ms: int) -> RunRead | None:
        while True:
            found = (await self._meta.runs([RunsWanted(log.log_id, offset, 1 << 40)])).get(log.log_id)
            if found is None or not found.runs:
                return None
            log.note_cleaned(found.runs)
            for run in found.runs:
                if run.max_timestamp >= timestamp_ms:
                    return run
            offset = found.runs[-1].last_offset + 1

    async def _search(self, log: SharedLog, run: RunRead, timestamp_ms: int) -> tuple[int, int] | None:
        async for header, batch in self._batches(log, run):
            if header.max_timestamp < timestamp_ms:
                continue
            try:
                record = rb.first_record(
                    bytes(batch), from_offset=log.log_start_offset, timestamp_ms=timestamp_ms
                )
            except rb.CorruptBatchError as error:
                raise corrupt_run(run, error.position, error.reason, header.base_offset) from error
            if record is not None:
                return record.offset, record.timestamp
        return None

    async def newest_time(self, log: SharedLog) -> int:
        """Return the newest timestamp of the records that are not deleted.

        It is -1 if there is none.

        The metadata have that of a whole run. In the one where records were deleted, the batches tell.

        Raises:
            CorruptLog, StorageUnavailable: see there.
        """
        history, newest_ms, offset = log.history, rb.NO_TIMESTAMP, 0
        try:
            while (run := await self._meta.newest_run(log.log_id, offset)) is not None:
                log.check_same(history)
                if run.base_offset >= log.log_start_offset:
                    return max(newest_ms, run.max_timestamp)
                newest_ms, offset = max(newest_ms, await self._newest_in(log, run)), run.last_offset + 1
        except MetaUnavailable as error:
            raise _unavailable(error) from error
        return newest_ms

    async def _newest_in(self, log: SharedLog, run: RunRead) -> int:
        newest_ms, start = rb.NO_TIMESTAMP, log.log_start_offset
        async for header, batch in self._batches(log, run):
            if header.base_offset < start and header.max_timestamp > newest_ms:
                newest_ms = max(
                    newest_ms, await asyncio.to_thread(newest_in_batch, bytes(batch), from_offset=start)
                )
            else:
                newest_ms = max(newest_ms, header.max_timestamp)
        return newest_ms

    async def _batches(
        self, log: SharedLog, run: RunRead
    ) -> AsyncGenerator[tuple[rb.BatchHeader, memoryview]]:
        """Yield the batches of a run that have records after the log start."""
        offset = max(run.base_offset, log.log_start_offset)
        topic, partition = log.topic_partition
        while offset <= run.last_offset:
            request = PartitionFetch(topic=topic, partition=partition, offset=offset, max_bytes=_SEARCH_BYTES)
            end = run.last_offset + 1
            call = self._runs.begin([PlannedRead(request, [run], end)], _SEARCH_BYTES)
            found = await self._read_log(call, log, request, [run], _SEARCH_BYTES, end=end, at_least_one=True)
            batches = found.batches
            budget = WorkBudget()
            for header in rb.iter_headers(batches):
                offset = header.next_offset
                yield header, memoryview(batches)[header.position : header.position + header.size]
                await budget.spend(header.size, header.record_count)
            if not batches:
                break


def _planned_reads(
    requests: Sequence[PartitionFetch],
    seen: Sequence[tuple[SharedLog | None, int]],
    plans: Mapping[int, Sequence[RunRead]],
) -> list[PlannedRead]:
    """Return the reads that have a plan, in the order of the requests."""
    return [
        PlannedRead(requests[index], plans[index], _end_of(log, requests[index]))
        for index in sorted(plans)
        if (log := seen[index][0]) is not None
    ]


def _partition_read(
    request: PartitionFetch,
    log: SharedLog | None,
    found: Batches,
    aborted: Sequence[AbortedTransaction],
    error: SteleError | None,
) -> PartitionRead:
    if log is None:
        return PartitionRead(topic=request.topic, partition=request.partition, error=error)
    return PartitionRead(
        topic=request.topic,
        partition=request.partition,
        error=error,
        high_watermark=log.next_offset,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted=aborted if request.isolation is IsolationLevel.READ_COMMITTED else None,
        batches=found.batches,
        holes_until=found.holes_until,
    )


def _end_of(log: SharedLog, request: PartitionFetch) -> int:
    """Return where a read ends."""
    is_committed = request.isolation is IsolationLevel.READ_COMMITTED
    return log.last_stable_offset if is_committed else log.next_offset


def _out_of_range(log: SharedLog, offset: int) -> OffsetOutOfRange:
    topic, partition = log.topic_partition
    return OffsetOutOfRange(
        topic=topic,
        partition=partition,
        offset=offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.next_offset,
    )


def _unavailable(error: Exception) -> StorageUnavailable:
    return error if isinstance(error, StorageUnavailable) else StorageUnavailable("the read", str(error))


class _HistoryChanged(Exception):
    """A plan is of another history of the metadata than the log here."""
