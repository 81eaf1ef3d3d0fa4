"""The waiting polls of each group, its leases, and what is given out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ...clock import Clock
from ..base.consumer_protocol import AssignedPartition
from ..base.messages import NO_MEMBER, EndedOffsets
from ..base.timers import Timer
from ..table import GroupTable
from .lease import Lease


@dataclass(slots=True)
class HeldLease:
    """A lease that is in force.

    ``is_settling``: its ack is on its way to the store, so its expiry does not matter. ``producer_id``:
    its ack is part of an open transaction of this producer; then it is settling until the transaction ends.
    """

    lease: Lease
    expires_at_ms: int
    timer: Timer
    poll_id: str | None
    is_settling: bool = False
    producer_id: int | None = None


@dataclass(slots=True)
class LeasePool:
    """All polls of one group.

    ``member_id``, ``topics`` and ``session_timeout_ms`` are those of the managed member
    that the polls share. ``polling`` counts the polls that have not returned, ``counting``
    the failures on their way to the store, ``turns`` the rounds over the partitions.
    ``held`` has the leases in force by id. ``taken`` has the partitions that are given out:
    the id of the lease, or None while its records are read. ``failures`` has the failed
    deliveries per partition: from which offset on, and how many.
    """

    group: str
    member_id: str = NO_MEMBER
    topics: frozenset[str] = frozenset()
    session_timeout_ms: int = 0
    polling: int = 0
    counting: int = 0
    turns: int = 0
    held: dict[str, HeldLease] = field(default_factory=dict[str, HeldLease])
    taken: dict[AssignedPartition, str | None] = field(default_factory=dict[AssignedPartition, str | None])
    failures: dict[AssignedPartition, tuple[int, int]] = field(
        default_factory=dict[AssignedPartition, tuple[int, int]]
    )
    waiters: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])

    @property
    def is_idle(self) -> bool:
        return not (self.polling or self.counting or self.held or self.taken)

    def held_for(self, poll_id: str | None, topics: frozenset[str]) -> HeldLease | None:
        """Return the lease in force that a poll of ``topics`` with ``poll_id`` got.

        Not one with records of other topics: the client may not be allowed to read those. Not one that a
        transaction acknowledges: its records must not be handled again before it ends.
        """
        if poll_id is None:
            return None
        return next(
            (
                held
                for held in self.held.values()
                if held.poll_id == poll_id
                and held.producer_id is None
                and all(part.topic in topics for part in held.lease.partitions)
            ),
            None,
        )

    def wake(self) -> None:
        """End all calls of ``wait_for_change``."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for_change(self, timeout_ms: int) -> None:
        """Return after a change of the pool or its group, or after ``timeout_ms``."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=timeout_ms / 1000)
        finally:
            self.waiters.discard(waiter)


class LeasePools:
    """The pools by group. A pool is listed while it is in use."""

    def __init__(self, table: GroupTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._pools: dict[str, LeasePool] = {}
        # The leases in force that have records of a topic, by their ids.
        self._of_topic: dict[str, dict[str, tuple[LeasePool, HeldLease]]] = {}
        table.watch(self._group_changed)
        table.watch_ends(self._offsets_ended)

    def wake_all(self) -> None:
        for pool in self._pools.values():
            pool.wake()

    def forget_all(self) -> None:
        """End all leases and polls, because another broker has the groups now."""
        for pool in self._pools.values():
            for held in pool.held.values():
                held.timer.stop()
            pool.wake()
        self._pools.clear()
        self._of_topic.clear()

    def forget_topic(self, topic: str) -> None:
        """End the leases on records of a topic that was deleted."""
        for pool, held in list(self._of_topic.get(topic, {}).values()):
            self.free(pool, held)

    def _group_changed(self, group: str) -> None:
        pool = self._pools.get(group)
        if pool is not None:
            pool.wake()
            self.drop_if_idle(pool)

    def _offsets_ended(self, ended: EndedOffsets) -> None:
        # Partitions whose committed offset was not stable are free again.
        for group in ended.groups:
            pool = self._pools.get(group)
            if pool is not None:
                pool.wake()

    def get(self, group: str) -> LeasePool:
        """Return the pool of ``group``, or an empty one that is not listed."""
        return self._pools.get(group) or LeasePool(group)

    def add(self, pool: LeasePool) -> None:
        """List a pool from ``get``."""
        self._pools[pool.group] = pool

    def drop_if_idle(self, pool: LeasePool) -> None:
        """Forget a pool that is not in use; its member stays until its session times out."""
        if pool.is_idle and self._pools.get(pool.group) is pool:
            del self._pools[pool.group]

    def hold(
        self,
        pool: LeasePool,
        lease: Lease,
        *,
        lease_ms: int,
        poll_id: str | None,
        expire: Callable[[LeasePool, HeldLease], None],
    ) -> HeldLease:
        """Put ``lease`` in force for ``lease_ms``; ``expire`` is called when that time is over."""
        held = HeldLease(
            lease=lease,
            expires_at_ms=self._clock.now_ms() + lease_ms,
            timer=Timer(self._table.scheduler, lambda: expire(pool, held)),
            poll_id=poll_id,
        )
        self.add(pool)
        pool.held[lease.lease_id] = held
        for part in lease.partitions:
            pool.taken[part.key] = lease.lease_id
            self._of_topic.setdefault(part.topic, {})[lease.lease_id] = (pool, held)
        held.timer.start(lease_ms)
        return held

    def free(self, pool: LeasePool, held: HeldLease) -> None:
        """End a lease, and wake the polls that wait for its partitions."""
        held.timer.close()
        pool.held.pop(held.lease.lease_id, None)
        for part in held.lease.partitions:
            if pool.taken.get(part.key) == held.lease.lease_id:
                del pool.taken[part.key]
            if of_topic := self._of_topic.get(part.topic):
                of_topic.pop(held.lease.lease_id, None)
                if not of_topic:
                    del self._of_topic[part.topic]
        pool.wake()
        self.drop_if_idle(pool)
