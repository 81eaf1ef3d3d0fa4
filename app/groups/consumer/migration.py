"""Groups whose members move between the two consumer protocols (ADR-0043).

These are Kafka's classic protocol and the one in which the broker assigns.

A group with members of the classic protocol becomes a consumer group when a member of the new
protocol joins (**upgrade**), and a classic group when the last of these leaves (**downgrade**).
Members of the classic protocol notice a rebalance, and nothing else. Pure functions from one
state machine to the other; ``LiveGroup`` calls them, and writes the result.
"""

from __future__ import annotations

from uuid import UUID

from ...cluster.consumer_group_store import ClassicMembership, ConsumerMember, OwnedPartition
from ...errors import GroupOfOtherType
from ...settings import MigrationPolicy
from ..base.consumer_protocol import CONSUMER, encode_assignment, plain_assignment, subscription_of
from ..base.member import Member
from ..base.topic_facts import TopicsOf
from ..classic.group import Group
from .classic_membership import named, owned_by_id
from .group import FIRST_EPOCH, ConsumerGroup


def may_upgrade(policy: MigrationPolicy) -> bool:
    return policy in ("bidirectional", "upgrade")


def may_downgrade(policy: MigrationPolicy) -> bool:
    return policy in ("bidirectional", "downgrade")


def has_classic_members_only(group: ConsumerGroup) -> bool:
    """True if the group has members, and none of the new protocol."""
    return 0 < len(group.members) == group.index.classic


# ── upgrade ──


def upgraded(group: Group, *, topics_of: TopicsOf) -> ConsumerGroup:
    """Return a consumer group with the members of a classic group; ``group`` stays as it is.

    Members have what is assigned to them, and all that they may still hold from an earlier
    assignment, so no partition is given to another member before its holder joined again without it.

    Raises:
        GroupOfOtherType: members are not consumers that the broker can assign for, with the reason.
    """
    if group.protocol_type != CONSUMER:
        raise _refusal(group, f"its members are of type {_shown(group.protocol_type)}, not consumers")
    consumer = ConsumerGroup(group.name, topics_of=topics_of)
    consumer.epoch = consumer.assignment_epoch = max(group.generation, FIRST_EPOCH)
    taken: set[OwnedPartition] = set()
    assigned = {
        member_id: _assigned(group, consumer, member, taken) for member_id, member in group.members.items()
    }
    for member_id, member in group.members.items():
        held = owned_by_id(consumer, member.held) - taken
        taken |= held
        # It may not have joined since it came from a consumer group.
        epoch = group.known_epochs.get(member_id, consumer.epoch)
        consumer.put(_consumer_member(group, member, assigned[member_id] | held, epoch=epoch))
    consumer.check()
    return consumer


def _assigned(
    group: Group, consumer: ConsumerGroup, member: Member, taken: set[OwnedPartition]
) -> frozenset[OwnedPartition]:
    """Return what is assigned to a member, and add it to ``taken``."""
    plain = plain_assignment(member.assignment)
    if plain is None:
        raise _refusal(group, f"its assignor {_shown(group.protocol_name)} has assignments of its own format")
    assigned = owned_by_id(consumer, plain)
    if assigned & taken:
        raise _refusal(group, f"its assignor {_shown(group.protocol_name)} gives a partition to two members")
    taken |= assigned
    return assigned


def _consumer_member(
    group: Group, member: Member, assigned: frozenset[OwnedPartition], *, epoch: int
) -> ConsumerMember:
    subscription = subscription_of(member.metadata_for(group.protocol_name) or member.protocols[0].metadata)
    if subscription is None:
        raise _refusal(group, "the subscription of a member cannot be read")
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=subscription.topics,
        epoch=epoch,
        assigned=dict.fromkeys(assigned, epoch),
        target=assigned,
        classic=ClassicMembership(
            session_timeout_ms=member.session_timeout_ms,
            protocols=member.protocols,
            is_managed=member.is_managed,
        ),
    )


def _shown(name: str | None) -> str:
    return repr((name or "")[:60])


def _refusal(group: Group, why: str) -> GroupOfOtherType:
    return GroupOfOtherType(group.name, "classic", why=why)


# ── downgrade ──


def downgrade(consumer: ConsumerGroup, group: Group) -> None:
    """Move the classic members of a consumer group to ``group``, which is empty.

    The generation is higher than the epoch of any member. So a member that finds the group after
    a crash, when ``known_epochs`` are forgotten, has to join again, and its join begins a rebalance.
    """
    assert has_classic_members_only(consumer)
    names = consumer.topic_names()
    members = list(consumer.members.values())
    group.become_stable(
        [_classic_member(member, names) for member in members],
        {member.member_id: member.epoch for member in members},
        generation=max(group.generation, consumer.epoch) + 1,
    )
    # They had no other owner.
    for member in group.members.values():
        for part in member.assigned if member.is_managed else ():
            group.owners.claim(part, member.member_id)


def _classic_member(member: ConsumerMember, names: dict[UUID, str]) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.classic.protocols,
        is_managed=member.is_managed,
        assignment=encode_assignment(named(member.assigned, names)),
        held=named(member.revoking, names),
    )
