"""Count the passes of compaction since the start of the broker."""

from __future__ import annotations

from ..clock import Clock
from .cleaning.pass_state import PassCounts
from .engine import CompactionCounts


class PassTally:
    """Counts of all passes of this broker, and the result of the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._totals = PassCounts()
        self._passes = 0
        self._failures = 0
        self._last_pass_ms = -1
        self._last_duration_ms = -1

    @property
    def counts(self) -> CompactionCounts:
        return CompactionCounts(
            passes=self._passes,
            failures=self._failures,
            bytes_read=self._totals.bytes_read,
            bytes_written=self._totals.bytes_written,
            records_read=self._totals.records_read,
            records_kept=self._totals.records_kept,
            last_pass_ms=self._last_pass_ms,
            last_duration_ms=self._last_duration_ms,
        )

    def add(self, counts: PassCounts) -> None:
        """Add the work of a pass that has ended, with an error or without."""
        self._totals.add(counts)

    def note_failure(self) -> None:
        self._failures += 1

    def note_pass(self, started_ms: int) -> None:
        """Note that a pass has been completed that started at this monotonic time."""
        self._passes += 1
        self._last_pass_ms = self._clock.now_ms()
        self._last_duration_ms = self._clock.monotonic_ms() - started_ms
