"""Rules of a consumer group one by one: who is fenced, and which commits are accepted at which epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

import pytest

from app.cluster.consumer_group_store import ConsumerMember, MemberState, OwnedPartition
from app.errors import (
    CommitVersionTooOld,
    FencedMemberEpoch,
    StaleMemberEpoch,
    UnknownMember,
)
from app.groups.base.messages import CommitRequest
from app.groups.base.topic_facts import TopicFacts
from app.groups.consumer.commits import check_commit, check_fetch
from app.groups.consumer.group import ConsumerGroup
from app.groups.consumer.messages import ConsumerHeartbeat

TOPIC = UUID(int=1)
P0, P1, P2, P3 = (OwnedPartition(TOPIC, number) for number in range(4))


def facts(names: Iterable[str]) -> dict[str, TopicFacts]:
    return {name: TopicFacts(topic_id=TOPIC, partitions=4) for name in names if name == "t"}


def beat(
    group: ConsumerGroup, member_id: str, epoch: int, owned: Collection[OwnedPartition] | None
) -> ConsumerMember:
    request = ConsumerHeartbeat(
        group="g",
        member_id=member_id,
        epoch=epoch,
        rebalance_timeout_ms=1000,
        topics=frozenset({"t"}),
        owned=None if owned is None else frozenset(owned),
    )
    return group.heartbeat(request, now_ms=0, interval_ms=0, size_max=10).member


@pytest.fixture
def group() -> ConsumerGroup:
    """A member ``a`` that was told to give up two of its four partitions to ``b``."""
    group = ConsumerGroup("g", topics_of=facts)
    beat(group, "a", 0, ())
    beat(group, "b", 0, ())
    told = beat(group, "a", 2, (P0, P1, P2, P3))
    assert (told.epoch, told.state, set(told.assigned)) == (2, MemberState.UNREVOKED_PARTITIONS, {P0, P1})
    return group


def test_partitions_move_when_their_member_no_longer_has_them(group: ConsumerGroup) -> None:
    # It says nothing of what it has, so it has it still.
    assert beat(group, "a", 2, None).epoch == 2
    assert beat(group, "a", 2, (P0, P1, P2)).epoch == 2
    assert beat(group, "b", 3, ()).assigned == {}
    assert beat(group, "a", 2, (P0, P1)).epoch == 3
    assert set(beat(group, "b", 3, ()).assigned) == {P2, P3}


def test_a_lost_answer_is_repeated_to_a_member_that_has_nothing_else(group: ConsumerGroup) -> None:
    given_up = beat(group, "a", 2, (P0, P1))
    for _ in range(3):
        assert beat(group, "a", 2, (P0, P1)) == given_up
    beat(group, "b", 3, ())
    for owned in ((P0, P1, P2), (P3,), None):
        with pytest.raises(FencedMemberEpoch):
            beat(group, "a", 2, owned)
    with pytest.raises(FencedMemberEpoch):
        beat(group, "a", 1, ())
    with pytest.raises(FencedMemberEpoch):
        beat(group, "a", 4, (P0, P1))


def commit(
    group: ConsumerGroup, epoch: int, *partitions: OwnedPartition, member: str = "a", has_epoch: bool = True
) -> str | None:
    request = CommitRequest(
        group="g", generation=epoch, member_id=member, offsets=(), has_member_epoch=has_epoch
    )
    return check_commit(group, request, partitions)


def test_an_older_epoch_commits_what_the_member_has_had_since_then(group: ConsumerGroup) -> None:
    beat(group, "a", 2, (P0, P1))
    beat(group, "b", 3, ())
    assert commit(group, 3, P0, P3) == "a"
    assert commit(group, 2, P0, P1) == "a"
    for partitions in ((P2,), (P0, P2)):
        with pytest.raises(StaleMemberEpoch):
            commit(group, 2, *partitions)
    with pytest.raises(StaleMemberEpoch):
        commit(group, 1, P0)
    with pytest.raises(StaleMemberEpoch):
        commit(group, 4, P0)
    assert commit(group, 3, P2, member="b") == "b"
    with pytest.raises(StaleMemberEpoch):
        commit(group, 2, P2, member="b")


def test_partitions_that_are_being_given_up_are_committed_until_they_are(group: ConsumerGroup) -> None:
    # Meanwhile the group moves on, and so does the member: it has yet more to give up.
    for newcomer in ("c", "d"):
        beat(group, newcomer, 0, ())
    beat(group, "a", 2, (P0, P1))
    told = group.members["a"]
    assert (told.epoch, told.state) == (3, MemberState.UNREVOKED_PARTITIONS)
    (revoked,) = told.revoking
    assert commit(group, 3, revoked) == commit(group, 2, revoked) == "a"
    beat(group, "a", 3, told.assigned)
    with pytest.raises(StaleMemberEpoch):
        commit(group, 3, revoked)


def test_commits_without_a_member_or_an_epoch(group: ConsumerGroup) -> None:
    with pytest.raises(UnknownMember):
        commit(group, -1, P0, member="")
    with pytest.raises(UnknownMember):
        commit(group, -1, P0)
    with pytest.raises(UnknownMember):
        commit(group, 2, P0, member="a-stranger")
    with pytest.raises(CommitVersionTooOld):
        commit(group, 2, P0, has_epoch=False)
    staged = CommitRequest(group="g", offsets=())
    assert check_commit(group, staged, [P0], is_transactional=True) is None
    for member_id in list(group.members):
        group.remove(member_id, emptied_at_ms=0)
    assert commit(group, -1, P0, member="") is None


def test_a_fetch_needs_the_epoch_of_the_member_if_it_names_one(group: ConsumerGroup) -> None:
    check_fetch(group, None, -1)
    check_fetch(group, "a", 2)
    for epoch in (1, 3):
        with pytest.raises(StaleMemberEpoch):
            check_fetch(group, "a", epoch)
    with pytest.raises(UnknownMember):
        check_fetch(group, "a-stranger", 2)
