"""Measure ratios on a noisy machine: both sides in turn, the median of several rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Rates of both sides, round by round; ``ratio`` is the median of ours / yardstick of each round."""

    ours: list[float]
    yardstick: list[float]

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.yardstick, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def in_turn(ours: Callable[[], float], yardstick: Callable[[], float], *, rounds: int = ROUNDS) -> Comparison:
    """Run both once for warmth, then ``rounds`` times in turn; each returns a rate."""
    ours()
    yardstick()
    pairs = [(ours(), yardstick()) for _ in range(rounds)]
    return Comparison(ours=[a for a, _ in pairs], yardstick=[b for _, b in pairs])


def report(
    what: str, comparison: Comparison, *, unit: str, yardstick: str, goal: float, at_most: bool = False
) -> None:
    """Print one figure: both rates, the ratio with its spread, and whether the goal is met."""
    ratio, ratios = comparison.ratio, comparison.ratios
    is_met = ratio <= goal if at_most else ratio >= goal
    sign = "≤" if at_most else "≥"
    print(f"{what}")
    print(f"  Stele      {statistics.median(comparison.ours):>14,.1f} {unit}")
    print(f"  yardstick  {statistics.median(comparison.yardstick):>14,.1f} {unit}  ({yardstick})")
    print(
        f"  ratio      {ratio:>14.2f} x  (rounds {min(ratios):.2f} to {max(ratios):.2f};"
        f" goal {sign} {goal:g} x: {'met' if is_met else 'NOT met'})",
        flush=True,
    )


def percentile(values: list[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of ``values`` do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
