"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords.

A request is not atomic: each topic or partition is changed, or refused, by itself and in
the order of the request.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, islice

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.offsets import (
    DELETE_RECORDS_API,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from stele.wire.kafka.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_TOPICS_API,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

from ....broker.placement import Placement, check_assignment
from ....broker.topics import is_topic_name
from ....concurrency import DELETIONS_MAX, several
from ....errors import (
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidRequest,
    SteleError,
    TooManyPartitions,
    UnknownTopic,
)
from ....security.acl import ALTER_TOPIC, DELETE_TOPIC
from ....work_budget import SMALL_VISIT, by_key, visited
from ..context import Context, describe_error, error_code_unless_closing, find_topic
from ..guards import topics as topic_guards
from ..guards.rights import PARTITIONS, Parts, on_each
from ..served import Served, always
from .configs import check_number
from .nodes import broker_ids

_DEFAULT = -1
_REPLICAS = 1
_HIGH_WATERMARK = -1
_DUPLICATE_NAME = "Duplicate topic name."
# The configurations of a topic are described, which takes about 0.15 ms.
_VISITS_PER_TOPIC = 10


async def create_topics(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    topics, repeated = await by_key(request.topics, lambda topic: topic.name)
    return CreateTopicsResponse(
        topics=[
            await _create(context, topic, validate_only=request.validate_only, is_repeated=name in repeated)
            async for name, topic in visited(topics.items(), _VISITS_PER_TOPIC)
        ]
    )


async def _create(
    context: Context, wanted: CreatableTopic, *, validate_only: bool, is_repeated: bool
) -> CreatableTopicResult:
    try:
        if is_repeated:
            raise InvalidRequest(_DUPLICATE_NAME)
        check_number(wanted.configs)
        limit = context.broker.settings.partitions_max
        if len(wanted.assignments) > limit:
            raise TooManyPartitions(wanted.name, total=len(wanted.assignments), limit=limit)
        topic = await context.broker.create_topic(
            wanted.name,
            placement=_placement(wanted),
            configs={config.name: config.value for config in wanted.configs},
            validate_only=validate_only,
        )
    except SteleError as error:
        code, message = describe_error(error)
        return CreatableTopicResult(name=wanted.name, error_code=code, error_message=message)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=_REPLICAS,
        configs=[
            CreatableTopicConfigs(name=config.name, value=config.value, config_source=config.source)
            for config in context.broker.configs.describe_topic(topic)
        ],
    )


def _placement(wanted: CreatableTopic) -> Placement:
    return Placement(
        partitions=None if wanted.num_partitions == _DEFAULT else wanted.num_partitions,
        replication_factor=None if wanted.replication_factor == _DEFAULT else wanted.replication_factor,
        assignments=[
            (assignment.partition_index, assignment.broker_ids) for assignment in wanted.assignments
        ],
    )


async def delete_topics(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    # Until v5 they are names only.
    by_name = (DeleteTopicState(name=name) for name in request.topic_names)
    topics, repeated = await by_key(chain(request.topics, by_name), _topic_key)
    return DeleteTopicsResponse(
        responses=[
            await _delete(context, topic, is_repeated=key in repeated)
            async for key, topic in visited(topics.items())
        ]
    )


def _topic_key(named: DeleteTopicState) -> str | bytes:
    return named.topic_id if named.name is None else named.name


async def _delete(context: Context, named: DeleteTopicState, *, is_repeated: bool) -> DeletableTopicResult:
    try:
        _refuse_deletion(named, is_repeated=is_repeated)
        topic = find_topic(context, named.name, named.topic_id)
        await context.broker.delete_topic(topic.name)
    except SteleError as error:
        code, message = describe_error(error)
        return DeletableTopicResult(
            name=named.name, topic_id=named.topic_id, error_code=code, error_message=message
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id.bytes, error_code=ErrorCode.NONE)


def _refuse_deletion(named: DeleteTopicState, *, is_repeated: bool) -> None:
    has_id = any(named.topic_id)
    if named.name is not None and has_id:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if named.name is None and not has_id:
        raise InvalidRequest("Neither topic name nor id were specified.")
    if is_repeated:
        raise InvalidRequest(_DUPLICATE_NAME if named.name is not None else "Duplicate topic id.")
    if named.name is not None and not is_topic_name(named.name):
        # As in Kafka, a name that no topic can have is an unknown topic.
        raise UnknownTopic(named.name)


async def create_partitions(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    topics, repeated = await by_key(request.topics, lambda topic: topic.name)
    results: list[CreatePartitionsTopicResult] = []
    async for name, topic in visited(topics.items()):
        try:
            if name in repeated:
                raise InvalidRequest(_DUPLICATE_NAME)
            await _grow(context, topic, validate_only=request.validate_only)
            results.append(CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE))
        except SteleError as error:
            code, message = describe_error(error)
            results.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=message))
    return CreatePartitionsResponse(results=results)


