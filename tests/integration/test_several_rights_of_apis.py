"""Each Kafka API that declares several rights, over a socket: without any one of them, and with no others.

Of rights that stand for each other, such as CREATE on the cluster and on the topic, each one suffices.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api import Api
from stele.wire.kafka.committed_offsets import (
    OFFSET_COMMIT_API,
    OFFSET_DELETE_API,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from stele.wire.kafka.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    AlterConfigsResource,
    DescribeConfigsResource,
    IncrementalAlterConfigsResource,
)
from stele.wire.kafka.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from stele.wire.kafka.groups import FindCoordinatorRequest, ListGroupsRequest
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic
from stele.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stele.wire.kafka.share_groups import (
    ALTER_SHARE_GROUP_OFFSETS_API,
    DELETE_SHARE_GROUP_OFFSETS_API,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareAcknowledgeRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from stele.wire.kafka.topics import (
    DELETE_TOPICS_API,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from stele.wire.kafka.transactions import (
    TXN_OFFSET_COMMIT_API,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from app.security.acl import (
    ALTER_CLUSTER,
    ALTER_CONFIGS_CLUSTER,
    ALTER_CONFIGS_GROUP,
    ALTER_CONFIGS_TOPIC,
    CLUSTER_ACTION_CLUSTER,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS_CLUSTER,
    DESCRIBE_CONFIGS_GROUP,
    DESCRIBE_CONFIGS_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE_CLUSTER,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Acl,
    Permission,
)
from app.security.authorizer import Authorizer
from app.tcp.kafka.apis import SERVED
from app.tcp.kafka.guards.refusals import refusal
from tests.support.acls import authorizer_over, replace_rules
from tests.support.kafka_peer import KafkaPeer, api_of
from tests.support.listeners import Listeners, listeners
from tests.support.rights import (
    EVERYTHING,
    GROUP,
    NEW_TOPIC,
    REFUSAL_CODES,
    TOPIC,
    Needs,
    Refusal,
    check_needs,
    rule,
)
from tests.support.share_groups import ACCEPT, Member

CONSUMERS, SHARERS = "consumers", "sharers"
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``request`` is made by a client that may do everything, on the connection that then sends it with less."""

    name: str
    request: Callable[[KafkaPeer], Any]
    version: int | None = None
    needs: Needs


def message(kind: Any, **known: Any) -> Any:
    return refusal(kind, **known)


def a_transactional_id() -> str:
    return f"x-{uuid.uuid4().hex[:8]}"


def produced(topic: str, transactional_id: str | None = None) -> Any:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=None)])
        ],
    )


def configured(api: Api, resource: type) -> Callable[[int, str], Case]:
    """Return what makes a case of a configurations API for a type of resource."""
    answers = "results" if api is DESCRIBE_CONFIGS_API else "responses"

    def case(resource_type: int, name: str) -> Case:
        one = message(resource, resource_type=resource_type, resource_name=name)
        rights = (
            (DESCRIBE_CONFIGS_TOPIC, DESCRIBE_CONFIGS_GROUP, DESCRIBE_CONFIGS_CLUSTER)
            if api is DESCRIBE_CONFIGS_API
            else (ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_GROUP, ALTER_CONFIGS_CLUSTER)
        )
        right = rights[(TOPIC_RESOURCE, GROUP_RESOURCE, BROKER_RESOURCE).index(resource_type)]
        return Case(
            name=f"{api.name} {right!r}",
            request=lambda peer: message(api.request, resources=[one]),
            needs={(right,): f"{answers}.error_code"},
        )

    return case


def joined_consumers(peer: KafkaPeer) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=CONSUMERS,
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert peer.call(request, 1).error_code == ErrorCode.NONE
    return request


def sharer(peer: KafkaPeer) -> Member:
    member = Member(peer, SHARERS, TOPIC)
    while not member.partitions:
        assert member.beat().error_code == ErrorCode.NONE
    return member


