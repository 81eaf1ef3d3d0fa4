"""Groups whose partitions the broker assigns (KIP-848), over the Kafka protocol and with its clients."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from confluent_kafka import Consumer
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from stele.wire.kafka.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from stele.wire.kafka.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
)

from load.apache_kafka import libs, run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.kafka_peer import KafkaPeer, create_topic, put
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

PATIENCE_S = 60.0
_names = count(1)


@pytest.fixture
def topic(peer: KafkaPeer) -> str:
    name = f"topic-{next(_names)}"
    create_topic(peer, name, 4)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_names)}"


class Member:
    """A member that heartbeats when a test says so, and does at once what it is told."""

    def __init__(self, peer: KafkaPeer, group: str, topic: str, **fields: Any) -> None:
        self.peer, self.group, self.topic, self.fields = peer, group, topic, fields
        self.member_id = str(fields.pop("member_id", uuid4()))
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    def request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        joining: Mapping[str, Any] = (
            {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self.topic], "topic_partitions": ()}
            if self.epoch == 0
            else {"topic_partitions": self._reported()}
        )
        known: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
        }
        return ConsumerGroupHeartbeatRequest(**{**known, **joining, **self.fields, **fields})

    def _reported(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in self.owned.items()]

    def beat(self, **fields: Any) -> Any:
        answer = self.peer.call(self.request(**fields), 1)
        if not answer.error_code:
            self.epoch = max(0, answer.member_epoch)
            if answer.assignment is not None:
                self.owned = {
                    one.topic_id: list(one.partitions) for one in answer.assignment.topic_partitions
                }
        return answer

    @property
    def partitions(self) -> list[int]:
        return sorted(number for numbers in self.owned.values() for number in numbers)


def settle(*members: Member) -> None:
    """Let all members heartbeat until each has its target."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for member in members:
            assert member.beat().error_code == E.NONE
        described = describe(members[0].peer, members[0].group)
        if described.group_state == "Stable":
            return
        assert time.monotonic() < deadline


def describe(peer: KafkaPeer, group: str) -> Any:
    (described,) = peer.call(
        ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
        1,
    ).groups
    return described


def commit(peer: KafkaPeer, member: Member, *, epoch: int, version: int = 9, partition: int = 0) -> int:
    answer = peer.call(
        OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=epoch,
            member_id=member.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=member.topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=7, committed_metadata=None
                        )
                    ],
                )
            ],
        ),
        version,
    )
    return answer.topics[0].partitions[0].error_code


def fetched_code(peer: KafkaPeer, group: str, member_id: str | None, epoch: int) -> int:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=None)]
    )
    return peer.call(request, 9).groups[0].error_code


# ── members ──


def test_the_first_member_gets_everything_at_epoch_2(peer: KafkaPeer, group: str, topic: str) -> None:
    member = Member(peer, group, topic)
    answer = member.beat()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, member.member_id, 2)
    # Others may join together with it.
    assert answer.heartbeat_interval_ms == 1000
    assert member.beat().heartbeat_interval_ms == 5000
    assert member.partitions == [0, 1, 2, 3]
    # Nothing has changed, so nothing is said.
    assert member.beat().assignment is None


def test_a_second_member_gets_its_half_when_the_first_has_given_it_up(
    peer: KafkaPeer, group: str, topic: str
) -> None:
    first, second = Member(peer, group, topic), Member(peer, group, topic)
    first.beat()
    second.beat()
    assert second.partitions == []
    settle(first, second)
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
    assert len(first.partitions) == len(second.partitions) == 2
    described = describe(peer, group)
    assert (described.group_state, described.assignor_name) == ("Stable", "uniform")
    assert described.group_epoch == described.assignment_epoch == first.epoch == second.epoch
    assert {member.member_type for member in described.members} == {1}
    assert {member.member_id: member.target_assignment for member in described.members} == {
        member.member_id: member.assignment for member in described.members
    }

    assert second.beat(member_epoch=-1).member_epoch == -1
    settle(first)
    assert first.partitions == [0, 1, 2, 3]
    assert first.beat(member_epoch=-1).error_code == E.NONE
    assert describe(peer, group).group_state == "Empty"


