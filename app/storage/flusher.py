"""Group commit: one sync of a partition serves everyone who waits for it.

An append that must be synced takes the *next* round's future. A round takes all
that was appended before it began, syncs it in a thread, and ends its future;
appends made meanwhile wait for the round after. So the number of syncs follows
the speed of the disk, not the number of producers, and no caller polls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import NamedTuple

from ..errors import LogDirFailed
from .files import Threads
from .flush_work import FlushWork
from .log import DiskLog

logger = logging.getLogger(__name__)

_NO_CONTEXT = Context()

# Called in the loop with the seconds a sync took; for metrics.
SyncObserver = Callable[[float], None]


class _Timer(NamedTuple):
    """When a log's next round begins at the latest, and the delay that led to it."""

    delay_ms: int
    handle: asyncio.TimerHandle


class Flusher:
    """Runs the rounds of every partition; at most one at a time for each."""

    def __init__(
        self,
        threads: Threads,
        *,
        on_synced: Callable[[DiskLog, FlushWork], object],
        on_failure: Callable[[DiskLog, OSError], LogDirFailed],
    ) -> None:
        self._threads = threads
        # Calls ``flushed`` of the log before anyone who waits for the round continues.
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._next: dict[DiskLog, asyncio.Future[None]] = {}
        # Ends with the last round that was asked for while the one before it was under way.
        self._running: dict[DiskLog, asyncio.Future[None]] = {}
        self._timers: dict[DiskLog, _Timer] = {}
        self._failure: LogDirFailed | None = None
        self.on_sync: SyncObserver = lambda _seconds: None

    def next_round(self, log: DiskLog) -> asyncio.Future[None]:
        """The future of the round that will cover everything appended so far."""
        future = self._next.get(log)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._next[log] = loop.create_future()
            if self._failure:
                self._fail(future)
            elif log not in self._running:
                # Appends of the same turn of the loop join this round.
                loop.call_soon(self._start, log)
        return future

    def flush_later(self, log: DiskLog, delay_ms: int) -> None:
        """Have a round begin within ``delay_ms``, for appends that no caller awaits."""
        set_before = self._timers.get(log)
        if set_before is not None and set_before.delay_ms <= delay_ms:
            # It ends earlier than one that begins now: so it is for all but the first append of a round.
            return
        if self._failure:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + delay_ms / 1000
        if set_before is not None:
            if set_before.handle.when() <= when:
                return
            set_before.handle.cancel()
        self._timers[log] = _Timer(delay_ms, loop.call_at(when, self._timer_fired, log))

    def _timer_fired(self, log: DiskLog) -> None:
        self._timers.pop(log, None)
        if log.is_dirty:
            self.next_round(log)

    def _start(self, log: DiskLog) -> None:
        if log in self._next and log not in self._running:
            self._running[log] = asyncio.get_running_loop().create_future()
            self._begin_round(log)

    def _begin_round(self, log: DiskLog) -> None:
        """Hand the next round to a thread, or end ``_running``.

        Callbacks instead of a task: there are many rounds.
        """
        future = self._next.pop(log, None)
        if future is not None and self._failure:
            self._fail(future)
            future = None
        if future is None:
            self._running.pop(log).set_result(None)
            return
        try:
            work = log.flush_work()
        except BaseException:
            self._running.pop(log).set_result(None)
            raise
        # Not in the context of the request that came first: a round is for all who wait.
        self._threads.run(_timed, work).add_done_callback(
            partial(self._round_ended, log, future, work), context=_NO_CONTEXT
        )

    def _round_ended(
        self, log: DiskLog, future: asyncio.Future[None], work: FlushWork, synced: asyncio.Future[float]
    ) -> None:
        try:
            seconds = synced.result()
        except Exception as error:
            if not isinstance(error, OSError):
                logger.exception("the sync of %s broke", log.directory)
                error = OSError(f"{type(error).__name__}: {error}")
            self.fail(self._on_failure(log, error))
            self._fail(future)
        else:
            self._on_synced(log, work)
            self.on_sync(seconds)
            if not future.done():
                future.set_result(None)
        finally:
            self._begin_round(log)

    def fail(self, failure: LogDirFailed) -> None:
        """End all waits with the error, because nothing will be synced from now on."""
        self._failure = self._failure or failure
        waiting, self._next = list(self._next.values()), {}
        for future in waiting:
            self._fail(future)

    def _fail(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            assert self._failure is not None
            future.set_exception(self._failure)
            # A round that only the timer asked for has nobody to retrieve this.
            future.exception()

    async def quiesce(self, log: DiskLog) -> None:
        """Run the rounds that callers wait for, until there are none.

        The files may then be closed.
        """
        timer = self._timers.pop(log, None)
        if timer:
            timer.handle.cancel()
        while log in self._next or log in self._running:
            self._start(log)
            if (running := self._running.get(log)) is not None:
                await asyncio.shield(running)


def _timed(work: FlushWork) -> float:
    start = time.perf_counter()
    work.run()
    return time.perf_counter() - start
