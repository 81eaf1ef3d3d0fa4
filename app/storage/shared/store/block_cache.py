"""Blocks of objects in memory: one load per block, however many readers want it.

Objects never change, so a block is right for as long as it is kept. Blocks have 1 MiB, except the
last one of an object. Missing blocks that follow each other are loaded with one request. A load goes
on when the reader that began it is cancelled, because others may wait for it too.

::

    read(object, 300 KiB … 2.5 MiB)     block 0 in memory   block 1, 2 missing
                                              │                  │
                                              └───────┬──────────┘ one GET of 1 … 3 MiB
                                                 joined bytes
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

BLOCK_BYTES = 1 << 20
# One request loads no more, so that the first reader does not wait long for what a later one wants.
_BLOCKS_PER_LOAD = 8


@dataclass(slots=True)
class CacheCounts:
    """``hits`` and ``misses`` count blocks, ``loads`` requests to the store.

    ``loaded_bytes`` are the bytes of the requests.
    """

    hits: int = 0
    misses: int = 0
    loads: int = 0
    loaded_bytes: int = 0


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
        # Blocks of one object whose load begins in the same turn of the event loop.
        self._missing: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(loads_max)
        self._loads_max = loads_max
        self.size_bytes = 0
        self.counts = CacheCounts()

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

    async def read(
        self, key: Key, object_bytes: int, start: int, length: int, *, until_s: float | None = None
    ) -> bytes:
        """Return ``length`` bytes of an object from ``start`` on.

        Raises what ``load`` raises, and ``TimeoutError`` if they are not there at ``until_s`` of the loop's clock.
        """
        if length <= 0:
            return b""
        first, last = self._block_of(start), self._block_of(start + length - 1)
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
            done, waiting = await asyncio.wait(loading, timeout=left_s, return_when=asyncio.FIRST_EXCEPTION)
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
        """Begin to load what a later ``read`` of these bytes wants and is missing."""
        if length > 0:
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
        try:
            async with self._slots:
                data = await self._load(key, start, end)
        except BaseException as error:
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
