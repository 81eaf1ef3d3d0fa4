"""A broker whose id another process has ends; one whose id an earlier incarnation of itself has does not.

A database that was promoted may know a broker by any incarnation that it ever had.
"""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

from app.broker.cluster import SharedCluster
from app.cluster.membership import Member
from tests.support.model_groups import Faults, ModelDatabase, ModelMembership
from tests.support.simulated_time import SimulatedClock, simulated


def incarnation(number: int) -> Member:
    return Member(broker_id=1, incarnation=UUID(int=number), rack=None, endpoints={})


class Displaced:
    """A broker that has joined; then the database knows an earlier incarnation of it, or another process."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(asyncio.get_running_loop())
        self.database = ModelDatabase(self.clock)
        self.other = ModelMembership(self.database, Faults(Random(1)))
        self.ends = 0
        self.cluster = SharedCluster(
            ModelMembership(self.database, Faults(Random(1))), clock=self.clock, displaced=self._end
        )

    def _end(self) -> None:
        self.ends += 1

    async def join(self) -> None:
        await self.cluster.join(incarnation(3))
        assert self.other.register(incarnation(1), previous=UUID(int=3))

    def registered(self) -> list[int]:
        return [member.incarnation.int for member in self.other.look().members]


@simulated
async def test_a_broker_goes_on_when_an_earlier_incarnation_counts_as_dead() -> None:
    world = Displaced()
    await world.join()
    await asyncio.sleep(60)
    assert world.ends == 0
    assert world.registered() == [3]
    await world.cluster.close()


@simulated
async def test_a_broker_ends_if_another_process_that_lives_has_its_id() -> None:
    world = Displaced()
    await world.join()
    for _ in range(60):
        await asyncio.sleep(1)
        world.other.heartbeat(incarnation(1))
    assert world.ends == 1
    assert world.registered() == [1]
    await world.cluster.close()
