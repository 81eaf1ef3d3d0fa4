"""A request for many partitions or groups lets the loop run other tasks while it is handled."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api_versions import ApiVersionsRequest
from stele.wire.kafka.cluster import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from stele.wire.kafka.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from stele.wire.kafka.groups import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    MemberIdentity,
)
from stele.wire.kafka.headers import RequestHead
from stele.wire.kafka.metadata import DescribeTopicPartitionsRequest, MetadataRequest, TopicRequest
from stele.wire.kafka.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from stele.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stele.wire.kafka.topics import CREATE_TOPICS_API, CreatableTopic, CreateTopicsRequest
from stele.wire.kafka.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from stele.wire.kafka.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    UserName,
)

from app.broker.producing.produce import Acks
from app.clock import SystemClock
from app.concurrency import DELETIONS_MAX
from app.errors import UnknownPartition, UnknownTopic
from app.groups.base import offset_rules
from app.groups.base.messages import CommitRequest, OffsetToCommit
from app.network.admission import Admission
from app.security.acl import Acl, Operation, Permission, ResourceType
from app.security.acls import Acls
from app.security.authorizer import Authorizer
from app.security.principal import ANONYMOUS
from app.tcp.begun_work import go_on
from app.tcp.kafka.apis import SERVED
from app.tcp.kafka.connection import KafkaConnection
from app.tcp.kafka.context import Context, KafkaListener
from app.tcp.kafka.handlers import topics, transactions
from app.tcp.kafka.handlers.configs import _CONFIGS_MAX
from app.tcp.kafka.handlers.groups import committed_offsets, membership
from app.tcp.kafka.handlers.groups.committed_offsets import _OFFSETS_AT_ONCE
from app.tcp.kafka.handlers.metadata import metadata as describe_metadata
from app.tcp.kafka.trace import RequestTracer
from app.tcp.server import TcpServer
from app.transactions import request_checks
from app.work_budget import PARTITIONS_PER_TURN, Steps, at_once
from tests.support.acls import ListStore
from tests.support.batches import batch_of
from tests.support.kafka_application import kafka_listener
from tests.support.kafka_peer import api_of, read_response, request_frame
from tests.support.turns import CallsPerTurn

PARTITIONS = 8 * PARTITIONS_PER_TURN
ALL = range(PARTITIONS)
# Not in order, so that a test sees whether the response keeps it.
SHUFFLED = [*ALL[1::2], *ALL[::2]]


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[KafkaListener]:
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("wide", partitions=PARTITIONS, configs={"stele.storage": "memory"})
        yield listener


def fetch_of(partitions: Sequence[int], *, session: int = 0, epoch: int = -1) -> FetchRequest:
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=session,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic="wide",
                partitions=[
                    FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000)
                    for number in partitions
                ],
            )
        ]
        if partitions
        else (),
        forgotten_topics_data=(),
    )


def offset_fetch_of(partitions: Sequence[int]) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopic(name="wide", partition_indexes=list(partitions))
    return OffsetFetchRequest(group_id="readers", topics=[topic], groups=())


def offset_commit_of(partitions: Sequence[int], offset: int) -> OffsetCommitRequest:
    topic = OffsetCommitRequestTopic(
        name="wide",
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number in partitions
        ],
    )
    return OffsetCommitRequest(group_id="readers", member_id="", topics=[topic])


async def handle(listener: KafkaListener, request: object, version: int) -> tuple[Any, int]:
    """Return the response, and how often the loop turned before there was one."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    context = Context(listener=listener, version=version, client_id="", client_host="")
    counting = asyncio.create_task(count())
    try:
        response = await cast(
            "Coroutine[Any, Any, Any]", SERVED[api_of(request).key].handle(context, request)
        )
    finally:
        counting.cancel()
    return response, turns


