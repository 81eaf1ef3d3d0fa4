"""Waits between tries of one call."""

from __future__ import annotations

import asyncio


class Backoff:
    """Waits between tries, twice as long each time up to 16 times the first."""

    def __init__(self, first_ms: int) -> None:
        self._max_ms = first_ms * 16
        self.next_ms = first_ms

    async def wait(self) -> None:
        await asyncio.sleep(self.next_ms / 1000)
        self.next_ms = min(self.next_ms * 2, self._max_ms)
