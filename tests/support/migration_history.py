"""Random histories of a group whose members come and go with both protocols for consumers, and of a coordinator that crashes.

The clients are tasks on simulated time over a real coordinator and store. Classic clients are eager
(they give up everything before they join) or cooperative (they give up what they are no longer assigned,
and join again); the one that leads assigns. A ledger has what each client reads: no partition may have two
readers, and none may be lost in the end.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from uuid import UUID

from app.cluster.consumer_group_store import OwnedPartition
from app.cluster.group_store import GroupStore, MemberProtocol
from app.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupOfOtherType,
    GroupStoreFailed,
    IllegalGeneration,
    MemberIdRequired,
    OwnershipError,
    RebalanceInProgress,
    StaleMemberEpoch,
    SteleError,
    UnknownMember,
    UnreleasedInstance,
)
from app.groups.base.consumer_protocol import (
    AssignedPartition,
    assigned_partitions,
    encode_assignment,
    subscription_of,
)
from app.groups.base.messages import Joined, LeavingMember, Membership
from app.groups.base.states import GroupState
from app.groups.consumer.messages import ConsumerHeartbeat
from app.groups.consumer.ownership import Claimant
from app.settings import MigrationPolicy

from .groups import GroupBench
from .mortal_store import MortalStore

TOPIC = "orders"
SESSION_S, HEARTBEAT_S = 10.0, 3.0
# Longer than all sessions and rebalances; lost joins of a classic group take five minutes.
SETTLED_S = 900.0


def cooperative_subscription(topics: Iterable[str], owned: Iterable[AssignedPartition]) -> bytes:
    """The metadata of a consumer that keeps partitions while it joins, as Kafka's clients write it (version 1)."""
    names = [struct.pack(">h", len(name)) + name for name in map(str.encode, sorted(topics))]
    parts = encode_assignment(owned)
    # An assignment without its version and its user data.
    return struct.pack(">hi", 1, len(names)) + b"".join(names) + struct.pack(">i", -1) + parts[2:-4]


class Ledger:
    """Who reads what, and how far each partition is committed."""

    def __init__(self) -> None:
        self.readers: dict[AssignedPartition, Client] = {}
        self.attempted: dict[AssignedPartition, int] = {}
        self.acked: dict[AssignedPartition, int] = {}

    def begin(self, client: Client, part: AssignedPartition, committed: int) -> None:
        reader = self.readers.setdefault(part, client)
        assert reader is client, f"{part} is read by {reader.name} and {client.name}"
        committed = max(committed, 0)
        assert self.acked.get(part, 0) <= committed <= self.attempted.get(part, 0), (
            f"{part}: {committed} is committed, {self.acked.get(part, 0)} was acknowledged"
        )

    def end(self, client: Client, parts: Iterable[AssignedPartition]) -> None:
        for part in parts:
            assert self.readers.pop(part) is client


