"""A request costs what it is about, however many members there are; what all wait for goes on in portions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.cluster.consumer_group_store import OwnedPartition
from app.cluster.group_store import GroupRecord, MemberProtocol
from app.errors import RebalanceInProgress
from app.groups.base.assignors import uniform
from app.groups.base.consumer_protocol import AssignedPartition
from app.groups.base.parking import ANSWERS_PER_TURN
from app.groups.base.timers import EXPIRED_PER_TURN, Sessions
from app.groups.base.topic_facts import TopicFacts
from app.groups.classic.group import Group
from app.groups.classic.owners import Owners
from app.groups.consumer.group import ConsumerGroup
from app.groups.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from app.groups.live_group import LiveGroup
from app.groups.share.group import ShareGroup, ShareHeartbeat
from app.groups.share.live_group import LiveShareGroup
from tests.support.groups import GroupBench, subscription
from tests.support.looks import CountedDict
from tests.support.simulated_time import simulated
from tests.support.steps import counted
from tests.support.turns import Turns

MEMBERS = 200
PROTOCOLS = tuple(MemberProtocol(name, subscription("orders")) for name in ("range", "roundrobin"))


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path, group_initial_rebalance_delay_ms=1000)


async def finished_per_turn(futures: Sequence[asyncio.Future[Any]]) -> int:
    """Wait for all of ``futures``; return how many were done in one turn at most."""
    most, done, idle = 0, sum(future.done() for future in futures), 0
    while done < len(futures):
        # Time passes only while all tasks wait.
        await asyncio.sleep(0 if idle < 100 else 0.001)
        now = sum(future.done() for future in futures)
        most, done, idle = max(most, now - done), now, 0 if now > done else idle + 1
    return most


# ── classic groups ──


async def rejoining(bench: GroupBench) -> tuple[list[asyncio.Future[Any]], list[str], CountedDict]:
    """Return a group in which the leader has joined again, and the ids of the others."""
    _, ids = await bench.stable(members=MEMBERS, protocols=PROTOCOLS)
    group = bench.coordinator.table.groups["g"].group
    joins: list[asyncio.Future[Any]] = [bench.join(ids[0], protocols=PROTOCOLS)]
    group.members = members = CountedDict(group.members)
    return joins, ids[1:], members


@simulated
async def test_members_that_join_again_look_at_no_others(bench: GroupBench) -> None:
    await bench.open()
    joins, others, members = await rejoining(bench)
    joins += [bench.join(member_id, protocols=PROTOCOLS) for member_id in others[:-1]]
    with pytest.raises(RebalanceInProgress):
        bench.heartbeat(others[-1], 1)
    assert members.looks == 0
    # The last one begins the generation, which is about all of them.
    joins.append(bench.join(others[-1], protocols=PROTOCOLS))
    await asyncio.gather(*joins)
    await bench.close()


@simulated
async def test_members_that_leave_look_at_no_others(bench: GroupBench) -> None:
    await bench.open()
    _, others, members = await rejoining(bench)
    for member_id in others[:-1]:
        bench.leave(member_id)
    assert members.looks == 0
    await bench.close()


@simulated
async def test_a_generation_answers_its_members_in_portions(bench: GroupBench) -> None:
    await bench.open()
    joins, others, _ = await rejoining(bench)
    joins += [bench.join(member_id, protocols=PROTOCOLS) for member_id in others]
    assert sum(join.done() for join in joins) <= ANSWERS_PER_TURN
    assert await finished_per_turn(joins) <= ANSWERS_PER_TURN
    joined = [join.result() for join in joins]
    assert {one.generation for one in joined} == {2}
    syncs = [bench.sync(one.member_id, 2) for one in joined[1:]]
    syncs.append(bench.sync(joined[0].member_id, 2, {one.member_id: b"mine" for one in joined}))
    assert await finished_per_turn(syncs) <= ANSWERS_PER_TURN
    assert {sync.result().assignment for sync in syncs} == {b"mine"}
    await bench.close()


@simulated
async def test_static_members_that_come_back_look_at_no_others_and_are_kept_together(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.open()
    instances = [f"i{number}" for number in range(MEMBERS)]
    joined = await asyncio.gather(*(bench.join(instance_id=instance) for instance in instances))
    await bench.settle(joined)
    group = bench.coordinator.table.groups["g"].group
    records: list[int] = []
    record = Group.record

    def recorded(self: Group, assignments: Mapping[str, bytes] | None = None) -> GroupRecord:
        looks = members.looks
        try:
            return record(self, assignments)
        finally:
            # It is about all members, but there are few.
            records.append(MEMBERS)
            members.looks = looks

    monkeypatch.setattr(Group, "record", recorded)
    group.members = members = CountedDict(group.members)
    back = await asyncio.gather(*(bench.join(instance_id=instance) for instance in instances))
    assert {one.generation for one in back} == {1}
    assert not {one.member_id for one in back} & {one.member_id for one in joined}
    assert members.looks == 0
    assert len(records) <= 3, "all that came while the first was kept share the second"
    await bench.reopen()
    restored = bench.coordinator.table.groups["g"].group
    assert {*restored.members} == {one.member_id for one in back}
    await bench.close()


@simulated
async def test_static_members_that_come_back_during_a_rebalance_are_kept_with_the_next_generation(
    bench: GroupBench,
) -> None:
    await bench.open()
    joined = await asyncio.gather(*(bench.join(instance_id=instance) for instance in "abc"))
    await bench.settle(joined)
    # The second waits for the first to be kept, and then there is a rebalance.
    back = [bench.join(instance_id=instance) for instance in "ab"]
    (third,) = [one.member_id for one in joined if one.member_id.startswith("c")]
    back.append(bench.join(third, instance_id="c", protocols=PROTOCOLS))
    again = await asyncio.gather(*back)
    assert {one.generation for one in again} == {2}
    await bench.settle(again)
    await bench.reopen()
    assert {*bench.coordinator.table.groups["g"].group.members} == {one.member_id for one in again}
    await bench.close()


@simulated
async def test_a_managed_member_is_found_by_its_client_among_many(bench: GroupBench) -> None:
    await bench.open()
    managed = [await bench.join_managed() for _ in range(3)]
    group = bench.coordinator.table.groups["g"].group
    group.members = members = CountedDict(group.members)
    for left in (2, 1, 0):
        found = bench.coordinator.managed_member("g", "http")
        assert found is not None
        assert found.member_id == managed[2 - left].member_id
        assert bench.coordinator.managed_member("g", "other") is None
        assert members.looks == 0
        bench.leave(found.member_id)
        members.looks = 0
    assert bench.coordinator.managed_member("g", "http") is None
    await bench.close()


def test_what_a_member_owns_goes_with_it() -> None:
    owners = Owners()
    parts = [AssignedPartition("orders", number) for number in range(4)]
    for part, member in zip(parts, ("a", "a", "b", "c"), strict=True):
        owners.claim(part, member)
    assert owners.of("a") == {*parts[:2]}
    owners.rename("a", "a2")
    assert (owners[parts[0]], owners.of("a")) == ("a2", frozenset())
    owners.release_all("a2")
    owners.keep(lambda part, member: member != "b")
    assert dict(owners) == {parts[3]: "c"}
    owners.release(parts[3])
    assert not owners.members


@simulated
async def test_managed_members_that_join_during_a_write_share_the_next_assignment(bench: GroupBench) -> None:
    await bench.open()
    await bench.join_managed()
    generation = bench.coordinator.describe("g").generation
    await asyncio.gather(*(bench.join_managed_later() for _ in range(50)))
    # One for the first of them, and one for those that came while it was written.
    assert bench.coordinator.describe("g").generation <= generation + 3
    await bench.close()


# ── sessions ──


class Clock:
    """A scheduler whose timers a test rings."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, callback: Callable[[], object], /, *, context: object = None) -> Any:
        entry = (self.now_s + delay, callback)
        self.due.append(entry)

        due = self.due

        class Handle:
            def cancel(self) -> None:
                if entry in due:
                    due.remove(entry)

        return Handle()

    def ring(self) -> None:
        """Ring the timer that is due first, at its time."""
        entry = min(self.due, key=lambda entry: entry[0])
        self.due.remove(entry)
        self.now_s = max(self.now_s, entry[0])
        entry[1]()


