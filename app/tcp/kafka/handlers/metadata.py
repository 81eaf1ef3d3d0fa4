"""Metadata, DescribeCluster, DescribeTopicPartitions.

The live brokers, and the leader of every partition.

The handlers pause among topics and partitions. A topic that is deleted in a pause is left out, or unknown if the
request names it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.metadata import (
    DESCRIBE_CLUSTER_API,
    DESCRIBE_TOPIC_PARTITIONS_API,
    METADATA_API,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from stele.wire.schema import NO_UUID

from ....broker.broker import Broker
from ....broker.topics import INTERNAL_TOPICS, Topic
from ....broker.virtual import PartitionLeader
from ....errors import InvalidRequest, SteleError, TopicError, UnknownTopic
from ....work_budget import SMALL_VISIT, WorkBudget, by_key, sorted_in_turns, visited
from ..context import Context, describe_error, error_code_unless_closing, find_topic
from ..guards import authorized
from ..guards import topics as topic_guards
from ..served import Served
from .nodes import controller_id, nodes, replicas

# Before v4 a request for a missing topic creates it (KIP-204); in v0 an empty list means all topics.
_FIRST_WITH_CHOICE = 4
_FIRST_WITH_NULL = 1
# KIP-516: v10 has the field, and v12 the first support for it.
_FIRST_WITH_TOPIC_IDS = 12
_BROKER_ENDPOINTS, _CONTROLLER_ENDPOINTS = 1, 2
_NAME_CHARACTERS_MAX = 1000
_NO_LEADER = -1


def may_create_topics(broker: Broker, request: MetadataRequest) -> bool:
    """Return whether the request may create topics.

    No later request may begin before it.
    """
    return request.allow_auto_topic_creation and any(
        topic.name and topic.name not in INTERNAL_TOPICS and not broker.has_topic(topic.name)
        for topic in request.topics or ()
    )


async def metadata(context: Context, request: MetadataRequest) -> MetadataResponse:
    broker = context.broker
    budget = WorkBudget()
    if request.topics is None or (context.version < _FIRST_WITH_NULL and not request.topics):
        topics = await _all_known(context, budget)
    else:
        may_create = context.version < _FIRST_WITH_CHOICE or request.allow_auto_topic_creation
        # Once per topic, because a name is short and the description of a topic is not. If a topic has
        # a name, its id is ignored.
        requested, _ = await by_key(request.topics, _key)
        topics = []
        await broker.try_to_find_topics(
            (topic.name for topic in requested.values() if topic.name is not None),
            ids=(topic.topic_id for topic in requested.values() if topic.name is None),
        )
        for topic in requested.values():
            topics.append(await _requested(context, topic, budget, may_create=may_create))
            await budget.visit()
    if request.include_topic_authorized_operations:
        for topic in topics:
            # By name also for a topic that does not exist; by id only for one that does.
            if topic.name is not None:
                topic.topic_authorized_operations = authorized.on_topic()
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes(context)
        ],
        cluster_id=broker.cluster_id,
        controller_id=controller_id(context),
        topics=topics,
        cluster_authorized_operations=authorized.on_cluster(
            is_asked=request.include_cluster_authorized_operations
        ),
    )


def _key(topic: MetadataRequestTopic) -> str | bytes:
    return topic.topic_id if topic.name is None else topic.name


async def _all_known(context: Context, budget: WorkBudget) -> list[MetadataResponseTopic]:
    broker = context.broker
    topics: list[MetadataResponseTopic] = []
    await broker.try_to_find_all_topics()
    for name in [topic.name for topic in broker.readable_topics()]:
        if broker.has_topic(name):
            topic = broker.readable_topic(name)
            with suppress(TopicError):
                topics.append(await _known(context, topic, budget))
        await budget.visit()
    return topics


async def _requested(
    context: Context, topic: MetadataRequestTopic, budget: WorkBudget, *, may_create: bool
) -> MetadataResponseTopic:
    try:
        known = await _find_or_create(context, topic, may_create=may_create)
        return await _known(context, known, budget)
    except SteleError as error:
        name = None if topic.name is None else topic.name[:_NAME_CHARACTERS_MAX]
        if name is None and context.version < _FIRST_WITH_TOPIC_IDS:
            name = ""
        return MetadataResponseTopic(
            error_code=error_code_unless_closing(error, ErrorCode.LEADER_NOT_AVAILABLE),
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=(),
        )


async def _find_or_create(context: Context, topic: MetadataRequestTopic, *, may_create: bool) -> Topic:
    """Raises the errors of finding and creating a topic, and ``InvalidRequest``.

    See ``find_topic`` and ``Broker.ensure_topic``.
    """
    if context.version < _FIRST_WITH_TOPIC_IDS and (topic.name is None or any(topic.topic_id)):
        raise InvalidRequest(
            f"topics are asked for by id from version {_FIRST_WITH_TOPIC_IDS} of Metadata on"
        )
    # A request for an internal topic never creates it.
    if topic.name is None or not may_create or topic.name in INTERNAL_TOPICS:
        return find_topic(context, topic.name, topic.topic_id)
    was_deleted = context.broker.was_deleted(topic.name)
    known = await context.broker.ensure_topic(topic.name)
    if was_deleted:
        # As in Kafka: a client that deleted the topic and polls must see once that it was gone.
        raise UnknownTopic(topic.name)
    return known


async def _known(context: Context, topic: Topic, budget: WorkBudget) -> MetadataResponseTopic:
    """Raises ``TopicError`` if the topic is deleted meanwhile."""
    partitions: list[MetadataResponsePartition] = []
    for partition in range(topic.partitions):
        leader = _leader(context.broker, topic, partition)
        brokers = _replicas(context, topic, partition, leader)
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if brokers else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition,
                leader_id=brokers[0] if brokers else _NO_LEADER,
                leader_epoch=leader.epoch,
                replica_nodes=brokers,
                isr_nodes=brokers,
            )
        )
        await budget.visit()
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        is_internal=topic.is_internal,
        partitions=partitions,
    )


class _Leader(NamedTuple):
    """The leader epoch of a partition, and which broker serves it.

    ``served_by`` is None if every broker would.
    """

    epoch: int
    served_by: PartitionLeader | None


def _leader(broker: Broker, topic: Topic, partition: int) -> _Leader:
    leader = broker.leader(topic.name, partition) if topic.is_internal else None
    return _Leader(
        broker.leader_epoch(topic.name, partition) if leader is None else leader.epoch, served_by=leader
    )


def _replicas(context: Context, topic: Topic, partition: int, leader: _Leader) -> Sequence[int]:
    """Return the brokers shown as replicas of a partition, the leader first.

    Empty while no broker serves it.
    """
    if leader.served_by is None:
        return replicas(context, topic, partition)
    holder = leader.served_by.broker_id
    return () if holder is None else (holder,)


def describe_cluster(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    broker = context.broker
    if request.endpoint_type != _BROKER_ENDPOINTS:
        is_controllers = request.endpoint_type == _CONTROLLER_ENDPOINTS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if is_controllers
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this listener is one of brokers, and there is none of controllers; "
            "ask for brokers (1)",
            cluster_id="",
            brokers=(),
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id=broker.cluster_id,
        controller_id=controller_id(context),
        brokers=[
            DescribeClusterBroker(broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes(context)
        ],
        cluster_authorized_operations=authorized.on_cluster(
            is_asked=request.include_cluster_authorized_operations
        ),
    )


async def describe_topic_partitions(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe topics by name, from the cursor on, up to the limit of partitions."""
    broker = context.broker
    names: Collection[str] = {topic.name async for topic in visited(request.topics, SMALL_VISIT)}
    if names:
        await broker.try_to_find_topics(names)
    else:
        await broker.try_to_find_all_topics()
        names = [topic.name for topic in broker.readable_topics()]
    first = request.cursor
    left = max(1, request.response_partition_limit)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
    budget = WorkBudget()
    for name in await sorted_in_turns(list(names), key=lambda name: name):
        await budget.visit()
        if first is not None and name < first.topic_name:
            continue
        start = max(0, first.partition_index) if first is not None and name == first.topic_name else 0
        if left == 0:
            next_cursor = Cursor(topic_name=name, partition_index=start)
            break
        try:
            topic = broker.readable_topic(name)
            end = min(topic.partitions, start + left)
            topics.append(await _described(context, topic, range(start, end), budget))
        except SteleError as error:
            topics.append(_not_described(name, error))
            continue
        left -= max(0, end - start)
        if end < topic.partitions:
            next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _not_described(name: str, error: SteleError) -> DescribeTopicPartitionsResponseTopic:
    code, _ = describe_error(error)
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name[:_NAME_CHARACTERS_MAX],
        topic_id=NO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=authorized.on_topic(),
    )


