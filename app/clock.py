"""Time, injected: everything that asks for it is given a ``Clock``, so that a test may turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, ms since the epoch; it may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Never goes back; from an arbitrary start."""
        ...


class PatientClock:
    """The wall clock, but never ahead of the time that really passed since this was made.

    For what deletes by age: a clock that jumps years ahead must not take anything early.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_start_ms = clock.now_ms()
        self._monotonic_start_ms = clock.monotonic_ms()

    def now_ms(self) -> int:
        passed_ms = self._clock.monotonic_ms() - self._monotonic_start_ms
        return min(self._clock.now_ms(), self._wall_start_ms + passed_ms)


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
