"""How often something is done, which can change while it is waited for."""

from __future__ import annotations

import asyncio

# Less would keep the event loop busy, more is never.
_MS_MIN, _MS_MAX = 10, 365 * 24 * 3600 * 1000


class Interval:
    """The time between two rounds of a task."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self._woken = asyncio.Event()
        self._is_stopped = False

    def change(self, interval_ms: int) -> None:
        """Change it at once: a wait begins again."""
        if interval_ms != self.interval_ms:
            self.interval_ms = interval_ms
            self._woken.set()

    def stop(self) -> None:
        """End the wait, and every later one."""
        self._is_stopped = True
        self._woken.set()

    async def passes(self) -> bool:
        """Wait for the interval; return False after ``stop``."""
        while not self._is_stopped:
            self._woken.clear()
            try:
                async with asyncio.timeout(min(max(_MS_MIN, self.interval_ms), _MS_MAX) / 1000):
                    await self._woken.wait()
            except TimeoutError:
                return True
        return False
