"""When a soak says that the broker has grown: what counts is the second half, without what may be chance."""

from __future__ import annotations

import random

import pytest

from load.soak import rise


def noise(count: int) -> list[float]:
    return [random.uniform(-5, 5) for _ in range(count)]


@pytest.mark.parametrize("risen", [2.0, 20.0])
def test_a_steady_rise_in_the_second_half_is_found_under_noise(risen: float) -> None:
    flat, count = [100.0] * 1_000, 1_000
    rising = [100 + risen * number / count for number in range(count)]
    samples = [value + more for value, more in zip(flat + rising, noise(2 * count), strict=True)]
    assert risen / 2 < rise(samples) < 1.1 * risen


def test_a_rise_before_the_second_half_does_not_count() -> None:
    rising, flat = [float(number) for number in range(1_000)], [1_000.0] * 1_000
    assert rise(rising + flat) == 0


def test_noise_is_no_rise() -> None:
    for _ in range(20):
        assert rise([100 + more for more in noise(400)]) < 1


def test_a_fall_is_no_rise() -> None:
    assert rise([1_000.0 - number for number in range(1_000)]) < 0


def test_a_short_run_has_a_line_too() -> None:
    assert rise([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(3.0)