def test_a_lost_answer_is_asked_for_again(peer: KafkaPeer, group: str, topic: str) -> None:
    member = Member(peer, group, topic)
    joining = member.request()
    lost, again = peer.call(joining, 1), peer.call(joining, 1)
    assert again == lost
    assert again.assignment is not None


def test_version_0_names_its_members(peer: KafkaPeer, group: str, topic: str) -> None:
    member = Member(peer, group, topic, member_id="")
    answer = peer.call(member.request(), 0)
    assert answer.error_code == E.NONE
    assert UUID(answer.member_id)


def test_a_regular_expression_finds_topics_of_today_and_of_tomorrow(peer: KafkaPeer, group: str) -> None:
    prefix = f"regex-{next(_names)}"
    create_topic(peer, f"{prefix}-one", 1)
    member = Member(peer, group, "", subscribed_topic_names=None, subscribed_topic_regex=f"{prefix}-.*")
    member.beat()
    assert member.partitions == [0]
    create_topic(peer, f"{prefix}-two", 2)
    del member.fields["subscribed_topic_names"], member.fields["subscribed_topic_regex"]
    settle(member)
    deadline = time.monotonic() + PATIENCE_S
    while member.partitions != [0, 0, 1]:
        assert time.monotonic() < deadline
        member.beat()


def test_a_regular_expression_matches_internal_topics_as_in_kafka(peer: KafkaPeer, group: str) -> None:
    member = Member(peer, group, "", subscribed_topic_names=None, subscribed_topic_regex="__consumer_.*")
    member.beat()
    assert member.partitions == list(range(50))


def test_a_static_member_comes_back_to_its_partitions(peer: KafkaPeer, group: str, topic: str) -> None:
    first = Member(peer, group, topic, instance_id="one")
    second = Member(peer, group, topic)
    first.beat()
    second.beat()
    settle(first, second)
    mine, epoch = first.partitions, describe(peer, group).group_epoch
    intruder = Member(peer, group, topic, instance_id="one")
    assert intruder.beat().error_code == E.UNRELEASED_INSTANCE_ID
    assert first.beat(member_epoch=-2).member_epoch == -2
    assert intruder.beat().error_code == E.NONE
    assert intruder.partitions == mine
    assert describe(peer, group).group_epoch == epoch
    assert first.beat(member_epoch=epoch, topic_partitions=()).error_code == E.FENCED_INSTANCE_ID