def acknowledged(peer: KafkaPeer) -> Any:
    member = sharer(peer)
    member.took(peer.call(member.fetch_request(), 2))
    batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    topic = message(AcknowledgeTopic, topic_id=member.partitions[0][0], partitions=[partition])
    return ShareAcknowledgeRequest(
        group_id=SHARERS, member_id=member.member_id, share_session_epoch=1, topics=[topic]
    )


def begun(peer: KafkaPeer) -> dict[str, Any]:
    """The identity of a transactional producer."""
    transactional_id = a_transactional_id()
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    made = peer.call(request, 4)
    assert made.error_code == ErrorCode.NONE
    return {
        "transactional_id": transactional_id,
        "producer_id": made.producer_id,
        "producer_epoch": made.producer_epoch,
    }


ADDED_TOPIC = AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])


def added(peer: KafkaPeer, *, is_batch: bool = False) -> Any:
    producer = begun(peer)
    if is_batch:
        transaction = AddPartitionsToTxnTransaction(**producer, topics=[ADDED_TOPIC])
        return AddPartitionsToTxnRequest(transactions=[transaction])
    known = {f"v3_and_below_{name}": value for name, value in producer.items()}
    return AddPartitionsToTxnRequest(**known, v3_and_below_topics=[ADDED_TOPIC])


def described_transaction(peer: KafkaPeer) -> Any:
    request = added(peer)
    (topic,) = peer.call(request, 3).results_by_topic_v3_and_below
    assert topic.results_by_partition[0].partition_error_code == ErrorCode.NONE
    name = request.v3_and_below_transactional_id
    return DescribeTransactionsRequest(transactional_ids=[name])


def part_of(api: Api, suffix: str) -> Any:
    """Return the message of a part of a request, None if the API has none."""
    return getattr(sys.modules[api.request.__module__], api.name + suffix, None)


def committed(api: Api, **known: Any) -> Any:
    partition = message(part_of(api, "RequestPartition"), partition_index=0)
    topic = message(part_of(api, "RequestTopic"), name=TOPIC, partitions=[partition])
    return message(api.request, group_id=GROUP, topics=[topic], **known)


def fetched_offsets(peer: KafkaPeer) -> Any:
    topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])


def fetched_offsets_of_a_group_named_twice(peer: KafkaPeer) -> Any:
    """The last counts, which asks for all topics."""
    peer.call(committed(OFFSET_COMMIT_API), 9)
    (by_topic,) = fetched_offsets(peer).groups
    return OffsetFetchRequest(groups=[by_topic, OffsetFetchRequestGroup(group_id=GROUP, topics=None)])


def fetched_offsets_of_one_group(peer: KafkaPeer) -> Any:
    topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    return OffsetFetchRequest(group_id=GROUP, topics=[topic])


def share_offsets(peer: KafkaPeer, api: Api, **known: Any) -> Any:
    assert sharer(peer).beat(member_epoch=-1).error_code == ErrorCode.NONE
    if partition := part_of(api, "RequestPartition"):
        known["partitions"] = [message(partition, partition_index=0)]
    topic = message(part_of(api, "RequestTopic"), topic_name=TOPIC, **known)
    return message(api.request, group_id=SHARERS, topics=[topic])


def described_share_offsets(peer: KafkaPeer) -> Any:
    sharer(peer)
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])
    group = DescribeShareGroupOffsetsRequestGroup(group_id=SHARERS, topics=[topic])
    return DescribeShareGroupOffsetsRequest(groups=[group])


def markers(peer: KafkaPeer) -> Any:
    topic = message(WritableTxnMarkerTopic, name=TOPIC, partition_indexes=[0])
    marker = message(WritableTxnMarker, topics=[topic])
    return WriteTxnMarkersRequest(markers=[marker])


