"""Views of the embedded engine's data directory: segments, a check of bytes, free space."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from ..errors import UnknownTopic
from .disk_views import DiskSpace, SegmentState, Verification
from .inspection.dump_and_verify import VerificationStopped, verify_partition
from .logs.log_dir import LogDir
from .logs.open_logs import PartitionLogs
from .segments.segment import Segment
from .topic_partition import TopicPartition


class DataDirViews:
    """Implements ``DiskViews``; changes nothing."""

    def __init__(self, logs: PartitionLogs, log_dir: LogDir) -> None:
        self._logs = logs
        self._log_dir = log_dir

    def segment_count(self, topic_partition: TopicPartition) -> int:
        log = self._logs.disk.get(topic_partition)
        return 0 if log is None else len(log.segments)

    async def segments(self, topic_partition: TopicPartition) -> list[SegmentState]:
        log = self._logs.disk.get(topic_partition)
        if log is None:
            return []
        segments, recovery_point = list(log.segments), log.recovery_point

        def states() -> list[SegmentState]:
            return [
                SegmentState(
                    base_offset=segment.base_offset,
                    next_offset=segment.next_offset,
                    path=segment.path,
                    size_bytes=segment.size,
                    index_bytes=self._index_bytes(segment),
                    created_ms=segment.created_ms,
                    max_timestamp=segment.max_timestamp,
                    is_sealed=segment.is_sealed or segment is not segments[-1],
                    is_synced=segment.next_offset <= recovery_point,
                    corrupt_ranges=[
                        f"bytes {corrupt.position} to {corrupt.end_position}: {corrupt.reason}"
                        for corrupt in segment.corrupt_ranges
                    ],
                )
                for segment in segments
            ]

        return await self._log_dir.in_thread(states)

    def _index_bytes(self, segment: Segment) -> int:
        """The size of the index files of ``segment``; retention may remove them meanwhile."""
        size = 0
        for path in (segment.indexes.path, segment.indexes.time_path):
            with contextlib.suppress(FileNotFoundError):
                size += self._log_dir.files.size(path)
        return size

    async def verify(
        self, topic_partition: TopicPartition, should_stop: Callable[[], bool]
    ) -> Verification | None:
        while True:
            size_bytes = self._logs[topic_partition].size_bytes
            log = self._logs.disk.get(topic_partition)
            if log is None:
                return Verification(segments=0, batches=0, records=0, size_bytes=size_bytes, problems=[])
            segments, replacements = list(log.segments), log.replacements
            check = functools.partial(
                verify_partition,
                log.directory,
                ends={segment.path: segment.size for segment in segments},
                sealed={segment.path for segment in segments if segment.is_sealed},
                should_stop=should_stop,
            )
            try:
                verified = await self._log_dir.in_thread(check)
            except VerificationStopped:
                return None
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    if self._logs.disk.get(topic_partition) is not log:
                        raise UnknownTopic(topic_partition.topic) from None
                    if segments[0] not in log.segments or log.replacements != replacements:
                        # Retention or compaction took it meanwhile; what is left is checked.
                        continue
                raise self._log_dir.unreadable(log.directory, error) from error
            if verified.problems and (log.replacements != replacements or log.upkeep.locked()):
                # The files of one segment may have been checked as those of another.
                async with log.upkeep:
                    continue
            return Verification(
                segments=verified.segments,
                batches=verified.batches,
                records=verified.records,
                size_bytes=verified.size_bytes,
                problems=verified.problems,
            )

    async def space(self) -> DiskSpace:
        path = self._log_dir.path
        try:
            total_bytes, free_bytes = await self._log_dir.in_thread(self._log_dir.files.space, path)
        except OSError as error:
            raise self._log_dir.unreadable(path, error) from error
        return DiskSpace(path=path, total_bytes=total_bytes, free_bytes=free_bytes)