def test_sessions_that_end_at_the_same_moment_expire_in_portions() -> None:
    clock, expired = Clock(), list[str]()
    sessions = Sessions(clock, expired.append)
    for number in range(3 * EXPIRED_PER_TURN):
        sessions.start(f"m{number}", 10_000)
    assert len(clock.due) == 1, "all share one timer"
    portions: list[int] = []
    while clock.due:
        before = len(expired)
        clock.ring()
        portions.append(len(expired) - before)
    assert portions == [EXPIRED_PER_TURN] * 3
    assert set(expired) == {f"m{number}" for number in range(3 * EXPIRED_PER_TURN)}
    assert clock.now_s == pytest.approx(10)


def test_a_heartbeat_moves_the_end_of_its_session_alone() -> None:
    clock, expired = Clock(), list[str]()
    sessions = Sessions(clock, expired.append)
    for member in ("a", "b", "c"):
        sessions.start(member, 10_000)
    clock.now_s = 6
    sessions.start("b", 10_000)
    # A shorter time-out ends before a longer one that began earlier.
    sessions.start("c", 1_000)
    sessions.stop("d")
    assert len(clock.due) == 1
    ends: dict[str, float] = {}
    while clock.due:
        clock.ring()
        ends |= {member: clock.now_s for member in expired if member not in ends}
    assert ends == {"c": 7, "a": 10, "b": 16}
    assert not any(sessions.is_running(member) for member in sessions.member_ids)
    assert sessions.member_ids == {"a", "b", "c"}


