"""Let few TLS handshakes begin in each turn of the event loop, so that many do not hold up other connections.

The first message of a client costs a signature, and nobody knows yet who sent it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# About a millisecond each.
HANDSHAKES_PER_TURN = 2


class HandshakeTurns:
    """The handshakes of one listener that wait for their turn, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._left = HANDSHAKES_PER_TURN
        self._is_scheduled = False

    def run(self, begin: Callable[[], None]) -> bool:
        """Call ``begin`` now, or in a later turn; return whether it was called."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
        if not self._left:
            self._waiting.append(begin)
            return False
        self._left -= 1
        begin()
        return True

    def _turn(self) -> None:
        self._is_scheduled = False
        self._left = HANDSHAKES_PER_TURN
        if self._waiting:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
        while self._waiting and self._left:
            self._left -= 1
            self._waiting.popleft()()
