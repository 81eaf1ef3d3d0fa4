"""Inject time: code that needs it gets a ``Clock``, so that tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970-01-01 UTC; it may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Return ms since an arbitrary start; never goes back."""
        ...


class PatientClock:
    """The wall clock, but never faster than the monotonic clock since it was created.

    Deletion by age uses it, so that a wall clock that jumps ahead deletes nothing early.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_start_ms = clock.now_ms()
        self._monotonic_start_ms = clock.monotonic_ms()

    def now_ms(self) -> int:
        passed_ms = self._clock.monotonic_ms() - self._monotonic_start_ms
        return min(self._clock.now_ms(), self._wall_start_ms + passed_ms)


class SystemClock:
    """The clocks of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
