"""Rules of upkeep: runs to delete, runs to merge, searches for orphans.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .meta import RUNS_DELETED_MAX, CommittedRun, LogRow, RunRead, SilentUploader

# A read plan looks at this many runs beyond those that fill its budget at this size.
_READ_AT_LEAST = 16
_READ_BYTES_EACH = 4096


def runs_read_max(max_bytes: int, limit: int) -> int:
    """Return how many runs a read plan looks at.

    Smaller runs do not fill its budget, and the reader asks again.
    """
    return min(limit, _READ_AT_LEAST + max_bytes // _READ_BYTES_EACH)


def expired_runs(
    log: LogRow,
    oldest: Sequence[CommittedRun],
    *,
    now_ms: int,
    retention_s: float | None,
    retention_bytes: int | None,
) -> int:
    """Return how many of the ``oldest`` runs of a log retention deletes.

    There are ``RUNS_DELETED_MAX`` at most.

    Like Kafka with segments: the first run that must stay ends the search, and a log keeps at least
    ``retention_bytes``. Also like Kafka: records without timestamps are as old as what holds them.
    """
    size_bytes = log.size_bytes
    for count, committed in enumerate(oldest[:RUNS_DELETED_MAX]):
        run = committed.run
        is_before = run.last_offset < log.log_start
        is_old = retention_s is not None and committed.newest_ms < now_ms - retention_s * 1000
        is_too_much = retention_bytes is not None and size_bytes - run.length >= retention_bytes
        if not (is_before or is_old or is_too_much):
            return count
        size_bytes -= run.length
    return min(len(oldest), RUNS_DELETED_MAX)


def without_runs(log: LogRow, deleted: Sequence[RunRead]) -> LogRow:
    """Return a log whose oldest runs are deleted."""
    if not deleted:
        return log
    return replace(
        log,
        log_start=max(log.log_start, deleted[-1].last_offset + 1),
        size_bytes=log.size_bytes - sum(run.length for run in deleted),
        unmerged_bytes=log.unmerged_bytes - sum(run.length for run in deleted if not run.is_merged),
    )


def is_look_due(silent: SilentUploader) -> bool:
    """Return whether the objects of a silent uploader are to be listed (again).

    A broker that counted as silent may have been paused: it goes on, uploads, and dies before its next heartbeat. A
    request that the network held up arrives later still. Both get less likely with time, so each look comes after
    twice the silence of the one before it.
    """
    return silent.looked_s is None or silent.silent_s >= 2 * silent.looked_s


def runs_to_merge(unmerged: Sequence[RunRead], max_bytes: int) -> Sequence[RunRead]:
    """Return the first runs that have ``max_bytes`` at most; at least one."""
    total = 0
    for count, run in enumerate(unmerged):
        total += run.length
        if total > max_bytes and count:
            return unmerged[:count]
    return unmerged


def merged_log(log: LogRow, taken: Sequence[RunRead], length: int) -> LogRow:
    """Return a log in which one merged run of ``length`` bytes stands for ``taken``."""
    before = sum(run.length for run in taken)
    return replace(
        log,
        size_bytes=log.size_bytes - before + length,
        unmerged_bytes=log.unmerged_bytes - sum(run.length for run in taken if not run.is_merged),
        merged_until=max(log.merged_until, taken[-1].last_offset + 1),
    )