class Client:
    """What both kinds of clients have in common. ``owned`` is what it reads."""

    def __init__(self, history: MigrationHistory, name: str, instance_id: str | None) -> None:
        self.history = history
        self.name = name
        self.instance_id = instance_id
        self.owned: set[AssignedPartition] = set()
        self.crashes_seen = history.crashes
        self.task: asyncio.Task[None] = asyncio.create_task(self.run(), name=name)

    @property
    def bench(self) -> GroupBench:
        return self.history.bench

    async def run(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        """End in order: give up everything, and leave the group."""
        raise NotImplementedError

    def kill(self) -> None:
        """End as a process that is killed does."""
        self.task.cancel()
        self.give_up(self.owned)

    def read(self, parts: Iterable[AssignedPartition]) -> None:
        for part in sorted(parts):
            self.history.ledger.begin(self, part, self.bench.committed(part.partition))
            self.owned.add(part)

    def give_up(self, parts: Iterable[AssignedPartition]) -> None:
        parts = list(parts)
        self.history.ledger.end(self, parts)
        self.owned.difference_update(parts)

    async def commit(self, member_id: str, generation: int) -> None:
        """Commit one more record of each partition; at times that is too late, and it is read again."""
        ledger = self.history.ledger
        for part in sorted(self.owned):
            offset = ledger.attempted.get(part, 0) + 1
            ledger.attempted[part] = offset
            try:
                await self.bench.commit(
                    offset,
                    partition=part.partition,
                    generation=generation,
                    member_id=member_id,
                    instance_id=self.instance_id,
                )
            except (RebalanceInProgress, IllegalGeneration, StaleMemberEpoch, UnknownMember):
                continue
            except (CoordinatorNotAvailable, GroupStoreFailed):
                return
            ledger.acked[part] = max(ledger.acked.get(part, 0), offset)

    def may_be_unknown(self, error: SteleError) -> None:
        """Raises ``error`` unless a crash may have made the coordinator forget the client."""
        if self.history.crashes == self.crashes_seen:
            raise error
        self.crashes_seen = self.history.crashes

    async def pause(self, longest_s: float) -> None:
        await asyncio.sleep(self.history.random.uniform(0.01, longest_s))


class ClassicClient(Client):
    """A member of the classic protocol, as Kafka's clients are."""

    def __init__(self, history: MigrationHistory, name: str, instance_id: str | None) -> None:
        self.member_id = ""
        self.generation = -1
        # How many partitions it divided as the leader; None if it does not lead.
        self.divided: int | None = None
        super().__init__(history, name, instance_id)

    async def run(self) -> None:
        while True:
            try:
                await self._join()
                await self._stay()
            except RebalanceInProgress:
                if not self.history.is_cooperative:
                    await self._commit_and_give_up(self.owned)
            except IllegalGeneration as error:
                self.may_be_unknown(error)
                self.give_up(self.owned)
            except (UnknownMember, FencedInstance) as error:
                # The answer to a join rests on nothing that is stored, also in Kafka.
                self.may_be_unknown(error)
                self.give_up(self.owned)
                self.member_id = ""
            except (CoordinatorNotAvailable, GroupStoreFailed):
                await self.pause(1.0)

    async def stop(self) -> None:
        self.task.cancel()
        self.give_up(self.owned)
        if self.instance_id is None and self.member_id:
            self.bench.coordinator.leave("g", [LeavingMember(member_id=self.member_id)])

    async def _join(self) -> None:
        if not self.history.is_cooperative:
            self.give_up(self.owned)
        joined = await self._joined()
        if self.history.loses_an_answer():
            # The client does not learn its id, or asks again.
            await self.pause(1.0)
            raise RebalanceInProgress("g")
        self.member_id, self.generation = joined.member_id, joined.generation
        assignments: Mapping[str, bytes] = {}
        self.divided = None
        if joined.leader == joined.member_id:
            # A leader that is not to assign may have been away when the topic grew, so it joins once more.
            self.divided = 0 if joined.skip_assignment else self.bench.topics[TOPIC].partitions
            assignments = {} if joined.skip_assignment else self.history.assign(joined)
        synced = await self.bench.sync(
            self.member_id, self.generation, assignments, instance_id=self.instance_id
        )
        if self.history.loses_an_answer():
            await self.pause(1.0)
            raise RebalanceInProgress("g")
        assigned = assigned_partitions(synced.assignment)
        lost = self.owned - assigned
        if lost:
            await self._commit_and_give_up(lost)
        self.read(assigned - self.owned)
        if lost:
            raise RebalanceInProgress("g")

    async def _joined(self) -> Joined:
        while True:
            protocol = "sticky" if self.history.is_cooperative else "range"
            metadata = cooperative_subscription([TOPIC], self.owned)
            try:
                return await self.bench.join(
                    self.member_id,
                    instance_id=self.instance_id,
                    session_timeout_ms=int(SESSION_S * 1000),
                    protocols=(MemberProtocol(protocol, metadata),),
                    requires_known_member_id=True,
                    supports_skip_assignment=True,
                )
            except MemberIdRequired as error:
                self.member_id = error.member_id

    async def _commit_and_give_up(self, parts: Iterable[AssignedPartition]) -> None:
        """Finish what is being read, which may take longer than a heartbeat, and commit it."""
        parts = set(parts)
        await self.pause(HEARTBEAT_S)
        await self.commit(self.member_id, self.generation)
        self.give_up(parts & self.owned)

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.bench.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)
            await self.commit(self.member_id, self.generation)
            if self.divided not in (None, self.bench.topics[TOPIC].partitions):
                raise RebalanceInProgress("g")


