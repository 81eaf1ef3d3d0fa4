"""What is noted of the past: percentiles, and labels that stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.api.sampler import StickyNames, SyncTimes


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
