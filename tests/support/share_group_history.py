"""Random histories of a share group: members that join, die and come back, and a coordinator that crashes.

The members are tasks on simulated time over a real coordinator and store; the log is a number per partition. Answers
are lost, records are kept beyond their locks, and the topic grows. A ledger has what each member was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from uuid import UUID

from app.errors import (
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GroupNotFound,
    GroupStoreFailed,
    InvalidRecordState,
    InvalidRequest,
    UnknownMember,
)
from app.groups.base.share_state import Acknowledgement, AcknowledgeType, AcquiredRange, OffsetRange
from app.groups.share.group import LEAVING, ShareHeartbeat

from .groups import GroupBench
from .mortal_store import MortalStore

TOPIC = "orders"
LOCK_S, HEARTBEAT_S = 30.0, 5.0
DELIVERIES_MAX = 5
# Longer than all sessions, and than the locks of all deliveries of a record.
SETTLED_S = 900.0
# A lock that ends at the same moment may have ended.
_MOMENT_S = 0.05

Place = tuple[int, int]


@dataclass(slots=True)
class Delivered:
    """One record. ``holder`` has it until ``until_s``; ``is_done``: its end was acknowledged.

    ``may_be_done``: it was settled, and no answer came. ``count`` are its deliveries.
    """

    count: int = 0
    holder: str = ""
    until_s: float = 0.0
    is_done: bool = False
    may_be_done: bool = False


class Ledger:
    def __init__(self) -> None:
        self.records: dict[Place, Delivered] = {}
        self.starts: dict[int, int] = {}

    def deliver(
        self, member: str, partition: int, got: AcquiredRange, now_s: float, *, crashed: bool
    ) -> None:
        for offset in range(got.first, got.last + 1):
            one = self.records.setdefault((partition, offset), Delivered())
            what = f"{TOPIC}-{partition} offset {offset}"
            assert not one.is_done, f"{what} comes again, and its end was acknowledged"
            is_held = one.holder and now_s < one.until_s - _MOMENT_S
            assert not is_held, f"{what} is given to {member} while {one.holder} holds it"
            one.count += 1
            assert got.delivery_count <= DELIVERIES_MAX, f"{what} is delivered {got.delivery_count} times"
            # A delivery of which nothing was stored before a crash does not count.
            assert crashed or got.delivery_count == one.count, (
                f"{what}: {got.delivery_count} is not {one.count}"
            )
            one.holder, one.until_s = member, now_s + LOCK_S

    def forget_holders(self, member: str | None = None) -> None:
        """Note that a member, or each, no longer holds anything."""
        for one in self.records.values():
            if member is None or one.holder == member:
                one.holder = ""


class ShareClient:
    """A member that takes records of its partitions and settles them; ``kill`` ends it without a word."""

    def __init__(self, history: ShareGroupHistory, name: str) -> None:
        self.history = history
        self.name = name
        self.epoch = 0
        self.assigned: frozenset[int] = frozenset()
        self.tasks = [
            asyncio.create_task(self._stay(), name=f"{name} stays"),
            asyncio.create_task(self._work(), name=f"{name} works"),
        ]

    @property
    def bench(self) -> GroupBench:
        return self.history.bench

    def kill(self) -> None:
        for task in self.tasks:
            task.cancel()

    async def leave(self) -> None:
        self.kill()
        try:
            await self._heartbeat(LEAVING)
        except (UnknownMember, GroupNotFound, CoordinatorNotAvailable, GroupStoreFailed):
            return
        self.history.ledger.forget_holders(self.name)

    async def _heartbeat(self, epoch: int) -> None:
        answer = await self.bench.coordinator.shares.heartbeat(
            ShareHeartbeat(
                group="g",
                member_id=self.name,
                epoch=epoch,
                topics=frozenset({TOPIC}) if epoch == 0 else None,
            )
        )
        if epoch == LEAVING or self.history.loses_an_answer():
            return
        assert answer.epoch >= self.epoch
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self.assigned = frozenset(part.partition for part in answer.assigned)

    async def _stay(self) -> None:
        while True:
            try:
                await self._heartbeat(self.epoch)
            except (UnknownMember, GroupNotFound):
                # Members are not stored.
                assert self.history.crashes
                self.epoch, self.assigned = 0, frozenset()
                continue
            except FencedMemberEpoch:
                # Two answers in a row were lost.
                self.epoch = 0
                continue
            except (CoordinatorNotAvailable, GroupStoreFailed):
                await self.history.pause(1.0)
                continue
            await asyncio.sleep(HEARTBEAT_S if self.epoch else 0.5)

    async def _work(self) -> None:
        while True:
            for partition in sorted(self.assigned):
                try:
                    await self._take(partition)
                except (CoordinatorNotAvailable, GroupNotFound, GroupStoreFailed):
                    await self.history.pause(1.0)
            await self.history.pause(2.0)

    async def _take(self, partition: int) -> None:
        known = self.bench.coordinator.shares.existing("g").partition(TOPIC, partition)
        end = self.bench.ends.get((TOPIC, partition), 0)
        offset = None if known is None else known.fetch_offset(0)
        if known is None or offset is None or offset >= end:
            return
        history = self.history
        read_to = min(end, offset + history.random.randint(1, 30))
        acquired = known.acquire(
            self.name,
            read_from=offset,
            read_to=read_to,
            batches=[OffsetRange(offset, read_to - 1)],
            records_max=history.random.randint(1, 20),
            is_strict=True,
        )
        crashes, begun_s = history.crashes, asyncio.get_running_loop().time()
        for got in acquired:
            history.ledger.deliver(self.name, partition, got, begun_s, crashed=crashes > 0)
        if not acquired or history.loses_an_answer():
            # The records stay locked until their locks end.
            return
        is_slow = not history.is_calm and history.random.random() < 0.1
        await history.pause(LOCK_S + 5 if is_slow else 5.0)
        for got in acquired:
            await self._settle(partition, got, crashes=crashes, until_s=begun_s + LOCK_S)

    async def _settle(self, partition: int, got: AcquiredRange, *, crashes: int, until_s: float) -> None:
        history = self.history
        kinds: Sequence[AcknowledgeType] = (
            (AcknowledgeType.ACCEPT,)
            if history.is_calm
            else (
                *[AcknowledgeType.ACCEPT] * 7,
                *[AcknowledgeType.RELEASE] * 2,
                AcknowledgeType.REJECT,
            )
        )
        types = tuple(history.random.choice(kinds) for _ in range(got.first, got.last + 1))
        places = [(partition, offset) for offset in range(got.first, got.last + 1)]
        sent_s = asyncio.get_running_loop().time()
        for place, kind in zip(places, types, strict=True):
            one = history.ledger.records[place]
            one.may_be_done = one.may_be_done or kind is not AcknowledgeType.RELEASE
            if kind is AcknowledgeType.RELEASE and one.holder == self.name:
                # Another member may have it before the answer comes.
                one.holder = ""
        try:
            await self.bench.coordinator.shares.acknowledge(
                "g",
                self.name,
                TOPIC,
                partition,
                [Acknowledgement(first=got.first, last=got.last, types=types)],
            )
        except InvalidRecordState:
            is_late = sent_s > until_s - _MOMENT_S
            assert is_late or history.crashes > crashes, (
                f"{self.name} has lost {places[0]} before its lock ended"
            )
            return
        except InvalidRequest:
            # After a restart the coordinator has not delivered so far.
            assert history.crashes > crashes
            return
        if sent_s > until_s + _MOMENT_S and history.crashes == crashes:
            # It is too late, which nobody is told about records before the start.
            known = self.bench.coordinator.shares.existing("g").partition(TOPIC, partition)
            assert known is not None
            assert known.records.start_offset > got.last, f"{places[0]}: settled after its lock"
            return
        for place, kind in zip(places, types, strict=True):
            if kind is not AcknowledgeType.RELEASE:
                history.ledger.records[place].is_done = True


class ShareGroupHistory:
    """One seed of a history. ``run`` raises at the first step that breaks an invariant."""

    def __init__(self, path: Path, random: Random) -> None:
        self.random = random
        self.bench = GroupBench(path)
        del self.bench.topics[TOPIC]
        self.bench.make_topic(TOPIC, partitions=random.randint(1, 4), topic_id=UUID(int=7))
        self.ledger = Ledger()
        self.clients: list[ShareClient] = []
        self.crashes = 0
        self.is_calm = False
        self._names = 0
        self._store: MortalStore

    def loses_an_answer(self) -> bool:
        return not self.is_calm and self.random.random() < 0.05

    async def pause(self, longest_s: float) -> None:
        await asyncio.sleep(self.random.uniform(0.01, longest_s))

    async def run(self, steps: int = 30) -> None:
        await self._open()
        for _ in range(steps):
            await self._step()
            await asyncio.sleep(self.random.choice((0.0, 0.01, 1.0, 5.0, 20.0)))
            self._check()
        self.is_calm = True
        if not self.clients:
            self._join()
        await asyncio.sleep(SETTLED_S)
        self._check()
        self._check_settled()
        for client in self.clients:
            client.kill()
        await self.bench.close()

    async def _open(self) -> None:
        self._store = MortalStore(self.bench.path / "groups.sqlite")
        await self.bench.open(self._store)

    async def _step(self) -> None:
        choice = self.random.random()
        if not self.clients or (choice < 0.25 and len(self.clients) < 5):
            self._join()
        elif choice < 0.35:
            await self._leaving().leave()
        elif choice < 0.45:
            self._leaving().kill()
        elif choice < 0.55:
            await self._crash()
        elif choice < 0.60:
            topic = self.bench.topics[TOPIC]
            self.bench.make_topic(TOPIC, partitions=topic.partitions + 1, topic_id=topic.topic_id)
            self.bench.coordinator.topics_changed(TOPIC)
        else:
            partition = self.random.randrange(self.bench.topics[TOPIC].partitions)
            end = self.bench.ends.get((TOPIC, partition), 0)
            self.bench.ends[TOPIC, partition] = end + self.random.randint(1, 40)

    def _join(self) -> None:
        self._names += 1
        self.clients.append(ShareClient(self, f"m{self._names}"))

    def _leaving(self) -> ShareClient:
        client = self.random.choice(self.clients)
        self.clients.remove(client)
        return client

    async def _crash(self) -> None:
        """Kill the coordinator: what was acknowledged survives, and who held what is forgotten."""
        self._store.is_dead = True
        # Requests go on for a while, and nothing of them is stored.
        await asyncio.sleep(self.random.choice((0.0, 1.0, 10.0)))
        self.crashes += 1
        await self.bench.close()
        self.ledger.forget_holders()
        await asyncio.sleep(self.random.choice((0.0, 1.0)))
        await self._open()
        # A start that was not stored may be passed again.
        self.ledger.starts.clear()

    # ── what has to hold ──

    def _check(self) -> None:
        for client in self.clients:
            for task in client.tasks:
                if task.done():
                    # Raises what went wrong.
                    task.result()
        live = self.bench.coordinator.table.groups.get("g")
        if live is None or live.share is None:
            return
        for part, known in live.share.partitions.items():
            start = known.records.start_offset
            assert start >= self.ledger.starts.get(part.partition, 0), "the start has moved back"
            for offset in range(self.ledger.starts.get(part.partition, 0), start):
                self._check_final((part.partition, offset))
            self.ledger.starts[part.partition] = start

    def _check_final(self, place: Place) -> None:
        one = self.ledger.records.get(place)
        if place[1] < self._first_start(place[0]):
            return
        assert one is not None, f"{place} was never delivered"
        is_final = one.is_done or one.may_be_done or one.count >= DELIVERIES_MAX
        assert is_final, f"{place} is passed, and nobody has settled it"

    def _first_start(self, partition: int) -> int:
        """Where the group began: at the end of what was there when it first saw the partition."""
        return min((offset for number, offset in self.ledger.records if number == partition), default=1 << 62)

    def _check_settled(self) -> None:
        share = self.bench.coordinator.shares.existing("g")
        assert share.group.members.keys() == {client.name for client in self.clients}
        topic = self.bench.topics[TOPIC]
        read = {number for client in self.clients for number in client.assigned}
        assert read == set(range(topic.partitions)), "every partition has a reader"
        for part, known in share.partitions.items():
            end = self.bench.ends.get((TOPIC, part.partition), 0)
            assert known.records.start_offset >= end, (
                f"{part.partition}: {known.records.start_offset} of {end}"
            )
