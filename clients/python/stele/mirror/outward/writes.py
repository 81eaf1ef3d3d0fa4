"""What a mirror asks of its target, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import (
    AuthorizationError,
    GroupError,
    InvalidRequestError,
    SteleClientError,
    TopicExistsError,
    UnknownTopicError,
)
from ...records import TopicPartition
from ...wire.error_codes import ErrorCode, error_code
from ...wire.kafka.api import Api
from ...wire.kafka.committed_offsets import (
    OFFSET_COMMIT_API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ...wire.kafka.configs import (
    INCREMENTAL_ALTER_CONFIGS_API,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ResourceType,
)
from ...wire.kafka.groups import FIND_COORDINATOR_API, FindCoordinatorRequest
from ...wire.kafka.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from ...wire.kafka.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ...wire.kafka.transactions import (
    ADD_PARTITIONS_TO_TXN_API,
    END_TXN_API,
    INIT_PRODUCER_ID_API,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from ..errors import SourceReplied
from ..source.cluster import Source
from ..source.reads import Commit

_TIMEOUT_MS = 30_000
_ALL_REPLICAS = -1
# Newer versions have only the ids of topics, several groups, or another protocol of transactions.
_LAST_PRODUCE_BY_NAME = 12
_LAST_OFFSET_COMMIT_BY_NAME = 9
_LAST_FIND_COORDINATOR_OF_ONE = 3
_LAST_ADD_PARTITIONS_OF_ONE = 3
_LAST_END_TXN_WITHOUT_NEW_EPOCH = 4
_GROUP, _TRANSACTIONAL_ID = 0, 1
_SET, _DELETE = 0, 1
_BUSY = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_INVALID = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.POLICY_VIOLATION,
    }
)
_TYPES: dict[ErrorCode, type[SteleClientError]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicExistsError,
    **dict.fromkeys(_BUSY, GroupError),
    **dict.fromkeys(_DENIED, AuthorizationError),
    **dict.fromkeys(_INVALID, InvalidRequestError),
}


def failure(what: str, number: int, message: str | None = None) -> SteleClientError | SourceReplied:
    """Return the error of a response: of a kind that callers know, or one that may pass."""
    replied = SourceReplied(what, number, message)
    kind = _TYPES.get(code := error_code(number))
    return replied if kind is None else kind(str(replied), code=code)


def _check(what: str, number: int, message: str | None = None) -> None:
    if number:
        raise failure(what, number, message)


# ── topics ──


async def _by_controller(cluster: Source, api: Api, request: object, field: str) -> Any:
    """Return the one result of a request. Before KRaft only one of the brokers can do it."""
    for broker in (None, *cluster.brokers):
        (result,) = getattr(await cluster.call(api, request, broker=broker), field)
        if result.error_code != ErrorCode.NOT_CONTROLLER:
            return result
    raise SourceReplied("no broker of the target is its controller", ErrorCode.NOT_CONTROLLER)


async def create_topic(
    cluster: Source, topic: str, *, partitions: int, configs: Mapping[str, str | None]
) -> None:
    """Make a topic with as many replicas as the target gives by itself."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=-1,
                assignments=(),
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
            )
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    result = await _by_controller(cluster, CREATE_TOPICS_API, request, "topics")
    _check(f"topic {topic!r} could not be made", result.error_code, result.error_message)


async def create_partitions(cluster: Source, topic: str, count: int) -> None:
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=False)
    result = await _by_controller(cluster, CREATE_PARTITIONS_API, request, "results")
    _check(f"topic {topic!r} could not get {count} partitions", result.error_code, result.error_message)


