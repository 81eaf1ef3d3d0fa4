"""``__consumer_offsets`` of a cluster on simulated time: which partitions a broker serves, and from which offsets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from stele.wire import record_batch as rb
from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

from app.broker.virtual import PartitionLeader, VirtualTopics
from app.cluster.group_shards import SHARDS, lease_of_shard, shard_of
from app.cluster.group_store import StoredGroups
from app.cluster.membership import Lease, Member
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import CoordinatorNotAvailable, NotCoordinator, NotLeader, UnknownPartition
from app.groups.coordinator import GroupCoordinator
from app.groups.offsets_topic import view
from app.groups.offsets_topic.sharded import ShardedOffsetsTopic
from app.groups.offsets_topic.standalone import OffsetsTopic
from app.groups.offsets_topic.view import EPOCH_BITS
from app.groups.table import GroupTable
from app.storage.engine import PartitionFetch
from app.storage.topic_partition import TopicPartition
from app.storage.waiters import Waiters
from tests.support.groups import GroupBench
from tests.support.offset_records import GroupKey, OffsetKey, decode_commit, decode_key
from tests.support.simulated_time import simulated

NAME = "__consumer_offsets"
HERE, THERE = (
    Member(broker_id=number, incarnation=UUID(int=number), rack=None, endpoints={}) for number in (1, 2)
)
SHARD = shard_of("g")


class LeasedStore(SqliteGroupStore):
    """A store that may be opened again, and whose epoch is that of a lease."""

    lease_epoch = 0

    def open(self) -> StoredGroups:
        self.close()
        return replace(super().open(), epoch=self.lease_epoch)


class Leases:
    """What a broker knows of the leases."""

    def __init__(self) -> None:
        self.members: list[Member] = [HERE, THERE]
        self.leases: dict[str, Lease] = {}
        self.held: set[str] = set()

    def is_held(self, name: str) -> bool:
        return name in self.held


class Bench(GroupBench):
    """A broker of a cluster, and the shard of the group ``g``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.leases = Leases()
        # What the store has of deletions.
        self.deleted: list[tuple[str, str | None, int]] = []

    def build(self) -> None:
        """Make its parts, in the loop of the test."""
        path = self.path
        self.store = LeasedStore(path / "groups.sqlite")
        self.coordinator = self.make(self.store)
        others = self.make(SqliteGroupStore(path / "never-opened.sqlite"))
        coordinators = [self.coordinator if shard == SHARD else others for shard in range(SHARDS)]
        self.topic_of_offsets = ShardedOffsetsTopic(
            coordinators,
            self.leases,
            deletions=[self.deletions] * SHARDS,
            cluster_id="here",
            broker_id=HERE.broker_id,
        )
        self.virtual = VirtualTopics(Waiters())
        self.virtual.add(self.topic_of_offsets)

    def deletions(self) -> list[tuple[str, str | None, int]]:
        return self.deleted

    def make(self, store: SqliteGroupStore) -> GroupCoordinator:
        return GroupCoordinator(
            GroupTable(
                store=store, clock=self.clock, settings=self.settings, topic=self.topic, make_id=lambda: "id"
            )
        )

    def known(self, member: Member, epoch: int) -> None:
        self.leases.leases[lease_of_shard(SHARD)] = Lease(
            broker_id=member.broker_id, incarnation=member.incarnation, epoch=epoch, expires_in_ms=6_000
        )

    async def take(self, epoch: int) -> None:
        self.store.lease_epoch = epoch
        self.leases.held.add(lease_of_shard(SHARD))
        await self.coordinator.open()
        self.known(HERE, epoch)

    async def lose(self) -> None:
        self.leases.held.clear()
        await self.coordinator.stand_by(lambda: NotCoordinator(None))

    async def bounds(self) -> tuple[int, int]:
        found = [
            await self.virtual.list_offset(NAME, SHARD, at) for at in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        ]
        return found[0][0], found[1][0]

    async def follow(self, offset: int) -> tuple[list[int], int]:
        """The committed offsets that a reader finds from ``offset`` on, and where it then is."""
        seen: list[int] = []
        while True:
            request = PartitionFetch(
                topic=NAME,
                partition=SHARD,
                offset=offset,
                max_bytes=1000,
                isolation=IsolationLevel.READ_COMMITTED,
            )
            (read,) = await self.virtual.fetch([request], 1000, at_least_one=True)
            if read.error is not None:
                raise read.error
            if not read.batches:
                # An empty partition ends at 0, wherever the reader is.
                assert read.high_watermark in (offset, 0)
                return seen, offset
            header = rb.check_batch(read.batches)
            if not header.is_control:
                seen += map(decoded, rb.decode_records(read.batches))
            assert header.next_offset > offset
            offset = header.next_offset


