"""Committed offsets: which members may commit, what is stored, and when it expires."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.cluster.group_store import DeleteGroup, GroupRecord, MemberProtocol, OffsetRecord, StoreChange
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import (
    GroupNotEmpty,
    GroupNotFound,
    GroupStoreFailed,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidRequest,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from app.groups.base.messages import CommitRequest, CommittedOffset, OffsetToCommit
from app.groups.base.states import GroupState
from tests.support.groups import SESSION_MS, GroupBench, subscription
from tests.support.simulated_time import simulated

S = GroupState
DAY_S = 86_400


class ObservedStore(SqliteGroupStore):
    """Notes what is written together; ``fail`` makes the next writes do so."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rounds: list[Sequence[StoreChange]] = []
        self.fail = False

    def write(self, changes: Sequence[StoreChange]) -> None:
        if self.fail:
            raise GroupStoreFailed(Path("groups.sqlite"), "for the test")
        super().write(changes)
        self.rounds.append(changes)


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> ObservedStore:
    return ObservedStore(tmp_path / "groups.sqlite")


# ── who may commit ──


@simulated
async def test_a_consumer_outside_a_group_commits_to_a_group_that_is_empty_or_absent(
    bench: GroupBench,
) -> None:
    await bench.open()
    assert await bench.commit(7) == [None]
    assert bench.committed() == 7
    assert bench.state() is S.EMPTY
    assert await bench.commit(8) == [None]
    generation, (member_id,) = await bench.stable()
    with pytest.raises(UnknownMember):
        bench.commit(9)
    bench.leave(member_id)
    assert await bench.commit(10) == [None]
    with pytest.raises(UnknownMember):
        bench.commit(11, generation=generation, member_id=member_id)
    assert bench.committed() == 10
    await bench.close()


@simulated
async def test_no_member_commits_into_a_group_that_does_not_exist(bench: GroupBench) -> None:
    await bench.open()
    with pytest.raises(GroupNotFound):
        bench.commit(generation=3, member_id="m")
    assert await bench.coordinator.list_groups() == []
    await bench.close()


@simulated
async def test_members_commit_while_stable_and_while_giving_partitions_back_but_not_before_they_have_them(
    bench: GroupBench,
) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    assert await bench.commit(1, generation=generation, member_id=member_id) == [None]
    newcomer = bench.join()
    assert bench.state() is S.PREPARING_REBALANCE
    assert await bench.commit(2, generation=generation, member_id=member_id) == [None]
    bench.join(member_id)
    await newcomer
    assert bench.state() is S.COMPLETING_REBALANCE
    with pytest.raises(RebalanceInProgress):
        bench.commit(3, generation=generation + 1, member_id=member_id)
    with pytest.raises(IllegalGeneration):
        bench.commit(3, generation=generation, member_id=member_id)
    assert bench.committed() == 2
    await bench.close()


