"""Read the logs of the embedded engine, on the loop unless a disk is waited for.

A read of one partition has two steps: the log *plans* a search for whole batches, and the span
that the search finds is read. Both steps first try on the event loop, with what is in memory,
and go to a thread if that would wait for a disk. Retention and a drop may delete files in
between; the reader then looks again, or returns nothing if the bytes have been deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from stele.wire import record_batch as rb
from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import CorruptBatchError

from ...errors import CorruptLog, LogDirFailed, SteleError, StorageError, UnknownTopic
from ...work_budget import WorkBudget
from ..config_types import INT64_MAX
from ..engine import AbortedTransaction, PartitionFetch, PartitionRead
from ..segments.open_segments import OpenSegments
from ..segments.reader import Extent, WouldBlockError
from ..topic_partition import TopicPartition
from .log_dir import LogDir
from .open_logs import PartitionLogs
from .partition_log import PartitionLog, Span

_T = TypeVar("_T")

_LAST_DELTA_AT = 23


class _Found(NamedTuple):
    """Whole batches, and the search for aborted transactions among them; see ``PartitionLog``."""

    span: Span | None
    aborted_search: Callable[[int], list[AbortedTransaction]] | None


class LogReader:
    """Reads partitions by offset and time, and limits the open sealed segments."""

    def __init__(self, logs: PartitionLogs, log_dir: LogDir, *, open_segments_max: int) -> None:
        self.open_segments = OpenSegments(open_segments_max)
        self._logs = logs
        self._log_dir = log_dir

    # ── by offset ──

    async def read(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead]:
        """See ``LogEngine.read``."""
        reads: list[PartitionRead] = []
        left, is_empty = max_bytes, True
        budget = WorkBudget()
        for request in requests:
            await budget.visit()
            log = self._logs.find(request.topic_partition)
            limit = min(request.max_bytes, left)
            if log is None:
                # Dropped since the request was checked.
                reads.append(
                    PartitionRead(
                        topic=request.topic, partition=request.partition, error=UnknownTopic(request.topic)
                    )
                )
                continue
            batches: bytes | bytearray = b""
            span: Span | None = None
            error: SteleError | None = None
            try:
                if (read := self._read_now(log, request, limit, at_least_one=is_empty)) is not None:
                    if read.batches:
                        is_empty, left = False, max(0, left - len(read.batches))
                    reads.append(read)
                    continue
            except StorageError as refused:
                error = refused
            is_committed = request.isolation is IsolationLevel.READ_COMMITTED
            aborted: Sequence[AbortedTransaction] | None = () if is_committed else None
            end_offset = _visible_end(log.readable_ends, is_committed=is_committed)
            # Nothing is at the end of the log, where most partitions of a wide reader are.
            if error is None and (request.offset < end_offset or request.offset > log.log_end_offset):
                try:
                    span, aborted_search = await self._find_span(
                        log,
                        request.offset,
                        limit,
                        at_least_one=is_empty,
                        end_offset=end_offset,
                    )
                    if span is not None:
                        batches = await self._read_span(log, request, span)
                    if batches and is_committed and aborted_search is not None:
                        aborted = _aborted(aborted_search, batches, end_offset)
                except SteleError as refused:
                    error = refused
            if batches:
                is_empty = False
                left = max(0, left - len(batches))
            reads.append(
                PartitionRead(
                    topic=request.topic,
                    partition=request.partition,
                    error=error,
                    high_watermark=log.high_watermark,
                    last_stable_offset=log.last_stable_offset,
                    log_start_offset=log.log_start_offset,
                    aborted=aborted,
                    batches=batches,
                    holes_until=log.holes_until,
                    origin=span if isinstance(span, Extent) else None,
                )
            )
        return reads

    def read_now(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead] | None:
        """See ``LogEngine.read_now``."""
        reads: list[PartitionRead] = []
        left, is_empty = max_bytes, True
        try:
            for request in requests:
                log = self._logs.find(request.topic_partition)
                if log is None:
                    return None
                read = self._read_now(log, request, min(request.max_bytes, left), at_least_one=is_empty)
                if read is None:
                    return None
                if read.batches:
                    is_empty, left = False, max(0, left - len(read.batches))
                reads.append(read)
        except StorageError:
            # ``read`` reports it, if it is still so.
            return None
        return reads

    def _read_now(
        self, log: PartitionLog, request: PartitionFetch, max_bytes: int, *, at_least_one: bool
    ) -> PartitionRead | None:
        """Read batches that are in memory, or nothing at the end of what is readable.

        None if they must be waited for, or an error is to be reported.

        Raises ``LogDirFailed``: the disk does not allow it.
        """
        is_committed = request.isolation is IsolationLevel.READ_COMMITTED
        last_stable_offset, high_watermark = ends = log.readable_ends
        end_offset = _visible_end(ends, is_committed=is_committed)
        offset = request.offset
        if not log.log_start_offset <= offset <= end_offset:
            return None
        batches: bytes | bytearray = b""
        extent: Extent | None = None
        aborted: Sequence[AbortedTransaction] | None = () if is_committed else None
        if offset < end_offset:
            found = self._batches_in_memory(log, offset, max_bytes, at_least_one, end_offset)
            if found is None:
                return None
            batches, extent = found
            if is_committed and batches and (aborted_search := log.aborted_search(offset)) is not None:
                aborted = _aborted(aborted_search, batches, end_offset)
        return PartitionRead(
            topic=request.topic,
            partition=request.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted=aborted,
            batches=batches,
            holes_until=log.holes_until,
            origin=extent,
        )

    def _batches_in_memory(
        self, log: PartitionLog, offset: int, max_bytes: int, at_least_one: bool, end_offset: int
    ) -> tuple[bytes | bytearray, Extent | None] | None:
        try:
            search = log.plan(offset, max_bytes, at_least_one=at_least_one, end_offset=end_offset)
            span = None if search is None else search(True)
            if span is None:
                # The limits leave room for none.
                return b"", None
            batches = span.read_nowait()
        except (WouldBlockError, FileNotFoundError, SteleError):
            # ``read`` repeats it where it may wait, and reports what is wrong then.
            return None
        except OSError as refused:
            raise self._log_dir.unreadable(self._log_dir.path, refused) from refused
        if not batches:
            return None
        if not isinstance(span, Extent):
            return batches, None
        if len(batches) != span.size:
            return None
        self.open_segments.touch(span.segment)
        return batches, span

    async def _find_span(
        self, log: PartitionLog, offset: int, max_bytes: int, *, at_least_one: bool, end_offset: int
    ) -> _Found:
        """Find whole batches before ``end_offset``; None if there are none.

        Raises:
            OffsetOutOfRange, CorruptLog: ``offset`` cannot be read.
            LogDirFailed, StorageLimitReached: the disk or the system does not allow it.
        """
        while True:
            deletions = log.deletions
            search = log.plan(offset, max_bytes, at_least_one=at_least_one, end_offset=end_offset)
            aborted_search = log.aborted_search(offset)
            if search is None:
                return _Found(None, None)
            try:
                try:
                    return _Found(search(True), aborted_search)
                except WouldBlockError:
                    in_thread = self._waiting_for(log.is_remote_at(offset))
                    return _Found(await in_thread(search, False), aborted_search)
            except CorruptLog:
                if log.deletions == deletions:
                    raise
                # Its end was cut off meanwhile.
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    if self._logs.find(log.topic_partition) is not log:
                        raise UnknownTopic(log.topic_partition.topic) from None
                    if log.deletions != deletions:
                        # Retention has taken the segment between two looks; then the log start has moved.
                        continue
                raise self._log_dir.unreadable(self._log_dir.path, error) from error

    async def _read_span(self, log: PartitionLog, request: PartitionFetch, span: Span) -> bytes | bytearray:
        """Read the located batches; nothing if they were deleted meanwhile.

        Raises:
            CorruptLog: the file is shorter than it was.
            LogDirFailed, StorageLimitReached: the disk or the system does not allow it.
        """
        extent = span if isinstance(span, Extent) else None
        path = self._log_dir.path if extent is None else extent.path
        try:
            if extent is not None:
                self.open_segments.touch(extent.segment)
            data = span.read_nowait()
            if data is None:
                is_remote = extent is not None and extent.segment.remote is not None
                data = await self._waiting_for(is_remote)(span.read)
        except FileNotFoundError:
            if self._logs.find(request.topic_partition) is not log or not log.holds(span):
                # Deleted since it was found; the next read reports that.
                return b""
            raise LogDirFailed(path, "the file is gone") from None
        except OSError as error:
            raise self._log_dir.unreadable(path, error) from error
        if extent is not None and extent.segment.is_cut:
            # The next read reports what is left.
            return b""
        if extent is not None and len(data) != extent.size:
            raise CorruptLog(
                path=path,
                position=extent.position + len(data),
                offset=request.offset,
                next_offset=extent.segment.next_offset,
                reason="the file is shorter than it was",
            )
        return data

    def _waiting_for(self, is_remote: bool) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return what runs work in a thread that may wait for the disk, or for the bucket."""
        return self._log_dir.in_remote_thread if is_remote else self._log_dir.in_thread

    # ── by time ──

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int] | None:
        """Find the first record at or after ``timestamp_ms``; None if there is none.

        Returns ``(offset, timestamp, leader epoch)``.

        Raises as ``max_timestamp``.
        """
        return await self._search(topic_partition, lambda log: log.time_search(timestamp_ms))

    async def max_timestamp(self, topic_partition: TopicPartition) -> int:
        """Return the newest time of the records that are not deleted; -1 if none has one.

        Raises:
            UnknownTopic: it was deleted meanwhile.
            CorruptLog: a batch that must be decoded cannot be.
            LogDirFailed, StorageLimitReached: the disk or the system does not allow it.
        """
        return await self._search(topic_partition, lambda log: log.newest_time_search())

    async def _search(
        self, topic_partition: TopicPartition, search_of: Callable[[PartitionLog], Callable[[], _T]]
    ) -> _T:
        while True:
            log = self._logs.find(topic_partition)
            if log is None:
                raise UnknownTopic(topic_partition.topic)
            deletions = log.deletions
            try:
                return await self._waiting_for(log.has_remote)(search_of(log))
            except CorruptBatchError as error:
                raise CorruptLog(
                    path=self._log_dir.path,
                    position=error.position,
                    offset=log.log_start_offset,
                    next_offset=log.high_watermark,
                    reason=error.reason,
                ) from error
            except OSError as error:
                if isinstance(error, FileNotFoundError) and (
                    log.deletions != deletions or self._logs.find(topic_partition) is not log
                ):
                    # Retention or a deletion took it meanwhile.
                    continue
                directory = self._logs.directory(topic_partition)
                raise self._log_dir.unreadable(directory, error) from error


def _visible_end(ends: tuple[int, int], *, is_committed: bool) -> int:
    """Return up to which offset a reader sees a log.

    ``ends`` are its last stable offset and its high watermark.
    """
    last_stable_offset, high_watermark = ends
    return last_stable_offset if is_committed else high_watermark


def _aborted(
    search: Callable[[int], list[AbortedTransaction]], batches: bytes | bytearray, end_offset: int
) -> Sequence[AbortedTransaction]:
    """Return the aborted transactions that overlap ``batches`` before ``end_offset``.

    Those that overlap the rest of the log are not searched for: there may be any number of them.
    """
    return search(min(_next_offset(batches), end_offset))


def _next_offset(batches: bytes | bytearray) -> int:
    """Return the offset after the last of ``batches``; a large number if they are corrupt."""
    try:
        last = max(0, rb.last_position(batches))
    except CorruptBatchError:
        return INT64_MAX
    base_offset = int.from_bytes(batches[last : last + 8], "big")
    at = last + _LAST_DELTA_AT
    return base_offset + int.from_bytes(batches[at : at + 4], "big") + 1
