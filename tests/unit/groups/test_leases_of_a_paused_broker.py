"""A lease of records ends in time at a broker that may have lost its groups to another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.errors import NotCoordinator
from tests.support.leases import lease_bench, values
from tests.support.simulated_time import simulated


@simulated
async def test_a_lease_that_ends_while_the_broker_may_not_have_the_group_is_free_and_not_counted(
    tmp_path: Path,
) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.produce("a")
        assert values(await bench.poll(lease_ms=1000)) == ["a"]
        # What the lease of the group says.
        ended: list[NotCoordinator] = []

        def check() -> None:
            for error in ended:
                raise error

        bench.coordinator.check_each_call(check)
        ended.append(NotCoordinator(None))
        await asyncio.sleep(2)
        assert bench.leases.leases("g") == []
        # No other broker has taken the group.
        ended.clear()
        again = await bench.poll()
        assert values(again) == ["a"]
        assert [part.deliveries for part, _ in again.fetched] == [1]
