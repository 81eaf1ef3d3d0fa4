"""Reads by key from shared storage: the newest record of one key, and those of all keys.

Merged objects of a compacted log have a key index each, all with one salt, of which a look-up reads a few
kilobytes. The keys of all other runs are held in memory, up to a bound; what does not fit is read again by
each look-up. What is known of a log stays right when its runs are merged, cleaned or deleted:
a later look-up only adds what was appended since, and the greatest offset counts.

Records of open and aborted transactions do not count: what is known ends at the last stable offset, no key
index has them, and a run without one is read with the list of aborted transactions beside it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import crc32c

from ...errors import BrokerClosing, CorruptLog, StorageUnavailable, UnknownTopic
from ..cleaning.transactions import AbortedBatches
from ..disk.pace import Pace, WorkAborted, in_paced_thread
from ..keys.growing_keys import GrowingKeys, Share
from ..keys.key_index import ENTRY_BYTES, HEADER_BYTES, KeyHasher, header_of, search
from ..keys.key_scan import keyed_offsets
from ..keys.newest_offsets import NewestOffsets
from ..keys.remembered_offsets import RememberedOffsets
from ..keys.table_scan import SHARE_COUNTS, TableScan, too_many_keys
from ..topic_partition import ByPartition, TopicPartition
from .log import SharedLog
from .meta import ByteSpan, KeyRuns, Meta, MetaUnavailable, ObjectRef, RunRead
from .runs.batches import CorruptRunError
from .runs.builder import whole_run
from .runs.loads_ahead import LoadsAhead, Part
from .runs.object_reads import ReadOptions
from .runs.reader import corrupt_run
from .store.block_cache import BlockCache
from .store.object_keys import size_of
from .store.object_store import ObjectNotFound, ObjectStoreError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Entries of a key index that are read at once.
_BLOCK_BYTES = ENTRY_BYTES * 32768
# Key indexes beyond those of a fresh start; then a look-up starts afresh.
_LAYERS_MORE = 16
# Key indexes that are known to be whole.
_CHECKED_MAX = 10_000


@dataclass(slots=True)
class _Layer:
    """A run with a key index of ``count`` entries."""

    run: RunRead
    count: int


@dataclass(frozen=True, slots=True)
class _RunPart:
    """The records of a run from ``start`` to before ``end``.

    Those of aborted transactions do not count.
    """

    run: RunRead
    start: int
    end: int
    aborted: AbortedBatches


@dataclass(slots=True)
class _LogKeys:
    """Keys of one log before ``until`` for look-ups; ``held`` has some of them in memory.

    ``unheld`` are parts of runs whose keys are neither there nor in an index.
    """

    hasher: KeyHasher
    held: GrowingKeys
    until: int = 0
    layers: list[_Layer] = field(default_factory=list[_Layer])
    unheld: list[_RunPart] = field(default_factory=list[_RunPart])
    layers_max: int = 0


class SharedKeyReader:
    """Looks for keys in the open logs of one broker. Methods belong to the event loop.

    ``memory_bytes`` bounds the keys that are held, the computation of a table, and the tables that are remembered,
    each by itself.
    """

    def __init__(
        self,
        *,
        meta: Meta,
        logs: ByPartition[SharedLog],
        cache: BlockCache[ObjectRef],
        memory_bytes: int,
        reads: ReadOptions,
    ) -> None:
        self._reads = reads
        self._meta = meta
        self._logs = logs
        self._cache = cache
        self._memory_bytes = memory_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-keys")
        self._known: OrderedDict[SharedLog, _LogKeys] = OrderedDict()
        self._locks: dict[SharedLog, asyncio.Lock] = {}
        self._remembered = RememberedOffsets[SharedLog](memory_bytes)
        self._checked: OrderedDict[str, bool] = OrderedDict()
        self._working: set[threading.Event] = set()
        self._is_stopping = False

    def forget(self, log: SharedLog) -> None:
        """Forget what is known of a log, which is deleted or no longer compacted."""
        self._remembered.forget(log)
        lock = self._locks.get(log)
        if lock is not None and not lock.locked():
            self._drop(log)
            del self._locks[log]

    async def close(self) -> None:
        """End all work."""
        self._is_stopping = True
        for aborted in self._working:
            aborted.set()
        self._thread.shutdown()
        for log in list(self._known):
            self._drop(log)

    def _drop(self, log: SharedLog) -> None:
        known = self._known.pop(log, None)
        if known is not None:
            known.held.close()

    # ── one key ──

    async def newest_offset(self, name: TopicPartition, key: bytes, *, is_doubted: bool) -> int:
        """See ``LogEngine.newest_offset``."""
        log = self._logs[name]
        async with self._locks.setdefault(log, asyncio.Lock()):
            if is_doubted:
                self._drop(log)
            history = log.history
            try:
                try:
                    found = await self._find(log, key)
                except ObjectNotFound:
                    # An object that was replaced, and whose bytes are deleted by now.
                    self._drop(log)
                    found = await self._find(log, key)
                log.check_same(history)
            except (MetaUnavailable, ObjectStoreError, TimeoutError) as error:
                raise StorageUnavailable("the read by key", str(error)) from error
            finally:
                if log.is_dropped or log.history != history:
                    self._drop(log)
            self._trim(log)
        return found if found >= log.log_start_offset else -1

    def _trim(self, log: SharedLog) -> None:
        """Forget the logs that were read longest ago until all are within the limit."""
        if log in self._known:
            self._known.move_to_end(log)
        size = sum(known.held.size_bytes for known in self._known.values())
        for other in list(self._known):
            if size <= self._memory_bytes or other is log:
                break
            if not self._locks[other].locked():
                size -= self._known[other].held.size_bytes
                self._drop(other)

    async def _find(self, log: SharedLog, key: bytes) -> int:
        known = await self._caught_up(log)
        wanted = known.hasher.hash_of(key)
        found = known.held.find(wanted)
        for part in reversed(known.unheld):
            if part.end - 1 > found:
                found = max(found, await self._last_in(part, key))
        for layer in reversed(known.layers):
            if layer.run.last_offset > found:
                found = max(found, await self._find_in(layer, wanted))
        return found

    async def _caught_up(self, log: SharedLog) -> _LogKeys:
        """Return what is known of a log, up to its end now."""
        known = self._known.get(log)
        rows = await self._rows(log, 0 if known is None else known.until)
        if known is not None and not (len(known.layers) <= known.layers_max and await self._add(known, rows)):
            # Merging and compaction have made key indexes of it meanwhile, so starting afresh takes less memory.
            self._drop(log)
            known = None
            rows = await self._rows(log, 0)
        if known is None:
            known = self._known[log] = _LogKeys(KeyHasher(rows.key_salt), GrowingKeys(self._memory_bytes))
            await self._add(known, rows, keeps_unheld=True)
            known.layers_max = 2 * len(known.layers) + _LAYERS_MORE
        return known

    async def _rows(self, log: SharedLog, offset: int) -> KeyRuns:
        rows = await self._meta.key_runs(log.log_id, offset)
        if rows is None:
            raise UnknownTopic(log.topic_partition.topic)
        # These runs may replace some of those that are known here.
        log.check_same(rows.log.history)
        log.update(rows.log)
        log.note_cleaned(rows.runs)
        return rows

    async def _add(self, known: _LogKeys, rows: KeyRuns, *, keeps_unheld: bool = False) -> bool:
        """Take in runs; return False if the keys of one are too many, unless they may stay unheld."""
        stable = rows.stable_offset
        aborted = AbortedBatches(rows.aborted)
        new = [run for run in rows.runs if run.last_offset >= known.until and run.base_offset < stable]
        ahead = self._ahead(new, stable)
        for run in new:
            if max(run.base_offset, known.until) >= stable:
                break
            if not known.unheld:
                ahead.next()
            # An index may have more: what was committed since the last stable offset was read.
            count = await self._index_of(run, known.hasher) if run.last_offset < stable else None
            part = _RunPart(run, known.until, min(run.last_offset + 1, stable), aborted)
            if count is not None:
                known.layers.append(_Layer(run, count))
            elif known.unheld or not await self._hold(known, part):
                if not keeps_unheld:
                    return False
                known.unheld.append(part)
            known.until = part.end
        return True

    async def _hold(self, known: _LogKeys, part: _RunPart) -> bool:
        """Put the keys of a part of a run into memory; False if there are too many."""
        run = part.run
        data = await self._load(run, 0, run.length)

        def hold(pace: Pace) -> bool:
            return known.held.put_records(
                _keyed_records(part, data, pace), known.hasher, pace, start=part.start, end=part.end
            )

        return await self._in_thread(run, hold)

    async def _last_in(self, part: _RunPart, key: bytes) -> int:
        """Return the last offset of a key in a part of a run.

        The run is read. -1 if it has none.
        """
        run = part.run
        data = await self._load(run, 0, run.length)

        def last(pace: Pace) -> int:
            offsets = (offset for offset, other in _keyed_records(part, data, pace) if other == key)
            return max((offset for offset in offsets if offset < part.end), default=-1)

        return await self._in_thread(run, last)

    # ── key indexes ──

    async def _index_of(self, run: RunRead, hasher: KeyHasher) -> int | None:
        """Return how many entries the key index of a run has; None if it has none that counts."""
        if run.keys is None:
            return None
        header = header_of(await self._keys(run, 0, HEADER_BYTES))
        if header is None or (
            header.salt,
            header.log_bytes,
            header.next_offset,
            HEADER_BYTES + header.entry_count * ENTRY_BYTES,
        ) != (hasher.salt, run.length, run.last_offset + 1, run.keys.length):
            return None
        is_whole = self._checked.get(run.object.key)
        if is_whole is None:
            crc = 0
            for start in range(HEADER_BYTES, run.keys.length, _BLOCK_BYTES):
                crc = crc32c.crc32c(await self._keys(run, start, _BLOCK_BYTES), crc)
            is_whole = self._checked[run.object.key] = crc == header.entries_crc
            if not is_whole:
                logger.error("the key index of object %s is damaged; its records are read", run.object.key)
            if len(self._checked) > _CHECKED_MAX:
                self._checked.popitem(last=False)
        return header.entry_count if is_whole else None

    async def _find_in(self, layer: _Layer, wanted: bytes) -> int:
        steps = search(layer.count, wanted)
        try:
            place = next(steps)
            while True:
                start, count = place
                block = await self._keys(layer.run, HEADER_BYTES + start * ENTRY_BYTES, count * ENTRY_BYTES)
                place = steps.send(block)
        except StopIteration as found:
            return found.value

    async def _keys(self, run: RunRead, start: int, length: int) -> bytes:
        """Return bytes of the key index of a run; fewer at its end."""
        assert run.keys is not None
        length = min(length, run.keys.length - start)
        return await self._cache.read(run.object, size_of(run.object.key), run.keys.position + start, length)

    def _ahead(self, runs: Sequence[RunRead], end: int) -> LoadsAhead:
        """Return the loads of the keys of ``runs`` before the offset ``end``.

        They come from the index of a run, or from its records.
        """
        spans = (
            (run, run.keys)
            if run.keys is not None and run.last_offset < end
            else (run, ByteSpan(run.position, run.length))
            for run in runs
        )
        parts = (Part(run.object, span.position, span.length) for run, span in spans)
        return LoadsAhead(self._cache, parts, count=self._reads.ahead, bytes_max=self._reads.ahead_bytes)

    async def _load(self, run: RunRead, start: int, length: int) -> bytes:
        return await self._cache.read(run.object, size_of(run.object.key), run.position + start, length)

    # ── all keys ──

    async def newest_offsets(self, name: TopicPartition, end_offset: int, start_offset: int) -> NewestOffsets:
        """See ``LogEngine.newest_offsets``."""
        log = self._logs[name]
        history = log.history

        async def compute() -> NewestOffsets:
            newest = await self._compute_again(log, end_offset, start_offset)
            log.check_same(history)
            return newest

        return await self._remembered.get(log, end_offset, compute, log_end=log.next_offset)

    async def _compute_again(self, log: SharedLog, end: int, start: int) -> NewestOffsets:
        try:
            try:
                return await self._compute(log, end, start)
            except ObjectNotFound:
                # Replaced, and its bytes deleted: the next plan names what is there now.
                return await self._compute(log, end, start)
        except (MetaUnavailable, ObjectStoreError, TimeoutError) as error:
            raise StorageUnavailable("the read of a table", str(error)) from error

    async def _compute(self, log: SharedLog, end: int, start: int) -> NewestOffsets:
        rows = await self._rows(log, 0)
        stable_end = min(end, rows.stable_offset)
        runs = [run for run in rows.runs if run.base_offset < stable_end and run.last_offset >= start]
        # A run is read as a whole.
        start = max(rows.log.log_start, min([start, *(run.base_offset for run in runs)]))
        hasher = KeyHasher(rows.key_salt)
        scan = TableScan(hasher, start=start, end=stable_end, memory_bytes=self._memory_bytes)
        try:
            for count in SHARE_COUNTS:
                scan.clear()
                if await self._fits(scan, hasher, runs, stable_end, AbortedBatches(rows.aborted), count):
                    return await self._in_thread(None, lambda pace: scan.result(pace, end_offset=end))
        finally:
            scan.close()
        raise too_many_keys(self._memory_bytes)

    async def _fits(
        self,
        scan: TableScan,
        hasher: KeyHasher,
        runs: Sequence[RunRead],
        end: int,
        aborted: AbortedBatches,
        count: int,
    ) -> bool:
        """Collect the offsets of a table; False if the keys of one of ``count`` shares do not fit."""
        for number in range(count):
            scan.begin(Share(number, count))
            ahead = self._ahead(runs, end)
            for run in runs:
                ahead.next()
                # The index has the last offset in the run, which may be past the end.
                is_indexed = run.last_offset < end and await self._index_of(run, hasher) is not None
                fits = await (
                    self._put_index(scan, run) if is_indexed else self._put_records(scan, run, end, aborted)
                )
                if not fits:
                    return False
            await self._in_thread(None, scan.take)
        return True

    async def _put_index(self, scan: TableScan, run: RunRead) -> bool:
        assert run.keys is not None
        for start in range(HEADER_BYTES, run.keys.length, _BLOCK_BYTES):
            block = await self._keys(run, start, _BLOCK_BYTES)

            def put_block(pace: Pace, block: bytes = block) -> bool:
                return scan.put_entries(block, pace)

            if not await self._in_thread(run, put_block):
                return False
        return True

    async def _put_records(self, scan: TableScan, run: RunRead, end: int, aborted: AbortedBatches) -> bool:
        data = await self._load(run, 0, run.length)
        part = _RunPart(run, 0, end, aborted)
        try:
            return await self._in_thread(
                run, lambda pace: scan.put_records(_keyed_records(part, data, pace), pace)
            )
        except CorruptLog as error:
            scan.corrupt_ranges.append(error)
            return True

    # ── both ──

    async def _in_thread(self, run: RunRead | None, work: Callable[[Pace], _T]) -> _T:
        """Run ``work`` in the thread.

        Raises:
            CorruptLog: ``run`` is damaged.
            BrokerClosing: see ``close``.
        """
        if self._is_stopping:
            raise BrokerClosing
        aborted = threading.Event()
        self._working.add(aborted)
        try:
            return await in_paced_thread(self._thread, lambda: work(Pace(aborted)), aborted)
        except WorkAborted:
            raise BrokerClosing from None
        except CorruptRunError as error:
            assert run is not None
            raise corrupt_run(run, error.position, error.reason, run.base_offset) from error
        finally:
            self._working.discard(aborted)


def _keyed_records(part: _RunPart, data: bytes, pace: Pace) -> Iterator[tuple[int, bytes]]:
    """Yield offset and key of the records in the batches that begin in a part of a run, in order."""
    for batch, header in whole_run(part.run, bytearray(data)):
        if header.base_offset >= part.end:
            break
        yield from keyed_offsets(batch, header, pace, part.aborted)
