"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode

from ....errors import (
    InvalidConfig,
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    SteleError,
)
from ...errors import error_code_of
from ..schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ..schemas.create_topics import (
    CreatableReplicaAssignment,
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
from .configs import topic_config_values
from .context import Context, describe_error, find_topic

_DEFAULT = -1
_REPLICAS = 1
_HIGH_WATERMARK = -1


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
            raise InvalidRequest(f"topic {asked.name[:80]!r} is named more than once in one request")
        topic = await context.broker.create_topic(
            asked.name,
            partitions=_partitions(context, asked),
            configs=_configs(asked),
            validate_only=validate_only,
        )
    except SteleError as error:
        code, message = describe_error(error)
        return CreatableTopicResult(name=asked.name, error_code=code, error_message=message, configs=None)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=_REPLICAS,
        configs=[
            CreatableTopicConfigs(name=one.name, value=one.value, config_source=one.source)
            for one in topic_config_values(topic)
        ],
    )


def _configs(asked: CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in asked.configs:
        if config.value is None:
            raise InvalidConfig(config.name, None, "a value is needed; for the default leave it out")
        configs[config.name] = config.value
    return configs


def _partitions(context: Context, asked: CreatableTopic) -> int | None:
    """How many; None for the default. Raises for what one broker cannot hold."""
    if asked.replication_factor not in (_DEFAULT, _REPLICAS):
        raise InvalidReplicationFactor(asked.replication_factor)
    if not asked.assignments:
        return None if asked.num_partitions == _DEFAULT else asked.num_partitions
    if asked.num_partitions not in (_DEFAULT, len(asked.assignments)):
        raise InvalidRequest("a number of partitions and an assignment of another number were asked for")
    _check_assignments(context, asked.assignments)
    return len(asked.assignments)


def _check_assignments(context: Context, assignments: Sequence[CreatableReplicaAssignment]) -> None:
    here = context.broker.broker_id
    if sorted(one.partition_index for one in assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignment("partitions must be numbered from 0 without a hole")
    if any(list(one.broker_ids) != [here] for one in assignments):
        raise InvalidReplicaAssignment(f"broker {here} is the only one")


async def delete_topics(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    return DeleteTopicsResponse(responses=[await _delete(context, one) for one in asked])


async def _delete(context: Context, asked: DeleteTopicState) -> DeletableTopicResult:
    try:
        topic = find_topic(context, asked.name, asked.topic_id)
        await context.broker.delete_topic(topic.name)
    except SteleError as error:
        code, message = describe_error(error)
        return DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=message
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id.bytes, error_code=ErrorCode.NONE)


async def create_partitions(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    results: list[CreatePartitionsTopicResult] = []
    for asked in request.topics:
        try:
            await _grow(context, asked, validate_only=request.validate_only)
            results.append(CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE))
        except SteleError as error:
            code, message = describe_error(error)
            results.append(
                CreatePartitionsTopicResult(name=asked.name, error_code=code, error_message=message)
            )
    return CreatePartitionsResponse(results=results)


async def _grow(context: Context, asked: CreatePartitionsTopic, *, validate_only: bool) -> None:
    topic = context.broker.topic(asked.name)
    if asked.count <= topic.partitions:
        raise InvalidPartitionCount(asked.name, asked.count, f"it has {topic.partitions} already")
    if asked.assignments is not None:
        here = context.broker.broker_id
        if len(asked.assignments) != asked.count - topic.partitions:
            raise InvalidReplicaAssignment(f"{asked.count - topic.partitions} partitions are to be added")
        if any(list(one.broker_ids) != [here] for one in asked.assignments):
            raise InvalidReplicaAssignment(f"broker {here} is the only one")
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
