"""A rate over sliding samples.

The arithmetic is that of Apache Kafka's ``Rate`` and ``SampledStat``.

The rate is the sum of all samples per time since the oldest of them began. All samples
but one count as full from the start, so that the first requests of a client do not look
like a high rate. Pure: every call gets the time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """The number of samples, and the length of each."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def total_ms(self) -> int:
        return self.samples * self.sample_ms

    @property
    def full_ms(self) -> int:
        """The samples that count as full; in this time a client may use what its rate allows at once."""
        return max(1, self.samples - 1) * self.sample_ms


class SampledRate:
    """The amounts of the last samples."""

    __slots__ = ("_earlier", "_full_ms", "_sample_ms", "_samples", "_steady_until_ms", "_total_ms", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._full_ms, self._sample_ms, self._total_ms = window.full_ms, window.sample_ms, window.total_ms
        # [begun at ms, amount]
        self._samples: deque[list[float]] = deque()
        # The sum of all samples but the last, which change with a sample and not with a request.
        self._earlier = 0.0
        # Until then no sample begins and none is forgotten.
        self._steady_until_ms = 0

    def record_within(self, amount: float, limit_per_s: float, now_ms: int) -> bool:
        """As ``record``, if that is simple and the rate is within its limit then.

        Return whether it is; otherwise nothing has been recorded. This is what most requests of most clients need.
        """
        if now_ms >= self._steady_until_ms:
            return False
        last = self._samples[-1]
        most = last[1] + amount
        if (self._earlier + most) * 1000 > limit_per_s * self._full_ms:
            return False
        last[1] = most
        return True

    def record(self, amount: float, now_ms: int) -> None:
        samples = self._samples
        if samples and now_ms - samples[0][0] >= self._total_ms:
            self._forget(now_ms)
        if not samples or now_ms - samples[-1][0] >= self._sample_ms:
            samples.append([now_ms, 0.0])
            self._add_up()
        samples[-1][1] += amount
        self._steady_until_ms = int(
            min(samples[-1][0] + self._sample_ms, samples[0][0] + self._total_ms),
        )

    def per_s(self, now_ms: int) -> float:
        self._forget(now_ms)
        samples = self._samples
        total = self._earlier + samples[-1][1] if samples else 0.0
        return total * 1000 / self.elapsed_ms(now_ms)

    def elapsed_ms(self, now_ms: int) -> float:
        """Return the time that the rate is taken over."""
        window = self._window
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        full = elapsed_ms // window.sample_ms
        least = max(1, window.samples - 1)
        return elapsed_ms + max(0, least - full) * window.sample_ms

    def delay_ms(self, limit_per_s: float, now_ms: int) -> float:
        """Return how long to wait until the rate is at its limit; 0.0 if it is not above it."""
        samples = self._samples
        if not samples:
            return 0.0
        # No rate is taken over less time than the full samples, so most are within their limit by this alone.
        if (self._earlier + samples[-1][1]) * 1000 <= limit_per_s * self._full_ms:
            return 0.0
        above = self.per_s(now_ms) - limit_per_s
        return above / limit_per_s * self.elapsed_ms(now_ms) if above > 0 else 0.0

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[0][0] < self._total_ms:
            return
        while samples and now_ms - samples[0][0] >= self._total_ms:
            samples.popleft()
        self._add_up()
        # The next record looks at the samples again.
        self._steady_until_ms = 0

    def _add_up(self) -> None:
        self._earlier = sum(amount for _, amount in list(self._samples)[:-1])
