"""Several brokers that coordinate the groups of one database, their clients, and ledgers of what they promised.

A run follows from its seed. Brokers are killed, stopped and restarted, and their calls to the database fail, take long
or have their effect after the broker has given up; a broker that is stopped goes on with what was due. Clients commit
offsets, own partitions and poll for them, at whichever broker they find. Every broken promise is an
``AssertionError``. The numbers of invariants are those of ADR-0041.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from app.broker.cluster import SharedCluster
from app.broker.topics import Topic
from app.cluster.group_shards import lease_of_shard
from app.cluster.membership import Member
from app.errors import SteleError, StorageUnavailable, UnknownMember
from app.groups.base.messages import NO_MEMBER, CommitRequest, ManagedJoin, Membership, OffsetToCommit
from app.groups.consumer.ownership import Claimant
from app.groups.coordinator import GroupCoordinator
from app.groups.services import Groups
from app.groups.shard_lease import ShardLease
from app.groups.table import GroupTable
from app.settings import Settings
from app.storage.topic_config import TopicConfig

from .model_groups import Faults, ModelDatabase, ModelGroupStore, ModelMembership
from .simulated_processes import Process, ProcessEnded, ProcessLoop, run_processes
from .simulated_time import SimulatedClock

_T = TypeVar("_T")

TOPIC = Topic(
    name="orders",
    topic_id=UUID(int=77),
    partitions=2,
    configs={},
    shown=TopicConfig(),
    config=TopicConfig(),
)
BROKERS = 3
# A group whose offsets are committed without a member, and one of members; each is in a shard of its own.
COMMITTERS, MEMBERS = GROUPS = ("committers", "members")
WORK = "work"
SESSION_MS = 6_000
_CALL_S = 3.0
_LOOK_S = 0.2
FAULTS = 8
RECOVERY_S = 10.0
_SETTINGS = Settings(data_dir=Path("unused"), group_initial_rebalance_delay_ms=0)
_NO_LEASES = cast("Any", SimpleNamespace(stand_by=lambda: None))


def shard_of(group: str) -> int:
    return GROUPS.index(group)


@dataclass(slots=True)
class Ledger:
    """What was promised."""

    # The greatest offset whose commit was acknowledged.
    committed: int = -1
    # By partition: the member whose claim was acknowledged last.
    owners: dict[int, object] = field(default_factory=dict[int, object])
    claims: int = 0
    # The epoch of the last work done under the lease ``WORK``.
    work_epoch: int = 0


class OneWorker:
    """Work that one broker at a time does, as change data capture; it notes the epoch of each piece."""

    def __init__(self, broker: Broker, run: GroupsCluster) -> None:
        self._broker = broker
        self._run = run
        self._working: asyncio.Task[None] | None = None

    async def begin(self, epoch: int) -> None:
        self._working = asyncio.create_task(self._work(epoch))

    async def end(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
            self._working = None

    async def _work(self, epoch: int) -> None:
        while True:
            if self._broker.cluster.is_held(WORK) and not self._broker.process.is_killed:
                self._run.note_work(epoch)
            await asyncio.sleep(0.1)


class Broker:
    """One incarnation of a broker: its view of the cluster and its coordinators."""

    def __init__(self, run: GroupsCluster, broker_id: int, incarnation: int) -> None:
        self.process = Process(run.loop)
        self.faults = Faults(run.random)
        clock = SimulatedClock(run.loop)
        self.member = Member(broker_id=broker_id, incarnation=UUID(int=incarnation), rack=None, endpoints={})
        self.cluster = run.cluster_class(
            run.membership_class(run.database, self.faults), clock=clock, displaced=self.process.kill
        )
        # Nothing is started in it: its work is done by the loop.
        store_thread = ThreadPoolExecutor(1)
        self.process.owns(store_thread)
        self._coordinators: list[GroupCoordinator] = []
        self._leases: list[ShardLease] = []
        for shard in range(len(GROUPS)):
            store = run.store_class(
                run.database, self.faults, shard=shard, incarnation=self.member.incarnation, shard_of=shard_of
            )
            coordinator = GroupCoordinator(
                GroupTable(
                    store=store,
                    store_thread=store_thread,
                    clock=clock,
                    settings=_SETTINGS,
                    topic=lambda _: TOPIC,
                    topic_names=lambda: [TOPIC.name],
                    make_id=lambda: f"{run.random.getrandbits(64):x}",
                )
            )
            groups = Groups(coordinator, leases=_NO_LEASES, queue=_NO_LEASES)
            lease = lease_of_shard(shard)
            work = ShardLease(groups, lease=lease, take=store.take, cluster=self.cluster)
            self.cluster.hold(lease, work, is_spread=True)
            self._coordinators.append(coordinator)
            self._leases.append(work)
        self.cluster.hold(WORK, OneWorker(self, run))

    async def live(self) -> None:
        """Join the cluster; the tasks that this starts go on."""
        for lease in self._leases:
            await lease.stand_by()
        while True:
            try:
                await self.cluster.join(self.member)
            except StorageUnavailable:
                await asyncio.sleep(_LOOK_S)
            else:
                return

    def coordinator(self, group: str) -> GroupCoordinator:
        return self._coordinators[shard_of(group)]

    async def coordinator_id(self, group: str) -> int | None:
        lease = self.cluster.lease(lease_of_shard(shard_of(group)))
        return None if lease is None else lease.broker_id


class NoAnswer(Exception):
    """No broker has answered the client: what it asked for may have happened."""


class GroupsCluster:
    """One run. The classes are for mutants."""

    def __init__(
        self,
        loop: ProcessLoop,
        seed: int,
        *,
        cluster_class: type[SharedCluster] = SharedCluster,
        membership_class: type[ModelMembership] = ModelMembership,
        store_class: type[ModelGroupStore] = ModelGroupStore,
    ) -> None:
        self.loop = loop
        self.random = Random(seed)
        self.cluster_class = cluster_class
        self.membership_class = membership_class
        self.store_class = store_class
        self.database = ModelDatabase(SimulatedClock(loop))
        self.ledger = Ledger()
        self.brokers: dict[int, Broker] = {}
        self._incarnations = 0
        self.is_ending = False
        # Of what clients were told: without these a run shows nothing.
        self.answers = 0

    async def run(self) -> None:
        for broker_id in range(BROKERS):
            self._start(broker_id)
        async with asyncio.TaskGroup() as clients:
            clients.create_task(self._commit())
            for _ in range(2):
                clients.create_task(self._own())
            for _ in range(FAULTS):
                await asyncio.sleep(self.random.choice((0.05, 0.5, 1.0, 3.0, 6.0)))
                self._cause_fault()
            if self.random.random() < 0.25:
                await self._recover()
                await self._lose_a_broker()
            self.is_ending = True

        assert not self.database.violations, self.database.violations

    def note_work(self, epoch: int) -> None:
        """Note a piece of the work that one broker does at a time. (16)"""
        if epoch < self.ledger.work_epoch:
            self.database.violations.append("two brokers do the work of one lease")
        self.ledger.work_epoch = epoch

    # ── faults ──

    def _start(self, broker_id: int) -> None:
        self._incarnations += 1
        broker = self.brokers[broker_id] = Broker(self, broker_id, self._incarnations)
        broker.process.start(broker.live())

    def _cause_fault(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        kind = self.random.choice(("kill", "stop", "stop", "fail", "hold up"))
        if broker.process.is_stopped:
            broker.process.go_on()
        elif broker.process.is_killed:
            self._start(broker.member.broker_id)
        elif kind == "kill":
            broker.process.kill()
        elif kind == "stop":
            broker.process.stop()
        elif kind == "fail":
            broker.faults.probability = 0.0 if broker.faults.probability else 0.3
        else:
            broker.process.held_up = 0.0 if broker.process.held_up else 0.1

    async def _recover(self) -> None:
        """End all faults, and wait until every broker is back."""
        for broker_id, broker in list(self.brokers.items()):
            broker.faults.probability = broker.process.held_up = 0.0
            broker.process.go_on()
            if broker.process.is_killed:
                self._start(broker_id)
        await asyncio.sleep(30)

    async def _lose_a_broker(self) -> None:
        """Kill one of three: every client works again in time. (18)"""
        killed = self.random.choice(list(self.brokers.values()))
        killed.process.kill()
        committed, claims = self.ledger.committed, self.ledger.claims
        await asyncio.sleep(RECOVERY_S)
        assert self.ledger.committed > committed, "nobody commits offsets"
        # A member that pauses holds up the others for its session.
        await asyncio.sleep(4 * SESSION_MS / 1000)
        assert self.ledger.claims > claims, "nobody claims a partition"

    # ── clients ──

    async def _ask(self, group: str, work: Callable[[GroupCoordinator], Coroutine[Any, Any, _T]]) -> _T:
        """Ask the coordinator of a group, as any broker names it.

        Raises ``NoAnswer``, and the error that it answers.
        """
        try:
            async with asyncio.timeout(_CALL_S):
                broker = self.random.choice(list(self.brokers.values()))
                coordinator = await broker.process.call(broker.coordinator_id(group))
                if coordinator is None:
                    raise NoAnswer
                there = self.brokers[coordinator]
                answer = await there.process.call(work(there.coordinator(group)))
        except (TimeoutError, ProcessEnded) as error:
            raise NoAnswer from error
        self.answers += 1
        return answer

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.choice((0.05, 0.2, 0.6)))

    async def _commit(self) -> None:
        """Commit ascending offsets, and read them. (14)"""
        offset, found = 0, -1
        while not self.is_ending:
            offset += 1
            request = CommitRequest(
                group=COMMITTERS, offsets=[OffsetToCommit(topic=TOPIC.name, partition=0, offset=offset)]
            )

            async def commit(asked: GroupCoordinator, request: CommitRequest = request) -> None:
                (error,) = await asked.commit(request)
                if error is not None:
                    raise error

            async def look(asked: GroupCoordinator) -> None:
                nonlocal found
                found = asked.committed(COMMITTERS, [(TOPIC.name, 0)])[0].offset

            if await self._tried(COMMITTERS, commit):
                self.ledger.committed = offset
            await self._pause()
            known = self.ledger.committed
            if await self._tried(COMMITTERS, look):
                assert known <= found <= offset, f"{known} was committed, {found} is"
            await self._pause()

    async def _tried(
        self, group: str, work: Callable[[GroupCoordinator], Coroutine[Any, Any, object]]
    ) -> bool:
        try:
            await self._ask(group, work)
        except (NoAnswer, SteleError):
            return False
        return True

    async def _own(self) -> None:
        """Join as a member, claim what is assigned, and use it until it is lost. (15)"""
        me = object()
        membership: Membership | None = None
        while not self.is_ending:
            try:
                membership = await self._join(membership)
                for partition in sorted(assigned.partition for assigned in membership.assigned):
                    await self._use(me, membership, partition)
            except UnknownMember:
                membership = None
            except (NoAnswer, SteleError):
                pass
            # Now and then for longer than its session.
            await asyncio.sleep(self.random.choice((0.1, 0.3, 0.3, 1.0, SESSION_MS / 1000 + 1)))

    async def _join(self, membership: Membership | None) -> Membership:
        request = ManagedJoin(
            group=MEMBERS,
            topics=[TOPIC.name],
            member_id=NO_MEMBER if membership is None else membership.member_id,
            session_timeout_ms=SESSION_MS,
        )

        async def join(asked: GroupCoordinator) -> Membership:
            return await asked.join_managed(request)

        return await self._ask(MEMBERS, join)

    async def _use(self, me: object, membership: Membership, partition: int) -> None:
        claimant = Claimant(
            group=MEMBERS,
            member_id=membership.member_id,
            generation=membership.generation,
            topic=TOPIC.name,
            partition=partition,
        )

        async def claim(asked: GroupCoordinator) -> None:
            await asked.claim(claimant)

        async def check(asked: GroupCoordinator) -> None:
            asked.check_owner(claimant)

        async def release(asked: GroupCoordinator) -> None:
            await asked.release(claimant)

        claims = self.ledger.claims
        await self._ask(MEMBERS, claim)
        self.ledger.claims += 1
        if self.ledger.claims > claims + 1:
            # Which of them was first? A broker that was stopped may have answered late.
            return
        self.ledger.owners[partition] = me
        for _ in range(self.random.randint(1, 3)):
            await self._pause()
            owner = self.ledger.owners[partition]
            await self._ask(MEMBERS, check)
            # The claim of another was acknowledged before this question was asked.
            assert owner is me, f"two members own partition {partition}"
        if self.random.random() < 0.3:
            await self._ask(MEMBERS, release)


def simulate_groups(seed: int, **classes: Any) -> GroupsCluster:
    """Run the simulation of a seed. Raises an ``AssertionError`` if a promise is broken."""
    runs: list[GroupsCluster] = []

    async def main(loop: ProcessLoop) -> None:
        run = GroupsCluster(loop, seed, **classes)
        runs.append(run)
        try:
            await run.run()
        except BaseExceptionGroup as errors:
            broken, _ = errors.split(AssertionError)
            if broken is None:
                raise
            raise AssertionError(str(_first(broken))) from broken

    run_processes(main, seed)
    return runs[0]


def _first(errors: BaseExceptionGroup[AssertionError]) -> AssertionError:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
