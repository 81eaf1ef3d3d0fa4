"""Copies of mirrors give way to other clients, and to nobody else."""

from __future__ import annotations

import asyncio

import pytest

from app.broker.producing.copy_pace import CopyPace


class Broker:
    def __init__(self) -> None:
        self.activity = 0
        self.pace = CopyPace(lambda: self.activity)

    def copy(self, now_s: float, took_s: float) -> float:
        """Append a copy that takes so long, and return the pause before it."""
        pause_s = max(0.0, self.pace.pause_s(now_s))
        self.pace.worked(now_s + pause_s, now_s + pause_s + took_s)
        return pause_s


def test_a_copy_alone_waits_for_nobody() -> None:
    broker = Broker()
    assert [broker.copy(10.0 + number, 0.5) for number in range(5)] == [0] * 5


def test_beside_others_it_gets_a_tenth_of_the_time() -> None:
    broker, now_s, paused_s, worked_s = Broker(), 10.0, 0.0, 0.0
    for _ in range(100):
        broker.activity += 1
        pause_s = broker.copy(now_s, 0.001)
        now_s, paused_s, worked_s = now_s + pause_s + 0.001, paused_s + pause_s, worked_s + 0.001
    # But for the pause before the first.
    assert paused_s == pytest.approx(9 * worked_s, rel=0.02)


def test_once_they_are_gone_it_goes_on_as_before() -> None:
    broker = Broker()
    broker.copy(10.0, 0.001)
    broker.activity += 1
    assert broker.copy(10.001, 0.001) > 0
    assert broker.copy(10.1, 0.01) == 0, "its pause is over"
    assert broker.copy(10.11, 0.01) > 0, "they were there a moment ago"
    assert broker.copy(10.4, 0.01) == 0
    assert broker.copy(10.41, 0.01) == 0


async def test_a_copy_that_is_cancelled_is_in_nobodys_way() -> None:
    broker = Broker()
    broker.pace.worked(0.0, 10.0**9)
    broker.activity += 1

    async def append() -> None:
        async with broker.pace:
            pass

    waiting = asyncio.create_task(append())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    broker.pace.worked(0.0, 0.0)
    await append()
