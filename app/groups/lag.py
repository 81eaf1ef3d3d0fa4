"""How far a group is behind, and where it would be after a reset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..broker.broker import Broker
from ..errors import GroupNotEmpty, InvalidRequest, TopicError
from .consumer_protocol import AssignedPartition
from .coordinator import GroupCoordinator
from .group_states import GroupState
from .lease_manager import LeaseManager
from .messages import NO_OFFSET, CommitRequest, OffsetToCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """``committed`` is ``NO_OFFSET``, and ``metadata`` empty, where the group has committed nothing.

    ``lag``: records between what was committed, or the log start, and the high
    watermark. ``member_id`` has the partition assigned, ``owner`` has claimed it.
    """

    topic: str
    partition: int
    committed: int
    metadata: str
    log_start_offset: int
    high_watermark: int
    lag: int
    member_id: str | None
    owner: str | None


def group_lag(broker: Broker, coordinator: GroupCoordinator, group: str) -> list[PartitionLag]:
    """All partitions that the group has committed in, or is assigned. Raises ``GroupNotFound``."""
    described = coordinator.describe(group)
    assigned = {part: member.member_id for member in described.members for part in member.assigned}
    owners = {part: member.member_id for member in described.members for part in member.owned}
    committed = {AssignedPartition(one.topic, one.partition): one for one in coordinator.committed(group)}
    lags: list[PartitionLag] = []
    for part in sorted(assigned.keys() | committed.keys()):
        try:
            state = broker.log_state(*part)
        except TopicError:
            continue
        one = committed.get(part)
        offset = NO_OFFSET if one is None else one.offset
        position = min(max(offset, state.log_start_offset), state.high_watermark)
        lags.append(
            PartitionLag(
                topic=part.topic,
                partition=part.partition,
                committed=offset,
                metadata="" if one is None else one.metadata,
                log_start_offset=state.log_start_offset,
                high_watermark=state.high_watermark,
                lag=state.high_watermark - position,
                member_id=assigned.get(part),
                owner=owners.get(part),
            )
        )
    return lags


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a partition is to be read from. ``at`` is a time in ms or one of the ``…_TIMESTAMP``; or ``offset``."""

    topic: str
    partition: int
    at: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """``before`` is ``NO_OFFSET`` where nothing was committed; ``lag`` is what it will be."""

    topic: str
    partition: int
    before: int
    after: int
    lag: int


async def reset_offsets(
    broker: Broker,
    coordinator: GroupCoordinator,
    desk: LeaseManager,
    group: str,
    targets: Sequence[Target],
    *,
    dry_run: bool,
) -> list[Reset]:
    """Move the committed offsets of a group without members; an offset outside of the log becomes its nearest end.

    With ``dry_run`` nothing is moved, and there may be members.

    Raises:
        UnknownTopic, UnknownPartition, InvalidTopicName, InvalidRequest: change the request; nothing was moved.
        GroupNotEmpty: stop its members first.
        GroupStoreFailed: nothing was moved; try again.
    """
    if len({(target.topic, target.partition) for target in targets}) < len(targets):
        raise InvalidRequest("a partition is named twice; name each once")
    resets: list[Reset] = []
    before = {(one.topic, one.partition): one.offset for one in coordinator.committed(group)}
    for target in targets:
        state = broker.log_state(target.topic, target.partition)
        offset = target.offset
        if offset is None:
            assert target.at is not None
            offset, _, _ = await broker.list_offset(target.topic, target.partition, target.at)
            if offset < 0:
                # Nothing is as young as that: only what comes from now on.
                offset = state.high_watermark
        after = min(max(offset, state.log_start_offset), state.high_watermark)
        resets.append(
            Reset(
                topic=target.topic,
                partition=target.partition,
                before=before.get((target.topic, target.partition), NO_OFFSET),
                after=after,
                lag=state.high_watermark - after,
            )
        )
    if dry_run or not resets:
        return resets
    desk.retire(group)
    if any(one.group == group and one.state is not GroupState.EMPTY for one in coordinator.list_groups()):
        raise GroupNotEmpty(group)
    offsets = [OffsetToCommit(topic=one.topic, partition=one.partition, offset=one.after) for one in resets]
    for error in await coordinator.commit(CommitRequest(group=group, offsets=offsets)):
        if error is not None:
            raise error
    return resets
