"""``__consumer_offsets`` over a real group store on simulated time: what a reader finds in it, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from stele.wire import record_batch as rb

from app.broker.virtual import VirtualTopics
from app.errors import InternalTopic, OffsetOutOfRange, UnknownPartition
from app.groups.base.messages import CommitRequest, OffsetToCommit
from app.groups.consumer.messages import ConsumerHeartbeat
from app.groups.offset_retention import CHECK_INTERVAL_MS
from app.groups.offsets_topic import view
from app.groups.offsets_topic.records import partition_of
from app.groups.offsets_topic.standalone import PARTITIONS, OffsetsTopic
from app.groups.offsets_topic.view import EPOCH_BITS, HISTORY_BYTES
from app.storage.topic_partition import TopicPartition
from app.storage.waiters import Waiters
from app.work_budget import pause
from tests.support.groups import GroupBench
from tests.support.offset_records import (
    Commit,
    GroupKey,
    GroupState,
    OffsetKey,
    decode_commit,
    decode_group,
    decode_key,
)
from tests.support.simulated_time import simulated
from tests.support.turns import CallsPerTurn

NAME = "__consumer_offsets"
Found = tuple[OffsetKey | GroupKey, Commit | GroupState | None]


class Bench(GroupBench):
    """A coordinator with the topic over it."""

    topic_of_offsets: OffsetsTopic
    virtual: VirtualTopics

    async def start(self) -> Bench:
        await self.open()
        self.virtual = VirtualTopics(Waiters())
        self.topic_of_offsets = OffsetsTopic(self.coordinator, cluster_id="here")
        self.virtual.add(self.topic_of_offsets)
        return self

    def read(self, group: str = "g", offset: int | None = None) -> list[tuple[int, Found]]:
        """What there is of the group's partition from ``offset`` on, by offset."""
        partition = partition_of(group, PARTITIONS)
        found: list[tuple[int, Found]] = []
        position = self.start_offset if offset is None else offset
        while batch := self.topic_of_offsets.read(partition, position, 1000, at_least_one=True):
            header = rb.check_batch(batch)
            assert header.partition_leader_epoch == self.coordinator.epoch
            found += [(record.offset, decoded(record)) for record in rb.decode_records(batch)]
            assert header.last_offset == found[-1][0] >= position
            position = found[-1][0] + 1
        assert position == self.topic_of_offsets.state(partition).log_end_offset or not found
        return found

    async def records(self, group: str = "g") -> list[Found]:
        await self.topic_of_offsets.prepare(0)
        return [found for _, found in self.read(group)]

    @property
    def start_offset(self) -> int:
        return self.coordinator.epoch << EPOCH_BITS


def decoded(record: rb.RecordView) -> Found:
    assert record.key is not None
    key = decode_key(record.key)
    if record.value is None:
        return key, None
    return key, decode_commit(record.value) if isinstance(key, OffsetKey) else decode_group(record.value)


def commits(found: list[Found]) -> list[tuple[int, int]]:
    """Partition and offset of the commits."""
    return [
        (key.partition, value.offset)
        for key, value in found
        if isinstance(key, OffsetKey) and isinstance(value, Commit)
    ]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@simulated
async def test_commits_before_the_first_read_are_there_once(bench: Bench) -> None:
    await bench.start()
    for offset in range(5):
        await bench.commit(offset)
    await bench.commit(7, partition=1, metadata="m")
    assert not bench.topic_of_offsets.is_read
    found = await bench.records()
    assert sorted(commits(found)) == [(0, 4), (1, 7)]
    assert {key.topic for key, _ in found if isinstance(key, OffsetKey)} == {"orders"}
    await bench.close()


@simulated
async def test_a_reader_that_keeps_up_sees_every_commit(bench: Bench) -> None:
    await bench.start()
    assert await bench.records() == []
    for offset in range(5):
        await bench.commit(offset)
        await bench.written()
    assert commits(await bench.records()) == [(0, offset) for offset in range(5)]
    await bench.close()


@simulated
async def test_a_group_is_there_when_its_assignment_is_durable_and_when_it_is_empty(bench: Bench) -> None:
    await bench.start()
    await bench.records()
    generation, (member,) = await bench.stable()
    assert bench.leave(member) == [None]
    await bench.written()
    full, empty = [value for key, value in await bench.records() if key == GroupKey("g")]
    assert isinstance(full, GroupState)
    assert (full.protocol_type, full.generation, full.protocol, full.leader) == (
        "consumer",
        generation,
        "range",
        member,
    )
    assert [(one.member_id, one.subscription, one.assignment) for one in full.members] == [
        (member, b"topics", member.encode())
    ]
    assert isinstance(empty, GroupState)
    assert (empty.generation, empty.protocol, empty.leader, empty.members) == (generation + 1, None, None, [])
    await bench.close()


