"""Metadata, DescribeCluster, DescribeTopicPartitions: one broker that leads everything."""

from __future__ import annotations

from collections.abc import Iterable

from stele.wire.error_codes import ErrorCode
from stele.wire.schema import NO_UUID

from ....broker.broker import Broker
from ....broker.topics import INTERNAL_TOPICS, Topic
from ....errors import InvalidRequest, SteleError, UnknownTopic
from ...errors import error_code_of
from ..schemas.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ..schemas.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ..schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from . import authorized
from .context import Context, describe_error, find_topic

# Before v4 asking was creating (KIP-204); in v0 an empty list asks for all.
_FIRST_WITH_CHOICE = 4
_FIRST_WITH_NULL = 1
# KIP-516: the field is there since v10, and works since v12.
_FIRST_WITH_TOPIC_IDS = 12
_BROKER_ENDPOINTS, _CONTROLLER_ENDPOINTS = 1, 2
_NAME_CHARACTERS_MAX = 1000


def may_create_topics(broker: Broker, request: MetadataRequest) -> bool:
    """True if the answer may make topics, which nothing may overtake."""
    return request.allow_auto_topic_creation and any(
        topic.name and topic.name not in INTERNAL_TOPICS and not broker.has_topic(topic.name)
        for topic in request.topics or ()
    )


async def metadata(context: Context, request: MetadataRequest) -> MetadataResponse:
    broker = context.broker
    if request.topics is None or (context.version < _FIRST_WITH_NULL and not request.topics):
        topics = [_known(broker, topic) for topic in broker.readable_topics()]
    else:
        may_create = context.version < _FIRST_WITH_CHOICE or request.allow_auto_topic_creation
        # Once each, however often it is asked for: a name is short, and what is told of a topic is not.
        # Where there is a name, nobody looks at the id beside it.
        asked = {topic.topic_id if topic.name is None else topic.name: topic for topic in request.topics}
        topics = [await _asked(context, topic, may_create=may_create) for topic in asked.values()]
    if request.include_topic_authorized_operations:
        for topic in topics:
            # Of a name, whether there is such a topic or not; of an id, only of a topic that exists.
            if topic.name is not None:
                topic.topic_authorized_operations = authorized.on_topic()
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.broker_id, host=context.listener.host, port=context.listener.port
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.broker_id,
        topics=topics,
        cluster_authorized_operations=authorized.on_cluster(
            is_asked=request.include_cluster_authorized_operations
        ),
    )


async def _asked(context: Context, asked: MetadataRequestTopic, *, may_create: bool) -> MetadataResponseTopic:
    try:
        if context.version < _FIRST_WITH_TOPIC_IDS and (asked.name is None or any(asked.topic_id)):
            raise InvalidRequest(
                f"topics are asked for by id from version {_FIRST_WITH_TOPIC_IDS} of Metadata on"
            )
        # Internal topics are there, or are not: nobody makes them by asking.
        if asked.name is not None and may_create and asked.name not in INTERNAL_TOPICS:
            is_made_again = context.broker.was_deleted(asked.name)
            topic = await context.broker.ensure_topic(asked.name)
            if is_made_again:
                # As Kafka answers: whoever deleted it and looks for it must see once that it was gone.
                raise UnknownTopic(asked.name)
        else:
            topic = find_topic(context, asked.name, asked.topic_id)
    except SteleError as error:
        name = None if asked.name is None else asked.name[:_NAME_CHARACTERS_MAX]
        if name is None and context.version < _FIRST_WITH_TOPIC_IDS:
            name = ""
        return MetadataResponseTopic(
            error_code=error_code_of(error),
            name=name,
            topic_id=asked.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=(),
        )
    return _known(context.broker, topic)


def _known(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    here = (broker.broker_id,)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition,
                leader_id=broker.broker_id,
                leader_epoch=broker.log_state(topic.name, partition).leader_epoch,
                replica_nodes=here,
                isr_nodes=here,
            )
            for partition in range(topic.partitions)
        ],
    )


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
        controller_id=broker.broker_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker_id, host=context.listener.host, port=context.listener.port, rack=None
            )
        ],
        cluster_authorized_operations=authorized.on_cluster(
            is_asked=request.include_cluster_authorized_operations
        ),
    )


def describe_topic_partitions(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics in the order of their names, from the cursor on, up to the limit of partitions."""
    broker = context.broker
    names: Iterable[str] = {topic.name for topic in request.topics} or (
        t.name for t in broker.readable_topics()
    )
    first = request.cursor
    left = max(1, request.response_partition_limit)
    found: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
    for name in sorted(names):
        if first is not None and name < first.topic_name:
            continue
        start = max(0, first.partition_index) if first is not None and name == first.topic_name else 0
        if left == 0:
            next_cursor = Cursor(topic_name=name, partition_index=start)
            break
        try:
            topic = broker.readable_topic(name)
        except SteleError as error:
            found.append(_not_described(name, error))
            continue
        end = min(topic.partitions, start + left)
        found.append(_described(broker, topic, range(start, end)))
        left -= max(0, end - start)
        if end < topic.partitions:
            next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return DescribeTopicPartitionsResponse(topics=found, next_cursor=next_cursor)


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


def _described(broker: Broker, topic: Topic, partitions: range) -> DescribeTopicPartitionsResponseTopic:
    here = (broker.broker_id,)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition,
                leader_id=broker.broker_id,
                leader_epoch=broker.log_state(topic.name, partition).leader_epoch,
                replica_nodes=here,
                isr_nodes=here,
                # Empty, not null: the Java client looks into them.
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=(),
            )
            for partition in partitions
        ],
        topic_authorized_operations=authorized.on_topic(),
    )
