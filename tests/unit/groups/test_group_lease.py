"""The groups of a broker that was paused are refused before anything on its loop has noticed the pause."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from app.broker.cluster import SharedCluster
from app.cluster.membership import Member, MemberEndpoint
from app.errors import NotCoordinator
from app.groups.group_lease import GroupLease
from app.groups.services import Groups
from tests.support.groups import GroupBench
from tests.support.one_lease import HandClock, OneLease

MEMBER = Member(
    broker_id=1, incarnation=uuid4(), rack=None, endpoints={"http": MemberEndpoint("127.0.0.1", 1)}
)


class NotingLease(GroupLease):
    """Says when the broker serves the groups."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.has_begun = asyncio.Event()

    async def begin(self, epoch: int) -> None:
        await super().begin(epoch)
        self.has_begun.set()


async def test_no_group_is_served_once_another_broker_may_have_the_lease(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path).open()
    clock = HandClock()
    cluster = SharedCluster(OneLease(), clock=clock, displaced=lambda: None)
    unused = cast("Any", SimpleNamespace(stand_by=lambda: None))
    groups = Groups(coordinator=bench.coordinator, leases=unused, queue=unused)
    epochs: list[int] = []
    lease = NotingLease(groups, lease="groups-00", take=epochs.append, cluster=cluster)
    await lease.stand_by()
    cluster.hold("groups-00", lease)
    await cluster.join(MEMBER)
    await lease.has_begun.wait()
    assert cluster.is_held("groups-00")
    assert bench.coordinator.list_groups() == []
    clock.ms += 10_000
    # Nothing on the loop runs between the pause and this call.
    with pytest.raises(NotCoordinator):
        bench.coordinator.list_groups()
    await cluster.close()
    await bench.close()
