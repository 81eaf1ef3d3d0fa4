"""Group commit: one sync of a partition serves all appends that wait for it.

An append that must be synced takes the *next* round's future. A round takes all
that was appended before it began, syncs it in a thread, and ends its future;
appends made meanwhile wait for the round after. So the number of syncs follows
the speed of the disk, not the number of producers, and no caller polls.

A producer with several requests in flight gets its answers together, but sends the next requests one after the other.
A round that began with the first of them would cover it alone, and every second round would: two syncs for what one
can do. So a round waits until as many appends are there as the last ones had in flight together, no longer than a sync
takes.

Handing a round over costs about as much as a quick sync. So if all appends that are in flight are there, the loop
makes the sync itself (``loop_syncs``).

Background rounds that are due together are *grouped*: one thread syncs several logs one after the other, because handing over a sync costs more than most syncs of a few records. docs/notes/performance.md has the figures.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import NamedTuple

from ...errors import LogDirFailed, StorageError
from ...turns import Turns
from ..disk.files import Threads
from ..disk.fine_timer import FineTimer
from ..logs.flush_work import FlushWork
from ..logs.log import DiskLog
from .flush_schedule import FlushSchedule
from .loop_syncs import APPENDS_MAX, BYTES_MAX, LoopSyncs

logger = logging.getLogger(__name__)

_NO_CONTEXT = Context()
# A round waits for further appends no longer than this, however long a sync takes.
_AWAIT_S_MAX = 0.001
# For this many rounds, the next appends are taken for the reaction to the last one.
_RECENT_ROUNDS = 4
# Logs that one thread syncs one after the other, at most; an append that waits for one of them waits for all.
_GROUP_MAX = 32
# Rounds that begin in one turn of the loop, when a request has appended to many logs.
_ROUNDS_PER_TURN = 32
# A log whose sync could not begin is due again after this time.
_RETRY_MS = 1000

_NOT_BEGUN = "the sync of %s could not begin"

# Called in the loop with the seconds a sync took; for metrics.
SyncObserver = Callable[[float], None]


class _InFlight(NamedTuple):
    """The number of appends that waited together when a round ended.

    ``ended_s`` is when that was, ``took_s`` how long the round took.
    """

    appends: int
    ended_s: float
    took_s: float


class Flusher:
    """Runs the rounds of every partition; at most one at a time for each."""

    def __init__(
        self,
        threads: Threads,
        *,
        threads_max: int,
        on_synced: Callable[[DiskLog, FlushWork], object],
        on_refused: Callable[[DiskLog, OSError], StorageError],
    ) -> None:
        self._threads = threads
        self._threads_max = threads_max
        # Calls ``flushed`` of the log before the appends that wait for the round continue.
        self._on_synced = on_synced
        # Returns ``LogDirFailed`` if nothing may be synced from now on, otherwise why this sync was refused.
        self._on_refused = on_refused
        self._next: dict[DiskLog, asyncio.Future[None]] = {}
        # Ends with the last round that was requested while the one before it ran.
        self._running: dict[DiskLog, asyncio.Future[None]] = {}
        # Logs without waiting appends: those due later, and those due now.
        self._later = FlushSchedule[DiskLog](self._begin_due)
        self._due: dict[DiskLog, None] = {}
        self._group_size = 1
        # How many appends the next round covers, and how many are awaited before it begins.
        self._appends: dict[DiskLog, int] = {}
        self._awaited: dict[DiskLog, int] = {}
        self._in_flight: dict[DiskLog, _InFlight] = {}
        self._loop_syncs = LoopSyncs()
        self._turns = Turns(_ROUNDS_PER_TURN)
        # Something was appended while threads made syncs.
        self._has_company = False
        # Needs the running loop.
        self._timer: FineTimer | None = None
        self._failure: LogDirFailed | None = None
        self.on_sync: SyncObserver = lambda _seconds: None

    def next_round(self, log: DiskLog) -> asyncio.Future[None]:
        """The future of the round that will cover everything appended so far."""
        future = self._next.get(log)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._next[log] = loop.create_future()
            self._appends[log] = 1
            if self._failure:
                self._fail(future)
            elif log not in self._running:
                # Appends of the same turn of the loop join this round.
                self._turns.call(lambda: loop.call_soon(self._start, log))
        else:
            self._appends[log] = appends = self._appends[log] + 1
            if appends == self._awaited.get(log):
                asyncio.get_running_loop().call_soon(self._begin_awaited, log)
        return future

    def may_sync_now(self, log: DiskLog) -> bool:
        """Return whether ``sync_now`` is better than ``next_round``.

        There are no other appends to share a sync with, and syncs are quick.
        """
        known = self._in_flight.get(log)
        is_lone = not self._running and not self._next and (known is None or known.appends == 1)
        return is_lone and not self._failure and self._may_sync_in_loop(log)

    def sync_now(self, log: DiskLog) -> asyncio.Future[None] | None:
        """Sync everything appended so far in the loop; return None.

        If there is more to do than one sync, or if it failed, return the future of ``next_round``.
        """
        try:
            work = log.flush_work()
        except Exception:  # the round tries again, and fails waiting appends
            logger.exception(_NOT_BEGUN, log.directory)
            return self.next_round(log)
        if not work.is_one_sync:
            log.not_flushed(work)
            return self.next_round(log)
        self._sync_in_loop(log, work)
        return self.next_round(log) if self._failure else None

    def _may_sync_in_loop(self, log: DiskLog) -> bool:
        return log.unsynced_bytes <= BYTES_MAX and self._loop_syncs.may_sync(self._threads.time())

    def _sync_in_loop(self, log: DiskLog, work: FlushWork) -> None:
        try:
            took_s = _timed(work, self._threads.time)
        except Exception as error:  # noqa: BLE001 - reported for the log
            # It is one sync, whose failure is final.
            self._not_synced(log, work, error)
            return
        self._loop_syncs.synced(self._threads.time(), took_s)
        self._on_synced(log, work)
        self.on_sync(took_s)

    def flush_later(self, log: DiskLog, delay_ms: int) -> None:
        """Have a round begin within ``delay_ms``, for appends that no caller awaits."""
        self._has_company = True
        if not self._failure:
            self._later.add(log, delay_ms)

    def _begin_due(self, logs: Iterable[DiskLog]) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._begin_group)
        self._due.update(dict.fromkeys(logs))
        # All threads have work before one has much: where a sync takes long, those of several overlap.
        self._group_size = min(_GROUP_MAX, -(-len(self._due) // self._threads_max))

    def _begin_group(self) -> None:
        """Begin the rounds of some logs that are due.

        Those of the others begin in later turns of the loop.
        """
        group: list[DiskLog] = []
        while self._due and len(group) < self._group_size and not self._failure:
            log = next(iter(self._due))
            del self._due[log]
            if not log.is_dirty or log in self._next:
                continue
            if log in self._running:
                self.next_round(log)
            else:
                group.append(log)
        if self._due and not self._failure:
            asyncio.get_running_loop().call_soon(self._begin_group)
        if len(group) == 1:
            self.next_round(group[0])
        elif group:
            self._begin_rounds(group)

    def _begin_rounds(self, group: Iterable[DiskLog]) -> None:
        loop = asyncio.get_running_loop()
        works: dict[DiskLog, FlushWork] = {}
        for log in group:
            try:
                works[log] = log.flush_work()
            except OSError as error:
                self._not_synced(log, None, error)
            except Exception:  # other logs have their rounds
                logger.exception(_NOT_BEGUN, log.directory)
                self._later.add(log, _RETRY_MS)
        try:
            synced = self._threads.run(_timed_each, list(works.values()), self._threads.time)
        except Exception:  # the logs are due again, and those who ask for a round are answered by it
            logger.exception(_NOT_BEGUN, ", ".join(str(log.directory) for log in works))
            for log, work in works.items():
                log.not_flushed(work)
                self._later.add(log, _RETRY_MS)
            return
        for log in works:
            self._running[log] = loop.create_future()
        synced.add_done_callback(partial(self._group_ended, works), context=_NO_CONTEXT)

    def _group_ended(
        self, works: Mapping[DiskLog, FlushWork], synced: asyncio.Future[list[float | Exception]]
    ) -> None:
        outcomes: Sequence[float | Exception]
        try:
            outcomes = synced.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - reported for each log
            outcomes = [OSError(f"{type(error).__name__}: {error}")] * len(works)
        loop = asyncio.get_running_loop()
        for (log, work), outcome in zip(works.items(), outcomes, strict=True):
            # In callbacks of their own, so that none prevents those after it.
            loop.call_soon(self._ended_in_group, log, work, outcome, context=_NO_CONTEXT)

    def _ended_in_group(self, log: DiskLog, work: FlushWork, outcome: float | Exception) -> None:
        try:
            if isinstance(outcome, Exception):
                self._not_synced(log, work, outcome)
            else:
                self._loop_syncs.took(self._threads.time(), outcome)
                self._on_synced(log, work)
                self.on_sync(outcome)
        finally:
            self._go_on(log)

    def _start(self, log: DiskLog) -> None:
        if log in self._next and log not in self._running:
            self._running[log] = asyncio.get_running_loop().create_future()
            self._go_on(log)

    def _go_on(self, log: DiskLog) -> None:
        """Begin the next round, or end ``_running``.

        If further appends are about to come, the round begins when they are there.
        """
        known = self._in_flight.get(log)
        if (
            known is None
            or not 0 < self._appends.get(log, 0) < known.appends
            or self._threads.time() - known.ended_s > _RECENT_ROUNDS * known.took_s
        ):
            self._begin_round(log)
            return
        if not self._awaited:
            self._fine().start(min(known.took_s, _AWAIT_S_MAX))
        self._awaited[log] = known.appends

    def _begin_awaited(self, log: DiskLog) -> None:
        if self._awaited.pop(log, None) is None:
            return
        if not self._awaited:
            self._fine().stop()
        self._begin_round(log)

    def _fine(self) -> FineTimer:
        if self._timer is None:
            self._timer = Context().run(self._threads.timer, self._begin_all_awaited)
        return self._timer

    def _begin_all_awaited(self) -> None:
        # One timer for all logs: one that joined later waits no longer than the first.
        for log in list(self._awaited):
            self._begin_awaited(log)

    def _begin_round(self, log: DiskLog) -> None:
        """Hand the next round to a thread, or end ``_running``.

        Callbacks instead of a task: there are many rounds.
        """
        future, appends = self._next.pop(log, None), self._appends.pop(log, 0)
        if future is not None and self._failure:
            self._fail(future)
            future = None
        if future is None:
            self._running.pop(log).set_result(None)
            return
        are_all_there = self._are_all_there(log, appends) and self._may_sync_in_loop(log)
        work: FlushWork | None = None
        synced: asyncio.Future[float] | None = None
        try:
            work = log.flush_work()
            if not (are_all_there and work.is_one_sync):
                self._has_company = False
                synced = self._threads.run(_timed, work, self._threads.time)
        except Exception as error:  # those who wait must be answered, and other logs have their rounds
            if isinstance(error, OSError):
                _end(future, self._not_synced(log, work, error))
            else:
                logger.exception(_NOT_BEGUN, log.directory)
                if work is not None:
                    log.not_flushed(work)
                self._later.add(log, _RETRY_MS)
                _end(future, error)
            self._running.pop(log).set_result(None)
            return
        if synced is None:
            self._round_in_loop(log, future, work)
            return
        # Not in the context of the request that came first: a round is for all who wait.
        synced.add_done_callback(
            partial(self._round_ended, log, future, work, appends, self._threads.time()), context=_NO_CONTEXT
        )

    def _are_all_there(self, log: DiskLog, appends: int) -> bool:
        """Return whether a round has all appends in flight, of this log and of any other."""
        known = self._in_flight.get(log)
        is_whole = known is not None and known.appends == appends <= APPENDS_MAX
        return is_whole and len(self._running) == 1 and not self._next

    def _round_in_loop(self, log: DiskLog, future: asyncio.Future[None], work: FlushWork) -> None:
        try:
            self._sync_in_loop(log, work)
            if self._failure:
                self._fail(future)
                return
            self._in_flight[log] = self._in_flight[log]._replace(ended_s=self._threads.time())
            if not future.done():
                future.set_result(None)
        finally:
            self._go_on(log)

    def _round_ended(
        self,
        log: DiskLog,
        future: asyncio.Future[None],
        work: FlushWork,
        appends: int,
        begun_s: float,
        synced: asyncio.Future[float],
    ) -> None:
        try:
            seconds = synced.result()
        except Exception as error:  # noqa: BLE001 - reported for the log
            _end(future, self._not_synced(log, work, error))
        else:
            self._on_synced(log, work)
            self.on_sync(seconds)
            # Those of this round are not answered yet.
            in_flight = appends + self._appends.get(log, 0)
            ended_s = self._threads.time()
            self._in_flight[log] = _InFlight(in_flight, ended_s, ended_s - begun_s)
            has_company = self._has_company or bool(self._next) or len(self._running) > 1
            self._loop_syncs.probed(ended_s, seconds, has_company=has_company)
            if not future.done():
                future.set_result(None)
        finally:
            self._go_on(log)

    def _not_synced(self, log: DiskLog, work: FlushWork | None, error: Exception) -> StorageError:
        """Note that a sync was refused, or failed; return the error for the callers."""
        if not isinstance(error, OSError):
            logger.error("the sync of %s broke", log.directory, exc_info=error)
            error = OSError(f"{type(error).__name__}: {error}")
        refusal = self._on_refused(log, error)
        if isinstance(refusal, LogDirFailed):
            self.fail(refusal)
            return self._failure or refusal
        logger.warning("the sync of %s was refused and is tried again: %s", log.directory, refusal)
        if work is not None:
            log.not_flushed(work)
        self._later.add(log, _RETRY_MS)
        return refusal

    def fail(self, failure: LogDirFailed) -> None:
        """End all waits with the error, because nothing will be synced from now on."""
        self._failure = self._failure or failure
        waiting, self._next = list(self._next.values()), {}
        self._appends.clear()
        for future in waiting:
            self._fail(future)

    def _fail(self, future: asyncio.Future[None]) -> None:
        assert self._failure is not None
        _end(future, self._failure)

    async def flush(self, logs: Iterable[DiskLog]) -> None:
        """Sync everything appended so far. Raises ``StorageError``."""
        rounds = [self.next_round(log) for log in logs if log.is_dirty]
        if rounds:
            await asyncio.wait(rounds)
            for future in rounds:
                future.result()

    async def quiesce(self, log: DiskLog) -> None:
        """Run the rounds that callers wait for, until there are none.

        The files may then be closed.
        """
        while log in self._next or log in self._running:
            self._start(log)
            self._begin_awaited(log)
            if (running := self._running.get(log)) is not None:
                await asyncio.shield(running)
        # Last, because a refused round is due again.
        self._later.discard(log)
        self._due.pop(log, None)
        self._in_flight.pop(log, None)


def _end(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # A round that only the timer began has no caller to retrieve this.
        future.exception()


def _timed_each(works: Sequence[FlushWork], clock: Callable[[], float]) -> list[float | Exception]:
    outcomes: list[float | Exception] = []
    for work in works:
        try:
            outcomes.append(_timed(work, clock))
        except Exception as error:  # noqa: BLE001 - reported for this one; the others have their own outcome
            outcomes.append(error)
    return outcomes


def _timed(work: FlushWork, clock: Callable[[], float]) -> float:
    start_s = clock()
    work.run()
    return clock() - start_s
