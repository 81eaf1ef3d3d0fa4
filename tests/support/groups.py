"""A group coordinator on simulated time over a real store, and the requests that members make."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from stele.wire.messages.fetch import EARLIEST_TIMESTAMP

from app.broker.topics import Topic
from app.cluster.group_store import GroupStore, MemberProtocol
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import GroupError, MemberIdRequired, SteleError, UnknownTopic
from app.groups.base.messages import (
    NO_GENERATION,
    NO_MEMBER,
    CommitRequest,
    Joined,
    JoinRequest,
    LeavingMember,
    ManagedJoin,
    Membership,
    OffsetToCommit,
    Results,
    Synced,
    SyncRequest,
)
from app.groups.base.parking import answer
from app.groups.base.states import GroupState
from app.groups.consumer.ownership import Claimant
from app.groups.coordinator import GroupCoordinator
from app.groups.table import GroupTable
from app.settings import Settings
from app.storage.topic_config import TopicConfig

from .simulated_time import SimulatedClock

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (MemberProtocol("range", b"topics"),)


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer that reads ``topics``, as Kafka's clients write it (version 0)."""
    names = b"".join(struct.pack(">h", len(name)) + name for name in map(str.encode, topics))
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class GroupBench:
    """``topics`` may be changed by a test. ``crash`` drops the coordinator where it stands."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        # A test that is about the delay of the first rebalance sets it.
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        self.settings = Settings(data_dir=path, **settings)
        self.clock = SimulatedClock()
        self.topics: dict[str, Topic] = {}
        # The ends of logs that are not empty.
        self.ends: dict[tuple[str, int], int] = {}
        self.make_topic("orders", partitions=4)
        self._ids = count(1)
        self._blocker: sqlite3.Connection | None = None
        self.coordinator: GroupCoordinator

    def make_topic(self, name: str, *, partitions: int = 1, topic_id: UUID | None = None) -> None:
        self.topics[name] = Topic(
            name=name,
            topic_id=topic_id or uuid4(),
            partitions=partitions,
            configs={},
            shown=TopicConfig(),
            config=TopicConfig(),
        )

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise UnknownTopic(name)
        return self.topics[name]

    async def list_offset(self, topic: str, partition: int, at: int) -> int:
        """Answer as partitions that begin at 0 and have no timestamps."""
        return 0 if at == EARLIEST_TIMESTAMP else self.ends.get((topic, partition), 0)

    async def open(self, store: GroupStore | None = None) -> GroupBench:
        self.coordinator = GroupCoordinator(
            GroupTable(
                store=store or SqliteGroupStore(self.path / "groups.sqlite"),
                clock=self.clock,
                settings=self.settings,
                topic=self.topic,
                topic_names=lambda: list(self.topics),
                list_offset=self.list_offset,
                make_id=lambda: f"{next(self._ids)}",
            )
        )
        await self.coordinator.open()
        return self

    async def close(self) -> None:
        await self.coordinator.close()

    async def written(self) -> None:
        """Wait until everything has been written to the store."""
        await asyncio.sleep(0.1)

    def break_store(self) -> None:
        """Let every write fail: another connection holds the lock of the database."""
        assert self._blocker is None
        self._blocker = sqlite3.connect(self.path / "groups.sqlite", isolation_level=None)
        store = self.coordinator.table._writer._store  # pyright: ignore[reportPrivateUsage]
        assert isinstance(store, SqliteGroupStore)
        assert store._opened is not None  # pyright: ignore[reportPrivateUsage]
        store._opened.connection.execute("PRAGMA busy_timeout = 0")  # pyright: ignore[reportPrivateUsage]
        self._blocker.execute("BEGIN IMMEDIATE")

    def mend_store(self) -> None:
        assert self._blocker is not None
        self._blocker.execute("ROLLBACK")
        self._blocker.close()
        self._blocker = None

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    def state(self, group: str = "g") -> GroupState:
        return self.coordinator.describe(group).state

    # ── requests ──

    def join(
        self,
        member_id: str = NO_MEMBER,
        *,
        group: str = "g",
        instance_id: str | None = None,
        client_id: str = "c",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        protocols: Sequence[MemberProtocol] = RANGE,
        requires_known_member_id: bool = False,
        supports_skip_assignment: bool = False,
    ) -> asyncio.Future[Joined]:
        return self.coordinator.join(
            JoinRequest(
                group=group,
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host="127.0.0.1",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                requires_known_member_id=requires_known_member_id,
                supports_skip_assignment=supports_skip_assignment,
            )
        )

    def join_managed_later(
        self, *, topics: Sequence[str] = ("orders",), member_id: str = NO_MEMBER, group: str = "g"
    ) -> asyncio.Future[Membership]:
        return self.coordinator.join_managed(
            ManagedJoin(
                group=group,
                topics=topics,
                member_id=member_id,
                client_id="http",
                client_host="127.0.0.1",
                session_timeout_ms=SESSION_MS,
            )
        )

    async def join_managed(
        self, *, topics: Sequence[str] = ("orders",), member_id: str = NO_MEMBER, group: str = "g"
    ) -> Membership:
        """A member for which the broker joins."""
        return await self.join_managed_later(topics=topics, member_id=member_id, group=group)

    def commit_owned_later(self, claimant: Claimant, offset: int) -> asyncio.Future[Results]:
        asked = OffsetToCommit(topic=claimant.topic, partition=claimant.partition, offset=offset)
        return self.coordinator.commit_owned(claimant, asked)

    async def commit_owned(self, claimant: Claimant, offset: int) -> None:
        """Commit as the owner; an error of the offset is raised too."""
        (error,) = await self.commit_owned_later(claimant, offset)
        if error is not None:
            raise error

    def member_id(self, **kinds: Any) -> str:
        """Return a member id that the broker assigned for a later join."""
        try:
            self.join(requires_known_member_id=True, **kinds)
        except MemberIdRequired as error:
            return error.member_id
        raise AssertionError("an id was not required")

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> asyncio.Future[Synced]:
        return self.coordinator.sync(
            SyncRequest(
                group=group,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=assignments or {},
            )
        )

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = "g", instance_id: str | None = None
    ) -> None:
        self.coordinator.heartbeat(group, generation=generation, member_id=member_id, instance_id=instance_id)

    def leave(self, *member_ids: str, group: str = "g") -> Results:
        return self.coordinator.leave(group, [LeavingMember(member_id=m) for m in member_ids])

    def commit(
        self,
        offset: int = 1,
        *,
        group: str = "g",
        topic: str = "orders",
        partition: int = 0,
        generation: int = NO_GENERATION,
        member_id: str = NO_MEMBER,
        instance_id: str | None = None,
        metadata: str | None = None,
        leader_epoch: int = -1,
        retention_ms: int | None = None,
    ) -> asyncio.Future[Results]:
        return self.coordinator.commit(
            CommitRequest(
                group=group,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
                offsets=[
                    OffsetToCommit(
                        topic=topic,
                        partition=partition,
                        offset=offset,
                        leader_epoch=leader_epoch,
                        metadata=metadata,
                        retention_ms=retention_ms,
                    )
                ],
            )
        )

    def stage(
        self,
        offset: int = 1,
        *,
        producer_id: int = 7,
        producer_epoch: int = 0,
        group: str = "g",
        topic: str = "orders",
        partition: int = 0,
        generation: int = NO_GENERATION,
        member_id: str = NO_MEMBER,
        instance_id: str | None = None,
    ) -> asyncio.Future[Results]:
        """Commit an offset within the transaction of a producer."""
        return self.coordinator.stage_offsets(
            CommitRequest(
                group=group,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
                offsets=[OffsetToCommit(topic=topic, partition=partition, offset=offset)],
            ),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

    def end(self, producer_id: int = 7, *, commit: bool = True) -> asyncio.Future[None]:
        """End the transaction of a producer, as the transaction coordinator does."""
        ending = self.coordinator.end_offsets(producer_id, commit=commit)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(error: SteleError | None) -> None:
            if error is None:
                ending.apply()
            answer(future, error)

        self.coordinator.table.persist(ending.changes, ended)
        return future

    def stable_offset(self, partition: int = 0, *, group: str = "g", topic: str = "orders") -> int | None:
        """Return a committed offset, -1 if there is none, and None while a transaction may replace it."""
        (found,) = self.coordinator.committed(group, [(topic, partition)], require_stable=True)
        return found.offset if found.error is None else None

    def committed(self, partition: int = 0, *, group: str = "g", topic: str = "orders") -> int:
        (found,) = self.coordinator.committed(group, [(topic, partition)])
        return found.offset

    # ── members in a group ──

    async def stable(self, *, members: int = 1, group: str = "g", **kinds: Any) -> tuple[int, list[str]]:
        """A stable group of dynamic members that keeps its leader first: its generation, their ids."""
        joins = [self.join(group=group, **kinds) for _ in range(members)]
        joined = [await join for join in joins]
        await self.settle(joined, group=group)
        ids = sorted((one.member_id for one in joined), key=lambda m: (m != joined[0].leader, m))
        return joined[0].generation, ids

    async def settle(self, joined: Sequence[Joined], *, group: str = "g") -> None:
        """Let ``joined`` sync; each is assigned its own id."""
        syncs = [
            self.sync(
                one.member_id,
                one.generation,
                {m.member_id: m.member_id.encode() for m in one.members},
                group=group,
                instance_id=next((m.instance_id for m in one.members if m.member_id == one.member_id), None),
            )
            for one in joined
        ]
        for sync in syncs:
            await sync

    async def stay_alive(self, members: Mapping[str, int], seconds: float, *, group: str = "g") -> None:
        """Let time pass while ``members`` (id and generation) send heartbeats and ignore the responses."""
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            for member_id, generation in members.items():
                try:
                    self.heartbeat(member_id, generation, group=group)
                except GroupError:
                    continue
