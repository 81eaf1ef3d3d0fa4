"""The ends of leases: acknowledged, given back or extended.

A lease ends by its ack, by a nack, when it expires, or because its partitions
were assigned to another member. Its ack may be part of a transaction: see
``transactions``. Leases are not stored, and need not be: a lease
that this process does not know is in force as long as no other client was given
its records and the committed offset is still the one from which they were read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ...errors import (
    IllegalGeneration,
    LeaseFenced,
    PartitionNotAssigned,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMember,
)
from ..base.checks import check_group_id
from ..base.messages import Membership, OffsetToCommit, Results
from .context import LeaseContext
from .lease import ACKED_BY, LEASE_MS_MIN, Lease, LeasedPartition, check_lease_ms
from .pool import HeldLease, LeasePool

_ENDED_REMEMBERED = 10_000
# Why a lease cannot be settled: its records are settled when that transaction ends.
STAGED = "an open transaction acknowledges it, or gives it back"

# Commits offsets of partitions that are assigned to the member of a group.
CommitAssigned: TypeAlias = Callable[[Membership, str, Sequence[OffsetToCommit]], Awaitable[Results]]


class LeaseSettlement:
    """Settles leases by their tokens, and remembers those that clients have settled."""

    def __init__(self, context: LeaseContext) -> None:
        self._context = context
        # Leases that clients ended, True by an ack. A client whose answer was lost sends it again.
        self._ended: OrderedDict[str, bool] = OrderedDict()

    # ── ack ──

    async def ack(self, group: str, token: str) -> Sequence[LeasedPartition]:
        """Commit what a lease holds, and return it. A repeated ack gets the same answer.

        Raises:
            InvalidRequest: the token is not a lease of the group.
            LeaseFenced: its records were given, or assigned, to another client.
            GroupStoreFailed, CoordinatorNotAvailable: ack again.
        """
        lease = Lease.of_token(group, token)
        # Once begun, an ack completes even if the client disconnects.
        return await asyncio.shield(asyncio.ensure_future(self._ack(lease)))

    async def _ack(self, lease: Lease) -> Sequence[LeasedPartition]:
        await self.refresh(lease)
        while True:
            if self.was_acked(lease):
                return lease.partitions
            pool, held = self.find(lease)
            if held.producer_id is not None:
                raise LeaseFenced(lease.group, STAGED)
            if not held.is_settling:
                break
            # The same ack came before, and its client no longer waits for the answer.
            await pool.wait_for_change(self._context.broker.settings.request_timeout_ms)
        await self.keep(pool, held, self._context.coordinator.commit_assigned)
        self.acked(pool, held)
        return lease.partitions

    async def keep(self, pool: LeasePool, held: HeldLease, commit: CommitAssigned) -> None:
        """Commit what ``held`` holds, while the lease is settling.

        Raises:
            LeaseFenced: the lease is over.
            SteleError: whatever ``commit`` raises; the lease is in force as it was before.
        """
        held.is_settling = True
        try:
            await self._commit(pool, held.lease, commit)
        except LeaseFenced:
            self._context.pools.free(pool, held)
            raise
        except BaseException:
            held.is_settling = False
            if held.expires_at_ms <= self._context.clock.now_ms():
                self._context.pools.free(pool, held)
            raise

    def acked(self, pool: LeasePool, held: HeldLease) -> None:
        """End a lease whose offsets are committed."""
        for part in held.lease.partitions:
            pool.failures.pop(part.key, None)
        self.remember(held.lease, is_acked=True)
        self._context.pools.free(pool, held)

    async def _commit(self, pool: LeasePool, lease: Lease, commit: CommitAssigned) -> None:
        offsets = [
            OffsetToCommit(
                topic=part.topic,
                partition=part.partition,
                offset=part.next_offset,
                metadata=f"{ACKED_BY}{lease.lease_id}",
            )
            for part in lease.partitions
        ]
        timeout_ms = self._context.broker.settings.request_timeout_ms
        deadline_ms = self._context.clock.monotonic_ms() + timeout_ms
        while True:
            self._check_topics(lease)
            try:
                membership = self._context.coordinator.membership(pool.group, pool.member_id)
                results = await commit(membership, pool.group, offsets)
            except RebalanceInProgress:
                left_ms = deadline_ms - self._context.clock.monotonic_ms()
                if left_ms <= 0:
                    raise RequestTimedOut(
                        f"the rebalance of group {pool.group!r}", timeout_ms=timeout_ms
                    ) from None
                await pool.wait_for_change(left_ms)
            except (PartitionNotAssigned, UnknownMember, IllegalGeneration) as error:
                raise LeaseFenced(pool.group, "its partitions were assigned to another member") from error
            else:
                break
        for error in results:
            if error is not None:
                raise LeaseFenced(pool.group, str(error)) from error

    def was_acked(self, lease: Lease) -> bool:
        """True if the offsets of a lease were committed by its ack."""
        if lease.lease_id in self._ended:
            return self._ended[lease.lease_id]
        committed = self._context.coordinator.committed(lease.group, [part.key for part in lease.partitions])
        return all(
            offset.offset == part.next_offset and offset.metadata == f"{ACKED_BY}{lease.lease_id}"
            for offset, part in zip(committed, lease.partitions, strict=True)
        )

    def remember(self, lease: Lease, *, is_acked: bool) -> None:
        """Note that a client ended a lease."""
        self._ended[lease.lease_id] = is_acked
        if len(self._ended) > _ENDED_REMEMBERED:
            self._ended.popitem(last=False)

    # ── nack and extend ──

    async def nack(self, group: str, token: str) -> None:
        """Give a lease back, so that the next poll gets its records.

        Returns when the failure is counted.

        Raises:
            InvalidRequest, LeaseFenced: as ``ack``.
            GroupStoreFailed: the lease is given back, and the failure is not counted.
        """
        lease = Lease.of_token(group, token)
        await self.refresh(lease)
        pool, held = self.find(lease)
        if held.is_settling:
            raise LeaseFenced(group, "it is being acknowledged" if held.producer_id is None else STAGED)
        counting = self.give_back(pool, held)
        if counting is not None:
            await asyncio.shield(counting)

    def give_back(self, pool: LeasePool, held: HeldLease) -> asyncio.Future[Results] | None:
        """End a lease whose records were not handled; see ``Redelivery.fail``."""
        self.remember(held.lease, is_acked=False)
        return self._context.redelivery.fail(pool, held)

    def withdraw(self, lease: Lease) -> None:
        """End a lease that no client has got; its records count as not delivered."""
        pool = self._context.pools.get(lease.group)
        held = pool.held.get(lease.lease_id)
        if held is not None:
            self.remember(lease, is_acked=False)
            self._context.pools.free(pool, held)

    async def extend(self, group: str, token: str, lease_ms: int) -> int:
        """Hold a lease for ``lease_ms`` from now on; returns when it ends, in ms since the epoch.

        Raises ``InvalidRequest``, ``LeaseFenced``.
        """
        check_lease_ms(lease_ms)
        lease = Lease.of_token(group, token)
        await self.refresh(lease)
        _, held = self.find(lease)
        held.expires_at_ms = self._context.clock.now_ms() + lease_ms
        held.timer.start(lease_ms)
        return held.expires_at_ms

    # ── finding a lease ──

    async def refresh(self, lease: Lease) -> None:
        """Learn where the partitions of a lease end; awaited before ``find``.

        Another broker may have given out a lease that is not in force here, with records that are new here.
        """
        check_group_id(lease.group)
        if lease.lease_id not in self._context.pools.get(lease.group).held:
            await self._context.broker.refresh([part.key for part in lease.partitions])

    def _check_topics(self, lease: Lease) -> None:
        """Raise ``LeaseFenced`` if a topic of the lease is not the one whose records it has."""
        for part in lease.partitions:
            current = self._context.broker.topic_by_name(part.topic)
            if part.topic_id is not None and (current is None or current.topic_id != part.topic_id):
                raise LeaseFenced(lease.group, f"topic {part.topic!r} was deleted")

    def find(self, lease: Lease, *, producer_id: int | None = None) -> tuple[LeasePool, HeldLease]:
        """Return the lease in force, or put it in force again.

        ``producer_id``: the producer that acknowledges it in a transaction.

        Raises ``LeaseFenced``.
        """
        check_group_id(lease.group)
        self._check_topics(lease)
        pool = self._context.pools.get(lease.group)
        membership = self._context.member.find(pool)
        if membership is None:
            raise LeaseFenced(lease.group, "no client has polled the group for long, or it was reset")
        held = pool.held.get(lease.lease_id)
        parts = {part.key for part in lease.partitions}
        if held is not None:
            if {part.key for part in held.lease.partitions} != parts:
                raise LeaseFenced(lease.group, "it is not the one that was given out")
            return pool, held
        if lease.lease_id in self._ended:
            raise LeaseFenced(lease.group, "it was given back, or is acknowledged")
        staged_by = self._context.coordinator.transactional.producers(lease.group, parts)
        if staged_by - {producer_id}:
            # From before a restart: which lease the transaction acknowledges is no longer known.
            raise LeaseFenced(lease.group, STAGED)
        for part in lease.partitions:
            if part.key in pool.taken:
                raise LeaseFenced(lease.group, "it ran out, and another poll has its records")
            if not membership.is_rebalancing and part.key not in membership.assigned:
                raise LeaseFenced(lease.group, "its partitions were assigned to another member")
            if not self._context.positions.is_next(lease.group, part):
                raise LeaseFenced(lease.group, "its records were acknowledged by another")
        # It expired and no other client was given its records, or it is from before a restart.
        held = self._context.pools.hold(
            pool, lease, lease_ms=LEASE_MS_MIN, poll_id=None, expire=self._context.redelivery.expire
        )
        return pool, held
