"""Save the recovery points, log start offsets and cleaner offsets together.

A recovery point spares the next start a scan. A log start offset keeps deleted
records deleted. A cleaner offset is where the last pass of compaction ended, and
spares the next pass reading what is before it. A save never runs at the same time
as retention or the deletion of a partition: each relies on what the others left on
disk, so all of them hold ``lock``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import Context
from pathlib import Path

from ..errors import StorageError
from .checkpoint import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_epochs,
    write_offsets,
)
from .data_dir import DataDir
from .files import Files
from .log import DiskLog
from .log_dir import LogDir
from .topic_partition import TopicPartition


class OffsetCheckpoints:
    """The saved offsets of closed partitions, and those of open ones to save."""

    def __init__(self, log_dir: LogDir, data_dir: DataDir, logs: Mapping[TopicPartition, DiskLog]) -> None:
        self.lock = asyncio.Lock()
        # Set once every partition is open: from then on a save also records that recovery is complete.
        self.is_settled = False
        self._log_dir = log_dir
        self._data_dir = data_dir
        self._logs = logs
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._first_dirty: dict[TopicPartition, int] = {}
        self._saved: tuple[dict[TopicPartition, int], ...] = ({}, {}, {})
        self._next: asyncio.Task[None] | None = None
        # Log start offsets that are in force once they are saved.
        self._moved_starts: dict[TopicPartition, int] = {}

    async def load(self) -> None:
        """Read the checkpoints. Raises ``OSError``."""
        files, path, in_thread = self._log_dir.files, self._log_dir.path, self._log_dir.in_thread
        self._recovery_points = await in_thread(_read_offsets, files, path / RECOVERY_POINTS)
        self._log_starts = await in_thread(_read_offsets, files, path / LOG_START_OFFSETS)
        self._first_dirty = await in_thread(_read_offsets, files, path / CLEANER_OFFSETS)
        self._saved = (dict(self._recovery_points), dict(self._log_starts), dict(self._first_dirty))

    def of(self, name: TopicPartition) -> tuple[int, int]:
        """Return ``(recovery point, log start offset)``; 0 if unknown.

        Only for a partition that is not open.
        """
        return self._recovery_points.get(name, 0), self._log_starts.get(name, 0)

    def first_dirty(self, name: TopicPartition) -> int:
        """Return where the last pass over a partition that is not open ended.

        0 if unknown.
        """
        return self._first_dirty.get(name, 0)

    def forget(self, name: TopicPartition) -> bool:
        """Forget what was saved of a partition; return False if that was nothing.

        The partition is open now, or the saved offsets were those of a deleted topic.
        """
        offsets = [
            saved.pop(name, None) for saved in (self._recovery_points, self._log_starts, self._first_dirty)
        ]
        return any(offset is not None for offset in offsets)

    async def checkpoint(self) -> None:
        """Save the current offsets; callers that come before a save begins share it.

        Raises:
            StorageFull, LogDirFailed: as ``save``.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._run(), context=Context())
        await asyncio.shield(self._next)

    async def _run(self) -> None:
        async with self.lock:
            self._next = None
            await self.save()

    async def move_start(self, name: TopicPartition, offset: int) -> None:
        """Save a later start of a log before it is in force.

        Raises:
            StorageFull, StorageLimitReached: the log begins where it did, also after a restart.
            LogDirFailed: as ``save``.
        """
        self._moved_starts[name] = max(
            offset, self._moved_starts.get(name, 0), self._logs[name].log_start_offset
        )
        try:
            await self.checkpoint()
        except StorageError:
            # A save that was under way may have included it.
            if self._saved[1].get(name, 0) < offset:
                raise
        finally:
            self._moved_starts.pop(name, None)

    async def finish(self) -> None:
        """Wait for a save whose callers were cancelled."""
        if self._next is not None:
            await asyncio.wait((self._next,))

    async def save(self) -> None:
        """Save the offsets that moved; the caller holds ``lock``, or nothing else runs.

        Raises:
            StorageFull, StorageLimitReached: the old log start offsets stay, and are saved again.
            LogDirFailed: the old checkpoints stay, and the directory accepts no more writes.
        """
        logs = dict(self._logs)
        points = {**self._recovery_points, **{n: log.checkpoint_offset for n, log in logs.items()}}
        starts = {
            **self._log_starts,
            **{n: log.log_start_offset for n, log in logs.items() if log.log_start_offset},
            **self._moved_starts,
        }
        cleaned = {
            **self._first_dirty,
            **{n: log.first_dirty for n, log in logs.items() if log.first_dirty},
        }
        dirty = [log for log in logs.values() if log.epochs.is_dirty]
        is_settled = self.is_settled
        files, path = self._log_dir.files, self._log_dir.path

        def write() -> None:
            write_epochs(files, path, {log.directory: log.epochs for log in dirty})
            if cleaned != self._saved[2]:
                write_offsets(files, path / CLEANER_OFFSETS, cleaned.items())
            if points != self._saved[0]:
                write_offsets(files, path / RECOVERY_POINTS, points.items())
            if is_settled:
                self._data_dir.settle()
            # Last: what was refused before it has moved no start.
            if starts != self._saved[1]:
                write_offsets(files, path / LOG_START_OFFSETS, starts.items())

        try:
            # What is saved deletes records, or spares a start its scan.
            await self._log_dir.with_kept_space(write)
        except OSError as error:
            raise self._log_dir.refuse(path, error) from error
        self._saved = (points, starts, cleaned)


def _read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    return {TopicPartition(*name): offset for name, offset in read_offsets(files, path).items()}
