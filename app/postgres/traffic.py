"""Counts the calls of one broker to PostgreSQL: round-trip times and errors."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

# A broker measures four per second, so this is one minute.
_RECENT = 240


class RoundTrips(NamedTuple):
    """Round trips of the last minute, in ms."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class PostgresTraffic:
    """Shared by the connections of a broker; may be called from any thread."""

    def __init__(self) -> None:
        self.errors = 0
        self.round_trips = 0
        self.round_trip_s = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._lock = threading.Lock()

    def failed(self) -> None:
        """Count an attempt that PostgreSQL refused, or that did not reach it."""
        with self._lock:
            self.errors += 1

    def measured(self, seconds: float) -> None:
        """Add the time of one round trip."""
        with self._lock:
            self.round_trips += 1
            self.round_trip_s += seconds
            self._recent.append(seconds)

    def recent(self) -> RoundTrips | None:
        """Return the percentiles of the last minute, None if nothing was measured yet."""
        with self._lock:
            ordered = sorted(self._recent)
        if not ordered:
            return None
        last = len(ordered) - 1
        return RoundTrips(ordered[last // 2] * 1000, ordered[round(last * 0.99)] * 1000, ordered[last] * 1000)
