"""Share the turns of the event loop, so that many who could go on at once do so one after the other.

Each of them holds the loop for a moment only (``work_budget``), but a thousand that go on in the same turn hold it for
a thousand moments, and whoever sends a small request meanwhile waits for all of them. Clients take turns, however many
connections each of them has. How much work a moment is depends on what they ask for, so fewer go on in a turn after a
long one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable

# CPU time of a turn of the loop after which half as many go on in the next. A small request waits for about three turns:
# it is read in the first, begins in the second, and its answer may be due in the third.
LONG_S = 0.003


class Turns:
    """Lets some go on in each turn of the running loop: one of each client, in the order in which they ask.

    They are ``per_turn``, and fewer while turns are long.
    """

    __slots__ = ("_at_once", "_is_next_planned", "_left", "_since_s", "_waiting", "per_turn")

    def __init__(self, per_turn: int) -> None:
        self.per_turn = per_turn
        self._at_once = self._left = per_turn
        self._since_s = 0.0
        # By client, in the order in which they go on; none is empty.
        self._waiting: dict[Hashable, deque[Callable[[], object]]] = {}
        self._is_next_planned = False

    def take(self) -> bool:
        """Return whether this turn of the loop has room for one more, and count it."""
        if not self._left:
            return False
        self._left -= 1
        if not self._is_next_planned:
            self._is_next_planned = True
            self._since_s = time.thread_time()
            asyncio.get_running_loop().call_soon(self._begin)
        return True

    def call(self, go_on: Callable[[], object], client: Hashable = None) -> None:
        """Call ``go_on`` now, or in one of the next turns. It must not raise."""
        if self.take():
            go_on()
        elif client in self._waiting:
            self._waiting[client].append(go_on)
        else:
            self._waiting[client] = deque((go_on,))

    def _begin(self) -> None:
        self._is_next_planned = False
        is_long = time.thread_time() - self._since_s > LONG_S
        self._at_once = self._at_once // 2 or 1 if is_long else min(self._at_once + 1, self.per_turn)
        self._left = self._at_once
        while self._waiting and self.take():
            self._next()()

    def _next(self) -> Callable[[], object]:
        client = next(iter(self._waiting))
        of_client = self._waiting.pop(client)
        go_on = of_client.popleft()
        if of_client:
            self._waiting[client] = of_client
        return go_on
