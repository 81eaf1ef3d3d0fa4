"""Assignment in a share group (KIP-932): every member gets a partition, every partition a member."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from uuid import UUID

import pytest

from app.cluster.consumer_group_store import OwnedPartition
from app.errors import FencedMemberEpoch, GroupFull, InvalidRequest, UnknownMember
from app.groups.base.states import GroupState
from app.groups.share.group import ShareGroup, ShareHeartbeat

ORDERS, EMAILS = UUID(int=1), UUID(int=2)


def heartbeat(member: str, epoch: int = 0, topics: Iterable[str] | None = ("orders",)) -> ShareHeartbeat:
    return ShareHeartbeat(
        group="g", member_id=member, epoch=epoch, topics=None if topics is None else frozenset(topics)
    )


def group_of(partitions: int = 4) -> ShareGroup:
    group = ShareGroup("g")
    group.serve({"orders": [OwnedPartition(ORDERS, number) for number in range(partitions)]})
    return group


def beat(
    group: ShareGroup, member: str, epoch: int = 0, topics: Iterable[str] | None = ("orders",)
) -> tuple[int, list[int] | None]:
    request = heartbeat(member, epoch, topics)
    group.take(request, size_max=100)
    epoch, assigned = group.answer(request)
    return epoch, None if assigned is None else sorted(number for _, number in assigned)


def test_the_first_member_gets_every_partition() -> None:
    group = group_of()
    assert group.state is GroupState.EMPTY
    epoch, assigned = beat(group, "a")
    assert (epoch, assigned) == (group.epoch, [0, 1, 2, 3])
    assert epoch > 0
    assert group.state is GroupState.STABLE
    assert beat(group, "a", epoch, None) == (epoch, None), "it knows"


def test_a_second_member_shares_them_at_once() -> None:
    group = group_of()
    first, _ = beat(group, "a")
    epoch, mine = beat(group, "b")
    assert epoch > first
    rest = beat(group, "a", first, None)
    assert rest == (epoch, [number for number in range(4) if number not in (mine or [])])


def test_members_that_outnumber_the_partitions_share_a_partition() -> None:
    group = group_of(partitions=2)
    told = [beat(group, member)[1] for member in "abcde"]
    told = [beat(group, member)[1] for member in "abcde"]
    assert all(len(numbers or []) == 1 for numbers in told)
    assert {number for numbers in told for number in numbers or []} == {0, 1}


def test_a_lost_answer_is_repeated() -> None:
    group = group_of()
    first, _ = beat(group, "a")
    beat(group, "b")
    epoch, assigned = beat(group, "a", first, None)
    assert beat(group, "a", first, None) == (epoch, assigned), "the previous epoch asks again"
    with pytest.raises(FencedMemberEpoch):
        beat(group, "a", epoch + 1, None)


def test_a_member_that_changes_its_topics_gets_others() -> None:
    group = ShareGroup("g")
    group.serve({"orders": [OwnedPartition(ORDERS, 0)], "emails": [OwnedPartition(EMAILS, 7)]})
    epoch, assigned = beat(group, "a")
    assert assigned == [0]
    assert beat(group, "a", epoch, ["emails"]) == (epoch + 1, [7])
    assert group.is_subscribed("emails")
    assert not group.is_subscribed("orders")


def test_a_member_that_left_is_unknown() -> None:
    group = group_of()
    epoch, _ = beat(group, "a")
    group.remove("a")
    with pytest.raises(UnknownMember):
        beat(group, "a", epoch, None)
    with pytest.raises(UnknownMember):
        group.remove("a")


def test_the_size_of_a_group_is_bounded_and_known_members_may_join_again() -> None:
    group = group_of()
    group.take(heartbeat("a"), size_max=1)
    with pytest.raises(GroupFull):
        group.take(heartbeat("b"), size_max=1)
    group.take(heartbeat("a"), size_max=1)


@pytest.mark.parametrize(
    "request_",
    [
        heartbeat(""),
        heartbeat("a", -2),
        heartbeat("a", 0, None),
        heartbeat("a", 0, ()),
        ShareHeartbeat(group="", member_id="a", epoch=1),
        ShareHeartbeat(group="g", member_id="a", epoch=1, rack_id=""),
    ],
)
def test_a_heartbeat_that_cannot_be(request_: ShareHeartbeat) -> None:
    with pytest.raises(InvalidRequest):
        request_.check()


def test_over_random_changes_nobody_is_idle_and_no_partition_is_left_out() -> None:
    random = Random(1)
    group = ShareGroup("g")
    epochs: dict[str, int] = {}
    topics = {"orders": ORDERS, "emails": EMAILS}
    counts = dict.fromkeys(topics, 0)
    for _ in range(600):
        before = group.epoch
        match random.randrange(4):
            case 0:
                name = random.choice(list(topics))
                counts[name] = random.randrange(6)
                group.serve(
                    {
                        topic: [OwnedPartition(topics[topic], n) for n in range(counts[topic])]
                        for topic in topics
                    }
                )
            case 1 if epochs:
                leaver = random.choice(list(epochs))
                del epochs[leaver]
                group.remove(leaver)
            case 2:
                member = f"m{random.randrange(8)}"
                epochs[member], _ = beat(group, member, 0, random.sample(list(topics), random.randint(1, 2)))
            case _ if epochs:
                member = random.choice(list(epochs))
                epochs[member], _ = beat(group, member, epochs[member], None)
            case _:
                pass
        assert group.epoch >= before
        for member in epochs:
            epochs[member], _ = beat(group, member, epochs[member], None)
        for topic, topic_id in topics.items():
            readers = [one for one in group.members.values() if topic in one.topics]
            read = [part for one in readers for part in one.assigned if part.topic_id == topic_id]
            if readers:
                assert set(read) == {OwnedPartition(topic_id, n) for n in range(counts[topic])}
            loads = [len([part for part in one.assigned if part.topic_id == topic_id]) for one in readers]
            assert not loads or max(loads) - min(loads) <= 1
            outsiders = [one for one in group.members.values() if topic not in one.topics]
            assert all(part.topic_id != topic_id for one in outsiders for part in one.assigned)
