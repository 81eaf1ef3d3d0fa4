"""Limit how fast connections are accepted: a bucket of one second's connections."""

from __future__ import annotations


class AcceptRate:
    """Knows when the next connection may be accepted.

    ``per_s`` None means at any time.
    """

    def __init__(self, per_s: float | None) -> None:
        self._per_s = per_s
        self._tokens = max(1.0, per_s or 0.0)
        self._seen_s: float | None = None

    def wait_s(self, now_s: float) -> float:
        """Return 0.0 and count a connection, or how long none may be accepted."""
        if self._per_s is None:
            return 0.0
        if self._seen_s is not None:
            earned = (now_s - self._seen_s) * self._per_s
            self._tokens = min(max(1.0, self._per_s), self._tokens + earned)
        self._seen_s = now_s
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._per_s

    def give_back(self) -> None:
        """Undo the count of a connection that was not there."""
        if self._per_s is not None:
            self._tokens += 1.0