async def _described(
    context: Context, topic: Topic, partitions: range, budget: WorkBudget
) -> DescribeTopicPartitionsResponseTopic:
    """Raises ``TopicError`` if the topic is deleted meanwhile."""
    described: list[DescribeTopicPartitionsResponsePartition] = []
    for partition in partitions:
        leader = _leader(context.broker, topic, partition)
        brokers = _replicas(context, topic, partition, leader)
        described.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if brokers else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition,
                leader_id=brokers[0] if brokers else _NO_LEADER,
                leader_epoch=leader.epoch,
                replica_nodes=brokers,
                isr_nodes=brokers,
                # Empty and not null, because the Java client reads their elements.
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=(),
            )
        )
        await budget.visit()
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        is_internal=topic.is_internal,
        partitions=described,
        topic_authorized_operations=authorized.on_topic(),
    )


ROWS = (
    Served(
        METADATA_API,
        metadata,
        topic_guards.METADATA,
        is_barrier=may_create_topics,
        walks=True,
        finds_topics_itself=True,
    ),
    Served(DESCRIBE_CLUSTER_API, describe_cluster, topic_guards.DESCRIBE_CLUSTER),
    Served(
        DESCRIBE_TOPIC_PARTITIONS_API,
        describe_topic_partitions,
        topic_guards.DESCRIBE_TOPIC_PARTITIONS,
        walks=True,
        finds_topics_itself=True,
    ),
)