_PRODUCED = "responses.partition_responses.error_code"
_CREATE = (CREATE_TOPIC, CREATE_CLUSTER)
_DESCRIBED_CONFIGS = configured(DESCRIBE_CONFIGS_API, DescribeConfigsResource)
_ALTERED_CONFIGS = configured(ALTER_CONFIGS_API, AlterConfigsResource)
_CHANGED_CONFIGS = configured(INCREMENTAL_ALTER_CONFIGS_API, IncrementalAlterConfigsResource)
CASES = [
    # ── records and topics ──
    Case(
        name="Produce",
        version=12,
        request=lambda peer: produced(NEW_TOPIC),
        needs={(WRITE_TOPIC,): _PRODUCED, _CREATE: _PRODUCED},
    ),
    Case(
        name="Produce in a transaction",
        version=12,
        request=lambda peer: produced(TOPIC, a_transactional_id()),
        needs={(WRITE_TRANSACTIONAL_ID,): _PRODUCED, (WRITE_TOPIC,): _PRODUCED},
    ),
    Case(
        name="Metadata",
        request=lambda peer: MetadataRequest(topics=[MetadataRequestTopic(name=NEW_TOPIC)]),
        needs={(DESCRIBE_TOPIC,): "topics.error_code", _CREATE: "topics.error_code"},
    ),
    Case(
        name="CreateTopics",
        request=lambda peer: CreateTopicsRequest(
            topics=[message(CreatableTopic, name=NEW_TOPIC, num_partitions=1, replication_factor=1)]
        ),
        needs={
            _CREATE: "topics.error_code",
            (DESCRIBE_CONFIGS_TOPIC,): "topics.topic_config_error_code",
        },
    ),
    Case(
        name="DeleteTopics",
        request=lambda peer: message(DeleteTopicsRequest, topics=[DeleteTopicState(name=NEW_TOPIC)]),
        needs={(DELETE_TOPIC,): "responses.error_code"},
    ),
    *(
        case(kind, name)
        for case in (_DESCRIBED_CONFIGS, _ALTERED_CONFIGS, _CHANGED_CONFIGS)
        for kind, name in ((TOPIC_RESOURCE, TOPIC), (GROUP_RESOURCE, GROUP), (BROKER_RESOURCE, "1"))
    ),
    # ── groups ──
    Case(
        name="FindCoordinator of a group",
        request=lambda peer: FindCoordinatorRequest(coordinator_keys=[GROUP]),
        needs={(DESCRIBE_GROUP,): "coordinators.error_code"},
    ),
    Case(
        name="FindCoordinator of a transactional id",
        request=lambda peer: FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        needs={(DESCRIBE_TRANSACTIONAL_ID,): "coordinators.error_code"},
    ),
    Case(
        name="FindCoordinator of one group",
        version=3,
        request=lambda peer: FindCoordinatorRequest(key=GROUP),
        needs={(DESCRIBE_GROUP,): "error_code"},
    ),
    Case(
        name="ListGroups",
        request=lambda peer: joined_consumers(peer) and ListGroupsRequest(),
        needs={(DESCRIBE_GROUP, DESCRIBE_CLUSTER): lambda answer: not answer.groups},
    ),
    Case(
        name="OffsetCommit",
        version=9,
        request=lambda peer: committed(OFFSET_COMMIT_API),
        needs={(READ_GROUP,): "topics.partitions.error_code", (READ_TOPIC,): "topics.partitions.error_code"},
    ),
    Case(
        name="OffsetFetch",
        version=9,
        request=fetched_offsets,
        needs={
            (DESCRIBE_GROUP,): "groups.error_code",
            (DESCRIBE_TOPIC,): "groups.topics.partitions.error_code",
        },
    ),
    Case(
        name="OffsetFetch of a group that is named twice",
        version=9,
        request=fetched_offsets_of_a_group_named_twice,
        needs={
            (DESCRIBE_GROUP,): "groups.error_code",
            (DESCRIBE_TOPIC,): lambda answer: not answer.groups[0].topics,
        },
    ),
    Case(
        name="OffsetFetch of one group",
        version=7,
        request=fetched_offsets_of_one_group,
        needs={
            (DESCRIBE_GROUP,): "error_code topics.partitions.error_code",
            (DESCRIBE_TOPIC,): "topics.partitions.error_code",
        },
    ),
    Case(
        name="OffsetDelete",
        request=lambda peer: peer.call(committed(OFFSET_COMMIT_API), 9) and committed(OFFSET_DELETE_API),
        needs={(DELETE_GROUP,): "error_code", (READ_TOPIC,): "topics.partitions.error_code"},
    ),
    Case(
        name="ConsumerGroupHeartbeat",
        request=joined_consumers,
        needs={(READ_GROUP,): "error_code", (DESCRIBE_TOPIC,): "error_code"},
    ),
    Case(
        name="ConsumerGroupDescribe",
        request=lambda peer: (
            joined_consumers(peer) and message(ConsumerGroupDescribeRequest, group_ids=[CONSUMERS])
        ),
        needs={(DESCRIBE_GROUP,): "groups.error_code", (DESCRIBE_TOPIC,): "groups.error_code"},
    ),
    Case(
        name="ShareGroupHeartbeat",
        request=lambda peer: ShareGroupHeartbeatRequest(
            group_id=SHARERS, member_id=str(uuid.uuid4()), member_epoch=0, subscribed_topic_names=[TOPIC]
        ),
        needs={(READ_GROUP,): "error_code", (DESCRIBE_TOPIC,): "error_code"},
    ),
    Case(
        name="ShareGroupDescribe",
        request=lambda peer: sharer(peer) and message(ShareGroupDescribeRequest, group_ids=[SHARERS]),
        needs={(DESCRIBE_GROUP,): "groups.error_code", (DESCRIBE_TOPIC,): "groups.error_code"},
    ),
    Case(
        name="ShareFetch",
        request=lambda peer: sharer(peer).fetch_request(),
        needs={(READ_GROUP,): "error_code", (READ_TOPIC,): "responses.partitions.error_code"},
    ),
    Case(
        name="ShareAcknowledge",
        request=acknowledged,
        needs={(READ_GROUP,): "error_code", (READ_TOPIC,): "responses.partitions.error_code"},
    ),
    Case(
        name="DescribeShareGroupOffsets",
        request=described_share_offsets,
        needs={
            (DESCRIBE_GROUP,): "groups.error_code",
            (DESCRIBE_TOPIC,): "groups.topics.partitions.error_code",
        },
    ),
    Case(
        name="AlterShareGroupOffsets",
        request=lambda peer: share_offsets(peer, ALTER_SHARE_GROUP_OFFSETS_API),
        needs={(READ_GROUP,): "error_code", (READ_TOPIC,): "responses.partitions.error_code"},
    ),
    Case(
        name="DeleteShareGroupOffsets",
        request=lambda peer: share_offsets(peer, DELETE_SHARE_GROUP_OFFSETS_API),
        needs={(DELETE_GROUP,): "error_code", (READ_TOPIC,): "responses.error_code"},
    ),
    # ── transactions ──
    Case(
        name="InitProducerId",
        request=lambda peer: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        needs={(IDEMPOTENT_WRITE_CLUSTER, WRITE_TOPIC): "error_code"},
    ),
    Case(
        name="InitProducerId with a transactional id",
        request=lambda peer: InitProducerIdRequest(
            transactional_id=a_transactional_id(), transaction_timeout_ms=1000
        ),
        needs={(WRITE_TRANSACTIONAL_ID,): "error_code"},
    ),
    Case(
        name="AddPartitionsToTxn",
        version=3,
        request=added,
        needs={
            (
                WRITE_TRANSACTIONAL_ID,
            ): "results_by_topic_v3_and_below.results_by_partition.partition_error_code",
            (WRITE_TOPIC,): "results_by_topic_v3_and_below.results_by_partition.partition_error_code",
        },
    ),
    Case(
        name="AddPartitionsToTxn of several transactions",
        request=lambda peer: added(peer, is_batch=True),
        needs=dict.fromkeys(
            ((WRITE_TRANSACTIONAL_ID,), (WRITE_TOPIC,)),
            "results_by_transaction.topic_results.results_by_partition.partition_error_code",
        ),
    ),
    Case(
        name="AddOffsetsToTxn",
        request=lambda peer: AddOffsetsToTxnRequest(**begun(peer), group_id=GROUP),
        needs={(WRITE_TRANSACTIONAL_ID,): "error_code", (READ_GROUP,): "error_code"},
    ),
    Case(
        name="TxnOffsetCommit",
        request=lambda peer: committed(TXN_OFFSET_COMMIT_API, **begun(peer)),
        needs=dict.fromkeys(
            ((WRITE_TRANSACTIONAL_ID,), (READ_GROUP,), (READ_TOPIC,)), "topics.partitions.error_code"
        ),
    ),
    Case(
        name="DescribeTransactions",
        request=described_transaction,
        needs={
            (DESCRIBE_TRANSACTIONAL_ID,): "transaction_states.error_code",
            (DESCRIBE_TOPIC,): lambda answer: not answer.transaction_states[0].topics,
        },
    ),
    Case(
        name="WriteTxnMarkers",
        request=markers,
        needs={(ALTER_CLUSTER, CLUSTER_ACTION_CLUSTER): "markers.topics.partitions.error_code"},
    ),
]
# DESCRIBE decides whether a refusal by id has the name of the topic: see the last test.
ELSEWHERE = {(DELETE_TOPICS_API.key, DESCRIBE_TOPIC)}


