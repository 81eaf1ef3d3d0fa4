"""Errors of groups whose partitions the broker assigns (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence

from .base import short
from .groups import GroupError


class FencedMemberEpoch(GroupError):
    def __init__(self, group: str, member_id: str, epoch: int, *, current_epoch: int) -> None:
        super().__init__(
            f"epoch {epoch} of member {short(member_id)!r} in group {short(group)!r} does not fit the current one, "
            f"{current_epoch}; give up all partitions and join again with epoch 0",
            group=group,
        )
        self.member_id = member_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class StaleMemberEpoch(GroupError):
    """A request about offsets has an epoch that is not the member's."""

    def __init__(self, group: str, member_id: str, epoch: int, *, current_epoch: int) -> None:
        super().__init__(
            f"epoch {epoch} of member {short(member_id)!r} in group {short(group)!r} is not the current one, "
            f"{current_epoch}; repeat the request with the epoch of the next heartbeat",
            group=group,
        )
        self.member_id = member_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class UnreleasedInstance(GroupError):
    def __init__(self, group: str, instance_id: str) -> None:
        super().__init__(
            f"a live member of group {short(group)!r} has the instance id {short(instance_id)!r}; "
            "stop that member, or use another instance id",
            group=group,
        )
        self.instance_id = instance_id


class UnsupportedAssignor(GroupError):
    def __init__(self, group: str, assignor: str, *, supported: Sequence[str]) -> None:
        super().__init__(
            f"assignor {short(assignor)!r} of a member of group {short(group)!r} is not known; "
            f"use one of {', '.join(supported)}",
            group=group,
        )
        self.assignor = assignor


class InvalidRegularExpression(GroupError):
    def __init__(self, group: str, pattern: str, reason: str) -> None:
        super().__init__(
            f"the subscription {short(pattern)!r} of a member of group {short(group)!r} is not valid: {reason}",
            group=group,
        )
        self.pattern = pattern
        self.reason = reason


class CommitVersionTooOld(GroupError):
    def __init__(self, group: str) -> None:
        super().__init__(
            f"members with group.protocol=consumer commit with OffsetCommit version 9 or higher in group "
            f"{short(group)!r}; upgrade the client",
            group=group,
        )


class GroupOfOtherType(GroupError):
    """``why``: a classic group cannot become one whose partitions the broker assigns."""

    def __init__(self, group: str, kind: str, *, why: str = "") -> None:
        is_of = f"group {short(group)!r} is of type {kind}"
        super().__init__(
            f"{is_of} and cannot change that while it has members: {why}; stop its members first, "
            "or use another group id"
            if why
            else f"{is_of}; use a client of that type or another group id, "
            "or delete the group when its members have stopped",
            group=group,
        )
        self.kind = kind
