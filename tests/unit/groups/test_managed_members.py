"""Managed members and the ownership of partitions, on simulated time over a real store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.cluster.group_store import MemberProtocol
from app.errors import (
    GroupStoreFailed,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    PartitionNotAssigned,
    PartitionNotOwned,
    PartitionOwned,
    RebalanceInProgress,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from app.groups.base.consumer_protocol import AssignedPartition, assigned_partitions, encode_assignment
from app.groups.base.messages import Membership, OffsetToCommit
from app.groups.base.states import GroupState
from app.groups.consumer.ownership import Claimant
from tests.support.groups import SESSION_MS, GroupBench, subscription
from tests.support.simulated_time import simulated

KAFKA = (MemberProtocol("range", subscription("orders")),)


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


def partitions(membership: Membership) -> set[int]:
    return {part.partition for part in membership.assigned}


def claimant(membership: Membership, partition: int) -> Claimant:
    return Claimant(
        group="g",
        member_id=membership.member_id,
        generation=membership.generation,
        topic="orders",
        partition=partition,
    )


def now(bench: GroupBench, membership: Membership) -> Membership:
    return bench.coordinator.membership("g", membership.member_id, generation=membership.generation)


@simulated
async def test_the_first_member_gets_everything_and_the_next_ones_their_even_share(bench: GroupBench) -> None:
    await bench.open()
    one = await bench.join_managed()
    assert (one.generation, partitions(one)) == (1, {0, 1, 2, 3})
    two = await bench.join_managed()
    assert (two.generation, len(partitions(two))) == (2, 2)
    assert partitions(now(bench, one)) | partitions(two) == {0, 1, 2, 3}
    assert now(bench, one).generation == 2
    await bench.close()


@simulated
async def test_a_member_that_misses_its_session_timeout_is_removed_and_the_others_get_its_partitions(
    bench: GroupBench,
) -> None:
    await bench.open()
    one, two = await bench.join_managed(), await bench.join_managed()
    for _ in range(3):
        await asyncio.sleep(SESSION_MS / 2000)
        one = now(bench, one)
    assert partitions(one) == {0, 1, 2, 3}
    with pytest.raises(UnknownMember):
        now(bench, two)
    await bench.close()


@simulated
async def test_a_member_that_leaves_hands_over_at_once_and_the_last_one_empties_the_group(
    bench: GroupBench,
) -> None:
    await bench.open()
    one, two = await bench.join_managed(), await bench.join_managed()
    assert bench.leave(one.member_id) == [None]
    await bench.written()
    assert partitions(now(bench, two)) == {0, 1, 2, 3}
    assert bench.leave(two.member_id) == [None]
    assert bench.state() is GroupState.EMPTY
    await bench.close()


@simulated
async def test_a_subscription_must_name_topics_that_exist(bench: GroupBench) -> None:
    await bench.open()
    with pytest.raises(InvalidRequest):
        await bench.join_managed(topics=())
    with pytest.raises(UnknownTopic):
        await bench.join_managed(topics=("orders", "nothing"))
    with pytest.raises(UnknownMember):
        await bench.join_managed(member_id="who")
    assert await bench.coordinator.list_groups() == []
    await bench.close()


@simulated
async def test_a_member_may_join_again_with_other_topics(bench: GroupBench) -> None:
    await bench.open()
    bench.make_topic("bills", partitions=2)
    one = await bench.join_managed()
    same = await bench.join_managed(member_id=one.member_id)
    assert same == one
    more = await bench.join_managed(member_id=one.member_id, topics=("orders", "bills"))
    assert more.generation == 2
    assert {part.topic for part in more.assigned} == {"orders", "bills"}
    await bench.close()


@simulated
async def test_partitions_that_are_added_are_assigned_and_a_deleted_topic_is_taken_away(
    bench: GroupBench,
) -> None:
    await bench.open()
    one = await bench.join_managed()
    bench.make_topic("orders", partitions=6, topic_id=bench.topics["orders"].topic_id)
    bench.coordinator.topics_changed("orders")
    await bench.written()
    assert partitions(now(bench, one)) == {0, 1, 2, 3, 4, 5}
    del bench.topics["orders"]
    bench.coordinator.topics_changed("orders")
    await bench.written()
    assert now(bench, one).assigned == frozenset()
    await bench.close()


@simulated
async def test_a_join_that_the_store_refuses_leaves_no_member(bench: GroupBench) -> None:
    await bench.open()
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await bench.join_managed()
    bench.mend_store()
    await asyncio.sleep(2)
    one = await bench.join_managed()
    assert partitions(one) == {0, 1, 2, 3}
    await bench.close()


# ── with members of the Kafka listener ──


@simulated
async def test_members_of_both_listeners_share_a_group_that_the_broker_leads(bench: GroupBench) -> None:
    await bench.open()
    one = await bench.join_managed()
    joined = await bench.join(protocols=KAFKA)
    assert joined.protocol_name == "range"
    assert joined.leader == one.member_id
    assert joined.members == ()
    synced = await bench.sync(joined.member_id, joined.generation)
    theirs = {part.partition for part in assigned_partitions(synced.assignment)}
    assert theirs | partitions(now(bench, one)) == {0, 1, 2, 3}
    assert len(theirs) == 2
    await bench.close()


@simulated
async def test_a_kafka_member_that_leads_assigns_to_the_others_too(bench: GroupBench) -> None:
    await bench.open()
    first = await bench.join(protocols=KAFKA)
    await bench.sync(first.member_id, first.generation, {first.member_id: b""})
    joining = bench.join_managed_later()
    await asyncio.sleep(0)
    with pytest.raises(RebalanceInProgress):
        bench.heartbeat(first.member_id, first.generation)
    again = await bench.join(first.member_id, protocols=KAFKA)
    assert again.leader == first.member_id
    other = next(m.member_id for m in again.members if m.member_id != first.member_id)
    assert not joining.done()
    assignments = {
        first.member_id: encode_assignment([AssignedPartition("orders", 0)]),
        other: encode_assignment([AssignedPartition("orders", n) for n in (1, 2, 3)]),
    }
    await bench.sync(first.member_id, again.generation, assignments)
    managed = await joining
    assert partitions(managed) == {1, 2, 3}
    await bench.close()


@simulated
async def test_a_kafka_member_without_a_common_assignor_is_refused_with_the_names_of_them(
    bench: GroupBench,
) -> None:
    await bench.open()
    await bench.join_managed()
    with pytest.raises(InconsistentGroupProtocol, match="range"):
        bench.join(protocols=(MemberProtocol("cooperative-sticky", subscription("orders")),))
    with pytest.raises(InconsistentGroupProtocol):
        bench.join(protocol_type="connect", protocols=KAFKA)
    await bench.close()


# ── ownership ──


@simulated
async def test_a_partition_is_claimed_committed_and_released_by_the_member_that_has_it(
    bench: GroupBench,
) -> None:
    await bench.open()
    one = await bench.join_managed()
    two = await bench.join_managed()
    one = now(bench, one)
    mine, theirs = min(partitions(one)), min(partitions(two))
    with pytest.raises(PartitionNotOwned):
        await bench.commit_owned(claimant(one, mine), 3)
    with pytest.raises(PartitionNotAssigned):
        await bench.coordinator.claim(claimant(one, theirs))
    with pytest.raises(UnknownPartition):
        await bench.coordinator.claim(claimant(one, 99))
    await bench.coordinator.claim(claimant(one, mine))
    await bench.coordinator.claim(claimant(one, mine))
    await bench.commit_owned(claimant(one, mine), 3)
    assert bench.committed(mine) == 3
    await bench.coordinator.release(claimant(one, mine))
    with pytest.raises(PartitionNotOwned):
        await bench.coordinator.release(claimant(one, mine))
    with pytest.raises(PartitionNotOwned):
        await bench.commit_owned(claimant(one, mine), 4)
    await bench.close()


@simulated
async def test_an_owner_keeps_over_a_rebalance_what_is_still_assigned_to_it(bench: GroupBench) -> None:
    await bench.open()
    one = await bench.join_managed()
    for partition in range(4):
        await bench.coordinator.claim(claimant(one, partition))
    two = await bench.join_managed()
    stale, one = one, now(bench, one)
    lost = partitions(two)
    for partition in range(4):
        # Nothing of the previous generation is accepted, whichever member has the partition now.
        with pytest.raises(IllegalGeneration):
            await bench.commit_owned(claimant(stale, partition), 1)
        if partition in lost:
            with pytest.raises(PartitionNotAssigned):
                bench.coordinator.check_owner(claimant(one, partition))
            await bench.coordinator.claim(claimant(two, partition))
        else:
            bench.coordinator.check_owner(claimant(one, partition))
    await bench.close()


@simulated
async def test_two_members_that_a_leader_assigns_one_partition_cannot_both_own_it(bench: GroupBench) -> None:
    await bench.open()
    first = await bench.join(protocols=KAFKA)
    await bench.sync(first.member_id, first.generation, {first.member_id: b""})
    joining = bench.join_managed_later()
    await asyncio.sleep(0)
    again = await bench.join(first.member_id, protocols=KAFKA)
    everything = encode_assignment([AssignedPartition("orders", 0)])
    await bench.sync(first.member_id, again.generation, {m.member_id: everything for m in again.members})
    managed = await joining
    await bench.coordinator.claim(claimant(managed, 0))
    other = Membership(member_id=first.member_id, generation=managed.generation, assigned=managed.assigned)
    with pytest.raises(PartitionOwned):
        await bench.coordinator.claim(claimant(other, 0))
    with pytest.raises(PartitionOwned):
        bench.coordinator.check_owner(claimant(other, 0))
    await bench.coordinator.release(claimant(managed, 0))
    await bench.coordinator.claim(claimant(other, 0))
    await bench.close()


@simulated
async def test_members_and_owners_survive_a_restart(bench: GroupBench) -> None:
    await bench.open()
    one, two = await bench.join_managed(), await bench.join_managed()
    one = now(bench, one)
    mine = min(partitions(one))
    await bench.coordinator.claim(claimant(one, mine))
    await bench.reopen()
    assert now(bench, one) == one
    assert now(bench, two) == two
    await bench.commit_owned(claimant(one, mine), 7)
    three = await bench.join_managed()
    assert len(partitions(three)) == 1
    assert partitions(now(bench, one)) | partitions(now(bench, two)) | partitions(three) == {0, 1, 2, 3}
    await bench.close()


@simulated
async def test_a_claim_that_could_not_be_kept_is_none(bench: GroupBench) -> None:
    await bench.open()
    one = await bench.join_managed()
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await bench.coordinator.claim(claimant(one, 0))
    bench.mend_store()
    with pytest.raises(PartitionNotOwned):
        bench.coordinator.check_owner(claimant(one, 0))
    await bench.close()


@simulated
async def test_a_generation_that_has_not_begun_is_refused(bench: GroupBench) -> None:
    await bench.open()
    one = await bench.join_managed()
    with pytest.raises(IllegalGeneration):
        bench.coordinator.membership("g", one.member_id, generation=2)
    with pytest.raises(IllegalGeneration):
        await bench.commit_owned(
            Claimant(group="g", member_id=one.member_id, generation=9, topic="orders", partition=0), 1
        )
    await bench.close()


@simulated
async def test_a_member_that_does_not_own_may_still_commit_what_it_is_assigned_for_its_leases(
    bench: GroupBench,
) -> None:
    await bench.open()
    one, two = await bench.join_managed(), await bench.join_managed()
    one = now(bench, one)
    mine, theirs = min(partitions(one)), min(partitions(two))
    offsets = [OffsetToCommit(topic="orders", partition=mine, offset=5)]
    assert await bench.coordinator.commit_assigned(one, "g", offsets) == [None]
    both = [*offsets, OffsetToCommit(topic="orders", partition=theirs, offset=5)]
    with pytest.raises(PartitionNotAssigned):
        await bench.coordinator.commit_assigned(one, "g", both)
    assert bench.committed(theirs) == -1
    await bench.close()


@simulated
async def test_a_group_of_managed_members_does_not_wait_for_more_and_one_with_others_does(
    tmp_path: Path,
) -> None:
    bench = await GroupBench(tmp_path, group_initial_rebalance_delay_ms=3000).open()
    now_ms = bench.clock.monotonic_ms()
    await bench.join_managed(group="managed")
    assert bench.clock.monotonic_ms() - now_ms < 3000
    kafka = bench.join(group="mixed", protocols=KAFKA)
    managed = bench.join_managed_later(group="mixed")
    await asyncio.sleep(2.9)
    assert not kafka.done()
    await asyncio.sleep(0.2)
    assert len((await kafka).members) == 2
    managed.cancel()
    await bench.close()
