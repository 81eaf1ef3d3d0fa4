"""States of a share group's records, their stored form, and counts of them (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """The state of a record in a share group; the numbers are Kafka's.

    ``ACKNOWLEDGED`` and ``ARCHIVED`` are final: the group does not deliver the record again.
    ``ARCHIVING`` waits for its dead letter, and is archived once that is written (KIP-1191).
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    """A member's acknowledgement of a record that it holds.

    ``GAP``: there is no record at the offset.
    """

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquiredRange(NamedTuple):
    """Offsets that a member now holds, both ends included, and their delivery count."""

    first: int
    last: int
    delivery_count: int


class OffsetRange(NamedTuple):
    """Offsets, both ends included."""

    first: int
    last: int


class StoredRange(NamedTuple):
    """Offsets with the same state, both ends included; never ``ACQUIRED``."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """The durable state of one partition of a group.

    ``start_offset`` is the first offset that is not final. ``ranges`` ascend and begin at or
    after it; offsets between them are available and were never delivered.
    """

    start_offset: int
    state_epoch: int
    ranges: Sequence[StoredRange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Offsets from ``first`` to ``last``, with one type for all or one per offset."""

    first: int
    last: int
    types: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The limits of a group.

    ``locks``: how many records of a partition may be unfinished at a time.

    With ``has_dead_letters`` a record that is given up is ``ARCHIVING`` first.
    """

    delivery_count: int = 5
    lock_ms: int = 30_000
    locks: int = 2_000
    has_dead_letters: bool = False

    @property
    def throttled_from(self) -> int:
        """Return the delivery count from which records are delivered in smaller pieces."""
        return max(2, -(-self.delivery_count // 2))


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
