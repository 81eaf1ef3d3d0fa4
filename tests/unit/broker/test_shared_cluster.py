"""A broker that was paused knows that its lease may have ended before it answers anything."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from app.broker.cluster import SharedCluster
from app.cluster.membership import ClusterState, Member, MemberEndpoint
from tests.support.one_lease import HandClock, OneLease


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


async def joined(
    membership: OneLease, clock: HandClock, member: Member = MEMBER
) -> tuple[SharedCluster, Work]:
    cluster, work = SharedCluster(membership, clock=clock, displaced=lambda: None), Work()
    cluster.hold("work", work)
    await cluster.join(member)
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


async def test_a_lease_is_held_as_long_as_the_session_timeout_of_the_broker_allows() -> None:
    clock = HandClock()
    cluster, work = await joined(OneLease(), clock, replace(MEMBER, session_timeout_ms=30_000))
    clock.ms += 29_000
    assert cluster.is_held("work")
    clock.ms += 1_000
    assert not cluster.is_held("work")
    assert await work.calls.get() == "end"
    await cluster.close()


async def test_work_begins_again_if_another_broker_had_the_lease_during_a_renewal() -> None:
    membership, clock = OneLease(), HandClock()
    cluster, work = await joined(membership, clock)

    def replaced() -> None:
        membership.epoch = 3

    membership.during_renewal = replaced
    clock.ms += MEMBER.renew_interval_ms
    assert await work.calls.get() == "end"
    assert await work.calls.get() == "begin 3"
    assert cluster.is_held("work")
    await cluster.close()


async def test_a_lease_that_another_broker_has_taken_ends_the_work() -> None:
    membership, clock = OneLease(), HandClock()
    cluster, work = await joined(membership, clock)
    membership.epoch = None
    clock.ms += MEMBER.renew_interval_ms
    assert await work.calls.get() == "end"
    assert not cluster.is_held("work")
    await cluster.close()


class CountingLease(OneLease):
    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def look(self) -> ClusterState:
        self.looks += 1
        return super().look()


async def test_clients_that_ask_for_unknown_topics_share_a_bounded_number_of_looks() -> None:
    membership = CountingLease()
    cluster = SharedCluster(membership, clock=HandClock(), displaced=lambda: None)
    await cluster.find()
    assert membership.looks == 1
    # They come sooner than the next look may begin, so they wait for it, together.
    await asyncio.gather(*(cluster.find() for _ in range(100)))
    assert membership.looks == 2
    # The answer of that one is too old for who comes now.
    await cluster.find()
    assert membership.looks == 3
    await cluster.close()


@pytest.mark.parametrize("name", ["work", "other"])
async def test_nothing_is_held_before_a_broker_joins(name: str) -> None:
    cluster = SharedCluster(OneLease(), clock=HandClock(), displaced=lambda: None)
    cluster.hold("work", Work())
    assert not cluster.is_held(name)
