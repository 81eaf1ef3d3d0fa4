"""Time that only moves as fast as it passes."""

from __future__ import annotations

from app.clock import PatientClock


class TurnedClock:
    """Both clocks at one, until a test turns them."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        self.passed_ms = 0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.passed_ms


def test_a_wall_clock_that_jumps_ahead_ages_nothing() -> None:
    clock = TurnedClock()
    patient = PatientClock(clock)
    clock.wall_ms += 365 * 86_400_000
    assert patient.now_ms() == 1_000_000
    clock.passed_ms += 1000
    assert patient.now_ms() == 1_001_000


def test_a_wall_clock_that_is_set_back_is_followed() -> None:
    clock = TurnedClock()
    patient = PatientClock(clock)
    clock.wall_ms -= 5000
    assert patient.now_ms() == 995_000
