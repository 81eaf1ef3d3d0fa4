"""The recovery points, log start offsets and cleaner offsets of a data directory, saved together.

A recovery point spares the next start a scan; a log start offset is what was
deleted and must stay deleted; a cleaner offset is where the last pass of compaction
ended, and spares the next pass reading what is before it. They are written for all partitions at once, and a
save never runs beside retention or the deletion of a partition: each relies on
what the others left on the disk, so all of them hold ``lock``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import Context
from pathlib import Path

from .checkpoint import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, write_offsets
from .data_dir import DataDir
from .engine import TopicPartition
from .files import Files
from .log import DiskLog
from .log_dir import LogDir


class OffsetCheckpoints:
    """Remembers what the files say of partitions that are not open yet, and writes what the open ones have."""

    def __init__(self, log_dir: LogDir, data_dir: DataDir, logs: Mapping[TopicPartition, DiskLog]) -> None:
        self.lock = asyncio.Lock()
        # Set once every partition is open: from then on a save also states that all is recovered.
        self.is_settled = False
        self._log_dir = log_dir
        self._data_dir = data_dir
        self._logs = logs
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._first_dirty: dict[TopicPartition, int] = {}
        self._saved: tuple[dict[TopicPartition, int], ...] = ({}, {}, {})
        self._next: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Raises ``OSError``."""
        files, path, in_thread = self._log_dir.files, self._log_dir.path, self._log_dir.in_thread
        self._recovery_points = await in_thread(_read_offsets, files, path / RECOVERY_POINTS)
        self._log_starts = await in_thread(_read_offsets, files, path / LOG_START_OFFSETS)
        self._first_dirty = await in_thread(_read_offsets, files, path / CLEANER_OFFSETS)
        self._saved = (dict(self._recovery_points), dict(self._log_starts), dict(self._first_dirty))

    def of(self, name: TopicPartition) -> tuple[int, int]:
        """``(recovery point, log start offset)`` of a partition that is not open; 0 if nothing is known."""
        return self._recovery_points.get(name, 0), self._log_starts.get(name, 0)

    def first_dirty(self, name: TopicPartition) -> int:
        """Where the last pass over a partition that is not open ended; 0 if nothing is known."""
        return self._first_dirty.get(name, 0)

    def forget(self, name: TopicPartition) -> bool:
        """A partition is open, or what was saved of it was another's; False if nothing was."""
        found = [
            saved.pop(name, None) for saved in (self._recovery_points, self._log_starts, self._first_dirty)
        ]
        return any(offset is not None for offset in found)

    async def checkpoint(self) -> None:
        """Save what the partitions have now; all who ask before a save begins share it.

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

    async def finish(self) -> None:
        """Wait for a save that nobody waits for any more."""
        if self._next is not None:
            await asyncio.wait((self._next,))

    async def save(self) -> None:
        """Save all three, if they moved; ``lock`` is held, or all is quiet.

        Raises:
            StorageFull: the old ones stay.
            LogDirFailed: and the directory has stopped.
        """
        logs = dict(self._logs)
        points = {**self._recovery_points, **{n: log.checkpoint_offset for n, log in logs.items()}}
        starts = {
            **self._log_starts,
            **{n: log.log_start_offset for n, log in logs.items() if log.log_start_offset},
        }
        cleaned = {
            **self._first_dirty,
            **{n: log.first_dirty for n, log in logs.items() if log.first_dirty},
        }
        dirty = [log for log in logs.values() if log.epochs.is_dirty]
        is_settled = self.is_settled
        files, path = self._log_dir.files, self._log_dir.path

        def write() -> None:
            for log in dirty:
                log.epochs.write(files, log.directory)
            if cleaned != self._saved[2]:
                write_offsets(files, path / CLEANER_OFFSETS, cleaned.items())
            if (points, starts) != self._saved[:2]:
                write_offsets(files, path / RECOVERY_POINTS, points.items())
                write_offsets(files, path / LOG_START_OFFSETS, starts.items())
            if is_settled:
                self._data_dir.settle()

        try:
            await self._log_dir.in_thread(write)
        except OSError as error:
            raise self._log_dir.refuse(path, error) from error
        self._saved = (points, starts, cleaned)


def _read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    return {TopicPartition(*name): offset for name, offset in read_offsets(files, path).items()}