async def _grow(context: Context, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    if not is_topic_name(wanted.name):
        raise UnknownTopic(wanted.name)
    topic = context.broker.topic(wanted.name)
    if wanted.count <= topic.partitions:
        raise InvalidPartitionCount(
            wanted.name,
            wanted.count,
            f"it has {topic.partitions} already",
            message=f"Topic already has {wanted.count} partition(s)."
            if wanted.count == topic.partitions
            else f"The topic {wanted.name} currently has {topic.partitions} partition(s); "
            f"{wanted.count} would not be an increase.",
        )
    if wanted.assignments is not None:
        added = wanted.count - topic.partitions
        if len(wanted.assignments) != added:
            raise InvalidReplicaAssignment(
                f"{added} partitions are to be added, and {len(wanted.assignments)} are assigned"
            )
        known = broker_ids(context)
        for assignment in wanted.assignments:
            check_assignment(assignment.broker_ids, broker_ids=known)
    await context.broker.alter_topic(wanted.name, partitions=wanted.count, validate_only=validate_only)


async def delete_records(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    partitions = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    results = await several(partial(_delete_before, context), partitions, at_a_time=DELETIONS_MAX)
    following = iter(results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=list(islice(following, len(topic.partitions)))
            )
            async for topic in visited(request.topics, SMALL_VISIT)
        ]
    )


async def _delete_before(
    context: Context, named: tuple[str, DeleteRecordsPartition]
) -> DeleteRecordsPartitionResult:
    broker = context.broker
    topic, partition, offset = named[0], named[1].partition_index, named[1].offset
    try:
        # An internal topic is refused at every broker, also where its end is not known.
        broker.topic(topic)
        if offset == _HIGH_WATERMARK:
            await broker.refresh([(topic, partition)])
            offset = broker.log_state(topic, partition).high_watermark
        start = await broker.delete_records(topic, partition, offset)
    except SteleError as error:
        code = error_code_unless_closing(error, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return DeleteRecordsPartitionResult(partition_index=partition, low_watermark=-1, error_code=code)
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=start, error_code=ErrorCode.NONE
    )


ROWS = (
    Served(
        CREATE_TOPICS_API,
        create_topics,
        topic_guards.CREATE_TOPICS,
        changes=True,
        is_barrier=always,
        lists=True,
        finds_topics_itself=True,
    ),
    Served(DELETE_TOPICS_API, delete_topics, topic_guards.DELETE_TOPICS, changes=True, is_barrier=always),
    Served(
        DELETE_RECORDS_API,
        delete_records,
        on_each(DELETE_TOPIC, DeleteRecordsResponse, PARTITIONS),
        changes=True,
        is_barrier=always,
    ),
    Served(
        CREATE_PARTITIONS_API,
        create_partitions,
        on_each(
            ALTER_TOPIC,
            CreatePartitionsResponse,
            Parts(field="topics", name="name", answers="results", answer_name="name"),
        ),
        changes=True,
        is_barrier=always,
    ),
)
