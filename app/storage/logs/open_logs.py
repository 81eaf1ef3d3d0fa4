"""The open partitions of the embedded engine, wherever their bytes are."""

from __future__ import annotations

from pathlib import Path

from ..topic_partition import ByPartition, TopicPartition
from .log import DiskLog
from .memory_log import MemoryLog
from .partition_log import PartitionLog


class PartitionLogs:
    """Finds the log of a partition; ``disk`` belongs to the log manager, ``memory`` to the engine."""

    def __init__(self, data_dir: Path, disk: ByPartition[DiskLog]) -> None:
        self._data_dir = data_dir
        self.disk = disk
        self.memory = ByPartition[MemoryLog]()

    def find(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.disk.get(topic_partition) or self.memory.get(topic_partition)

    def __getitem__(self, topic_partition: TopicPartition) -> PartitionLog:
        """Raises ``UnknownTopic`` for a partition that is not open."""
        return self.disk.get(topic_partition) or self.memory[topic_partition]

    def directory(self, topic_partition: TopicPartition) -> Path:
        """The directory to name in an error of the disk."""
        log = self.disk.get(topic_partition)
        return self._data_dir if log is None else log.directory
