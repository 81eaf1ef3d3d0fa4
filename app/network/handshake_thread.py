"""Run TLS handshakes in a thread, one at a time.

So a flood of handshakes does not delay other connections.

The first message of a client costs a signature, from 0.2 ms with ECDSA P-256 to several ms with
RSA 4096, and any client can ask for it. OpenSSL releases the GIL meanwhile, so the event loop
serves the connections that are logged in. Where both share a core, the thread has a lower priority
than the event loop: established connections go before new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# While this many wait for the thread, the listener accepts no connections: they wait in the backlog of the system.
WAITING_MAX = 32

# The thread's niceness above that of the process: a fifth of the event loop's share where both need a core.
_NICENESS = 7

# Runs in the thread; returns what the handshake has come to.
Step = Callable[[], Exception | None]


class HandshakeThread:
    """The handshakes of a listener that wait for the thread, oldest first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Starts its thread with the first handshake.
        self._executor = ThreadPoolExecutor(1, "stele-handshakes", initializer=_give_way)
        self._waiting: deque[tuple[Step, Callable[[Exception | None], None]]] = deque()
        self._is_busy = False
        self._is_closed = False
        self._when_free: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= WAITING_MAX

    def when_free(self, then: Callable[[], None]) -> None:
        """Call ``then`` once, when the thread is no longer full."""
        self._when_free = then

    def run(self, step: Step, done: Callable[[Exception | None], None]) -> None:
        """Run ``step`` in the thread, then ``done`` with its outcome on the event loop."""
        self._waiting.append((step, done))
        if not self._is_busy:
            self._next()

    def close(self) -> None:
        """Forget what waits; returns when the thread has ended."""
        self._is_closed = True
        self._waiting.clear()
        self._when_free = None
        self._executor.shutdown(cancel_futures=True)

    def _next(self) -> None:
        self._is_busy = bool(self._waiting)
        if not self._is_busy:
            return
        step, done = self._waiting.popleft()

        def finish(outcome: asyncio.Future[Exception | None]) -> None:
            # The next one begins first: it needs the thread, and this one the loop.
            if not self._is_closed:
                self._next()
                done(outcome.result())

        self._loop.run_in_executor(self._executor, step).add_done_callback(finish)
        if self._when_free is not None and not self.is_full:
            then, self._when_free = self._when_free, None
            then()


def _give_way() -> None:
    """Lower the priority of the calling thread, where threads have one each."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # A sandbox may forbid it.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
