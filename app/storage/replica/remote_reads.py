"""Reads of segments whose log is in the bucket alone: through a bounded cache, with threads of their own.

A read takes place in a thread of ``threads``, which waits for the event loop to have the blocks; the loop only keeps
requests to the bucket going. So however many readers of old records there are, they take neither the threads of the disk
nor more memory than the cache and the loads under way have.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Sequence
from pathlib import Path

from ...errors import StorageUnavailable
from ..disk.files import File, SealedFile
from ..engine import SharedStorageCounts
from ..segments.remote_segments import RemoteSegment, RunSpan
from ..shared.meta import ObjectRef, StoreKind
from ..shared.runs.object_reads import ObjectReads, ReadOptions
from ..shared.store.block_cache import BlockCache, CacheCounts
from ..shared.store.object_keys import size_of
from ..shared.store.object_store import ConditionalStore, ObjectStoreError

# Requests to the bucket at a time, each for up to 8 MiB.
_LOADS_MAX = 8
_READ_AHEAD_BLOCKS = 8


class RemoteReads:
    """Implements ``RemoteLogs`` over the bucket of a replica."""

    def __init__(self, store: ConditionalStore, *, cache_bytes_max: int) -> None:
        self._reads = ObjectReads({StoreKind.OBJECTS: store}, ReadOptions(), SharedStorageCounts())
        self._cache = BlockCache[str](self._load, bytes_max=cache_bytes_max, loads_max=_LOADS_MAX)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    @property
    def counts(self) -> CacheCounts:
        return self._cache.counts

    def open(self, path: Path, segment: RemoteSegment) -> File:
        return _RemoteFile(self, path, segment)

    async def close(self) -> None:
        """End all reads with an error."""
        self._is_closed = True
        await self._cache.close()

    async def _load(self, key: str, start: int, end: int) -> bytes:
        return await self._reads.load(ObjectRef(key, StoreKind.OBJECTS), start, end)

    def peek(self, parts: Sequence[RunSpan]) -> bytes | None:
        """Return bytes that are in memory; None if some are not. For the event loop."""
        data: list[bytes] = []
        for part in parts:
            found = self._cache.peek(part.object, part.position, part.length)
            if found is None:
                return None
            data.append(found)
        return data[0] if len(data) == 1 else b"".join(data)

    def wait(self, parts: Sequence[RunSpan], path: Path) -> bytes:
        """Return bytes; for threads. Raises ``StorageUnavailable``."""
        if self._is_closed:
            raise _unavailable(path, "the broker shuts down")
        try:
            return asyncio.run_coroutine_threadsafe(self._read(parts), self._loop).result()
        except (ObjectStoreError, concurrent.futures.CancelledError, TimeoutError) as error:
            raise _unavailable(path, str(error) or "the read was ended") from error

    async def _read(self, parts: Sequence[RunSpan]) -> bytes:
        if self._is_closed:
            raise ObjectStoreError("the broker shuts down")
        data: list[bytes] = []
        for part in parts:
            size = size_of(part.object)
            data.append(await self._cache.read(part.object, size, part.position, part.length))
            self._cache.read_ahead(part.object, size, part.position + part.length, _READ_AHEAD_BLOCKS)
        return data[0] if len(data) == 1 else b"".join(data)


def _unavailable(path: Path, reason: str) -> StorageUnavailable:
    return StorageUnavailable(f"reading {path.name} of {path.parent.name} from the bucket", reason)


class _RemoteFile(SealedFile):
    """Implements ``File`` for reads."""

    __slots__ = ("_path", "_reads", "_segment", "_size")

    def __init__(self, reads: RemoteReads, path: Path, segment: RemoteSegment) -> None:
        self._reads = reads
        self._path = path
        self._segment = segment
        self._size = segment.size

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        return self._size

    def read_at(self, position: int, size: int) -> bytes:
        parts = self._parts(position, size)
        return self._reads.wait(parts, self._path) if parts else b""

    def read_at_nowait(self, position: int, size: int) -> bytes | bytearray | None:
        parts = self._parts(position, size)
        return self._reads.peek(parts) if parts else b""

    def _parts(self, position: int, size: int) -> list[RunSpan]:
        """Return the parts of runs that are these bytes of the segment."""
        end = min(position + size, self._size)
        parts: list[RunSpan] = []
        run_start = 0
        for run in self._segment.runs:
            start, stop = max(position, run_start), min(end, run_start + run.length)
            if start < stop:
                at = run.position + start - run_start
                parts.append(RunSpan(run.object, at, stop - start, 0, run.base_offset))
            run_start += run.length
        return parts

    def close(self) -> None:
        """Do nothing: there is no handle."""
