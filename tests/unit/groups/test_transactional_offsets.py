"""Offsets within a transaction: who may stage them, when they are committed, and what drops them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from app.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupNotFound,
    GroupStoreFailed,
    IllegalGeneration,
    InvalidGroupId,
    TooManyGroups,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
    UnstableOffset,
)
from app.groups.base.messages import StagedGroup
from app.groups.base.states import GroupState
from app.groups.offsets_topic.records import partition_of
from app.groups.offsets_topic.standalone import PARTITIONS, OffsetsTopic
from tests.support.groups import GroupBench
from tests.support.simulated_time import simulated

DAY_S = 86_400


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


# ── when they become visible ──


@simulated
async def test_a_staged_offset_is_committed_with_its_transaction_and_not_before(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit(3)
    assert await bench.stage(5) == [None]
    assert bench.committed() == 3
    await bench.end(commit=True)
    assert bench.committed() == bench.stable_offset() == 5
    await bench.reopen()
    assert bench.committed() == 5
    await bench.close()


@simulated
async def test_a_staged_offset_is_dropped_when_its_transaction_aborts(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit(3)
    await bench.stage(5)
    await bench.end(commit=False)
    assert bench.committed() == bench.stable_offset() == 3
    # The next transaction of the producer has nothing of it.
    await bench.end(commit=True)
    assert bench.committed() == 3
    await bench.close()


@simulated
async def test_a_transaction_commits_its_offsets_in_all_groups_and_those_of_no_other_producer(
    bench: GroupBench,
) -> None:
    await bench.open()
    await bench.stage(5, group="a")
    await bench.stage(6, group="b", partition=1)
    await bench.stage(7, group="b", partition=2, producer_id=8)
    await bench.end(7)
    assert bench.committed(group="a") == 5
    assert bench.committed(1, group="b") == 6
    assert bench.committed(2, group="b") == -1
    await bench.end(8)
    assert bench.committed(2, group="b") == 7
    await bench.close()


@simulated
async def test_the_last_offset_that_a_transaction_stages_for_a_partition_is_committed(
    bench: GroupBench,
) -> None:
    await bench.open()
    await bench.stage(9)
    await bench.stage(5)
    await bench.end()
    assert bench.committed() == 5
    await bench.close()


@simulated
async def test_staged_offsets_survive_a_restart_until_their_transaction_ends(bench: GroupBench) -> None:
    await bench.open()
    await bench.stage(5, producer_epoch=3)
    await bench.stage(6, group="h", producer_id=8)
    await bench.reopen()
    assert bench.committed() == -1
    assert bench.stable_offset() is None
    assert bench.coordinator.transactional.staged_groups() == [
        StagedGroup(producer_id=7, producer_epoch=3, group="g"),
        StagedGroup(producer_id=8, producer_epoch=0, group="h"),
    ]
    await bench.end(7, commit=True)
    await bench.end(8, commit=False)
    assert bench.committed() == 5
    assert bench.committed(group="h") == -1
    assert bench.coordinator.transactional.staged_groups() == []
    await bench.close()


@simulated
async def test_an_offset_on_its_way_to_the_store_ends_with_the_transaction_too(bench: GroupBench) -> None:
    await bench.open()
    staging = bench.stage(5)
    ending = bench.end()
    await asyncio.gather(staging, ending)
    assert bench.committed() == 5
    await bench.reopen()
    assert bench.committed() == 5
    await bench.close()


@simulated
async def test_what_the_store_does_not_keep_is_neither_pending_nor_committed(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit(3)
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await bench.stage(5)
    assert bench.stable_offset() == 3
    bench.mend_store()
    await bench.stage(6)
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await bench.end()
    assert bench.committed() == 3
    assert bench.stable_offset() is None
    bench.mend_store()
    await bench.end()
    assert bench.committed() == 6
    await bench.close()


# ── which commit wins ──


@simulated
async def test_a_plain_commit_after_a_staged_offset_wins(bench: GroupBench) -> None:
    await bench.open()
    await bench.stage(9)
    await bench.stage(8, partition=1)
    await bench.commit(4)
    # The transaction can no longer change it.
    assert bench.stable_offset() == 4
    await bench.end()
    assert bench.committed() == 4
    assert bench.committed(1) == 8
    await bench.reopen()
    assert bench.committed() == 4
    await bench.close()


@simulated
async def test_a_plain_commit_before_a_staged_offset_loses_also_on_its_way_to_the_store(
    bench: GroupBench,
) -> None:
    await bench.open()
    await asyncio.gather(bench.commit(4), bench.stage(9), bench.end())
    assert bench.committed() == 9
    await asyncio.gather(bench.stage(11), bench.commit(10), bench.end())
    assert bench.committed() == 10
    await asyncio.gather(bench.stage(12), bench.end(), bench.commit(5))
    assert bench.committed() == 5
    await bench.reopen()
    assert bench.committed() == 5
    await bench.close()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("first", [7, 8])
@simulated
async def test_of_two_transactions_the_one_that_staged_last_wins(
    bench: GroupBench, first: int, restarts: bool
) -> None:
    await bench.open()
    await bench.stage(10, producer_id=7)
    await bench.stage(20, producer_id=8)
    if restarts:
        await bench.reopen()
    await bench.end(first)
    await bench.end(15 - first)
    assert bench.committed() == 20
    await bench.reopen()
    assert bench.committed() == 20
    await bench.close()


@simulated
async def test_an_abort_leaves_what_another_transaction_staged_before_it(bench: GroupBench) -> None:
    await bench.open()
    await bench.stage(10, producer_id=7)
    await bench.stage(20, producer_id=8)
    await bench.end(8, commit=False)
    assert bench.stable_offset() is None
    await bench.end(7)
    assert bench.committed() == 10
    await bench.close()


# ── who may stage ──


@simulated
async def test_the_member_generation_and_instance_of_a_request_must_be_the_current_ones(
    bench: GroupBench,
) -> None:
    await bench.open()
    joined = await bench.join(instance_id="i")
    await bench.settle([joined])
    member_id, generation = joined.member_id, joined.generation
    assert await bench.stage(5, member_id=member_id, generation=generation) == [None]
    assert await bench.stage(5, member_id=member_id, generation=generation, instance_id="i") == [None]
    with pytest.raises(IllegalGeneration):
        bench.stage(6, member_id=member_id, generation=generation - 1)
    with pytest.raises(IllegalGeneration):
        bench.stage(6, member_id=member_id, generation=generation + 1)
    with pytest.raises(UnknownMember):
        bench.stage(6, member_id="another", generation=generation)
    with pytest.raises(FencedInstance):
        bench.stage(6, member_id="another", generation=generation, instance_id="i")
    with pytest.raises(UnknownMember):
        bench.stage(6, member_id=member_id, generation=generation, instance_id="another")
    await bench.end()
    assert bench.committed() == 5
    await bench.close()


@simulated
async def test_a_producer_that_names_no_member_may_stage_in_a_group_with_members(bench: GroupBench) -> None:
    await bench.open()
    await bench.stable()
    assert await bench.stage(5) == [None]
    await bench.end()
    assert bench.committed() == 5
    with pytest.raises(UnknownMember):
        bench.commit(6)
    await bench.close()


@simulated
async def test_a_rebalance_is_not_in_the_way(bench: GroupBench) -> None:
    await bench.open()
    generation, (leader, follower) = await bench.stable(members=2)
    bench.join(leader)
    assert bench.state() is GroupState.PREPARING_REBALANCE
    assert await bench.stage(5, member_id=follower, generation=generation) == [None]
    await bench.join(follower)
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    assert await bench.stage(6, member_id=follower, generation=generation + 1) == [None]
    with pytest.raises(IllegalGeneration):
        bench.stage(7, member_id=follower, generation=generation)
    await bench.end()
    assert bench.committed() == 6
    await bench.close()


@simulated
async def test_staging_does_not_extend_the_session_of_the_member(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    for _ in range(6):
        await asyncio.sleep(3)
        if bench.state() is GroupState.EMPTY:
            break
        bench.stage(5, member_id=member_id, generation=generation)
    assert bench.state() is GroupState.EMPTY
    await bench.close()


@simulated
async def test_a_group_that_does_not_exist_begins_with_staged_offsets_unless_a_generation_is_named(
    bench: GroupBench,
) -> None:
    await bench.open()
    with pytest.raises(IllegalGeneration):
        bench.stage(5, member_id="m", generation=1)
    with pytest.raises(InvalidGroupId):
        bench.stage(5, group="")
    assert await bench.coordinator.list_groups() == []
    await bench.stage(5)
    assert [listing.group for listing in await bench.coordinator.list_groups()] == ["g"]
    await bench.reopen()
    assert [listing.group for listing in await bench.coordinator.list_groups()] == ["g"]
    await bench.close()
    with pytest.raises(CoordinatorNotAvailable):
        bench.stage(5)


@simulated
async def test_staged_offsets_count_towards_the_limit_of_groups(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, groups_max=1).open()
    await bench.stage(5)
    with pytest.raises(TooManyGroups):
        bench.stage(5, group="h")
    await bench.close()


@simulated
async def test_a_partition_that_does_not_exist_is_refused_alone(bench: GroupBench) -> None:
    await bench.open()
    (error,) = await bench.stage(5, topic="none")
    assert isinstance(error, UnknownTopic)
    (error,) = await bench.stage(5, partition=4)
    assert isinstance(error, UnknownPartition)
    assert await bench.coordinator.list_groups() == []
    await bench.close()


# ── require_stable ──


@simulated
async def test_a_reader_that_requires_stable_offsets_is_refused_while_one_is_staged(
    bench: GroupBench,
) -> None:
    await bench.open()
    await bench.commit(3, partition=1)
    staging = bench.stage(5)
    # It may be durable already.
    assert bench.stable_offset() is None
    await staging
    first, second = bench.coordinator.committed("g", [("orders", 0), ("orders", 1)], require_stable=True)
    assert isinstance(first.error, UnstableOffset)
    assert (first.offset, first.metadata) == (-1, "")
    assert (second.offset, second.error) == (3, None)
    # All offsets of the group: also one that has never been committed.
    found = bench.coordinator.committed("g", require_stable=True)
    assert [(offset.partition, offset.error is None) for offset in found] == [(0, False), (1, True)]
    assert [offset.partition for offset in bench.coordinator.committed("g")] == [1]
    await bench.end()
    assert bench.stable_offset() == 5
    await bench.close()


# ── expiry and deletion ──


@simulated
async def test_neither_a_group_nor_an_offset_expires_while_an_offset_is_staged(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, offsets_retention_ms=DAY_S * 1000).open()
    await bench.commit(3)
    await bench.commit(3, partition=1)
    await bench.stage(5)
    await bench.stage(6, group="only-staged")
    await asyncio.sleep(2 * DAY_S)
    await bench.coordinator.sweep()
    await bench.written()
    assert bench.committed() == 3
    assert bench.committed(1) == -1
    assert bench.coordinator.group_count == 2
    # The retention goes on when the transaction has ended.
    await bench.end(commit=False)
    await bench.coordinator.sweep()
    await bench.written()
    assert bench.coordinator.group_count == 0
    await bench.close()


@simulated
async def test_a_group_survives_the_sweep_while_its_first_offset_is_on_its_way_to_the_store(
    bench: GroupBench,
) -> None:
    await bench.open()
    staging = bench.stage(5)
    await bench.coordinator.sweep()
    await staging
    await bench.end()
    assert bench.committed() == 5
    await bench.close()


@pytest.mark.parametrize("restarts", [False, True])
@simulated
async def test_an_administrator_who_deletes_a_group_drops_what_is_staged(
    bench: GroupBench, restarts: bool
) -> None:
    await bench.open()
    await bench.stage(5)
    await bench.coordinator.delete_group("g")
    with pytest.raises(GroupNotFound):
        bench.coordinator.describe("g")
    assert bench.coordinator.transactional.staged_groups() == []
    if restarts:
        await bench.reopen()
    await bench.end()
    assert bench.committed() == -1
    assert bench.coordinator.group_count == 0
    # A group of the same name starts from scratch.
    await bench.stage(6)
    await bench.end()
    assert bench.committed() == 6
    await bench.close()


@simulated
async def test_a_deletion_that_was_not_stored_keeps_what_is_staged(bench: GroupBench) -> None:
    await bench.open()
    await bench.stage(5)
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await bench.coordinator.delete_group("g")
    bench.mend_store()
    await bench.end()
    assert bench.committed() == 5
    await bench.close()


@simulated
async def test_a_deleted_offset_takes_staged_ones_of_its_partition_along(bench: GroupBench) -> None:
    await bench.open()
    await bench.stage(5)
    await bench.stage(6, partition=1)
    assert await bench.coordinator.delete_offsets("g", [("orders", 0)]) == [None]
    assert bench.stable_offset() == -1
    await bench.end()
    assert (bench.committed(0), bench.committed(1)) == (-1, 6)
    await bench.reopen()
    assert (bench.committed(0), bench.committed(1)) == (-1, 6)
    await bench.close()


@pytest.mark.parametrize("is_made_again", [False, True])
@simulated
async def test_a_deleted_topic_takes_its_staged_offsets_along(bench: GroupBench, is_made_again: bool) -> None:
    bench.make_topic("payments")
    await bench.open()
    await bench.stage(5)
    await bench.stage(6, topic="payments")
    del bench.topics["orders"]
    if is_made_again:
        bench.make_topic("orders", partitions=4, topic_id=uuid4())
    await bench.coordinator.forget_topic("orders")
    if is_made_again:
        await bench.stage(7, partition=1)
    await bench.end()
    assert bench.committed(topic="payments") == 6
    assert [offset.offset for offset in bench.coordinator.committed("g")] == (
        [7, 6] if is_made_again else [6]
    )
    await bench.close()


@pytest.mark.parametrize("is_made_again", [False, True])
@simulated
async def test_staged_offsets_of_a_topic_that_was_deleted_before_a_crash_are_dropped_at_the_start(
    bench: GroupBench, is_made_again: bool
) -> None:
    await bench.open()
    await bench.stage(5)
    await bench.close()
    topic_id = bench.topics.pop("orders").topic_id
    if is_made_again:
        bench.make_topic("orders", partitions=4, topic_id=uuid4())
    await bench.open()
    assert bench.coordinator.transactional.staged_groups() == []
    await bench.written()
    await bench.close()
    bench.make_topic("orders", partitions=4, topic_id=topic_id)
    await bench.open()
    await bench.end()
    assert bench.committed() == -1
    await bench.close()


# ── ``__consumer_offsets`` ──


@simulated
async def test_the_offsets_topic_has_a_staged_offset_once_it_is_committed(bench: GroupBench) -> None:
    await bench.open()
    topic = OffsetsTopic(bench.coordinator, cluster_id="here")
    await topic.prepare(0)
    partition = partition_of("g", PARTITIONS)

    def end() -> int:
        state = topic.state(partition)
        assert state.last_stable_offset == state.high_watermark
        return state.high_watermark - state.log_start_offset

    await bench.stage(5)
    assert end() == 0
    await bench.end(commit=False)
    assert end() == 0
    await bench.stage(6)
    await bench.end()
    assert end() == 1
    await bench.stage(7)
    # A view that is made later has the same.
    later = OffsetsTopic(bench.coordinator, cluster_id="here")
    await later.prepare(0)
    start = topic.state(partition).log_start_offset
    assert later.read(partition, start, 1000, at_least_one=True) == topic.read(
        partition, start, 1000, at_least_one=True
    )
    await bench.close()
