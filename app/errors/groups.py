"""Errors about consumer groups and their coordinator."""

from __future__ import annotations

from .base import RequestError, SteleError, short


class GroupError(RequestError):
    """The state or the settings of ``group`` do not allow the request."""

    def __init__(self, message: str, *, group: str) -> None:
        super().__init__(message)
        self.group = group


class InvalidGroupId(GroupError):
    def __init__(self, group: str, reason: str) -> None:
        super().__init__(f"group id {short(group)!r} is not valid: {reason}", group=group)
        self.reason = reason


class InvalidSessionTimeout(GroupError):
    """Times in ms."""

    def __init__(self, group: str, session_timeout_ms: int, *, min_ms: int, max_ms: int) -> None:
        super().__init__(
            f"a session timeout of {session_timeout_ms} ms is not allowed in group {short(group)!r}: choose {min_ms} to "
            f"{max_ms} ms, or change group_min_session_timeout_ms or group_max_session_timeout_ms of the broker",
            group=group,
        )
        self.session_timeout_ms = session_timeout_ms


class InconsistentGroupProtocol(GroupError):
    def __init__(self, group: str, reason: str) -> None:
        super().__init__(
            f"the protocols of the member do not fit group {short(group)!r}: {reason}; "
            "configure an assignor that all members support, or use another group id",
            group=group,
        )
        self.reason = reason


class UnknownMember(GroupError):
    def __init__(self, group: str, member_id: str) -> None:
        super().__init__(
            f"group {short(group)!r} has no member {short(member_id)!r}; "
            "it left, or missed its session timeout: join again without a member id",
            group=group,
        )
        self.member_id = member_id


class IllegalGeneration(GroupError):
    def __init__(self, group: str, generation: int, *, current_generation: int) -> None:
        super().__init__(
            f"generation {generation} of group {short(group)!r} is not the current one, "
            f"{current_generation}; join again",
            group=group,
        )
        self.generation = generation
        self.current_generation = current_generation


class RebalanceInProgress(GroupError):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {short(group)!r} is rebalancing; join again", group=group)


class MemberIdRequired(GroupError):
    """Not a fault: the client must join a second time, with ``member_id`` (KIP-394)."""

    def __init__(self, group: str, member_id: str) -> None:
        super().__init__(
            f"group {short(group)!r} gave out a member id; join again, as member {short(member_id)!r}",
            group=group,
        )
        self.member_id = member_id


class FencedInstance(GroupError):
    def __init__(self, group: str, instance_id: str) -> None:
        super().__init__(
            f"another member of group {short(group)!r} has taken over the instance id {short(instance_id)!r}; "
            "stop this member, or give it an instance id of its own",
            group=group,
        )
        self.instance_id = instance_id


class GroupFull(GroupError):
    def __init__(self, group: str, *, limit: int, setting: str = "group_size_max") -> None:
        super().__init__(
            f"group {short(group)!r} has reached its limit of {limit} members; stop one, or raise {setting} of the broker",
            group=group,
        )
        self.limit = limit


class TooManyGroups(GroupError):
    def __init__(self, group: str, *, limit: int) -> None:
        super().__init__(
            f"group {short(group)!r} cannot be created: the broker has reached its limit of {limit} groups; "
            "delete unused groups, or raise groups_max of the broker",
            group=group,
        )
        self.limit = limit


class GroupNotEmpty(GroupError):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {short(group)!r} has members; stop them first", group=group)


class GroupNotFound(GroupError):
    def __init__(self, group: str) -> None:
        super().__init__(
            f"group {short(group)!r} does not exist; join it, or commit an offset in it, to create it",
            group=group,
        )


class GroupSubscribedToTopic(GroupError):
    def __init__(self, group: str, topic: str) -> None:
        super().__init__(
            f"a member of group {short(group)!r} is subscribed to topic {short(topic)!r}; stop it first",
            group=group,
        )
        self.topic = topic


class OwnershipError(GroupError):
    """The request needs an assignment or ownership that the member does not have."""

    def __init__(self, message: str, *, group: str, topic: str, partition: int) -> None:
        super().__init__(message, group=group)
        self.topic = topic
        self.partition = partition


class PartitionNotAssigned(OwnershipError):
    def __init__(self, group: str, topic: str, partition: int, *, member_id: str) -> None:
        super().__init__(
            f"{short(topic)}-{partition} is not assigned to member {short(member_id)!r} of group "
            f"{short(group)!r}; a heartbeat returns the current assignment",
            group=group,
            topic=topic,
            partition=partition,
        )
        self.member_id = member_id


class PartitionOwned(OwnershipError):
    def __init__(self, group: str, topic: str, partition: int, *, owner: str) -> None:
        super().__init__(
            f"{short(topic)}-{partition} is owned by member {short(owner)!r} of group {short(group)!r}; "
            "claim it again after that member has released it",
            group=group,
            topic=topic,
            partition=partition,
        )
        self.owner = owner


class PartitionNotOwned(OwnershipError):
    def __init__(self, group: str, topic: str, partition: int, *, member_id: str) -> None:
        super().__init__(
            f"member {short(member_id)!r} of group {short(group)!r} does not own {short(topic)}-{partition}; "
            "claim it first",
            group=group,
            topic=topic,
            partition=partition,
        )
        self.member_id = member_id


class LeaseFenced(GroupError):
    def __init__(self, group: str, reason: str) -> None:
        super().__init__(
            f"the lease on group {short(group)!r} is no longer valid: {reason}; its records are delivered again: "
            "poll, and do not repeat this request",
            group=group,
        )
        self.reason = reason


class OffsetMetadataTooLarge(GroupError):
    """Sizes in bytes of UTF-8."""

    def __init__(self, group: str, size: int, *, limit: int) -> None:
        super().__init__(
            f"offset metadata of {size} bytes in group {short(group)!r} exceeds the limit of {limit}; "
            "shorten it, or raise offset_metadata_bytes_max of the broker",
            group=group,
        )
        self.size = size
        self.limit = limit


class CoordinatorNotAvailable(SteleError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"consumer groups are not available: {reason}; try again")
        self.reason = reason


class CoordinatorFenced(SteleError):
    """Each coordinator that opens the group store takes the next epoch."""

    def __init__(self, *, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"this coordinator (epoch {epoch}) was replaced by another (epoch {current_epoch}); "
            "find the coordinator of the group again"
        )
        self.epoch = epoch
        self.current_epoch = current_epoch


class NotCoordinator(SteleError):
    """Another broker of the cluster coordinates the groups.

    None does for the moment if ``broker_id`` is None. With ``is_reading`` this broker is about to: it has the lease.
    """

    def __init__(self, broker_id: int | None, *, is_reading: bool = False) -> None:
        if is_reading:
            where = "it has just taken over these and is still reading them"
        elif broker_id is None:
            where = "no broker has them at the moment"
        else:
            where = f"broker {broker_id} has them"
        super().__init__(f"this broker does not coordinate consumer groups: {where}; try again")
        self.broker_id = broker_id
