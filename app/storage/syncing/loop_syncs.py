"""Decides when the event loop makes a sync itself, instead of a thread.

Handing a sync over and its result back costs the loop about as much time as a quick sync takes, and it adds latency for
waiting producers. So the loop makes the sync itself if nothing else could be done meanwhile: all appends in flight have
arrived, no other sync is under way, and the last syncs were quick. A client that has not sent yet waits for that sync,
which is no worse than waiting for the hand-over.

That the next sync is quick is a guess. After a longer one, the syncs are left to threads for a hundred times as long,
so such syncs hold the loop for one per cent of the time at most (docs/notes/performance.md).
"""

from __future__ import annotations

# A longer one is not quick: threads take over.
QUICK_S = 0.000_5
# How many times as long as such a sync took.
PAUSE_FACTOR = 100
# Rounds of threads in a row that must have covered every append in flight.
PROBES = 16
# Then the loop makes this many syncs, and a thread the next: only there it shows whether other appends arrive.
SYNCS_PER_PROBE = 64
# More appends, and larger ones, are left to threads: while a thread syncs, the loop can read other requests. Kafka's
# producer has five requests in flight.
APPENDS_MAX = 5
BYTES_MAX = 256 * 1024


class LoopSyncs:
    """Follows the syncs of all partitions of an engine."""

    __slots__ = ("_left", "_not_before_s", "_probes")

    def __init__(self) -> None:
        self._not_before_s = 0.0
        # Rounds of threads in a row that covered every append in flight.
        self._probes = 0
        # How many syncs the loop may make until the next probe.
        self._left = 0

    def may_sync(self, now_s: float) -> bool:
        """Return whether the loop may make the next sync."""
        return self._left > 0 and now_s >= self._not_before_s

    def synced(self, now_s: float, took_s: float) -> None:
        """Note a sync that the loop has made."""
        self._left -= 1
        self.took(now_s, took_s)

    def probed(self, now_s: float, took_s: float, *, has_company: bool) -> None:
        """Note a round that a thread has made.

        ``has_company``: other appends came meanwhile, or other syncs were under way.
        """
        self._probes = 0 if has_company else self._probes + 1
        self._left = SYNCS_PER_PROBE if self._probes >= PROBES else 0
        self.took(now_s, took_s)

    def took(self, now_s: float, took_s: float) -> None:
        """Note how long any sync took."""
        if took_s > QUICK_S:
            self._not_before_s = max(self._not_before_s, now_s + PAUSE_FACTOR * took_s)
