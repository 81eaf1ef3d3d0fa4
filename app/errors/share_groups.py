"""Errors of share groups (KIP-932).

Their members take single records of a partition.
"""

from __future__ import annotations

from .base import short
from .groups import GroupError


class LockNotHeld(GroupError):
    """A request over HTTP names a lock that holds no records."""

    def __init__(self, group: str, lock: str) -> None:
        super().__init__(
            f"lock {short(lock)!r} of group {short(group)!r} holds no records; "
            "it ran out, or they are acknowledged already: poll again",
            group=group,
        )
        self.lock = lock


class InvalidRecordState(GroupError):
    """An acknowledgement names records that its member does not hold."""

    def __init__(self, group: str, first: int, last: int) -> None:
        super().__init__(
            f"the member does not hold all records from {first} to {last} in group {short(group)!r}; "
            "their lock ran out, or they are acknowledged already; fetch again",
            group=group,
        )
        self.first = first
        self.last = last