@simulated
async def test_a_commit_is_a_sign_of_life(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    for offset in range(5):
        await asyncio.sleep(SESSION_MS / 1000 - 1)
        await bench.commit(offset, generation=generation, member_id=member_id)
    assert bench.state() is S.STABLE
    await bench.close()


# ── what is kept ──


@simulated
async def test_each_partition_of_a_commit_has_its_own_answer(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, offset_metadata_bytes_max=100).open()
    long = "é" * 50
    offsets = [
        OffsetToCommit(topic="orders", partition=0, offset=5, leader_epoch=3, metadata=long),
        OffsetToCommit(topic="orders", partition=1, offset=6, metadata=long + "x"),
        OffsetToCommit(topic="orders", partition=4, offset=7),
        OffsetToCommit(topic="orders", partition=-1, offset=7),
        OffsetToCommit(topic="nothing", partition=0, offset=8),
        OffsetToCommit(topic="orders", partition=2, offset=-(2**63)),
        OffsetToCommit(topic="orders", partition=2, offset=2**63),
        OffsetToCommit(topic="orders", partition=2, offset=1, metadata="\ud800"),
        OffsetToCommit(topic="orders", partition=3, offset=2**63 - 1),
    ]
    results = await bench.coordinator.commit(CommitRequest(group="g", offsets=offsets))
    assert [None if result is None else type(result) for result in results] == [
        None,
        OffsetMetadataTooLarge,
        UnknownPartition,
        UnknownPartition,
        UnknownTopic,
        InvalidRequest,
        InvalidRequest,
        InvalidRequest,
        None,
    ]
    assert bench.coordinator.committed("g") == [
        CommittedOffset(topic="orders", partition=0, offset=5, leader_epoch=3, metadata=long),
        CommittedOffset(topic="orders", partition=3, offset=2**63 - 1),
    ]
    await bench.close()


@simulated
async def test_a_negative_offset_that_a_client_commits_is_stored_unchanged(bench: GroupBench) -> None:
    # KafkaJS commits -2 (the earliest) when the position it had was deleted, and reads it back.
    await bench.open()
    asked = [OffsetToCommit(topic="orders", partition=0, offset=-2)]
    assert await bench.coordinator.commit(CommitRequest(group="g", offsets=asked)) == [None]
    assert bench.coordinator.committed("g") == [CommittedOffset(topic="orders", partition=0, offset=-2)]
    await bench.close()


@simulated
async def test_what_was_not_committed_is_minus_one(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit(5)
    asked = [("orders", 1), ("orders", 0), ("nothing", 0)]
    assert [c.offset for c in bench.coordinator.committed("g", asked)] == [-1, 5, -1]
    assert [c.offset for c in bench.coordinator.committed("no such group", asked)] == [-1, -1, -1]
    assert bench.coordinator.committed("no such group") == []
    await bench.close()


@simulated
async def test_a_commit_of_nothing_is_done_at_once_and_makes_no_group(bench: GroupBench) -> None:
    await bench.open()
    assert await bench.coordinator.commit(CommitRequest(group="g", offsets=[])) == []
    assert [type(e) for e in await bench.commit(topic="nothing")] == [UnknownTopic]
    assert await bench.coordinator.list_groups() == []
    await bench.close()


@simulated
async def test_a_commit_can_be_read_when_it_is_durable_and_not_before(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit(1)
    waiting = bench.commit(2)
    assert bench.committed() == 1
    await waiting
    assert bench.committed() == 2
    await bench.close()


@simulated
async def test_concurrent_commits_share_a_transaction_and_the_last_one_wins(
    bench: GroupBench, store: ObservedStore
) -> None:
    await bench.open(store)
    futures = [bench.commit(n, group=f"g{n % 10}") for n in range(1000)]
    for future in futures:
        assert await future == [None]
    assert len(store.rounds) == 1
    assert [bench.committed(group=f"g{n}") for n in range(10)] == list(range(990, 1000))
    await bench.close()


@simulated
async def test_a_commit_that_fails_returns_the_error_and_changes_nothing(
    bench: GroupBench, store: ObservedStore
) -> None:
    await bench.open(store)
    await bench.commit(1)
    store.fail = True
    with pytest.raises(GroupStoreFailed):
        await bench.commit(2)
    store.fail = False
    assert bench.committed() == 1
    assert await bench.commit(3) == [None]
    assert bench.committed() == 3
    await bench.close()


@simulated
async def test_an_assignment_that_cannot_be_stored_is_given_to_no_member(
    bench: GroupBench, store: ObservedStore
) -> None:
    await bench.open(store)
    joins = [bench.join() for _ in range(2)]
    joined = [await join for join in joins]
    leader, follower = sorted((one.member_id for one in joined), key=lambda m: m != joined[0].leader)
    waiting = bench.sync(follower, 1)
    store.fail = True
    led = bench.sync(leader, 1, {leader: b"L"})
    for sync in (led, waiting):
        with pytest.raises(GroupStoreFailed):
            await sync
    assert bench.state() is S.PREPARING_REBALANCE
    store.fail = False
    joins = [bench.join(leader), bench.join(follower)]
    await bench.settle([await join for join in joins])
    assert bench.state() is S.STABLE
    await bench.close()


@simulated
async def test_an_instance_that_returns_and_cannot_be_stored_starts_again(
    bench: GroupBench, store: ObservedStore
) -> None:
    await bench.open(store)
    await bench.settle([await bench.join(instance_id="i")])
    store.fail = True
    with pytest.raises(GroupStoreFailed):
        await bench.join(instance_id="i")
    store.fail = False
    back = await bench.join(instance_id="i")
    assert back.leader == back.member_id
    await bench.close()


@simulated
async def test_a_change_that_the_store_refuses_fails_and_the_others_do_not(
    bench: GroupBench, store: ObservedStore
) -> None:
    await bench.open(store)
    await bench.commit(1)
    broken = OffsetRecord(
        group="g",
        topic="orders",
        topic_id=bench.topics["orders"].topic_id,
        partition=2**70,
        offset=0,
        leader_epoch=0,
        metadata="",
        committed_at_ms=0,
        expires_at_ms=None,
    )
    errors: list[object] = []
    bench.coordinator.table.persist([broken], errors.append)
    await asyncio.sleep(1)
    assert [type(error).__name__ for error in errors] == ["CoordinatorNotAvailable"]
    assert await bench.commit(2) == [None]
    await bench.close()


# ── deleting ──


@simulated
async def test_an_empty_group_can_be_deleted_with_its_offsets(bench: GroupBench) -> None:
    await bench.open()
    with pytest.raises(GroupNotFound):
        bench.coordinator.delete_group("g")
    _, (member_id,) = await bench.stable()
    await bench.commit(generation=1, member_id=member_id)
    with pytest.raises(GroupNotEmpty):
        bench.coordinator.delete_group("g")
    bench.leave(member_id)
    await bench.coordinator.delete_group("g")
    for look in (bench.coordinator.describe, bench.coordinator.delete_group):
        with pytest.raises(GroupNotFound):
            look("g")
    assert bench.committed() == -1
    await bench.reopen()
    assert await bench.coordinator.list_groups() == []
    await bench.close()


@simulated
async def test_commits_before_and_after_a_deletion_do_not_mix(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit(1, partition=0)
    before = bench.commit(2, partition=1)
    deleted = bench.coordinator.delete_group("g")
    after = bench.commit(3, partition=2)
    for future in (before, deleted, after):
        await future
    for _ in range(2):
        assert {c.partition: c.offset for c in bench.coordinator.committed("g")} == {2: 3}
        await bench.reopen()
    await bench.close()


@simulated
async def test_a_group_that_could_not_be_deleted_is_still_there(
    bench: GroupBench, store: ObservedStore
) -> None:
    await bench.open(store)
    await bench.commit(1)
    store.fail = True
    with pytest.raises(GroupStoreFailed):
        await bench.coordinator.delete_group("g")
    store.fail = False
    assert bench.committed() == 1
    await bench.coordinator.delete_group("g")
    await bench.close()


@simulated
async def test_a_deleted_group_forgets_the_member_ids_it_assigned(bench: GroupBench) -> None:
    await bench.open()
    member_id = bench.member_id()
    await bench.coordinator.delete_group("g")
    with pytest.raises(UnknownMember):
        bench.join(member_id)
    await asyncio.sleep(60)
    await bench.close()


@simulated
async def test_offsets_of_topics_without_subscribers_can_be_deleted(bench: GroupBench) -> None:
    await bench.open()
    bench.make_topic("payments", partitions=2)
    delete = bench.coordinator.delete_offsets
    with pytest.raises(GroupNotFound):
        delete("g", [("orders", 0)])
    generation, (member_id,) = await bench.stable(protocols=[MemberProtocol("range", subscription("orders"))])
    for topic in ("orders", "payments"):
        for partition in (0, 1):
            await bench.commit(
                5, topic=topic, partition=partition, generation=generation, member_id=member_id
            )
    results = await delete("g", [("orders", 0), ("payments", 0), ("nothing", 9), ("payments", 0)])
    assert [type(result) for result in results] == [GroupSubscribedToTopic, *[type(None)] * 3]
    left = [(c.topic, c.partition) for c in bench.coordinator.committed("g")]
    assert left == [("orders", 0), ("orders", 1), ("payments", 1)]
    bench.leave(member_id)
    assert await delete("g", [("orders", 0)]) == [None]
    await bench.reopen()
    left = [(c.topic, c.partition) for c in bench.coordinator.committed("g")]
    assert left == [("orders", 1), ("payments", 1)]
    await bench.close()


@simulated
async def test_offsets_of_a_group_whose_members_are_no_consumers_cannot_be_deleted(
    bench: GroupBench,
) -> None:
    await bench.open()
    await bench.stable(protocol_type="connect")
    with pytest.raises(GroupNotEmpty):
        bench.coordinator.delete_offsets("g", [("orders", 0)])
    await bench.close()


@simulated
async def test_a_deleted_topic_loses_its_offsets(bench: GroupBench) -> None:
    await bench.open()
    bench.make_topic("payments")
    for group in ("g", "h"):
        await bench.commit(5, group=group)
        await bench.commit(6, group=group, topic="payments")
    del bench.topics["orders"]
    assert bench.committed() == -1
    # Created again, it has another id: nothing of the old one counts, forgotten or not.
    bench.make_topic("orders", partitions=4)
    assert bench.committed() == -1
    await bench.commit(1)
    await bench.coordinator.forget_topic("orders")
    for _ in range(2):
        assert (bench.committed(), bench.committed(group="h")) == (1, -1)
        assert bench.committed(group="h", topic="payments") == 6
        await bench.reopen()
    await bench.close()


@simulated
async def test_offsets_of_a_topic_that_was_deleted_before_a_crash_are_gone_after_it(
    bench: GroupBench,
) -> None:
    await bench.open()
    await bench.commit(5)
    await bench.close()
    topic_id = bench.topics.pop("orders").topic_id
    await bench.open()
    await bench.close()
    bench.make_topic("orders", topic_id=topic_id)
    await bench.open()
    assert bench.committed() == -1
    await bench.close()


# ── retention ──


@simulated
async def test_offsets_of_a_group_are_kept_while_it_has_members(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable(session_timeout_ms=1_800_000)
    await bench.commit(5, generation=generation, member_id=member_id)
    for _ in range(15 * 48 * 2):
        await asyncio.sleep(DAY_S / 96)
        bench.heartbeat(member_id, generation)
    assert bench.committed() == 5
    await bench.close()


@simulated
async def test_offsets_are_dropped_seven_days_after_the_group_became_empty(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    await bench.commit(5, generation=generation, member_id=member_id)
    await bench.stay_alive({member_id: generation}, 3600)
    bench.leave(member_id)
    await asyncio.sleep(7 * DAY_S - 60)
    assert bench.committed() == 5
    await asyncio.sleep(60 + 601)
    assert await bench.coordinator.list_groups() == []
    assert bench.committed() == -1
    await bench.reopen()
    assert await bench.coordinator.list_groups() == []
    await bench.close()


@simulated
async def test_what_an_administrator_committed_to_an_empty_group_has_seven_days_of_its_own(
    bench: GroupBench,
) -> None:
    await bench.open()
    _, (member_id,) = await bench.stable()
    bench.leave(member_id)
    await asyncio.sleep(300)
    await bench.commit(3, partition=0)
    await asyncio.sleep(6 * DAY_S)
    await bench.commit(4, partition=1)
    await asyncio.sleep(6 * DAY_S)
    assert (bench.committed(0), bench.committed(1)) == (-1, 4)
    await asyncio.sleep(2 * DAY_S)
    assert bench.committed(1) == -1
    await bench.close()


@simulated
async def test_offsets_of_a_group_without_members_are_dropped_seven_days_after_their_commit(
    bench: GroupBench,
) -> None:
    await bench.open()
    await bench.commit(1, partition=0)
    await asyncio.sleep(5 * DAY_S)
    await bench.commit(2, partition=1)
    await asyncio.sleep(3 * DAY_S)
    assert (bench.committed(0), bench.committed(1)) == (-1, 2)
    await bench.close()


@simulated
async def test_a_commit_may_have_a_retention_of_its_own(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit(1, partition=0, retention_ms=3_600_000)
    await bench.commit(2, partition=1, retention_ms=30 * DAY_S * 1000)
    await bench.commit(3, partition=2, retention_ms=-1)
    await asyncio.sleep(2 * 3600)
    assert [bench.committed(n) for n in range(3)] == [-1, 2, 3]
    await asyncio.sleep(10 * DAY_S)
    assert [bench.committed(n) for n in range(3)] == [-1, 2, -1]
    await bench.close()


@simulated
async def test_a_clock_that_jumps_ahead_drops_nothing(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit(1)
    bench.clock.jump_ms = 365 * DAY_S * 1000
    await asyncio.sleep(DAY_S)
    assert bench.committed() == 1
    await bench.close()


@simulated
async def test_the_time_when_a_group_became_empty_survives_a_restart(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    await bench.commit(5, generation=generation, member_id=member_id)
    await bench.stay_alive({member_id: generation}, 3600)
    bench.leave(member_id)
    await asyncio.sleep(4 * DAY_S)
    await bench.reopen()
    assert bench.committed() == 5
    await asyncio.sleep(4 * DAY_S)
    assert bench.committed() == -1
    await bench.close()


@simulated
async def test_the_sweep_waits_for_commits_that_are_on_their_way(
    bench: GroupBench, store: ObservedStore
) -> None:
    await bench.open(store)
    await bench.commit(1)
    # Due at the moment when a newer one is on its way.
    await asyncio.sleep(7 * DAY_S - 1)
    newer = bench.commit(2)
    bench.coordinator.table.settings = bench.settings.model_copy(update={"offsets_retention_ms": 1})
    await bench.coordinator.sweep()
    await newer
    assert bench.committed() == 2
    assert not any(isinstance(change, DeleteGroup) for written in store.rounds for change in written)
    await bench.close()


@simulated
async def test_an_unused_group_is_removed_by_the_sweep(bench: GroupBench) -> None:
    await bench.open()
    bench.member_id(group="pending")
    await bench.stable(group="left")
    await asyncio.sleep(700)
    assert await bench.coordinator.list_groups() == []
    await bench.close()


# ── looking ──


@simulated
async def test_groups_are_listed_by_state_and_type(bench: GroupBench) -> None:
    await bench.open()
    await bench.stable(group="s")
    await bench.commit(group="e")
    bench.join(group="p")
    listed = bench.coordinator.list_groups
    assert [(one.group, one.protocol_type, one.state) for one in await listed()] == [
        ("e", "", S.EMPTY),
        ("p", "consumer", S.PREPARING_REBALANCE),
        ("s", "consumer", S.STABLE),
    ]
    assert [one.group for one in await listed(["stable", "EMPTY"])] == ["e", "s"]
    assert [one.group for one in await listed([], ["Classic"])] == ["e", "p", "s"]
    assert await listed([], ["consumer"]) == []
    assert await listed(["no such state"]) == []
    await bench.close()


@simulated
async def test_a_description_shows_assignments_only_while_they_hold(bench: GroupBench) -> None:
    await bench.open()
    _, (member_id,) = await bench.stable()
    described = bench.coordinator.describe("g")
    (member,) = described.members
    assert (described.state, described.protocol_type, described.protocol_name) == (
        S.STABLE,
        "consumer",
        "range",
    )
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "c", "127.0.0.1")
    assert (member.metadata, member.assignment) == (b"topics", member_id.encode())
    bench.join()
    described = bench.coordinator.describe("g")
    assert (described.state, described.protocol_name) == (S.PREPARING_REBALANCE, "")
    assert {(m.metadata, m.assignment) for m in described.members} == {(b"", b"")}
    await bench.close()


@simulated
async def test_only_what_must_be_kept_is_written(bench: GroupBench, store: ObservedStore) -> None:
    await bench.open(store)
    generation, (member_id,) = await bench.stable()
    for _ in range(10):
        bench.heartbeat(member_id, generation)
    bench.leave(member_id)
    await asyncio.sleep(1)
    assert [len(changes) for changes in store.rounds] == [1, 1]
    kept = [change for changes in store.rounds for change in changes]
    assert [
        (type(one), one.generation, len(one.members)) for one in kept if isinstance(one, GroupRecord)
    ] == [
        (GroupRecord, 1, 1),
        (GroupRecord, 2, 0),
    ]
    await bench.close()
