"""Open, create, delete and close the logs of a data directory."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from ...clock import Clock
from ...errors import InvalidTopicName, StorageError, TooManyPartitions
from ...work_budget import SMALL_VISIT, WorkBudget, visited
from ..disk.files import ManySyncs
from ..engine import PartitionSpec
from ..recovery.loader import load_log
from ..recovery.unclean_start import UncleanStart
from ..segments.partition_files import DELETED_SUFFIX, PartitionFiles
from ..segments.remote_segments import RemoteLogs
from ..topic_partition import ByPartition, TopicPartition
from .data_dir import DataDir, Start
from .log import DiskLog
from .log_changes import LogChanges
from .log_dir import LogDir
from .offset_checkpoints import OffsetCheckpoints

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

    def __init__(
        self,
        log_dir: LogDir,
        data_dir: DataDir,
        clock: Clock,
        *,
        open_logs_max: int | None = None,
        remote_logs: RemoteLogs | None = None,
    ) -> None:
        self._remote_logs = remote_logs
        self.logs = ByPartition[DiskLog]()
        self.leader_epoch = 0
        self.changes: LogChanges | None = None
        self.checkpoints = OffsetCheckpoints(log_dir, data_dir, self.logs)
        self._log_dir = log_dir
        self._data_dir = data_dir
        self._clock = clock
        self._open_logs_max = open_logs_max
        # Partitions whose creation was refused, and whose directories could not be removed then.
        self._unwanted: dict[TopicPartition, _Unopened] = {}
        # Held while directories are made, and while those of deleted topics of perhaps the same names are removed.
        self.directories = asyncio.Lock()
        self._start: Start | None = None
        # The last run may have left bytes that no sync has covered.
        self._has_unsynced = False

    async def open(self) -> Start:
        """Lock the data directory; ``create`` opens the partitions.

        Raises:
            DataDirLocked: another broker has it.
            OSError: it cannot be used.
        """
        # A start writes a little before anything can be deleted.
        self._start = await self._log_dir.in_thread(self._data_dir.take, self._log_dir.spend_kept_space)
        self._has_unsynced = not (self._start.was_clean or self._start.is_new)
        self.leader_epoch = self._start.leader_epoch
        await self.checkpoints.load()
        return self._start

    @property
    def is_open(self) -> bool:
        return self._start is not None

    @property
    def is_recovered(self) -> bool:
        """Whether the next start need not look for what a crash has left.

        A start that was refused may have left it as it was.
        """
        return self._start is not None and (self._start.was_clean or self.checkpoints.is_settled)

    def follow_changes(self) -> LogChanges:
        """Return the changes of all logs from now on; all that are open have changed."""
        self.changes = LogChanges(self.logs)
        for log in self.logs.values():
            self._follow(log)
        return self.changes

    def _follow(self, log: DiskLog) -> None:
        if self.changes is not None:
            log.on_change = self.changes.note
            self.changes.note(log)

    # ── create ──

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        """Open partitions, and create those that do not exist.

        Raises:
            StorageFull, StorageLimitReached, LogDirFailed: none of them was opened, and none is left that is new.
            InvalidTopicName: the file system does not allow such a long name.
            TooManyPartitions: there would be too many open files.
        """
        async with self.directories:
            await self._create(specs)

    async def _create(self, specs: Sequence[PartitionSpec]) -> None:
        path = self._log_dir.path
        unopened: list[_Unopened] = []
        budget = WorkBudget()
        for spec in specs:
            directory = self._data_dir.partition_dir(*spec.topic_partition)
            unopened.append(_Unopened(spec, PartitionFiles(self._log_dir.files, directory)))
            await budget.visit()
        if self.checkpoints.is_settled:
            self._check_open_files(specs)
        fresh: list[_Unopened] = []
        try:
            fresh = await self._forget_predecessors(unopened)
            await self._open(unopened)
        except OSError as error:
            await self._remove_fresh(fresh)
            if error.errno == errno.ENAMETOOLONG and self.checkpoints.is_settled:
                topic = specs[0].topic_partition.topic
                raise InvalidTopicName(topic, "the file system does not allow such a long name") from error
            raise self._log_dir.refuse(path, error) from error
        except StorageError:
            await self._remove_fresh(fresh)
            raise

    def _check_open_files(self, specs: Sequence[PartitionSpec]) -> None:
        total = len(self.logs) + len(specs)
        if specs and self._open_logs_max is not None and total > self._open_logs_max:
            raise TooManyPartitions(
                specs[0].topic_partition.topic, total=total, limit=self._open_logs_max, is_of_files=True
            )

    async def _open(self, unopened: Sequence[_Unopened]) -> None:
        logs: list[DiskLog] = []
        # The run that created a directory may have ended before it synced the directory's name.
        directory = await self._log_dir.in_thread(self._log_dir.files.open_dir, self._log_dir.path)
        try:
            logs = await self._load_and_sync(unopened)
            if logs:
                await self._log_dir.in_thread(directory.sync)
            assert self._start is not None
            async for log in visited(logs):
                self.logs[log.topic_partition] = log
                self._follow(log)
                self.checkpoints.forget(log.topic_partition)
                # Higher than the epochs in the log after an unclean start, even if the start record was lost.
                lowest = log.epochs.latest if self._start.was_clean else log.epochs.latest + 1
                self.leader_epoch = max(self.leader_epoch, lowest)
            if any(log.has_jumped for log in logs):
                await self.checkpoints.checkpoint([log.topic_partition for log in logs])
        except BaseException:
            for log in logs:
                self.logs.pop(log.topic_partition, None)
                log.close(clean=False)
            raise
        finally:
            directory.close()

    async def _forget_predecessors(self, unopened: Sequence[_Unopened]) -> list[_Unopened]:
        """Remove the files and checkpoints of deleted topics of the same names.

        Return the partitions that are not there.
        """

        def remove_stale() -> list[_Unopened]:
            return [partition for partition in unopened if self._remove_stale(partition)]

        fresh = await self._log_dir.in_thread(remove_stale)
        forgotten = [
            partition.name
            async for partition in visited(fresh, SMALL_VISIT)
            if self.checkpoints.forget(partition.name)
        ]
        if forgotten:
            await self.checkpoints.checkpoint(forgotten)
        return fresh

    async def _remove_fresh(self, fresh: Sequence[_Unopened]) -> None:
        """Remove what was made of partitions whose creation was refused."""
        self._unwanted.update({partition.name: partition for partition in fresh})
        await self.remove_unwanted()

    async def remove_unwanted(self) -> None:
        """Remove directories of partitions that do not exist, if the disk allows it.

        ``directories`` is held.
        """
        if self._unwanted:
            for path, error in await self._log_dir.in_thread(self._remove_unwanted):
                # It has no records, and is tried again with the next retention.
                logger.warning("%s cannot be removed yet: %s", path, self._log_dir.refuse(path, error))

    def _remove_unwanted(self) -> list[tuple[Path, OSError]]:
        errors: list[tuple[Path, OSError]] = []
        for name, partition in list(self._unwanted.items()):
            directory = partition.files.directory
            try:
                if name not in self.logs and self._log_dir.files.exists(directory):
                    self.remove_directory(directory, partition.spec.topic_id)
            except OSError as error:
                errors.append((directory, error))
            else:
                self._unwanted.pop(name, None)
        return errors

    def _remove_stale(self, unopened: _Unopened) -> bool:
        """Remove the directory of another topic id; return True unless it holds this partition."""
        expected = unopened.spec.topic_id
        topic_id = unopened.files.topic_id(expected)
        if topic_id is not None and topic_id != expected:
            # A topic of this name was deleted, and a crash kept its files.
            directory = unopened.files.directory
            logger.warning("%s belongs to a deleted topic of the same name and is removed", directory)
            self.remove_directory(directory, topic_id)
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
            remote_logs=self._remote_logs,
        )
        log = DiskLog(unopened.files, unopened.spec, self._clock, loaded, first_dirty=first_dirty)
        return _Loaded(log, loaded.unsynced)

    # ── delete ──

    def delete(self, log: DiskLog) -> None:
        """Delete a log that is no longer used; for threads. Raises ``OSError``."""
        log.close(clean=False)
        is_there = self._log_dir.files.exists(log.directory)
        if not is_there or not self.remove_directory(log.directory, log.topic_id):
            # It was renamed before.
            self._remove_deleted(f"{log.topic_id}-{log.topic_partition.partition}.")

    def remove_directory(self, directory: Path, topic_id: UUID) -> bool:
        """Remove the directory of a partition; for threads.

        Return False if it is that of another topic: then nothing happens. Raises ``OSError``.
        """
        files = self._log_dir.files
        if PartitionFiles(files, directory).topic_id(topic_id) not in (None, topic_id):
            return False
        # The name of the topic may be as long as a name can be.
        number = directory.name.rpartition("-")[2]
        target = directory.with_name(f"{topic_id}-{number}.{self._clock.now_ms()}{DELETED_SUFFIX}")
        opened = files.open_dir(directory.parent)
        try:
            files.rename(directory, target)
            opened.sync()
        finally:
            opened.close()
        files.remove_tree(target)
        return True

    async def finish_deletions(self) -> None:
        """Finish deletions that a crash interrupted, as far as the disk allows it."""
        try:
            await self._log_dir.in_thread(self._remove_deleted)
        except OSError as error:
            # The next start tries again.
            logger.error("a deletion stays unfinished: %s", self._log_dir.refuse(self._log_dir.path, error))

    def _remove_deleted(self, prefix: str = "") -> None:
        files, path = self._log_dir.files, self._log_dir.path
        for name in files.list_dir(path):
            if name.startswith(prefix) and name.endswith(DELETED_SUFFIX):
                files.remove_tree(path / name)

    async def remove_leftovers(self, topic: str, partitions: int, topic_id: UUID) -> bool:
        """Remove the directories of a deleted topic.

        Return False if the disk does not allow it.
        """

        def work() -> None:
            for partition in range(partitions):
                directory = self._data_dir.partition_dir(topic, partition)
                if self._log_dir.files.exists(directory):
                    self.remove_directory(directory, topic_id)

        try:
            await self._log_dir.in_thread(work)
        except OSError as error:
            logger.error(
                "the files of deleted topic %r stay: %s",
                topic,
                self._log_dir.refuse(self._log_dir.path, error),
            )
            return False
        return True

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
        # The next start needs the space that is kept back.
        keep = self._log_dir.keep_space_now
        await self._log_dir.in_thread(lambda: self._data_dir.release(clean=clean, on_written=keep))
