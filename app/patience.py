"""Time-outs that do not punish others for a broker that stood still.

A process that was stopped, starved of CPU time or moved to another machine finds many time-outs over at once, and what
would have stopped them unread in its sockets: heartbeats, logins, the next request of a connection that is kept. So a
time-out that is noticed late is put off once, for as long as it was late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LATE_S = 0.1
# Sockets are read within this time even if thousands of connections have something to say.
_GRACE_MAX_S = 5.0


def grace_s(late_s: float) -> float:
    """Return for how many seconds a time-out is put off; 0.0 if it is not.

    It was noticed ``late_s`` after its time.
    """
    return min(late_s, _GRACE_MAX_S) if late_s > _LATE_S else 0.0


class Timeout:
    """Calls ``callback`` in ``delay_s``, unless it is cancelled before."""

    __slots__ = ("_at_s", "_callback", "_handle", "_loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_s: float, callback: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._callback = callback
        # uvloop's handles of calls that are due at once do not say when.
        self._at_s = loop.time() + delay_s
        self._handle: asyncio.Handle = loop.call_later(delay_s, self._look)

    def cancel(self) -> None:
        self._handle.cancel()

    def _look(self) -> None:
        if grace := grace_s(self._loop.time() - self._at_s):
            self._handle = self._loop.call_later(grace, self._callback)
        else:
            self._callback()
