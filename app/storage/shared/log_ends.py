"""Learns of what other brokers appended: by a poll, and at once when a caller must know.

Logs with waiting readers are polled every ``poll_interval_ms``, all others every ``idle_poll_interval_ms``;
one query asks for all of them. If readers wait for more than 1,000 logs, each poll asks for the next 1,000.
A refresh is a query that begins after its call. All calls during one query share the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from ...errors import StorageUnavailable
from ..topic_partition import TopicPartition
from ..waiters import Waiters
from .log import SharedLog
from .meta import Meta, MetaUnavailable

logger = logging.getLogger(__name__)

# One query asks for no more, so that it holds neither the database nor the event loop for long.
_LOGS_PER_QUERY = 1000


class LogEnds:
    """Keeps the offsets of open logs up to date.

    ``on_change`` gets each log whose offsets moved, and by how much.

    Its arguments are the log, the bytes that it grew by (1 if they are not known), and whether its start moved.
    ``adopt`` takes all logs over from another history of the metadata.
    """

    def __init__(
        self,
        *,
        meta: Meta,
        logs: Mapping[TopicPartition, SharedLog],
        waiters: Waiters,
        on_grown: Callable[[SharedLog, int], None],
        on_start_moved: Callable[[SharedLog], None],
        adopt: Callable[[int], Awaitable[None]],
        poll_interval_ms: int,
        idle_poll_interval_ms: int,
    ) -> None:
        self._meta = meta
        self._logs = logs
        self._waiters = waiters
        self._on_grown = on_grown
        self._on_start_moved = on_start_moved
        self._adopt = adopt
        self._poll_interval_ms = poll_interval_ms
        self._idle_poll_interval_ms = idle_poll_interval_ms
        self._asked: set[SharedLog] = set()
        self._next: asyncio.Future[None] | None = None
        self._query: asyncio.Task[None] | None = None
        self._poll: asyncio.Task[None] | None = None
        # The place of the next poll among the logs that are waited for.
        self._next_waited = 0
        self._is_reachable = True

    def start(self) -> None:
        """Begin to poll."""
        self._poll = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; refreshes that wait fail."""
        for task in (self._poll, self._query):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._next is not None and not self._next.done():
            self._next.set_exception(StorageUnavailable("the refresh", "the broker is closing"))
            self._next.exception()

    async def refresh(self, names: Collection[TopicPartition]) -> bool:
        """See ``LogEngine.refresh``."""
        logs = [log for name in names if (log := self._logs.get(name)) is not None]
        if not logs:
            return False
        self._asked.update(logs)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        answer = self._next
        if self._query is None:
            self._query = asyncio.create_task(self._answer())
        known = [(log.next_offset, log.last_stable_offset) for log in logs]
        await asyncio.shield(answer)
        # A poll may have been the first to learn of the new end.
        return known != [(log.next_offset, log.last_stable_offset) for log in logs]

    async def _answer(self) -> None:
        """Ask for what is wanted, until nothing is."""
        try:
            while self._next is not None:
                # The next query answers later calls.
                logs, answer = self._asked, self._next
                self._asked, self._next = set(), None
                try:
                    await self._ask(logs)
                except MetaUnavailable as error:
                    answer.set_exception(StorageUnavailable("finding out the end of a log", str(error)))
                    # The callers may have given up.
                    answer.exception()
                else:
                    answer.set_result(None)
        finally:
            self._query = None

    async def _ask(self, logs: Collection[SharedLog]) -> None:
        """Bring logs up to date."""
        ordered = sorted(logs, key=lambda log: log.log_id)
        for first in range(0, len(ordered), _LOGS_PER_QUERY):
            part = ordered[first : first + _LOGS_PER_QUERY]
            rows = await self._meta.moved_logs([log.known for log in part])
            if not rows:
                continue
            history = max(row.history for row in rows.values())
            if any(history > log.history for log in part):
                await self._adopt(history)
            for log in part:
                row = rows.get(log.log_id)
                if row is None:
                    continue
                start, size = log.log_start_offset, log.size_bytes
                log.update(row)
                if log.has_news:
                    self._on_grown(log, max(log.size_bytes - size, 1))
                if log.log_start_offset != start:
                    self._on_start_moved(log)

    def _waited(self) -> set[SharedLog]:
        """Return the logs with waiting readers, or the next 1,000 of them.

        So what a poll costs is bounded, here and in the database.
        """
        names = self._waiters.waited()
        if len(names) > _LOGS_PER_QUERY:
            first = self._next_waited % len(names)
            self._next_waited = first + _LOGS_PER_QUERY
            names = [*names[first:], *names[:first]][:_LOGS_PER_QUERY]
        return {log for name in names if (log := self._logs.get(name)) is not None}

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        idle_at_s = loop.time()
        while True:
            await asyncio.sleep(self._poll_interval_ms / 1000)
            if loop.time() >= idle_at_s:
                logs = set(self._logs.values())
                idle_at_s = loop.time() + self._idle_poll_interval_ms / 1000
            else:
                logs = self._waited()
            try:
                await self._ask(logs)
            except MetaUnavailable as error:
                if self._is_reachable:
                    logger.warning("appends of other brokers are not noticed: %s", error)
                self._is_reachable = False
            except Exception:  # the edge of a task: one failed poll is no reason to stop
                logger.exception("a poll for the ends of logs failed")
            else:
                self._is_reachable = True