def refusals(part: Any, place: str = "") -> Iterator[Refusal]:
    """Yield the place and the code of each error about a missing right."""
    if is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            at = f"{place}.{field.name}".lstrip(".")
            if field.name.endswith("error_code") and value in REFUSAL_CODES:
                yield at, int(value)
            yield from refusals(value, at)
    elif isinstance(part, list | tuple):
        for item in cast("Sequence[Any]", part):
            yield from refusals(item, place)


@dataclass(slots=True)
class Asked:
    at: Listeners
    authorizer: Authorizer

    async def answer(self, case: Case, rules: Sequence[Acl]) -> Any:
        """Return the response to the request of ``case`` of a client with these rules."""
        await replace_rules(self.authorizer, EVERYTHING)
        broker = self.at.broker
        if broker.has_topic(NEW_TOPIC):
            await broker.delete_topic(NEW_TOPIC)
        if case.name == "DeleteTopics":
            await broker.create_topic(NEW_TOPIC)
        with await asyncio.to_thread(KafkaPeer, self.at) as peer:
            request = await asyncio.to_thread(case.request, peer)
            await replace_rules(self.authorizer, rules)
            version = api_of(request).versions[1] if case.version is None else case.version
            return await asyncio.to_thread(peer.call, request, version)


@asynccontextmanager
async def asked(path: Path) -> AsyncGenerator[Asked]:
    authorizer = await authorizer_over()
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(listeners(path, authorizer=authorizer))
        await at.broker.create_topic(TOPIC)
        yield Asked(at, authorizer)


