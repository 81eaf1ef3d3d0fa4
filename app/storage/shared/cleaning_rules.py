"""Decide which log compaction takes next, and which runs become one object.

It also decides up to which offset. The functions are pure.

The rules are those of ``cleaning/planning.py``, for runs in place of segments. There is no active segment: what
was not compacted yet waits until it is worth a pass (``wait_bytes``, ``wait_ms``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..topic_config import TopicConfig
from .meta import RUNS_DELETED_MAX, CommittedRun, LogDirt, RunRead

# Offsets that one object covers; the sparse index has 32 bits for them.
_OFFSETS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """The compaction settings of a topic; times in ms.

    A pass waits until there are ``wait_bytes`` of dirty records, or the oldest is ``wait_ms`` old.
    """

    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    wait_bytes: int
    wait_ms: int


def rules_of(config: TopicConfig, *, wait_bytes: int, wait_ms: int) -> CleaningRules:
    """Return the rules of a topic; ``segment.bytes`` and ``segment.ms`` make it wait for less."""
    return CleaningRules(
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        wait_bytes=min(config.segment_bytes, wait_bytes),
        wait_ms=min(config.segment_ms, config.max_compaction_lag_ms, wait_ms),
    )


def dirty_ratio(dirt: LogDirt) -> float:
    """Return the part of a log that no pass has looked at, 0 to 1."""
    dirty_bytes = max(0, dirt.log.size_bytes - dirt.clean_bytes)
    return dirty_bytes / dirt.log.size_bytes if dirt.log.size_bytes > 0 else 0.0


def is_due(dirt: LogDirt, rules: CleaningRules) -> bool:
    """Return whether a pass is worth its reading, or overdue."""
    if dirt.dirty_since_ms is None:
        return False
    age_ms = dirt.now_ms - dirt.dirty_since_ms
    if age_ms < rules.min_compaction_lag_ms:
        return False
    if age_ms > rules.max_compaction_lag_ms:
        return True
    dirty_bytes = dirt.log.size_bytes - dirt.clean_bytes
    is_worth_it = dirty_bytes >= rules.wait_bytes or age_ms >= rules.wait_ms
    return is_worth_it and dirty_ratio(dirt) > rules.min_cleanable_dirty_ratio


def first_uncleanable(
    runs: Sequence[CommittedRun], rules: CleaningRules, *, first_dirty: int, last_stable: int, now_ms: int
) -> int:
    """Return the offset up to which a pass may clean.

    That of the first run with a record that is too young, or at or after the last stable offset.
    """
    end = first_dirty
    for committed in runs:
        run = committed.run
        is_too_new = (
            rules.min_compaction_lag_ms > 0 and committed.newest_ms > now_ms - rules.min_compaction_lag_ms
        )
        if run.last_offset >= first_dirty and (is_too_new or run.last_offset >= last_stable):
            break
        end = max(end, run.last_offset + 1)
    return end


def groups(
    runs: Sequence[CommittedRun], *, log_start: int, mapped_end: int, max_bytes: int
) -> list[list[RunRead]]:
    """Return the runs before ``mapped_end``, in groups that fit into one object.

    A run that is already too large is a group of its own.
    """
    grouped: list[list[RunRead]] = []
    length = 0
    for run in (committed.run for committed in runs):
        if run.last_offset < log_start:
            continue
        if run.base_offset >= mapped_end:
            break
        length += run.length
        if (
            not grouped
            or length > max_bytes
            or len(grouped[-1]) >= RUNS_DELETED_MAX
            or run.last_offset - grouped[-1][0].base_offset > _OFFSETS_MAX
        ):
            grouped.append([])
            length = run.length
        grouped[-1].append(run)
    return grouped
