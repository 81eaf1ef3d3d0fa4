"""The rate over sliding samples: the cases of Kafka's ``Rate``, on simulated time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.broker.quotas.rate import SampledRate, Window

WINDOW = Window(samples=11, sample_ms=1000)


def test_a_burst_counts_over_the_full_samples_and_not_over_the_moment() -> None:
    rate = SampledRate(WINDOW)
    rate.record(20_000, 0)
    assert rate.per_s(0) == 2000
    assert rate.delay_ms(1000, 0) == 10_000
    assert rate.delay_ms(2000, 0) == 0


def test_a_sample_is_forgotten_when_the_window_has_passed() -> None:
    rate = SampledRate(WINDOW)
    rate.record(20_000, 0)
    assert rate.per_s(10_999) == pytest.approx(20_000 / 10.999)
    assert rate.per_s(11_000) == 0


def test_samples_begin_with_what_is_recorded() -> None:
    rate = SampledRate(WINDOW)
    for at_ms in (0, 700, 1400, 2100):
        rate.record(500, at_ms)
    # Two samples: from 0 and from 1400. The time of the last one is not full yet.
    assert rate.elapsed_ms(2100) == 2100 + 8 * 1000
    assert rate.per_s(2100) == pytest.approx(2000 / 10.1)


def test_an_amount_that_is_taken_back_does_not_count() -> None:
    rate = SampledRate(WINDOW)
    rate.record(5, 0)
    rate.record(1, 300)
    rate.record(-1, 300)
    assert rate.per_s(300) == pytest.approx(5 / 10.3)


def used_per_s(sizes: Sequence[int]) -> float:
    """Return what a client gets from a limit of 1000 per second if it waits as it is told."""
    rate, now_ms, used = SampledRate(WINDOW), 0, 0
    for size in itertools.cycle(sizes):
        rate.record(size, now_ms)
        used += size
        now_ms += max(1, round(rate.delay_ms(1000, now_ms)))
        if now_ms > 3_600_000:
            return used * 1000 / now_ms
    raise AssertionError("unreachable: the sizes have no end")


@pytest.mark.parametrize("size", [100, 1_000, 5_000, 20_000])
def test_a_client_that_waits_as_told_gets_its_limit(size: int) -> None:
    assert used_per_s([size]) == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize(
    "sizes", [[11_000], [10_500], [100_000], [3_000, 50_000, 200, 9_000, 12_345], [1, 19_999]]
)
def test_no_sizes_get_twice_the_limit(sizes: list[int]) -> None:
    # Samples that are forgotten early are a weakness of Kafka's arithmetic; this is all of it.
    assert 900 <= used_per_s(sizes) < 2000


@given(
    amounts=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), min_size=1, max_size=60),
    limit=st.integers(1, 2000),
    samples=st.integers(1, 4),
)
def test_the_sums_that_are_kept_are_those_of_the_samples(
    amounts: list[tuple[int, int]], limit: int, samples: int
) -> None:
    window = Window(samples, 1000)
    rate, now_ms = SampledRate(window), 0
    for pause_ms, amount in amounts:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        total = sum(amount for _, amount in rate._samples)
        elapsed_ms = rate.elapsed_ms(now_ms)
        assert rate.per_s(now_ms) == total * 1000 / elapsed_ms
        above = total * 1000 / elapsed_ms - limit
        assert rate.delay_ms(limit, now_ms) == max(0.0, above / limit * elapsed_ms)
