"""A group changes its protocol with its members: what each of them notices, on simulated time over a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from app.cluster.consumer_group_store import OwnedPartition
from app.cluster.group_store import MemberProtocol
from app.errors import (
    GroupOfOtherType,
    IllegalGeneration,
    InconsistentGroupProtocol,
    PartitionNotAssigned,
    RebalanceInProgress,
    SteleError,
)
from app.groups.base.consumer_protocol import AssignedPartition, assigned_partitions, encode_assignment
from app.groups.base.messages import Joined, Membership
from app.groups.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from app.groups.consumer.ownership import Claimant
from tests.support.groups import GroupBench, subscription
from tests.support.simulated_time import simulated

RANGE = (MemberProtocol("range", subscription("orders")),)
ALL = frozenset(range(4))


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


# ── what members do ──


async def classic(
    bench: GroupBench, member_id: str = "", assigned: Iterable[int] = ALL
) -> tuple[Joined, frozenset[int]]:
    """Join and sync as a Kafka client of the classic protocol; one that leads takes ``assigned``."""
    joined = await bench.join(member_id, protocols=RANGE)
    mine = encode_assignment(AssignedPartition("orders", number) for number in assigned)
    synced = await bench.sync(joined.member_id, joined.generation, {joined.member_id: mine})
    return joined, frozenset(part.partition for part in assigned_partitions(synced.assignment))


async def modern(
    bench: GroupBench, epoch: int = 0, owned: Iterable[int] = (), member_id: str = "modern"
) -> ConsumerHeartbeatAnswer:
    topic_id = bench.topics["orders"].topic_id
    return await bench.coordinator.consumers.heartbeat(
        ConsumerHeartbeat(
            group="g",
            member_id=member_id,
            epoch=epoch,
            rebalance_timeout_ms=20_000 if epoch >= 0 else None,
            topics=frozenset({"orders"}) if epoch >= 0 else None,
            owned=frozenset(OwnedPartition(topic_id, number) for number in owned) if epoch >= 0 else None,
        ),
        sees=lambda topic: True,
    )


def numbers(parts: Iterable[OwnedPartition | AssignedPartition] | None) -> frozenset[int]:
    return frozenset(part.partition for part in parts or ())


def claimant(membership: Membership, partition: int) -> Claimant:
    return Claimant(
        group="g",
        member_id=membership.member_id,
        generation=membership.generation,
        topic="orders",
        partition=partition,
    )


def kind(bench: GroupBench) -> str:
    return bench.coordinator.describe("g").type


def refused(bench: GroupBench, joined: Joined) -> type[SteleError] | None:
    """Return the error of a heartbeat."""
    try:
        bench.heartbeat(joined.member_id, joined.generation)
    except SteleError as error:
        return type(error)
    return None


async def past_the_interval() -> None:
    """Wait until the next assignment may be made."""
    await asyncio.sleep(1.1)


# ── to a consumer group ──


@simulated
async def test_a_classic_member_keeps_its_partitions_until_it_joins_again(bench: GroupBench) -> None:
    await bench.open()
    one, mine = await classic(bench)
    assert mine == ALL
    other = await modern(bench)
    assert kind(bench) == "consumer"
    assert other.assigned == frozenset()

    await past_the_interval()
    assert refused(bench, one) is RebalanceInProgress
    await bench.commit(5, generation=one.generation, member_id=one.member_id)
    again, mine = await classic(bench, one.member_id)
    assert (again.member_id, len(mine)) == (one.member_id, 2)
    other = await modern(bench, other.epoch)
    assert numbers(other.assigned) == ALL - mine
    assert refused(bench, again) is None
    await bench.close()


@simulated
async def test_another_classic_member_joins_and_none_waits_for_another(bench: GroupBench) -> None:
    await bench.open()
    first = await modern(bench)
    two, mine = await classic(bench)
    assert (two.leader, two.members, mine) == ("", (), frozenset())
    await past_the_interval()
    first = await modern(bench, first.epoch, ALL)
    assert len(first.assigned or ()) == 2
    assert refused(bench, two) is RebalanceInProgress
    first = await modern(bench, first.epoch, numbers(first.assigned))
    two, mine = await classic(bench, two.member_id)
    assert mine == ALL - numbers(first.assigned)
    await bench.close()


@simulated
async def test_a_join_that_waits_is_answered_and_the_member_joins_the_consumer_group(
    bench: GroupBench,
) -> None:
    await bench.open()
    one, _ = await classic(bench)
    waiting = bench.join(protocols=RANGE)
    other = await modern(bench)
    with pytest.raises(RebalanceInProgress):
        await waiting
    assert other.epoch > one.generation
    await bench.close()


@simulated
@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
async def test_the_policy_refuses_an_upgrade_and_the_group_goes_on(tmp_path: Path, policy: str) -> None:
    bench = await GroupBench(tmp_path, group_consumer_migration_policy=policy).open()
    one, _ = await classic(bench)
    with pytest.raises(GroupOfOtherType, match=f"STELE_GROUP_CONSUMER_MIGRATION_POLICY is {policy}"):
        await modern(bench)
    assert (kind(bench), refused(bench, one)) == ("classic", None)
    await bench.close()


@simulated
async def test_assignments_that_the_broker_cannot_read_refuse_an_upgrade(bench: GroupBench) -> None:
    await bench.open()
    joined = await bench.join(protocols=RANGE)
    theirs = encode_assignment([AssignedPartition("orders", 0)])[:-4] + b"\x00\x00\x00\x04them"
    await bench.sync(joined.member_id, joined.generation, {joined.member_id: theirs})
    with pytest.raises(GroupOfOtherType, match="its assignor 'range' has assignments of its own format"):
        await modern(bench)
    assert (kind(bench), refused(bench, joined)) == ("classic", None)
    await bench.close()


@simulated
async def test_members_that_are_no_consumers_refuse_an_upgrade(bench: GroupBench) -> None:
    await bench.open()
    joined = await bench.join(protocol_type="connect", protocols=(MemberProtocol("default", b""),))
    await bench.sync(joined.member_id, joined.generation)
    with pytest.raises(GroupOfOtherType, match="'connect'"):
        await modern(bench)
    await bench.close()


@simulated
async def test_a_classic_member_of_another_kind_cannot_join_a_consumer_group(bench: GroupBench) -> None:
    await bench.open()
    await modern(bench)
    with pytest.raises(InconsistentGroupProtocol):
        await bench.join(protocol_type="connect", protocols=(MemberProtocol("default", b""),))
    await bench.close()


# ── to a classic group ──


@simulated
async def test_the_group_is_classic_again_when_the_last_modern_member_leaves(bench: GroupBench) -> None:
    await bench.open()
    await modern(bench)
    two, _ = await classic(bench)
    await modern(bench, -1)
    assert kind(bench) == "classic"
    # It commits with the epoch that it knows, until it joins.
    await bench.commit(5, generation=two.generation, member_id=two.member_id)
    assert refused(bench, two) is RebalanceInProgress
    again, mine = await classic(bench, two.member_id)
    assert (again.leader, mine) == (two.member_id, ALL)
    assert again.generation > two.generation
    with pytest.raises(IllegalGeneration):
        await bench.commit(6, generation=two.generation, member_id=two.member_id)
    await bench.close()


@simulated
async def test_the_policy_keeps_a_consumer_group_although_all_members_are_classic(tmp_path: Path) -> None:
    bench = await GroupBench(tmp_path, group_consumer_migration_policy="upgrade").open()
    await modern(bench)
    two, _ = await classic(bench)
    await modern(bench, -1)
    await past_the_interval()
    assert (kind(bench), refused(bench, two)) == ("consumer", RebalanceInProgress)
    _, mine = await classic(bench, two.member_id)
    assert mine == ALL
    await bench.close()


@simulated
async def test_members_of_both_protocols_go_on_after_a_restart(bench: GroupBench) -> None:
    await bench.open()
    first = await modern(bench)
    two, _ = await classic(bench)
    http = await bench.join_managed()
    await bench.reopen()
    assert kind(bench) == "consumer"
    assert bench.coordinator.membership("g", http.member_id, generation=http.generation).member_id
    assert (await modern(bench, first.epoch, ALL)).epoch >= first.epoch
    assert refused(bench, two) in (None, RebalanceInProgress)
    await modern(bench, -1)
    await bench.reopen()
    assert kind(bench) == "classic"
    assert [member.is_managed for member in bench.coordinator.describe("g").members].count(True) == 1
    await bench.close()


# ── members over HTTP and the binary protocol ──


@simulated
async def test_a_managed_member_shares_with_a_modern_one(bench: GroupBench) -> None:
    await bench.open()
    http = await bench.join_managed()
    assert numbers(http.assigned) == ALL
    await bench.coordinator.claim(claimant(http, 0))

    # The broker takes its steps: what it loses is free at once.
    other = await modern(bench)
    await past_the_interval()
    other = await modern(bench, other.epoch)
    await bench.coordinator.settled("g")
    now = bench.coordinator.membership("g", http.member_id, generation=http.generation)
    assert len(numbers(now.assigned)) == 2
    assert numbers(now.assigned) == ALL - numbers(other.assigned)

    kept, lost = min(numbers(now.assigned)), min(numbers(other.assigned))
    # The generation that it knew is good for what it has kept, claimed or not.
    await bench.commit_owned(claimant(http, kept), 3)
    with pytest.raises(IllegalGeneration):
        await bench.commit_owned(claimant(http, lost), 3)
    with pytest.raises(PartitionNotAssigned):
        await bench.commit_owned(claimant(now, lost), 3)
    await bench.close()


@simulated
async def test_a_managed_member_owns_after_a_downgrade_what_it_had(bench: GroupBench) -> None:
    await bench.open()
    other = await modern(bench)
    http = await bench.join_managed()
    await past_the_interval()
    other = await modern(bench, other.epoch, numbers(other.assigned))
    await modern(bench, other.epoch, numbers(other.assigned))
    await bench.coordinator.settled("g")
    before = bench.coordinator.membership("g", http.member_id)
    assert len(before.assigned) == 2
    await modern(bench, -1)
    await bench.written()
    assert kind(bench) == "classic"
    now = bench.coordinator.membership("g", http.member_id)
    assert numbers(now.assigned) == ALL
    for part in before.assigned:
        await bench.commit_owned(claimant(now, part.partition), 3)
    await bench.close()


@simulated
async def test_a_managed_join_that_waits_for_a_kafka_member_is_answered_by_an_upgrade(
    bench: GroupBench,
) -> None:
    await bench.open()
    await classic(bench)
    joining = bench.join_managed_later()
    await modern(bench)
    http = await joining
    await past_the_interval()
    assert bench.coordinator.membership("g", http.member_id).member_id == http.member_id
    await bench.close()
