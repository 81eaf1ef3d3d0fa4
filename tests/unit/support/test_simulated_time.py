"""Simulated time passes, whatever the clock says, and a wait that only its timeout ends is told apart."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.simulated_time import DeadlockError, before, run_simulated, simulated

YEAR_S = 365 * 24 * 3600.0


@simulated
async def test_timers_fire_where_a_float_has_no_nanoseconds_left() -> None:
    loop = asyncio.get_running_loop()
    for seconds in (YEAR_S, 0.001, 30 * YEAR_S, 0.001):
        due_s = loop.time() + seconds
        await asyncio.sleep(seconds)
        assert loop.time() == pytest.approx(due_s, abs=1e-5)


@simulated
async def test_a_wait_that_ends_by_its_timeout_is_not_before_it() -> None:
    await before(1, asyncio.sleep(0.5), asyncio.sleep(0.9))
    with pytest.raises(TimeoutError):
        await before(1, asyncio.sleep(2))


def test_waiting_for_nothing_at_all_fails() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run_simulated(main)