class ModernClient(Client):
    """A member of the protocol in which the broker assigns."""

    def __init__(self, history: MigrationHistory, name: str, instance_id: str | None) -> None:
        self._lives = 0
        self.member_id = f"{name}-0"
        self.epoch = 0
        self.assigned: frozenset[AssignedPartition] = frozenset()
        self.reported: frozenset[AssignedPartition] | None = None
        super().__init__(history, name, instance_id)

    async def run(self) -> None:
        while True:
            try:
                await self._live()
            except (CoordinatorNotAvailable, GroupStoreFailed):
                self.reported = None
                await self.pause(1.0)
                continue
            except UnreleasedInstance:
                # The process before it was killed: its session has to end.
                assert self.epoch == 0
                assert self.instance_id is not None
                await self.pause(HEARTBEAT_S)
                continue
            except GroupOfOtherType:
                # Fatal for a client that has joined.
                assert self.epoch == 0
                assert self.history.policy in ("downgrade", "disabled")
                await self.pause(HEARTBEAT_S)

    async def _live(self) -> None:
        await self._beat()
        given_up = self.owned - self.assigned
        if given_up:
            await self.pause(HEARTBEAT_S)
            await self.commit(self.member_id, self.epoch)
            self.give_up(given_up & self.owned)
        else:
            self.read(self.assigned - self.owned)
            await self.commit(self.member_id, self.epoch)
            await asyncio.sleep(HEARTBEAT_S)

    async def _beat(self) -> None:
        owned = frozenset(self.owned)
        is_full = self.reported is None or self.epoch == 0
        answered = await self.bench.coordinator.consumers.heartbeat(
            ConsumerHeartbeat(
                group="g",
                member_id=self.member_id,
                epoch=self.epoch,
                instance_id=self.instance_id,
                rebalance_timeout_ms=60_000 if is_full else None,
                topics=frozenset({TOPIC}) if is_full else None,
                owned=self._by_id(owned) if is_full or owned != self.reported else None,
            ),
            sees=lambda topic: True,
        )
        if self.history.loses_an_answer():
            self.reported = None
            await self.pause(1.0)
            return
        assert answered.epoch >= max(self.epoch, 1)
        self.epoch, self.reported = answered.epoch, owned
        if answered.assigned is not None:
            self.assigned = frozenset(AssignedPartition(TOPIC, part.partition) for part in answered.assigned)

    def _by_id(self, parts: Iterable[AssignedPartition]) -> frozenset[OwnedPartition]:
        topic_id: UUID = self.bench.topics[TOPIC].topic_id
        return frozenset(OwnedPartition(topic_id, part.partition) for part in parts)

    async def stop(self) -> None:
        self.task.cancel()
        self.give_up(self.owned)
        epoch = -1 if self.instance_id is None else -2
        if self.epoch == 0:
            return
        try:
            await self.bench.coordinator.consumers.heartbeat(
                ConsumerHeartbeat(
                    group="g", member_id=self.member_id, epoch=epoch, instance_id=self.instance_id
                ),
                sees=lambda topic: True,
            )
        except (CoordinatorNotAvailable, GroupStoreFailed, UnknownMember, FencedInstance):
            return


