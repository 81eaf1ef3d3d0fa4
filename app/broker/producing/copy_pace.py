"""Copies of mirrors give way to other clients: beside those, they get a small part of the event loop's time.

A first copy takes all that it gets: a mirror sends as fast as it is answered, from many partitions at once. Alone that
is right. Beside other clients each append is short, and pauses follow in which their requests find the loop free.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType

# Of the loop's time, beside other clients: about 60 MB/s.
_SHARE = 0.1
# Also after one that took long because the machine is busy.
_PAUSE_S_MAX = 0.1
# After its last record a client counts as gone.
_ACTIVE_S = 0.2


class CopyPace:
    """``async with`` it around each part of an append of a copy; these come one at a time."""

    def __init__(self, activity: Callable[[], int]) -> None:
        """``activity`` returns a number that changes with each record that clients write or read, but for copies."""
        self._activity = activity
        self._turn = asyncio.Lock()
        self._seen = activity()
        self._active_until_s = self._free_at_s = self._begun_s = 0.0

    async def __aenter__(self) -> None:
        await self._turn.acquire()
        try:
            if (pause_s := self.pause_s(time.monotonic())) > 0:
                await asyncio.sleep(pause_s)
        except BaseException:
            self._turn.release()
            raise
        self._begun_s = time.monotonic()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.worked(self._begun_s, time.monotonic())
        self._turn.release()

    def pause_s(self, now_s: float) -> float:
        """Return how long the next append has to wait, 0 or less for not at all."""
        activity = self._activity()
        if activity != self._seen:
            self._seen, self._active_until_s = activity, now_s + _ACTIVE_S
        return self._free_at_s - now_s if now_s < self._active_until_s else 0.0

    def worked(self, begun_s: float, ended_s: float) -> None:
        """Note an append."""
        self._free_at_s = ended_s + min((ended_s - begun_s) * (1 / _SHARE - 1), _PAUSE_S_MAX)
