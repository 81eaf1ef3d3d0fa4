"""The rules of partition ownership: pure checks of a claim against a group (ADR-0017).

A member of a classic group owns a partition that it has claimed. An assignment alone is not enough,
because the previous owner may still be reading.

In a group whose partitions the broker assigns, a member is assigned a partition only when no other holds it. There
a member owns what it is assigned, and a claim changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...cluster.consumer_group_store import OwnedPartition
from ...errors import PartitionNotAssigned, PartitionNotOwned, PartitionOwned, RebalanceInProgress
from ..base.consumer_protocol import AssignedPartition
from ..base.states import GroupState
from ..classic.group import Group
from .classic_membership import check_generation, classic_member
from .group import ConsumerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A member that wants to own a partition, or says that it does."""

    group: str
    member_id: str
    generation: int
    topic: str
    partition: int

    @property
    def key(self) -> AssignedPartition:
        return AssignedPartition(self.topic, self.partition)


def check_assigned(group: Group, claimant: Claimant) -> None:
    """Check that the claimant is assigned the partition in the current generation.

    Raises:
        UnknownMember, IllegalGeneration: the claimant missed a rebalance, or was removed.
        RebalanceInProgress: the generation is current, but its assignment is not known yet.
        PartitionNotAssigned: the partition is assigned to another member, or to none.
    """
    member = group.check_member(claimant.member_id, None)
    group.check_generation(claimant.generation)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise RebalanceInProgress(group.name)
    if claimant.key not in member.assigned:
        raise PartitionNotAssigned(
            group.name, claimant.topic, claimant.partition, member_id=claimant.member_id
        )


def check_assigned_by_broker(group: ConsumerGroup, claimant: Claimant) -> None:
    """Check that the claimant has had the partition since the generation it names.

    Raises:
        UnknownMember, IllegalGeneration: the claimant missed a rebalance, or was removed.
        PartitionNotAssigned: the partition is assigned to another member, or to none.
    """
    member = classic_member(group, claimant.member_id, None)
    facts = group.topics_of((claimant.topic,)).get(claimant.topic)
    since = None if facts is None else member.assigned.get(OwnedPartition(facts.topic_id, claimant.partition))
    if since is not None and since <= claimant.generation <= member.epoch:
        return
    check_generation(group, member, claimant.generation)
    raise PartitionNotAssigned(group.name, claimant.topic, claimant.partition, member_id=claimant.member_id)


def check_owner(group: Group, claimant: Claimant) -> None:
    """Check that the claimant owns the partition.

    Raises:
        PartitionOwned: another member owns it.
        PartitionNotOwned: no member owns it; the claimant has to claim it first.
        UnknownMember, IllegalGeneration, RebalanceInProgress, PartitionNotAssigned: see ``check_assigned``.
    """
    check_assigned(group, claimant)
    _check_no_other_owner(group, claimant)
    if claimant.key not in group.owners:
        raise PartitionNotOwned(group.name, claimant.topic, claimant.partition, member_id=claimant.member_id)


def check_claim(group: Group, claimant: Claimant) -> None:
    """Check that the claimant may become the owner of the partition.

    Raises:
        PartitionOwned: another member still owns it.
        RebalanceInProgress: the next generation may assign the partition to another member.
        UnknownMember, IllegalGeneration, PartitionNotAssigned: see ``check_assigned``.
    """
    check_assigned(group, claimant)
    _check_no_other_owner(group, claimant)
    if group.state is not GroupState.STABLE:
        raise RebalanceInProgress(group.name)


def _check_no_other_owner(group: Group, claimant: Claimant) -> None:
    owner = group.owners.get(claimant.key, claimant.member_id)
    if owner != claimant.member_id:
        raise PartitionOwned(group.name, claimant.topic, claimant.partition, owner=owner)
