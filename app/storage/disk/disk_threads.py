"""Threads for calls that wait for a disk, with the cheapest hand-over in both directions.

A sync for a single producer is a hand-over to a thread and one back. Through ``run_in_executor`` these cost about
as much CPU as the sync itself: a future of each kind, their locks and the calls that couple them. Here, work goes into
a queue, and its result comes back with the one call that wakes the loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from .fine_timer import FineTimer, fine_timer

_T = TypeVar("_T")


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    work: Callable[..., Any]
    arguments: tuple[object, ...]


class DiskThreads:
    """Up to ``count`` threads, each started when all others have work; used from one event loop at a time."""

    time = staticmethod(time.monotonic)

    def __init__(self, count: int) -> None:
        self._count = count
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._timers: list[FineTimer] = []
        # Jobs that were handed over and whose results the loop has not taken.
        self._under_way = 0

    def run(self, work: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        """Begin ``work(*arguments)`` in a thread; the future gets its result or exception.

        Work goes on if its future is cancelled.

        Raises:
            RuntimeError: the system starts no thread, and none is there yet.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        if self._under_way >= len(self._threads) < self._count:
            self._start_thread()
        self._under_way += 1
        self._jobs.put(_Job(loop, future, work, arguments))
        return future

    def _start_thread(self) -> None:
        # A daemon: a program that ends without ``shutdown`` does not wait for it.
        thread = threading.Thread(target=self._work, name=f"stele-disk-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The others do the work, later.
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def timer(self, callback: Callable[[], object]) -> FineTimer:
        """Return a timer for the running loop, which ``shutdown`` closes."""
        timer = fine_timer(callback)
        self._timers.append(timer)
        return timer

    def shutdown(self) -> None:
        """Return when all work is done and the threads have ended."""
        for timer in self._timers:
            timer.close()
        self._timers.clear()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: Any = None
            failure: BaseException | None = None
            try:
                result = job.work(*job.arguments)
            except BaseException as error:  # noqa: BLE001 - it is raised where the future is awaited
                failure = error
            try:
                job.loop.call_soon_threadsafe(self._done, job.future, result, failure)
            except RuntimeError:
                # The loop was closed meanwhile, so no caller waits.
                continue
            finally:
                # An idle thread keeps neither the work nor what it returned.
                del job, result, failure

    def _done(self, future: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
        self._under_way -= 1
        if future.done():
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
