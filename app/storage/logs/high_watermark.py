"""The high watermark of a partition on disk: reads end before the oldest batch that waits for a sync.

::

                     high watermark          log end offset
                           │                        │
    ───────────────┬───────┼────────────┬───────────┤
     not synced,   │       │ waits for  │ visible   │
     no waiter     │       │ its sync   │ with it   │

A batch waits if its producer does, or another caller that is promised the sync. Nothing else is held
back, but a partition is read in order: what follows such a batch becomes visible together with it.
ADR-0036 has the reasons.
"""

from __future__ import annotations

from typing import NamedTuple


class _Waiting(NamedTuple):
    """The first batch that waits for a sync, and the bytes appended before it."""

    offset: int
    appended_bytes: int


class HighWatermark:
    """Follows the appends and syncs of one partition; one sync at a time."""

    __slots__ = ("_appended_bytes", "_next", "_running")

    def __init__(self) -> None:
        self._appended_bytes = 0
        # The first batch that the next sync will cover, and the first one that the sync under way covers.
        self._next: _Waiting | None = None
        self._running: _Waiting | None = None

    def offset(self, log_end_offset: int) -> int:
        """Return the high watermark of a log that ends at ``log_end_offset``."""
        waiting = self._running or self._next
        return log_end_offset if waiting is None else waiting.offset

    def appended(self, size_bytes: int) -> None:
        """Note an append; it is visible unless it waits, or an earlier one does."""
        self._appended_bytes += size_bytes

    def hold_back(self, base_offset: int, size_bytes: int) -> None:
        """Hide the last append until a later sync ends.

        It has ``size_bytes`` at ``base_offset``; the sync begins after it.
        """
        if self._next is None:
            self._next = _Waiting(base_offset, self._appended_bytes - size_bytes)

    def sync_begins(self) -> None:
        """Note that a sync begins, which covers all that was appended before."""
        self._running, self._next = self._running or self._next, None

    def sync_ends(self) -> int:
        """Note that the sync has succeeded; return how many bytes become visible."""
        waiting, self._running = self._running, None
        if waiting is None:
            return 0
        visible_bytes = self._appended_bytes if self._next is None else self._next.appended_bytes
        return visible_bytes - waiting.appended_bytes
