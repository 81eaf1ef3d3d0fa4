"""Bound the memory of batches that are unpacked at the same time.

A small compressed batch may hold 64 MiB. So a reader waits until the batches that
are unpacked at the time leave room for it. The size is known from the framing, before anything is decompressed.

::

    bytes_max   ├──────────── large batches ────────────┼─ small ones alone ─┤

Batches up to ``UNCOUNTED_BYTES`` are free: they take no more than a request takes anyway. Those up to ``SMALL_BYTES``
may use the last quarter, which large ones leave free; so large batches whose clients read slowly do not hold up
ordinary reads. A client that reads nothing for ``STALLED_S`` while another waits loses its answer; the more wait, the
sooner, so that clients that never read do not make those after them time out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Protocol

from ...errors import ReadMemoryFull

UNCOUNTED_BYTES = 256 * 1024
SMALL_BYTES = 1024 * 1024
# Of the whole; the rest is for small batches.
_LARGE_SHARE = 0.75
# How long a read waits for room, and how long an answer may be unread while one other waits, and while many do.
WAIT_S = 30.0
STALLED_S, STALLED_S_MIN = 5.0, 0.25


class ReadingClient(Protocol):
    """The client of a response.

    ``waits_since_s`` is the loop time since which it has read nothing; None if nothing waits for it. ``abort`` breaks
    the answer off.
    """

    @property
    def waits_since_s(self) -> float | None: ...
    def abort(self) -> None: ...


class DecodedReader:
    """One answer that reads records, and what it holds of unpacked batches.

    Without a ``client`` the answer is made before it is sent, and holds nothing while it is. It waits for room for
    ``wait_s`` at most, None for as long as the pool says.
    """

    __slots__ = ("_pool", "_wait_s", "client", "held_bytes")

    def __init__(self, pool: DecodedBytes, wait_s: float | None = None) -> None:
        self._pool = pool
        self._wait_s = wait_s
        self.held_bytes = 0
        self.client: ReadingClient | None = None

    async def hold(self, size: int, what: str) -> None:
        """Take room for ``size`` bytes until ``release``; ``what`` names the batch.

        An answer holds one batch at a time: a second one could wait for the first.

        Raises:
            ReadMemoryFull: there was no room in time.
        """
        await self._pool.acquire(size, what, self._wait_s)
        self.share(size)

    def release(self, size: int) -> None:
        """Give back what ``hold`` took."""
        self.unshare(size)
        self._pool.release(size)

    def share(self, size: int) -> None:
        """Send ``size`` bytes that are counted already, as other answers may."""
        self.held_bytes += size
        self._pool.holders[self] = None

    def unshare(self, size: int) -> None:
        """End what ``share`` began."""
        self.held_bytes -= size
        if not self.held_bytes:
            self._pool.holders.pop(self, None)


class DecodedBytes:
    """The unpacked batches of all answers, at most ``bytes_max`` bytes."""

    def __init__(self, bytes_max: int, *, wait_s: float = WAIT_S, stalled_s: float = STALLED_S) -> None:
        self.bytes_max = bytes_max
        self.in_use = 0
        self._wait_s = wait_s
        self._stalled_s = stalled_s
        # The answers that hold something; ``DecodedReader`` keeps it.
        self.holders: dict[DecodedReader, None] = {}
        self._small: deque[tuple[asyncio.Future[None], int]] = deque()
        self._large: deque[tuple[asyncio.Future[None], int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def reader(self, wait_s: float | None = None) -> DecodedReader:
        """Return the reader of one answer."""
        return DecodedReader(self, wait_s)

    @property
    def waiting(self) -> int:
        """The number of reads that wait for room."""
        return sum(not turn.done() for turns in (self._small, self._large) for turn, _ in turns)

    async def acquire(self, size: int, what: str, wait_s: float | None = None) -> None:
        """Wait for room, for ``wait_s`` instead of the pool's time if that is shorter. Raises ``ReadMemoryFull``."""
        wait_s = self._wait_s if wait_s is None else min(wait_s, self._wait_s)
        turns = self._small if size <= SMALL_BYTES else self._large
        if turns or not self._fits(size):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            turns.append((turn, size))
            self._free_stalled()
            try:
                # Its room is taken by ``_give_turns``. The first step of a read has no task, which ``wait_for`` may need.
                await asyncio.wait((turn,), timeout=wait_s)
                if not turn.done():
                    raise TimeoutError
            except BaseException as error:
                if turn.done() and not turn.cancelled():
                    self.in_use -= size
                with suppress(ValueError):
                    turns.remove((turn, size))
                self._give_turns()
                if isinstance(error, TimeoutError):
                    raise ReadMemoryFull(what, size=size, bytes_max=self.bytes_max) from None
                raise
        else:
            self.in_use += size

    def release(self, size: int) -> None:
        """Give back what ``acquire`` took."""
        self.in_use -= size
        self._give_turns()

    def _fits(self, size: int) -> bool:
        limit = self.bytes_max if size <= SMALL_BYTES else int(self.bytes_max * _LARGE_SHARE)
        # One that is larger than the limit is let in alone.
        return self.in_use + size <= limit or not self.in_use

    def _give_turns(self) -> None:
        for turns in (self._small, self._large):
            while turns and (turns[0][0].done() or self._fits(turns[0][1])):
                turn, size = turns.popleft()
                if not turn.done():
                    self.in_use += size
                    turn.set_result(None)

    def _free_stalled(self) -> None:
        """Break off the answers whose clients do not read, while others wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._small and not self._large:
            return
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        stalled_s = max(min(STALLED_S_MIN, self._stalled_s), self._stalled_s / max(1, self.waiting))
        due_s = now_s + stalled_s
        for reader in list(self.holders):
            client = reader.client
            if client is None or client.waits_since_s is None:
                continue
            until_s = client.waits_since_s + stalled_s
            if until_s <= now_s:
                client.abort()
            else:
                due_s = min(due_s, until_s)
        self._timer = loop.call_at(due_s, self._free_stalled)
