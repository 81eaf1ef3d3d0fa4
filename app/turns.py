"""Share the turns of the event loop, so that many who could go on at once do so one after the other.

Each of them holds the loop for a moment only (``work_budget``), but a thousand that go on in the same turn hold it for
a thousand moments, and whoever sends a small request meanwhile waits for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """Lets ``per_turn`` go on in each turn of the running loop, in the order in which they ask."""

    __slots__ = ("_is_next_planned", "_left", "_waiting", "per_turn")

    def __init__(self, per_turn: int) -> None:
        self.per_turn = per_turn
        self._left = per_turn
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_next_planned = False

    def take(self) -> bool:
        """Return whether this turn of the loop has room for one more, and count it."""
        if not self._left:
            return False
        self._left -= 1
        if not self._is_next_planned:
            self._is_next_planned = True
            asyncio.get_running_loop().call_soon(self._begin)
        return True

    def call(self, go_on: Callable[[], object]) -> None:
        """Call ``go_on`` now, or in one of the next turns. It must not raise."""
        if self.take():
            go_on()
        else:
            self._waiting.append(go_on)

    def _begin(self) -> None:
        self._is_next_planned = False
        self._left = self.per_turn
        waiting = self._waiting
        while waiting and self.take():
            waiting.popleft()()