# ── refusals ──


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ({"topic_partitions": None}, E.INVALID_REQUEST),
        ({"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[0])]}, E.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, E.INVALID_REQUEST),
        ({"member_id": ""}, E.INVALID_REQUEST),
        ({"instance_id": ""}, E.INVALID_REQUEST),
        ({"rack_id": ""}, E.INVALID_REQUEST),
        ({"member_epoch": -3}, E.INVALID_REQUEST),
        ({"member_epoch": -2}, E.INVALID_REQUEST),
        ({"group_id": ""}, E.INVALID_REQUEST),
        ({"server_assignor": "no-such"}, E.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "a("}, E.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, E.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, E.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_heartbeat_that_cannot_be(peer: KafkaPeer, topic: str, fields: dict[str, Any], code: E) -> None:
    member = Member(peer, "no-such-group", topic)
    answer = peer.call(ConsumerGroupHeartbeatRequest(**{**vars_of(member.request()), **fields}), 1)
    assert (answer.error_code, answer.assignment) == (code, None)
    assert answer.error_message


def vars_of(request: ConsumerGroupHeartbeatRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


def test_members_that_are_unknown_or_at_another_epoch(peer: KafkaPeer, group: str, topic: str) -> None:
    member = Member(peer, group, topic)
    member.beat()
    assert member.beat(member_epoch=9).error_code == E.FENCED_MEMBER_EPOCH
    assert member.beat(member_epoch=1).error_code == E.FENCED_MEMBER_EPOCH
    assert member.beat(member_id="a-stranger").error_code == E.UNKNOWN_MEMBER_ID
    assert member.beat(instance_id="a-stranger").error_code == E.UNKNOWN_MEMBER_ID


# ── offsets ──


def test_offsets_are_committed_and_fetched_with_the_epoch_of_the_member(
    peer: KafkaPeer, group: str, topic: str
) -> None:
    member = Member(peer, group, topic)
    assert commit(peer, member, epoch=1) == E.GROUP_ID_NOT_FOUND
    assert commit(peer, member, epoch=1, version=8) == E.ILLEGAL_GENERATION
    member.beat()
    since = member.epoch
    assert commit(peer, member, epoch=since) == E.NONE
    assert commit(peer, member, epoch=since, version=8) == E.UNSUPPORTED_VERSION
    assert commit(peer, member, epoch=since + 1) == E.STALE_MEMBER_EPOCH
    assert commit(peer, member, epoch=-1) == E.UNKNOWN_MEMBER_ID
    stranger = Member(peer, group, topic)
    assert commit(peer, stranger, epoch=since) == E.UNKNOWN_MEMBER_ID

    assert fetched_code(peer, group, None, -1) == E.NONE
    assert fetched_code(peer, group, member.member_id, since) == E.NONE
    assert fetched_code(peer, group, member.member_id, since - 1) == E.STALE_MEMBER_EPOCH
    assert fetched_code(peer, group, "a-stranger", since) == E.UNKNOWN_MEMBER_ID

    stranger.beat()
    settle(member, stranger)
    kept, (given, *_) = member.partitions[0], stranger.partitions
    # A commit that was sent before the heartbeat arrives after it.
    assert commit(peer, member, epoch=since, partition=kept) == E.NONE
    assert commit(peer, member, epoch=since, partition=given) == E.STALE_MEMBER_EPOCH

    for one in (member, stranger):
        one.beat(member_epoch=-1)
    assert commit(peer, member, epoch=-1) == E.NONE


# ── administration ──


def test_groups_are_listed_described_and_deleted_by_their_type(
    peer: KafkaPeer, group: str, topic: str
) -> None:
    member = Member(peer, group, topic)
    member.beat()
    listed = peer.call(ListGroupsRequest(states_filter=["stable"], types_filter=["Consumer"]), 5)
    assert [(one.group_type, one.group_state) for one in listed.groups if one.group_id == group] == [
        ("consumer", "Stable")
    ]
    for version, code in ((5, E.NONE), (6, E.GROUP_ID_NOT_FOUND)):
        (described,) = peer.call(DescribeGroupsRequest(groups=[group]), version).groups
        assert (described.error_code, described.group_state) == (code, "Dead")
    assert describe(peer, "no-such-group").error_code == E.GROUP_ID_NOT_FOUND
    assert describe(peer, "").error_code == E.INVALID_GROUP_ID
    deletion = DeleteGroupsRequest(groups_names=[group])
    assert peer.call(deletion, 2).results[0].error_code == E.NON_EMPTY_GROUP
    member.beat(member_epoch=-1)
    assert peer.call(deletion, 2).results[0].error_code == E.NONE
    assert describe(peer, group).error_code == E.GROUP_ID_NOT_FOUND


def joining(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(
    peer: KafkaPeer, group: str, topic: str
) -> None:
    member = Member(peer, group, topic)
    member.beat()
    assert commit(peer, member, epoch=member.epoch) == E.NONE
    # While a member of the other protocol is in it, nobody can join.
    assert peer.call(joining(group), 2).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert (
        peer.call(HeartbeatRequest(group_id=group, generation_id=1, member_id=member.member_id), 3).error_code
        == E.UNKNOWN_MEMBER_ID
    )
    member.beat(member_epoch=-1)
    joined = peer.call(joining(group), 2)
    assert joined.error_code == E.NONE
    newcomer = Member(peer, group, topic)
    refused = newcomer.beat()
    assert refused.error_code == E.GROUP_ID_NOT_FOUND
    assert "classic" in refused.error_message
    fetched = peer.call(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]),
        8,
    )
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == 7


def test_no_epoch_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    with run_broker(tmp_path) as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "t", 4)
            first, second = Member(peer, "g", "t", instance_id="one"), Member(peer, "g", "t")
            first.beat()
            second.beat()
            settle(first, second)
            before = describe(peer, "g")
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            assert describe(peer, "g") == before
            for member in (first, second):
                member.peer = peer
                assert member.beat().error_code == E.NONE
            assert describe(peer, "g") == before
            assert commit(peer, first, epoch=first.epoch) == E.NONE


def test_http_and_the_command_line_show_epochs(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    first, second = Member(peer, group, topic), Member(peer, group, topic)
    first.beat()
    second.beat()
    settle(first, second)
    answer = httpx.get(f"{broker.http_url}/v1/groups/{group}").json()
    epoch = describe(peer, group).group_epoch
    assert {
        name: answer[name] for name in ("type", "state", "generation", "assignment_epoch", "protocol")
    } == {
        "type": "consumer",
        "state": "Stable",
        "generation": epoch,
        "assignment_epoch": epoch,
        "protocol": "uniform",
    }
    members = {member["member_id"]: member for member in answer["members"]}
    for member in (first, second):
        shown = members[member.member_id]
        assert shown["epoch"] == epoch
        assert shown["topics"] == [topic]
        assert shown["assignment"] == shown["target"] == [{"topic": topic, "partitions": member.partitions}]
    listed = httpx.get(f"{broker.http_url}/v1/groups", params={"search": group}).json()["groups"]
    assert (group, "consumer") in {(one["group"], one["type"]) for one in listed}
    done = run_stele("groups", "describe", group, "--url", broker.http_url)
    shown_by_command = done.stdout.decode()
    assert f"{group}: Stable, epoch {epoch}" in shown_by_command, done.stderr
    assert f"2 partitions, epoch {epoch}" in shown_by_command


def test_http_members_and_polls_share_a_group_with_members_of_kafka(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    url = f"{broker.http_url}/v1/groups/{group}"
    joined = httpx.post(f"{url}/members", json={"topics": [topic], "session_timeout_ms": 60_000}).json()
    asked = {"topics": [topic], "wait_ms": 100}
    assert httpx.post(f"{url}/poll", json=asked).status_code == 200
    member = Member(peer, group, topic)

    def places() -> tuple[list[int], list[int], list[int]]:
        """Return what the member of Kafka, the one over HTTP and that of the polls have."""
        assert member.beat().error_code == E.NONE
        answer = httpx.post(f"{url}/members/{joined['member_id']}/heartbeat", json={"generation": 1})
        mine = [number for one in answer.json()["assignment"] for number in one["partitions"]]
        taken = {*member.partitions, *mine}
        return member.partitions, mine, [number for number in range(4) if number not in taken]

    eventually(lambda: sorted(map(len, places())) == [1, 1, 2], "all three have a share")
    assert httpx.get(url).json()["type"] == "consumer"
    _, (http, *_), (polled, *_) = places()
    joined = httpx.post(f"{url}/members/{joined['member_id']}/heartbeat", json={"generation": 1}).json()
    owner = {"member_id": joined["member_id"], "generation": joined["generation"]}
    claimed = httpx.put(f"{url}/partitions/{topic}/{http}/owner", json=owner)
    assert claimed.status_code == 200, claimed.text
    for partition in range(4):
        put(peer, topic, *(b"%d" % number for number in range(5)), partition=partition)
    leased = httpx.post(f"{url}/poll", json=asked | {"wait_ms": 30_000}, timeout=60).json()
    assert polled in {record["partition"] for record in leased["records"]}
    assert http not in {record["partition"] for record in leased["records"]}
    assert not {record["partition"] for record in leased["records"]} & set(member.partitions)
    acked = httpx.post(f"{url}/ack", json={"lease": leased["lease"]})
    assert acked.status_code == 200, acked.text

    # Without the member of Kafka's new protocol the group is a classic one of these two.
    member.beat(member_epoch=-1)
    eventually(lambda: httpx.get(url).json()["type"] == "classic", "the group is classic")
    heartbeat = httpx.post(f"{url}/members/{joined['member_id']}/heartbeat", json={"generation": 1}).json()
    assert heartbeat["generation"] > joined["generation"]


def test_a_group_with_members_is_neither_reset_nor_deleted(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    member = Member(peer, group, topic)
    member.beat()
    url = f"{broker.http_url}/v1/groups/{group}"
    assert httpx.put(f"{url}/offsets", json={"to": "earliest", "topics": [topic]}).status_code == 409
    assert httpx.delete(url).status_code == 409
    member.beat(member_epoch=-1)
    assert httpx.put(f"{url}/offsets", json={"to": "earliest", "topics": [topic]}).status_code == 200


# ── clients ──


def consumer_of(broker: BrokerProcess, group: str, topic: str, **settings: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([topic])
    return consumer


def test_librdkafka_shares_the_partitions_and_each_record_is_read_once(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    for partition in range(4):
        put(peer, topic, *(b"%d" % number for number in range(5)), partition=partition)
    first = consumer_of(broker, group, topic)
    second: Consumer | None = None
    read: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(read) < 20 or second is None or len(second.assignment()) != 2 or len(first.assignment()) != 2:
        assert time.monotonic() < deadline
        for consumer in (first, second):
            message = None if consumer is None else consumer.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                read.append((message.partition() or 0, message.offset() or 0))
        if len(read) == 20 and second is None:
            first.commit(asynchronous=False)
            second = consumer_of(broker, group, topic, **{"group.remote.assignor": "range"})
    first.close()
    second.close()
    assert sorted(read) == [(partition, offset) for partition in range(4) for offset in range(5)]
    assert describe(peer, group).group_state == "Empty"


@pytest.mark.long
def test_consumers_go_on_while_the_broker_is_killed_and_members_come_and_go(tmp_path: Path) -> None:
    """For librdkafka a lost group or a lost epoch is the end of the consumer."""
    kills, partitions = 4, 6
    with run_broker(tmp_path) as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "flow", partitions)
        consumers = [consumer_of(broker, "g", "flow") for _ in range(2)]
        expected: set[tuple[int, bytes]] = set()
        read: set[tuple[int, bytes]] = set()
        for number in range(kills):
            with KafkaPeer(broker) as peer:
                for partition in range(partitions):
                    values = [b"%d/%d" % (number, value) for value in range(50)]
                    put(peer, "flow", *values, partition=partition)
                    expected |= {(partition, value) for value in values}
            _read_until(consumers, read, expected)
            with KafkaPeer(broker) as peer:
                epoch = describe(peer, "g").group_epoch
            broker.kill()
            broker.start()
            with KafkaPeer(broker) as peer:
                assert describe(peer, "g").group_epoch >= epoch
            if number % 2:
                consumers.pop(0).close()
            else:
                consumers.append(consumer_of(broker, "g", "flow"))
        for consumer in consumers:
            consumer.close()
        assert read == expected


def _read_until(
    consumers: list[Consumer], read: set[tuple[int, bytes]], expected: set[tuple[int, bytes]]
) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while read != expected:
        assert time.monotonic() < deadline, f"{len(expected - read)} records are missing"
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is None:
                continue
            error = message.error()
            # A connection that ends is no matter; the end of a consumer is.
            assert error is None or not error.fatal(), error
            if error is None:
                read.add((message.partition() or 0, message.value() or b""))


@pytest.mark.long
def test_java_consumes_and_its_tools_show_the_group(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    with kafka_or_skip():
        libs()
    put(peer, topic, b"one", b"two")
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.kafka_bootstrap, "--topic", topic, "--group", group),
        *("--command-property", "group.protocol=consumer", "--from-beginning", "--max-messages", "2"),
        timeout_s=PATIENCE_S,
    )
    assert done.stdout.split() == ["one", "two"], done.stderr
    member = Member(peer, group, topic)
    settle(member)
    for flags, expected in (
        (("--describe",), [topic, member.member_id, "2"]),
        (("--describe", "--state"), ["uniform", "Stable"]),
        (
            ("--describe", "--members", "--verbose"),
            [member.member_id, "CURRENT-ASSIGNMENT", f"{topic}:0,1,2,3"],
        ),
    ):
        shown = run_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", broker.kafka_bootstrap, "--group", group, *flags),
            timeout_s=PATIENCE_S,
        )
        assert all(word in shown.stdout for word in expected), shown.stdout + shown.stderr
