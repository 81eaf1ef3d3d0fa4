"""Offsets of transactions that ended at any broker of a cluster (ADR-0055).

The end of a transaction marks its pending offsets in the database. The coordinator of the group commits or drops
them before it answers with an offset, and from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..cluster.group_store import EndPendingOffsets
from ..errors import SteleError
from .base.parking import answer
from .table import GroupTable

# Gets producers with the epochs of their pending offsets. Returns those whose transaction has ended, and whether it was
# committed.
AskEnded = Callable[[Sequence[tuple[int, int]]], Sequence[tuple[int, bool]]]


class EndedElsewhere:
    """Settles the pending offsets in ``table``.

    ``ask`` runs in the thread of its store.
    """

    def __init__(self, table: GroupTable, ask: AskEnded) -> None:
        self._table = table
        self._ask = ask
        self._running = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None

    async def settle(self) -> None:
        """Commit or drop the offsets of all transactions that had ended before the call.

        Those who call while one round runs share the next one.

        Raises ``CoordinatorNotAvailable``, ``CoordinatorFenced``, ``GroupStoreFailed``.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._round())
            # The callers may have given up.
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._next)

    async def _round(self) -> None:
        async with self._running:
            # Callers from now on need the next round.
            self._next = None
            if not self._table.is_open or not self._table.pending_producers:
                return
            await self._persist([])
            # What was submitted before is durable, and in memory, now; it may have settled all there was.
            pending = await self._table.pending_producers.identities()
            if not pending:
                return
            ended = await self._table.run_in_store(lambda: self._ask(pending))
            for producer_id, is_committed in ended:
                await self._persist(
                    [EndPendingOffsets(producer_id=producer_id, is_committed=is_committed)],
                    lambda: self._table.end_transaction(producer_id, is_committed=is_committed),  # noqa: B023 (awaited at once)
                )

    async def _persist(
        self, changes: Sequence[EndPendingOffsets], apply: Callable[[], None] | None = None
    ) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def written(error: SteleError | None) -> None:
            if error is None and apply is not None:
                apply()
            answer(stored, error)

        self._table.persist(changes, written)
        await stored
