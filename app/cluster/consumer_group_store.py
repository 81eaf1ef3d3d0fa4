"""Stored state of groups whose partitions the broker assigns (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

# Epochs of a heartbeat that are none: the member joins, leaves, or is a static member that will be back.
JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
_NEVER = -1


class OwnedPartition(NamedTuple):
    """A partition of a topic by its id: a topic of the same name that is created later is another one."""

    topic_id: UUID
    partition: int


# Since which epoch of the member it has a partition.
Assigned = Mapping[OwnedPartition, int]
NO_PARTITIONS: Assigned = MappingProxyType({})


def _none() -> Assigned:
    return NO_PARTITIONS


class MemberProtocol(NamedTuple):
    """An assignor that a classic member supports, and its metadata for the leader."""

    name: str
    metadata: bytes


class MemberState(IntEnum):
    """The steps of a member to its target; numbers that the store keeps.

    UNREVOKED_PARTITIONS
        It stays at its old epoch until it no longer reports the partitions to give up.
    UNRELEASED_PARTITIONS
        It is at the new epoch, and lacks partitions that other members still hold.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMembership:
    """A member that still uses Kafka's classic protocol; times in ms.

    ``is_managed``: the broker joins and syncs for this member (ADR-0017).
    """

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    is_managed: bool = False

    @property
    def protocol_names(self) -> frozenset[str]:
        """The names of the assignors that it supports."""
        return frozenset(name for name, _ in self.protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """``regex`` is empty without one.

    ``assignor`` is the member's vote, None for none.

    ``assigned`` is what the member may read, ``revoking`` what it was told to give up
    and still holds. Both have the epoch since which the member has the partition, from
    which its commits are accepted. ``target`` is its share of the last target
    assignment. ``previous_epoch`` is the one that the member was at before, and may be at
    still if the answer was lost. ``classic`` is None for members that use the new protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    epoch: int = JOINING
    previous_epoch: int = _NEVER
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=_none)
    revoking: Assigned = field(default_factory=_none)
    target: frozenset[OwnedPartition] = frozenset()
    classic: ClassicMembership | None = None

    @property
    def is_away(self) -> bool:
        """True for a static member that announced that it will be back."""
        return self.epoch == LEAVING_FOR_A_WHILE

    @property
    def is_managed(self) -> bool:
        """True if the broker takes the steps of the member.

        Such a member has no process that could.
        """
        return self.classic is not None and self.classic.is_managed

    def holds(self, partitions: Collection[OwnedPartition] | None) -> bool:
        """True if every one of ``partitions`` is assigned to it or not given up yet; None is unknown."""
        return partitions is not None and all(
            part in self.assigned or part in self.revoking for part in partitions
        )

    def is_reconciled(self, assignment_epoch: int) -> bool:
        """True if it has its target of ``assignment_epoch``."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def at_epoch(self, epoch: int) -> ConsumerMember:
        """Return the member at ``epoch``, which replaces its ``previous_epoch``."""
        return self if epoch == self.epoch else replace(self, epoch=epoch, previous_epoch=self.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRecord:
    """The epochs of a consumer group. Replaces a classic group of the same name.

    ``assignor`` is that of the last assignment, empty before it. ``regexes`` are the
    topics that each regular expression matched. ``emptied_at_ms`` (since the Unix
    epoch) is None while the group has members.
    """

    group: str
    epoch: int
    assignment_epoch: int
    assignor: str = ""
    regexes: Mapping[str, frozenset[str]]
    emptied_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberRecord:
    """A member of a consumer group."""

    group: str
    member: ConsumerMember


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConsumerMember:
    """A member left its consumer group, or was removed."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConsumerGroup:
    """A consumer group without members is one no longer; its committed offsets stay."""

    group: str


ConsumerGroupChange = ConsumerGroupRecord | ConsumerMemberRecord | DeleteConsumerMember | DeleteConsumerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConsumerGroup:
    record: ConsumerGroupRecord
    members: Sequence[ConsumerMember]
