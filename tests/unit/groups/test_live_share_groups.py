"""Share groups of a coordinator: sessions, first states, restarts, and the other types (KIP-932, ADR-0044)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from app.cluster.consumer_group_store import OwnedPartition
from app.errors import (
    CoordinatorNotAvailable,
    GroupNotEmpty,
    GroupNotFound,
    GroupOfOtherType,
    GroupStoreFailed,
    InconsistentGroupProtocol,
    InvalidRequest,
    UnknownMember,
    UnknownPartition,
)
from app.groups.base.share_state import Acknowledgement, AcknowledgeType, OffsetRange
from app.groups.base.states import GroupState
from app.groups.consumer.messages import ConsumerHeartbeat
from app.groups.share.group import LEAVING, ShareHeartbeat, ShareHeartbeatAnswer
from app.work_budget import at_once
from tests.support.groups import GroupBench
from tests.support.simulated_time import simulated

SESSION_S = 45.0


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


async def beat(
    bench: GroupBench,
    member: str = "m",
    epoch: int = 0,
    *,
    group: str = "g",
    topics: frozenset[str] | None = None,
) -> ShareHeartbeatAnswer:
    if epoch == 0:
        topics = topics or frozenset({"orders"})
    return await bench.coordinator.shares.heartbeat(
        ShareHeartbeat(group=group, member_id=member, epoch=epoch, topics=topics)
    )


def starts(bench: GroupBench, group: str = "g") -> dict[tuple[str, int], int]:
    return {
        (one.topic, one.partition): one.start_offset
        for one in at_once(bench.coordinator.shares.offsets(group))
    }


def numbers(answer: ShareHeartbeatAnswer) -> list[int]:
    return sorted(number for _, number in answer.assigned or ())


async def take(bench: GroupBench, member: str, first: int, last: int, partition: int = 0) -> int:
    """Let a member acquire records that a read brought; return how many it got."""
    known = bench.coordinator.shares.existing("g").partition("orders", partition)
    assert known is not None
    acquired = known.acquire(
        member,
        read_from=first,
        read_to=last + 1,
        batches=[OffsetRange(first, last)],
        records_max=1000,
        is_strict=True,
    )
    return sum(one.last - one.first + 1 for one in acquired)


async def accept(bench: GroupBench, member: str, first: int, last: int) -> None:
    await bench.coordinator.shares.acknowledge(
        "g", member, "orders", 0, [Acknowledgement(first=first, last=last, types=(AcknowledgeType.ACCEPT,))]
    )


@simulated
async def test_the_first_answer_has_the_partitions_and_the_group_begins_at_the_end(bench: GroupBench) -> None:
    await bench.open()
    bench.ends = {("orders", 1): 7}
    answer = await beat(bench)
    assert numbers(answer) == [0, 1, 2, 3]
    assert answer.epoch > 0
    assert answer.heartbeat_interval_ms == 5_000
    assert starts(bench) == {("orders", 0): 0, ("orders", 1): 7, ("orders", 2): 0, ("orders", 3): 0}
    assert (await beat(bench, epoch=answer.epoch)).assigned is None
    (listing,) = await bench.coordinator.list_groups(types=["share"])
    assert (listing.group, listing.type, listing.state) == ("g", "share", GroupState.STABLE)
    described = bench.coordinator.describe("g")
    assert (described.type, described.protocol_name) == ("share", "simple")
    assert {part.partition for member in described.members for part in member.assigned} == {0, 1, 2, 3}
    await bench.close()


@simulated
async def test_where_a_group_begins_survives_a_restart_and_its_members_join_again(bench: GroupBench) -> None:
    await bench.open()
    bench.ends = {("orders", 1): 7}
    epoch = (await beat(bench)).epoch
    before = starts(bench)
    bench.ends = {("orders", 1): 100}
    await bench.reopen()
    assert starts(bench) == before
    assert bench.state() is GroupState.EMPTY
    with pytest.raises(UnknownMember):
        await beat(bench, epoch=epoch)
    assert numbers(await beat(bench)) == [0, 1, 2, 3]
    assert starts(bench) == before
    await bench.close()


@simulated
async def test_a_share_group_without_members_keeps_its_states_when_unused_groups_are_removed(
    bench: GroupBench,
) -> None:
    await bench.open()
    await beat(bench)
    assert await take(bench, "m", 0, 9) == 10
    await accept(bench, "m", 0, 4)
    await beat(bench, epoch=LEAVING)
    before = starts(bench)
    assert before["orders", 0] == 5
    await bench.coordinator.sweep()
    await bench.written()
    assert starts(bench) == before
    await bench.reopen()
    assert starts(bench) == before
    # Once its topics are deleted, nothing is left of it.
    del bench.topics["orders"]
    await bench.coordinator.forget_topic("orders")
    await bench.coordinator.sweep()
    await bench.written()
    assert bench.coordinator.group_names() == []
    await bench.close()


@simulated
async def test_a_member_of_a_group_of_which_nothing_is_left_is_told_to_join(bench: GroupBench) -> None:
    """GROUP_ID_NOT_FOUND would end the client."""
    await bench.open()
    with pytest.raises(UnknownMember):
        await beat(bench, epoch=3)
    assert bench.coordinator.group_names() == []
    await bench.close()


@simulated
async def test_partitions_that_come_later_are_read_from_their_first_record(bench: GroupBench) -> None:
    await bench.open()
    bench.ends = {("orders", number): 10 for number in range(6)}
    first = await beat(bench)
    bench.make_topic("orders", partitions=6, topic_id=bench.topics["orders"].topic_id)
    bench.coordinator.topics_changed("orders")
    await bench.written()
    assert starts(bench) == {("orders", number): 10 if number < 4 else 0 for number in range(6)}
    assert numbers(await beat(bench, epoch=first.epoch)) == [0, 1, 2, 3, 4, 5]
    await bench.close()


@simulated
async def test_a_topic_that_is_created_later_is_read(bench: GroupBench) -> None:
    await bench.open()
    first = await beat(bench, topics=frozenset({"emails"}))
    assert first.assigned == frozenset()
    bench.make_topic("emails", partitions=1)
    bench.coordinator.topics_changed("emails")
    await bench.written()
    assert numbers(await beat(bench, epoch=first.epoch)) == [0]
    await bench.close()


@simulated
async def test_a_silent_member_is_removed_and_its_records_are_free_again(bench: GroupBench) -> None:
    await bench.open()
    await beat(bench, "a")
    epoch = (await beat(bench, "b")).epoch
    assert await take(bench, "a", 0, 9) == 10
    assert await take(bench, "b", 0, 9) == 0
    await asyncio.sleep(SESSION_S - 20)
    epoch = (await beat(bench, "b", epoch)).epoch
    await asyncio.sleep(25)
    with pytest.raises(UnknownMember):
        await beat(bench, "a", epoch)
    assert await take(bench, "b", 0, 9) == 10
    assert numbers(await beat(bench, "b", epoch)) == [0, 1, 2, 3]
    await bench.close()


@simulated
async def test_a_member_that_has_left_holds_its_records_until_its_session_ends(bench: GroupBench) -> None:
    await bench.open()
    await beat(bench, "a")
    await beat(bench, "b")
    await take(bench, "a", 0, 9)
    woken: list[str] = []
    share = bench.coordinator.shares.existing("g")
    share.watch(lambda partition: woken.append(str(partition)))
    await beat(bench, "a", LEAVING)
    assert woken == []
    # Its last acknowledgement came over another connection.
    await accept(bench, "a", 0, 4)
    assert await take(bench, "b", 5, 9) == 0
    share.release_member("a")
    assert set(woken) == {"orders-0"}
    assert await take(bench, "b", 5, 9) == 5
    await bench.close()


@simulated
async def test_what_was_accepted_stays_accepted_over_a_restart_and_the_rest_comes_again(
    bench: GroupBench,
) -> None:
    await bench.open()
    await beat(bench)
    await take(bench, "m", 0, 9)
    await accept(bench, "m", 0, 4)
    await bench.reopen()
    assert starts(bench)["orders", 0] == 5
    await beat(bench)
    assert await take(bench, "m", 5, 9) == 5
    await bench.close()


@simulated
async def test_a_deleted_topic_takes_its_states_along(bench: GroupBench) -> None:
    await bench.open()
    bench.make_topic("emails")
    first = await beat(bench, topics=frozenset({"orders", "emails"}))
    del bench.topics["emails"]
    await bench.coordinator.forget_topic("emails")
    bench.coordinator.topics_changed("emails")
    assert {topic for topic, _ in starts(bench)} == {"orders"}
    assert all(part.topic_id != UUID(int=0) for part in (await beat(bench, epoch=first.epoch)).assigned or ())
    bench.make_topic("emails")
    bench.ends = {("emails", 0): 3}
    bench.coordinator.topics_changed("emails")
    await bench.written()
    assert starts(bench)["emails", 0] == 3, "a topic of the same name is another one"
    await bench.reopen()
    assert starts(bench)["emails", 0] == 3
    await bench.close()


@simulated
async def test_states_of_a_topic_that_went_while_the_broker_was_down_are_dropped(bench: GroupBench) -> None:
    await bench.open()
    await beat(bench)
    await bench.close()
    bench.make_topic("orders", partitions=4)
    await bench.open()
    assert bench.coordinator.group_names() == []
    await bench.close()


@simulated
async def test_members_that_join_a_new_group_at_the_same_time_are_in_one_group(bench: GroupBench) -> None:
    await bench.open()
    answers = await asyncio.gather(*(beat(bench, member) for member in "abc"))
    assert len({answer.epoch for answer in answers}) == 1
    assert sorted(number for answer in answers for number in numbers(answer)) == [0, 1, 2, 3]
    shares = bench.coordinator.shares
    topics = ["orders"]
    assert (
        len({id(one) for one in await asyncio.gather(*(shares.begun("new", topics) for _ in range(3)))}) == 1
    )
    await bench.close()


# ── administration ──


@simulated
async def test_an_empty_group_can_be_reset_and_its_offsets_deleted(bench: GroupBench) -> None:
    await bench.open()
    shares = bench.coordinator.shares
    await beat(bench)
    for refused in (shares.reset("g", "orders", 0, 5), shares.forget("g", "orders")):
        with pytest.raises(GroupNotEmpty):
            await refused
    await take(bench, "m", 0, 9)
    await beat(bench, epoch=LEAVING)
    await shares.reset("g", "orders", 0, 5)
    assert starts(bench)["orders", 0] == 5
    bench.make_topic("emails")
    await shares.reset("g", "emails", 0, 2)
    assert starts(bench)["emails", 0] == 2
    with pytest.raises(UnknownPartition):
        await shares.reset("g", "orders", 9, 5)
    with pytest.raises(InvalidRequest):
        await shares.reset("g", "orders", 0, -1)
    await bench.reopen()
    assert (starts(bench)["orders", 0], starts(bench)["emails", 0]) == (5, 2)
    await bench.coordinator.shares.forget("g", "orders")
    assert set(starts(bench)) == {("emails", 0)}
    await bench.reopen()
    assert set(starts(bench)) == {("emails", 0)}
    await bench.close()


@simulated
async def test_an_empty_group_can_be_deleted_with_all_its_states(bench: GroupBench) -> None:
    await bench.open()
    await beat(bench)
    with pytest.raises(GroupNotEmpty):
        bench.coordinator.delete_group("g")
    await beat(bench, epoch=LEAVING)
    await bench.coordinator.delete_group("g")
    with pytest.raises(GroupNotFound):
        at_once(bench.coordinator.shares.offsets("g"))
    await bench.reopen()
    assert bench.coordinator.group_names() == []
    await bench.close()


@simulated
async def test_a_group_that_is_deleted_while_its_partitions_start_leaves_nothing(bench: GroupBench) -> None:
    may_answer = asyncio.Event()

    async def list_offset(topic: str, partition: int, at: int) -> int:
        await may_answer.wait()
        return 0

    bench.list_offset = list_offset  # type: ignore[method-assign]
    await bench.open()
    starting = asyncio.create_task(bench.coordinator.shares.begun("g", ["orders"]))
    await bench.written()
    deleted = bench.coordinator.delete_group("g")
    may_answer.set()
    await deleted
    with pytest.raises(CoordinatorNotAvailable):
        await starting
    await bench.reopen()
    assert bench.coordinator.group_names() == []
    await bench.close()


@simulated
async def test_nothing_is_taken_from_a_group_that_was_deleted(bench: GroupBench) -> None:
    await bench.open()
    share = await bench.coordinator.shares.begun("g", ["orders"])
    await bench.coordinator.delete_group("g")
    assert share.partition("orders", 0) is None
    await bench.close()


# ── an id has one type ──


@simulated
async def test_a_share_group_takes_no_members_and_commits_of_other_groups(bench: GroupBench) -> None:
    await bench.open()
    await beat(bench)
    await beat(bench, epoch=LEAVING)
    with pytest.raises(InconsistentGroupProtocol):
        await bench.join()
    with pytest.raises(GroupOfOtherType):
        await bench.coordinator.consumers.heartbeat(
            ConsumerHeartbeat(
                group="g",
                member_id="m",
                epoch=0,
                rebalance_timeout_ms=1000,
                topics=frozenset({"orders"}),
                owned=frozenset[OwnedPartition](),
            ),
            sees=lambda _topic: True,
        )
    with pytest.raises(GroupOfOtherType):
        await bench.commit()
    await bench.close()


@simulated
async def test_a_group_of_another_type_takes_no_members_of_a_share_group(bench: GroupBench) -> None:
    await bench.open()
    await bench.commit()
    with pytest.raises(GroupOfOtherType):
        await beat(bench)
    with pytest.raises(GroupOfOtherType):
        bench.coordinator.shares.describe("g")
    await bench.close()


# ── failures ──


@simulated
async def test_a_state_that_cannot_be_stored_is_no_state(bench: GroupBench) -> None:
    await bench.open()
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await beat(bench)
    assert starts(bench) == {}
    bench.mend_store()
    assert numbers(await beat(bench)) == [0, 1, 2, 3]
    await bench.close()


@simulated
async def test_a_member_may_take_so_much_memory(bench: GroupBench) -> None:
    await bench.open()
    topics = frozenset(f"{number:0100}" for number in range(bench.settings.group_member_bytes_max // 100 + 1))
    with pytest.raises(InvalidRequest, match="group_member_bytes_max"):
        await beat(bench, topics=topics)
    assert bench.coordinator.group_names() == []
    await bench.close()


@pytest.mark.parametrize("what", ["group", "topic"])
@simulated
async def test_what_is_stored_of_a_group_is_not_stored_again_after_its_deletion(
    bench: GroupBench, what: str
) -> None:
    await bench.open()
    await beat(bench)
    assert await take(bench, "m", 0, 9) == 10
    await beat(bench, epoch=LEAVING)
    # The second one is to be stored after the first, and the deletion comes in between.
    acknowledging = [asyncio.ensure_future(accept(bench, "m", offset, offset)) for offset in (0, 1)]
    await asyncio.sleep(0)
    if what == "group":
        await bench.coordinator.delete_group("g")
    else:
        await bench.coordinator.shares.forget("g", "orders")
    told = await asyncio.gather(*acknowledging, return_exceptions=True)
    await bench.written()
    await bench.reopen()
    assert bench.coordinator.group_names() == []
    assert [type(one) for one in told] == [
        type(None),
        GroupNotFound if what == "group" else CoordinatorNotAvailable,
    ]
    await bench.close()


@pytest.mark.parametrize("what", ["group", "topic"])
@simulated
async def test_a_deletion_that_fails_leaves_the_states_as_they_were(bench: GroupBench, what: str) -> None:
    await bench.open()
    await beat(bench)
    assert await take(bench, "m", 0, 9) == 10
    await accept(bench, "m", 0, 4)
    await beat(bench, epoch=LEAVING)
    before = starts(bench)
    bench.break_store()
    coordinator = bench.coordinator
    with pytest.raises(GroupStoreFailed):
        await (coordinator.delete_group("g") if what == "group" else coordinator.shares.forget("g", "orders"))
    bench.mend_store()
    assert starts(bench) == before
    assert await take(bench, "n", 5, 9) == 5
    await accept(bench, "n", 5, 9)
    await bench.reopen()
    assert starts(bench)["orders", 0] == 10
    await bench.close()
