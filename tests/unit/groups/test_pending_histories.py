"""Any history of plain and transactional commits, aborts, deletions, failures and crashes, against a model.

The model is Kafka's rule as it stands: every write has a number, and the end of a
transaction commits an offset unless the committed one has a larger number. The
store and the coordinator do without numbers of committed offsets.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from app.cluster.group_store import StoreChange
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import GroupStoreFailed
from tests.support.groups import GroupBench
from tests.support.simulated_time import run_simulated

GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("g", "h"), ("orders", "payments"), 2, (7, 8, 9)
BURSTS = 30
Key = tuple[str, str, int]
# What is done: its kind, and what it is done with.
Step = tuple[Any, ...]


@dataclass
class Model:
    """Number and offset of what is committed, and of what is pending by producer."""

    number: int = 0
    committed: dict[Key, tuple[int, int]] = field(default_factory=dict[Key, tuple[int, int]])
    pending: dict[tuple[Key, int], tuple[int, int]] = field(
        default_factory=dict[tuple[Key, int], tuple[int, int]]
    )

    def apply(self, step: Step) -> None:
        self.number += 1
        match step:
            case ("commit", key, offset):
                self.committed[key] = (self.number, offset)
            case ("stage", key, producer_id, offset):
                self.pending[key, producer_id] = (self.number, offset)
            case ("end", producer_id, is_committed):
                for key, producer in list(self.pending):
                    if producer == producer_id:
                        ended = self.pending.pop((key, producer))
                        if is_committed:
                            self.committed[key] = max(ended, self.committed.get(key, (-1, -1)))
            case ("delete offset", key):
                self._delete({other for other in self._keys() if other == key})
            case ("delete group", group):
                self._delete({other for other in self._keys() if other[0] == group})
            case ("delete topic", topic):
                self._delete({other for other in self._keys() if other[1] == topic})
            case _:
                raise AssertionError(step)

    def _keys(self) -> set[Key]:
        return {*self.committed, *(key for key, _ in self.pending)}

    def _delete(self, keys: set[Key]) -> None:
        self.committed = {key: value for key, value in self.committed.items() if key not in keys}
        self.pending = {name: value for name, value in self.pending.items() if name[0] not in keys}

    def after(self, steps: Sequence[Step]) -> Model:
        model = copy.deepcopy(self)
        for step in steps:
            model.apply(step)
        return model

    def seen(self) -> tuple[dict[Key, int], dict[Key, list[tuple[int, int]]]]:
        """What is committed, and what may still be, by producer in the order of the writes."""
        pending: dict[Key, list[tuple[int, int, int]]] = {}
        for (key, producer_id), (number, offset) in self.pending.items():
            if number > self.committed.get(key, (-1, -1))[0]:
                pending.setdefault(key, []).append((number, producer_id, offset))
        return (
            {key: offset for key, (_, offset) in self.committed.items()},
            {
                key: [(producer_id, offset) for _, producer_id, offset in sorted(written)]
                for key, written in pending.items()
            },
        )


class FaultyStore(SqliteGroupStore):
    """Fails some writes, or all of them after a crash; the write of the crash may still be made."""

    def __init__(self, path: Path, random: Random) -> None:
        super().__init__(path)
        self._random = random
        self.failing = 0.0
        self.writes_until_crash: int | None = None
        self.is_dead = False

    def write(self, changes: Sequence[StoreChange]) -> None:
        if self.is_dead or self._random.random() < self.failing:
            raise GroupStoreFailed(Path("groups.sqlite"), "for the test")
        super().write(changes)
        if self.writes_until_crash is not None:
            self.writes_until_crash -= 1
            if self.writes_until_crash == 0:
                self.is_dead = True
                raise GroupStoreFailed(Path("groups.sqlite"), "the process died after it was written")


class History:
    def __init__(self, path: Path, random: Random) -> None:
        self.random = random
        self.bench = GroupBench(path)
        self.model: Model = Model()
        self.store: FaultyStore
        self.offset = 0

    async def open(self) -> None:
        self.store = FaultyStore(self.bench.path / "groups.sqlite", self.random)
        await self.bench.open(self.store)

    def key(self) -> Key:
        return self.random.choice(GROUPS), self.random.choice(TOPICS), self.random.randrange(PARTITIONS)

    def step(self, *, deletes: bool) -> Step:
        self.offset += 1
        kind = self.random.choices(
            ("commit", "stage", "end", "delete offset", "delete group", "delete topic"),
            (3, 8, 4, *((1, 1, 1) if deletes else (0, 0, 0))),
        )[0]
        match kind:
            case "commit":
                return kind, self.key(), self.offset
            case "stage":
                return kind, self.key(), self.random.choice(PRODUCERS), self.offset
            case "end":
                return kind, self.random.choice(PRODUCERS), self.random.random() < 0.6
            case "delete offset":
                return kind, self.key()
            case "delete group":
                return kind, self.random.choice(GROUPS)
            case _:
                return kind, self.random.choice(TOPICS)

    def do(self, step: Step) -> asyncio.Future[Any] | None:
        """Begin a step; None if there is nothing that it could change."""
        bench = self.bench
        match step:
            case ("commit", (group, topic, partition), offset):
                return bench.commit(offset, group=group, topic=topic, partition=partition)
            case ("stage", (group, topic, partition), producer_id, offset):
                return bench.stage(
                    offset, group=group, topic=topic, partition=partition, producer_id=producer_id
                )
            case ("end", producer_id, is_committed):
                return bench.end(producer_id, commit=is_committed)
            case ("delete offset", (group, topic, partition)):
                if group not in bench.coordinator.group_names():
                    return None
                return bench.coordinator.delete_offsets(group, [(topic, partition)])
            case ("delete group", group):
                if group not in bench.coordinator.group_names():
                    return None
                return bench.coordinator.delete_group(group)
            case ("delete topic", topic):
                bench.make_topic(topic, partitions=PARTITIONS, topic_id=uuid4())
                return bench.coordinator.forget_topic(topic)
            case _:
                raise AssertionError(step)

    async def burst(self, size: int, *, deletes: bool) -> list[tuple[Step, asyncio.Future[Any]]]:
        """Do some steps, each before the answers to those before it, and wait for all."""
        begun: list[tuple[Step, asyncio.Future[Any]]] = []
        for _ in range(size):
            step = self.step(deletes=deletes)
            future = self.do(step)
            if future is not None:
                begun.append((step, future))
            if self.random.random() < 0.3:
                await asyncio.sleep(0.001)
        await asyncio.gather(*(future for _, future in begun), return_exceptions=True)
        return begun

    def seen(self) -> tuple[dict[Key, int], dict[Key, list[tuple[int, int]]]]:
        coordinator = self.bench.coordinator
        committed: dict[Key, int] = {}
        pending: dict[Key, list[tuple[int, int]]] = {}
        for group in coordinator.group_names():
            for offset in coordinator.committed(group):
                committed[group, offset.topic, offset.partition] = offset.offset
            offsets = coordinator.table.groups[group].offsets
            for topic, partition in offsets.pending.keys:
                pending[group, topic, partition] = [
                    (one.producer_id, one.record.offset) for one in offsets.pending.of((topic, partition))
                ]
        return committed, pending

    def check_readers(self) -> None:
        """A reader that requires stable offsets gets what no transaction can change, and nothing else."""
        committed, pending = self.model.seen()
        for group in GROUPS:
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    key = (group, topic, partition)
                    expected = None if key in pending else committed.get(key, -1)
                    assert self.bench.stable_offset(partition, group=group, topic=topic) == expected

    async def run(self) -> None:
        for topic in TOPICS:
            self.bench.make_topic(topic, partitions=PARTITIONS)
        await self.open()
        for _ in range(BURSTS):
            end = self.random.choice(("quiet", "quiet", "failures", "crash", "restart"))
            if end == "crash":
                self.store.writes_until_crash = self.random.randint(1, 4)
            elif end == "failures":
                self.store.failing = 0.4
            # A deletion of a group that fails may lose what came for the group meanwhile, until a restart.
            begun = await self.burst(self.random.randint(1, 6), deletes=end != "failures")
            self.store.failing = 0.0
            done = [step for step, future in begun if future.exception() is None]
            self.model = self.model.after(done)
            if end == "crash":
                unknown = [step for step, future in begun if future.exception() is not None]
                self.store.is_dead = True
                await self.bench.close()
                await self.open()
                # Writes are made in their order, so some first ones of those without an answer were made.
                candidates = [self.model.after(unknown[:count]) for count in range(len(unknown) + 1)]
                same = [model for model in candidates if model.seen() == self.seen()]
                assert same, (self.model.seen(), unknown, self.seen())
                self.model = same[0]
            elif end == "restart":
                await self.bench.close()
                await self.open()
            assert self.seen() == self.model.seen()
            self.check_readers()
        await self.bench.close()


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(2_000 if os.environ.get("STELE_TORTURE") else 20))
def test_offsets_are_committed_iff_the_transaction_is_and_no_later_commit_came(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    run_simulated(lambda: History(tmp_path, random).run(), random)