LONG = {
    "Fetch": (fetch_of(SHUFFLED), 12),
    "Fetch that begins a session": (fetch_of(SHUFFLED, epoch=0), 12),
    "ListOffsets": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="wide",
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=-1) for number in SHUFFLED
                    ],
                )
            ],
        ),
        7,
    ),
    "OffsetFetch": (offset_fetch_of(SHUFFLED), 7),
    "Produce": (
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="wide",
                    partition_data=[
                        PartitionProduceData(index=number, records=batch_of([b"x"], timestamp_ms=1))
                        for number in SHUFFLED
                    ],
                )
            ],
        ),
        9,
    ),
    "DescribeProducers": (
        DescribeProducersRequest(topics=[DescribeProducersTopic(name="wide", partition_indexes=SHUFFLED)]),
        0,
    ),
    "DeleteRecords": (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="wide",
                    partitions=[
                        DeleteRecordsPartition(partition_index=number, offset=0) for number in SHUFFLED
                    ],
                )
            ],
            timeout_ms=1000,
        ),
        1,
    ),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="wide",
                    partitions=[
                        OffsetForLeaderPartition(partition=number, leader_epoch=0) for number in SHUFFLED
                    ],
                )
            ]
        ),
        3,
    ),
    "AlterPartitionReassignments": (
        AlterPartitionReassignmentsRequest(
            timeout_ms=1000,
            topics=[
                ReassignableTopic(
                    name="wide",
                    partitions=[
                        ReassignablePartition(partition_index=number, replicas=[0]) for number in SHUFFLED
                    ],
                )
            ],
        ),
        0,
    ),
}


def partitions_of(response: Any) -> list[int]:
    """Return the partitions in the one topic of a response, whatever the API calls them."""
    topics = getattr(response, "responses", None) or response.topics
    (topic,) = topics
    numbers: list[int] = []
    for partition in getattr(topic, "partitions", None) or topic.partition_responses:
        named = ("partition_index", "partition", "index")
        numbers.append(next(getattr(partition, name) for name in named if hasattr(partition, name)))
    return numbers


@pytest.mark.every(3)
@pytest.mark.parametrize(("request_", "version"), LONG.values(), ids=LONG)
async def test_the_loop_turns_among_the_partitions_and_the_response_keeps_their_order(
    listener: KafkaListener, request_: object, version: int
) -> None:
    response, turns = await handle(listener, request_, version)
    assert partitions_of(response) == SHUFFLED
    assert turns >= PARTITIONS / PARTITIONS_PER_TURN


async def test_the_loop_turns_while_topics_are_described(listener: KafkaListener) -> None:
    everything, turns = await handle(listener, MetadataRequest(topics=None), 9)
    assert partitions_of(everything) == [*ALL]
    assert turns >= PARTITIONS / PARTITIONS_PER_TURN
    page, turns = await handle(
        listener,
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="wide")],
            response_partition_limit=PARTITIONS,
        ),
        0,
    )
    assert partitions_of(page) == [*ALL]
    assert turns >= PARTITIONS / PARTITIONS_PER_TURN


@pytest.mark.parametrize(
    "request_",
    [
        DescribeUserScramCredentialsRequest(users=[UserName(name=f"u{number}") for number in ALL]),
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=f"u{number}", mechanism=1) for number in ALL],
            upsertions=[],
        ),
    ],
)
async def test_the_loop_turns_among_users(listener: KafkaListener, request_: object) -> None:
    response, turns = await handle(listener, request_, 0)
    assert [result.user for result in response.results] == [f"u{number}" for number in ALL]
    assert turns >= PARTITIONS / PARTITIONS_PER_TURN


