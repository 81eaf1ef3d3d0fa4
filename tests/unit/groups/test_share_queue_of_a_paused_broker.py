"""A broker that may have lost its groups to another one gives out no records of a share group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.errors import NotCoordinator
from app.groups.share_queue import SharePoll, ShareQueue
from app.work_budget import at_once
from tests.support.leases import TOPIC, lease_bench
from tests.support.simulated_time import simulated


@simulated
async def test_a_poll_that_waited_while_the_lease_ended_takes_nothing(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        queue = ShareQueue(broker=bench.broker, shares=bench.coordinator.shares)
        # What the lease would say; none has ended yet.
        ended: list[NotCoordinator] = []

        def check() -> None:
            for error in ended:
                raise error

        bench.coordinator.check_each_call(check)
        polling = asyncio.ensure_future(
            queue.poll(
                SharePoll(
                    group="g",
                    topics=frozenset({TOPIC}),
                    records_max=10,
                    bytes_max=1 << 20,
                    wait_ms=30_000,
                    reset="earliest",
                )
            )
        )
        await asyncio.sleep(1)
        assert not polling.done()
        ended.append(NotCoordinator(2))
        await bench.produce("a")
        with pytest.raises(NotCoordinator):
            await polling
        ended.clear()
        (offsets, *_) = at_once(bench.coordinator.shares.offsets("g"))
        assert offsets.acquired == 0
