"""Bound the bytes that a listener holds of requests, over all its connections.

A request is held until its last byte has come, so clients that send large ones and never end them would fill the
memory. What a connection holds beyond ``FREE_BYTES`` counts; so requests of usual size go on when others have taken
all there is.
"""

from __future__ import annotations

# Of each connection; thousands of them may hold as much.
FREE_BYTES = 64 * 1024


class PendingBytes:
    """The bytes of one listener, at most ``bytes_max``."""

    __slots__ = ("_bytes_max", "held")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held = 0

    def take(self, count: int) -> bool:
        """Count ``count`` bytes more, or return False if they are too many."""
        if self.held + count > self._bytes_max:
            return False
        self.held += count
        return True

    def give_back(self, count: int) -> None:
        self.held -= count


class HeldBytes:
    """One connection's part of the bytes that its listener holds."""

    __slots__ = ("_counted", "_pending", "count")

    def __init__(self, pending: PendingBytes) -> None:
        self._pending = pending
        self._counted = 0
        self.count = 0

    def set(self, count: int) -> bool:
        """Hold ``count`` bytes; False, and nothing changes, if they are too many."""
        counted = count - FREE_BYTES if count > FREE_BYTES else 0
        if counted > self._counted:
            if not self._pending.take(counted - self._counted):
                return False
        elif counted < self._counted:
            self._pending.give_back(self._counted - counted)
        self._counted = counted
        self.count = count
        return True
