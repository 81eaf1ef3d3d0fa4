"""Joining, syncing, staying and leaving: the rules of Kafka's classic group protocol, on simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from app.cluster.group_store import GroupChange, MemberProtocol
from app.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    SteleError,
    TooManyGroups,
    UnknownMember,
)
from app.groups.base.messages import Joined, LeavingMember
from app.groups.base.states import GroupState
from app.groups.classic.live_members import NEW_MEMBER_JOIN_TIMEOUT_MS
from app.settings import Settings
from tests.support.groups import RANGE, REBALANCE_MS, SESSION_MS, GroupBench
from tests.support.simulated_time import simulated

S = GroupState
OTHER = (MemberProtocol("range", b"other topics"),)


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


# ── what a join must bring ──


@simulated
async def test_an_empty_or_endless_group_id_is_refused_everywhere(bench: GroupBench) -> None:
    await bench.open()
    for group in ("", "g" * 1025, "\ud800"):
        with pytest.raises(InvalidGroupId):
            bench.join(group=group)
        with pytest.raises(InvalidGroupId):
            bench.sync("m", 1, group=group)
        with pytest.raises(InvalidGroupId):
            bench.heartbeat("m", 1, group=group)
        with pytest.raises(InvalidGroupId):
            bench.leave("m", group=group)
        with pytest.raises(InvalidGroupId):
            bench.commit(group=group)
    await bench.close()


@simulated
async def test_a_session_timeout_outside_the_bounds_is_refused(tmp_path: Path) -> None:
    bounds = {"group_min_session_timeout_ms": 5_000, "group_max_session_timeout_ms": 50_000}
    bench = await GroupBench(tmp_path, **bounds).open()
    for timeout_ms in (-1, 0, 4_999, 50_001):
        with pytest.raises(InvalidSessionTimeout):
            bench.join(session_timeout_ms=timeout_ms)
    for timeout_ms in (5_000, 50_000):
        assert bench.member_id(group=f"g{timeout_ms}", session_timeout_ms=timeout_ms)
    await bench.close()


@simulated
async def test_a_join_with_a_member_id_into_an_unknown_group_is_refused(bench: GroupBench) -> None:
    await bench.open()
    with pytest.raises(UnknownMember):
        bench.join("somebody")
    assert await bench.coordinator.list_groups() == []
    await bench.close()


@simulated
async def test_protocols_that_do_not_fit_are_refused(bench: GroupBench) -> None:
    await bench.open()
    with pytest.raises(InconsistentGroupProtocol):
        bench.join(protocols=[])
    with pytest.raises(InconsistentGroupProtocol):
        bench.join(protocol_type="")
    assert await bench.coordinator.list_groups() == []
    await bench.stable()
    with pytest.raises(InconsistentGroupProtocol):
        bench.join(protocol_type="connect")
    with pytest.raises(InconsistentGroupProtocol):
        bench.join(protocols=[MemberProtocol("sticky", b"")])
    # It is refused before an id is handed out.
    with pytest.raises(InconsistentGroupProtocol):
        bench.join(protocols=[MemberProtocol("sticky", b"")], requires_known_member_id=True)
    assert bench.state() is S.STABLE
    await bench.close()


@simulated
async def test_a_member_with_too_much_metadata_is_refused(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, group_member_bytes_max=2000).open()
    with pytest.raises(InvalidRequest):
        bench.join(protocols=[MemberProtocol("range", b"x" * 2000)])
    with pytest.raises(InvalidRequest):
        bench.join(protocols=[MemberProtocol(str(n), b"") for n in range(20)])
    with pytest.raises(InvalidRequest):
        bench.join(client_id="\ud800")
    assert (await bench.join(protocols=[MemberProtocol("range", b"x" * 1500)])).generation == 1
    await bench.close()


# ── KIP-394: an id first ──


@simulated
async def test_a_new_member_gets_an_id_and_joins_with_it(bench: GroupBench) -> None:
    await bench.open()
    with pytest.raises(MemberIdRequired) as error:
        bench.join(requires_known_member_id=True, client_id="me")
    member_id = error.value.member_id
    assert member_id.startswith("me-")
    joined = await bench.join(member_id, requires_known_member_id=True)
    assert (joined.member_id, joined.leader, joined.generation) == (member_id, member_id, 1)
    assert [m.member_id for m in joined.members] == [member_id]
    await bench.close()


@simulated
async def test_an_id_that_is_not_used_within_the_session_timeout_is_forgotten(bench: GroupBench) -> None:
    await bench.open()
    member_id = bench.member_id()
    await asyncio.sleep(SESSION_MS / 1000 + 0.1)
    with pytest.raises(UnknownMember):
        bench.join(member_id)
    await bench.close()


@simulated
async def test_members_that_have_their_id_and_did_not_join_yet_hold_the_rebalance_up(
    bench: GroupBench,
) -> None:
    await bench.open()
    generation, (first,) = await bench.stable()
    pending = bench.member_id()
    again = bench.join(first)
    await asyncio.sleep(1)
    assert not again.done()
    late = bench.join(pending)
    assert (await again).generation == (await late).generation == generation + 1
    await bench.close()


@simulated
async def test_a_rebalance_continues_when_a_pending_member_id_expires(bench: GroupBench) -> None:
    await bench.open()
    _, (first,) = await bench.stable()
    bench.member_id()
    again = bench.join(first)
    await asyncio.sleep(SESSION_MS / 1000 - 1)
    assert not again.done()
    await asyncio.sleep(1.1)
    assert again.done()
    await bench.close()


@simulated
async def test_a_pending_member_can_leave_without_a_rebalance(bench: GroupBench) -> None:
    await bench.open()
    generation, (first,) = await bench.stable()
    assert bench.leave(bench.member_id()) == [None]
    bench.heartbeat(first, generation)
    assert bench.state() is S.STABLE
    await bench.close()


@simulated
async def test_a_static_member_needs_no_id_first(bench: GroupBench) -> None:
    await bench.open()
    joined = await bench.join(instance_id="i", requires_known_member_id=True)
    assert joined.member_id.startswith("i-")
    await bench.close()


# ── generations ──


@simulated
async def test_the_first_members_join_together_and_only_the_leader_learns_of_all(bench: GroupBench) -> None:
    await bench.open()
    joins = [bench.join() for _ in range(3)]
    joined = [await join for join in joins]
    leader = joined[0].leader
    assert {one.generation for one in joined} == {1}
    assert {one.leader for one in joined} == {leader}
    assert {one.protocol_name for one in joined} == {"range"}
    for one in joined:
        expected = {other.member_id for other in joined} if one.member_id == leader else set[str]()
        assert {m.member_id for m in one.members} == expected
    assert {m.metadata for one in joined for m in one.members} == {b"topics"}
    await bench.close()


@simulated
async def test_an_empty_group_waits_for_the_initial_delay_and_longer_while_members_come(
    tmp_path: Path,
) -> None:
    bench = await GroupBench(tmp_path, group_initial_rebalance_delay_ms=3000).open()
    first = bench.join()
    await asyncio.sleep(2)
    second = bench.join()
    await asyncio.sleep(2)
    assert not first.done()
    # A member joined in the first 3 s, so it waits 3 s more; none joined in these.
    await asyncio.sleep(2.1)
    assert first.done()
    assert second.done()
    # From any other state it does not wait.
    third = bench.join()
    again = bench.join(first.result().member_id)
    last = bench.join(second.result().member_id)
    assert (await again).generation == (await third).generation == (await last).generation == 2
    await bench.close()


@simulated
async def test_the_initial_delay_is_not_extended_past_the_rebalance_timeout(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, group_initial_rebalance_delay_ms=3000).open()
    first = bench.join(rebalance_timeout_ms=7000)
    for _ in range(6):
        bench.join(rebalance_timeout_ms=7000)
        await asyncio.sleep(1)
    assert not first.done()
    bench.join(rebalance_timeout_ms=7000)
    await asyncio.sleep(1.1)
    assert first.done()
    await bench.close()


@simulated
async def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_removed(
    bench: GroupBench,
) -> None:
    await bench.open()
    generation, (leader, follower) = await bench.stable(members=2)
    newcomer = bench.join()
    rejoin = bench.join(follower)
    # The leader is alive, but does not join.
    await bench.stay_alive({leader: generation}, REBALANCE_MS / 1000 - 1)
    assert not newcomer.done()
    await bench.stay_alive({leader: generation}, 2)
    assert (await rejoin).leader == (await newcomer).leader == follower
    assert {m.member_id for m in rejoin.result().members} == {follower, newcomer.result().member_id}
    with pytest.raises(UnknownMember):
        bench.heartbeat(leader, generation)
    await bench.close()


@simulated
async def test_the_rebalance_timeout_is_the_longest_of_the_members(bench: GroupBench) -> None:
    await bench.open()
    generation, (first,) = await bench.stable(rebalance_timeout_ms=90_000)
    newcomer = bench.join(rebalance_timeout_ms=1_000)
    await bench.stay_alive({first: generation}, 85)
    assert not newcomer.done()
    await bench.stay_alive({first: generation}, 6)
    assert newcomer.done()
    await bench.close()


@simulated
async def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends(bench: GroupBench) -> None:
    await bench.open()
    joins = [bench.join(instance_id="i", session_timeout_ms=200_000), bench.join(session_timeout_ms=200_000)]
    joined = [await join for join in joins]
    await bench.settle(joined)
    static, dynamic = (one.member_id for one in joined)
    again = bench.join(dynamic, protocols=OTHER)
    assert bench.state() is S.PREPARING_REBALANCE
    await asyncio.sleep(REBALANCE_MS / 1000 + 1)
    # The leader did not come back and stays a member; another one leads.
    result = await again
    assert result.leader == dynamic
    assert {m.member_id for m in result.members} == {static, dynamic}
    await bench.settle([result])
    # Nor is it dropped for not syncing: it was not asked to.
    await bench.stay_alive({dynamic: 2}, REBALANCE_MS / 1000 + 5)
    assert bench.state() is S.STABLE
    await bench.stay_alive({dynamic: 2}, 80)
    assert bench.state() is S.PREPARING_REBALANCE
    assert {m.member_id for m in bench.coordinator.describe("g").members} == {dynamic}
    await bench.close()


@simulated
async def test_when_only_static_members_are_left_and_none_is_back_the_group_waits(bench: GroupBench) -> None:
    await bench.open()
    joined = await bench.join(instance_id="i", session_timeout_ms=300_000, rebalance_timeout_ms=0)
    await bench.settle([joined])
    newcomer = bench.join()
    bench.leave(newcomer_id(bench, joined.member_id))
    with pytest.raises(UnknownMember):
        await newcomer
    await asyncio.sleep(30)
    assert bench.state() is S.PREPARING_REBALANCE
    again = await bench.join(joined.member_id, instance_id="i")
    assert again.generation == 2
    await bench.close()


def newcomer_id(bench: GroupBench, *known: str) -> str:
    (found,) = {m.member_id for m in bench.coordinator.describe("g").members} - set(known)
    return found


# ── joining again ──


@simulated
async def test_while_preparing_a_member_that_joins_again_is_parked(bench: GroupBench) -> None:
    await bench.open()
    generation, (leader, follower) = await bench.stable(members=2)
    first = bench.join(leader)
    assert bench.state() is S.PREPARING_REBALANCE
    await asyncio.sleep(1)
    assert not first.done()
    second = bench.join(follower)
    assert (await first).generation == (await second).generation == generation + 1
    await bench.close()


@simulated
async def test_while_completing_the_same_join_is_answered_again_and_another_one_rebalances(
    bench: GroupBench,
) -> None:
    await bench.open()
    joins = [bench.join() for _ in range(2)]
    one, two = [await join for join in joins]
    leader, follower = (one, two) if one.leader == one.member_id else (two, one)
    assert await bench.join(leader.member_id) == leader
    assert await bench.join(follower.member_id) == follower
    assert bench.state() is S.COMPLETING_REBALANCE
    waiting = bench.sync(follower.member_id, 1)
    changed = bench.join(leader.member_id, protocols=OTHER)
    with pytest.raises(RebalanceInProgress):
        await waiting
    assert bench.state() is S.PREPARING_REBALANCE
    assert (await gathered(changed, bench.join(follower.member_id)))[0].generation == 2
    await bench.close()


async def gathered(*futures: asyncio.Future[Joined]) -> list[Joined]:
    return [await future for future in futures]


@simulated
async def test_while_stable_a_follower_rebalances_only_with_other_metadata_and_the_leader_always(
    bench: GroupBench,
) -> None:
    await bench.open()
    generation, (leader, follower) = await bench.stable(members=2)
    same = await bench.join(follower)
    assert (same.generation, same.leader, same.members) == (generation, leader, ())
    assert bench.state() is S.STABLE
    changed = bench.join(follower, protocols=OTHER)
    assert bench.state() is S.PREPARING_REBALANCE
    both = await gathered(changed, bench.join(leader))
    await bench.settle(both)
    assert bench.state() is S.STABLE
    bench.join(leader)
    assert bench.state() is S.PREPARING_REBALANCE
    await bench.close()


@simulated
async def test_an_empty_group_knows_no_members(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    bench.leave(member_id)
    assert bench.state() is S.EMPTY
    for ask in (
        lambda: bench.join(member_id),
        lambda: bench.sync(member_id, generation),
        lambda: bench.heartbeat(member_id, generation + 1),
    ):
        with pytest.raises(UnknownMember):
            ask()
    await bench.close()


@simulated
async def test_a_join_that_is_repeated_while_parked_completes_the_first_one(bench: GroupBench) -> None:
    await bench.open()
    generation, (leader, follower) = await bench.stable(members=2)
    lost = bench.join(leader)
    again = bench.join(leader)
    with pytest.raises(RebalanceInProgress):
        await lost
    bench.join(follower)
    assert (await again).generation == generation + 1
    await bench.close()


# ── sync ──


@simulated
async def test_syncs_wait_for_the_leader_and_are_answered_from_the_store_on(bench: GroupBench) -> None:
    await bench.open()
    joins = [bench.join() for _ in range(3)]
    joined = [await join for join in joins]
    leader = joined[0].leader
    followers = [one.member_id for one in joined if one.member_id != leader]
    waiting = bench.sync(followers[0], 1)
    await asyncio.sleep(5)
    assert not waiting.done()
    led = bench.sync(leader, 1, {leader: b"L", followers[0]: b"F"})
    assert bench.state() is S.COMPLETING_REBALANCE
    assert ((await led).assignment, (await waiting).assignment) == (b"L", b"F")
    assert bench.state() is S.STABLE
    # Who was forgotten by the leader has nothing; who asks again gets the same.
    assert (await bench.sync(followers[1], 1)).assignment == b""
    synced = await bench.sync(followers[0], 1, protocol_type="consumer", protocol_name="range")
    assert (synced.protocol_type, synced.protocol_name, synced.assignment) == ("consumer", "range", b"F")
    await bench.close()


@simulated
async def test_a_sync_of_another_generation_member_or_protocol_is_refused(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    with pytest.raises(UnknownMember):
        bench.sync("nobody", generation)
    with pytest.raises(UnknownMember):
        bench.sync(member_id, generation, group="no such group")
    with pytest.raises(IllegalGeneration):
        bench.sync(member_id, generation - 1)
    with pytest.raises(InconsistentGroupProtocol):
        bench.sync(member_id, generation, protocol_type="connect")
    with pytest.raises(InconsistentGroupProtocol):
        bench.sync(member_id, generation, protocol_name="sticky")
    bench.join()
    with pytest.raises(RebalanceInProgress):
        bench.sync(member_id, generation)
    await bench.close()


@simulated
async def test_members_that_do_not_sync_within_the_rebalance_timeout_are_dropped(bench: GroupBench) -> None:
    await bench.open()
    joins = [bench.join() for _ in range(2)]
    joined = [await join for join in joins]
    leader = joined[0].leader
    (follower,) = {one.member_id for one in joined} - {leader}
    await bench.sync(leader, 1, {})
    await bench.stay_alive({leader: 1, follower: 1}, REBALANCE_MS / 1000 - 2)
    assert bench.state() is S.STABLE
    await bench.stay_alive({leader: 1, follower: 1}, 3)
    assert bench.state() is S.PREPARING_REBALANCE
    with pytest.raises(UnknownMember):
        bench.heartbeat(follower, 1)
    assert [m.member_id for m in (await bench.join(leader)).members] == [leader]
    await bench.close()


@simulated
async def test_a_leader_that_never_assigns_is_removed_and_parked_members_get_an_error(
    bench: GroupBench,
) -> None:
    await bench.open()
    joins = [bench.join() for _ in range(2)]
    joined = [await join for join in joins]
    leader = joined[0].leader
    (follower,) = {one.member_id for one in joined} - {leader}
    waiting = bench.sync(follower, 1)
    await bench.stay_alive({leader: 1}, REBALANCE_MS / 1000 + 1)
    with pytest.raises(RebalanceInProgress):
        await waiting
    assert (await bench.join(follower)).leader == follower
    await bench.close()


# ── heartbeats and sessions ──


@simulated
async def test_heartbeats_are_answered_by_state(bench: GroupBench) -> None:
    await bench.open()
    joined = await bench.join()
    bench.heartbeat(joined.member_id, 1)
    await bench.settle([joined])
    bench.heartbeat(joined.member_id, 1)
    with pytest.raises(IllegalGeneration):
        bench.heartbeat(joined.member_id, 0)
    with pytest.raises(UnknownMember):
        bench.heartbeat("nobody", 1)
    with pytest.raises(UnknownMember):
        bench.heartbeat(joined.member_id, 1, group="no such group")
    with pytest.raises(UnknownMember):
        bench.heartbeat(bench.member_id(), 1)
    bench.join()
    with pytest.raises(RebalanceInProgress):
        bench.heartbeat(joined.member_id, 1)
    await bench.close()


@simulated
async def test_a_member_that_misses_its_session_timeout_is_removed(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    await asyncio.sleep(SESSION_MS / 1000 - 0.1)
    bench.heartbeat(member_id, generation)
    await asyncio.sleep(SESSION_MS / 1000 - 0.1)
    assert bench.state() is S.STABLE
    await asyncio.sleep(0.2)
    assert bench.state() is S.EMPTY
    with pytest.raises(UnknownMember):
        bench.heartbeat(member_id, generation)
    await bench.close()


@simulated
async def test_heartbeats_keep_a_member_while_the_group_prepares_a_rebalance(bench: GroupBench) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable()
    newcomer = bench.join()
    await bench.stay_alive({member_id: generation}, REBALANCE_MS / 1000 - 5)
    assert member_id in {m.member_id for m in bench.coordinator.describe("g").members}
    assert (await gathered(bench.join(member_id), newcomer))[0].generation == generation + 1
    await bench.close()


@simulated
async def test_a_member_that_is_parked_never_expires(bench: GroupBench) -> None:
    await bench.open()
    generation, (leader, follower) = await bench.stable(members=2, rebalance_timeout_ms=900_000)
    parked = bench.join(leader)
    await bench.stay_alive({follower: generation}, 600)
    assert not parked.done()
    bench.join(follower)
    assert (await parked).generation == generation + 1
    # Its session starts again with the response.
    await asyncio.sleep(SESSION_MS / 1000 - 0.1)
    bench.heartbeat(leader, generation + 1)
    await bench.close()


@simulated
async def test_a_new_member_that_is_parked_for_five_minutes_is_removed_with_an_error(
    bench: GroupBench,
) -> None:
    await bench.open()
    generation, (member_id,) = await bench.stable(rebalance_timeout_ms=900_000)
    newcomer = bench.join()
    await bench.stay_alive({member_id: generation}, NEW_MEMBER_JOIN_TIMEOUT_MS / 1000 - 2)
    assert not newcomer.done()
    await bench.stay_alive({member_id: generation}, 3)
    with pytest.raises(UnknownMember):
        await newcomer
    await bench.close()


@simulated
async def test_a_session_that_ended_while_parked_in_sync_begins_again_with_the_answer(
    bench: GroupBench,
) -> None:
    await bench.open()
    joins = [bench.join(instance_id=f"i{n}") for n in range(2)]
    joined = [await join for join in joins]
    leader, follower = sorted(joined, key=lambda one: one.member_id != one.leader)
    waiting = bench.sync(follower.member_id, 1, instance_id=follower.member_id[:2])
    await bench.stay_alive({leader.member_id: 1}, SESSION_MS / 1000 + 2)
    bench.join(leader.member_id, instance_id=leader.member_id[:2], protocols=OTHER)
    with pytest.raises(RebalanceInProgress):
        await waiting
    await bench.stay_alive({leader.member_id: 1}, SESSION_MS / 1000 + 1)
    assert [m.member_id for m in bench.coordinator.describe("g").members] == [leader.member_id]
    await bench.close()


# ── leaving ──


@simulated
async def test_members_that_leave_together_are_answered_one_by_one_with_one_rebalance(
    bench: GroupBench,
) -> None:
    await bench.open()
    generation, (first, second, third) = await bench.stable(members=3)
    results = bench.leave(second, "nobody", third)
    assert [type(result) for result in results] == [type(None), UnknownMember, type(None)]
    assert (await bench.join(first)).generation == generation + 1
    await bench.close()


@simulated
async def test_leaving_a_group_that_does_not_exist_is_not_knowing_the_member(bench: GroupBench) -> None:
    await bench.open()
    (result,) = bench.leave("nobody")
    assert isinstance(result, UnknownMember)
    await bench.close()


@simulated
async def test_a_member_that_is_removed_while_parked_gets_an_error(bench: GroupBench) -> None:
    await bench.open()
    _, (leader, follower) = await bench.stable(members=2)
    parked = bench.join(leader)
    assert bench.leave(leader) == [None]
    with pytest.raises(UnknownMember):
        await parked
    assert (await bench.join(follower)).leader == follower
    await bench.close()


@simulated
async def test_an_administrator_removes_a_static_member_by_its_instance(bench: GroupBench) -> None:
    await bench.open()
    joined = await bench.join(instance_id="i")
    await bench.settle([joined])
    leave = bench.coordinator.leave
    (unknown,) = leave("g", [LeavingMember(member_id="", instance_id="other")])
    assert isinstance(unknown, UnknownMember)
    (nameless,) = leave("g", [LeavingMember(member_id="")])
    assert isinstance(nameless, UnknownMember)
    (fenced,) = leave("g", [LeavingMember(member_id="someone else", instance_id="i")])
    assert isinstance(fenced, FencedInstance)
    assert leave("g", [LeavingMember(member_id="", instance_id="i")]) == [None]
    assert bench.state() is S.EMPTY
    await bench.close()


# ── static members ──


@simulated
async def test_an_instance_that_comes_back_gets_a_new_id_without_a_rebalance_and_fences_the_old(
    bench: GroupBench,
) -> None:
    await bench.open()
    joins = [bench.join(instance_id="i"), bench.join(instance_id="k")]
    joined = [await join for join in joins]
    await bench.settle(joined)
    leader = joined[0].leader
    (old,) = [one.member_id for one in joined if one.member_id != leader]
    instance = old[0]
    back = await bench.join(instance_id=instance, protocols=RANGE)
    assert back.member_id != old
    assert (back.generation, back.leader, back.members, back.skip_assignment) == (1, leader, (), False)
    assert bench.state() is S.STABLE
    assert (await bench.sync(back.member_id, 1, instance_id=instance)).assignment == old.encode()
    for ask in (
        lambda: bench.heartbeat(old, 1, instance_id=instance),
        lambda: bench.join(old, instance_id=instance),
        lambda: bench.sync(old, 1, instance_id=instance),
        lambda: bench.commit(generation=1, member_id=old, instance_id=instance),
    ):
        with pytest.raises(FencedInstance):
            ask()
    with pytest.raises(UnknownMember):
        bench.heartbeat(old, 1)
    bench.heartbeat(back.member_id, 1, instance_id=instance)
    await bench.close()


@simulated
async def test_a_leader_that_returns_skips_its_assignment_or_does_not_learn_that_it_leads(
    bench: GroupBench,
) -> None:
    await bench.open()
    first = await bench.join(instance_id="i")
    await bench.settle([first])
    # Before version 9 it must not assign again: it sees another leader.
    second = await bench.join(instance_id="i")
    assert (second.leader, second.members, second.skip_assignment) == (first.member_id, (), False)
    third = await bench.join(instance_id="i", supports_skip_assignment=True)
    assert (third.leader, third.skip_assignment) == (third.member_id, True)
    assert [m.member_id for m in third.members] == [third.member_id]
    assert bench.state() is S.STABLE
    assert (await bench.sync(third.member_id, 1, instance_id="i")).assignment == first.member_id.encode()
    await bench.close()


@simulated
async def test_an_instance_that_comes_back_with_another_protocol_rebalances(bench: GroupBench) -> None:
    await bench.open()
    both = [*RANGE, MemberProtocol("sticky", b"")]
    joined = await bench.join(instance_id="i", protocols=both)
    await bench.settle([joined])
    back = await bench.join(instance_id="i", protocols=both[::-1])
    assert (back.generation, back.protocol_name) == (2, "sticky")
    await bench.close()


@simulated
async def test_an_instance_that_comes_back_while_its_old_self_is_parked_answers_that_one(
    bench: GroupBench,
) -> None:
    await bench.open()
    joins = [bench.join(instance_id="i"), bench.join()]
    joined = [await join for join in joins]
    await bench.settle(joined)
    static, dynamic = (one.member_id for one in joined)
    parked = bench.join(static, instance_id="i")
    back = bench.join(instance_id="i")
    with pytest.raises(FencedInstance):
        await parked
    assert bench.state() is S.PREPARING_REBALANCE
    both = await gathered(back, bench.join(dynamic))
    assert both[0].generation == 2
    waiting = bench.sync(both[0].member_id, 2, instance_id="i")
    again = bench.join(instance_id="i")
    with pytest.raises(FencedInstance):
        await waiting
    assert bench.state() is S.PREPARING_REBALANCE
    assert (await gathered(again, bench.join(dynamic)))[0].generation == 3
    await bench.close()


@simulated
async def test_an_unknown_instance_with_a_member_id_is_unknown(bench: GroupBench) -> None:
    await bench.open()
    _, (member_id,) = await bench.stable()
    with pytest.raises(UnknownMember):
        bench.join(member_id, instance_id="i")
    with pytest.raises(InvalidRequest):
        bench.join(instance_id="")
    await bench.close()


# ── what overtakes a write ──


class HeldWrites:
    """Delays writes until ``release``, as a slow disk would."""

    def __init__(self, bench: GroupBench, monkeypatch: pytest.MonkeyPatch) -> None:
        self._persist = bench.coordinator.table.persist
        self._held: list[tuple[Sequence[GroupChange], Callable[[SteleError | None], None]]] = []
        monkeypatch.setattr(bench.coordinator.table, "persist", self._hold)

    def _hold(self, changes: Sequence[GroupChange], done: Callable[[SteleError | None], None]) -> None:
        self._held.append((changes, done))

    async def release(self) -> None:
        held, self._held = self._held, []
        for changes, done in held:
            self._persist(changes, done)
        await asyncio.sleep(1)


@simulated
async def test_an_assignment_that_a_rebalance_overtook_is_given_to_no_member(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.open()
    writes = HeldWrites(bench, monkeypatch)
    joined = await bench.join()
    overtaken = bench.sync(joined.member_id, 1, {joined.member_id: b"old"})
    newcomer = bench.join()
    with pytest.raises(RebalanceInProgress):
        await overtaken
    await gathered(bench.join(joined.member_id), newcomer)
    waiting = bench.sync(newcomer.result().member_id, 2)
    await writes.release()
    assert bench.state() is S.COMPLETING_REBALANCE
    assert not waiting.done()
    bench.sync(joined.member_id, 2, {newcomer.result().member_id: b"new"})
    await writes.release()
    assert (await waiting).assignment == b"new"
    await bench.close()


@simulated
async def test_a_leader_that_assigns_twice_gets_the_stored_assignment(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.open()
    writes = HeldWrites(bench, monkeypatch)
    joined = await bench.join()
    lost = bench.sync(joined.member_id, 1, {joined.member_id: b"first"})
    again = bench.sync(joined.member_id, 1, {joined.member_id: b"second"})
    with pytest.raises(RebalanceInProgress):
        await lost
    await writes.release()
    assert (await again).assignment == b"first"
    await bench.reopen()
    assert bench.coordinator.describe("g").members[0].assignment == b"first"
    await bench.close()


@simulated
async def test_an_instance_that_a_rebalance_overtook_joins_the_next_generation(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.open()
    await bench.settle([await bench.join(instance_id="i")])
    pending = bench.member_id()
    writes = HeldWrites(bench, monkeypatch)
    back = bench.join(instance_id="i")
    third = bench.join(instance_id="k")
    await writes.release()
    assert bench.state() is S.PREPARING_REBALANCE
    assert not back.done()
    fourth = bench.join(pending)
    assert {one.generation for one in await gathered(back, third, fourth)} == {2}
    await bench.close()


# ── limits ──


@simulated
async def test_a_full_group_accepts_only_members_that_it_has(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, group_size_max=2).open()
    joins = [bench.join(instance_id="i"), bench.join()]
    joined = [await join for join in joins]
    await bench.settle(joined)
    for ask in (
        bench.join,
        lambda: bench.join(requires_known_member_id=True),
        lambda: bench.join(instance_id="k"),
    ):
        with pytest.raises(GroupFull):
            ask()
    assert (await bench.join(instance_id="i")).generation == 1
    bench.leave(joined[1].member_id)
    assert bench.member_id()
    with pytest.raises(GroupFull):
        bench.join(requires_known_member_id=True)
    await bench.close()


@simulated
async def test_there_are_not_more_groups_than_allowed(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, groups_max=1).open()
    await bench.stable()
    for ask in (lambda: bench.join(group="h"), lambda: bench.commit(group="h")):
        with pytest.raises(TooManyGroups):
            ask()
    await bench.commit(generation=1, member_id=bench.coordinator.describe("g").members[0].member_id)
    await bench.close()


# ── closing ──


@simulated
async def test_closing_answers_all_parked_requests_and_refuses_the_rest(bench: GroupBench) -> None:
    await bench.open()
    _, (leader, _) = await bench.stable(members=2)
    joining = bench.join(leader)
    one, two = await gathered(bench.join(group="h"), bench.join(group="h"))
    follower = two if one.leader == one.member_id else one
    syncing = bench.sync(follower.member_id, 1, group="h")
    bench.coordinator.begin_close()
    for parked in (joining, syncing):
        with pytest.raises(CoordinatorNotAvailable):
            await parked
    for ask in (
        bench.join,
        lambda: bench.heartbeat(leader, 1),
        lambda: bench.sync(leader, 1),
        lambda: bench.leave(leader),
        bench.commit,
        bench.committed,
        lambda: bench.coordinator.describe("g"),
    ):
        with pytest.raises(CoordinatorNotAvailable):
            ask()
    with pytest.raises(CoordinatorNotAvailable):
        await bench.coordinator.list_groups()
    await bench.close()


@simulated
async def test_a_peer_that_has_disconnected_causes_no_error(bench: GroupBench) -> None:
    await bench.open()
    _, (leader, follower) = await bench.stable(members=2)
    bench.join(leader).cancel()
    joined = await bench.join(follower)
    assert {m.member_id for m in joined.members} in ({leader, follower}, set())
    await bench.close()


def test_the_initial_delay_is_that_of_apache_kafka(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).group_initial_rebalance_delay_ms == 3000
