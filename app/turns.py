"""Share the turns of the event loop, so that many who could go on at once do so one after the other.

Each of them holds the loop for a moment only (``work_budget``), but a thousand that go on in the same turn hold it for
a thousand moments, and whoever sends a small request meanwhile waits for all of them. Clients take turns, however many
connections each of them has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable


class Turns:
    """Lets ``per_turn`` go on in each turn of the running loop: one of each client, in the order in which they ask."""

    __slots__ = ("_is_next_planned", "_left", "_waiting", "per_turn")

    def __init__(self, per_turn: int) -> None:
        self.per_turn = per_turn
        self._left = per_turn
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
        self._left = self.per_turn
        while self._waiting and self.take():
            self._next()()

    def _next(self) -> Callable[[], object]:
        client = next(iter(self._waiting))
        of_client = self._waiting.pop(client)
        go_on = of_client.popleft()
        if of_client:
            self._waiting[client] = of_client
        return go_on
