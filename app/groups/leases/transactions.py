"""Acks of leases within transactions: consume, produce and settle a lease atomically.

A client stages the ack of its lease in its transaction. From then on the lease is
*settling*: it does not expire, no other client gets its records, and neither an ack
nor a nack ends it. When the transaction commits, the lease is acknowledged; when it
aborts, the lease is given back and counts as a failed delivery.

What protects the records is in the store, not in the lease: a partition with a
pending offset is given to no poll (``positions``). So the same holds after a
restart, which forgets leases, and after a rebalance, when the partition belongs to
another member. That member may commit and then wins, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ...errors import LeaseFenced
from ..base.messages import CommitRequest, EndedOffsets, Membership, OffsetToCommit, Results
from .context import LeaseContext
from .lease import Lease, LeasedPartition
from .pool import HeldLease, LeasePool
from .settlement import STAGED, LeaseSettlement

# Stages offsets in the open transaction of a producer, as ``GroupCoordinator.stage_offsets`` does.
StageOffsets: TypeAlias = Callable[[CommitRequest], Awaitable[Results]]


class LeaseTransactions:
    """Stages acks, and settles their leases when transactions end."""

    def __init__(self, context: LeaseContext, settlement: LeaseSettlement) -> None:
        self._context = context
        self._settlement = settlement
        self._staged: dict[int, list[tuple[LeasePool, HeldLease]]] = {}
        context.coordinator.table.watch_ends(self._ended)

    async def stage(
        self, group: str, token: str, *, producer_id: int, stage: StageOffsets
    ) -> Sequence[LeasedPartition]:
        """Commit what a lease holds within a producer's open transaction, and return it.

        ``stage`` keeps the offsets of a request in that transaction, and raises if it is not open or the
        producer is fenced; it ends in ``GroupCoordinator.stage_offsets`` with ``producer_id``. When this
        returns, the ack is durable as a part of the transaction. The lease then does not expire: it is
        acknowledged when the transaction commits, and given back when it aborts. A repeated call gets the
        same answer.

        Raises:
            InvalidRequest, LeaseFenced: as ``ack``; or another transaction acknowledges the lease.
            GroupStoreFailed, CoordinatorNotAvailable, and what ``stage`` raises: the lease is in force as before.
        """
        lease = Lease.of_token(group, token)
        # Once begun, it completes even if the client disconnects.
        return await asyncio.shield(asyncio.ensure_future(self._stage(lease, producer_id, stage)))

    async def _stage(self, lease: Lease, producer_id: int, stage: StageOffsets) -> Sequence[LeasedPartition]:
        coordinator = self._context.coordinator

        def stage_assigned(
            membership: Membership, group: str, offsets: Sequence[OffsetToCommit]
        ) -> Awaitable[Results]:
            return stage(coordinator.assigned_request(membership, group, offsets))

        await self._settlement.refresh(lease)
        while True:
            pool, held = self._settlement.find(lease, producer_id=producer_id)
            if held.producer_id == producer_id:
                # The same request came before, and its answer was lost.
                return lease.partitions
            if held.producer_id is not None:
                raise LeaseFenced(lease.group, STAGED)
            if not held.is_settling:
                break
            await pool.wait_for_change(self._context.broker.settings.request_timeout_ms)
        await self._settlement.keep(pool, held, stage_assigned)
        if producer_id in coordinator.transactional.producers(
            lease.group, [part.key for part in lease.partitions]
        ):
            held.producer_id = producer_id
            self._staged.setdefault(producer_id, []).append((pool, held))
        else:
            # The transaction ended before this ran, or a commit of another client came after it.
            self._settle(pool, held, is_committed=self._settlement.was_acked(lease))
        pool.wake()
        return lease.partitions

    def forget_all(self) -> None:
        """Forget what is staged.

        Its transactions may end at another broker, and later ones of their producers here.
        """
        self._staged.clear()

    def _ended(self, ended: EndedOffsets) -> None:
        for pool, held in self._staged.pop(ended.producer_id, ()):
            self._settle(pool, held, is_committed=ended.is_committed)

    def _settle(self, pool: LeasePool, held: HeldLease, *, is_committed: bool) -> None:
        if is_committed:
            self._settlement.acked(pool, held)
        else:
            self._settlement.give_back(pool, held)
