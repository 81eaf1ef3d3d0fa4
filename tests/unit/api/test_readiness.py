"""When load balancers are told that a broker is ready."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from uuid import UUID

from app.broker.cluster import SharedCluster
from app.cluster.membership import Member
from tests.support.model_groups import Faults, ModelDatabase, ModelMembership
from tests.support.served_bench import serving
from tests.support.simulated_time import simulated


def member(number: int) -> Member:
    return Member(broker_id=number, incarnation=UUID(int=number), rack=None, endpoints={})


@simulated
async def test_a_broker_that_leaves_is_not_ready_although_it_serves_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, _, http):
        database = ModelDatabase(bench.clock)
        clusters = [
            SharedCluster(
                ModelMembership(database, Faults(Random(1))), clock=bench.clock, displaced=lambda: None
            )
            for _ in range(2)
        ]
        for number, cluster in enumerate(clusters, start=1):
            await cluster.join(member(number))
        bench.broker.cluster = clusters[0]
        assert (await http.get("/readyz")).status_code == 200
        leave = asyncio.create_task(clusters[0].leave())
        await asyncio.sleep(0)
        ready = await http.get("/readyz")
        assert (ready.status_code, "shutting down" in ready.text) == (503, True)
        written = await http.post("/v1/topics/orders/records", json={"records": [{"value": "x"}]})
        assert written.status_code == 200, written.text
        assert not leave.done(), "it was written while the broker left"
        await leave
        for cluster in clusters:
            await cluster.close()
