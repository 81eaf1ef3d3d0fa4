"""FindCoordinator of a group that no broker has waits until one has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.groups import FindCoordinatorRequest, FindCoordinatorResponse

from app.broker.cluster import SharedCluster
from app.cluster.group_shards import lease_of_group
from app.cluster.leaders import ranked
from app.cluster.membership import ClusterState, Lease, Member, MemberEndpoint
from app.tcp.kafka.context import Context, KafkaListener
from app.tcp.kafka.handlers.groups.membership import FIND_MS, find_coordinator
from tests.support.one_lease import HandClock, OneLease
from tests.support.simulated_time import before, simulated

BROKERS = [
    Member(broker_id=n, incarnation=UUID(int=n), rack=None, endpoints={"kafka": MemberEndpoint("h", n)})
    for n in (1, 2)
]


class KnownState(OneLease):
    """A membership whose state a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()

    def look(self) -> ClusterState:
        return self.state


class Finding:
    """A broker of a cluster that is asked for coordinators."""

    def __init__(self) -> None:
        self._membership = KnownState()
        self._cluster = SharedCluster(self._membership, clock=HandClock(), displaced=lambda: None)

    async def know(self, *live: int, **holders: int) -> None:
        """Let the broker know who is alive, and who has the lease of each group."""
        leases = {
            lease_of_group(group): Lease(
                broker_id=n, incarnation=UUID(int=n), epoch=n, expires_in_ms=BROKERS[0].lease_ms
            )
            for group, n in holders.items()
        }
        members = tuple(member for member in BROKERS if member.broker_id in live)
        self._membership.state = ClusterState(members=members, leases=leases)
        await self._cluster.refresh()

    def ask(self, *groups: str, version: int = 4, key_type: int = 0) -> Any:
        listener = KafkaListener(
            broker=cast("Any", SimpleNamespace(cluster=self._cluster)),
            groups=cast("Any", None),
            transactions=cast("Any", None),
            fetch_sessions=cast("Any", None),
            host="h",
            port=1,
        )
        context = Context(listener=listener, version=version, client_id="", client_host="")
        request = FindCoordinatorRequest(key=groups[0], key_type=key_type, coordinator_keys=groups)
        return find_coordinator(context, request)

    async def begun(self, *groups: str, version: int = 4) -> asyncio.Task[FindCoordinatorResponse]:
        """Ask, and wait until the broker waits for news."""
        asking = asyncio.create_task(self.ask(*groups, version=version))
        await asyncio.sleep(0.001)
        assert not asking.done()
        return asking


def found(response: FindCoordinatorResponse, version: int = 4) -> Sequence[tuple[int, int]]:
    parts = response.coordinators if version >= 4 else [response]
    return [(part.error_code, part.node_id) for part in parts]


@pytest.mark.parametrize("version", [0, 3, 4])
@simulated
async def test_a_group_that_a_live_broker_has_is_found_at_once(version: int) -> None:
    finding = Finding()
    await finding.know(1, 2, a=2)
    assert found(finding.ask("a", version=version), version) == [(0, 2)]


@pytest.mark.parametrize("version", [0, 3, 4])
@simulated
async def test_the_response_waits_for_a_broker_to_take_the_lease(version: int) -> None:
    finding = Finding()
    await finding.know(1, 2)
    asking = await finding.begun("a", version=version)
    await finding.know(1, 2, a=1)
    await before(1, asking)
    assert found(asking.result(), version) == [(0, 1)]


@simulated
async def test_the_response_waits_for_the_holder_of_the_lease_to_be_alive() -> None:
    finding = Finding()
    await finding.know(1, a=2)
    asking = await finding.begun("a")
    await finding.know(1, 2, a=2)
    await before(1, asking)
    assert found(asking.result()) == [(0, 2)]


@simulated
async def test_the_response_waits_for_all_groups_it_is_asked_for() -> None:
    finding = Finding()
    await finding.know(1, 2, a=1)
    asking = await finding.begun("a", "b")
    await finding.know(1, 2, b=2)
    await asyncio.sleep(0.001)
    assert not asking.done()
    await finding.know(1, 2, a=2, b=1)
    await before(1, asking)
    assert found(asking.result()) == [(0, 2), (0, 1)]


@simulated
async def test_a_group_that_nobody_takes_is_said_to_be_at_the_broker_that_is_to_have_it() -> None:
    finding = Finding()
    await finding.know(1, 2, a=1)
    preferred = ranked(lease_of_group("b").encode(), BROKERS)[0].broker_id
    begun_s = asyncio.get_running_loop().time()
    response = await finding.ask("a", "b")
    assert asyncio.get_running_loop().time() - begun_s == pytest.approx(FIND_MS / 1000, abs=0.1)
    assert found(response) == [(0, 1), (0, preferred)]


@simulated
async def test_a_broker_that_is_dead_is_not_named_though_its_lease_has_not_ended() -> None:
    finding = Finding()
    await finding.know(1, a=2)
    assert found(await finding.ask("a")) == [(0, 1)]


@simulated
async def test_what_is_refused_is_refused_at_once() -> None:
    finding = Finding()
    await finding.know(1, 2)
    assert found(finding.ask("a", key_type=7)) == [(ErrorCode.INVALID_REQUEST, -1)]
