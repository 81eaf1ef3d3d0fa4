"""Samples give correct rates and percentiles, and labels that stay."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from starlette.requests import Request

from app.api.routes.overview import get_overview, get_overview_history
from app.api.state import ApiState
from app.monitor.sampler import StickyNames, SyncTimes, TopicSize
from tests.support.http_application import application
from tests.support.simulated_time import SimulatedClock, simulated


@simulated
async def test_rates_and_durations_are_those_of_the_time_that_passed(tmp_path: Path) -> None:
    clock = SimulatedClock()
    async with application(tmp_path, clock) as app:
        state: ApiState = app.state.stele
        # Set back by ten minutes, and ahead by an hour.
        for turn_ms in (0, 0, -600_000, 3_600_000):
            clock.jump_ms += turn_ms
            state.broker.counts.appended_records += 500
            await state.sampler.sample()
            await asyncio.sleep(5)
        request = Request({"type": "http", "app": app, "query_string": b"", "headers": []})
        now = await get_overview(request)
        assert now["rates"] is not None
        assert (now["rates"]["over_ms"], now["rates"]["records_in_per_s"]) == (10_000, 100.0)
        assert now["uptime_ms"] == 20_000
        past = await get_overview_history(request)
        assert past["records_in_per_s"] == [100.0] * 3


class CountedName(str):
    """A name that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        CountedName.lookups += 1
        return super().__hash__()


@simulated
async def test_a_scrape_looks_at_each_topic_a_few_times_however_many_there_are(tmp_path: Path) -> None:
    async with application(tmp_path, SimulatedClock()) as app:
        state: ApiState = app.state.stele
        state.sampler.topic_sizes = {CountedName(f"t{n}"): TopicSize(1, 1, 1) for n in range(2000)}
        CountedName.lookups = 0
        text = generate_latest(app.state.registry).decode()
        assert 'stele_topic_records{topic="(others)"} 1800.0' in text
        assert CountedName.lookups < 10 * 2000


def test_the_times_of_syncs_are_taken_once() -> None:
    times = SyncTimes()
    for milliseconds in range(1, 101):
        times.observe(milliseconds / 1000)
    median_ms, p99_ms = times.take()
    assert (round(median_ms or 0), round(p99_ms or 0)) == (50, 99)
    assert times.take() == (None, None)
    assert times.count == 100


def test_a_name_keeps_its_label_until_it_is_gone() -> None:
    names = StickyNames(2)
    assert names.choose(["m", "n"]) == ["m", "n"]
    assert names.choose(["a", "m", "n"]) == ["m", "n"]
    assert names.choose(["a", "n"]) == ["n", "a"]


@given(st.lists(st.sets(st.integers(0, 30))), st.integers(0, 5))
def test_there_are_never_more_labels_than_allowed_nor_one_of_nothing(
    rounds: list[set[int]], limit: int
) -> None:
    names = StickyNames(limit)
    for existing in rounds:
        chosen = names.choose(map(str, existing))
        assert len(chosen) == min(limit, len(existing))
        assert set(chosen) <= set(map(str, existing))
