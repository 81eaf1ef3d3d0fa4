"""Counts of what share groups have done since the start, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ShareCounts:
    """Numbers of records. ``delivered``: locked for members, also again.

    ``accepted``, ``released`` and ``given_up`` are settled by members and stored; ``given_up`` were rejected, or
    released after their last delivery. ``expired``: their locks, or their members, have ended.
    """

    delivered: int = 0
    accepted: int = 0
    released: int = 0
    given_up: int = 0
    expired: int = 0