async def alter_configs(cluster: Source, topic: str, configs: Mapping[str, str | None]) -> None:
    """Set configurations; None resets."""
    changes = [
        IncrementalAlterableConfig(
            name=name, config_operation=_DELETE if value is None else _SET, value=value
        )
        for name, value in configs.items()
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configs=changes
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = await cluster.call(INCREMENTAL_ALTER_CONFIGS_API, request)
    for result in response.responses:
        _check(f"configurations of {topic!r}", result.error_code, result.error_message)


# ── records ──


class Produced(NamedTuple):
    """Where the target has put a batch, or the number of an error."""

    error: int
    message: str | None
    base_offset: int


async def produce(cluster: Source, broker: int, partition: TopicPartition, batch: bytearray) -> Produced:
    """Append one batch, on all replicas that are in sync."""
    data = PartitionProduceData(index=partition.partition, records=batch)
    request = ProduceRequest(
        acks=_ALL_REPLICAS,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
    )
    response = await cluster.call(
        PRODUCE_API,
        request,
        broker=broker,
        purpose="fetch",
        version_max=_LAST_PRODUCE_BY_NAME,
        wait_s=_TIMEOUT_MS / 1000,
    )
    (topic,) = response.responses
    (result,) = topic.partition_responses
    return Produced(result.error_code, result.error_message, result.base_offset)


# ── producers ──


class Producer(NamedTuple):
    """By which the target knows batches again."""

    id: int
    epoch: int


async def _coordinator(cluster: Source, key: str, kind: int) -> int:
    request = FindCoordinatorRequest(key=key, key_type=kind)
    found = await cluster.call(FIND_COORDINATOR_API, request, version_max=_LAST_FIND_COORDINATOR_OF_ONE)
    _check(f"the coordinator of {key!r}", found.error_code, found.error_message)
    return found.node_id


async def producer(cluster: Source, transactional_id: str) -> Producer:
    """Return the producer of an id, in a new epoch; a transaction of an earlier epoch is aborted."""
    broker = await _coordinator(cluster, transactional_id, _TRANSACTIONAL_ID)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    answer = await cluster.call(INIT_PRODUCER_ID_API, request, broker=broker)
    _check(f"a producer for {transactional_id!r}", answer.error_code)
    return Producer(answer.producer_id, answer.producer_epoch)


async def abort_nothing(
    cluster: Source, transactional_id: str, by: Producer, partitions: Iterable[TopicPartition]
) -> None:
    """Write the end of an empty transaction to partitions: they refuse the producer's earlier epochs from then on.

    It may return before the partitions have it; ``producer`` waits for that.
    """
    broker = await _coordinator(cluster, transactional_id, _TRANSACTIONAL_ID)
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    added = await cluster.call(
        ADD_PARTITIONS_TO_TXN_API,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=by.id,
            v3_and_below_producer_epoch=by.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()
            ],
        ),
        broker=broker,
        version_max=_LAST_ADD_PARTITIONS_OF_ONE,
    )
    for topic in added.results_by_topic_v3_and_below:
        for one in topic.results_by_partition:
            _check(f"{topic.name}-{one.partition_index}", one.partition_error_code)
    ended = await cluster.call(
        END_TXN_API,
        EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=by.id,
            producer_epoch=by.epoch,
            committed=False,
        ),
        broker=broker,
        version_max=_LAST_END_TXN_WITHOUT_NEW_EPOCH,
    )
    _check(f"the end of a transaction of {transactional_id!r}", ended.error_code)


# ── groups ──


async def commit(cluster: Source, group: str, offsets: Sequence[tuple[TopicPartition, Commit]]) -> None:
    """Commit offsets of a group without members. Raises ``GroupError`` if it has some."""
    broker = await _coordinator(cluster, group, _GROUP)
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for name, one in offsets:
        topics.setdefault(name.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=name.partition, committed_offset=one.offset, committed_metadata=one.metadata
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=some) for name, some in topics.items()],
    )
    response = await cluster.call(
        OFFSET_COMMIT_API, request, broker=broker, version_max=_LAST_OFFSET_COMMIT_BY_NAME
    )
    for topic in response.topics:
        for one in topic.partitions:
            _check(f"offsets of group {group!r} in {topic.name}-{one.partition_index}", one.error_code)