def decoded(record: rb.RecordView) -> int:
    """The committed offset; -1 for a tombstone."""
    return -1 if record.value is None else decode_commit(record.value).offset


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@simulated
async def test_the_topic_has_a_partition_for_each_shard_and_an_id_of_its_own(bench: Bench) -> None:
    bench.build()
    topic = bench.topic_of_offsets.topic
    assert (topic.name, topic.partitions, topic.is_internal) == (NAME, SHARDS, True)
    assert topic.topic_id != OffsetsTopic(bench.coordinator, cluster_id="here").topic.topic_id


@simulated
async def test_the_leader_is_the_broker_with_the_lease(bench: Bench) -> None:
    bench.build()

    def leader() -> PartitionLeader | None:
        return bench.virtual.leader(NAME, SHARD)

    assert leader() == (None, -1)
    bench.known(THERE, 4)
    assert leader() == (2, 4)
    # Its lease is in force for longer than it counts as alive.
    bench.leases.members.remove(THERE)
    assert leader() == (None, -1)
    await bench.take(5)
    bench.known(THERE, 4)
    assert leader() == (1, 5), "this broker knows it before it has looked at the cluster again"
    # A pause, after which another broker may have it.
    bench.leases.held.clear()
    assert leader() == (None, -1)
    with pytest.raises(UnknownPartition):
        bench.virtual.leader(NAME, SHARDS)
    await bench.close()


@simulated
async def test_a_broker_without_the_lease_serves_nothing(bench: Bench) -> None:
    bench.build()
    for holder, named in ((None, None), (THERE, 2), (HERE, None)):
        if holder is not None:
            bench.known(holder, 1)
        with pytest.raises(NotLeader) as refused:
            await bench.follow(0)
        assert refused.value.broker_id == named
        with pytest.raises(NotLeader):
            await bench.bounds()
        with pytest.raises(NotLeader):
            bench.virtual.state(NAME, SHARD)
        with pytest.raises(NotLeader):
            bench.virtual.epoch_end_offset(NAME, SHARD, 1)
    bench.leases.held.add(lease_of_shard(SHARD))
    with pytest.raises(NotLeader):
        # It has the lease, and has not read the groups yet.
        await bench.bounds()
    await bench.close()


@simulated
async def test_a_new_holder_repeats_what_there_is_above_every_earlier_offset(bench: Bench) -> None:
    bench.build()
    await bench.take(1)
    assert await bench.bounds() == (0, 0)
    await bench.commit(7)
    await bench.written()
    assert await bench.follow(1 << EPOCH_BITS) == ([7], (1 << EPOCH_BITS) + 1)
    await bench.lose()
    with pytest.raises(NotLeader):
        await bench.follow((1 << EPOCH_BITS) + 1)
    await bench.take(3)
    assert await bench.follow((1 << EPOCH_BITS) + 1) == ([7], (3 << EPOCH_BITS) + 1)
    assert bench.virtual.epoch_end_offset(NAME, SHARD, 1) == (1, 3 << EPOCH_BITS)
    assert bench.virtual.epoch_end_offset(NAME, SHARD, 3) == (3, (3 << EPOCH_BITS) + 1)
    assert bench.virtual.epoch_end_offset(NAME, SHARD, 4) == (-1, -1)
    await bench.close()


