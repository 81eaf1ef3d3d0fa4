"""Reading the logs of the embedded engine, on the event loop where no disk is waited for.

A read of one partition has two steps: the log *plans* a search for whole batches, and the span
that the search finds is read. Both steps first try on the event loop, with what is in memory,
and go to a thread if that would wait for a disk. Retention and a drop may delete files in
between; the reader then looks again, or returns nothing if the bytes it had found are gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.record_batch import CorruptBatchError

from ..errors import CorruptLog, LogDirFailed, SteleError, UnknownTopic
from ..work_budget import WorkBudget
from .engine import PartitionFetch, PartitionRead, TopicPartition
from .log_dir import LogDir
from .open_segments import OpenSegments
from .partition_log import PartitionLog, Span
from .partition_logs import PartitionLogs
from .segment_reader import Extent, WouldBlockError


class LogReader:
    """Reads partitions by offset and by time, and decides which sealed segments stay open."""

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
            # Nothing is at the end of the log, where most partitions of a wide reader are.
            if request.offset != log.log_end_offset:
                try:
                    span = await self._find_span(
                        log, request.offset, min(request.max_bytes, left), at_least_one=is_empty
                    )
                    if span is not None:
                        batches = await self._read_span(log, request, span)
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
                    high_watermark=log.log_end_offset,
                    log_start_offset=log.log_start_offset,
                    batches=batches,
                    holes_until=log.holes_until,
                    origin=span if isinstance(span, Extent) else None,
                )
            )
        return reads

    async def _find_span(
        self, log: PartitionLog, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> Span | None:
        """Find whole batches; None if there are none.

        Raises:
            OffsetOutOfRange, CorruptLog: ``offset`` cannot be read.
            LogDirFailed: the disk does not allow it.
        """
        while True:
            deletions = log.deletions
            search = log.plan(offset, max_bytes, at_least_one=at_least_one)
            if search is None:
                return None
            try:
                try:
                    return search(True)
                except WouldBlockError:
                    return await self._log_dir.in_thread(search, False)
            except OSError as error:
                # Retention may have taken the segment between two looks; then the log start has moved.
                if not isinstance(error, FileNotFoundError) or log.deletions == deletions:
                    raise LogDirFailed(self._log_dir.path, error.strerror or str(error)) from error

    async def _read_span(self, log: PartitionLog, request: PartitionFetch, span: Span) -> bytes | bytearray:
        """Read what was found; nothing if it was deleted meanwhile.

        Raises:
            CorruptLog: the file is shorter than it was.
            LogDirFailed: the disk does not allow it.
        """
        extent = span if isinstance(span, Extent) else None
        path = self._log_dir.path if extent is None else extent.path
        try:
            if extent is not None:
                self.open_segments.touch(extent.segment)
            data = span.read_nowait()
            if data is None:
                data = await self._log_dir.in_thread(span.read)
        except FileNotFoundError:
            if self._logs.find(request.topic_partition) is not log or not log.holds(span):
                # Deleted since it was found; the next read reports that.
                return b""
            raise LogDirFailed(path, "the file is gone") from None
        except OSError as error:
            raise LogDirFailed(path, error.strerror or str(error)) from error
        if extent is not None and len(data) != extent.size:
            raise CorruptLog(
                path=path,
                position=extent.position + len(data),
                offset=request.offset,
                next_offset=extent.segment.next_offset,
                reason="the file is shorter than it was",
            )
        return data

    # ── by time ──

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int] | None:
        """Find the first record at or after ``timestamp_ms``; None if there is none.

        Returns ``(offset, timestamp, leader epoch)``.

        Raises:
            CorruptLog: a batch that must be decoded cannot be.
            LogDirFailed: the disk does not allow it.
        """
        while True:
            log = self._logs[topic_partition]
            deletions = log.deletions
            try:
                return await self._log_dir.in_thread(log.time_search(timestamp_ms))
            except CorruptBatchError as error:
                raise CorruptLog(
                    path=self._log_dir.path,
                    position=error.position,
                    offset=log.log_start_offset,
                    next_offset=log.log_end_offset,
                    reason=error.reason,
                ) from error
            except OSError as error:
                if isinstance(error, FileNotFoundError) and log.deletions != deletions:
                    # Retention took it meanwhile.
                    continue
                directory = self._logs.directory(topic_partition)
                raise LogDirFailed(directory, error.strerror or str(error)) from error
