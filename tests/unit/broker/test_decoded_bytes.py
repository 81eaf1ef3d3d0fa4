"""The memory of unpacked batches: who has no room waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.broker.reading.decoded_bytes import DecodedBytes
from app.errors import ReadMemoryFull
from app.tcp.begun_work import begin_now, go_on
from tests.support.simulated_time import simulated


@simulated
async def test_a_read_waits_for_room_and_no_longer_than_it_may() -> None:
    pool = DecodedBytes(100)
    await pool.acquire(100, "a page")
    with pytest.raises(ReadMemoryFull):
        await pool.acquire(50, "a page", 1)
    assert (pool.waiting, pool.in_use) == (0, 100)
    waiting = asyncio.create_task(pool.acquire(50, "a page"))
    await asyncio.sleep(1)
    pool.release(100)
    await waiting
    assert pool.in_use == 50


@simulated
async def test_a_read_that_is_cancelled_gives_up_its_turn() -> None:
    pool = DecodedBytes(100)
    await pool.acquire(100, "a page")
    waiting = asyncio.create_task(pool.acquire(50, "a page"))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    pool.release(100)
    assert (pool.waiting, pool.in_use) == (0, 0)


@simulated
async def test_a_read_that_waits_for_room_begins_without_a_task() -> None:
    pool = DecodedBytes(100)
    await pool.acquire(100, "a page")
    work = pool.acquire(50, "a page")
    # Not in this task: a listener begins reads in a callback of the event loop.
    began: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: began.set_result(begin_now(work)))
    awaited, _ = await began
    pool.release(100)
    await go_on(work, awaited)
    assert pool.in_use == 50