@simulated
async def test_what_is_deleted_leaves_a_tombstone(bench: Bench) -> None:
    await bench.start()
    bench.make_topic("gone", partitions=1)
    _, (member,) = await bench.stable()
    bench.leave(member)
    await bench.commit(1)
    await bench.commit(2, partition=1)
    await bench.commit(3, topic="gone")
    await bench.records()
    await bench.coordinator.delete_offsets("g", [("orders", 1), ("orders", 3)])
    del bench.topics["gone"]
    await bench.coordinator.forget_topic("gone")
    await bench.coordinator.delete_group("g")
    await bench.written()
    tombstones = [key for key, value in await bench.records() if value is None]
    assert tombstones == [
        OffsetKey("g", "orders", 1),
        OffsetKey("g", "gone", 0),
        OffsetKey("g", "orders", 0),
        GroupKey("g"),
    ]
    await bench.close()


@simulated
async def test_a_group_whose_partitions_the_broker_assigns_has_offsets_only(bench: Bench) -> None:
    await bench.start()
    _, (member,) = await bench.stable()
    bench.leave(member)
    await bench.commit(1)
    await bench.written()
    assert [key for key, value in await bench.records() if value is not None] == [
        OffsetKey("g", "orders", 0),
        GroupKey("g"),
    ]
    joining = ConsumerHeartbeat(
        group="g",
        member_id="m",
        epoch=0,
        rebalance_timeout_ms=1000,
        topics=frozenset({"orders"}),
        owned=frozenset(),
    )
    await bench.coordinator.consumers.heartbeat(joining, sees=lambda _topic: True)
    found = dict(await bench.records())
    assert found[GroupKey("g")] is None
    assert found[OffsetKey("g", "orders", 0)] is not None
    await bench.close()


@simulated
async def test_offsets_of_a_recreated_topic_survive_the_deletion_of_the_old_one(bench: Bench) -> None:
    await bench.start()
    await bench.records()
    bench.make_topic("orders", partitions=4, topic_id=uuid4())
    await bench.commit(1)
    await bench.coordinator.forget_topic("orders")
    await bench.written()
    assert commits(await bench.records()) == [(0, 1)]
    await bench.close()


@simulated
async def test_expired_offsets_leave_tombstones(tmp_path: Path) -> None:
    bench = await Bench(tmp_path, offsets_retention_ms=1000).start()
    await bench.commit(1)
    await bench.records()
    await asyncio.sleep(CHECK_INTERVAL_MS / 1000 + 1)
    assert (await bench.records())[-1] == (OffsetKey("g", "orders", 0), None)
    await bench.close()


@simulated
async def test_after_a_restart_offsets_continue_above_and_a_reader_continues_where_it_was(
    bench: Bench,
) -> None:
    await bench.start()
    await bench.commit(1)
    await bench.commit(2, partition=1)
    await bench.records()
    ((before, _), *_) = bench.read()
    await bench.close()
    await bench.start()
    await bench.topic_of_offsets.prepare(0)
    ((after, _), *_) = bench.read()
    assert after == bench.start_offset > before
    # At the end of the former log, as a consumer with auto.offset.reset=latest is.
    again = bench.read(offset=before + 2)
    assert sorted(commits([found for _, found in again])) == [(0, 1), (1, 2)]
    partition = partition_of("g", PARTITIONS)
    assert (
        bench.virtual.epoch_end_offset(NAME, partition, bench.coordinator.epoch - 1)[1] == bench.start_offset
    )
    with pytest.raises(OffsetOutOfRange):
        bench.topic_of_offsets.read(partition, after + 99, 1000, at_least_one=True)
    await bench.close()


@simulated
async def test_a_reader_of_an_earlier_run_is_led_to_the_start_of_an_empty_partition(bench: Bench) -> None:
    await bench.start()
    await bench.records()
    before = bench.start_offset
    await bench.close()
    await bench.start()
    await bench.topic_of_offsets.prepare(0)
    # Reset to the end, a reader would miss the commit that comes before it asks for the end.
    partition = partition_of("g", PARTITIONS)
    batch = bench.topic_of_offsets.read(partition, before, 1000, at_least_one=False)
    header = rb.check_batch(batch)
    assert (header.is_control, header.is_transactional, header.has_producer_id) == (True, False, False)
    assert header.next_offset == bench.start_offset > before
    assert header.partition_leader_epoch == bench.coordinator.epoch
    assert bench.topic_of_offsets.read(partition, before, len(batch) - 1, at_least_one=False) == b""
    assert bench.topic_of_offsets.read(partition, bench.start_offset, 1000, at_least_one=True) == b""
    await bench.commit(1)
    await bench.written()
    for offset in (before, bench.start_offset):
        assert commits([found for _, found in bench.read(offset=offset)]) == [(0, 1)]
    for offset in (-1, bench.start_offset + 2):
        with pytest.raises(OffsetOutOfRange):
            bench.topic_of_offsets.read(partition, offset, 1000, at_least_one=True)
    await bench.close()


