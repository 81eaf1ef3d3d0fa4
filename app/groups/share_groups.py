"""The interface of share groups for listeners: membership, states, offsets (KIP-932, ADR-0044).

Reading is in ``share.reads``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from stele.wire.isolation_level import IsolationLevel

from ..broker.entity_configs import DEAD_LETTER_TOPIC
from ..cluster.consumer_group_store import JOINING, OwnedPartition
from ..errors import (
    GroupNotEmpty,
    GroupOfOtherType,
    InvalidRecordState,
    InvalidRequest,
    UnknownMember,
    UnknownPartition,
)
from ..work_budget import Pace, Steps, sorted_in_steps
from .base.checks import check_group_id, check_member_size
from .base.share_state import Acknowledgement, RecordState
from .base.states import GroupState
from .share.durable_partition import DurableSharePartition
from .share.group import ASSIGNOR, ShareHeartbeat, ShareHeartbeatAnswer, ShareMember
from .share.live_group import LiveShareGroup
from .table import GroupTable

# To look at those of a partition takes about 3 µs.
_PIECES_OF_OFFSETS = 3
_FINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    """``names`` are the names of the topics of all assigned partitions, by their ids."""

    group: str
    state: GroupState
    epoch: int
    assignor: str
    members: Sequence[ShareMember]
    names: dict[UUID, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionOffsets:
    """``finished`` counts final offsets from ``start_offset`` on.

    They are not delivered again.
    """

    topic: str
    topic_id: UUID
    partition: int
    start_offset: int
    finished: int
    acquired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedRecords:
    """Offsets with the same state, both ends included; ``member_id`` is empty unless a member holds them."""

    topic: str
    partition: int
    first: int
    last: int
    state: RecordState
    deliveries: int
    member_id: str


class ShareGroups:
    """Serves the share groups of ``table``.

    Every call may raise as those of ``GroupCoordinator``.
    """

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    async def heartbeat(self, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """Let a member join, stay or leave.

        A member that joins gets its partitions when they have a state.

        Raises:
            InvalidGroupId, InvalidRequest: change the request.
            GroupOfOtherType: the group has another protocol.
            UnknownMember, FencedMemberEpoch: join again with epoch 0.
            GroupFull, TooManyGroups: a limit of the broker is reached.
            GroupStoreFailed, StorageUnavailable: repeat the heartbeat.
        """
        self._table.check_open()
        request.check()
        check_group_id(request.group)
        self._check_size(request)
        if request.epoch != JOINING and request.group not in self._table.groups:
            # Members are not stored, so after a restart perhaps nothing is left of a group.
            raise UnknownMember(request.group, request.member_id)
        live = self._table.existing_or_new(request.group)
        share = live.joined_share_group() if request.epoch == JOINING else live.share
        if share is None:
            raise GroupOfOtherType(request.group, live.type)
        with self._table.listed(live):
            return await share.heartbeat(request)

    def _check_size(self, request: ShareHeartbeat) -> None:
        """Raises ``InvalidRequest``."""
        check_member_size(
            self._table.settings,
            (
                ("member id", request.member_id),
                ("rack id", request.rack_id or ""),
                ("client id", request.client_id),
                *(("topic", topic) for topic in request.topics or ()),
            ),
        )

    # ── what members do ──

    def check_served(self) -> None:
        """Raises ``NotCoordinator``, ``CoordinatorNotAvailable``."""
        self._table.check_open()

    def existing(self, group: str) -> LiveShareGroup:
        """Raises ``InvalidGroupId``, ``GroupNotFound``, ``GroupOfOtherType``."""
        check_group_id(group)
        live = self._table.existing(group)
        if live.share is None:
            raise GroupOfOtherType(group, live.type)
        return live.share

    async def begun(self, group: str, topics: Iterable[str], *, reset: str | None = None) -> LiveShareGroup:
        """Return a group in which all partitions of ``topics`` have a state; a new one if there is none.

        For members that do not join. ``reset`` as in ``LiveShareGroup.start_partitions``. Raises as ``heartbeat``.
        """
        self._table.check_open()
        check_group_id(group)
        live = self._table.existing_or_new(group)
        share = live.joined_share_group()
        with self._table.listed(live):
            await share.start_partitions(topics, reset=reset)
        return share

    def acknowledge(
        self,
        group: str,
        member_id: str,
        topic: str,
        partition: int,
        acknowledgements: Sequence[Acknowledgement],
        *,
        may_renew: bool = True,
    ) -> asyncio.Future[None]:
        """Take what a member says of its records in a partition.

        Completes when that is durable.

        Raises, at once or from the future:
            InvalidRequest, InvalidRecordState: as ``SharePartition.acknowledge``.
            GroupNotFound, GroupOfOtherType, TopicError, UnknownPartition: there is no such state.
            GroupStoreFailed: nothing changed.
        """
        share = self.existing(group)
        known = share.partition(topic, partition)
        if known is None:
            # No member can hold records of a partition that has no state.
            raise InvalidRecordState(group, acknowledgements[0].first, acknowledgements[-1].last)
        is_enabled = self._table.configs.is_on(group, "share.renew.acknowledge.enable")
        return known.acknowledge(member_id, acknowledgements, may_renew=may_renew and is_enabled)

    def release_member(
        self, group: str, member_id: str, partitions: Iterable[OwnedPartition] | None = None
    ) -> None:
        """Release the records that a member holds in ``partitions``; everywhere by default."""
        live = self._table.groups.get(group)
        if live is not None and live.share is not None:
            live.share.release_member(member_id, partitions)

    def isolation(self, group: str) -> IsolationLevel:
        """Return what a group reads of transactions."""
        level = self._table.configs.text(group, "share.isolation.level")
        return IsolationLevel.READ_COMMITTED if level == "read_committed" else IsolationLevel.READ_UNCOMMITTED

    def lock_ms(self, group: str) -> int:
        """Return how long records are locked."""
        return self._table.configs.number(group, "share.record.lock.duration.ms")

    # ── administration ──

    def describe(self, group: str) -> ShareGroupDescription:
        """Raises ``GroupNotFound``, ``GroupOfOtherType``."""
        share = self.existing(group)
        return ShareGroupDescription(
            group=group,
            state=share.group.state,
            epoch=share.group.epoch,
            assignor=ASSIGNOR,
            members=list(share.group.members.values()),
            names={partition.topic_id: share.topic_of(partition.topic_id) for partition in share.partitions},
        )

    def offsets(self, group: str) -> Steps[list[SharePartitionOffsets]]:
        """Return the group's positions in all partitions with a state.

        They are by topic and partition.

        Raises ``GroupNotFound``, ``GroupOfOtherType``.
        """
        share, pace = self.existing(group), Pace()
        offsets: list[SharePartitionOffsets] = []
        for partition, known in list(share.partitions.items()):
            # Its topic may have been deleted between two steps.
            if share.partitions.get(partition) is known:
                offsets.append(offsets_of(share, partition, known))
            if pace.is_due(_PIECES_OF_OFFSETS):
                yield
        return (yield from sorted_in_steps(offsets, lambda one: (one.topic, one.partition)))

    def unfinished(self, group: str, *, ranges_max: int) -> list[UnfinishedRecords]:
        """Return the first ranges of delivered, unfinished offsets per partition.

        Raises ``GroupNotFound``, ``GroupOfOtherType``.
        """
        share = self.existing(group)
        found: list[UnfinishedRecords] = []
        for partition in sorted(
            share.partitions, key=lambda held: (share.topic_of(held.topic_id), held.partition)
        ):
            for kept, member_id in share.partitions[partition].records.ranges():
                if kept.state in _FINAL or not kept.delivery_count:
                    continue
                if len(found) == ranges_max:
                    return found
                found.append(
                    UnfinishedRecords(
                        topic=share.topic_of(partition.topic_id),
                        partition=partition.partition,
                        first=kept.first,
                        last=kept.last,
                        state=kept.state,
                        deliveries=kept.delivery_count,
                        member_id=member_id,
                    )
                )
        return found

    def dead_letter_topic(self, group: str) -> str | None:
        """Return the dead-letter topic of a group; None without one."""
        return self._table.configs.text(group, DEAD_LETTER_TOPIC) or None

    async def reset(self, group: str, topic: str, partition: int, start_offset: int) -> None:
        """Begin a partition at an offset; all states of its records are forgotten.

        Creates the group if there is none.

        Raises:
            InvalidGroupId, TooManyGroups, GroupOfOtherType: it cannot be a share group.
            GroupNotEmpty: it has members.
            TopicError, UnknownPartition: there is no such partition.
            InvalidRequest: the offset is negative.
            GroupStoreFailed: repeat it.
        """
        self.check_alterable(group)
        if start_offset < 0:
            raise InvalidRequest(f"start offset {start_offset} is negative")
        known = self._table.topic(topic)
        if not 0 <= partition < known.partitions:
            raise UnknownPartition(topic, partition, partitions=known.partitions)
        live = self._table.existing_or_new(group)
        share = live.joined_share_group()
        with self._table.listed(live):
            await share.reset(topic, OwnedPartition(known.topic_id, partition), start_offset)

    async def forget(self, group: str, topic: str) -> UUID:
        """Forget the states of a topic, and return its id. Raises as ``reset``."""
        share = self._empty(group)
        topic_id = self._table.topic(topic).topic_id
        await share.forget(topic_id)
        return topic_id

    def check_alterable(self, group: str) -> None:
        """Check that offsets of a group can be altered.

        Raises ``InvalidGroupId``, ``TooManyGroups``, ``GroupOfOtherType``, ``GroupNotEmpty``.
        """
        self._table.check_open()
        check_group_id(group)
        if self._table.existing_or_new(group).joined_share_group().group.members:
            raise GroupNotEmpty(group)

    def check_empty(self, group: str) -> None:
        """Raises ``GroupNotFound``, ``GroupOfOtherType``, ``GroupNotEmpty``."""
        self._empty(group)

    def _empty(self, group: str) -> LiveShareGroup:
        share = self.existing(group)
        if share.group.members:
            raise GroupNotEmpty(group)
        return share


def offsets_of(
    share: LiveShareGroup, partition: OwnedPartition, known: DurableSharePartition
) -> SharePartitionOffsets:
    """Return the position of a group in one of its partitions."""
    records = known.records
    return SharePartitionOffsets(
        topic=share.topic_of(partition.topic_id),
        topic_id=partition.topic_id,
        partition=partition.partition,
        start_offset=records.start_offset,
        finished=records.finished_count,
        acquired=records.acquired_count,
    )
