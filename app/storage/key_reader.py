"""The newest record of one key of a partition, and those of all keys.

Two threads, which pause as the cleaner's does::

    look-ups   builds key indexes; finds one key
    tables     merges the key indexes of a partition, which takes seconds for millions of keys

The segments are chosen on the event loop, at one moment, so that a replacement by
compaction does not show: readers of a replaced segment finish on its files.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import BrokerClosing, SteleError, UnknownTopic
from .cleaning.transactions import AbortedBatches
from .disk.pace import Pace, WorkAborted
from .keys.key_index import KeyHasher
from .keys.key_scan import SegmentPart
from .keys.newest_offsets import NewestOffsets
from .keys.partition_keys import PartitionKeys, PartitionPart
from .keys.remembered_offsets import RememberedOffsets
from .logs.log import DiskLog
from .logs.log_dir import LogDir
from .topic_partition import ByPartition, TopicPartition

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Key indexes that are open in each thread.
_OPEN_FILES_MAX = 256

_Work = Callable[[PartitionKeys, PartitionPart, Pace], _T]


class _Worker:
    """One thread, and what it knows of the keys of partitions: it alone touches ``_known``."""

    def __init__(self, name: str, *, memory_bytes: int, may_build: bool) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._memory_bytes = memory_bytes
        self._may_build = may_build
        self._known: OrderedDict[DiskLog, PartitionKeys] = OrderedDict()

    def keys_of(self, log: DiskLog) -> PartitionKeys:
        keys = self._known.get(log)
        if keys is None:
            keys = self._known[log] = PartitionKeys(
                memory_bytes=self._memory_bytes, may_build=self._may_build
            )
        self._known.move_to_end(log)
        return keys

    def trim(self) -> None:
        """Free what the least recently read partitions hold, until limits are kept."""
        size = sum(keys.size_bytes for keys in self._known.values())
        files = sum(keys.open_files for keys in self._known.values())
        for keys in list(self._known.values()):
            if size <= self._memory_bytes and files <= _OPEN_FILES_MAX:
                break
            size -= keys.size_bytes
            files -= keys.open_files
            keys.close()

    def forget(self, log: DiskLog) -> None:
        keys = self._known.pop(log, None)
        if keys is not None:
            keys.close()

    def close(self) -> None:
        """End the thread, and give back everything."""
        self.thread.shutdown()
        for keys in self._known.values():
            keys.close()
        self._known.clear()


class KeyReader:
    """Looks for keys in the logs of one data directory.

    Methods belong to the event loop.
    """

    def __init__(
        self,
        logs: ByPartition[DiskLog],
        log_dir: LogDir,
        *,
        table_memory_bytes_max: int,
    ) -> None:
        self._logs = logs
        self._log_dir = log_dir
        self._lookups = _Worker("stele-keys", memory_bytes=table_memory_bytes_max, may_build=True)
        self._tables = _Worker("stele-tables", memory_bytes=table_memory_bytes_max, may_build=False)
        self._working: dict[threading.Event, DiskLog] = {}
        self._remembered = RememberedOffsets[DiskLog](table_memory_bytes_max)
        # Logs that have been read by key: their key indexes are kept up.
        self._read: set[DiskLog] = set()
        self._tasks: set[asyncio.Future[None]] = set()
        self._is_stopping = False

    # ── control ──

    def forget(self, log: DiskLog) -> None:
        """End the work on ``log`` and forget it.

        It is deleted or no longer compacted.
        """
        for aborted, worked in self._working.items():
            if worked is log:
                aborted.set()
        self._remembered.forget(log)
        if log in self._read and not self._is_stopping:
            self._read.discard(log)
            loop = asyncio.get_running_loop()
            for worker in (self._lookups, self._tables):
                self._keep(loop.run_in_executor(worker.thread, worker.forget, log))

    def refresh(self, log: DiskLog) -> None:
        """Build the key indexes of compacted segments, if ``log`` is read by key."""
        if log in self._read and not self._is_stopping:
            self._keep(asyncio.ensure_future(self._refresh(log)))

    async def _refresh(self, log: DiskLog) -> None:
        try:
            await self._in_thread(self._lookups, log.topic_partition, PartitionKeys.prepare)
        except SteleError as error:
            # The next look-up tries again, and reports it.
            logger.info("%s: its key indexes are not built yet: %s", log.directory, error)

    def _keep(self, task: asyncio.Future[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End all work."""
        self._is_stopping = True
        for aborted in self._working:
            aborted.set()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def close(self) -> None:
        """Give back threads, files and memory, after ``stop``."""
        self._lookups.close()
        self._tables.close()

    # ── reading ──

    async def newest_offset(
        self, topic_partition: TopicPartition, key: bytes, *, is_doubted: bool = False
    ) -> int:
        """See ``LogEngine.newest_offset``."""

        def find(keys: PartitionKeys, whole: PartitionPart, pace: Pace) -> int:
            if is_doubted:
                keys.distrust(whole)
            return keys.newest_offset(whole, key, pace)

        return await self._in_thread(self._lookups, topic_partition, find)

    async def newest_offsets(
        self, topic_partition: TopicPartition, end_offset: int, start_offset: int
    ) -> NewestOffsets:
        """See ``LogEngine.newest_offsets``."""
        log = self._logs[topic_partition]

        async def compute() -> NewestOffsets:
            newest = await self._compute(topic_partition, end_offset, start_offset)
            if self._logs.get(topic_partition) is not log:
                # It may be that of another topic of the same name.
                raise UnknownTopic(topic_partition.topic)
            return newest

        return await self._remembered.get(log, end_offset, compute, log_end=log.high_watermark)

    async def _compute(self, topic_partition: TopicPartition, end_offset: int, start: int) -> NewestOffsets:
        def prepare(keys: PartitionKeys, whole: PartitionPart, pace: Pace) -> KeyHasher | None:
            keys.prepare(whole, pace, start=start)
            return keys.hasher

        hasher = await self._in_thread(self._lookups, topic_partition, prepare, end_offset=end_offset)

        def merge(keys: PartitionKeys, whole: PartitionPart, pace: Pace) -> NewestOffsets:
            keys.hasher = keys.hasher or hasher
            return keys.newest_offsets(whole, end_offset, pace, start=start)

        return await self._in_thread(self._tables, topic_partition, merge, end_offset=end_offset)

    def _whole(self, log: DiskLog, end_offset: int | None) -> PartitionPart:
        """Return what ``log`` holds now before ``end_offset``.

        A thread leaves out open and aborted transactions.
        """
        stable_offset = log.last_stable_offset
        cleanable = log.segments[: log.cleanable_segments()]
        final = (segment for segment in cleanable if segment.next_offset <= stable_offset)
        end = log.high_watermark if end_offset is None else end_offset
        search = log.aborted_search(log.log_start_offset)
        return PartitionPart(
            parts=[
                SegmentPart.of(segment)
                for segment in log.segments
                if segment.next_offset > log.log_start_offset
                and segment.base_offset < min(end, stable_offset)
            ],
            final=frozenset(final),
            start=min(log.log_start_offset, end),
            stable_offset=stable_offset,
            aborted_search=None if search is None else lambda end_offset: AbortedBatches(search(end_offset)),
        )

    async def _in_thread(
        self,
        worker: _Worker,
        topic_partition: TopicPartition,
        work: _Work[_T],
        *,
        end_offset: int | None = None,
    ) -> _T:
        """The result of ``work`` on the log as it is now; again if retention deletes of it meanwhile.

        Raises:
            UnknownTopic: the partition is deleted.
            BrokerClosing: see ``stop``.
            LogDirFailed, StorageLimitReached: the disk or the system does not allow it.
        """
        while True:
            log = self._logs[topic_partition]
            if self._is_stopping:
                raise BrokerClosing
            self._read.add(log)
            deletions, aborted = log.deletions, threading.Event()
            whole = self._whole(log, end_offset)

            def run(
                log: DiskLog = log, whole: PartitionPart = whole, aborted: threading.Event = aborted
            ) -> _T:
                try:
                    return work(worker.keys_of(log), whole.stable(), Pace(aborted))
                finally:
                    worker.trim()

            self._working[aborted] = log
            try:
                return await asyncio.get_running_loop().run_in_executor(worker.thread, run)
            except WorkAborted:
                # The next round says why.
                continue
            except OSError as error:
                if isinstance(error, FileNotFoundError) and log.deletions != deletions:
                    continue
                if self._logs.get(topic_partition) is not log:
                    raise UnknownTopic(topic_partition.topic) from None
                raise self._log_dir.unreadable(log.directory, error) from error
            except asyncio.CancelledError:
                # The caller no longer waits for the result.
                aborted.set()
                raise
            finally:
                del self._working[aborted]