async def test_rules_that_change_while_a_long_request_is_checked_hold_for_the_rest_of_it(
    listener: KafkaListener,
) -> None:
    acls = Acls(ListStore())
    await acls.open()
    authorizer = Authorizer(acls, clock=SystemClock(), super_users=(), allows_without_acl=True)
    access = authorizer.access("kafka", ANONYMOUS, "127.0.0.1")
    context = Context(listener=listener, version=2, client_id="", client_host="", access=access, is_long=True)
    names = [f"g{number}" for number in range(PARTITIONS)]
    deleted: list[str] = []

    def delete(_context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        deleted.extend(request.groups_names)
        return DeleteGroupsResponse(results=[])

    check = SERVED[DELETE_GROUPS_API.key].guard.check
    steps = cast(
        "Steps[DeleteGroupsResponse]", check(context, DeleteGroupsRequest(groups_names=names), delete)
    )
    next(steps)
    rule = Acl(
        resource_type=ResourceType.GROUP,
        resource_name="*",
        principal="User:*",
        operation=Operation.ALL,
        permission=Permission.DENY,
    )
    await acls.add([rule])
    refused = [result.group_id for result in at_once(steps).results]
    assert 0 < len(refused) < len(names)
    assert deleted + refused == names
    await acls.close()


@pytest.mark.parametrize("count", [_CONFIGS_MAX, _CONFIGS_MAX + 1])
async def test_more_configurations_than_any_resource_has_are_refused_before_they_are_looked_at(
    listener: KafkaListener, count: int
) -> None:
    configs = [
        IncrementalAlterableConfig(name=f"c{number}", config_operation=1, value=None)
        for number in range(count)
    ]
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name="wide", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response, _ = await handle(listener, request, 1)
    # To unset what does not exist is no error.
    assert bool(response.responses[0].error_code) == (count > _CONFIGS_MAX)


async def test_the_loop_turns_while_leaders_are_not_elected(listener: KafkaListener) -> None:
    topic = TopicPartitions(topic="wide", partitions=SHUFFLED)
    request = ElectLeadersRequest(election_type=0, topic_partitions=[topic], timeout_ms=1000)
    response, turns = await handle(listener, request, 2)
    (results,) = response.replica_election_results
    assert [result.partition_id for result in results.partition_result] == SHUFFLED
    assert turns >= PARTITIONS / PARTITIONS_PER_TURN


async def test_a_topic_that_is_deleted_while_all_topics_are_described_is_left_out(
    listener: KafkaListener,
) -> None:
    await listener.broker.create_topic("x-last", partitions=1)
    context = Context(listener=listener, version=9, client_id="", client_host="")
    describing = describe_metadata(context, MetadataRequest(topics=None))
    # The first pause is long before the last topic.
    paused = describing.send(None)
    await listener.broker.delete_topic("x-last")
    response = await go_on(describing, paused)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("wide", ErrorCode.NONE)]


async def test_a_long_round_of_a_session_misses_no_append_that_is_made_meanwhile(
    listener: KafkaListener,
) -> None:
    begun, _ = await handle(listener, fetch_of(ALL, epoch=0), 12)
    assert begun.session_id > 0
    round_ = asyncio.create_task(handle(listener, fetch_of((), session=begun.session_id, epoch=1), 12))
    await asyncio.sleep(0)
    # The round may have passed the first partition already, and has not reached the last.
    for number in (0, PARTITIONS - 1):
        listener.broker.produce("wide", number, batch_of([b"x"], timestamp_ms=1), acks=Acks.LEADER)
    seen = [
        partition.partition_index for topic in (await round_)[0].responses for partition in topic.partitions
    ]
    rest, _ = await handle(listener, fetch_of((), session=begun.session_id, epoch=2), 12)
    seen += [partition.partition_index for topic in rest.responses for partition in topic.partitions]
    assert {0, PARTITIONS - 1} <= set(seen)


async def test_the_loop_turns_while_topics_are_created_and_their_configurations_described(
    listener: KafkaListener,
) -> None:
    topics = [
        CreatableTopic(
            name=f"new-{number}", num_partitions=1, replication_factor=-1, assignments=(), configs=()
        )
        for number in range(100)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)
    response, turns = await handle(listener, request, 5)
    assert [topic.error_code for topic in response.topics] == [0] * 100
    assert turns >= 100 / 10
    assert SERVED[CREATE_TOPICS_API.key].lists, "encoding the configurations of all of them takes long, too"


