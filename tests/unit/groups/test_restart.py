"""The state of a group after a clean or an unclean end of the coordinator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import (
    CoordinatorFenced,
    CoordinatorNotAvailable,
    FencedInstance,
    NotCoordinator,
    UnknownMember,
)
from app.groups.base.states import GroupState
from tests.support.groups import SESSION_MS, GroupBench
from tests.support.simulated_time import simulated

S = GroupState


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


@simulated
async def test_members_continue_after_a_restart_without_a_rebalance(bench: GroupBench) -> None:
    await bench.open()
    generation, (leader, follower) = await bench.stable(members=2)
    await bench.commit(5, generation=generation, member_id=follower)
    before = bench.coordinator.describe("g")
    await asyncio.sleep(SESSION_MS / 1000 - 1)
    await bench.reopen()
    assert bench.coordinator.describe("g") == before
    assert bench.committed() == 5
    # Their sessions begin again, because the broker was away and not they.
    await asyncio.sleep(SESSION_MS / 1000 - 1)
    bench.heartbeat(leader, generation)
    bench.heartbeat(follower, generation)
    assert await bench.commit(6, generation=generation, member_id=follower) == [None]
    assert (await bench.sync(follower, generation)).assignment == follower.encode()
    # And the followers' joins do not rebalance, while the leader's do.
    assert (await bench.join(follower)).generation == generation
    bench.join(leader)
    both = [await bench.join(follower)]
    assert both[0].generation == generation + 1
    await bench.close()


@simulated
async def test_members_that_do_not_come_back_after_a_restart_expire(bench: GroupBench) -> None:
    await bench.open()
    generation, (leader, follower) = await bench.stable(members=2)
    await bench.reopen()
    await bench.stay_alive({follower: generation}, SESSION_MS / 1000 + 1)
    assert bench.state() is S.PREPARING_REBALANCE
    assert (await bench.join(follower)).leader == follower
    with pytest.raises(UnknownMember):
        bench.heartbeat(leader, generation)
    await bench.close()


@simulated
async def test_an_instance_keeps_its_last_member_id_over_a_restart(bench: GroupBench) -> None:
    await bench.open()
    first = await bench.join(instance_id="i")
    await bench.settle([first])
    second = await bench.join(instance_id="i")
    await bench.reopen()
    bench.heartbeat(second.member_id, 1, instance_id="i")
    with pytest.raises(FencedInstance):
        bench.heartbeat(first.member_id, 1, instance_id="i")
    await bench.close()


@simulated
async def test_an_empty_group_continues_its_generations_after_a_restart(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    bench.leave(member_id)
    await bench.reopen()
    assert bench.state() is S.EMPTY
    assert (await bench.join()).generation == generation + 2
    await bench.close()


@simulated
async def test_a_group_that_was_rebalancing_is_restored_as_it_was_before(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    joining = bench.join()
    await bench.reopen()
    with pytest.raises(CoordinatorNotAvailable):
        await joining
    bench.heartbeat(member_id, generation)
    assert bench.state() is S.STABLE
    await bench.close()


@simulated
async def test_commits_that_came_before_the_close_are_kept_and_answered(bench: GroupBench) -> None:
    await bench.open()
    waiting = bench.commit(5)
    await bench.close()
    assert await waiting == [None]
    await bench.open()
    assert bench.committed() == 5
    await bench.close()


@simulated
async def test_a_replaced_coordinator_answers_nothing(bench: GroupBench) -> None:
    await bench.open()
    generation, (leader, _) = await bench.stable(members=2)
    parked = bench.join(leader)
    successor = SqliteGroupStore(bench.path / "groups.sqlite")
    successor.open()
    with pytest.raises(CoordinatorFenced):
        await bench.commit(1, group="simple")
    with pytest.raises(CoordinatorFenced):
        await parked
    for ask in (bench.join, bench.commit, lambda: bench.heartbeat(leader, generation)):
        with pytest.raises(CoordinatorFenced):
            ask()
    successor.close()
    await bench.close()


@simulated
async def test_before_it_is_open_it_answers_nothing(bench: GroupBench) -> None:
    await bench.open()
    await bench.stable()
    await bench.close()
    with pytest.raises(CoordinatorNotAvailable):
        bench.join()


@simulated
async def test_a_topic_that_is_deleted_while_the_broker_closes_is_forgotten_at_the_next_start(
    bench: GroupBench,
) -> None:
    await bench.open()
    await bench.commit(5)
    bench.coordinator.begin_close()
    topic_id = bench.topics.pop("orders").topic_id
    await bench.coordinator.forget_topic("orders")
    await bench.reopen()
    bench.make_topic("orders", topic_id=topic_id)
    assert bench.committed() == -1
    await bench.close()


@simulated
async def test_no_call_is_answered_while_another_broker_may_have_the_groups(bench: GroupBench) -> None:
    await bench.open()
    generation, (member,) = await bench.stable()
    is_held = True

    def check() -> None:
        if not is_held:
            raise NotCoordinator(None)

    coordinator = bench.coordinator
    coordinator.check_each_call(check)
    assert await bench.commit(5, generation=generation, member_id=member) == [None]
    assert bench.committed() == 5
    # The broker was paused: nothing on its loop has run since, and the table still has the groups.
    is_held = False
    with pytest.raises(NotCoordinator):
        bench.committed()
    with pytest.raises(NotCoordinator):
        coordinator.describe("g")
    with pytest.raises(NotCoordinator):
        await coordinator.list_groups()
    with pytest.raises(NotCoordinator):
        bench.heartbeat(member, generation)
    with pytest.raises(NotCoordinator):
        await bench.commit(6, generation=generation, member_id=member)
    with pytest.raises(NotCoordinator):
        await bench.join()
    await bench.close()
