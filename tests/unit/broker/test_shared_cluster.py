"""A broker that was paused knows that its lease may have ended before it answers anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from app.broker.cluster import SharedCluster
from app.cluster.membership import (
    LEASE_RENEW_INTERVAL_MS,
    ClusterState,
    Lease,
    Member,
    MemberEndpoint,
)


class HandClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_000

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms


class OneLease:
    """A membership with one broker, and a lease whose epoch a test sets."""

    def __init__(self) -> None:
        self.epoch: int | None = 1
        self.member: Member | None = None
        # Called in the thread of the membership while a renewal is on its way.
        self.during_renewal: Callable[[], object] = lambda: None

    def register(self, member: Member, *, previous: UUID | None = None) -> bool:
        self.member = member
        return True

    def heartbeat(self, member: Member) -> None: ...

    def look(self) -> ClusterState:
        member, epoch = self.member, self.epoch
        if member is None:
            return ClusterState()
        if epoch is None:
            return ClusterState(members=(member,))
        lease = Lease(broker_id=1, incarnation=member.incarnation, epoch=epoch, expires_in_ms=6_000)
        return ClusterState(members=(member,), leases={"work": lease})

    def leave(self, member: Member) -> None: ...

    def acquire(self, name: str, member: Member) -> int | None:
        self.during_renewal()
        return self.epoch

    def release(self, name: str, member: Member) -> None: ...

    def close(self) -> None: ...


class Work:
    """Notes what the holder of the lease is told."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[str] = asyncio.Queue()

    async def begin(self, epoch: int) -> None:
        self.calls.put_nowait(f"begin {epoch}")

    async def end(self) -> None:
        self.calls.put_nowait("end")


MEMBER = Member(
    broker_id=1, incarnation=uuid4(), rack=None, endpoints={"http": MemberEndpoint("127.0.0.1", 1)}
)


async def joined(membership: OneLease, clock: HandClock) -> tuple[SharedCluster, Work]:
    cluster, work = SharedCluster(membership, clock=clock, displaced=lambda: None), Work()
    cluster.hold("work", work)
    await cluster.join(MEMBER)
    assert await work.calls.get() == "begin 1"
    return cluster, work


async def test_a_lease_is_not_held_once_another_broker_may_have_it() -> None:
    clock = HandClock()
    cluster, work = await joined(OneLease(), clock)
    assert cluster.is_held("work")
    clock.ms += 10_000
    # Before anything on the loop has run: a request may be the first to run.
    assert not cluster.is_held("work")
    assert await work.calls.get() == "end"
    assert await work.calls.get() == "begin 1"
    assert cluster.is_held("work")
    await cluster.close()


async def test_work_begins_again_if_another_broker_had_the_lease_during_a_renewal() -> None:
    membership, clock = OneLease(), HandClock()
    cluster, work = await joined(membership, clock)

    def replaced() -> None:
        membership.epoch = 3

    membership.during_renewal = replaced
    clock.ms += LEASE_RENEW_INTERVAL_MS
    assert await work.calls.get() == "end"
    assert await work.calls.get() == "begin 3"
    assert cluster.is_held("work")
    await cluster.close()


async def test_a_lease_that_another_broker_has_taken_ends_the_work() -> None:
    membership, clock = OneLease(), HandClock()
    cluster, work = await joined(membership, clock)
    membership.epoch = None
    clock.ms += LEASE_RENEW_INTERVAL_MS
    assert await work.calls.get() == "end"
    assert not cluster.is_held("work")
    await cluster.close()


@pytest.mark.parametrize("name", ["work", "other"])
async def test_nothing_is_held_before_a_broker_joins(name: str) -> None:
    cluster = SharedCluster(OneLease(), clock=HandClock(), displaced=lambda: None)
    cluster.hold("work", Work())
    assert not cluster.is_held(name)