# More than a commit checks at once.
MANY = 4 * _OFFSETS_AT_ONCE


def counted(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> CallsPerTurn[..., Any]:
    calls: CallsPerTurn[..., Any] = CallsPerTurn(getattr(module, name))
    monkeypatch.setattr(module, name, calls)
    return calls


@pytest.fixture
async def many(listener: KafkaListener) -> KafkaListener:
    await listener.broker.create_topic("many", partitions=MANY, configs={"stele.storage": "memory"})
    return listener


def commit_of(count: int, offset: int) -> OffsetCommitRequest:
    request = offset_commit_of(range(count), offset)
    request.topics[0].name = "many"
    return request


async def test_the_offsets_of_a_long_commit_are_checked_in_steps_and_kept_together(
    many: KafkaListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = counted(monkeypatch, committed_offsets, "OffsetToCommit")
    checked = counted(monkeypatch, offset_rules, "OffsetRecord")
    response, _ = await handle(many, commit_of(MANY, 7), 8)
    assert {partition.error_code for partition in response.topics[0].partitions} == {0}
    for pieces in (made, checked):
        assert pieces.total == MANY
        assert pieces.most <= MANY / 4
    offsets = many.groups.of("readers").coordinator.committed("readers", None)
    assert {offset.offset for offset in offsets} == {7}
    assert len(offsets) == MANY


async def test_a_long_look_at_offsets_sees_those_of_one_moment(many: KafkaListener) -> None:
    await handle(many, commit_of(MANY, 1), 8)
    coordinator = many.groups.of("readers").coordinator
    steps = coordinator.committed_in_steps("readers", [("many", number) for number in range(MANY)])
    next(steps)
    await handle(many, commit_of(MANY, 2), 8)
    assert {offset.offset for offset in at_once(steps)} == {1}


async def test_many_members_leave_some_at_a_time(
    listener: KafkaListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = counted(monkeypatch, membership, "MemberResponse")
    names = [f"m-{number}" for number in range(MANY)]
    members = [MemberIdentity(member_id=name) for name in names]
    response, _ = await handle(listener, LeaveGroupRequest(group_id="leavers", members=members), 5)
    assert [member.member_id for member in response.members] == names
    assert {member.error_code for member in response.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert answered.most <= MANY / 4


async def test_the_records_of_many_partitions_are_deleted_some_at_a_time(
    many: KafkaListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = counted(monkeypatch, topics, "DeleteRecordsPartitionResult")
    deleted = DeleteRecordsTopic(
        name="many",
        partitions=[DeleteRecordsPartition(partition_index=number, offset=0) for number in range(MANY)],
    )
    response, _ = await handle(many, DeleteRecordsRequest(topics=[deleted], timeout_ms=1000), 1)
    results = response.topics[0].partitions
    assert [(result.partition_index, result.error_code) for result in results] == [
        (number, 0) for number in range(MANY)
    ]
    assert answered.most <= DELETIONS_MAX < MANY


async def test_a_long_commit_for_a_topic_that_is_made_anew_meanwhile_is_none_of_its_offsets(
    many: KafkaListener,
) -> None:
    coordinator = many.groups.of("readers").coordinator
    request = CommitRequest(
        group="readers",
        offsets=[OffsetToCommit(topic="many", partition=number, offset=1) for number in range(3)],
    )
    checked = await coordinator.checked(request)
    await many.broker.delete_topic("many")
    await coordinator.forget_topic("many")
    refused = await coordinator.commit(checked)
    assert [type(error) for error in refused] == [UnknownTopic] * 3
    await many.broker.create_topic("many", partitions=2)
    assert [type(error) for error in await coordinator.commit(checked)] == [
        type(None),
        type(None),
        UnknownPartition,
    ]


@pytest.mark.long
async def test_the_partitions_of_a_long_transaction_are_added_in_steps(
    listener: KafkaListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    await listener.broker.create_topic("long", partitions=MANY)
    begun = await listener.transactions.init_producer_id("mover", timeout_ms=60_000)
    checked = counted(monkeypatch, request_checks, "_error_of")
    answered = counted(monkeypatch, transactions, "AddPartitionsToTxnPartitionResult")
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="mover",
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="long", partitions=list(range(MANY)))],
    )
    response, _ = await handle(listener, request, 3)
    (topic,) = response.results_by_topic_v3_and_below
    assert [
        (result.partition_index, result.partition_error_code) for result in topic.results_by_partition
    ] == [(number, 0) for number in range(MANY)]
    for pieces in (checked, answered):
        assert pieces.total == MANY
        assert pieces.most <= MANY / 4


# ── over connections ──


class Events(RequestTracer):
    """Notes when requests begin and when their responses are written."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.began = asyncio.Event()

    def request(self, peer: str, api: str, head: RequestHead, client_id: str, frame: memoryview) -> None:
        self.seen.append(("request", api))
        self.began.set()

    def response(
        self, peer: str, api: str, head: RequestHead, size: int, parts: Sequence[bytes | bytearray]
    ) -> None:
        self.seen.append(("response", api))

    def unanswered(self, peer: str, api: str, head: RequestHead) -> None:
        self.seen.append(("unanswered", api))

    def closed(self, peer: str) -> None:
        pass


@asynccontextmanager
async def serving(listener: KafkaListener, events: Events) -> AsyncGenerator[tuple[str, int]]:
    """Serve ``listener`` on a socket."""
    settings = listener.broker.settings
    server = TcpServer(
        "kafka",
        lambda registry: KafkaConnection(
            listener=listener, settings=settings, registry=registry, tracers=(events,)
        ),
        admission=Admission("kafka", connections_max=10, open_files_max=1 << 20),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    server.start(listening)
    try:
        yield listening.getsockname()
    finally:
        await server.stop(1000)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def test_another_connection_is_served_while_a_long_request_is_handled(listener: KafkaListener) -> None:
    # Each turn of the loop looks at the sockets, and this request takes hundreds.
    groups = [f"group-{number}" for number in range(400 * PARTITIONS_PER_TURN)]
    events = Events()
    async with serving(listener, events) as address:
        long_reader, long_writer = await asyncio.open_connection(*address)
        reader, writer = await asyncio.open_connection(*address)
        long_writer.write(request_frame(DescribeGroupsRequest(groups=groups), 4))
        await events.began.wait()
        writer.write(request_frame(ApiVersionsRequest(), 0))
        await read_frame(reader)
        assert events.seen == [
            ("request", "DescribeGroups"),
            ("request", "ApiVersions"),
            ("response", "ApiVersions"),
        ]
        _, described = read_response(await read_frame(long_reader), DESCRIBE_GROUPS_API, 4)
        assert [group.group_id for group in described.groups] == groups
        long_writer.close()
        writer.close()


async def test_a_later_request_of_the_same_connection_takes_effect_after_a_long_one(
    listener: KafkaListener,
) -> None:
    events = Events()
    async with serving(listener, events) as address:
        reader, writer = await asyncio.open_connection(*address)
        requests = (offset_fetch_of(SHUFFLED), offset_commit_of(SHUFFLED, 0), offset_fetch_of(SHUFFLED))
        for request in requests:
            writer.write(request_frame(request, 6))
        committed: list[set[int]] = []
        for request in requests:
            _, response = read_response(await read_frame(reader), api_of(request), 6)
            if request is not requests[1]:
                committed.append({partition.committed_offset for partition in response.topics[0].partitions})
        assert committed[0] == {-1}
        # The second OffsetFetch need not wait until the commit is durable, and sees it whole or not at all.
        assert committed[1] in ({-1}, {0})
        writer.close()
