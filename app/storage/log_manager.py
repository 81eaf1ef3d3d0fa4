"""Open, create, delete and close the logs of a data directory."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..clock import Clock
from .data_dir import DataDir, Start
from .engine import PartitionSpec
from .files import ManySyncs
from .log import DiskLog
from .log_dir import LogDir
from .log_loader import load_log
from .offset_checkpoints import OffsetCheckpoints
from .partition_files import DELETED_SUFFIX, PartitionFiles
from .recovery import UncleanStart
from .topic_partition import ByPartition, TopicPartition

logger = logging.getLogger(__name__)

# Threads that open logs which take long: disks serve several reads at once, and CRCs use several cores.
_OPEN_THREADS = 4
# Partitions that a thread opens in one go. A hand-over for each would cost as much as opening it.
_OPENED_AT_ONCE = 64
# The first ones, which show how long a log takes.
_OPENED_FIRST = 8
# Logs that take less on average are opened by one thread. Small files in the page cache are mostly work for the
# interpreter, whose lock several threads would pass around with every system call: with four of them, 10,000 such
# logs took twice as long.
_QUICK_MS = 0.5


@dataclass(frozen=True, slots=True)
class _Unopened:
    """A partition and its directory, before its log is loaded."""

    spec: PartitionSpec
    files: PartitionFiles

    @property
    def name(self) -> TopicPartition:
        return self.spec.topic_partition


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A log that is loaded, and what must be synced before it is used."""

    log: DiskLog
    unsynced: Sequence[Path]


def _close(loaded: Sequence[_Loaded]) -> None:
    for each in loaded:
        each.log.close(clean=False)


