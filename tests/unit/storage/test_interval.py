"""The time between two rounds changes at once."""

from __future__ import annotations

import asyncio

from app.storage.disk.interval import Interval

NEVER_MS = 2**63 - 1


async def test_a_wait_passes_and_the_next_one_too() -> None:
    interval = Interval(0)
    assert [await interval.passes() for _ in range(2)] == [True, True]


async def test_a_change_takes_effect_on_a_wait_that_has_begun() -> None:
    interval = Interval(NEVER_MS)
    waiting = asyncio.create_task(interval.passes())
    await asyncio.sleep(0)
    interval.change(NEVER_MS - 1)
    await asyncio.sleep(0)
    assert not waiting.done()
    interval.change(10)
    assert await waiting is True
    assert interval.interval_ms == 10


async def test_stopping_ends_a_wait_and_all_later_ones() -> None:
    interval = Interval(NEVER_MS)
    waiting = asyncio.create_task(interval.passes())
    await asyncio.sleep(0)
    interval.stop()
    assert await waiting is False
    assert await interval.passes() is False
