"""When a broker refuses groups: while it reads those it has taken over, and once another may have the lease.

A pause is noticed by the first call after it, before anything else runs on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from app.broker.cluster import SharedCluster
from app.cluster.membership import ClusterState, Member, MemberEndpoint
from app.errors import NotCoordinator
from app.groups.base.messages import CommitRequest, OffsetToCommit
from app.groups.services import Groups
from app.groups.shard_lease import ShardLease
from tests.support.groups import GroupBench
from tests.support.one_lease import HandClock, OneLease

MEMBER = Member(
    broker_id=1, incarnation=uuid4(), rack=None, endpoints={"http": MemberEndpoint("127.0.0.1", 1)}
)


class NotingLease(ShardLease):
    """Says when the broker has and when it serves the groups, once it ``may_begin``."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.begins = asyncio.Event()
        self.may_begin = asyncio.Event()
        self.has_begun = asyncio.Event()

    async def begin(self, epoch: int) -> None:
        self.begins.set()
        await self.may_begin.wait()
        await super().begin(epoch)
        self.has_begun.set()


class ChangingTopics(OneLease):
    """``version`` is that of the topics, which a test raises."""

    version = 1

    def look(self) -> ClusterState:
        return replace(super().look(), versions={"topics": self.version})


class LeaseBench:
    """Groups whose lease a broker takes once it has joined."""

    def __init__(self, bench: GroupBench) -> None:
        self.bench = bench
        self.coordinator = bench.coordinator
        self.clock = HandClock()
        self.membership = ChangingTopics()
        self.cluster = SharedCluster(self.membership, clock=self.clock, displaced=lambda: None)
        unused = cast("Any", SimpleNamespace(stand_by=lambda: None))
        groups = Groups(coordinator=bench.coordinator, leases=unused, queue=unused)
        epochs: list[int] = []
        self.lease = NotingLease(groups, lease="groups-00", take=epochs.append, cluster=self.cluster)

    async def join(self) -> None:
        await self.lease.stand_by()
        self.cluster.hold("groups-00", self.lease)
        await self.cluster.join(MEMBER)


@pytest.fixture
async def leased(tmp_path: Path) -> AsyncIterator[LeaseBench]:
    bench = await GroupBench(tmp_path).open()
    leased = LeaseBench(bench)
    yield leased
    await leased.cluster.close()
    await bench.close()


async def test_no_group_is_served_once_another_broker_may_have_the_lease(leased: LeaseBench) -> None:
    leased.lease.may_begin.set()
    await leased.join()
    await leased.lease.has_begun.wait()
    assert leased.cluster.is_held("groups-00")
    assert await leased.coordinator.list_groups() == []
    leased.clock.ms += 10_000
    # Nothing on the loop runs between the pause and this call.
    with pytest.raises(NotCoordinator):
        await leased.coordinator.list_groups()


async def test_a_broker_that_reads_its_groups_does_not_name_itself_as_another(leased: LeaseBench) -> None:
    await leased.join()
    await leased.lease.begins.wait()
    with pytest.raises(NotCoordinator, match="it has just taken over these and is still reading them; try"):
        await leased.coordinator.list_groups()
    leased.lease.may_begin.set()
    await leased.lease.has_begun.wait()
    assert await leased.coordinator.list_groups() == []


async def test_a_new_holder_keeps_the_offsets_of_a_topic_that_has_just_been_created(
    leased: LeaseBench,
) -> None:
    """The last holder may have committed offsets of topics that this broker has not noticed yet."""
    request = CommitRequest(group="g", offsets=[OffsetToCommit(topic="orders", partition=0, offset=7)])
    # What the last holder has stored.
    await leased.coordinator.table.existing_or_new("g").offsets.commit(request)
    created = leased.bench.topics.pop("orders")

    async def learn() -> None:
        if leased.membership.version > 1:
            leased.bench.topics["orders"] = created

    leased.cluster.observe("topics", learn)
    await leased.join()
    await leased.lease.begins.wait()
    leased.membership.version += 1
    leased.lease.may_begin.set()
    await leased.lease.has_begun.wait()
    assert [one.offset for one in leased.coordinator.committed("g")] == [7]
