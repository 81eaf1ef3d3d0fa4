"""The writer of the group store: concurrent changes share one transaction.

A round takes all changes that wait, writes them in the store's own thread and
answers. Changes submitted meanwhile are the next round. So a commit waits for at
most two syncs, and a thousand concurrent commits cost as many syncs as one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import TypeVar

from ...cluster.group_store import GroupStore, StoreChange, StoredGroups
from ...cluster.transaction_store import OutcomeRecord, StoredAnswer, StoredTransactions
from ...errors import CoordinatorNotAvailable, SteleError
from .parking import ANSWERS_PER_TURN

_T = TypeVar("_T")

logger = logging.getLogger(__name__)

# Longer rounds would delay the changes after them. The listeners bound what waits: each change
# belongs to an unanswered request.
_ROUND_CHANGES_MAX = 10_000
# The markers of a transaction that take as long as one answer, about 25 µs each.
_MARKERS_PER_ANSWER = 4


def _markers(changes: Sequence[StoreChange]) -> int:
    """Return how many partitions get a marker once ``changes`` are stored."""
    return sum(len(change.partitions) for change in changes if isinstance(change, OutcomeRecord))


class StoreWriter:
    """Owns the store and its thread, unless several stores share ``thread``."""

    def __init__(self, store: GroupStore, thread: ThreadPoolExecutor | None = None) -> None:
        self._store = store
        self._owns_thread = thread is None
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="stele-groups")
        self._queue: deque[tuple[Sequence[StoreChange], Callable[[SteleError | None], None]]] = deque()
        self._rounds: asyncio.Task[None] | None = None

    async def open(self) -> StoredGroups:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._store.open)

    async def transactions(self) -> StoredTransactions:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._store.transactions)

    async def answer_ages(self) -> Sequence[tuple[str, int]]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._store.answer_ages)

    async def answer(self, key: str) -> StoredAnswer | None:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._store.answer, key)

    def run(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run ``call`` in the thread of the store, which has it before this returns."""
        return asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def drain(self) -> None:
        """Write what was submitted."""
        while self._rounds is not None:
            await asyncio.shield(self._rounds)

    async def close(self) -> None:
        """Write what was submitted, then close the store."""
        await self.drain()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        if self._owns_thread:
            self._thread.shutdown()

    def submit(self, changes: Sequence[StoreChange], done: Callable[[SteleError | None], None]) -> None:
        """Write ``changes`` in the next round.

        ``done`` is called on the loop, in the order of the calls: with None once the changes are
        durable, or with the error.
        """
        self._queue.append((changes, done))
        if self._rounds is None:
            # Outside the context of the first request, because a round writes the changes of many.
            self._rounds = asyncio.create_task(self._write_rounds(), context=Context())

    async def _write_rounds(self) -> None:
        try:
            while self._queue:
                await self._write_round()
        finally:
            self._rounds = None

    async def _write_round(self) -> None:
        changes: list[StoreChange] = []
        waiting: list[tuple[Callable[[SteleError | None], None], float]] = []
        while self._queue and len(changes) < _ROUND_CHANGES_MAX:
            more, done = self._queue.popleft()
            changes += more
            waiting.append((done, 1 + _markers(more) / _MARKERS_PER_ANSWER))
        failure: SteleError | None = None
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.write, changes)
        except SteleError as error:
            logger.error("%d changes of groups were not stored: %s", len(changes), error)
            failure = error
        except Exception:
            # The edge of a task: the requests must be answered, whatever happened.
            logger.exception("%d changes of groups were not stored", len(changes))
            failure = CoordinatorNotAvailable("a change could not be stored; the broker's log says why")
        left = ANSWERS_PER_TURN
        for done, weight in waiting:
            if left <= 0:
                # Thousands of consumers may have committed at the same moment. This is no ``pause``, which would let them
                # wait for each walk over many partitions.
                await asyncio.sleep(0)
                left = ANSWERS_PER_TURN
            try:
                done(failure)
            except Exception:
                logger.exception("a group failed to apply a change that was written")
            left -= weight
