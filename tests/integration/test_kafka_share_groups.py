"""Share groups (KIP-932) over the Kafka protocol: records one by one, locks, waits, sessions, kills."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from pydantic import ValidationError
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from stele.wire.kafka.groups import DeleteGroupsRequest, ListGroupsRequest
from stele.wire.kafka.share_groups import (
    AcknowledgementBatch,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareGroupDescribeRequest,
)

from app.settings import Settings
from load.apache_kafka import libs, run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.kafka_peer import KafkaPeer, create_topic, delete_topic, put, records_in
from tests.support.share_groups import ACCEPT, REJECT, RELEASE, RENEW, Member, configure, joined, offsets_of
from tests.support.warm_processes import run_stele

PATIENCE_MS = 60_000
PATIENCE_S = 60.0
SHARE_TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
_names = count(1)


@pytest.fixture
def topic(peer: KafkaPeer) -> str:
    name = f"shared-{next(_names)}"
    create_topic(peer, name, 2)
    return name


@pytest.fixture
def group(peer: KafkaPeer) -> str:
    """A group that begins at the first record."""
    name = f"share-group-{next(_names)}"
    configure(peer, name, share_auto_offset_reset="earliest")
    return name


# ── records ──


def test_records_are_acquired_accepted_and_never_come_again(peer: KafkaPeer, group: str, topic: str) -> None:
    put(peer, topic, b"a", b"b", b"c")
    member = joined(peer, group, topic)
    answer = peer.call(member.fetch_request(), 2)
    assert answer.acquisition_lock_timeout_ms == 30_000
    ((one,),) = [[part for part in topic_.partitions if part.acquired_records] for topic_ in answer.responses]
    assert records_in(one.records) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert member.took(answer) == {0: [(0, 2, 1)]}
    assert member.fetch() == {}, "they are locked"
    assert offsets_of(peer, group) == {0: (0, 3), 1: (0, 0)}
    assert member.acknowledge({0: [(0, 2, ACCEPT)]}) == {0: E.NONE}
    assert offsets_of(peer, group) == {0: (3, 0), 1: (0, 0)}
    put(peer, topic, b"d")
    assert member.fetch() == {0: [(3, 3, 1)]}


def test_two_members_share_the_records_of_one_partition(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    put(peer, topic, *[b"x"] * 10)
    first = joined(peer, group, topic)
    with KafkaPeer(broker) as other:
        second = joined(other, group, topic)
        second.partitions = first.partitions
        assert first.fetch(max_records=4) == {0: [(0, 3, 1)]}
        assert second.fetch(max_records=4) == {0: [(4, 7, 1)]}
        assert first.acknowledge({0: [(4, 4, ACCEPT)]}) == {0: E.INVALID_RECORD_STATE}
        assert first.fetch({0: [(0, 1, RELEASE), (2, 2, REJECT), (3, 3, ACCEPT)]}, max_records=2) == {
            0: [(0, 1, 2)]
        }
        assert second.acknowledge({0: [(4, 7, ACCEPT)]}) == {0: E.NONE}
        assert offsets_of(peer, group)[0] == (0, 4)


def test_a_batch_may_exceed_the_limit_unless_the_limit_is_strict(
    peer: KafkaPeer, group: str, topic: str
) -> None:
    put(peer, topic, *[b"x"] * 10)
    member = joined(peer, group, topic)
    assert member.fetch(max_records=4, share_acquire_mode=0) == {0: [(0, 9, 1)]}


def test_version_1_has_no_strict_limit_and_no_renewal(peer: KafkaPeer, group: str, topic: str) -> None:
    put(peer, topic, *[b"x"] * 10)
    member = joined(peer, group, topic)
    assert member.fetch(max_records=4, version=1) == {0: [(0, 9, 1)]}
    assert member.acknowledge({0: [(0, 9, RENEW)]}, version=1) == {0: E.INVALID_RECORD_STATE}


def test_a_record_is_given_up_after_its_last_delivery(peer: KafkaPeer, group: str, topic: str) -> None:
    configure(peer, group, share_auto_offset_reset="earliest", share_delivery_count_limit="2")
    put(peer, topic, b"poison", b"good")
    member = joined(peer, group, topic)
    assert member.fetch(max_records=1) == {0: [(0, 0, 1)]}
    assert member.fetch({0: [(0, 0, RELEASE)]}, max_records=1) == {0: [(0, 0, 2)]}
    assert member.fetch({0: [(0, 0, RELEASE)]}) == {0: [(1, 1, 1)]}
    assert offsets_of(peer, group)[0] == (1, 1)


def test_each_offset_of_a_batch_may_have_a_type_of_its_own(peer: KafkaPeer, group: str, topic: str) -> None:
    put(peer, topic, *[b"x"] * 4)
    member = joined(peer, group, topic)
    member.fetch()
    topic_id, _ = member.partitions[0]
    mixed = AcknowledgementBatch(
        first_offset=0, last_offset=3, acknowledge_types=[ACCEPT, RELEASE, ACCEPT, REJECT]
    )
    topics = [
        FetchTopic(
            topic_id=topic_id,
            partitions=[FetchPartition(partition_index=0, acknowledgement_batches=[mixed])],
        )
    ]
    assert member.fetch(topics=topics) == {0: [(1, 1, 2)]}


def test_renewed_records_stay_with_their_member(peer: KafkaPeer, group: str, topic: str) -> None:
    put(peer, topic, b"x")
    member = joined(peer, group, topic)
    member.fetch()
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    assert member.fetch({0: [(0, 0, RENEW)]}, is_renew_ack=True, **nothing) == {}
    assert member.acknowledge({0: [(0, 0, RENEW)]}, is_renew_ack=True) == {0: E.NONE}
    configure(peer, group, share_renew_acknowledge_enable="false")
    assert member.acknowledge({0: [(0, 0, RENEW)]}, is_renew_ack=True) == {0: E.INVALID_RECORD_STATE}
    assert member.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: E.NONE}


# ── waiting ──


def test_an_append_ends_the_wait(broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str) -> None:
    member = joined(peer, group, topic)
    member.fetch()
    peer.post(member.fetch_request(max_wait_ms=PATIENCE_MS), 2)
    with KafkaPeer(broker) as writer:
        put(writer, topic, b"late", partition=1)
    _, answer = peer.next_answer()
    assert member.took(answer) == {1: [(0, 0, 1)]}


def test_records_that_another_member_gives_back_end_the_wait(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    put(peer, topic, *[b"x"] * 3)
    holder = joined(peer, group, topic)
    assert holder.fetch() == {0: [(0, 2, 1)]}
    with KafkaPeer(broker) as other:
        waiting = joined(other, group, topic)
        waiting.partitions = holder.partitions
        waiting.fetch()
        other.post(waiting.fetch_request(max_wait_ms=PATIENCE_MS), 2)
        assert holder.acknowledge({0: [(0, 2, RELEASE)]}) == {0: E.NONE}
        _, answer = other.next_answer()
        assert waiting.took(answer) == {0: [(0, 2, 2)]}


def test_a_connection_that_ends_gives_its_records_back(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    put(peer, topic, *[b"x"] * 3)
    waiting = joined(peer, group, topic)
    with KafkaPeer(broker) as doomed:
        holder = joined(doomed, group, topic)
        holder.partitions = waiting.partitions
        assert holder.fetch() == {0: [(0, 2, 1)]}
        waiting.fetch()
        peer.post(waiting.fetch_request(max_wait_ms=PATIENCE_MS), 2)
    _, answer = peer.next_answer()
    assert waiting.took(answer) == {0: [(0, 2, 2)]}


def test_the_end_of_a_session_gives_its_records_back(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    put(peer, topic, *[b"x"] * 3)
    member = joined(peer, group, topic)
    member.fetch()
    assert member.acknowledge({0: [(0, 0, ACCEPT)]}, share_session_epoch=-1) == {0: E.NONE}
    other = joined(peer, group, topic)
    other.partitions = member.partitions
    assert other.fetch() == {0: [(1, 2, 2)]}
    assert other.fetch({0: [(1, 1, ACCEPT)]}, share_session_epoch=-1) == {}
    assert offsets_of(peer, group)[0] == (2, 1)


def _acknowledges(member: Member) -> None:
    assert member.acknowledge({0: [(0, 2, ACCEPT)]}) == {0: E.NONE}


def _acknowledges_with_the_end_of_its_session(member: Member) -> None:
    assert member.acknowledge({0: [(0, 2, ACCEPT)]}, share_session_epoch=-1) == {0: E.NONE}


def _acknowledges_with_a_fetch(member: Member) -> None:
    assert member.fetch({0: [(0, 2, ACCEPT)]}) == {}


def _fetches_a_last_time(member: Member) -> None:
    assert member.fetch({0: [(0, 2, ACCEPT)]}, share_session_epoch=-1) == {}


@pytest.mark.parametrize(
    "ends",
    [
        _acknowledges,
        _acknowledges_with_the_end_of_its_session,
        _acknowledges_with_a_fetch,
        _fetches_a_last_time,
    ],
)
def test_what_a_member_acknowledges_counts_also_after_its_leave(
    ends: Callable[[Member], None], broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    """Clients that close send both at the same time, over two connections."""
    put(peer, topic, *[b"x"] * 5)
    with KafkaPeer(broker) as coordinator:
        member = joined(peer, group, topic)
        assert member.fetch() == {0: [(0, 4, 1)]}
        member.peer = coordinator
        assert member.beat(member_epoch=-1).error_code == E.NONE
        member.peer = peer
        ends(member)
        member.session_epoch = 0
        assert offsets_of(peer, group)[0] == (3, 2)
    # The rest is free when its session or its connection ends.
    with KafkaPeer(broker) as last:
        other = joined(last, group, topic)
        peer.close()
        deadline = time.monotonic() + PATIENCE_S
        while not (again := other.fetch(max_wait_ms=500)):
            assert time.monotonic() < deadline
        assert again == {0: [(3, 4, 2)]}


def test_a_fetch_of_no_bytes_gets_no_records(peer: KafkaPeer, group: str, topic: str) -> None:
    put(peer, topic, *[b"x"] * 5)
    member = joined(peer, group, topic)
    assert member.fetch(max_bytes=0) == {}
    assert member.fetch(max_records=0) == {}
    assert member.fetch(max_bytes=1) == {0: [(0, 4, 1)]}


def test_offsets_of_a_group_that_does_not_exist_are_altered(peer: KafkaPeer, topic: str) -> None:
    put(peer, topic, *[b"x"] * 5)
    group = f"share-group-{next(_names)}"

    def alter(name: str, partition: int, offset: int) -> tuple[int, list[int]]:
        changed = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        of_topic = AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[changed])
        answer = peer.call(AlterShareGroupOffsetsRequest(group_id=group, topics=[of_topic]), 0)
        return answer.error_code, [one.error_code for topics in answer.responses for one in topics.partitions]

    def listed() -> set[str]:
        answer = peer.call(ListGroupsRequest(states_filter=(), types_filter=()), 5)
        return {one.group_id for one in answer.groups}

    assert alter("missing", 0, 1) == (E.NONE, [E.UNKNOWN_TOPIC_OR_PARTITION])
    assert alter(topic, 7, 1) == (E.NONE, [E.UNKNOWN_TOPIC_OR_PARTITION])
    assert alter(topic, 0, -1) == (E.NONE, [E.INVALID_REQUEST])
    assert group not in listed(), "what is refused creates no group"
    assert alter(topic, 0, 3) == (E.NONE, [E.NONE])
    assert group in listed()
    assert joined(peer, group, topic).fetch() == {0: [(3, 4, 1)]}


# ── what is no record ──


def test_an_aborted_transaction_is_passed_where_only_committed_records_count(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    configure(peer, group, share_auto_offset_reset="earliest", share_isolation_level="read_committed")
    member = joined(peer, group, topic)
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "transactional.id": group})
    producer.init_transactions()
    for value, ends in ((b"aborted", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        assert member.fetch() == {}, "the transaction is open"
        ends()
    # 0 and 1 are the aborted record and its marker, 3 the marker of the other.
    assert member.fetch() == {0: [(2, 2, 1)]}
    assert member.fetch({0: [(2, 2, ACCEPT)]}) == {}
    assert offsets_of(peer, group)[0] == (4, 0), "the markers are passed"


# ── sessions and refusals ──


def test_a_deleted_topic_is_told_once_and_does_not_keep_the_others_from_waiting(
    broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    create_topic(peer, f"{topic}-gone", 1)
    member, gone = joined(peer, group, topic), joined(peer, group, f"{topic}-gone")
    member.partitions += gone.partitions
    member.fetch()
    delete_topic(peer, f"{topic}-gone")
    answer = peer.call(member.fetch_request(max_wait_ms=PATIENCE_MS), 2)
    member.session_epoch += 1
    assert [
        (one.topic_id, partition.partition_index, partition.error_code)
        for one in answer.responses
        for partition in one.partitions
    ] == [(*gone.partitions[0], E.UNKNOWN_TOPIC_ID)]
    peer.post(member.fetch_request(max_wait_ms=PATIENCE_MS), 2)
    with KafkaPeer(broker) as writer:
        put(writer, topic, b"x")
    assert member.took(peer.next_answer()[1]) == {0: [(0, 0, 1)]}


@pytest.mark.parametrize(
    "batch",
    [
        [(0, 0, ACCEPT)] * 20_000,
        [AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT] * 20_000)],
    ],
    ids=["batches", "types"],
)
def test_more_acknowledgements_than_a_member_can_mean_are_refused_at_once(
    peer: KafkaPeer, group: str, topic: str, batch: list[Any]
) -> None:
    put(peer, topic, b"x")
    member = joined(peer, group, topic)
    member.fetch()
    batches = [
        one
        if isinstance(one, AcknowledgementBatch)
        else AcknowledgementBatch(first_offset=one[0], last_offset=one[1], acknowledge_types=[one[2]])
        for one in batch
    ]
    partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
    topics = [FetchTopic(topic_id=member.partitions[0][0], partitions=[partition])]
    (told,) = peer.call(member.fetch_request(topics=topics), 2).responses
    member.session_epoch += 1
    assert told.partitions[0].acknowledge_error_code == E.INVALID_REQUEST
    assert "20000 are allowed" in told.partitions[0].acknowledge_error_message
    assert member.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: E.NONE}


def test_each_request_of_a_session_has_the_next_epoch(peer: KafkaPeer, group: str, topic: str) -> None:
    member = joined(peer, group, topic)
    assert peer.call(member.fetch_request(share_session_epoch=1), 2).error_code == E.SHARE_SESSION_NOT_FOUND
    member.fetch()
    for epoch in (3, 7):
        answer = peer.call(member.fetch_request(share_session_epoch=epoch), 2)
        assert answer.error_code == E.INVALID_SHARE_SESSION_EPOCH
    acknowledging = ShareAcknowledgeRequest(
        group_id=group, member_id=member.member_id, share_session_epoch=0, topics=()
    )
    assert peer.call(acknowledging, 2).error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch() == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"group_id": None},
        {"member_id": None},
        {"member_id": ""},
        {"is_renew_ack": True},
    ],
)
def test_a_fetch_that_cannot_be(peer: KafkaPeer, group: str, topic: str, fields: dict[str, Any]) -> None:
    member = joined(peer, group, topic)
    answer = peer.call(member.fetch_request(**fields), 2)
    assert (answer.error_code, answer.responses) == (E.INVALID_REQUEST, [])
    assert answer.error_message


def test_the_first_request_of_a_session_acknowledges_nothing(peer: KafkaPeer, group: str, topic: str) -> None:
    member = joined(peer, group, topic)
    assert peer.call(member.fetch_request({0: [(0, 0, ACCEPT)]}), 2).error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(5, 4, ACCEPT)], E.INVALID_REQUEST),
        ([(0, 1, ACCEPT), (1, 2, ACCEPT)], E.INVALID_REQUEST),
        ([(0, 0, 9)], E.INVALID_REQUEST),
        ([(-1, 0, ACCEPT)], E.INVALID_REQUEST),
        ([(0, 1_000_000, ACCEPT)], E.INVALID_REQUEST),
        ([(2, 2, ACCEPT)], E.INVALID_RECORD_STATE),
    ],
)
def test_an_acknowledgement_that_cannot_be_changes_nothing(
    peer: KafkaPeer, group: str, topic: str, batches: list[tuple[int, int, int]], code: E
) -> None:
    put(peer, topic, *[b"x"] * 3)
    member = joined(peer, group, topic)
    assert member.fetch(max_records=2) == {0: [(0, 1, 1)]}
    member.fetch(max_records=1)
    member.acknowledge({0: [(2, 2, RELEASE)]})
    assert member.acknowledge({0: batches}) == {0: code}
    assert member.acknowledge({0: [(0, 1, ACCEPT)]}) == {0: E.NONE}


def test_unknown_topics_and_partitions_have_errors_of_their_own(
    peer: KafkaPeer, group: str, topic: str
) -> None:
    put(peer, topic, b"x")
    member = joined(peer, group, topic)
    (topic_id, _), *_ = member.partitions
    member.partitions = [(topic_id, 0), (topic_id, 99), (UUID(int=7).bytes, 0)]
    answer = peer.call(member.fetch_request(), 2)
    assert {
        (one.topic_id, partition.partition_index): partition.error_code
        for one in answer.responses
        for partition in one.partitions
    } == {
        (topic_id, 0): E.NONE,
        (topic_id, 99): E.UNKNOWN_TOPIC_OR_PARTITION,
        (UUID(int=7).bytes, 0): E.UNKNOWN_TOPIC_ID,
    }


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, E.INVALID_REQUEST),
        ({"member_id": ""}, E.INVALID_REQUEST),
        ({"member_epoch": -2}, E.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, E.INVALID_REQUEST),
        ({"rack_id": ""}, E.INVALID_REQUEST),
        ({"member_epoch": 1}, E.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_that_cannot_be(peer: KafkaPeer, topic: str, fields: dict[str, Any], code: E) -> None:
    answer = Member(peer, "no-such-share-group", topic).beat(**fields)
    assert (answer.error_code, answer.assignment) == (code, None)
    assert answer.error_message


def test_the_group_is_listed_and_described_as_what_it_is(peer: KafkaPeer, group: str, topic: str) -> None:
    member = joined(peer, group, topic)
    listed = peer.call(ListGroupsRequest(states_filter=["stable"], types_filter=["share"]), 5).groups
    assert (group, "share", "share", "Stable") in {
        (one.group_id, one.group_type, one.protocol_type, one.group_state) for one in listed
    }
    described, missing = peer.call(
        ShareGroupDescribeRequest(group_ids=[group, "no-such"], include_authorized_operations=True),
        1,
    ).groups
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert described.group_epoch == described.assignment_epoch == member.epoch
    (one,) = described.members
    assert (one.member_id, one.subscribed_topic_names) == (member.member_id, [topic])
    (assigned,) = one.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == (topic, [0, 1])
    assert missing.error_code == E.GROUP_ID_NOT_FOUND
    (refused,) = peer.call(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert refused.error_code == E.NON_EMPTY_GROUP
    member.beat(member_epoch=-1)
    (done,) = peer.call(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert done.error_code == E.NONE


def test_offsets_of_a_group_with_members_are_not_changed(peer: KafkaPeer, group: str, topic: str) -> None:
    member = joined(peer, group, topic)
    altering = AlterShareGroupOffsetsRequest(group_id=group, topics=())
    deleting = DeleteShareGroupOffsetsRequest(group_id=group, topics=())
    for request in (altering, deleting):
        assert peer.call(request, 0).error_code == E.NON_EMPTY_GROUP
    member.beat(member_epoch=-1)
    for request in (altering, deleting):
        assert peer.call(request, 0).error_code == E.NONE


# ── kills ──


def test_what_was_accepted_never_comes_again_after_a_kill(tmp_path: Path) -> None:
    with run_broker(tmp_path / "data") as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "orders")
            configure(peer, "g", share_auto_offset_reset="earliest")
            put(peer, "orders", *[b"x"] * 10)
            member = joined(peer, "g", "orders")
            assert member.fetch() == {0: [(0, 9, 1)]}
            assert member.acknowledge({0: [(0, 3, ACCEPT), (5, 5, ACCEPT)]}) == {0: E.NONE}
            assert member.acknowledge({0: [(7, 7, RELEASE)]}) == {0: E.NONE}
            # Before the connection ends, which would give the records back.
            broker.kill()
        broker.restart()
        with KafkaPeer(broker) as peer:
            assert offsets_of(peer, "g") == {0: (4, 5)}
            unknown = Member(peer, "g", "orders").beat(member_epoch=member.epoch)
            assert unknown.error_code == E.UNKNOWN_MEMBER_ID
            again = joined(peer, "g", "orders")
            # Only the released delivery was stored; the others may count once more.
            assert again.fetch() == {0: [(4, 4, 1), (6, 6, 1), (7, 7, 2), (8, 9, 1)]}


# ── with Kafka's own client and tools ──


@pytest.fixture(scope="module")
def java_tools() -> None:
    with kafka_or_skip():
        libs()


@pytest.mark.long
def test_java_consumes_and_its_tool_shows_and_resets_the_group(
    java_tools: None, broker: BrokerProcess, peer: KafkaPeer, group: str, topic: str
) -> None:
    values = [f"v{number}".encode() for number in range(20)]
    put(peer, topic, *values)

    def consume(records: int) -> list[str]:
        done = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
            *("--bootstrap-server", broker.kafka_bootstrap, "--topic", topic, "--group", group),
            *("--max-messages", str(records), "--timeout-ms", str(PATIENCE_MS)),
            timeout_s=2 * PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def tool(*arguments: str) -> str:
        done = run_tool(
            SHARE_TOOL,
            *("--bootstrap-server", broker.kafka_bootstrap, "--group", group, *arguments),
            timeout_s=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert consume(20) == [value.decode() for value in values]
    deadline = time.monotonic() + PATIENCE_S
    while offsets_of(peer, group)[0] != (20, 0):
        assert time.monotonic() < deadline
    assert f"{group:<15} {topic:<15} 0          20            0".split() in [
        line.split() for line in tool("--describe").splitlines()
    ]
    tool("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    assert offsets_of(peer, group)[0] == (0, 20)
    assert consume(3) == ["v0", "v1", "v2"]
    tool("--delete-offsets", "--topic", topic)
    assert offsets_of(peer, group) == {}
    tool("--delete")
    assert "GroupIdNotFoundException" in tool("--describe")
    shown = run_stele("groups", "--url", broker.http_url)
    assert group not in shown.stdout.decode()


# ── how long a lock lasts ──

LOCK_MS = "share.record.lock.duration.ms"


def _shown_lock(peer: KafkaPeer, group: str) -> tuple[str, int]:
    """Return the time in effect, and where it comes from."""
    resource = DescribeConfigsResource(resource_type=32, resource_name=group, configuration_keys=[LOCK_MS])
    (result,) = peer.call(DescribeConfigsRequest(resources=[resource]), 4).results
    (config,) = result.configs
    return config.value, config.config_source


def _set_on_broker(peer: KafkaPeer, name: str, value: int) -> int:
    resource = IncrementalAlterConfigsResource(
        resource_type=4,
        resource_name="1",
        configs=[IncrementalAlterableConfig(name=name, config_operation=0, value=str(value))],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (response,) = peer.call(request, 1).responses
    return response.error_code


def test_the_broker_decides_how_long_locks_last_and_may_last(tmp_path: Path) -> None:
    environment = {
        "STELE_GROUP_SHARE_RECORD_LOCK_DURATION_MS": "1500",
        "STELE_GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS": "1000",
        "STELE_GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS": "50000",
    }
    default, static, dynamic_broker, of_group = 5, 4, 2, 8
    with run_broker(data_dir=tmp_path, environment=environment) as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "t", 1)
            configure(peer, "g", share_auto_offset_reset="earliest")
            put(peer, "t", b"x")
            assert _shown_lock(peer, "g") == ("1500", static)
            member = joined(peer, "g", "t")
            answer = peer.call(member.fetch_request(), 2)
            assert answer.acquisition_lock_timeout_ms == 1500
            assert member.took(answer) == {0: [(0, 0, 1)]}
            # It comes again by itself, once the lock has ended.
            assert member.fetch(max_wait_ms=PATIENCE_MS) == {0: [(0, 0, 2)]}
            assert _set_on_broker(peer, f"group.{LOCK_MS}", 2500) == E.NONE
            assert _shown_lock(peer, "g") == ("2500", dynamic_broker)
            for name, value in (
                (f"group.{LOCK_MS}", 999),
                (f"group.{LOCK_MS}", 50_001),
                ("group.share.min.record.lock.duration.ms", 2501),
                ("group.share.max.record.lock.duration.ms", 29_999),
            ):
                assert _set_on_broker(peer, name, value) == E.INVALID_REQUEST, name
            configure(peer, "g", share_record_lock_duration_ms="1000")
            assert _shown_lock(peer, "g") == ("1000", of_group)
            assert _set_on_broker(peer, "group.share.min.record.lock.duration.ms", 2000) == E.NONE
            with pytest.raises(AssertionError, match="Value must be at least 2000"):
                configure(peer, "g", share_record_lock_duration_ms="1999")
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            assert _shown_lock(peer, "other") == ("2500", dynamic_broker)
    with run_broker() as broker, KafkaPeer(broker) as peer:
        assert _shown_lock(peer, "g") == ("30000", default)


def test_a_broker_whose_locks_would_break_its_own_bounds_does_not_start() -> None:
    with pytest.raises(ValidationError, match="must be from 15000"):
        Settings(group_share_record_lock_duration_ms=5000)
