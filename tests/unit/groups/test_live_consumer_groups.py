"""Consumer groups in the coordinator: sessions, revocations, intervals, and answers that wait for the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from app.cluster.consumer_group_store import OwnedPartition
from app.errors import (
    FencedMemberEpoch,
    GroupFull,
    GroupNotFound,
    GroupOfOtherType,
    GroupStoreFailed,
    InconsistentGroupProtocol,
    InvalidRegularExpression,
    InvalidRequest,
    UnknownMember,
)
from app.groups.base.states import GroupState
from app.groups.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from app.linear_regex import LinearRegex
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
    await bench.coordinator.sweep()
    await bench.written()
    assert await bench.coordinator.list_groups() == []
    await bench.reopen()
    assert await bench.coordinator.list_groups() == []
    await bench.close()


# ── expressions that a member stops using, and uses again ──


async def _leaves(bench: GroupBench, answer: ConsumerHeartbeatAnswer) -> None:
    await beat(bench, "m1", -1)


async def _expires(bench: GroupBench, answer: ConsumerHeartbeatAnswer) -> None:
    await asyncio.sleep(SESSION_S + 1)


async def _reads_another(bench: GroupBench, answer: ConsumerHeartbeatAnswer) -> None:
    await beat(bench, "m1", answer.epoch, answer.assigned, topics=None, regex="bills")
    await asyncio.sleep(INTERVAL_S + 0.1)


async def _reads_by_name(bench: GroupBench, answer: ConsumerHeartbeatAnswer) -> None:
    await beat(bench, "m1", answer.epoch, answer.assigned, topics=["bills"], regex="")
    await asyncio.sleep(INTERVAL_S + 0.1)


async def _restarts(bench: GroupBench, answer: ConsumerHeartbeatAnswer) -> None:
    await beat(bench, "m1", -1)
    await bench.reopen()


@pytest.mark.parametrize("stops", [_leaves, _expires, _reads_another, _reads_by_name, _restarts])
@pytest.mark.parametrize("again", ["m1", "m2"])
@simulated
async def test_an_expression_is_matched_again_when_a_member_uses_it_again(
    stops: Callable[[GroupBench, ConsumerHeartbeatAnswer], Awaitable[None]], again: str, bench: GroupBench
) -> None:
    for name in ("orders-eu", "orders-us", "bills"):
        bench.make_topic(name)
    await bench.open()
    expected = {bench.topics[name].topic_id for name in ("orders-eu", "orders-us")}
    answer = await beat(bench, "m1", topics=None, regex="orders-.*")
    assert {part.topic_id for part in answer.assigned or ()} == expected
    await stops(bench, answer)
    if again == "m2":
        with contextlib.suppress(GroupNotFound, UnknownMember):
            await beat(bench, "m1", -1)
    await asyncio.sleep(INTERVAL_S + 0.1)
    answer = await beat(bench, again, topics=[], regex="orders-.*")
    await asyncio.sleep(INTERVAL_S + 0.1)
    answer = await beat(bench, again, answer.epoch, (), topics=[])
    assert {part.topic_id for part in answer.assigned or ()} == expected
    await bench.close()


@simulated
async def test_only_names_that_the_client_may_see_are_matched(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched: list[str] = []
    walk = LinearRegex._walk

    def note(regex: LinearRegex, text: str, run: Any) -> Any:
        matched.append(text)
        return walk(regex, text, run)

    monkeypatch.setattr(LinearRegex, "_walk", note)
    for name in ("orders-eu", "orders-secret"):
        bench.make_topic(name)
    await bench.open()
    await beat(bench, "m1", topics=None, regex="orders-.*", sees={"orders-eu", "orders-new"})
    for name in ("orders-new", "orders-secret2"):
        bench.make_topic(name)
        bench.coordinator.topics_changed(name)
    assert matched == ["orders-eu", "orders-new"]
    await bench.close()


@simulated
async def test_a_costly_expression_is_matched_with_a_new_topic_at_the_next_heartbeat(
    bench: GroupBench,
) -> None:
    await bench.open()
    answer = await beat(bench, "m1", topics=None, regex="(a?){400}")
    assert answer.assigned == frozenset()
    bench.make_topic("a" * 200)
    bench.coordinator.topics_changed("a" * 200)
    await asyncio.sleep(INTERVAL_S + 0.1)
    answer = await beat(bench, "m1", answer.epoch, (), topics=None)
    await asyncio.sleep(INTERVAL_S + 0.1)
    answer = await beat(bench, "m1", answer.epoch, (), topics=[])
    assert {part.topic_id for part in answer.assigned or ()} == {bench.topics["a" * 200].topic_id}
    await bench.close()


@simulated
async def test_a_topic_that_is_created_while_an_expression_is_matched_is_found(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    matching = LinearRegex.matching

    async def meanwhile(regex: LinearRegex, texts: Iterable[str]) -> list[str]:
        found = await matching(regex, texts)
        if "orders-late" not in bench.topics:
            bench.make_topic("orders-late")
            bench.coordinator.topics_changed("orders-late")
        return found

    monkeypatch.setattr(LinearRegex, "matching", meanwhile)
    bench.make_topic("orders-eu")
    await bench.open()
    answer = await beat(bench, "m1", topics=None, regex="orders-.*")
    assert {part.topic_id for part in answer.assigned or ()} == {
        bench.topics[name].topic_id for name in ("orders-eu", "orders-late")
    }
    await bench.close()


# ── members that join again with their id ──


@pytest.mark.parametrize("state", ["has all", "has to give up", "waits for others", "is away"])
@simulated
async def test_a_member_joins_again_with_its_id(state: str, bench: GroupBench) -> None:
    await bench.open()
    instance = "i" if state == "is away" else None
    first = await beat(bench, "m1", instance_id=instance)
    # Its first epoch follows 0, so that is no epoch to try.
    await beat(bench, "m3")
    await beat(bench, "m3", -1)
    await asyncio.sleep(INTERVAL_S + 0.1)
    first = await beat(bench, "m1", first.epoch, first.assigned, instance_id=instance)
    first = await beat(bench, "m1", first.epoch, (), instance_id=instance)
    assert len(first.assigned or ()) == 4
    joining, had, second = "m1", first, first
    if state != "has all":
        second = await beat(bench, "m2")
        await asyncio.sleep(INTERVAL_S + 0.1)
    if state == "has to give up":
        told = await beat(bench, "m1", first.epoch, first.assigned)
        assert len(told.assigned or ()) == 2
    elif state == "waits for others":
        joining, had = "m2", await beat(bench, "m2", second.epoch)
        assert not had.assigned
    elif state == "is away":
        await beat(bench, "m1", -2, instance_id=instance)
    answer = had
    for _ in range(2):
        answer = await beat(bench, joining, instance_id=instance)
        assert answer.epoch >= had.epoch
        # The whole assignment, not only what changed; those who have to give up keep theirs until then.
        assert len(answer.assigned or ()) == {"has all": 4, "waits for others": 0}.get(state, 2)
    # Its next heartbeat goes on from there.
    again = await beat(bench, joining, answer.epoch, answer.assigned, instance_id=instance)
    assert again.epoch == answer.epoch
    await bench.close()
