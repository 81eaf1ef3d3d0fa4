"""Groups as clients list and describe them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from ..cluster.consumer_group_store import OwnedPartition
from .base.assignors import DEFAULT_ASSIGNOR
from .base.consumer_protocol import CONSUMER, AssignedPartition, subscribed_topics
from .base.context import GroupContext
from .base.messages import GroupDescription, GroupListing, MemberDescription
from .base.states import GroupState
from .classic.group import Group
from .consumer.classic_membership import named
from .consumer.group import ConsumerGroup
from .live_group import LiveGroup
from .share.group import ASSIGNOR
from .share.live_group import LiveShareGroup

# Member id, assigned partitions, and owned ones.
Holding: TypeAlias = tuple[str, frozenset[AssignedPartition], frozenset[AssignedPartition]]


class ManagedMember(NamedTuple):
    """A member for which the broker joins (ADR-0017)."""

    member_id: str
    topics: frozenset[str]
    session_timeout_ms: int


def listing_of(live: LiveGroup) -> GroupListing:
    if live.consumer is not None:
        return GroupListing(group=live.group.name, protocol_type=CONSUMER, state=live.state, type=CONSUMER)
    if live.share is not None:
        return GroupListing(group=live.group.name, protocol_type=live.type, state=live.state, type=live.type)
    return GroupListing(group=live.group.name, protocol_type=live.group.protocol_type or "", state=live.state)


def description_of(live: LiveGroup, context: GroupContext) -> GroupDescription:
    """Describe a group of any protocol."""
    if live.share is not None:
        return _share_group(live.share, context)
    if live.consumer is not None:
        return _consumer_group(live.consumer.group, context)
    return _classic_group(live.group)


def member_count(live: LiveGroup) -> int:
    if live.share is not None:
        return len(live.share.group.members)
    return len(live.group.members if live.consumer is None else live.consumer.group.members)


def holdings_of(live: LiveGroup, context: GroupContext) -> Iterator[Holding]:
    """Yield the id of each member, what it is assigned, and what it owns; the caller may pause in between."""
    if live.consumer is None:
        group = live.group
        for member in list(group.members.values()):
            assigned = member.assigned if group.state is GroupState.STABLE else frozenset[AssignedPartition]()
            yield member.member_id, assigned, group.owners.of(member.member_id)
        return
    names = live.consumer.group.topic_names()
    for member in list(live.consumer.group.members.values()):
        assigned = named(member.assigned, names)
        yield member.member_id, assigned, assigned if member.is_managed else frozenset()


def managed_member(live: LiveGroup, client_id: str) -> ManagedMember | None:
    """Return the managed member with a client id; None if there is none."""
    if live.consumer is None:
        member_id = live.group.clients.first(client_id)
        if member_id is None:
            return None
        member = live.group.members[member_id]
        topics = subscribed_topics(member.protocols[0].metadata) or frozenset()
        return ManagedMember(member_id, topics, member.session_timeout_ms)
    group = live.consumer.group
    member_id = group.index.clients.first(client_id)
    if member_id is None:
        return None
    consumer_member = group.members[member_id]
    assert consumer_member.classic is not None
    topics = group.topics_of_member(consumer_member)
    return ManagedMember(member_id, topics, consumer_member.classic.session_timeout_ms)


def _consumer_group(group: ConsumerGroup, context: GroupContext) -> GroupDescription:
    topics = {member_id: group.topics_of_member(member) for member_id, member in group.members.items()}
    names = group.topic_names()

    return GroupDescription(
        group=group.name,
        state=group.state,
        generation=group.epoch,
        protocol_type=CONSUMER,
        protocol_name=group.assignor or DEFAULT_ASSIGNOR,
        members=[
            MemberDescription(
                member_id=member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=b"",
                assignment=b"",
                is_managed=member.is_managed,
                session_timeout_ms=context.configs.number(group.name, "consumer.session.timeout.ms")
                if member.classic is None
                else member.classic.session_timeout_ms,
                topics=topics[member_id],
                assigned=named(member.assigned, names),
                owned=named(member.assigned, names) if member.is_managed else frozenset(),
                epoch=member.epoch,
                regex=member.regex,
                target=named(member.target, names),
            )
            for member_id, member in group.members.items()
        ],
        type=CONSUMER,
        assignment_epoch=group.assignment_epoch,
    )


def _share_group(share: LiveShareGroup, context: GroupContext) -> GroupDescription:
    group = share.group
    return GroupDescription(
        group=group.name,
        state=group.state,
        generation=group.epoch,
        protocol_type="share",
        protocol_name=ASSIGNOR,
        members=[
            MemberDescription(
                member_id=member.member_id,
                instance_id=None,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=b"",
                assignment=b"",
                session_timeout_ms=context.configs.number(group.name, "share.session.timeout.ms"),
                topics=member.topics,
                assigned=frozenset(
                    AssignedPartition(share.topic_of(topic_id), number)
                    for topic_id, number in member.assigned
                    if OwnedPartition(topic_id, number) in share.partitions
                ),
                epoch=member.epoch,
            )
            for member in group.members.values()
        ],
        type="share",
        assignment_epoch=group.epoch,
    )


def _classic_group(group: Group) -> GroupDescription:
    """Describe a classic group; its protocol and assignments are shown only while it is stable."""
    is_stable = group.state is GroupState.STABLE
    return GroupDescription(
        group=group.name,
        state=group.state,
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=[
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
                is_managed=member.is_managed,
                session_timeout_ms=member.session_timeout_ms,
                topics=subscribed_topics(next((metadata for _, metadata in member.protocols), b""))
                or frozenset(),
                assigned=member.assigned if is_stable else frozenset(),
                owned=group.owners.of(member.member_id),
            )
            for member in group.members.values()
        ],
    )
