"""The lag of groups, and resets of their committed offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..broker.broker import Broker
from ..concurrency import several
from ..errors import GroupNotEmpty, InvalidRequest, NotLeader, TopicError
from ..work_budget import WorkBudget, at_once, in_turns, sorted_in_turns
from .base.consumer_protocol import AssignedPartition
from .base.messages import NO_OFFSET, CommitRequest, OffsetToCommit
from .coordinator import GroupCoordinator
from .descriptions import holdings_of
from .leases.manager import LeaseManager
from .share.live_group import LiveShareGroup
from .share_groups import offsets_of

# What a partition of a member takes, compared with a visit of one; its lag takes a whole one.
_OF_A_VISIT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The lag of a group in one partition.

    ``committed`` is ``NO_OFFSET``, and ``metadata`` empty, if the group has committed nothing.

    ``lag``: records between the committed offset, or the log start, and the last stable
    offset, because the group cannot read those of open transactions yet. ``member_id`` is
    assigned the partition, ``owner`` has claimed it.

    Of a share group ``committed`` is the first offset that is not finished, ``lag`` counts the
    unfinished offsets from there to the high watermark, and ``in_flight`` those that are locked.
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
    in_flight: int | None = None


async def fresh_group_lag(broker: Broker, coordinator: GroupCoordinator, group: str) -> list[PartitionLag]:
    """As ``group_lag``, with the ends of now, whichever broker has appended.

    Raises ``GroupNotFound``, ``StorageUnavailable``.
    """
    await coordinator.settle_ended(group)
    known = await group_lag(broker, coordinator, group)
    await broker.refresh([(lag.topic, lag.partition) for lag in known])
    return await group_lag(broker, coordinator, group)


async def group_lag(broker: Broker, coordinator: GroupCoordinator, group: str) -> list[PartitionLag]:
    """Return the lag in all committed and assigned partitions, by the known ends; with pauses.

    Without partitions of an internal topic that another broker serves.

    Raises ``GroupNotFound``.
    """
    live = coordinator.table.existing(group)
    budget = WorkBudget()
    if live.share is not None:
        return await _share_lag(broker, live.share, budget)
    assigned: dict[AssignedPartition, str] = {}
    owners: dict[AssignedPartition, str] = {}
    for member_id, parts, owned in holdings_of(live, coordinator.table):
        assigned.update(dict.fromkeys(parts, member_id))
        owners.update(dict.fromkeys(owned, member_id))
        await budget.visit(_OF_A_VISIT * (1 + len(parts)))
    offsets = live.offsets
    named = assigned.keys() | {AssignedPartition(*key) for key in offsets.records}
    lags: list[PartitionLag] = []
    for part in await sorted_in_turns(list(named), lambda part: part):
        await budget.visit()
        (commit,) = at_once(offsets.committed([part]))
        if commit.offset == NO_OFFSET and part not in assigned:
            # Of a topic that is deleted.
            continue
        try:
            state = broker.log_state(*part)
        except (TopicError, NotLeader):
            continue
        # A consumer that reads uncommitted records may be past the last stable offset.
        position = min(max(commit.offset, state.log_start_offset), state.last_stable_offset)
        lags.append(
            PartitionLag(
                topic=part.topic,
                partition=part.partition,
                committed=commit.offset,
                metadata=commit.metadata,
                log_start_offset=state.log_start_offset,
                high_watermark=state.high_watermark,
                lag=state.last_stable_offset - position,
                member_id=assigned.get(part),
                owner=owners.get(part),
            )
        )
    return lags


async def _share_lag(broker: Broker, share: LiveShareGroup, budget: WorkBudget) -> list[PartitionLag]:
    lags: list[PartitionLag] = []
    for partition, known in list(share.partitions.items()):
        await budget.visit()
        if share.partitions.get(partition) is not known:
            # Its topic was deleted during a pause.
            continue
        offsets = offsets_of(share, partition, known)
        try:
            state = broker.log_state(offsets.topic, offsets.partition)
        except (TopicError, NotLeader):
            continue
        lags.append(
            PartitionLag(
                topic=offsets.topic,
                partition=offsets.partition,
                committed=offsets.start_offset,
                metadata="",
                log_start_offset=state.log_start_offset,
                high_watermark=state.high_watermark,
                lag=max(0, state.high_watermark - offsets.start_offset - offsets.finished),
                member_id=None,
                owner=None,
                in_flight=offsets.acquired,
            )
        )
    return await sorted_in_turns(lags, lambda lag: (lag.topic, lag.partition))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The position from which a group is to continue in a partition.

    Either ``offset``, or ``at``: a time in ms since the epoch, or one of the ``…_TIMESTAMP``. ``metadata`` is what a
    member would commit beside the offset.
    """

    topic: str
    partition: int
    at: int | None = None
    offset: int | None = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """``before`` is ``NO_OFFSET`` if nothing was committed; ``lag`` is the lag after the reset."""

    topic: str
    partition: int
    before: int
    after: int
    lag: int