class LogManager:
    """The open ``logs``, and a ``leader_epoch`` at least as high as any in them."""

    def __init__(self, log_dir: LogDir, data_dir: DataDir, clock: Clock) -> None:
        self.logs = ByPartition[DiskLog]()
        self.leader_epoch = 0
        self.checkpoints = OffsetCheckpoints(log_dir, data_dir, self.logs)
        self._log_dir = log_dir
        self._data_dir = data_dir
        self._clock = clock
        self._start: Start | None = None
        # The last run may have left bytes that no sync has covered.
        self._has_unsynced = False

    async def open(self) -> Start:
        """Lock the data directory; ``create`` opens the partitions.

        Raises:
            DataDirLocked: another broker has it.
            OSError: it cannot be used.
        """
        self._start = await self._log_dir.in_thread(self._data_dir.take)
        self._has_unsynced = not (self._start.was_clean or self._start.is_new)
        self.leader_epoch = self._start.leader_epoch
        await self.checkpoints.load()
        return self._start

    @property
    def is_open(self) -> bool:
        return self._start is not None

    # ── create ──

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        """Open partitions, and create those that do not exist.

        Raises:
            StorageFull, LogDirFailed: none of them was opened.
        """
        files, path = self._log_dir.files, self._log_dir.path
        unopened = [
            _Unopened(spec, PartitionFiles(files, self._data_dir.partition_dir(*spec.topic_partition)))
            for spec in specs
        ]
        try:
            await self._forget_predecessors(unopened)
            logs = await self._load_and_sync(unopened)
            if logs:
                # The run that created a directory may have ended before it synced the directory's name.
                await self._log_dir.in_thread(files.sync_dir, path)
        except OSError as error:
            raise self._log_dir.refuse(Path(error.filename or path), error) from error
        assert self._start is not None
        for log in logs:
            self.logs[log.topic_partition] = log
            self.checkpoints.forget(log.topic_partition)
            # Higher than the epochs in the log after an unclean start, even if the start record was lost.
            lowest = log.epochs.latest if self._start.was_clean else log.epochs.latest + 1
            self.leader_epoch = max(self.leader_epoch, lowest)
        if any(log.has_jumped for log in logs):
            await self.checkpoints.checkpoint()

    async def _forget_predecessors(self, unopened: Sequence[_Unopened]) -> None:
        """Remove the files and checkpoints of deleted topics of the same names."""

        def remove_stale() -> list[TopicPartition]:
            return [partition.name for partition in unopened if self._remove_stale(partition)]

        forgotten = [self.checkpoints.forget(name) for name in await self._log_dir.in_thread(remove_stale)]
        if any(forgotten):
            await self.checkpoints.checkpoint()

    def _remove_stale(self, unopened: _Unopened) -> bool:
        """Remove the directory of another topic id.

        Return True unless it holds this partition.
        """
        expected = unopened.spec.topic_id
        topic_id = unopened.files.topic_id(expected)
        if topic_id is not None and topic_id != expected:
            # A topic of this name was deleted, and a crash kept its files.
            directory = unopened.files.directory
            logger.warning("%s belongs to a deleted topic of the same name and is removed", directory)
            self._remove_directory(directory)
        return topic_id != expected

    async def _load_and_sync(self, unopened: Sequence[_Unopened]) -> list[DiskLog]:
        """Load partitions, and make what recovery has kept of them last."""
        if not unopened:
            return []
        # From before the first change: it reports the errors since then.
        syncs = await self._log_dir.in_thread(self._log_dir.files.many_syncs, self._log_dir.path)
        try:
            loaded = await self._load_beside(syncs, unopened)
            unsynced = [path for each in loaded for path in each.unsynced]
            try:
                if unsynced:
                    await self._log_dir.in_thread(syncs.sync, unsynced)
            except BaseException:
                _close(loaded)
                raise
        finally:
            syncs.close()
        return [each.log for each in loaded]

    async def _load_beside(self, syncs: ManySyncs, unopened: Sequence[_Unopened]) -> list[_Loaded]:
        """Load partitions while the disk takes what the last run has left unsynced."""
        if not self._has_unsynced:
            return await self._load(unopened)
        # Topics that are created from now on find nothing of the last run.
        self._has_unsynced = False
        begun = asyncio.ensure_future(self._log_dir.in_thread(syncs.begin))
        loaded: list[_Loaded] = []
        try:
            loaded = await self._load(unopened)
        finally:
            try:
                await begun
            except BaseException:
                _close(loaded)
                raise
        return loaded

    async def _load(self, unopened: Sequence[_Unopened]) -> list[_Loaded]:
        first, others = unopened[:_OPENED_FIRST], unopened[_OPENED_FIRST:]
        shares = deque([first])
        shares.extend(
            others[start : start + _OPENED_AT_ONCE] for start in range(0, len(others), _OPENED_AT_ONCE)
        )
        loaded: list[_Loaded] = []
        try:
            is_quick = True
            while shares and is_quick:
                share, begun_ms = shares.popleft(), self._clock.monotonic_ms()
                loaded += await self._log_dir.in_thread(self._load_logs, share)
                is_quick = self._clock.monotonic_ms() - begun_ms < _QUICK_MS * len(share)
            results = await self._load_side_by_side(shares)
            for result in results:
                if isinstance(result, list):
                    loaded += result
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        except BaseException:
            _close(loaded)
            raise
        return loaded

    async def _load_side_by_side(
        self, shares: Iterable[Sequence[_Unopened]]
    ) -> list[list[_Loaded] | BaseException]:
        limit = asyncio.Semaphore(_OPEN_THREADS)

        async def load(partitions: Sequence[_Unopened]) -> list[_Loaded]:
            async with limit:
                return await self._log_dir.in_thread(self._load_logs, partitions)

        return await asyncio.gather(*map(load, shares), return_exceptions=True)

    def _load_logs(self, unopened: Sequence[_Unopened]) -> list[_Loaded]:
        loaded: list[_Loaded] = []
        try:
            for partition in unopened:
                loaded.append(self._load_log(partition))
        except BaseException:
            _close(loaded)
            raise
        return loaded

    def _load_log(self, unopened: _Unopened) -> _Loaded:
        assert self._start is not None, "open() comes first"
        recovery_point, log_start_offset = self.checkpoints.of(unopened.name)
        first_dirty = self.checkpoints.first_dirty(unopened.name)
        unclean_start = UncleanStart(
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            same_boot=self._start.same_boot,
        )
        loaded = load_log(
            unopened.files,
            unopened.spec,
            self._clock,
            unclean_start=None if self._start.was_clean else unclean_start,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            first_dirty=first_dirty,
        )
        log = DiskLog(unopened.files, unopened.spec, self._clock, loaded, first_dirty=first_dirty)
        return _Loaded(log, loaded.unsynced)

    # ── delete ──

    def delete(self, log: DiskLog) -> None:
        """Delete a log that is no longer used; for threads. Raises ``OSError``."""
        log.close(clean=False)
        self._remove_directory(log.directory)

    def _remove_directory(self, directory: Path) -> None:
        files = self._log_dir.files
        target = directory.with_name(f"{directory.name}.{self._clock.now_ms()}{DELETED_SUFFIX}")
        files.rename(directory, target)
        files.sync_dir(directory.parent)
        files.remove_tree(target)

    async def finish_deletions(self) -> None:
        """Finish deletions that a crash interrupted. Raises ``StorageError``."""
        files, path = self._log_dir.files, self._log_dir.path

        def work() -> None:
            for name in files.list_dir(path):
                if name.endswith(DELETED_SUFFIX):
                    files.remove_tree(path / name)

        try:
            await self._log_dir.in_thread(work)
        except OSError as error:
            raise self._log_dir.refuse(path, error) from error

    # ── close ──

    async def close(self, *, clean: bool, threads: int) -> None:
        """Close all logs, and then raise the ``OSError`` of the first that failed, if any."""
        logs = list(self.logs.values())

        def close_all(mine: list[DiskLog]) -> None:
            for log in mine:
                log.close(clean=clean)

        shares = (self._log_dir.in_thread(close_all, logs[start::threads]) for start in range(threads))
        for error in await asyncio.gather(*shares, return_exceptions=True):
            if error is not None:
                raise error

    async def release(self, *, clean: bool) -> None:
        """Unlock the data directory. Raises ``OSError``."""
        await self._log_dir.in_thread(lambda: self._data_dir.release(clean=clean))
