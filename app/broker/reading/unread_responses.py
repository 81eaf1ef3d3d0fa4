"""Bound the bytes of responses that clients have not read, over all connections of the TCP listeners.

A connection whose client reads slowly, or not at all, holds a response until it is sent. Each is bounded, but there may
be thousands. So what connections hold beyond ``FREE_BYTES`` has a limit together::

    0 ── fetches as large as they may be ── bytes_max ── small fetches ── 2 × bytes_max: the oldest is broken off

Small fetches bring one batch, or ``FREE_BYTES``. Clients that read are served all the time; those that do not lose
their connection, the one first that has held something for the longest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

# Of each connection; a fetch of as many bytes is always allowed.
FREE_BYTES = 64 * 1024
# How often a full room is looked through: ten thousand connections take about a millisecond.
_LOOK_S = 0.01


class UnreadHolder(Protocol):
    """A connection that holds responses."""

    @property
    def unread_bytes(self) -> int: ...
    def break_off(self) -> None:
        """End soon; what is not sent is lost."""
        ...


class UnreadResponses:
    """What connections hold, at most about ``2 * bytes_max`` bytes; a fetch brings at most ``fetch_bytes_max``."""

    def __init__(
        self,
        *,
        fetch_bytes_max: int,
        bytes_max: int | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``bytes_max``: by default 16 of the largest fetches."""
        self.bytes_max = 16 * fetch_bytes_max if bytes_max is None else bytes_max
        self._fetch_bytes_max = fetch_bytes_max
        self._clock_s = clock_s
        # As each was when it was looked at last; the first has held something for the longest.
        self._sizes: dict[UnreadHolder, int] = {}
        self._looked_s = -_LOOK_S
        self.held_bytes = 0
        # Connections that were broken off.
        self.broken_off = 0

    def bytes_of_fetch(self, wanted: int) -> int:
        """Return how many bytes a fetch of ``wanted`` bytes may bring now; it may bring one whole batch in any case."""
        most = self._fetch_bytes_max
        if self.held_bytes > self.bytes_max:
            self._look_again()
            if self.held_bytes > self.bytes_max:
                most = FREE_BYTES
        return max(0, min(wanted, most))

    def note(self, holder: UnreadHolder, size: int) -> None:
        """Take down that ``holder`` holds ``size`` bytes.

        If the room is far too full, connections are broken off.
        """
        self.held_bytes += size - self._sizes.get(holder, 0)
        self._sizes[holder] = size
        if self.held_bytes > 2 * self.bytes_max:
            self._look_again()
            while self.held_bytes > 2 * self.bytes_max and len(self._sizes) > 1:
                oldest = next(iter(self._sizes))
                self.forget(oldest)
                self.broken_off += 1
                oldest.break_off()

    def forget(self, holder: UnreadHolder) -> None:
        """Take down that ``holder`` holds no more than is free."""
        self.held_bytes -= self._sizes.pop(holder, 0)

    def _look_again(self) -> None:
        """Ask the connections what they hold, because clients may have read since, unless they were just asked."""
        now_s = self._clock_s()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        for holder in self._sizes:
            self._sizes[holder] = holder.unread_bytes
        self.held_bytes = sum(self._sizes.values())
