"""Consumer groups over raw frames: membership, rebalances, committed offsets, what an administrator does."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from stele.wire.kafka.groups import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    FIND_COORDINATOR_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    LIST_GROUPS_API,
    SYNC_GROUP_API,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

from tests.support.batches import batch_of
from tests.support.kafka_peer import (
    WITHOUT_RETENTION,
    KafkaPeer,
    array,
    blob,
    create_topic,
    delete_topic,
    fetch,
    framed,
    only_partition,
    produce,
    put,
    records_in,
    text,
)

JOIN, SYNC, LEAVE = JOIN_GROUP_API.versions[1], SYNC_GROUP_API.versions[1], LEAVE_GROUP_API.versions[1]
COMMIT_BY_NAME, FETCH_BY_NAME = 9, 9
SESSION_MS = 30_000
PROTOCOL = "range"


ENVIRONMENT = WITHOUT_RETENTION


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(broker) as peer:
        yield peer


def subscription(*topics: str) -> bytes:
    """What a consumer says when it joins: version, topics, no user data."""
    return struct.pack(">h", 0) + array(*map(text, topics)) + blob(None)


def joining(
    group: str, member_id: str = "", *, instance_id: str | None = None, metadata: bytes = b""
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
    )


def join(peer: KafkaPeer, group: str, version: int = JOIN, **more: Any) -> JoinGroupResponse:
    """Join in the two steps of KIP-394; fails if it does not succeed."""
    first = peer.call(joining(group, **more), version)
    if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        assert first.error_code == 0, first
        return first
    joined = peer.call(joining(group, first.member_id, **more), version)
    assert joined.error_code == 0, joined
    return joined


def syncing(
    group: str, joined: JoinGroupResponse, assignments: dict[str, bytes] | None = None
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name=PROTOCOL,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=assignment)
            for member, assignment in (assignments or {}).items()
        ],
    )


def stable(peer: KafkaPeer, group: str, **more: Any) -> JoinGroupResponse:
    """The only member of a group, with its assignment."""
    joined = join(peer, group, **more)
    synced = peer.call(syncing(group, joined, {joined.member_id: b"all"}), SYNC)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return joined


def beat(
    peer: KafkaPeer, group: str, generation: int, member_id: str, *, instance_id: str | None = None
) -> int:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )
    return peer.call(request, 4).error_code


def until(look: Callable[[], bool]) -> None:
    """Ask until it is so: what another connection asked for is about to happen, and nothing else tells."""
    for _ in range(10_000):
        if look():
            return
    raise AssertionError("it never happened")


def leaving(group: str, *members: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member) for member in members])


def described(peer: KafkaPeer, group: str, version: int = 5) -> DescribedGroup:
    (found,) = peer.call(DescribeGroupsRequest(groups=[group]), version).groups
    return found


# ── the life of a member in the first version of everything, by hand ──


def test_a_consumer_lives_and_leaves_over_frames_made_by_hand(broker: BrokerProcess, peer: KafkaPeer) -> None:
    put(peer, "hand", b"a", b"b")
    group, head = text("by-hand"), struct.pack(">i", 7)

    coordinator = peer.ask(framed(10, 0, group))
    assert coordinator == head + bytes(2) + struct.pack(">i", 1) + text(broker.host) + struct.pack(
        ">i", broker.kafka_port
    )

    joined = peer.ask(
        framed(
            11,
            0,
            group
            + struct.pack(">i", SESSION_MS)
            + text("")
            + text("consumer")
            + array(text("range") + blob(subscription("hand"))),
        )
    )
    assert joined[:17] == head + bytes(2) + struct.pack(">i", 1) + text("range")
    (size,) = struct.unpack_from(">h", joined, 17)
    member = joined[17 : 19 + size]
    assert size > 0
    # The leader is this member, and sees what it brought along.
    assert joined[17:] == member + member + array(member + blob(subscription("hand")))

    generation = struct.pack(">i", 1)
    assignment = struct.pack(">h", 0) + array(text("hand") + array(bytes(4))) + blob(None)
    synced = peer.ask(framed(14, 0, group + generation + member + array(member + blob(assignment))))
    assert synced == head + bytes(2) + blob(assignment)

    asked = array(text("hand") + array(bytes(4)))
    nothing = peer.ask(framed(9, 0, group + asked))
    assert nothing == head + array(
        text("hand") + array(bytes(4) + struct.pack(">q", -1) + text("") + bytes(2))
    )

    assert peer.ask(framed(12, 0, group + generation + member)) == head + bytes(2)

    commit = array(text("hand") + array(bytes(4) + struct.pack(">q", 2) + text("größe")))
    committed = peer.ask(framed(8, 2, group + generation + member + struct.pack(">q", -1) + commit))
    assert committed == head + array(text("hand") + array(bytes(4) + bytes(2)))

    fetched = peer.ask(framed(9, 0, group + asked))
    assert fetched == head + array(
        text("hand") + array(bytes(4) + struct.pack(">q", 2) + text("größe") + bytes(2))
    )

    stale = peer.ask(framed(12, 0, group + struct.pack(">i", 0) + member))
    assert stale == head + struct.pack(">h", 22)
    assert peer.ask(framed(13, 0, group + member)) == head + bytes(2)
    assert peer.ask(framed(13, 0, group + member)) == head + struct.pack(">h", 25)
    assert peer.ask(framed(12, 0, group + generation + member)) == head + struct.pack(">h", 25)


# ── FindCoordinator ──


@pytest.mark.parametrize("version", range(FIND_COORDINATOR_API.versions[1] + 1))
def test_the_coordinator_of_every_group_is_this_broker(
    broker: BrokerProcess, peer: KafkaPeer, version: int
) -> None:
    if version < 4:
        found = [peer.call(FindCoordinatorRequest(key="g"), version)]
    else:
        request = FindCoordinatorRequest(coordinator_keys=["g", "h"])
        found = peer.call(request, version).coordinators
        assert [one.key for one in found] == ["g", "h"]
    for one in found:
        assert (one.error_code, one.host, one.port) == (0, broker.host, broker.kafka_port)


@pytest.mark.parametrize("version", range(1, FIND_COORDINATOR_API.versions[1] + 1))
def test_this_broker_coordinates_every_transactional_id(
    peer: KafkaPeer, broker: BrokerProcess, version: int
) -> None:
    request = FindCoordinatorRequest(key="t", key_type=1, coordinator_keys=["t"])
    answer = peer.call(request, version)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.host, found.port) == (0, broker.host, broker.kafka_port)


@pytest.mark.parametrize("version", range(1, FIND_COORDINATOR_API.versions[1] + 1))
@pytest.mark.parametrize("key_type", [2, 3, -1])
def test_coordinators_of_other_kinds_are_refused(peer: KafkaPeer, version: int, key_type: int) -> None:
    request = FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k"])
    answer = peer.call(request, version)
    refused = answer if version < 4 else answer.coordinators[0]
    assert (refused.error_code, refused.node_id) == (ErrorCode.INVALID_REQUEST, -1)


# ── membership ──


@pytest.mark.parametrize("version", range(JOIN + 1))
def test_a_new_member_gets_an_id_first_from_version_4_on(peer: KafkaPeer, version: int) -> None:
    group = f"new-{version}"
    first = peer.call(joining(group), version)
    if version < 4:
        assert (first.error_code, first.generation_id) == (0, 1)
        member = first.member_id
    else:
        assert (first.error_code, first.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        member = first.member_id
        assert member
        second = peer.call(joining(group, member), version)
        assert (second.error_code, second.generation_id, second.member_id) == (0, 1, member)
        assert (second.leader, [one.member_id for one in second.members]) == (member, [member])
    unknown = peer.call(joining(group, "somebody else"), version)
    assert (unknown.error_code, unknown.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "somebody else")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("version", [0, JOIN])
def test_a_join_that_cannot_be_is_refused_and_leaves_no_group(
    peer: KafkaPeer, changed: dict[str, Any], code: ErrorCode, version: int
) -> None:
    request = joining("refused")
    for name, value in changed.items():
        setattr(request, name, value)
    assert peer.call(request, version).error_code == code
    assert described(peer, "refused").group_state == "Dead"


def test_a_second_member_makes_a_rebalance_that_the_first_hears_of(peer: KafkaPeer, other: KafkaPeer) -> None:
    first = stable(peer, "two")
    assert beat(peer, "two", 1, first.member_id) == 0
    waiting = other.call(joining("two"), JOIN)
    other.post(joining("two", waiting.member_id), JOIN)
    until(lambda: beat(peer, "two", 1, first.member_id) == ErrorCode.REBALANCE_IN_PROGRESS)

    again = peer.call(joining("two", first.member_id), JOIN)
    _, second = other.next_answer()

    assert (again.generation_id, second.generation_id) == (2, 2)
    assert again.leader == second.leader == first.member_id
    assert {one.member_id for one in again.members} == {first.member_id, second.member_id}
    assert second.members == [], "only the leader is told of the others"

    other.post(syncing("two", second), SYNC)
    shares = {first.member_id: b"left", second.member_id: b"right"}
    assert peer.call(syncing("two", again, shares), SYNC).assignment == b"left"
    _, synced = other.next_answer()
    assert (synced.error_code, synced.protocol_type, synced.protocol_name, synced.assignment) == (
        0,
        "consumer",
        PROTOCOL,
        b"right",
    )
    assert beat(peer, "two", 1, first.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert beat(peer, "two", 2, first.member_id) == 0
    state = described(peer, "two")
    assert (state.group_state, state.protocol_data, len(state.members)) == ("Stable", PROTOCOL, 2)

    left = other.call(leaving("two", second.member_id, "stranger"), LEAVE)
    assert [one.error_code for one in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert beat(peer, "two", 2, first.member_id) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_comes_back_keeps_its_share_and_fences_its_former_self(
    peer: KafkaPeer, other: KafkaPeer
) -> None:
    first = stable(peer, "static", instance_id="pod-1")
    back = other.call(joining("static", instance_id="pod-1"), JOIN)
    assert (back.error_code, back.generation_id) == (0, first.generation_id), "without a rebalance"
    assert back.member_id != first.member_id
    assert back.skip_assignment
    assert other.call(syncing("static", back), SYNC).assignment == b"all"
    fenced = beat(peer, "static", 1, first.member_id, instance_id="pod-1")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    assert beat(other, "static", 1, back.member_id, instance_id="pod-1") == 0
    (member,) = described(peer, "static").members
    assert member.group_instance_id == "pod-1"


@pytest.mark.parametrize("version", range(3, LEAVE + 1))
def test_an_administrator_removes_a_static_member_by_its_instance_id(peer: KafkaPeer, version: int) -> None:
    group = f"removed-{version}"
    stable(peer, group, instance_id="pod-1")
    request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id="pod-1")])
    answer = peer.call(request, version)
    assert (answer.error_code, [one.error_code for one in answer.members]) == (0, [0])
    assert described(peer, group).group_state == "Empty"


def test_a_sync_with_another_protocol_or_generation_is_refused(peer: KafkaPeer) -> None:
    joined = join(peer, "strict")
    wrong_protocol = syncing("strict", joined)
    wrong_protocol.protocol_name = "sticky"
    assert peer.call(wrong_protocol, SYNC).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong_generation = syncing("strict", joined)
    wrong_generation.generation_id = 9
    assert peer.call(wrong_generation, SYNC).error_code == ErrorCode.ILLEGAL_GENERATION
    for field in ("protocol_type", "protocol_name"):
        without = syncing("strict", joined)
        # Before anything else, as in Kafka: the generation is wrong as well.
        without.generation_id = 9
        setattr(without, field, None)
        assert peer.call(without, SYNC).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger = syncing("strict", joined)
    stranger.member_id = "stranger"
    assert peer.call(stranger, SYNC).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_pipelined_after_a_parked_join_take_effect_and_are_answered_after_it(
    broker: BrokerProcess, peer: KafkaPeer, other: KafkaPeer
) -> None:
    create_topic(peer, "behind")
    first = stable(peer, "waits")
    waiting = other.call(joining("waits"), JOIN)
    correlations = other.post_all(
        [
            (joining("waits", waiting.member_id), JOIN),
            (produce("behind", batch_of([b"x"])), 9),
            (fetch("behind", 0), 12),
        ]
    )
    with KafkaPeer(broker) as witness:
        seen = only_partition(witness.call(fetch("behind", 0, max_wait_ms=SESSION_MS), 12))
        assert records_in(seen.records) == [(0, b"x")], "while the join waits"
    peer.call(joining("waits", first.member_id), JOIN)
    answers = [other.next_answer() for _ in range(3)]
    assert [correlation for correlation, _ in answers] == correlations
    assert answers[0][1].generation_id == 2
    assert records_in(only_partition(answers[2][1]).records) == [(0, b"x")]


def test_a_member_that_vanishes_while_it_joins_does_not_hold_up_those_that_answer(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    first = stable(peer, "vanishing")
    gone = KafkaPeer(broker)
    waiting = gone.call(joining("vanishing"), JOIN)
    gone.post(joining("vanishing", waiting.member_id), JOIN)
    until(lambda: beat(peer, "vanishing", 1, first.member_id) == ErrorCode.REBALANCE_IN_PROGRESS)
    gone.reset()
    again = peer.call(joining("vanishing", first.member_id), JOIN)
    assert (again.error_code, again.generation_id) == (0, 2)


def test_a_join_that_waits_is_answered_when_the_broker_closes() -> None:
    with (
        run_broker(environment=WITHOUT_RETENTION) as broker,
        KafkaPeer(broker) as peer,
        KafkaPeer(broker) as other,
    ):
        first = stable(peer, "closing")
        waiting = other.call(joining("closing"), JOIN)
        other.post(joining("closing", waiting.member_id), JOIN)
        until(lambda: beat(peer, "closing", 1, first.member_id) == ErrorCode.REBALANCE_IN_PROGRESS)
        os.kill(broker.pid, signal.SIGTERM)
        _, answer = other.next_answer()
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert other.rest() == b""
        assert broker.stop() == 0


# ── committed offsets ──


def commit(
    peer: KafkaPeer,
    group: str,
    topic: str | bytes,
    *offsets: tuple[int, int, str | None],
    generation: int = -1,
    member_id: str = "",
    version: int = COMMIT_BY_NAME,
) -> list[int]:
    """``(partition, offset, metadata)`` each; the error codes."""
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic if isinstance(topic, str) else "",
                topic_id=bytes(16) if isinstance(topic, str) else topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                    for partition, offset, metadata in offsets
                ],
            )
        ],
    )
    (done,) = peer.call(request, version).topics
    return [one.error_code for one in done.partitions]


def committed(
    peer: KafkaPeer, group: str, topic: str | bytes | None, *partitions: int, version: int = FETCH_BY_NAME
) -> list[tuple[str, int, int, str | None, int]]:
    """``(topic, partition, offset, metadata, error code)``; no topic asks for all there are."""
    if version < 8:
        assert not isinstance(topic, bytes)
        request = OffsetFetchRequest(
            group_id=group,
            topics=None
            if topic is None
            else [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)],
        )
        topics = peer.call(request, version).topics
    else:
        asked = OffsetFetchRequestTopics(
            name=topic if isinstance(topic, str) else "",
            topic_id=topic if isinstance(topic, bytes) else bytes(16),
            partition_indexes=partitions,
        )
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None if topic is None else [asked])]
        )
        (found,) = peer.call(request, version).groups
        assert (found.group_id, found.error_code) == (group, 0)
        topics = found.topics
    return [
        (one.name, p.partition_index, p.committed_offset, p.metadata, p.error_code)
        for one in topics
        for p in one.partitions
    ]


@pytest.mark.parametrize("version", range(COMMIT_BY_NAME + 1))
def test_offsets_are_committed_and_fetched_in_every_version(peer: KafkaPeer, version: int) -> None:
    topic, group = f"read-{version}", f"reader-{version}"
    create_topic(peer, topic, partitions=3)
    assert commit(peer, group, topic, (0, 5, "where I was"), (1, 0, None), version=version) == [0, 0]
    expected = [(topic, 0, 5, "where I was", 0), (topic, 1, 0, "", 0), (topic, 2, -1, "", 0)]
    for reading in range(FETCH_BY_NAME + 1):
        assert committed(peer, group, topic, 0, 1, 2, version=reading) == expected
    for reading in range(2, FETCH_BY_NAME + 1):
        assert committed(peer, group, None, version=reading) == expected[:2]


def test_offsets_are_committed_and_fetched_by_the_id_of_a_topic(peer: KafkaPeer) -> None:
    topic_id = create_topic(peer, "read-by-id")
    assert commit(peer, "id-reader", topic_id, (0, 3, "m"), version=10) == [0]
    assert committed(peer, "id-reader", topic_id, 0, version=10) == [("", 0, 3, "m", 0)]
    assert committed(peer, "id-reader", "read-by-id", 0) == [("read-by-id", 0, 3, "m", 0)]
    unknown = b"0123456789abcdef"
    assert commit(peer, "id-reader", unknown, (0, 3, "m"), version=10) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert committed(peer, "id-reader", unknown, 0, version=10) == [
        ("", 0, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
    ]


def test_each_offset_of_a_commit_is_decided_for_itself(peer: KafkaPeer) -> None:
    create_topic(peer, "some-fail")
    codes = commit(peer, "careful", "some-fail", (0, 1, "x" * 4096), (0, 2, "x" * 4097), (7, 1, None))
    assert codes == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(peer, "careful", "some-fail", 0) == [("some-fail", 0, 1, "x" * 4096, 0)]


def test_only_members_of_the_current_generation_commit_into_a_group_that_has_members(
    peer: KafkaPeer,
) -> None:
    create_topic(peer, "guarded")
    joined = stable(peer, "guarding")

    def code(generation: int, member_id: str) -> int:
        (found,) = commit(
            peer, "guarding", "guarded", (0, 1, None), generation=generation, member_id=member_id
        )
        return found

    assert code(1, joined.member_id) == 0
    assert code(0, joined.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert code(2, joined.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert code(1, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(-1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    peer.call(leaving("guarding", joined.member_id), LEAVE)
    assert code(-1, "") == 0, "an empty group takes an administrator's word"
    (refused,) = commit(peer, "unknown group", "guarded", (0, 1, None), generation=3, member_id="m")
    assert refused == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_loses_its_offsets(peer: KafkaPeer) -> None:
    create_topic(peer, "short-lived")
    commit(peer, "survivor", "short-lived", (0, 1, None))
    delete_topic(peer, "short-lived")
    create_topic(peer, "short-lived")
    assert committed(peer, "survivor", "short-lived", 0) == [("short-lived", 0, -1, "", 0)]


def test_committed_offsets_are_there_after_a_kill_and_a_restart(tmp_path: Path) -> None:
    with run_broker(tmp_path, environment=WITHOUT_RETENTION) as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "kept", partitions=2)
            joined = stable(peer, "keeper")
            for number in range(20):
                codes = commit(
                    peer,
                    "keeper",
                    "kept",
                    (number % 2, number, f"at {number}"),
                    generation=1,
                    member_id=joined.member_id,
                )
                assert codes == [0]
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            assert committed(peer, "keeper", None) == [
                ("kept", 0, 18, "at 18", 0),
                ("kept", 1, 19, "at 19", 0),
            ]
            assert beat(peer, "keeper", 1, joined.member_id) == 0, "the member did not notice"


# ── administration ──


@pytest.mark.parametrize("version", range(LIST_GROUPS_API.versions[1] + 1))
def test_groups_are_listed_by_state_and_type(peer: KafkaPeer, version: int) -> None:
    stable(peer, f"lively-{version}")
    create_topic(peer, f"for-quiet-{version}")
    commit(peer, f"quiet-{version}", f"for-quiet-{version}", (0, 1, None))

    def listed(states: list[str] | None = None, types: list[str] | None = None) -> dict[str, tuple[str, str]]:
        request = ListGroupsRequest(states_filter=states or (), types_filter=types or ())
        return {
            one.group_id: (one.group_state, one.protocol_type) for one in peer.call(request, version).groups
        }

    every = listed()
    told = version >= 4
    assert every[f"lively-{version}"] == ("Stable" if told else "", "consumer")
    assert every[f"quiet-{version}"] == ("Empty" if told else "", "")
    if version >= 4:
        assert f"lively-{version}" not in listed(["Empty"])
        assert f"quiet-{version}" in listed(["Empty", "Dead"])
    if version >= 5:
        assert listed(types=["classic"]) == listed()
        assert listed(types=["share"]) == {}


@pytest.mark.parametrize("version", range(DESCRIBE_GROUPS_API.versions[1] + 1))
def test_groups_are_described_and_one_that_is_not_there_is_dead(peer: KafkaPeer, version: int) -> None:
    group = f"described-{version}"
    joined = stable(peer, group, metadata=subscription("t"))
    found = described(peer, group, version)
    assert (found.error_code, found.group_state, found.protocol_type) == (0, "Stable", "consumer")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (
        joined.member_id,
        "a peer",
        "/127.0.0.1",
    )
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"all")
    missing = described(peer, "nobody knows it", version)
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", range(DELETE_GROUPS_API.versions[1] + 1))
def test_a_group_is_deleted_when_it_is_empty(peer: KafkaPeer, version: int) -> None:
    group, topic = f"doomed-{version}", f"of-doomed-{version}"
    create_topic(peer, topic)
    joined = stable(peer, group)
    commit(peer, group, topic, (0, 1, None), generation=1, member_id=joined.member_id)

    def delete(*groups: str) -> list[tuple[str, int]]:
        request = DeleteGroupsRequest(groups_names=groups)
        return [(one.group_id, one.error_code) for one in peer.call(request, version).results]

    assert delete(group, "missing") == [
        (group, ErrorCode.NON_EMPTY_GROUP),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    peer.call(leaving(group, joined.member_id), LEAVE)
    assert delete(group) == [(group, 0)]
    assert delete(group) == [(group, ErrorCode.GROUP_ID_NOT_FOUND)]
    assert committed(peer, group, topic, 0) == [(topic, 0, -1, "", 0)]


def test_offsets_of_topics_without_subscribers_are_deleted(peer: KafkaPeer) -> None:
    for topic in ("subscribed", "abandoned"):
        create_topic(peer, topic)
    joined = stable(peer, "reading", metadata=subscription("subscribed"))
    for topic in ("subscribed", "abandoned"):
        commit(peer, "reading", topic, (0, 1, None), generation=1, member_id=joined.member_id)

    def delete(group: str, topics: Sequence[str] = ("subscribed", "abandoned"), partition: int = 0) -> Any:
        return peer.call(
            OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                    )
                    for topic in topics
                ],
            ),
            0,
        )

    done = delete("reading")
    assert (done.error_code, [one.partitions[0].error_code for one in done.topics]) == (
        0,
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0],
    )
    assert committed(peer, "reading", None) == [("subscribed", 0, 1, "", 0)]
    unknown = delete("reading", ("missing", "abandoned"))
    assert [one.partitions[0].error_code for one in unknown.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
    ]
    unknown = delete("reading", ("abandoned",), partition=1)
    assert [one.partitions[0].error_code for one in unknown.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    missing = delete("nobody")
    assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
