"""Plans passes: the next partition, its range, and its groups of segments.

::

    log start        first dirty        first uncleanable        log end
        │                 │                     │                   │
        │      clean      │      cleanable      │  active, too new, │
        │ (rewritten too) │ (keys are mapped)   │  not yet synced   │

``first dirty`` is where the last pass ended (``cleaner-offset-checkpoint``).
``first uncleanable`` is the base of the first segment that

- is the active one,
- or has a record younger than ``min.compaction.lag.ms``,
- or holds the last stable offset or an offset that is not synced: a record may go
  only because a later one of its key is certain to survive.

The rules are those of Apache Kafka's ``LogCleanerManager`` and ``Cleaner``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..segments.offset_index import RELATIVE_OFFSET_MAX

_Name = TypeVar("_Name")

# Positions in an offset index are read as signed numbers of 32 bits by Apache Kafka.
LOG_BYTES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """A segment as planning sees it; sizes in bytes, times in ms.

    ``newest_ms`` is the time of its newest record, or of its last append if no
    record has a time; ``first_ms`` that of its first batch, -1 if it has none.
    """

    base_offset: int
    next_offset: int
    size: int
    newest_ms: int
    first_ms: int
    index_bytes: int = 0
    time_index_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """The compaction settings of a topic; sizes in bytes, times in ms."""

    segment_bytes: int
    index_bytes_max: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRange:
    """The range of a pass over one partition. Offsets; sizes in bytes.

    ``is_overdue``: a dirty record is older than ``max.compaction.lag.ms``.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The cleanable part of all bytes that a pass would read, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, rules: CleaningRules) -> bool:
        """True if a pass is worth its reading, or overdue."""
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > rules.min_cleanable_dirty_ratio


def cleaning_range(
    segments: Sequence[SegmentFacts],
    rules: CleaningRules,
    *,
    checkpoint: int | None,
    log_start_offset: int,
    stable_offset: int,
    now_ms: int,
) -> CleaningRange:
    """Return the clean, the cleanable and the uncleanable part of a partition.

    ``segments`` are all of it, ascending, the last one active. ``checkpoint`` is
    where the last pass ended, None if that is not known. ``stable_offset`` is the
    lowest of last stable offset, high watermark and recovery point.
    """
    first_dirty = log_start_offset if checkpoint is None else checkpoint
    if not log_start_offset <= first_dirty <= segments[-1].next_offset:
        # The log was truncated, or begins later now; cleaning again is harmless.
        first_dirty = log_start_offset
    first_uncleanable = segments[-1].base_offset
    for segment in segments[:-1]:
        is_too_new = (
            rules.min_compaction_lag_ms > 0 and segment.newest_ms > now_ms - rules.min_compaction_lag_ms
        )
        if segment.next_offset > stable_offset or (is_too_new and segment.next_offset > first_dirty):
            first_uncleanable = segment.base_offset
            break
    first_uncleanable = max(first_uncleanable, first_dirty)
    dirty = [s for s in segments[:-1] if s.next_offset > first_dirty and s.base_offset < first_uncleanable]
    started_ms = [segment.first_ms for segment in segments[:-1] if segment.next_offset > first_dirty]
    oldest_ms = min((time_ms for time_ms in started_ms if time_ms > 0), default=now_ms)
    return CleaningRange(
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        clean_bytes=sum(s.size for s in segments if s.next_offset <= first_dirty),
        cleanable_bytes=sum(segment.size for segment in dirty),
        is_overdue=oldest_ms < now_ms - rules.max_compaction_lag_ms,
    )


def dirtiest(ranges: Mapping[_Name, tuple[CleaningRange, CleaningRules]]) -> _Name | None:
    """The partition whose pass is due and has the highest dirty ratio; None if no pass is due."""
    due = [(name, cleaning) for name, (cleaning, rules) in ranges.items() if cleaning.is_due(rules)]
    return max(due, key=lambda pair: pair[1].dirty_ratio)[0] if due else None


def groups(
    segments: Sequence[SegmentFacts], rules: CleaningRules, *, mapped_end: int
) -> list[list[SegmentFacts]]:
    """The segments before ``mapped_end``, in runs that fit into one segment each.

    A run is as long as its logs stay within ``segment.bytes``, its indexes within
    ``segment.index.bytes`` and its offsets within what an index can hold, as if
    nothing were deleted. A segment that is already too large is a run of its own.
    """
    grouped: list[list[SegmentFacts]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for segment in segments:
        if segment.base_offset >= mapped_end:
            break
        log_bytes += segment.size
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        if (
            not grouped
            or log_bytes > rules.segment_bytes
            or max(index_bytes, time_index_bytes) > rules.index_bytes_max
            or segment.next_offset - 1 - grouped[-1][0].base_offset > RELATIVE_OFFSET_MAX
        ):
            grouped.append([])
            log_bytes, index_bytes = segment.size, segment.index_bytes
            time_index_bytes = segment.time_index_bytes
        grouped[-1].append(segment)
    return grouped