@pytest.mark.every(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_an_api_needs_each_of_its_rights_and_no_others(case: Case, tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        await check_needs(case.needs, partial(client.answer, case), lambda answer: set(refusals(answer)))


def test_every_right_of_every_api_with_several_is_tried() -> None:
    declared = {
        (key, right) for key, row in SERVED.items() if len(row.guard.rights) > 1 for right in row.guard.rights
    }
    keys = {row.api.name: key for key, row in SERVED.items()}
    tried = {
        (keys[case.name.split()[0]], right) for case in CASES for rights in case.needs for right in rights
    }
    assert declared - tried == ELSEWHERE


async def test_a_deletion_by_id_has_the_name_only_for_a_client_that_sees_the_topic(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        topic_id = client.at.broker.topic(TOPIC).topic_id.bytes
        case = Case(
            name="DeleteTopics by id",
            request=lambda peer: message(DeleteTopicsRequest, topics=[DeleteTopicState(topic_id=topic_id)]),
            needs={},
        )
        denied = rule(DELETE_TOPIC, Permission.DENY)
        for rules, name in (([denied], None), ([denied, rule(DESCRIBE_TOPIC, Permission.ALLOW)], TOPIC)):
            (result,) = (await client.answer(case, rules)).responses
            assert (result.name, result.topic_id, result.error_code) == (name, topic_id, 29)
