"""Measures for how long the event loop is held, as a small request would notice it.

A thread asks the loop for a call several times a second, and counts the CPU time that the loop's thread uses until it
makes that call. CPU time, because what a busy machine takes away is not the fault of the broker.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Self

logger = logging.getLogger(__name__)

# No turn of the loop is meant to be longer than 10 ms.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
NAMED_S = 0.02
_INTERVAL_S = 0.1
_FRAMES_SHOWN = 6


def _clock_of_this_thread() -> Callable[[], float]:
    """Return a clock of the CPU time of the calling thread, which other threads may read while it lives.

    Where the system has none (macOS), a clock of real time.
    """
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)


def _queued_s() -> float:
    """Return for how long the calling thread has waited for a core in all; 0.0 where the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1]) / 1e9
    except OSError:
        return 0.0


class _Look(NamedTuple):
    """What the thread of the probe sees when it looks: clocks, all in seconds."""

    at_s: float
    loop_s: float
    process_s: float
    queued_s: float

    @classmethod
    def now(cls, loop_clock: Callable[[], float]) -> Self:
        return cls(time.monotonic(), loop_clock(), time.process_time(), _queued_s())

    def late_because_of_loop_s(self, before: _Look) -> float:
        """Return for how long the loop's thread kept this one from looking ``_INTERVAL_S`` after ``before``.

        A busy machine and other threads of the process keep it, too, and are not counted.
        """
        loop_s = self.loop_s - before.loop_s
        others_s = self.process_s - before.process_s - loop_s
        late_s = self.at_s - before.at_s - _INTERVAL_S - (self.queued_s - before.queued_s)
        return max(min(loop_s, late_s - max(others_s, 0)), 0)


class LoopProbe:
    """Counts holds of the running loop from ``start`` to ``stop``; both are called in the loop."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum_s = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        loop, ident, clock = asyncio.get_running_loop(), threading.get_ident(), _clock_of_this_thread()
        self._thread = threading.Thread(
            target=self._run, args=(loop, ident, clock), name="stele-loop-probe", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """End the thread; the loop goes on meanwhile, because the thread may be waiting for it."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def histogram(self) -> tuple[list[int], float]:
        """Return how many holds were at most as long as each bound, all of them last, and the sum of all in seconds."""
        return list(accumulate(self._counts)), self._sum_s

    def observe(self, held_s: float) -> None:
        self._counts[bisect_left(BUCKETS_S, held_s)] += 1
        self._sum_s += held_s

    def _run(self, loop: asyncio.AbstractEventLoop, ident: int, clock: Callable[[], float]) -> None:
        before: _Look | None = None
        loop_s = clock()
        while not self._stopping.wait(_INTERVAL_S):
            before_s, loop_s = loop_s, clock()
            if loop_s - before_s < BUCKETS_S[0]:
                # The loop was idle, and is not woken. Nor is more asked of the system.
                self.observe(0.0)
                before = None
                continue
            look = _Look.now(clock)
            # A call into C that keeps the interpreter lock holds this thread up, too.
            held_s = 0.0 if before is None else look.late_because_of_loop_s(before)
            if held_s > NAMED_S:
                self._name_holder(loop, ident, held_s)
            self.observe(held_s + self._until_called(loop, ident, clock))
            before = _Look.now(clock)

    def _until_called(self, loop: asyncio.AbstractEventLoop, ident: int, clock: Callable[[], float]) -> float:
        called = threading.Event()
        begin_s = end_s = clock()

        def call() -> None:
            nonlocal end_s
            end_s = clock()
            called.set()

        loop.call_soon_threadsafe(call)
        is_named = False
        while not called.wait(NAMED_S) and not self._stopping.is_set():
            if not is_named and clock() - begin_s > NAMED_S:
                is_named = True
                self._name_holder(loop, ident, clock() - begin_s)
        return end_s - begin_s

    def _name_holder(self, loop: asyncio.AbstractEventLoop, ident: int, held_s: float) -> None:
        if not logger.isEnabledFor(logging.DEBUG):
            return
        task = asyncio.current_task(loop)
        frame = sys._current_frames().get(ident)
        stack = [] if frame is None else traceback.extract_stack(frame)[-_FRAMES_SHOWN:]
        logger.debug(
            "the event loop has been held for %.0f ms by %s: %s",
            held_s * 1000,
            "a callback" if task is None else f"task {task.get_name()} ({task.get_coro()!r})",
            " > ".join(f"{at.filename}:{at.lineno} {at.name}" for at in stack),
        )
