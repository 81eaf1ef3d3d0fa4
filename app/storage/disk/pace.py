"""Makes work in a thread yield to the event loop, and lets it end early.

The interpreter runs one thread at a time. A thread that computes would hold up the
loop for milliseconds at every switch, so it pauses after every millisecond of work.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from ...clock import Clock
from .byte_rate import ByteRate

# Work between two pauses, and how long a pause is: with 1 ms the loop of a busy broker wakes within 3 ms.
_WORK_S = 0.001
_PAUSE_S = 0.000_2


_T = TypeVar("_T")


class WorkAborted(Exception):
    """The result is no longer needed.

    The partition is deleted, or the broker shuts down.
    """


class Pacing(Protocol):
    """Lets work yield to other work; called between small amounts of it."""

    def __call__(self, size: int) -> object:
        """Note that ``size`` bytes were read or written since the last call.

        0 between records. May wait, or raise to end the work.
        """
        ...


class Pace:
    """Called between small amounts of work with the bytes read or written since.

    It pauses, keeps to the byte rate if there is one, and raises ``WorkAborted`` once
    ``aborted`` is set.
    """

    def __init__(
        self,
        aborted: threading.Event,
        *,
        clock: Clock | None = None,
        bytes_per_s: float | None = None,
        shares_interpreter: bool = True,
    ) -> None:
        """``bytes_per_s`` needs a ``clock``; without ``shares_interpreter`` there are no pauses for a loop."""
        self._aborted = aborted
        self._shares_interpreter = shares_interpreter
        self._clock = clock
        self._rate: ByteRate | None = None
        if clock is not None and bytes_per_s is not None:
            self._rate = ByteRate(bytes_per_s, now_ms=clock.monotonic_ms())
        self._paused_s = time.perf_counter()

    def __call__(self, size: int) -> None:
        if self._aborted.is_set():
            raise WorkAborted
        if self._rate is not None and self._clock is not None and size:
            delay_ms = self._rate.delay_ms(size, now_ms=self._clock.monotonic_ms())
            if delay_ms and self._aborted.wait(delay_ms / 1000):
                raise WorkAborted
        if self._shares_interpreter and time.perf_counter() - self._paused_s >= _WORK_S:
            time.sleep(_PAUSE_S)
            self._paused_s = time.perf_counter()


async def in_paced_thread(thread: Executor, work: Callable[[], _T], aborted: threading.Event) -> _T:
    """Return the result of ``work``, whose ``Pace`` has ``aborted``.

    A caller that is cancelled aborts the work and waits for its end: then nothing uses its memory.
    """
    future = asyncio.get_running_loop().run_in_executor(thread, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        aborted.set()
        await asyncio.wait([future])
        if not future.cancelled():
            # It is no longer needed.
            future.exception()
        raise
