"""The interface of the store that keeps groups and committed offsets.

Methods block (the embedded store syncs a database file): call them in one
thread, one at a time. ``write`` is one transaction; when it returns, its effect
survives a loss of power.

The process that opens the store becomes its coordinator and takes the next
**epoch**. Writes with an older epoch are refused, so a coordinator that was paused
and replaced cannot overwrite the changes of its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID


class MemberProtocol(NamedTuple):
    """An assignor that a member supports, and its metadata for the leader."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member of a group. Times are in ms; ``protocols`` are in order of preference.

    ``is_managed``: the broker joins, syncs and leads for this member (ADR-0017).
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
    """A group after its last assignment, or after its last member left.

    ``protocol_type`` is None if no member ever joined. ``emptied_at_ms`` (since the
    Unix epoch) is None if the group has members, or never had any.
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
    """A committed offset. Times are in ms since the Unix epoch.

    ``expires_at_ms`` is None if the broker's retention applies.
    """

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
    """Delete a group and its offsets."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOwner:
    """A partition no longer has an owner."""

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
    """Delete the offsets of all groups in ``topic``, except for the id ``besides``."""

    topic: str
    besides: UUID | None


# A record means: store it, and replace an earlier one with the same key.
GroupChange: TypeAlias = (
    GroupRecord | OwnerRecord | OffsetRecord | DeleteGroup | DeleteOwner | DeleteOffset | DeleteTopicOffsets
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroups:
    """The content of the store, and the epoch just taken, which is the largest yet."""

    epoch: int
    groups: Sequence[GroupRecord]
    offsets: Sequence[OffsetRecord]


class GroupStore(Protocol):
    def open(self) -> StoredGroups:
        """Take the next epoch, and return all groups and offsets.

        Raises:
            GroupStoreFailed: it cannot be read or written.
        """
        ...

    def write(self, changes: Sequence[GroupChange]) -> None:
        """Apply all changes in order, or none.

        Raises:
            CoordinatorFenced: another coordinator has opened the store.
            GroupStoreFailed: nothing was changed.
        """
        ...

    def close(self) -> None: ...
