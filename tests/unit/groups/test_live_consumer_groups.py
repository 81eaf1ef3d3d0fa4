"""Consumer groups in the coordinator: sessions, revocations, intervals, and answers that wait for the store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from app.cluster.consumer_group_store import OwnedPartition
from app.errors import (
    FencedMemberEpoch,
    GroupFull,
    GroupOfOtherType,
    GroupStoreFailed,
    InconsistentGroupProtocol,
    InvalidRegularExpression,
    InvalidRequest,
    UnknownMember,
)
from app.groups.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from app.groups.group_states import GroupState
from tests.support.groups import GroupBench
from tests.support.simulated_time import simulated

SESSION_S, INTERVAL_S = 45.0, 1.0


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


async def beat(
    bench: GroupBench,
    member_id: str,
    epoch: int = 0,
    owned: Collection[OwnedPartition] | None = (),
    *,
    topics: Collection[str] | None = ("orders",),
    sees: Collection[str] | None = None,
    **fields: Any,
) -> ConsumerHeartbeatAnswer:
    request = ConsumerHeartbeat(
        group="g",
        member_id=member_id,
        epoch=epoch,
        rebalance_timeout_ms=20_000,
        topics=None if topics is None else frozenset(topics),
        owned=None if owned is None else frozenset(owned),
        **fields,
    )
    return await bench.coordinator.consumers.heartbeat(
        request, sees=lambda topic: sees is None or topic in sees
    )


def state(bench: GroupBench) -> GroupState:
    return bench.coordinator.describe("g").state


@simulated
async def test_a_member_without_heartbeats_expires_and_the_others_get_its_partitions(
    bench: GroupBench,
) -> None:
    await bench.open()
    first = await beat(bench, "m1")
    await asyncio.sleep(SESSION_S - 1)
    second = await beat(bench, "m2")
    assert (len(first.assigned or ()), second.assigned) == (4, frozenset())
    await asyncio.sleep(2)
    answer = await beat(bench, "m2", second.epoch)
    assert answer.assigned == first.assigned
    with pytest.raises(UnknownMember):
        await beat(bench, "m1", first.epoch, first.assigned)
    await asyncio.sleep(SESSION_S + 1)
    assert state(bench) is GroupState.EMPTY
    await bench.close()


@simulated
async def test_a_member_that_keeps_what_it_must_give_up_is_removed_after_its_rebalance_timeout(
    bench: GroupBench,
) -> None:
    await bench.open()
    first = await beat(bench, "m1")
    await beat(bench, "m2")
    await asyncio.sleep(INTERVAL_S + 0.1)
    told = await beat(bench, "m1", first.epoch, first.assigned)
    assert told.epoch == first.epoch
    assert len(told.assigned or ()) == 2
    for _ in range(3):
        # Heartbeats do not help: it has to give up.
        await asyncio.sleep(5)
        await beat(bench, "m1", first.epoch, first.assigned)
    await asyncio.sleep(6)
    with pytest.raises(UnknownMember):
        await beat(bench, "m1", first.epoch, first.assigned)
    await bench.close()


@simulated
async def test_members_that_wait_for_partitions_send_heartbeats_every_second(bench: GroupBench) -> None:
    await bench.open()
    first = await beat(bench, "m1")
    second = await beat(bench, "m2")
    # Both have just joined. Then a target is due, and then the second waits for what the first has yet to give up.
    assert (first.heartbeat_interval_ms, second.heartbeat_interval_ms) == (1_000, 1_000)
    assert (await beat(bench, "m2", second.epoch)).heartbeat_interval_ms == 1_000
    await asyncio.sleep(INTERVAL_S + 0.1)
    second = await beat(bench, "m2", second.epoch)
    assert (second.assigned, second.heartbeat_interval_ms) == (frozenset(), 1_000)
    told = await beat(bench, "m1", first.epoch, first.assigned)
    assert told.heartbeat_interval_ms == 1_000
    first = await beat(bench, "m1", first.epoch, told.assigned)
    second = await beat(bench, "m2", second.epoch)
    assert (first.heartbeat_interval_ms, second.heartbeat_interval_ms) == (5_000, 5_000)
    await bench.close()


@simulated
async def test_targets_are_made_at_most_once_per_interval(bench: GroupBench) -> None:
    await bench.open()
    await beat(bench, "m1")
    for number in range(2, 6):
        await beat(bench, f"m{number}")
    described = bench.coordinator.describe("g")
    assert (described.generation, described.assignment_epoch) == (6, 2)
    assert described.state is GroupState.ASSIGNING
    await asyncio.sleep(INTERVAL_S + 0.1)
    # Without a heartbeat.
    described = bench.coordinator.describe("g")
    assert (described.assignment_epoch, described.state) == (6, GroupState.RECONCILING)
    await bench.close()


@simulated
async def test_topics_that_grow_vanish_and_come_back_are_assigned(bench: GroupBench) -> None:
    await bench.open()
    first = await beat(bench, "m1", topics=["orders", "later"])
    bench.make_topic("later", partitions=3)
    bench.coordinator.topics_changed("later")
    await asyncio.sleep(INTERVAL_S + 0.1)
    more = await beat(bench, "m1", first.epoch, first.assigned, topics=None)
    assert len(more.assigned or ()) == 7
    bench.make_topic("later", partitions=1)
    bench.coordinator.topics_changed("later")
    await asyncio.sleep(INTERVAL_S + 0.1)
    told = await beat(bench, "m1", more.epoch, more.assigned, topics=None)
    assert (told.epoch, len(told.assigned or ())) == (more.epoch, 4)
    last = await beat(bench, "m1", told.epoch, told.assigned, topics=None)
    assert len(last.assigned or ()) == 5
    epoch = bench.coordinator.describe("g").generation
    bench.make_topic("unrelated")
    bench.coordinator.topics_changed("unrelated")
    assert bench.coordinator.describe("g").generation == epoch
    await bench.close()


@simulated
async def test_an_answer_waits_until_the_store_has_it(bench: GroupBench) -> None:
    await bench.open()
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await beat(bench, "m1")
    bench.mend_store()
    # The same again: nothing was lost, and nobody was told.
    answer = await beat(bench, "m1")
    assert (answer.epoch, len(answer.assigned or ())) == (2, 4)
    await bench.reopen()
    assert (await beat(bench, "m1", 2, answer.assigned)).epoch == 2
    await bench.close()


@simulated
async def test_a_write_that_failed_is_made_up_for_by_the_next(bench: GroupBench) -> None:
    await bench.open()
    first = await beat(bench, "m1")
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await beat(bench, "m2")
    with pytest.raises(GroupStoreFailed):
        await beat(bench, "m1", -1)
    bench.mend_store()
    answer = await beat(bench, "m2")
    assert answer.epoch >= first.epoch
    before = bench.coordinator.describe("g")
    await bench.reopen()
    assert bench.coordinator.describe("g") == before
    assert [member.member_id for member in before.members] == ["m2"]
    await bench.close()


@simulated
async def test_a_regular_expression_matches_what_the_client_may_see(bench: GroupBench) -> None:
    for name in ("orders-eu", "orders-us", "orders-secret", "bills"):
        bench.make_topic(name)
    await bench.open()
    seen = {"orders", "orders-eu", "orders-us", "orders-new", "bills"}
    answer = await beat(bench, "m1", topics=None, regex="orders-.*", sees=seen)
    names = {topic.topic_id: name for name, topic in bench.topics.items()}
    assert {names[part.topic_id] for part in answer.assigned or ()} == {"orders-eu", "orders-us"}
    for name in ("orders-new", "orders-secret2"):
        bench.make_topic(name)
        bench.coordinator.topics_changed(name)
    await asyncio.sleep(INTERVAL_S + 0.1)
    answer = await beat(bench, "m1", answer.epoch, answer.assigned, topics=None, sees=seen)
    names = {topic.topic_id: name for name, topic in bench.topics.items()}
    expected = {"orders-eu", "orders-us", "orders-new"}
    assert {names[part.topic_id] for part in answer.assigned or ()} == expected
    del bench.topics["orders-eu"]
    await bench.reopen()
    # What happened while the broker was down is noticed with the first heartbeat.
    bench.make_topic("orders-missed")
    seen.add("orders-missed")
    for _ in range(4):
        answer = await beat(bench, "m1", answer.epoch, answer.assigned or (), topics=None, sees=seen)
        await asyncio.sleep(INTERVAL_S + 0.1)
    assert bench.coordinator.describe("g").members[0].topics == {"orders-us", "orders-new", "orders-missed"}
    with pytest.raises(InvalidRegularExpression):
        await beat(bench, "m2", topics=None, regex="(")
    await bench.close()


@simulated
async def test_a_group_has_one_protocol_at_a_time(bench: GroupBench) -> None:
    await bench.open()
    first = await beat(bench, "m1")
    with pytest.raises(InconsistentGroupProtocol):
        bench.join()
    await beat(bench, "m1", -1)
    generation, (member,) = await bench.stable(members=1)
    assert generation > first.epoch
    with pytest.raises(GroupOfOtherType):
        await beat(bench, "m2")
    bench.leave(member)
    await bench.written()
    again = await beat(bench, "m2")
    assert again.epoch > generation
    await bench.reopen()
    assert bench.coordinator.describe("g").type == "consumer"
    await bench.close()


@simulated
async def test_a_group_is_bounded(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, group_consumer_size_max=2).open()
    await beat(bench, "m1")
    await beat(bench, "m2")
    with pytest.raises(GroupFull):
        await beat(bench, "m3")
    with pytest.raises(InvalidRequest, match="bytes"):
        await beat(bench, "m1", topics=[f"{'x' * 200}{number}" for number in range(20_000)])
    with pytest.raises(FencedMemberEpoch):
        await beat(bench, "m1", 99)
    await bench.close()


@simulated
async def test_an_empty_group_is_dropped_with_its_offsets(bench: GroupBench) -> None:
    await bench.open()
    await beat(bench, "m1")
    await beat(bench, "m1", -1)
    assert state(bench) is GroupState.EMPTY
    bench.coordinator.sweep()
    await bench.written()
    assert bench.coordinator.list_groups() == []
    await bench.reopen()
    assert bench.coordinator.list_groups() == []
    await bench.close()