class ManagedClient(Client):
    """A member for which the broker joins. It reads and commits what it is assigned, until that is refused."""

    def __init__(self, history: MigrationHistory, name: str, instance_id: str | None) -> None:
        self.member_id = ""
        self.membership: Membership | None = None
        super().__init__(history, name, None)

    async def run(self) -> None:
        while True:
            try:
                if self.membership is None:
                    self.membership = await self.bench.join_managed(topics=[TOPIC], member_id=self.member_id)
                    self.member_id = self.membership.member_id
                await self._commit_owned(self.membership)
                await asyncio.sleep(HEARTBEAT_S)
                await self.bench.coordinator.settled("g")
                self.membership = self.bench.coordinator.membership(
                    "g", self.member_id, generation=self.membership.generation
                )
            except UnknownMember as error:
                self.may_be_unknown(error)
                self.member_id, self.membership = "", None
            except (CoordinatorNotAvailable, GroupStoreFailed, RebalanceInProgress):
                await self.pause(1.0)

    async def _commit_owned(self, membership: Membership) -> None:
        """Commit one more record of each partition. What is accepted has no other reader at that moment."""
        ledger = self.history.ledger
        for part in sorted(membership.assigned):
            claimant = Claimant(
                group="g",
                member_id=self.member_id,
                generation=membership.generation,
                topic=part.topic,
                partition=part.partition,
            )
            offset = ledger.attempted.get(part, 0) + 1
            try:
                await self.bench.coordinator.claim(claimant)
                committing = self.bench.commit_owned_later(claimant, offset)
                assert part not in ledger.readers, f"{part} is read by {ledger.readers[part].name}, and owned"
                ledger.attempted[part] = offset
                await committing
            except (IllegalGeneration, OwnershipError, RebalanceInProgress):
                continue
            ledger.acked[part] = max(ledger.acked.get(part, 0), offset)

    async def stop(self) -> None:
        self.task.cancel()
        if self.member_id:
            self.bench.coordinator.leave("g", [LeavingMember(member_id=self.member_id)])