def test_a_session_that_fails_to_end_does_not_keep_the_others() -> None:
    clock, expired = Clock(), list[str]()

    def expire(member_id: str) -> None:
        expired.append(member_id)
        if member_id == "a":
            raise RuntimeError

    sessions = Sessions(clock, expire)
    for member in ("a", "b"):
        sessions.start(member, 10_000)
    with pytest.raises(RuntimeError):
        clock.ring()
    clock.ring()
    assert expired == ["a", "b"]


# ── groups that the broker assigns ──

TOPIC = TopicFacts(topic_id=UUID(int=1), partitions=4 * MEMBERS)


def consumer_group(partitions: int = TOPIC.partitions) -> ConsumerGroup:
    facts = TopicFacts(topic_id=TOPIC.topic_id, partitions=partitions)
    return ConsumerGroup("g", topics_of=lambda names: {name: facts for name in names if name == "orders"})


def beat(group: ConsumerGroup, member_id: str, epoch: int = 0, **fields: Any) -> int:
    request = ConsumerHeartbeat(
        group="g",
        member_id=member_id,
        epoch=epoch,
        rebalance_timeout_ms=1000,
        topics=frozenset({"orders"}) if epoch == 0 else None,
        owned=frozenset() if epoch == 0 else None,
        **fields,
    )
    return group.heartbeat(request, now_ms=0, interval_ms=1000, size_max=10_000).member.epoch


def test_a_heartbeat_looks_at_its_own_member_only() -> None:
    group = consumer_group()
    epochs = {f"m{number}": beat(group, f"m{number}") for number in range(MEMBERS)}
    group.assign(0)
    while group.is_assigning:
        group.go_on_assigning()
    group.members = members = CountedDict(group.members)
    for member_id, epoch in epochs.items():
        epochs[member_id] = beat(group, member_id, epoch)
    assert group.state.value == "Stable"
    # Nor does a member that joins, or leaves, before the next target is due.
    beat(group, "late")
    group.remove("m1", emptied_at_ms=0)
    assert group.is_subscribed("orders")
    assert group.state.value == "Assigning"
    assert members.looks == 0
    group.check()


