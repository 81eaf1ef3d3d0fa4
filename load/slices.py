"""Measure ratios near 1 on a noisy machine.

Many short slices of work run in turn on one thread. A slice takes a few milliseconds of CPU time, so both slices of a pair meet the same clock rate, caches and neighbours.
The ratio is the median over all pairs, which outliers do not move, with an interval that holds the true median with a
probability of 95 %, whatever the distribution is.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import ceil, floor, sqrt
from statistics import median

PAIRS = 400
# Pairs that are run first and do not count.
_WARM_PAIRS = 20
_PAIRS_PER_COLLECTION = 20
# Standard deviations on both sides of the mean that 95 % of a normal distribution are in.
_DEVIATIONS = 1.96

# Does a slice of work, and returns the seconds of CPU time that it took.
Slice = Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class SlicedComparison:
    """Seconds of CPU time of both sides, pair by pair."""

    ours: list[float]
    yardstick: list[float]

    @property
    def ratios(self) -> list[float]:
        return sorted(a / b for a, b in zip(self.ours, self.yardstick, strict=True))

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median."""
        ratios = self.ratios
        half, reach = len(ratios) / 2, _DEVIATIONS * sqrt(len(ratios)) / 2
        return ratios[max(0, floor(half - reach))], ratios[min(len(ratios) - 1, ceil(half + reach))]


async def in_slices(ours: Slice, yardstick: Slice, *, pairs: int = PAIRS) -> SlicedComparison:
    """Run slices of both sides in turn; the side that is first changes with each pair.

    The garbage collector runs between slices only.
    """
    measured: list[tuple[float, float]] = []
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number in range(_WARM_PAIRS + pairs):
            if number % 2:
                theirs_s, ours_s = await yardstick(), await ours()
            else:
                ours_s, theirs_s = await ours(), await yardstick()
            if number >= _WARM_PAIRS:
                measured.append((ours_s, theirs_s))
            if number % _PAIRS_PER_COLLECTION == 0:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return SlicedComparison([a for a, _ in measured], [b for _, b in measured])
