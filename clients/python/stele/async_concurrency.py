"""Concurrency with tasks; ``concurrency`` has the same interface for threads.

Modules that exist for both use nothing else of asyncio, so that the blocking ones can be generated
(``clients/python/unasync.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from . import forks
from .errors import SteleClientError

K = TypeVar("K")
R = TypeVar("R")


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def give_way() -> None:
    """Let other tasks run."""
    await asyncio.sleep(0)


def run_at_once(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do nothing: a caller that is no coroutine cannot wait for one."""


async def in_thread(run: Callable[..., R], *arguments: Any) -> R:
    """Call a function that may block."""
    return await asyncio.to_thread(run, *arguments)


def time_limit(deadline_s: float) -> contextlib.AbstractAsyncContextManager[object]:
    """Raise TimeoutError if the block has not ended at the deadline."""
    return asyncio.timeout(deadline_s - time.monotonic())


async def run_until(deadline_s: float, run: Callable[[float], Coroutine[Any, Any, object]]) -> None:
    """Run a coroutine function, and cancel it at the deadline, which it gets.

    A thread cannot be cancelled: there, the function has to end by itself.
    """
    with contextlib.suppress(TimeoutError):
        async with time_limit(deadline_s):
            await run(deadline_s)


class AsyncClosing:
    """What an ``async with`` block closes at its end."""

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncSlots:
    """Lets at most ``count`` calls of one event loop be under way."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = asyncio.Semaphore(count)
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        self._free = asyncio.Semaphore(self._count)

    async def take(self) -> None:
        await self._free.acquire()

    def give_back(self) -> None:
        self._free.release()


class AsyncWorker:
    """Runs a coroutine function beside its owner, until ``stop``.

    The child of a fork does not have it: there, ``stop`` does nothing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._process = 0

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._process = os.getpid()
        self._task = asyncio.get_running_loop().create_task(run(), name=self._name)

    async def stops_within(self, seconds: float) -> bool:
        """Wait, as the worker; return whether it has to end now. A task is cancelled instead."""
        await asyncio.sleep(seconds)
        return False

    def cancel(self) -> None:
        """Let the worker end, without waiting for it."""
        if self._task is not None and self._process == os.getpid():
            self._task.cancel()

    async def stop(self, *, wait_s: float | None = None) -> None:
        """Wait until the worker has ended, unless it calls this itself.

        A thread may not end soon: ``wait_s`` bounds the wait for it.
        """
        self.cancel()
        task = self._task
        if task is not None and self._process == os.getpid() and task is not asyncio.current_task():
            await asyncio.gather(task, return_exceptions=True)


class AsyncMonitor:
    """Guards state that several tasks change, and wakes those that wait for a change.

    A ``with`` block surrounds every access that is more than one step. It does not await.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        self._changed = asyncio.Event()

    def __enter__(self) -> None:
        # No other task runs in the block.
        pass

    def __exit__(self, *_: object) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until ``is_so()``, which is called again after each block; return its last result."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    await self._changed.wait()
                return True
        return is_so()


class AsyncSharedCalls(Generic[K, R]):
    """Lets callers with the same key share one call.

    Each of them gets its result, or its ``SteleClientError``.
    """

    def __init__(self) -> None:
        self._calls: dict[K, asyncio.Task[R]] = {}
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        # The tasks are of the parent's event loop.
        self._calls = {}

    async def call(self, key: K, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Return the result of the call for ``key``, which ``make`` begins if none is under way.

        It continues if a caller is cancelled.
        """
        task = self._calls.get(key)
        if task is None:
            task = self._calls[key] = asyncio.get_running_loop().create_task(make())
            task.add_done_callback(lambda done: self._end(key, done))
        try:
            return await asyncio.shield(task)
        except SteleClientError as error:
            raise error.twin() from None

    def _end(self, key: K, done: asyncio.Task[R]) -> None:
        self._calls.pop(key, None)
        if not done.cancelled():
            # Retrieve the error even if every caller was cancelled.
            done.exception()
