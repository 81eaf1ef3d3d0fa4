"""Save the recovery points, log start offsets and cleaner offsets together.

A recovery point spares the next start a scan. A log start offset keeps deleted
records deleted. A cleaner offset is where the last pass of compaction ended, and
spares the next pass reading what is before it. A save never runs at the same time
as retention or the deletion of a partition: each relies on what the others left on
disk, so all of them hold ``lock``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextvars import Context
from pathlib import Path

from ...errors import StorageError
from ...work_budget import WorkBudget
from ..disk.files import Files
from ..recovery.checkpoint import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_epochs,
    write_offsets,
)
from ..topic_partition import TopicPartition
from .data_dir import DataDir
from .log import DiskLog
from .log_dir import LogDir

_FILES = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)


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
        # What each file holds.
        self._saved: dict[str, dict[TopicPartition, int]] = {}
        self._next: asyncio.Task[None] | None = None
        # Whose offsets it saves.
        self._due: dict[TopicPartition, None] = {}
        self._are_all_due = False
        # Opened or deleted since the last save began.
        self._touched: set[TopicPartition] = set()
        # Log start offsets that are in force once they are saved, one for each caller that waits.
        self._moves: list[tuple[DiskLog, int]] = []

    async def load(self) -> None:
        """Read the checkpoints. Raises ``OSError``."""
        files, path, in_thread = self._log_dir.files, self._log_dir.path, self._log_dir.in_thread
        self._recovery_points = await in_thread(_read_offsets, files, path / RECOVERY_POINTS)
        self._log_starts = await in_thread(_read_offsets, files, path / LOG_START_OFFSETS)
        self._first_dirty = await in_thread(_read_offsets, files, path / CLEANER_OFFSETS)
        self._saved = {
            RECOVERY_POINTS: dict(self._recovery_points),
            LOG_START_OFFSETS: dict(self._log_starts),
            CLEANER_OFFSETS: dict(self._first_dirty),
        }

    def of(self, name: TopicPartition) -> tuple[int, int]:
        """Return ``(recovery point, log start offset)``; 0 if unknown.

        Only for a partition that is not open.
        """
        return self._recovery_points.get(name, 0), self._log_starts.get(name, 0)

    def first_dirty(self, name: TopicPartition) -> int:
        """Return where the last pass over a partition that is not open ended; 0 if unknown."""
        return self._first_dirty.get(name, 0)

    def forget(self, name: TopicPartition) -> bool:
        """Forget what was saved of a partition; return False if no file has it.

        The partition is open now, or the saved offsets were those of a deleted topic.
        """
        self.touch(name)
        for offsets in (self._recovery_points, self._log_starts, self._first_dirty):
            offsets.pop(name, None)
        return any(name in saved for saved in self._saved.values())

    def touch(self, name: TopicPartition) -> None:
        """Look again at a partition that a save under way may have seen: it is opened or deleted."""
        self._touched.add(name)

    async def checkpoint(self, names: Collection[TopicPartition] | None = None) -> None:
        """Save the current offsets of ``names``, or of all; callers that come before a save begins share it.

        Raises:
            StorageFull, LogDirFailed: as ``save``.
        """
        if names is None:
            self._are_all_due = True
        else:
            self._due.update(dict.fromkeys(names))
        if self._next is None:
            self._next = asyncio.create_task(self._run(), context=Context())
        await asyncio.shield(self._next)

    async def _run(self) -> None:
        async with self.lock:
            self._next = None
            due = None if self._are_all_due else list(self._due)
            self._are_all_due = False
            self._due.clear()
            await self.save(due)

    async def move_start(self, log: DiskLog, offset: int) -> None:
        """Save a later start of a log before it is in force.

        Raises:
            StorageFull, StorageLimitReached: the log begins where it did, even after a restart.
            LogDirFailed: as ``save``.
        """
        move = (log, offset)
        self._moves.append(move)
        try:
            await self.checkpoint([log.topic_partition])
        except StorageError:
            # A save that was under way may have included it.
            if self._saved[LOG_START_OFFSETS].get(log.topic_partition, 0) < offset:
                raise
        finally:
            self._moves.remove(move)

    async def finish(self) -> None:
        """Wait for a save whose callers were cancelled."""
        if self._next is not None:
            await asyncio.wait((self._next,))

    async def save(self, names: Collection[TopicPartition] | None = None) -> None:
        """Save the offsets that moved, of the partitions ``names`` or of all; see ``lock``.

        Raises:
            StorageFull, StorageLimitReached: the old log start offsets stay, and are saved again.
            LogDirFailed: the old checkpoints stay, and the directory accepts no more writes.
        """
        points, starts, cleaned = (dict(self._saved[name]) for name in _FILES)
        noted: dict[TopicPartition, DiskLog | None] = {}
        dirty: dict[TopicPartition, DiskLog] = {}
        self._touched.clear()

        def note(name: TopicPartition) -> None:
            log = noted[name] = self._logs.get(name)
            if log is not None and log.epochs.is_dirty:
                dirty[name] = log
            else:
                dirty.pop(name, None)
            if log is None:
                _put(points, name, self._recovery_points.get(name))
                _put(starts, name, self._log_starts.get(name))
                _put(cleaned, name, self._first_dirty.get(name))
            else:
                points[name] = log.checkpoint_offset
                _put(starts, name, log.log_start_offset or None)
                _put(cleaned, name, log.first_dirty or None)

        budget = WorkBudget()
        for some in (points, starts, cleaned, self._logs) if names is None else (names,):
            for name in list(some):
                if name not in noted:
                    note(name)
                await budget.visit()
        for name in self._touched & noted.keys():
            # It was opened or deleted during a pause.
            note(name)
        for log, offset in self._moves:
            name = log.topic_partition
            # Otherwise it was deleted, and the name may be that of another topic.
            if self._logs.get(name) is log:
                starts[name] = max(offset, starts.get(name, 0))
        is_settled = self.is_settled
        files, path = self._log_dir.files, self._log_dir.path

        def write_changed(name: str, offsets: dict[TopicPartition, int]) -> None:
            if offsets != self._saved[name]:
                write_offsets(files, path / name, offsets.items())
                self._saved[name] = offsets

        def write() -> None:
            write_epochs(files, path, {log.directory: log.epochs for log in dirty.values()})
            write_changed(CLEANER_OFFSETS, cleaned)
            write_changed(RECOVERY_POINTS, points)
            if is_settled:
                self._data_dir.settle()
            # Last: what was refused before it has moved no start.
            write_changed(LOG_START_OFFSETS, starts)

        try:
            # What is saved deletes records, or spares a start its scan.
            await self._log_dir.with_kept_space(lambda: self._log_dir.in_thread(write))
        except OSError as error:
            raise self._log_dir.refuse(path, error) from error


def _put(offsets: dict[TopicPartition, int], name: TopicPartition, offset: int | None) -> None:
    """Set the offset of a partition, or remove it."""
    if offset is None:
        offsets.pop(name, None)
    else:
        offsets[name] = offset


def _read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    return {TopicPartition(*name): offset for name, offset in read_offsets(files, path).items()}
