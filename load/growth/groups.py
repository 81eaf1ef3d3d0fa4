"""Measure members of groups: all join at the same moment, and heartbeats while nothing changes.

Each member has a connection of its own. Those of a classic group join again, which is a rebalance, and sync.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from typing import Any
from uuid import uuid4

from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka import consumer_groups as consumer
from stele.wire.kafka import groups as classic
from stele.wire.kafka import share_groups as share

from ..process_usage import raise_open_files
from ..subjects import Subject
from .costs import Costs, Point
from .peers import Peer, new_names, peers_of, temporary_topic

# What classic members offer: a subscription to one topic.
_ASSIGNORS, _METADATA = ("range", "roundrobin"), struct.pack(">hih6si", 0, 1, 6, b"orders", -1)
SIZES = (10, 200, 1000)
BEATS = 2000
# Loading, not available, and not here; groups that are tried, so that each partition of Kafka's topic has one of them.
_NOT_YET, _TRIED = (14, 15, 16), 20
# As many members of share groups as it can have.
KAFKA_PROPERTIES = {"group.share.max.size": "1000"}
# Members look again whether a group has changed after so long; the shortest interval between assignments is 1 s.
_TIMEOUT_MS, _LOOK_S, _ASSIGNED_S = 300_000, 0.2, 1.1


@dataclass(slots=True)
class Member(Peer):
    """A member with its connection; ``epoch`` is the generation in a classic group."""

    member_id: str = field(default_factory=lambda: str(uuid4()))
    epoch: int = 0
    # Partitions to report, None if the broker knows them; the members that a leader was told of.
    owned: Sequence[Any] | None = ()
    members: Sequence[Any] = ()


@asynccontextmanager
async def members_of(subject: Subject, size: int) -> AsyncGenerator[list[Member]]:
    async with peers_of(subject, size) as peers:
        yield [Member(peer.reader, peer.writer) for peer in peers]


class ClassicGroup:
    """A group whose leader assigns nothing; ``_complete`` is the generation that has all members."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.name, self.members, self._complete = next(new_names), members, -1

    async def join(self, member: Member) -> None:
        request = classic.JoinGroupRequest(
            group_id=self.name, session_timeout_ms=_TIMEOUT_MS, rebalance_timeout_ms=_TIMEOUT_MS,
            member_id=member.member_id if member.epoch else "", protocol_type="consumer",
            protocols=[classic.JoinGroupRequestProtocol(name=name, metadata=_METADATA) for name in _ASSIGNORS],
        )  # fmt: skip
        answer = await member.call(classic.JOIN_GROUP_API, 5, request, E.MEMBER_ID_REQUIRED)
        if answer.error_code:
            request.member_id = answer.member_id
            answer = await member.call(classic.JOIN_GROUP_API, 5, request)
        member.member_id, member.epoch, member.members = (
            answer.member_id,
            answer.generation_id,
            answer.members,
        )
        if len(answer.members) == len(self.members):
            self._complete = member.epoch

    async def form(self, member: Member) -> None:
        """Join, and join again until all are in; then sync."""
        await self.join(member)
        while self._complete != member.epoch:
            await asyncio.sleep(_LOOK_S)
            if await self.beat(member):
                await self.join(member)
        await self.sync(member)

    async def sync(self, member: Member) -> None:
        shares = [
            classic.SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"") for m in member.members
        ]
        request = classic.SyncGroupRequest(
            group_id=self.name, generation_id=member.epoch, member_id=member.member_id, assignments=shares
        )
        await member.call(classic.SYNC_GROUP_API, 3, request)

    async def beat(self, member: Member) -> int:
        request = classic.HeartbeatRequest(
            group_id=self.name, generation_id=member.epoch, member_id=member.member_id
        )
        return (await member.call(classic.HEARTBEAT_API, 3, request, E.REBALANCE_IN_PROGRESS)).error_code

    async def leave(self) -> None:
        for member in self.members:
            request = classic.LeaveGroupRequest(group_id=self.name, member_id=member.member_id)
            await member.call(classic.LEAVE_GROUP_API, 2, request)

    async def rejoin(self) -> int:
        """Let all members join again, the leader first, because that begins a rebalance; then sync."""
        leader, *others = sorted(self.members, key=lambda member: -len(member.members))
        begun = asyncio.create_task(self.join(leader))
        await asyncio.sleep(_LOOK_S)
        await asyncio.gather(begun, *map(self.join, others))
        return len(await asyncio.gather(*map(self.sync, self.members)))


