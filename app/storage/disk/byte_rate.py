"""Limit bytes per second, by a token bucket whose clock is a parameter."""

from __future__ import annotations


class ByteRate:
    """Lets ``bytes_per_s`` through on average, and up to one second's worth at once.

    Times are in ms of a monotonic clock.
    """

    __slots__ = ("_at_ms", "_bytes_per_s", "_tokens")

    def __init__(self, bytes_per_s: float, *, now_ms: int) -> None:
        if bytes_per_s <= 0:
            raise ValueError(f"a rate of {bytes_per_s} bytes per second lets nothing through")
        self._bytes_per_s = bytes_per_s
        self._tokens = float(bytes_per_s)
        self._at_ms = now_ms

    def delay_ms(self, size: int, *, now_ms: int) -> int:
        """Count ``size`` bytes that were read or written; returns how long to wait before the next ones."""
        passed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = max(self._at_ms, now_ms)
        self._tokens = min(self._bytes_per_s, self._tokens + passed_ms * self._bytes_per_s / 1000) - size
        # Rounded up: waiting for so long leaves no debt.
        return 0 if self._tokens >= 0 else -int(self._tokens * 1000 // self._bytes_per_s)
