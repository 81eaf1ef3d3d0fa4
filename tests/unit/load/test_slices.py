"""The measure of ratios near 1: in which order slices run, and what its interval holds."""

from __future__ import annotations

import gc
import random
from math import log

from load.slices import SlicedComparison, in_slices


async def test_both_sides_are_first_equally_often_and_no_garbage_is_collected_meanwhile() -> None:
    order: list[str] = []

    async def ours() -> float:
        order.append("ours")
        assert not gc.isenabled()
        return 3.0

    async def yardstick() -> float:
        order.append("yardstick")
        return 2.0

    comparison = await in_slices(ours, yardstick, pairs=30)
    assert gc.isenabled()
    assert order[:4] == ["ours", "yardstick", "yardstick", "ours"]
    assert order.count("ours") == order.count("yardstick") > 30, "the first pairs do not count"
    assert comparison.ratios == [1.5] * 30
    assert comparison.ratio == 1.5
    assert comparison.interval == (1.5, 1.5)


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random("intervals")
    held = 0
    for _ in range(400):
        # Skewed, as times are that other work interrupts.
        ours = [1.0 + rng.expovariate(5.0) for _ in range(100)]
        comparison = SlicedComparison(ours, [1.0] * len(ours))
        low, high = comparison.interval
        assert low <= comparison.ratio <= high
        held += low <= 1.0 + log(2) / 5.0 <= high
    assert 370 <= held <= 400