def test_a_large_target_takes_turns_and_members_keep_theirs_until_it_is_complete() -> None:
    group = consumer_group(partitions=20_000)
    beat(group, "a", instance_id="i")
    beat(group, "b")
    group.assign(0)
    turns = 0
    while group.is_assigning:
        assert not group.members["b"].target
        beat(group, "b", group.members["b"].epoch)
        turns += 1
        if turns == 2:
            # It goes away and comes back with another id, and somebody else joins.
            request = ConsumerHeartbeat(group="g", member_id="a", epoch=-2, instance_id="i")
            group.leave(request, emptied_at_ms=0)
            beat(group, "a2", instance_id="i")
            beat(group, "late")
        group.go_on_assigning()
    assert turns > 5
    assert len(group.members["a2"].target) == len(group.members["b"].target) == 10_000
    assert not group.members["late"].target
    assert group.epoch > group.assignment_epoch, "the next target is for the one that came late"
    group.check()


def test_partitions_that_come_during_an_assignment_need_another() -> None:
    facts = {"orders": TopicFacts(topic_id=TOPIC.topic_id, partitions=20_000)}
    group = ConsumerGroup("g", topics_of=lambda names: {name: facts[name] for name in names if name in facts})
    beat(group, "a")
    group.assign(0)
    assert group.is_assigning
    facts["orders"] = TopicFacts(topic_id=TOPIC.topic_id, partitions=20_001)
    assert group.topics_changed()
    while group.is_assigning:
        group.go_on_assigning()
    assert group.epoch > group.assignment_epoch


def test_a_group_that_empties_during_an_assignment_is_empty() -> None:
    group = consumer_group(partitions=20_000)
    beat(group, "a")
    group.assign(0)
    assert group.is_assigning
    group.remove("a", emptied_at_ms=5)
    group.go_on_assigning()
    assert (group.is_assigning, group.state.value, group.emptied_at_ms) == (False, "Empty", 5)
    assert group.epoch == group.assignment_epoch


def test_the_steps_of_an_assignor_grow_with_its_work() -> None:
    def steps(partitions: int) -> int:
        subscriptions = {f"m{number}": frozenset({"orders"}) for number in range(10)}
        return counted(uniform(AssignedPartition, subscriptions, {"orders": partitions}, {}))[0]

    assert steps(100) <= 2
    assert 4 * steps(5_000) >= steps(20_000) > 2 * steps(5_000)


@simulated
async def test_members_of_a_large_group_get_their_partitions_over_several_turns(bench: GroupBench) -> None:
    bench.make_topic("wide", partitions=20_000)
    await bench.open()

    async def heartbeat(member_id: str, epoch: int) -> ConsumerHeartbeatAnswer:
        topics = frozenset({"wide"}) if epoch == 0 else None
        owned = frozenset[OwnedPartition]() if epoch == 0 else None
        request = ConsumerHeartbeat(
            group="g", member_id=member_id, epoch=epoch, rebalance_timeout_ms=1000, topics=topics, owned=owned
        )
        return await bench.coordinator.consumers.heartbeat(request, sees=lambda _: True)

    answer = await heartbeat("m", 0)
    assert not answer.assigned
    await asyncio.sleep(5)
    answer = await heartbeat("m", answer.epoch)
    assert len(answer.assigned or ()) == 20_000
    await bench.close()


@simulated
async def test_heartbeats_that_wait_for_one_write_are_answered_in_portions(bench: GroupBench) -> None:
    await bench.open()

    async def join(number: int) -> None:
        request = ConsumerHeartbeat(
            group="g", member_id=f"m{number}", epoch=0, rebalance_timeout_ms=1000,
            topics=frozenset({"orders"}), owned=frozenset(),
        )  # fmt: skip
        await bench.coordinator.consumers.heartbeat(request, sees=lambda _: True)

    # One more turn takes each answer to its task.
    joins = [asyncio.ensure_future(join(number)) for number in range(MEMBERS)]
    assert await finished_per_turn(joins) <= ANSWERS_PER_TURN
    await bench.close()


# ── share groups ──


