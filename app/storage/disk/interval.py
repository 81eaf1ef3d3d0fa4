"""An interval that can change while a caller waits for it."""

from __future__ import annotations

import asyncio

# Less would keep the event loop busy, more is never.
_MS_MIN, _MS_MAX = 10, 365 * 24 * 3600 * 1000


class Interval:
    """The time between two rounds of a task."""

    def __init__(self, interval_ms: int, *, first_ms: int | None = None) -> None:
        """``first_ms`` is the time before the first round, if it is another one."""
        self.interval_ms = interval_ms
        self._first_ms = first_ms
        self._woken = asyncio.Event()
        self._is_stopped = False

    def change(self, interval_ms: int) -> None:
        """Change it at once: a wait begins again."""
        if interval_ms != self.interval_ms:
            self.interval_ms = interval_ms
            self._woken.set()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def stop(self) -> None:
        """End the wait, and every later one."""
        self._is_stopped = True
        self._woken.set()

    async def passes(self) -> bool:
        """Wait for the interval; return False after ``stop``."""
        while not self._is_stopped:
            self._woken.clear()
            wait_ms = min(max(_MS_MIN, self.interval_ms), _MS_MAX)
            if self._first_ms is not None:
                wait_ms, self._first_ms = self._first_ms, None
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._woken.wait()
            except TimeoutError:
                return True
        return False
