"""The probe of the event loop: what it counts, and whom it names."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator

import pytest

from app.monitor.loop_probe import BUCKETS_S, LoopProbe
from tests.support.waiting import eventually

HOLD_S = 0.06


@pytest.fixture
async def probe() -> AsyncIterator[LoopProbe]:
    probe = LoopProbe()
    probe.start()
    yield probe
    await probe.stop()


def count(probe: LoopProbe) -> int:
    return probe.histogram()[0][-1]


def longer_than(probe: LoopProbe, bound_s: float) -> int:
    counts, _ = probe.histogram()
    return counts[-1] - counts[BUCKETS_S.index(bound_s)]


def spin(seconds: float) -> None:
    """Use that much CPU time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def hold_until_noticed(probe: LoopProbe, bound_s: float = 0.025) -> None:
    while not longer_than(probe, bound_s):
        spin(HOLD_S)
        await asyncio.sleep(0)


async def test_a_turn_that_uses_the_cpu_is_a_hold_of_that_length(probe: LoopProbe) -> None:
    await hold_until_noticed(probe)
    assert probe.histogram()[1] >= 0.025


async def test_a_loop_that_waits_is_not_held(probe: LoopProbe) -> None:
    await asyncio.to_thread(eventually, lambda: count(probe) >= 3, "three looks of the probe")
    assert longer_than(probe, 0.01) == 0


async def test_a_call_that_keeps_the_interpreter_lock_is_a_hold(probe: LoopProbe) -> None:
    # The engine of regular expressions is one call into C.
    text = "a" * 2_000_000
    while not longer_than(probe, 0.005):
        re.fullmatch("(?:a|b)*c", text)
        await asyncio.sleep(0)


async def test_the_log_names_the_task_that_holds_the_loop(
    probe: LoopProbe, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "app.monitor.loop_probe")

    def named() -> list[str]:
        return [message for message in caplog.messages if "held for" in message and "task holder" in message]

    async def hold() -> None:
        while not named():
            spin(HOLD_S)
            await asyncio.sleep(0)

    await asyncio.create_task(hold(), name="holder")
    assert "spin" in named()[0]


async def test_it_ends_while_the_loop_is_held() -> None:
    probe = LoopProbe()
    probe.start()
    spin(HOLD_S)
    await probe.stop()
    counted = count(probe)
    await asyncio.sleep(0)
    assert count(probe) == counted
