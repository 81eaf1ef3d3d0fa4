"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

from stele.wire.error_codes import ErrorCode

from ....broker.placement import Placement, check_assignment
from ....broker.topics import is_topic_name
from ....errors import (
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidRequest,
    SteleError,
    UnknownTopic,
)
from ...errors import error_code_of
from ..schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ..schemas.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..schemas.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ..schemas.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from .context import Context, describe_error, find_topic

_DEFAULT = -1
_REPLICAS = 1
_HIGH_WATERMARK = -1
_DUPLICATE_NAME = "Duplicate topic name."


async def create_topics(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        if topic.name not in results:
            results[topic.name] = await _create(
                context, topic, validate_only=request.validate_only, is_repeated=times[topic.name] > 1
            )
    return CreateTopicsResponse(topics=list(results.values()))


async def _create(
    context: Context, asked: CreatableTopic, *, validate_only: bool, is_repeated: bool
) -> CreatableTopicResult:
    try:
        if is_repeated:
            raise InvalidRequest(_DUPLICATE_NAME)
        topic = await context.broker.create_topic(
            asked.name,
            placement=_placement(asked),
            configs={config.name: config.value for config in asked.configs},
            validate_only=validate_only,
        )
    except SteleError as error:
        code, message = describe_error(error)
        return CreatableTopicResult(name=asked.name, error_code=code, error_message=message)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=_REPLICAS,
        configs=[
            CreatableTopicConfigs(name=one.name, value=one.value, config_source=one.source)
            for one in context.broker.configs.describe_topic(topic)
        ],
    )


def _placement(asked: CreatableTopic) -> Placement:
    return Placement(
        partitions=None if asked.num_partitions == _DEFAULT else asked.num_partitions,
        replication_factor=None if asked.replication_factor == _DEFAULT else asked.replication_factor,
        assignments=[(one.partition_index, one.broker_ids) for one in asked.assignments],
    )


async def delete_topics(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    times = Counter(_topic_key(topic) for topic in asked)
    once = {_topic_key(topic): topic for topic in asked}
    return DeleteTopicsResponse(
        responses=[await _delete(context, topic, is_repeated=times[key] > 1) for key, topic in once.items()]
    )


def _topic_key(asked: DeleteTopicState) -> str | bytes:
    return asked.topic_id if asked.name is None else asked.name


async def _delete(context: Context, asked: DeleteTopicState, *, is_repeated: bool) -> DeletableTopicResult:
    try:
        _refuse_deletion(asked, is_repeated=is_repeated)
        topic = find_topic(context, asked.name, asked.topic_id)
        await context.broker.delete_topic(topic.name)
    except SteleError as error:
        code, message = describe_error(error)
        return DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=message
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id.bytes, error_code=ErrorCode.NONE)


def _refuse_deletion(asked: DeleteTopicState, *, is_repeated: bool) -> None:
    has_id = any(asked.topic_id)
    if asked.name is not None and has_id:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if asked.name is None and not has_id:
        raise InvalidRequest("Neither topic name nor id were specified.")
    if is_repeated:
        raise InvalidRequest(_DUPLICATE_NAME if asked.name is not None else "Duplicate topic id.")
    if asked.name is not None and not is_topic_name(asked.name):
        # No such topic can be; Kafka's answer leaves it at that.
        raise UnknownTopic(asked.name)


async def create_partitions(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    once = {topic.name: topic for topic in request.topics}
    results: list[CreatePartitionsTopicResult] = []
    for name, asked in once.items():
        try:
            if times[name] > 1:
                raise InvalidRequest(_DUPLICATE_NAME)
            await _grow(context, asked, validate_only=request.validate_only)
            results.append(CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE))
        except SteleError as error:
            code, message = describe_error(error)
            results.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=message))
    return CreatePartitionsResponse(results=results)


async def _grow(context: Context, asked: CreatePartitionsTopic, *, validate_only: bool) -> None:
    if not is_topic_name(asked.name):
        raise UnknownTopic(asked.name)
    topic = context.broker.topic(asked.name)
    if asked.count <= topic.partitions:
        raise InvalidPartitionCount(
            asked.name,
            asked.count,
            f"it has {topic.partitions} already",
            message=f"Topic already has {asked.count} partition(s)."
            if asked.count == topic.partitions
            else f"The topic {asked.name} currently has {topic.partitions} partition(s); "
            f"{asked.count} would not be an increase.",
        )
    if asked.assignments is not None:
        added = asked.count - topic.partitions
        if len(asked.assignments) != added:
            raise InvalidReplicaAssignment(
                f"{added} partitions are to be added, and {len(asked.assignments)} are assigned"
            )
        for assignment in asked.assignments:
            check_assignment(assignment.broker_ids, broker_id=context.broker.broker_id)
    await context.broker.alter_topic(asked.name, partitions=asked.count, validate_only=validate_only)


async def delete_records(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    # At once: they share what makes them last.
    results = await asyncio.gather(
        *(
            _delete_before(context, topic.name, one.partition_index, one.offset)
            for topic in request.topics
            for one in topic.partitions
        )
    )
    following = iter(results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=list(itertools.islice(following, len(topic.partitions)))
            )
            for topic in request.topics
        ]
    )


async def _delete_before(
    context: Context, topic: str, partition: int, offset: int
) -> DeleteRecordsPartitionResult:
    broker = context.broker
    try:
        if offset == _HIGH_WATERMARK:
            offset = broker.log_state(topic, partition).high_watermark
        start = await broker.delete_records(topic, partition, offset)
    except SteleError as error:
        return DeleteRecordsPartitionResult(
            partition_index=partition, low_watermark=-1, error_code=error_code_of(error)
        )
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=start, error_code=ErrorCode.NONE
    )
