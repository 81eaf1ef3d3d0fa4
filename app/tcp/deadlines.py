"""When to look at the clock for which connection: one timer of the loop for all connections of a listener."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from math import ceil
from typing import Protocol

# Connections that are due at about the same time are looked at together. Long waits are rounded
# up by more, so that thousands of silent connections share some hundred moments.
_FINE_S = 0.05
_COARSE_S = 1.0
_COARSE_FROM_S = 10.0
# Looked at in one turn of the loop.
_PER_TURN = 256


class Watched(Protocol):
    """A connection. ``due_s`` is the deadlines' own: 0.0 while nothing is to be looked at."""

    due_s: float

    def look_at_clock(self) -> None: ...


class Deadlines:
    """Calls ``look_at_clock`` of connections when their time has come; a moment later, never earlier."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: dict[float, dict[Watched, None]] = {}
        # The moments in ``_due``, and some that are there no more.
        self._moments: list[float] = []
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: Watched, delay_s: float) -> None:
        """Have a look in ``delay_s`` at the latest; one that is due earlier stays."""
        grain_s = _FINE_S if delay_s < _COARSE_FROM_S else _COARSE_S
        moment_s = ceil((self._loop.time() + delay_s) / grain_s) * grain_s
        if connection.due_s:
            if connection.due_s <= moment_s:
                return
            self.forget(connection)
        connection.due_s = moment_s
        due = self._due.get(moment_s)
        if due is None:
            due = self._due[moment_s] = {}
            heappush(self._moments, moment_s)
            if self._moments[0] == moment_s:
                self._set_timer(moment_s)
        due[connection] = None

    def forget(self, connection: Watched) -> None:
        due = self._due.get(connection.due_s)
        connection.due_s = 0.0
        if due is not None:
            # An empty moment passes when it comes: connections come and go in it.
            due.pop(connection, None)

    def _set_timer(self, moment_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(moment_s, self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        left = _PER_TURN
        while self._moments and left:
            moment_s = self._moments[0]
            if moment_s > now_s:
                break
            due = self._due[moment_s]
            while due and left:
                connection, _ = due.popitem()
                connection.due_s = 0.0
                left -= 1
                connection.look_at_clock()
            if not due:
                heappop(self._moments)
                del self._due[moment_s]
        if self._moments:
            # At once, after the others of this turn, if that was not all.
            self._set_timer(max(now_s, self._moments[0]))
