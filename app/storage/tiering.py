"""Segments leave the disk once they are in the bucket of the replica (KIP-405).

A sealed segment may leave when a cut of the replica names it as objects of its own, and ``local.retention.*`` no longer
keeps it here. What stays of it are its indexes and a line in ``remote-segments``, which is written before the log is
removed. Its records are read from the bucket from then on; ``retention.*`` deletes them there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from ..errors import CorruptLog
from .logs.log import DiskLog
from .logs.log_dir import LogDir
from .segments.open_segments import OpenSegments
from .segments.reader import confirm_newest, read_record_age
from .segments.remote_segments import RemoteLog, RemoteLogs, RemoteSegment, RunSpan, write_remote_segments
from .segments.segment import Segment

logger = logging.getLogger(__name__)


class SealedRuns(Protocol):
    """Knows what is in the bucket: the replica."""

    def sealed_runs(self, log: DiskLog, segment: Segment) -> Sequence[RunSpan] | None:
        """Return the objects of a segment that a cut names; None if it is not whole in objects of its own."""
        ...


class Tiering:
    """Moves segments out; ``open_segments`` forgets them."""

    def __init__(
        self, log_dir: LogDir, open_segments: OpenSegments, runs: SealedRuns, remote_logs: RemoteLogs
    ) -> None:
        self._log_dir = log_dir
        self._open_segments = open_segments
        self._runs = runs
        self._remote_logs = remote_logs

    async def enforce(self, log: DiskLog, now_ms: int, save: Callable[[], Awaitable[None]]) -> int:
        """Let the segments leave that need not be here; return how many. The caller holds ``log.upkeep``.

        ``save`` makes the checkpoints of the log last: a start reads no segment again that is not here.

        Raises:
            OSError: the disk failed.
        """
        leaving: list[tuple[Segment, RemoteSegment]] = []
        for segment in log.segments_to_leave(now_ms):
            runs = self._runs.sealed_runs(log, segment)
            if runs is None:
                break
            try:
                # Later this would read all of it from the bucket.
                await self._log_dir.in_thread(_read_times, segment)
            except CorruptLog as error:
                logger.error("%s stays on the disk: %s", segment.path, error)
                break
            if segment not in log.segments_to_leave(now_ms):
                # Its records are newer than its age alone has told.
                break
            leaving.append((segment, _remote(segment, runs)))
        if not leaving:
            return 0
        await save()
        start = log.local_start()
        known = [_remote_of(segment) for segment in log.segments[:start]]
        listed = [*known, *(remote for _, remote in leaving)]
        await self._log_dir.in_thread(write_remote_segments, self._log_dir.files, log.directory, listed)
        for segment, remote in leaving:
            self._open_segments.forget(segment)
            segment.leave_disk(RemoteLog(remote, self._remote_logs.open(segment.path, remote)))
        await self._log_dir.in_thread(self._remove, [segment.path for segment, _ in leaving])
        logger.info(
            "%s: %d segments are in the bucket alone now, up to offset %d",
            log.directory,
            len(leaving),
            leaving[-1][0].next_offset - 1,
        )
        return len(leaving)

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._log_dir.files.remove(path)


def _read_times(segment: Segment) -> None:
    confirm_newest(segment)
    if segment.record_age is None:
        read_record_age(segment)


def _remote(segment: Segment, runs: Sequence[RunSpan]) -> RemoteSegment:
    age = segment.record_age
    assert age is not None
    return RemoteSegment(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        created_ms=segment.created_ms,
        appended_ms=segment.appended_ms,
        newest_ms=age.newest_ms,
        has_untimed=age.has_untimed,
        runs=tuple(runs),
    )


def _remote_of(segment: Segment) -> RemoteSegment:
    assert segment.remote is not None, "those that have left stand in front"
    return segment.remote.known
