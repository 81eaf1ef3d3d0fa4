"""The ends of leases: acknowledged, given back or extended.

A lease ends by its ack, by a nack, when it expires, or because its partitions
were assigned to another member. Leases are not stored, and need not be: a lease
that this process does not know is in force as long as no other client was given
its records and the committed offset is still the one from which they were read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from ..broker.broker import Broker
from ..clock import Clock
from ..errors import (
    IllegalGeneration,
    LeaseFenced,
    PartitionNotAssigned,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMember,
)
from .checks import check_group_id
from .coordinator import GroupCoordinator
from .lease import ACKED_BY, LEASE_MS_MIN, Lease, LeasedPartition, check_lease_ms
from .lease_pool import HeldLease, LeasePool, LeasePools
from .lease_positions import LeasePositions
from .messages import OffsetToCommit
from .poll_member import PollMember
from .redelivery import Redelivery

_ENDED_REMEMBERED = 10_000


class LeaseSettlement:
    """Settles leases by their tokens, and remembers those that clients have settled."""

    def __init__(
        self,
        *,
        broker: Broker,
        coordinator: GroupCoordinator,
        clock: Clock,
        pools: LeasePools,
        member: PollMember,
        positions: LeasePositions,
        redelivery: Redelivery,
    ) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._clock = clock
        self._pools = pools
        self._member = member
        self._positions = positions
        self._redelivery = redelivery
        # Leases that clients ended, True by an ack. A client whose answer was lost sends it again.
        self._ended: OrderedDict[str, bool] = OrderedDict()

    # ── ack ──

    async def ack(self, group: str, token: str) -> Sequence[LeasedPartition]:
        """See ``LeaseManager.ack``."""
        lease = Lease.of_token(group, token)
        # Once begun, an ack completes even if the client disconnects.
        return await asyncio.shield(asyncio.ensure_future(self._ack(lease)))

    async def _ack(self, lease: Lease) -> Sequence[LeasedPartition]:
        while True:
            if self._was_acked(lease):
                return lease.partitions
            pool, held = self._find(lease)
            if not held.is_settling:
                break
            # The same ack came before, and its client no longer waits for the answer.
            await pool.wait_for_change(self._broker.settings.request_timeout_ms)
        held.is_settling = True
        try:
            await self._commit(pool, held.lease)
        except LeaseFenced:
            self._pools.free(pool, held)
            raise
        except BaseException:
            held.is_settling = False
            if held.expires_at_ms <= self._clock.now_ms():
                self._pools.free(pool, held)
            raise
        for part in lease.partitions:
            pool.failures.pop(part.key, None)
        self._remember(lease, is_acked=True)
        self._pools.free(pool, held)
        return lease.partitions

    async def _commit(self, pool: LeasePool, lease: Lease) -> None:
        offsets = [
            OffsetToCommit(
                topic=part.topic,
                partition=part.partition,
                offset=part.next_offset,
                metadata=f"{ACKED_BY}{lease.lease_id}",
            )
            for part in lease.partitions
        ]
        timeout_ms = self._broker.settings.request_timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            try:
                membership = self._coordinator.membership(pool.group, pool.member_id)
                results = await self._coordinator.commit_assigned(membership, pool.group, offsets)
            except RebalanceInProgress:
                left_ms = deadline_ms - self._clock.monotonic_ms()
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

    def _was_acked(self, lease: Lease) -> bool:
        if lease.lease_id in self._ended:
            return self._ended[lease.lease_id]
        committed = self._coordinator.committed(lease.group, [part.key for part in lease.partitions])
        return all(
            offset.offset == part.next_offset and offset.metadata == f"{ACKED_BY}{lease.lease_id}"
            for offset, part in zip(committed, lease.partitions, strict=True)
        )

    def _remember(self, lease: Lease, *, is_acked: bool) -> None:
        self._ended[lease.lease_id] = is_acked
        if len(self._ended) > _ENDED_REMEMBERED:
            self._ended.popitem(last=False)

    # ── nack and extend ──

    async def nack(self, group: str, token: str) -> None:
        """See ``LeaseManager.nack``."""
        pool, held = self._find(Lease.of_token(group, token))
        if held.is_settling:
            raise LeaseFenced(group, "it is being acknowledged")
        self._remember(held.lease, is_acked=False)
        counting = self._redelivery.fail(pool, held)
        if counting is not None:
            await asyncio.shield(counting)

    def extend(self, group: str, token: str, lease_ms: int) -> int:
        """See ``LeaseManager.extend``."""
        check_lease_ms(lease_ms)
        _, held = self._find(Lease.of_token(group, token))
        held.expires_at_ms = self._clock.now_ms() + lease_ms
        held.timer.start(lease_ms)
        return held.expires_at_ms

    # ── finding a lease ──

    def _find(self, lease: Lease) -> tuple[LeasePool, HeldLease]:
        """Return the lease in force, or put it in force again. Raises ``LeaseFenced``."""
        check_group_id(lease.group)
        pool = self._pools.get(lease.group)
        membership = self._member.find(pool)
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
        for part in lease.partitions:
            if part.key in pool.taken:
                raise LeaseFenced(lease.group, "it ran out, and another poll has its records")
            if not membership.is_rebalancing and part.key not in membership.assigned:
                raise LeaseFenced(lease.group, "its partitions were assigned to another member")
            if not self._positions.is_next(lease.group, part):
                raise LeaseFenced(lease.group, "its records were acknowledged by another")
        # It expired and no other client was given its records, or it is from before a restart.
        held = self._pools.hold(
            pool, lease, lease_ms=LEASE_MS_MIN, poll_id=None, expire=self._redelivery.expire
        )
        return pool, held
