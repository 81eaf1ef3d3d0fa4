"""Views that only an engine with local files offers: segments, checks, free space.

These are not part of ``LogEngine``, because an engine whose bytes are elsewhere has none of
them. ``LogEngine.disk_views`` returns an implementation, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """One segment of a partition, now.

    ``max_timestamp`` is -1 while no record has a time. ``corrupt_ranges`` are sentences, one per
    range of bytes that is known to be corrupt.
    """

    base_offset: int
    next_offset: int
    path: Path
    size_bytes: int
    index_bytes: int
    created_ms: int
    max_timestamp: int
    is_sealed: bool
    is_synced: bool
    corrupt_ranges: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of checking one partition.

    ``problems`` are sentences with file and byte.
    """

    segments: int
    batches: int
    records: int
    size_bytes: int
    problems: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """Total and free bytes of the file system that holds the data directory."""

    path: Path
    total_bytes: int
    free_bytes: int


class DiskViews(Protocol):
    """Reports on the files of an engine's partitions; a partition in memory has none."""

    def segment_count(self, topic_partition: TopicPartition) -> int:
        """Return the number of segments; 0 for a partition in memory."""
        ...

    async def segments(self, topic_partition: TopicPartition) -> list[SegmentState]:
        """Return the segments, oldest first; none for a partition in memory."""
        ...

    async def verify(
        self, topic_partition: TopicPartition, should_stop: Callable[[], bool]
    ) -> Verification | None:
        """Read and check every batch and index that exists when the check begins.

        A thread calls ``should_stop`` now and then; the result is None if it returned True.

        Raises:
            StorageError: the files cannot be read.
        """
        ...

    async def space(self) -> DiskSpace:
        """Return the space of the file system. Raises ``StorageError``."""
        ...
