"""Check member epochs of offset commits and fetches (KIP-848, KIP-1251)."""

from __future__ import annotations

from collections.abc import Iterable

from ...cluster.consumer_group_store import OwnedPartition
from ...errors import CommitVersionTooOld, IllegalGeneration, StaleMemberEpoch, UnknownMember
from ..base.messages import NO_MEMBER, CommitRequest
from .group import ConsumerGroup


def check_commit(
    group: ConsumerGroup,
    request: CommitRequest,
    partitions: Iterable[OwnedPartition],
    *,
    is_transactional: bool = False,
) -> str | None:
    """Return the id of the member that commits ``partitions``; None for an administrator.

    An older epoch of the member is accepted for partitions that it has had since then, because
    commits and heartbeats pass each other on the way.

    Raises:
        UnknownMember, FencedInstance: the member is not in the group, or a client that is no member
            commits to a group that has members.
        StaleMemberEpoch: the member had another epoch when it committed.
        IllegalGeneration: as ``StaleMemberEpoch``, for members of the classic protocol.
        CommitVersionTooOld: the version of the request has no epochs.
    """
    epoch = request.generation
    if epoch < 0 and not group.members:
        return None
    has_no_member = request.member_id == NO_MEMBER and request.instance_id is None
    if epoch < 0 and has_no_member and is_transactional:
        return None
    if epoch < 0:
        raise UnknownMember(group.name, request.member_id)
    member = group.member(request.member_id, request.instance_id)
    if member.classic is not None:
        if epoch != member.epoch:
            raise IllegalGeneration(group.name, epoch, current_generation=member.epoch)
        return member.member_id
    if not request.has_member_epoch and not is_transactional:
        raise CommitVersionTooOld(group.name)
    if epoch != member.epoch:
        is_known = epoch < member.epoch and all(
            epoch >= member.assigned.get(part, member.revoking.get(part, member.epoch)) for part in partitions
        )
        if not is_known:
            raise StaleMemberEpoch(group.name, member.member_id, epoch, current_epoch=member.epoch)
    return member.member_id


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Check a member that fetches offsets.

    Clients that are no members have no id and epoch -1.

    Raises:
        UnknownMember: the member is not in the group.
        StaleMemberEpoch: the member has another epoch.
    """
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or NO_MEMBER)
    if epoch != member.epoch:
        raise StaleMemberEpoch(group.name, member.member_id, epoch, current_epoch=member.epoch)
