"""The passes of compaction of a broker: which runs, which failed, their counts; for both engines."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Generic, TypeVar

from ..clock import Clock
from .cleaning.pass_state import PassCounts
from .engine import CleanerState, CompactionCounts

logger = logging.getLogger(__name__)

_Log = TypeVar("_Log", bound=Hashable)

# A log whose pass failed is not tried again before this, unless the broker restarts.
_RETRY_MS = 600_000


class Passes(Generic[_Log]):
    """One pass at a time: ``begin``, what became of it, then ``end``.

    ``running`` is its log.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.running: _Log | None = None
        self._started_ms = 0
        self._retry_ms: dict[_Log, int] = {}
        self._totals = PassCounts()
        self._passes = 0
        self._failures = 0
        self._last_pass_ms = -1
        self._last_duration_ms = -1

    @property
    def counts(self) -> CompactionCounts:
        """Counts since the start of the broker."""
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

    def state(self, log: _Log, *, is_enabled: bool, is_due: bool) -> CleanerState:
        if not is_enabled:
            return "off"
        if self.running is log:
            return "running"
        if log in self._retry_ms:
            return "failed"
        return "due" if is_due else "idle"

    def may_begin(self, log: _Log) -> bool:
        """Return whether the last pass over a log did not fail, or is long enough ago."""
        return self._retry_ms.get(log, -1) <= self._clock.monotonic_ms()

    def begin(self, log: _Log) -> None:
        self.running, self._started_ms = log, self._clock.monotonic_ms()

    def failed(self, log: _Log, *, is_lasting: bool = True) -> None:
        """Note that the pass failed; ``is_lasting``: the next one is not to follow soon."""
        self._failures += 1
        if is_lasting:
            self._retry_ms[log] = self._clock.monotonic_ms() + _RETRY_MS

    def end(self, counts: PassCounts) -> None:
        """Add the work of a pass that has ended, with an error or without."""
        self.running = None
        self._totals.add(counts)

    def completed(self, log: _Log, counts: PassCounts, *, name: object, end_offset: int) -> None:
        """Note that the pass, which has ended, got to ``end_offset``; ``name`` is that of ``log``."""
        self._retry_ms.pop(log, None)
        self._passes += 1
        self._last_pass_ms = self._clock.now_ms()
        self._last_duration_ms = self._clock.monotonic_ms() - self._started_ms
        logger.info(
            "%s: compacted up to offset %d, %d of %d records remain, %d of %d bytes",
            name,
            end_offset,
            counts.records_kept,
            counts.records_read,
            counts.bytes_written,
            counts.bytes_read,
        )

    def forget(self, log: _Log) -> None:
        """Forget a log that is deleted or no longer compacted."""
        self._retry_ms.pop(log, None)