def test_a_heartbeat_of_a_share_group_looks_at_its_own_member_only() -> None:
    group = ShareGroup("g")
    group.serve({"orders": [OwnedPartition(TOPIC.topic_id, number) for number in range(2 * MEMBERS)]})

    def heartbeat(member_id: str, epoch: int = 0) -> int:
        topics = frozenset({"orders"}) if epoch == 0 else None
        request = ShareHeartbeat(group="g", member_id=member_id, epoch=epoch, topics=topics)
        group.take(request, size_max=10_000)
        return group.answer(request)[0]

    epochs = {f"m{number}": heartbeat(f"m{number}") for number in range(MEMBERS)}
    group.members = members = CountedDict(group.members)
    epochs = {member_id: heartbeat(member_id, epoch) for member_id, epoch in epochs.items()}
    group.remove("m0")
    heartbeat("late")
    assert members.looks == 0
    assert sorted(len(group.members[f"m{number}"].assigned) for number in range(1, MEMBERS)) == [2] * 199


@simulated
async def test_a_heartbeat_of_a_share_group_looks_at_no_partition_that_has_a_state(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.make_topic("wide", partitions=500)
    await bench.open()

    async def heartbeat(member_id: str, epoch: int = 0) -> int:
        topics = frozenset({"wide"}) if epoch == 0 else None
        request = ShareHeartbeat(group="g", member_id=member_id, epoch=epoch, topics=topics)
        return (await bench.coordinator.shares.heartbeat(request)).epoch

    # All of them wait for the first states.
    joins = [asyncio.ensure_future(heartbeat(f"m{number}")) for number in range(MEMBERS)]
    assert await finished_per_turn(joins) <= ANSWERS_PER_TURN
    share = bench.coordinator.shares.existing("g")
    share.partitions = partitions = CountedDict(share.partitions)
    with monkeypatch.context() as patched:
        patched.delattr(LiveShareGroup, "_start")
        for number, join in enumerate(joins):
            await heartbeat(f"m{number}", join.result())
    assert partitions.looks == 0
    # A topic that has grown is started again.
    bench.make_topic("wide", partitions=501, topic_id=bench.topic("wide").topic_id)
    await heartbeat("late")
    assert len(share.partitions) == 501
    await bench.close()


# ── all groups ──


@simulated
async def test_groups_hear_of_topics_in_portions_and_of_one_after_the_other(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.open()
    for number in range(500):
        bench.coordinator.table.keep(bench.coordinator.table.existing_or_new(f"g{number}"))
        await bench.commit(1, group=f"g{number}")
    told: list[tuple[str, str]] = []

    def tell(live: LiveGroup, topic: str) -> None:
        told.append((topic, live.group.name))

    monkeypatch.setattr(LiveGroup, "topics_changed", tell)
    bench.coordinator.topics_changed("orders")
    bench.coordinator.topics_changed("emails")
    assert 0 < len(told) < 500
    most, before = 0, len(told)
    while len(told) < 1000:
        await asyncio.sleep(0)
        most, before = max(most, len(told) - before), len(told)
    assert most < 500
    assert [topic for topic, _ in told] == ["orders"] * 500 + ["emails"] * 500
    await bench.close()


@pytest.mark.parametrize("work", ["sweep", "forget", "list"])
@simulated
async def test_work_on_all_groups_pauses(bench: GroupBench, work: str) -> None:
    await bench.open()
    for number in range(500):
        await bench.commit(1, group=f"g{number}")
    if work == "sweep":
        bench.clock.jump_ms += 8 * 86_400_000
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "sweep": bench.coordinator.sweep,
        "list": bench.coordinator.list_groups,
        "forget": lambda: bench.coordinator.forget_topic("orders"),
    }
    turns = Turns()
    await asyncio.sleep(0)
    await calls[work]()
    assert turns.count >= 5
    turns.close()
    await bench.close()


@simulated
async def test_commits_of_one_round_are_answered_in_portions(bench: GroupBench) -> None:
    await bench.open()
    commits = [bench.commit(number, group=f"g{number}") for number in range(MEMBERS)]
    assert await finished_per_turn(commits) <= ANSWERS_PER_TURN
    assert [bench.committed(group=f"g{number}") for number in range(MEMBERS)] == list(range(MEMBERS))
    await bench.close()