class MigrationHistory:
    """One seed of a history. ``run`` raises at the first step that breaks an invariant."""

    def __init__(self, path: Path, random: Random) -> None:
        self.random = random
        policies: tuple[MigrationPolicy, ...] = ("upgrade", "downgrade", "disabled")
        self.policy: MigrationPolicy = random.choice(policies) if random.random() < 0.25 else "bidirectional"
        self.is_cooperative = random.random() < 0.5
        self._kinds: list[type[ClassicClient | ModernClient | ManagedClient]] = [ClassicClient, ModernClient]
        if not self.is_cooperative:
            # Managed members assign as Kafka's range does, which asks nobody to give partitions up first.
            self._kinds.append(ManagedClient)
        self.bench = GroupBench(path, group_consumer_migration_policy=self.policy)
        del self.bench.topics[TOPIC]
        self.bench.make_topic(TOPIC, partitions=random.randint(2, 6), topic_id=UUID(int=7))
        self.ledger = Ledger()
        self.clients: list[Client] = []
        self.crashes = 0
        self.is_calm = False
        # What was seen on the way: the types that the group had.
        self.types: list[str] = []
        self._names = 0
        self._store: MortalStore

    def loses_an_answer(self) -> bool:
        return not self.is_calm and self.random.random() < 0.05

    # ── what happens ──

    async def run(self, steps: int = 25) -> None:
        await self._open()
        for _ in range(steps):
            await self._step()
            await asyncio.sleep(self.random.choice((0.0, 0.01, 0.5, 3.0, 8.0)))
            self._check()
        self.is_calm = True
        await asyncio.sleep(SETTLED_S)
        self._check()
        self._check_settled()
        for client in self.clients:
            client.kill()
        await self.bench.close()

    async def _open(self) -> None:
        self._store = MortalStore(self.bench.path / "groups.sqlite")
        store: GroupStore = self._store
        await self.bench.open(store)

    async def _step(self) -> None:
        choice = self.random.random()
        if not self.clients or (choice < 0.35 and len(self.clients) < 5):
            self._start(self.random.choice(self._kinds), self._free_instance())
        elif choice < 0.60:
            await self._roll(self.random.choice(self.clients))
        elif choice < 0.72:
            await self._end(self.random.choice(self.clients).stop)
        elif choice < 0.80:
            client = self.random.choice(self.clients)
            self.clients.remove(client)
            client.kill()
        elif choice < 0.90:
            await self._crash()
        elif choice < 0.94:
            topic = self.bench.topics[TOPIC]
            self.bench.make_topic(TOPIC, partitions=topic.partitions + 1, topic_id=topic.topic_id)
            self.bench.coordinator.topics_changed(TOPIC)

    def _free_instance(self) -> str | None:
        instance = f"i{self.random.randint(1, 2)}"
        is_taken = any(client.instance_id == instance for client in self.clients)
        return None if is_taken or self.random.random() < 0.6 else instance

    def _start(self, kind: type[ClassicClient | ModernClient | ManagedClient], instance: str | None) -> None:
        self._names += 1
        self.clients.append(
            kind(self, f"{kind.__name__.removesuffix('Client').lower()}{self._names}", instance)
        )

    async def _end(self, stop: Callable[[], object]) -> None:
        client = next(client for client in self.clients if client.stop == stop)
        self.clients.remove(client)
        await client.stop()

    async def _roll(self, client: Client) -> None:
        """Restart a member with the other protocol."""
        await self._end(client.stop)
        kind = ModernClient if isinstance(client, ClassicClient) else ClassicClient
        self._start(kind, client.instance_id)

    async def _crash(self) -> None:
        """Kill the coordinator: what was acknowledged survives, and what was not may."""
        self._store.is_dead = True
        # Requests go on for a while, and nothing of them is stored.
        await asyncio.sleep(self.random.choice((0.0, 1.0, 10.0)))
        self.crashes += 1
        await self.bench.close()
        await asyncio.sleep(self.random.choice((0.0, 1.0)))
        await self._open()

    # ── what has to hold ──

    def _check(self) -> None:
        for client in self.clients:
            if client.task.done():
                # Raises what went wrong.
                client.task.result()
        live = self.bench.coordinator.table.groups.get("g")
        if live is None:
            return
        live.group.check()
        if live.consumer is not None:
            live.consumer.group.check()
            assert not live.group.members
        if not self.types or self.types[-1] != live.type:
            self.types.append(live.type)

    def _check_settled(self) -> None:
        live = self.bench.coordinator.table.groups.get("g")
        if not self.clients:
            assert live is None or live.is_empty
            return
        assert live is not None
        assert live.state is GroupState.STABLE, f"{live.state} of {live.type}"
        topic = self.bench.topics[TOPIC]
        wanted = {AssignedPartition(TOPIC, number) for number in range(topic.partitions)}
        managed = {
            part
            for client in self.clients
            if isinstance(client, ManagedClient) and client.membership is not None
            for part in client.membership.assigned
        }
        assert managed.isdisjoint(self.ledger.readers)
        assert self.ledger.readers.keys() | managed == wanted
        modern = [client for client in self.clients if isinstance(client, ModernClient) and client.epoch > 0]
        if self.policy == "bidirectional":
            assert live.type == ("consumer" if modern else "classic")
        members = live.group.members if live.consumer is None else live.consumer.group.members
        joined = [
            client for client in self.clients if client in modern or not isinstance(client, ModernClient)
        ]
        assert len(members) == len(joined), "a member is left that nobody is"

    def assign(self, joined: Joined) -> dict[str, bytes]:
        """Assign as the leader: evenly, and if the members are cooperative nothing that another one still has."""
        subscriptions = {member.member_id: subscription_of(member.metadata) for member in joined.members}
        owned = {member: set(told.owned) for member, told in subscriptions.items() if told is not None}
        parts = [AssignedPartition(TOPIC, n) for n in range(self.bench.topics[TOPIC].partitions)]
        members = sorted(owned)
        share = -(-len(parts) // len(members))
        assigned = {member: set(sorted(owned[member])[:share]) for member in members}
        holders = {part: member for member in members for part in owned[member]}
        free = [part for part in parts if not any(part in mine for mine in assigned.values())]
        for part in free:
            taker = min(members, key=lambda member: (len(assigned[member]), member))
            if part not in holders or holders[part] == taker:
                assigned[taker].add(part)
        return {member: encode_assignment(mine) for member, mine in assigned.items()}
