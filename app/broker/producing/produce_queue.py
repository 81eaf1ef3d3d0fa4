"""A queue of produces that take long or that a thread must prepare, in order per partition.

The produces of a partition are prepared and appended one after the other; a few
threads serve several partitions in parallel. So at most one batch per thread is
held both as received and as rewritten; the others wait as received, and their
bytes count towards the limit. Callers wait for ``room`` before they add more.

::

    put ─▶ [orders-0: job job job] ─▶ thread: run ─▶ loop: write ahead, append ─▶ next job of orders-0
           [orders-1: job]         ─▶ thread: run ─▶ loop: write ahead, append
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import SteleError
from ...storage.topic_partition import TopicPartition
from .produce import PendingProduce, QueuedProduce
from .recompress import PreparedBatches

logger = logging.getLogger(__name__)

# Memory of a waiting produce besides its batches.
_JOB_BYTES = 1024


# Begins to prepare batches, and returns the future of what is appended.
Prepare = Callable[[Executor], "asyncio.Future[PreparedBatches]"]


def in_thread(threads: Executor, prepare: Callable[[], PreparedBatches]) -> asyncio.Future[PreparedBatches]:
    """Return the future of what ``prepare`` returns in a thread."""
    return asyncio.get_running_loop().run_in_executor(threads, prepare)


@dataclass(frozen=True, slots=True)
class _Job:
    """One produce in the queue.

    ``prepare`` begins with its turn, and uses the threads; then ``append`` with its result on the event loop; both may
    raise ``SteleError``. In between comes what ``write_ahead`` returns, if anything; it returns what is appended.
    """

    size: int
    prepare: Prepare
    write_ahead: Callable[[PreparedBatches], Coroutine[Any, Any, PreparedBatches] | None]
    append: Callable[[PreparedBatches], PendingProduce]
    pending: QueuedProduce


class QueueSize(NamedTuple):
    """The size of the queue, including the produces that threads are working on."""

    requests: int
    size_bytes: int


class ProduceQueue:
    """The produces of all partitions that wait for a thread."""

    def __init__(self, *, threads: int, bytes_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="stele-produce")
        self._bytes_max = bytes_max
        self._bytes = 0
        # A thread is working on the first job of each partition.
        self._jobs: dict[TopicPartition, deque[_Job]] = {}
        # Callers that wait for room; the first has waited longest.
        self._waiters: deque[asyncio.Future[None]] = deque()
        # The caller that was woken and has not put its batches yet.
        self._woken: asyncio.Future[None] | None = None

    def is_busy(self, name: TopicPartition) -> bool:
        """Return whether later produces of this partition must queue after a waiting one."""
        return name in self._jobs

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._bytes_max

    @property
    def size(self) -> QueueSize:
        """The number of produces in the queue, and the bytes that count towards its limit."""
        return QueueSize(sum(map(len, self._jobs.values())), self._bytes)

    async def room(self) -> None:
        """Wait for room; the caller must ``put`` before it awaits anything else."""
        if not self.is_full:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
            while self.is_full:
                # Another caller came first, without waiting: this one keeps its turn.
                self._woken, waiter = None, loop.create_future()
                self._waiters.appendleft(waiter)
                await waiter
        finally:
            # Wake one caller at a time: the next one after this one has put its batches or was cancelled.
            loop.call_soon(self._pass_turn, waiter)

    def _pass_turn(self, waiter: asyncio.Future[None]) -> None:
        if self._woken is waiter:
            self._woken = None
        self._wake()

    def _wake(self) -> None:
        """Wake the caller that has waited longest.

        It does nothing while a caller that was woken has not put its batches yet.
        """
        while self._woken is None and self._waiters and not self.is_full:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._woken = waiter
                waiter.set_result(None)

    def put(
        self,
        name: TopicPartition,
        size: int,
        *,
        prepare: Prepare,
        write_ahead: Callable[[PreparedBatches], Coroutine[Any, Any, PreparedBatches] | None],
        append: Callable[[PreparedBatches], PendingProduce],
        pending: QueuedProduce,
    ) -> None:
        """Add a produce of ``size`` bytes; ``pending`` is settled when the produce is appended or refused."""
        job = _Job(size + _JOB_BYTES, prepare, write_ahead, append, pending)
        self._bytes += job.size
        jobs = self._jobs.get(name)
        if jobs is not None:
            jobs.append(job)
            return
        self._jobs[name] = deque((job,))
        self._begin(name, job)

    async def drain(self, names: Iterable[TopicPartition] | None = None) -> None:
        """Return when all earlier produces are appended, in these partitions or in all."""
        chosen = list(self._jobs) if names is None else [name for name in names if name in self._jobs]
        waiting = [self._jobs[name][-1].pending.appended for name in chosen]
        if waiting:
            await asyncio.wait(waiting)

    async def close(self) -> None:
        """Append everything in the queue, then stop the threads."""
        await self.drain()
        self._threads.shutdown()

    def _begin(self, name: TopicPartition, job: _Job) -> None:
        prepared = job.prepare(self._threads)
        prepared.add_done_callback(lambda done: self._go_on(name, job, done))

    def _go_on(self, name: TopicPartition, job: _Job, prepared: asyncio.Future[PreparedBatches]) -> None:
        failed = prepared.cancelled() or prepared.exception() is not None
        writing = None if failed else job.write_ahead(prepared.result())
        if writing is None:
            self._finish(name, job, prepared)
        else:
            asyncio.ensure_future(writing).add_done_callback(lambda done: self._finish(name, job, done))

    def _finish(self, name: TopicPartition, job: _Job, ready: asyncio.Future[PreparedBatches]) -> None:
        try:
            outcome: PendingProduce | SteleError = job.append(ready.result())
        except SteleError as error:
            outcome = error
        except Exception as error:  # the edge of a job: the jobs after it must go on
            logger.exception("a produce to %s could not be prepared", name)
            outcome = SteleError(
                f"a produce to {name} failed with an unexpected error ({type(error).__name__}); "
                "nothing was stored: see the broker's log"
            )
        jobs = self._jobs[name]
        jobs.popleft()
        self._bytes -= job.size
        if jobs:
            self._begin(name, jobs[0])
        else:
            del self._jobs[name]
        self._wake()
        job.pending.settle(outcome)