@simulated
async def test_a_holder_that_takes_its_own_lease_again_goes_on_above_what_it_had(bench: Bench) -> None:
    bench.build()
    await bench.take(2)
    await bench.commit(1)
    await bench.written()
    _, end = await bench.follow(2 << EPOCH_BITS)
    await bench.commit(2)
    await bench.written()
    # Nobody else had it, so the epoch stays.
    await bench.lose()
    await bench.take(2)
    seen, after = await bench.follow(end)
    assert (seen, after) == ([2], end + 2)
    await bench.lose()
    await bench.take(2)
    assert await bench.bounds() == (after, after + 1)
    assert await bench.follow(after) == ([2], after + 1)
    await bench.close()


@simulated
async def test_a_reader_is_led_to_the_start_of_a_partition_that_is_empty(bench: Bench) -> None:
    bench.build()
    await bench.take(4)
    assert await bench.follow(3 << EPOCH_BITS) == ([], 4 << EPOCH_BITS)
    await bench.commit(1)
    await bench.written()
    assert await bench.follow(4 << EPOCH_BITS) == ([1], (4 << EPOCH_BITS) + 1)
    await bench.close()


@simulated
async def test_a_lost_lease_ends_the_wait_of_a_reader(bench: Bench) -> None:
    bench.build()
    await bench.take(1)
    _, end = await bench.bounds()
    here = {TopicPartition(NAME, SHARD): end}
    waiting = asyncio.create_task(bench.virtual.wait(here, 3_600_000))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await bench.lose()
    await waiting
    # Who begins to wait after that does not wait at all.
    await bench.virtual.wait(here, 3_600_000)
    await bench.close()


@simulated
async def test_a_lease_that_is_lost_while_the_records_are_made_leaves_nothing_of_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.build()
    monkeypatch.setattr(view, "_ENTRIES_PER_PAUSE", 1)
    await bench.take(1)
    for partition in range(4):
        await bench.commit(partition, partition=partition)
    reading = asyncio.create_task(bench.bounds())
    for _ in range(2):
        await asyncio.sleep(0)
    await bench.lose()
    with pytest.raises(NotLeader):
        await reading
    await bench.take(1)
    seen, _ = await bench.follow(0)
    assert sorted(seen) == [0, 1, 2, 3]
    await bench.close()


@simulated
async def test_what_an_earlier_holder_deleted_is_gone_for_readers_of_its_log(bench: Bench) -> None:
    bench.build()
    await bench.take(1)
    await bench.commit(7)
    await bench.commit(8, partition=1)
    await bench.written()
    # Committed again since, deleted, and a group that is gone.
    bench.deleted = [("g", "orders", 0), ("g", "orders", 3), ("gone", None, -1)]
    await bench.topic_of_offsets.prepare(SHARD)
    batch = bench.topic_of_offsets.read(SHARD, 0, 10_000, at_least_one=True)
    records = rb.decode_records(batch)
    keys = [decode_key(record.key or b"") for record in records if record.value is None]
    assert keys == [OffsetKey("g", "orders", 3), GroupKey("gone")]
    assert sorted(map(decoded, records)) == [-1, -1, 7, 8]
    await bench.close()


@simulated
async def test_a_store_that_cannot_be_read_makes_no_leader(bench: Bench) -> None:
    bench.build()
    await bench.take(1)
    bench.topic_of_offsets._views[SHARD]._deletions = refuse
    with pytest.raises(NotLeader):
        await bench.bounds()
    bench.topic_of_offsets._views[SHARD]._deletions = bench.deleted.copy
    assert await bench.bounds() == (0, 0)
    await bench.close()


def refuse() -> list[tuple[str, str | None, int]]:
    raise CoordinatorNotAvailable("the database cannot be reached")