class BrokerGroup:
    """A group in which the broker assigns: a consumer group (KIP-848) or a share group."""

    def __init__(self, members: Sequence[Member], topic: str, *, is_share: bool) -> None:
        self.name, self.members, self._topic, self._is_share = next(new_names), members, topic, is_share

    async def beat(self, member: Member) -> None:
        topics = [self._topic] if member.epoch == 0 else None
        if self._is_share:
            request: object = share.ShareGroupHeartbeatRequest(
                group_id=self.name, member_id=member.member_id, member_epoch=member.epoch,
                subscribed_topic_names=topics,
            )  # fmt: skip
            answer = await member.call(share.SHARE_GROUP_HEARTBEAT_API, 1, request)
        else:
            request = consumer.ConsumerGroupHeartbeatRequest(
                group_id=self.name, member_id=member.member_id, member_epoch=member.epoch,
                rebalance_timeout_ms=-1 if topics is None else _TIMEOUT_MS, subscribed_topic_names=topics,
                topic_partitions=member.owned,
            )  # fmt: skip
            answer = await member.call(consumer.CONSUMER_GROUP_HEARTBEAT_API, 1, request)
        member.epoch = answer.member_epoch
        told = None if answer.assignment is None else answer.assignment.topic_partitions
        member.owned = told and [
            consumer.TopicPartitions(topic_id=part.topic_id, partitions=part.partitions) for part in told
        ]

    async def join(self) -> int:
        return len(await asyncio.gather(*map(self.beat, self.members)))

    async def leave(self) -> None:
        for member in self.members:
            member.epoch = -1
        await self.join()

    async def settle(self) -> None:
        """Send heartbeats until all members are at one epoch, and stay there."""
        before: set[int] = set()
        while len(before) != 1 or before != {member.epoch for member in self.members}:
            before = {member.epoch for member in self.members}
            await asyncio.sleep(_ASSIGNED_S)
            await self.join()


async def beaten(group: ClassicGroup | BrokerGroup) -> int:
    """Let all members send heartbeats, at least ``BEATS`` of them, some at a time; return how many there were."""
    rounds = max(1, BEATS // len(group.members))
    some = [group.members[first : first + 20] for first in range(0, len(group.members), 20)]
    for members in some * rounds:
        await asyncio.gather(*map(group.beat, members))
    return rounds * len(group.members)


async def coordinated(peer: Peer) -> None:
    """Return when the broker coordinates groups: Apache Kafka makes its topic for that when it is first asked."""
    for group in islice(new_names, _TRIED):
        find = classic.FindCoordinatorRequest(key=group)
        beat = classic.HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
        while True:
            await peer.call(classic.FIND_COORDINATOR_API, 2, find, *_NOT_YET)
            answer = await peer.call(classic.HEARTBEAT_API, 3, beat, E.UNKNOWN_MEMBER_ID, *_NOT_YET)
            if answer.error_code not in _NOT_YET:
                break
            await asyncio.sleep(_LOOK_S)


async def groups(costs: Costs, sizes: Sequence[int] = SIZES) -> list[Point]:
    """Measure the three kinds of groups with so many members; a unit is a join, with its sync, or a heartbeat."""
    raise_open_files()
    points: list[Point] = []
    subject = costs.subject
    for size, kind in product(sizes, ("classic", "consumer", "share")):
        async with (
            members_of(subject, size) as members,
            members_of(subject, size) as others,
            temporary_topic(subject, max(size, 10)) as topic,
        ):
            await coordinated(members[0])
            if kind == "classic":
                group = ClassicGroup(members)
                await asyncio.gather(*map(group.form, members))
                points.append(await costs.of("all join a classic group again", size, group.rejoin))
            else:
                first, group = (
                    BrokerGroup(some, topic, is_share=kind == "share") for some in (others, members)
                )
                what = f"all join a {kind} group"
                points.append(await costs.of(what, size, first.join, again=group.join))
                await first.leave()
                await group.settle()
            points.append(await costs.of(f"heartbeats in a {kind} group", size, partial(beaten, group)))
            await group.leave()
    return points
