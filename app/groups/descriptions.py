"""Groups as clients list and describe them."""

from __future__ import annotations

from .consumer_protocol import subscribed_topics
from .group import Group
from .group_states import GroupState
from .messages import GroupDescription, GroupListing, MemberDescription


def listing_of(group: Group) -> GroupListing:
    return GroupListing(group=group.name, protocol_type=group.protocol_type or "", state=group.state)


def description_of(group: Group) -> GroupDescription:
    """Describe a group; its protocol and assignments are shown only while it is stable."""
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
                owned=frozenset(part for part, owner in group.owners.items() if owner == member.member_id),
            )
            for member in group.members.values()
        ],
    )
