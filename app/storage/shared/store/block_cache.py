"""Blocks of objects in memory: one load per block, however many readers want it.

Objects never change, so a block is right for as long as it is kept. Blocks have 1 MiB, except the
last one of an object. Missing blocks that follow each other are loaded with one request. A load goes
on when the reader that began it is cancelled, because others may wait for it too. If a store does not
answer, loads wait for their turn: more than ``LOADS_MAX`` are refused, and those that no reader waits for
any longer are dropped when their turn comes, so that the store, once it answers, serves the present readers.

::

    read(object, 300 KiB … 2.5 MiB)     block 0 in memory   block 1, 2 missing
                                              │                  │
                                              └───────┬──────────┘ one GET of 1 … 3 MiB
                                                 joined bytes
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .object_store import ObjectStoreError

Key = TypeVar("Key", bound=Hashable)

BLOCK_BYTES = 1 << 20
# One request loads no more, so that the first reader does not wait long for what a later one wants.
_BLOCKS_PER_LOAD = 8
# Loads that wait or run, about 3 KiB each: 16 of each of 600 readers.
LOADS_MAX = 10_000
# Beyond this number of loads, none begin before their reader is there.
_LOADS_WITH_AHEAD_MAX = LOADS_MAX // 2
# A reader that has not come within this time has failed (``ReadOptions.timeout_ms``).
_ABANDONED_AFTER_S = 20


class TooManyLoads(ObjectStoreError):
    """So many loads wait for the store that another one is refused."""


class _Abandoned(Exception):
    """No reader waits for what a load would load."""


@dataclass(slots=True)
class CacheCounts:
    """``hits`` and ``misses`` count blocks, ``loads`` requests to the store, ``failed`` those that brought nothing.

    ``loaded_bytes`` are the bytes of the requests. ``refused`` reads found too many loads waiting.
    """

    hits: int = 0
    misses: int = 0
    loads: int = 0
    failed: int = 0
    loaded_bytes: int = 0
    refused: int = 0


class BlockCache(Generic[Key]):
    """At most ``bytes_max`` bytes of blocks; the block that was not read for longest goes first.

    ``load(key, start, end)`` returns exactly those bytes of an object. At most ``loads_max`` of them run
    at a time. Errors of ``load`` reach every reader that waits for the bytes, and are not remembered.
    """

    def __init__(
        self,
        load: Callable[[Key, int, int], Awaitable[bytes]],
        *,
        bytes_max: int,
        loads_max: int,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._load = load
        self._bytes_max = bytes_max
        self._block_bytes = block_bytes
        self._blocks: OrderedDict[tuple[Key, int], bytes] = OrderedDict()
        self._loading: dict[tuple[Key, int], asyncio.Future[bytes]] = {}
        # How many readers wait for a block.
        self._readers: dict[tuple[Key, int], int] = {}
        # Blocks of one object whose load begins in the same turn of the event loop.
        self._missing: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(loads_max)
        self._loads_max = loads_max
        self.size_bytes = 0
        self.counts = CacheCounts()

    @property
    def waiting(self) -> int:
        """The number of loads that wait for their turn."""
        return max(0, len(self._tasks) - self._loads_max)

    def put(self, key: Key, data: bytes) -> None:
        """Keep a whole object, which was just written: its readers are often near."""
        for number in range(self._block_of(len(data) - 1) + 1):
            start = number * self._block_bytes
            self._keep((key, number), data[start : start + self._block_bytes])

    def forget(self, key: Key, object_bytes: int) -> None:
        """Drop the blocks of an object."""
        for number in range(self._block_of(object_bytes - 1) + 1):
            block = self._blocks.pop((key, number), None)
            if block is not None:
                self.size_bytes -= len(block)

    def peek(self, key: Key, start: int, length: int) -> bytes | None:
        """Return ``length`` bytes of an object from ``start`` on if they are in memory."""
        first, last = self._block_of(start), self._block_of(start + length - 1)
        blocks: list[bytes] = []
        for number in range(first, last + 1):
            block = self._blocks.get((key, number))
            if block is None:
                return None
            blocks.append(block)
        self.counts.hits += len(blocks)
        for number in range(first, last + 1):
            self._blocks.move_to_end((key, number))
        begin = start - first * self._block_bytes
        data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        return data[begin : begin + length]

    async def read(
        self, key: Key, object_bytes: int, start: int, length: int, *, until_s: float | None = None
    ) -> bytes:
        """Return ``length`` bytes of an object from ``start`` on.

        Raises what ``load`` raises, ``TooManyLoads``, and ``TimeoutError`` if they are not there at ``until_s`` of the
        loop's clock.
        """
        if length <= 0:
            return b""
        first, last = self._block_of(start), self._block_of(start + length - 1)
        self._check_room(key, first, last)
        blocks: list[bytes | asyncio.Future[bytes]] = []
        for number in range(first, last + 1):
            block = self._blocks.get((key, number))
            if block is None:
                self.counts.misses += 1
                blocks.append(self._future(key, number))
            else:
                self._blocks.move_to_end((key, number))
                self.counts.hits += 1
                blocks.append(block)
        self._begin_loads(key, object_bytes)
        if loading := {block for block in blocks if isinstance(block, asyncio.Future)}:
            left_s = None if until_s is None else max(0.0, until_s - asyncio.get_running_loop().time())
            # Others may wait for the same future, which a reader that is cancelled or late leaves alone. The first step
            # of a read has no task, which ``asyncio.timeout`` would need.
            wanted = [(key, first + index) for index, block in enumerate(blocks) if block in loading]
            self._count_readers(wanted, 1)
            try:
                done, waiting = await asyncio.wait(
                    loading, timeout=left_s, return_when=asyncio.FIRST_EXCEPTION
                )
            finally:
                self._count_readers(wanted, -1)
            for block in done:
                block.result()
            if waiting:
                raise TimeoutError
        parts = [block.result() if isinstance(block, asyncio.Future) else block for block in blocks]
        begin = start - first * self._block_bytes
        if len(parts) == 1:
            return parts[0] if begin == 0 and length == len(parts[0]) else parts[0][begin : begin + length]
        parts[0] = parts[0][begin:]
        parts[-1] = parts[-1][: start + length - last * self._block_bytes]
        return b"".join(parts)

    def prefetch(self, key: Key, object_bytes: int, start: int, length: int) -> None:
        """Begin to load what a later ``read`` of these bytes wants and is missing, unless many loads wait."""
        if length > 0 and len(self._tasks) < _LOADS_WITH_AHEAD_MAX:
            for number in range(self._block_of(start), self._block_of(start + length - 1) + 1):
                if (key, number) not in self._blocks:
                    self._future(key, number)
            self._begin_loads(key, object_bytes)

    def read_ahead(self, key: Key, object_bytes: int, position: int, blocks: int) -> None:
        """Begin to load up to ``blocks`` blocks from ``position``, unless loads wait."""
        if position < object_bytes and len(self._tasks) < self._loads_max:
            end = min((self._block_of(position) + blocks) * self._block_bytes, object_bytes)
            self.prefetch(key, object_bytes, position, end - position)

    async def close(self) -> None:
        """Cancel what is being loaded."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _check_room(self, key: Key, first: int, last: int) -> None:
        """Raise ``TooManyLoads`` if a load would have to begin for these blocks, and too many wait."""
        if len(self._tasks) < LOADS_MAX:
            return
        for number in range(first, last + 1):
            if (key, number) not in self._blocks and (key, number) not in self._loading:
                self.counts.refused += 1
                raise TooManyLoads(
                    f"{len(self._tasks)} reads of objects wait for the store already; try again later"
                )

    def _count_readers(self, wanted: Iterable[tuple[Key, int]], change: int) -> None:
        for block in wanted:
            count = self._readers.pop(block, 0) + change
            if count:
                self._readers[block] = count

    def _future(self, key: Key, number: int) -> asyncio.Future[bytes]:
        """Return the future of a block that is missing; ``_begin_loads`` loads it."""
        future = self._loading.get((key, number))
        if future is None:
            self._missing.append(number)
            future = self._loading[key, number] = asyncio.get_running_loop().create_future()
        return future

    def _begin_loads(self, key: Key, object_bytes: int) -> None:
        """Load the missing blocks of an object, adjacent ones with one request."""
        numbers: list[int] = []
        for number in self._missing:
            if numbers and (numbers[-1] + 1 != number or len(numbers) == _BLOCKS_PER_LOAD):
                self._start_load(key, object_bytes, numbers)
                numbers = []
            numbers.append(number)
        if numbers:
            self._start_load(key, object_bytes, numbers)
        self._missing.clear()

    def _start_load(self, key: Key, object_bytes: int, numbers: list[int]) -> None:
        task = asyncio.get_running_loop().create_task(self._load_blocks(key, object_bytes, numbers))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load_blocks(self, key: Key, object_bytes: int, numbers: list[int]) -> None:
        futures = [self._loading[key, number] for number in numbers]
        start = numbers[0] * self._block_bytes
        end = min((numbers[-1] + 1) * self._block_bytes, object_bytes)
        clock_s = asyncio.get_running_loop().time
        abandoned_s = clock_s() + _ABANDONED_AFTER_S
        try:
            async with self._slots:
                if clock_s() >= abandoned_s and not any((key, number) in self._readers for number in numbers):
                    raise _Abandoned
                data = await self._load(key, start, end)
        except BaseException as error:
            self.counts.failed += isinstance(error, Exception)
            for number, future in zip(numbers, futures, strict=True):
                del self._loading[key, number]
                if isinstance(error, Exception):
                    future.set_exception(error)
                    # No reader waits for a block that was read ahead.
                    future.exception()
                else:
                    future.cancel()
            if not isinstance(error, Exception):
                raise
            return
        self.counts.loads += 1
        self.counts.loaded_bytes += len(data)
        for index, (number, future) in enumerate(zip(numbers, futures, strict=True)):
            block = data[index * self._block_bytes : (index + 1) * self._block_bytes]
            del self._loading[key, number]
            self._keep((key, number), block)
            future.set_result(block)

    def _block_of(self, position: int) -> int:
        return position // self._block_bytes

    def _keep(self, key: tuple[Key, int], block: bytes) -> None:
        before = self._blocks.pop(key, None)
        self.size_bytes += len(block) - (len(before) if before is not None else 0)
        self._blocks[key] = block
        while self.size_bytes > self._bytes_max:
            _, oldest = self._blocks.popitem(last=False)
            self.size_bytes -= len(oldest)
