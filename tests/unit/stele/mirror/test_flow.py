"""How much is under way, and the rate."""

from __future__ import annotations

import asyncio

import pytest
from stele.mirror.flow import BYTES_MAX, Flow

from tests.support.simulated_time import run_simulated


def test_a_rate_is_kept_on_average() -> None:
    async def copy() -> float:
        flow = Flow(1000)
        for _ in range(10):
            await flow.room()
            flow.take(500)
            flow.give(500)
        await flow.room()
        return asyncio.get_running_loop().time()

    async def from_the_start() -> float:
        begun_s = asyncio.get_running_loop().time()
        return await copy() - begun_s

    assert run_simulated(from_the_start) == pytest.approx(5.0)


def test_a_fetch_waits_for_room() -> None:
    async def copy() -> None:
        flow = Flow(None)
        flow.take(BYTES_MAX)
        waiting = asyncio.create_task(flow.room())
        await asyncio.sleep(1)
        assert not waiting.done()
        flow.give(1)
        await waiting

    run_simulated(copy)


def test_a_slow_mirror_asks_for_little_at_a_time() -> None:
    assert Flow(None).fetch_bytes_max == BYTES_MAX
    assert Flow(1_000_000).fetch_bytes_max == 64 << 10
    assert Flow(20_000_000).fetch_bytes_max == 1_000_000
    assert Flow(1).fetch_bytes_max == 64 << 10
