"""Time-outs of connections: one timer of the loop for all connections of a listener."""

from __future__ import annotations

import asyncio
import logging
from heapq import heappop, heappush
from math import ceil
from typing import Protocol

from ..patience import grace_s

logger = logging.getLogger(__name__)

# Connections that are due at about the same time are looked at together. Long waits are rounded
# up further, so that thousands of silent connections share some hundred moments.
_FINE_S = 0.05
_COARSE_S = 1.0
_COARSE_FROM_S = 10.0
# Connections looked at in one turn of the loop.
_PER_TURN = 256


class Watched(Protocol):
    """A connection. ``due_s`` belongs to ``Deadlines``: 0.0 while nothing is due."""

    due_s: float

    def look_at_clock(self) -> None: ...


class Deadlines:
    """Calls ``look_at_clock`` of connections when they are due: a moment later, never earlier.

    An exception there is logged. It costs the connection its time-outs until it is
    watched again, and no other connection anything.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: dict[float, dict[Watched, None]] = {}
        # The moments in ``_due``, as a heap.
        self._moments: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        # Not read from the timer: uvloop's handles of calls that are due at once do not say when.
        self._timer_at_s = 0.0
        self._is_put_off = False

    def watch(self, connection: Watched, delay_s: float) -> None:
        """Call ``look_at_clock`` in about ``delay_s``; a connection that is due earlier stays so."""
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
        """Stop watching the connection; harmless if it is not watched."""
        due = self._due.get(connection.due_s)
        connection.due_s = 0.0
        if due is not None:
            # An empty moment stays until its time: connections come and go in it.
            due.pop(connection, None)

    def _set_timer(self, moment_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = moment_s
        self._timer = self._loop.call_at(moment_s, self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        grace = 0.0 if self._is_put_off else grace_s(now_s - self._timer_at_s)
        self._is_put_off = grace > 0
        if grace:
            self._set_timer(now_s + grace)
            return
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
                try:
                    connection.look_at_clock()
                except Exception:  # the edge of a connection: the others are due as well
                    logger.exception("the time-outs of a connection could not be checked")
            if not due:
                heappop(self._moments)
                del self._due[moment_s]
        if self._moments:
            # If some that are due are left: in the next turn, after the work of others.
            self._set_timer(max(now_s, self._moments[0]))
