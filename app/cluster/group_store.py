"""The group store's interface: groups and committed offsets, remembered over restarts.

Methods block (the embedded store syncs a database file): call them in one
thread, one at a time. ``write`` is one transaction; when it returns, its effect
survives the loss of power.

Whoever opens the store becomes its coordinator and takes the next **epoch**. A
write of an older epoch is refused: a coordinator that was paused, and was
replaced meanwhile, cannot write over its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID


class MemberProtocol(NamedTuple):
    """An assignor that a member offers, and what it tells the leader in that case."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """Times in ms. ``protocols`` in the order of preference.

    ``is_managed``: the broker joins, syncs and leads for it (ADR-0017).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes
    is_managed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """A member has claimed a partition that is assigned to it."""

    group: str
    topic: str
    partition: int
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group as its last assignment, or its last member's leaving, made it.

    ``protocol_type`` None: nobody ever joined. ``emptied_at_ms`` (since the
    epoch) None: it has members, or never had.
    """

    group: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    emptied_at_ms: int | None
    members: tuple[MemberRecord, ...]
    owners: tuple[OwnerRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """A committed offset. Times in ms since the epoch; ``expires_at_ms`` None: the broker's retention."""

    group: str
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int
    expires_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """The group and its offsets."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOwner:
    """A partition has no owner any more."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffset:
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicOffsets:
    """The offsets of all groups in ``topic``, but for the topic of that name with the id ``besides``."""

    topic: str
    besides: UUID | None


# A record stands for: keep it, in the place of what was there.
GroupChange: TypeAlias = (
    GroupRecord | OwnerRecord | OffsetRecord | DeleteGroup | DeleteOwner | DeleteOffset | DeleteTopicOffsets
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroups:
    """``epoch``: the one that was taken, larger than all before it."""

    epoch: int
    groups: Sequence[GroupRecord]
    offsets: Sequence[OffsetRecord]


class GroupStore(Protocol):
    def open(self) -> StoredGroups:
        """Take the next epoch, and read everything.

        Raises:
            GroupStoreFailed: it cannot be read or written.
        """
        ...

    def write(self, changes: Sequence[GroupChange]) -> None:
        """Make all changes, in their order, or none.

        Raises:
            CoordinatorFenced: another coordinator has opened the store.
            GroupStoreFailed: nothing was changed.
        """
        ...

    def close(self) -> None: ...
