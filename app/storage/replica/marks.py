"""Where logs stood at the moment of a cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..logs.log import DiskLog
from ..segments.segment import Segment
from .state import PartitionKey


class SegmentMark(NamedTuple):
    """The first ``size`` bytes of a segment: its records before ``next_offset``."""

    segment: Segment
    size: int
    next_offset: int


class LogMark(NamedTuple):
    """One log. Only the last of ``segments`` can have grown since; it then had ``active_size`` bytes."""

    log: DiskLog
    log_start_offset: int
    holes_until: int
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[Segment, ...]
    active_size: int
    next_offset: int

    @property
    def key(self) -> PartitionKey:
        return key_of(self.log)

    def segment_marks(self) -> Sequence[SegmentMark]:
        *sealed, active = self.segments
        marks = [SegmentMark(segment, segment.size, segment.next_offset) for segment in sealed]
        return [*marks, SegmentMark(active, self.active_size, self.next_offset)]


def key_of(log: DiskLog) -> PartitionKey:
    return PartitionKey(str(log.topic_id), log.topic_partition.partition)


def mark_of(log: DiskLog) -> LogMark:
    """Return where the log stands; for the event loop."""
    active = log.segments[-1]
    return LogMark(
        log,
        log.log_start_offset,
        log.holes_until,
        tuple(log.epochs.entries()),
        tuple(log.segments),
        active.size,
        active.next_offset,
    )
