"""Answers to joins and syncs, made from the current state of the group."""

from __future__ import annotations

from ..base.member import Member
from ..base.messages import Joined, JoinedMember, Synced
from .group import Group


def joined_of(
    group: Group,
    member: Member,
    *,
    leader: str | None = None,
    with_members: bool | None = None,
    skip_assignment: bool = False,
) -> Joined:
    """Return the answer to a join.

    It lists the members for the leader only, unless ``with_members`` says otherwise.
    ``leader`` replaces the leader's id.
    """
    assert group.protocol_type is not None
    assert group.protocol_name is not None
    assert group.leader is not None
    if with_members is None:
        with_members = group.leader == member.member_id
    return Joined(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader or group.leader,
        member_id=member.member_id,
        members=[
            JoinedMember(
                member_id=other.member_id,
                instance_id=other.instance_id,
                metadata=other.metadata_for(group.protocol_name),
            )
            for other in group.members.values()
        ]
        if with_members
        else (),
        skip_assignment=skip_assignment,
    )


def synced_of(group: Group, member: Member) -> Synced:
    """Return the answer to a sync: the assignment of ``member``."""
    assert group.protocol_type is not None
    assert group.protocol_name is not None
    return Synced(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
