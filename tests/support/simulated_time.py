"""An event loop and a clock whose time passes only while all tasks wait.

A test on it sleeps for hours in no time, is the same each time for the same
seed, and fails at once where a real one would hang: when everyone waits and no
timer is set. ``before`` fails a wait that only its own timeout ends. Work for
threads runs on the loop itself, a random while after it was handed over, so that
other things happen in between as they would.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextvars import Context, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, ParamSpec, TypeVar

from app.storage.disk.files import RealFiles
from app.storage.disk.fine_timer import LoopTimer

_T = TypeVar("_T")
_P = ParamSpec("_P")

# 2026-01-01T00:00:00Z
START_MS = 1_767_225_600_000
# The smallest step of time. A timer that is due within it fires, where a float has no nanoseconds left, too.
STEP_S = 1e-6
# More than any test waits for on purpose.
FOREVER_MS = 1000 * 3_600_000


class DeadlockError(Exception):
    """All tasks wait, and no event is left that could end a wait."""


class _NoSelector(selectors.BaseSelector):
    """A selector that nobody asks."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class _Callback:
    """What a loop will call; it stands for an ``asyncio.TimerHandle``."""

    __slots__ = ("_when_s", "arguments", "context", "function")

    def __init__(
        self,
        when_s: float,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self._when_s = when_s
        # None once it was cancelled.
        self.function: Callable[..., object] | None = function
        self.arguments = arguments
        self.context = copy_context() if context is None else context

    def cancel(self) -> None:
        self.function = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.function is None

    def when(self) -> float:
        return self._when_s


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Has its own queues: those of asyncio take a third of the time of a simulation.

    Timers that are due at the same time fire in the order in which they were set.
    """

    def __init__(self, random: Random | None = None) -> None:
        self._now_s = 0.0
        self._ready_now: deque[_Callback] = deque()
        # Time, number and callback.
        self._timers: list[tuple[float, int, _Callback]] = []
        self._timer_count = 0
        self._is_stopping = False
        super().__init__(_NoSelector())
        self._random = random

    def time(self) -> float:
        return self._now_s

    def hold(self, seconds: float) -> None:
        """Let time pass in a call, which nothing else can use."""
        self._now_s += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        due = _Callback(-1, callback, args, context)
        self._ready_now.append(due)
        return due

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        # There are no other threads.
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        timer = _Callback(when, callback, args, context)
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def stop(self) -> None:
        self._is_stopping = True
        super().stop()

    def run_forever(self) -> None:
        self._is_stopping = False
        super().run_forever()

    def _run_once(self) -> None:
        """Call what is ready; if nothing is, let the time pass until the next timer."""
        ready, timers = self._ready_now, self._timers
        while timers and timers[0][2].function is None:
            heappop(timers)
        if timers and not ready and not self._is_stopping:
            self._now_s = max(self._now_s, timers[0][0])
        elif not ready and not self._is_stopping:
            raise DeadlockError
        end_s = self._now_s + STEP_S
        while timers and timers[0][0] < end_s:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            due = ready.popleft()
            function = due.function
            if function is None:
                continue
            try:
                due.context.run(function, *due.arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio does
                self.call_exception_handler(
                    {"message": f"Exception in callback {function}", "exception": error}
                )

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = self.create_future()

        def work() -> None:
            # A thread continues even if its caller was cancelled.
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001 - as an executor does
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        if self._random is None or self._random.random() < 0.5:
            self.call_soon(work)
        else:
            self.call_later(self._random.choice((0.0001, 0.001, 0.02)), work)
        return future


class LoopThreads:
    """The threads of a loop: those of a ``SimulatedLoop`` are simulated, too."""

    def run(self, work: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(None, work, *arguments)

    def time(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            # In a thread of a loop that is not simulated.
            return time.monotonic()

    def timer(self, callback: Callable[[], object]) -> LoopTimer:
        return LoopTimer(callback)

    def shutdown(self) -> None:
        """The loop ends its threads itself."""


class SlowThreads(LoopThreads):
    """Each call takes ``call_s``; any number of calls are made side by side."""

    def __init__(self, call_s: float) -> None:
        self._call_s = call_s

    def run(self, work: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()

        def done() -> None:
            try:
                result = work(*arguments)
            except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
                future.set_exception(error)
            else:
                future.set_result(result)

        loop.call_later(self._call_s, done)
        return future


class CountingThreads(SlowThreads):
    """Notes when each call was handed over; the next ``refusals`` calls are refused."""

    def __init__(self, call_s: float) -> None:
        super().__init__(call_s)
        self.begun_s: list[float] = []
        self.refusals = 0

    def run(self, work: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        if self.refusals:
            self.refusals -= 1
            raise RuntimeError("can't start new thread")
        self.begun_s.append(asyncio.get_running_loop().time())
        return super().run(work, *arguments)


class RealFilesInSimulatedTime(RealFiles):
    """The file system of this machine, for a test on a ``SimulatedLoop``."""

    def threads(self, count: int) -> LoopThreads:
        return LoopThreads()


class SimulatedClock:
    """Implements ``storage.engine.Clock`` on the loop's time; ``jump_ms`` turns the wall clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self.jump_ms = 0

    def monotonic_ms(self) -> int:
        loop = self._loop or asyncio.get_running_loop()
        return int(loop.time() * 1000) + 12_345

    def now_ms(self) -> int:
        return START_MS + self.monotonic_ms() - 12_345 + self.jump_ms


def run_simulated(main: Callable[[], Coroutine[Any, Any, _T]], random: Random | None = None) -> _T:
    """Run ``main()`` on a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(random)) as runner:
        return runner.run(main())


async def before(limit_s: float, *awaited: Awaitable[Any]) -> None:
    """Wait for all of ``awaited``, no longer than ``limit_s`` seconds of simulated time.

    Raises:
        TimeoutError: the time passed first.
    """
    async with asyncio.timeout(limit_s):
        await asyncio.gather(*awaited)


def simulated(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Decorates an ``async`` test: it runs on simulated time."""

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        run_simulated(lambda: test(*args, **kwargs))

    return run