async def topics_read(coordinator: GroupCoordinator, group: str) -> set[str]:
    """Return the topics in which a group has offsets; of a share group, states."""
    return {topic for topic, _ in await _positions(coordinator, group)}


async def _positions(coordinator: GroupCoordinator, group: str) -> dict[tuple[str, int], int]:
    """Return where a group continues, by topic and partition."""
    if coordinator.is_share_group(group):
        return {
            (offsets.topic, offsets.partition): offsets.start_offset
            for offsets in await in_turns(coordinator.shares.offsets(group))
        }
    committed = await in_turns(coordinator.committed_in_steps(group))
    return {(offset.topic, offset.partition): offset.offset for offset in committed}


async def reset_offsets(
    broker: Broker,
    coordinator: GroupCoordinator,
    leases: LeaseManager,
    group: str,
    targets: Sequence[Target],
    *,
    dry_run: bool,
) -> list[Reset]:
    """Move the committed offsets of a group without members.

    An offset outside the log becomes the nearest end of the log. With ``dry_run`` nothing is
    moved, and the group may have members.

    Raises:
        UnknownTopic, UnknownPartition, InvalidTopicName, InvalidRequest: change the request; nothing was moved.
        GroupNotEmpty: stop its members first.
        GroupStoreFailed: nothing was moved; try again.
    """
    if len({(target.topic, target.partition) for target in targets}) < len(targets):
        raise InvalidRequest("a partition is named twice; name each once")
    resets: list[Reset] = []
    before = await _positions(coordinator, group)
    await broker.refresh([(target.topic, target.partition) for target in targets])
    times = [(target.topic, target.partition, target.at) for target in targets if target.at is not None]
    found = iter(await several(lambda time: broker.list_offset(*time), times))
    for target in targets:
        state = broker.log_state(target.topic, target.partition)
        offset = target.offset
        if offset is None:
            offset, _, _ = next(found)
            if offset < 0:
                # All records are older: continue with the next one that is written, or of a transaction that is open.
                offset = state.last_stable_offset
        after = min(max(offset, state.log_start_offset), state.high_watermark)
        resets.append(
            Reset(
                topic=target.topic,
                partition=target.partition,
                before=before.get((target.topic, target.partition), NO_OFFSET),
                after=after,
                lag=max(0, state.last_stable_offset - after),
            )
        )
    if dry_run or not resets:
        return resets
    if coordinator.is_share_group(group):
        for reset in resets:
            await coordinator.shares.reset(group, reset.topic, reset.partition, reset.after)
        return resets
    leases.retire(group)
    coordinator.table.check_open()
    live = coordinator.table.groups.get(group)
    if live is not None and not live.is_empty:
        raise GroupNotEmpty(group)
    offsets = [
        OffsetToCommit(
            topic=reset.topic, partition=reset.partition, offset=reset.after, metadata=target.metadata
        )
        for reset, target in zip(resets, targets, strict=True)
    ]
    for error in await coordinator.commit(CommitRequest(group=group, offsets=offsets)):
        if error is not None:
            raise error
    return resets
