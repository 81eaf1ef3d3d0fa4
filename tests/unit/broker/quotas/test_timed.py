"""The time that a coroutine holds the event loop, on a clock that a test turns."""

from __future__ import annotations

import asyncio

import pytest

from app.broker.quotas.timed import HeldTime


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> None:
        self.now_s += seconds


async def test_steps_count_and_waits_do_not() -> None:
    clock = Clock()
    held = HeldTime(clock)
    gate = asyncio.Event()

    async def inner() -> None:
        clock.work(1)
        await gate.wait()
        clock.work(2)

    async def request() -> str:
        clock.work(4)
        await inner()
        clock.work(8)
        return "answer"

    async def others() -> None:
        clock.work(1000)
        gate.set()

    answer, _ = await asyncio.gather(held.run(request()), others())
    assert answer == "answer"
    assert held.seconds == 15


async def test_a_failure_and_its_time_pass_through() -> None:
    clock = Clock()
    held = HeldTime(clock)

    async def request() -> None:
        await asyncio.sleep(0)
        clock.work(3)
        raise KeyError("lost")

    with pytest.raises(KeyError):
        await held.run(request())
    assert held.seconds == 3


async def test_a_cancellation_reaches_the_coroutine() -> None:
    clock = Clock()
    held = HeldTime(clock)
    cleaned = asyncio.Event()

    async def request() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            clock.work(5)
            cleaned.set()

    task = asyncio.create_task(held.run(request()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()
    assert held.seconds == 5
