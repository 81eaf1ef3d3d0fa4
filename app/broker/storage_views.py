"""Storage of partitions for operators: segment files, free space, compaction.

Listeners call it through ``Broker.storage``. An engine may keep no files on this machine.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import InvalidRequest
from ..storage.disk_views import DiskSpace, SegmentState, Verification
from ..storage.engine import CompactionCounts, LogEngine, PartitionCompaction, SharedStorageCounts
from .topics import Topics
from .virtual import VirtualTopics


class StorageViews:
    """Views of the storage of one broker."""

    def __init__(self, *, engine: LogEngine, topics: Topics, virtual: VirtualTopics) -> None:
        self._engine = engine
        self._topics = topics
        self._virtual = virtual

    def segment_count(self, topic: str, partition: int) -> int:
        """Return the number of segment files.

        Raises ``UnknownTopic``, ``UnknownPartition``.
        """
        name = self._topics.partition(topic, partition)
        views = self._engine.disk_views
        return 0 if views is None else views.segment_count(name)

    async def segments(self, topic: str, partition: int) -> list[SegmentState]:
        """Return the segment files, oldest first; none in memory.

        Raises ``UnknownTopic``, ``UnknownPartition``.
        """
        name = self._topics.partition(topic, partition)
        views = self._engine.disk_views
        return [] if views is None else await views.segments(name)

    async def verify(
        self, topic: str, partition: int, should_stop: Callable[[], bool]
    ) -> Verification | None:
        """Check every batch and index of a partition.

        Returns None if ``should_stop``, which is called in a thread, returned True.

        Raises:
            UnknownTopic, UnknownPartition: the partition does not exist.
            InvalidRequest: the engine keeps no files on this machine.
            StorageError: the files cannot be read.
        """
        name = self._topics.partition(topic, partition)
        views = self._engine.disk_views
        if views is None:
            raise InvalidRequest(f"{name} has no files on this broker; there is nothing to verify")
        return await views.verify(name, should_stop)

    async def disk_space(self) -> DiskSpace | None:
        """Return the space of the file system; None if no files are kept.

        Raises ``StorageError``.
        """
        views = self._engine.disk_views
        return None if views is None else await views.space()

    @property
    def shared_counts(self) -> SharedStorageCounts | None:
        """This broker's counts of shared storage; None with embedded storage."""
        return self._engine.shared_counts

    @property
    def compaction(self) -> CompactionCounts:
        """Counts of compaction since the start."""
        return self._engine.compaction

    def partition_compaction(self, topic: str, partition: int) -> PartitionCompaction | None:
        """Return the compaction of a partition; None if the topic is not compacted.

        Raises ``UnknownTopic``, ``UnknownPartition``.
        """
        if topic in self._virtual:
            return None
        return self._engine.partition_compaction(self._topics.partition(topic, partition))