@simulated
async def test_commits_that_come_while_the_topic_is_made_are_neither_lost_nor_undone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_ENTRIES_PER_PAUSE", 1)
    await bench.start()
    for number in range(20):
        await bench.commit(1, group=f"g{number}")
    walk = asyncio.create_task(bench.topic_of_offsets.prepare(0))
    await asyncio.sleep(0)
    for number in range(20):
        await bench.commit(2, group=f"g{number}")
    await bench.coordinator.delete_group("g7")
    await walk
    for number in range(20):
        found = [one for one in await bench.records(f"g{number}") if one[0].group == f"g{number}"]
        if number == 7:
            # Gone before the walk came to it, or after.
            assert not found or found[-1][1] is None
        else:
            assert commits(found)[-1] == (0, 2)
    await bench.close()


@simulated
async def test_ten_thousand_commits_keep_the_history_within_its_bound(bench: Bench) -> None:
    await bench.start()
    await bench.records()
    partition = partition_of("g", PARTITIONS)
    for round_ in range(20):
        await asyncio.gather(
            *(bench.commit(round_ * 500 + number, partition=number % 4) for number in range(500))
        )
    await bench.written()
    assert bench.topic_of_offsets.state(partition).log_end_offset == bench.start_offset + 10_000
    assert bench.topic_of_offsets.state(partition).size_bytes <= HISTORY_BYTES + 4 * 300
    found = commits(await bench.records())
    assert dict(found) == {0: 9996, 1: 9997, 2: 9998, 3: 9999}
    await bench.close()


@simulated
async def test_a_commit_ends_the_wait_of_a_reader_and_nothing_else_does(bench: Bench) -> None:
    await bench.start()
    partition = partition_of("g", PARTITIONS)
    await bench.records()
    here = {TopicPartition(NAME, partition): bench.start_offset}
    waiting = asyncio.create_task(bench.virtual.wait(here, 60_000))
    elsewhere = asyncio.create_task(
        bench.virtual.wait({TopicPartition(NAME, (partition + 1) % PARTITIONS): bench.start_offset}, 60_000)
    )
    await bench.commit(1)
    await bench.written()
    assert (waiting.done(), elsewhere.done()) == (True, False)
    # Who looks too late does not wait at all.
    await bench.virtual.wait(here, 60_000)
    elsewhere.cancel()
    await bench.close()


@simulated
async def test_a_time_finds_the_first_commit_at_or_after_it(bench: Bench) -> None:
    await bench.start()
    partition = partition_of("g", PARTITIONS)
    await bench.records()
    times: list[int] = []
    for offset in range(3):
        times.append(bench.clock.now_ms())
        await bench.commit(offset)
        await asyncio.sleep(1)
    for number, time_ms in enumerate(times):
        found = await bench.virtual.list_offset(NAME, partition, time_ms)
        assert found[0] == bench.start_offset + number
    assert (await bench.virtual.list_offset(NAME, partition, times[-1] + 1000))[0] == -1
    assert (await bench.virtual.list_offset(NAME, partition, -3))[0] == bench.start_offset + 2
    with pytest.raises(UnknownPartition):
        await bench.virtual.list_offset(NAME, PARTITIONS, -1)
    await bench.close()


@simulated
async def test_many_changes_get_their_entries_in_order_and_some_in_each_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.start()
    await bench.records()
    count = 2 * view._APPLIED_PER_STEP + 1
    bench.make_topic("wide", partitions=count)
    offsets_view = bench.topic_of_offsets._view
    put: CallsPerTurn[..., int] = CallsPerTurn(offsets_view._put_offset)
    monkeypatch.setattr(offsets_view, "_put_offset", put)
    offsets = [OffsetToCommit(topic="wide", partition=number, offset=number) for number in range(count)]
    await bench.coordinator.commit(CommitRequest(group="g", offsets=offsets))
    await bench.coordinator.delete_offsets("g", [("wide", 1), ("wide", 0)])
    await bench.coordinator.delete_group("g")
    while offsets_view._unapplied:
        await pause()
    found = await bench.records()
    keys = [key for key, _ in found]
    assert [key.partition for key in keys if isinstance(key, OffsetKey)][: count + 2] == [*range(count), 1, 0]
    assert len(keys) == 2 * count
    assert (put.total, put.most) == (count, view._APPLIED_PER_STEP)
    await bench.close()


@simulated
async def test_changes_that_wait_when_the_topic_is_forgotten_are_in_the_next_one(bench: Bench) -> None:
    await bench.start()
    await bench.records()
    count = 2 * view._APPLIED_PER_STEP
    bench.make_topic("wide", partitions=count)
    offsets = [OffsetToCommit(topic="wide", partition=number, offset=number) for number in range(count)]
    await bench.coordinator.commit(CommitRequest(group="g", offsets=offsets))
    offsets_view = bench.topic_of_offsets._view
    assert offsets_view._unapplied
    offsets_view.forget()
    found = await bench.records()
    assert sorted(commits(found)) == [(number, number) for number in range(count)]
    await bench.close()


@simulated
async def test_a_managed_member_cannot_subscribe_to_it(bench: Bench) -> None:
    await bench.start()
    bench.topics[NAME] = bench.topic_of_offsets.topic
    with pytest.raises(InternalTopic):
        bench.join_managed_later(topics=[NAME])
    await bench.close()
