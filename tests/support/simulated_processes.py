"""Processes on one simulated event loop, which may be stopped, continued and killed as by a signal.

What a process calls, sets timers for or waits for belongs to it: its callbacks carry it in their context. While it is
stopped none of them runs, whatever is due; when it continues they run in their order, before anything that it learns
then. A process that is killed does nothing more.

Work for the threads of a process is one call to a database, one at a time per thread pool. It reaches the database
after a while, and its answer takes a while again. Work that has left a process takes effect even if the process is
stopped or killed meanwhile; work that has not waits until the process continues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

from .simulated_time import SimulatedLoop

_T = TypeVar("_T")

_PROCESS: ContextVar[Process] = ContextVar("_PROCESS")
# Of a call on its way, and of its answer, in seconds; now and then a network holds one up for longer than a lease.
_DELAYS_S = (0.0001, 0.0005, 0.001, 0.002, 0.02)
_LONG_DELAYS_S = (0.3, 2.0, 5.0, 7.0, 12.0)


class ProcessEnded(Exception):
    """The process was killed before it had answered."""


class Process:
    """A process of a ``ProcessLoop``. ``held_up``: how probable it is that a call takes seconds."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop
        loop.processes.append(self)
        # What was due since it was stopped or killed.
        self._parked: list[Any] = []
        self._calls: set[asyncio.Future[Any]] = set()
        self.is_stopped = False
        self.is_killed = False
        self._is_buried = False
        self.held_up = 0.0

    def owns(self, executor: Executor) -> None:
        """Let the work of a thread pool belong to this process, whichever process submits it."""
        self._loop.owners[executor] = self

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        context = copy_context()
        context.run(_PROCESS.set, self)
        return self._loop.create_task(work, context=context)

    def call(self, work: Coroutine[Any, Any, _T]) -> asyncio.Future[_T]:
        """Do ``work`` in the process, for a client: return its answer. ``ProcessEnded`` if there will be none."""
        answer: asyncio.Future[_T] = self._loop.create_future()
        self._calls.add(answer)
        answer.add_done_callback(self._calls.discard)
        if self.is_killed:
            work.close()
            answer.set_exception(ProcessEnded())
            return answer

        def done(task: asyncio.Task[_T]) -> None:
            error = None if task.cancelled() else task.exception()
            if answer.done():
                return
            if task.cancelled():
                answer.cancel()
            elif error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        self.start(work).add_done_callback(done)
        return answer

    def stop(self) -> None:
        self.is_stopped = True

    def go_on(self) -> None:
        if not self.is_killed:
            self.is_stopped = False
            self._run_parked()

    def kill(self) -> None:
        self.is_killed = True
        for answer in list(self._calls):
            if not answer.done():
                answer.set_exception(ProcessEnded())

    def bury(self) -> None:
        """Kill it, and let its tasks end when they are cancelled; nothing that they do has an effect."""
        self.kill()
        self._is_buried = True
        self._run_parked()

    def _run_parked(self) -> None:
        parked, self._parked = self._parked, []
        for callback in parked:
            self._loop.run_again(callback)

    def takes(self, callback: Any) -> bool:
        """Say whether a callback of the process may run now; otherwise keep it."""
        if self._is_buried or not (self.is_stopped or self.is_killed):
            return True
        self._parked.append(callback)
        return False


class ProcessLoop(SimulatedLoop):
    """A loop whose callbacks may belong to processes."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._delays = random
        self.processes: list[Process] = []
        self.owners: dict[Executor, Process] = {}
        self._queues: dict[Executor, deque[Callable[[], None]]] = {}

    def run_again(self, callback: Any) -> None:
        self._ready_now.append(callback)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        context = copy_context() if context is None else context
        process = context.get(_PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        guarded = _Guarded(process, callback, args)
        guarded.handle = super().call_soon(guarded, context=context)
        return guarded.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        context = copy_context() if context is None else context
        process = context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        guarded = _Guarded(process, callback, args)
        guarded.handle = super().call_at(when, guarded, context=context)
        return guarded.handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        assert executor is not None
        process = self.owners.get(executor) or _PROCESS.get()
        future: asyncio.Future[_T] = self.create_future()
        if process.is_killed:
            future.cancel()
            return future
        inside, outside = Context(), Context()
        inside.run(_PROCESS.set, process)
        queue = self._queues.setdefault(executor, deque())
        # Once it is sent, neither a signal nor a kill takes it back.
        is_sent = self._delays.random() < 0.7

        def send() -> None:
            self.call_later(self._delay(process), reach, context=outside if is_sent else inside)

        def reach() -> None:
            result, failure = None, None
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - as an executor does
                failure = error
            self.call_later(self._delay(process), end, result, failure, context=inside)

        def end(result: _T, failure: Exception | None) -> None:
            queue.popleft()
            if queue:
                queue[0]()
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

        queue.append(send)
        if len(queue) == 1:
            send()
        return future

    def _delay(self, process: Process) -> float:
        is_long = process.held_up > 0 and self._delays.random() < process.held_up
        return self._delays.choice(_LONG_DELAYS_S if is_long else _DELAYS_S)


class _Guarded:
    """A callback of a process; ``handle`` is what the loop calls."""

    __slots__ = ("_arguments", "_callback", "_process", "handle")

    def __init__(self, process: Process, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._process = process
        self._callback = callback
        self._arguments = arguments
        self.handle: Any = None

    def __call__(self) -> None:
        if self._process.takes(self.handle):
            self._callback(*self._arguments)


def run_processes(main: Callable[[ProcessLoop], Coroutine[Any, Any, _T]], seed: int) -> _T:
    """Run ``main(loop)``; processes that are still there when it returns are killed."""
    loop = ProcessLoop(Random(seed))

    async def run() -> _T:
        try:
            return await main(loop)
        finally:
            for process in loop.processes:
                process.bury()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run())
