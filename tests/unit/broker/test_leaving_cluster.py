"""A broker that leaves a cluster serves on until the others know, so that clients are not sent to it again."""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

from app.broker.cluster import SharedCluster
from app.cluster.membership import Member
from tests.support.model_groups import Faults, ModelDatabase, ModelMembership
from tests.support.simulated_time import SimulatedClock, simulated


class Three:
    """Three brokers on one model of the database; calls of the first may fail."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(asyncio.get_running_loop())
        self.faults = Faults(Random(1))
        database = ModelDatabase(self.clock)
        self.clusters = [
            SharedCluster(
                ModelMembership(database, self.faults if number == 1 else Faults(Random(1))),
                clock=self.clock,
                displaced=lambda: None,
            )
            for number in (1, 2, 3)
        ]

    async def join(self) -> None:
        for number, cluster in enumerate(self.clusters, start=1):
            await cluster.join(
                Member(broker_id=number, incarnation=UUID(int=number), rack=None, endpoints={})
            )
        for cluster in self.clusters:
            await cluster.refresh()

    def known(self) -> list[list[int]]:
        """The brokers that each of the three sends clients to."""
        return [[member.broker_id for member in cluster.members] for cluster in self.clusters]

    async def close(self) -> None:
        for cluster in self.clusters:
            await cluster.close()


@simulated
async def test_when_a_broker_has_left_no_broker_sends_clients_to_it() -> None:
    three = Three()
    await three.join()
    assert three.known() == [[1, 2, 3]] * 3
    await three.clusters[0].leave()
    assert three.known() == [[2, 3]] * 3
    await three.close()


@simulated
async def test_a_broker_that_leaves_says_so_while_it_serves_on() -> None:
    three = Three()
    await three.join()
    leaving, staying, _ = three.clusters
    assert not leaving.is_leaving
    leave = asyncio.create_task(leaving.leave())
    await asyncio.sleep(0)
    assert (leaving.is_leaving, staying.is_leaving, leave.done()) == (True, False, False)
    await leave
    await three.close()


@simulated
async def test_the_last_broker_waits_for_nobody() -> None:
    three = Three()
    await three.join()
    for cluster in three.clusters[1:]:
        await cluster.leave()
    begun_ms = three.clock.monotonic_ms()
    await three.clusters[0].leave()
    assert three.clock.monotonic_ms() - begun_ms < 100
    await three.close()


@simulated
async def test_a_broker_that_nobody_can_be_told_of_waits_for_nobody() -> None:
    three = Three()
    await three.join()
    three.faults.probability = 1.0
    begun_ms = three.clock.monotonic_ms()
    await three.clusters[0].leave()
    assert three.clock.monotonic_ms() - begun_ms < 100
    three.faults.probability = 0.0
    await three.close()
