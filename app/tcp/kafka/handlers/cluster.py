"""Leaders, replicas, controllers and features of a cluster that is one broker.

The responses are those of Apache Kafka on one broker: no election is needed, no
partition is moving, the quorum has one member. Requests that would change the cluster
are refused with an error in their response.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.cluster import (
    ADD_RAFT_VOTER_API,
    ALTER_PARTITION_REASSIGNMENTS_API,
    DESCRIBE_QUORUM_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    REMOVE_RAFT_VOTER_API,
    UNREGISTER_BROKER_API,
    UPDATE_FEATURES_API,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    Node,
    PartitionQuorum,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ReplicaElectionResult,
    ReplicaState,
    TopicQuorum,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from stele.wire.kafka.configs import (
    LIST_CONFIG_RESOURCES_API,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from ....broker.dynamic_configs import ConfigKind
from ....errors import SteleError
from ....security.acl import ALTER_CLUSTER, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS_CLUSTER
from ....work_budget import SMALL_VISIT, WorkBudget, visited
from ..context import Context, describe_error
from ..features import FEATURES
from ..guards.rights import on_cluster
from ..served import Served

_PREFERRED, _UNCLEAN = 0, 1
_METADATA_TOPIC = "__cluster_metadata"
_NO_SUCH_QUORUM = "only partition 0 of __cluster_metadata has a quorum to describe"
_NO_VOTERS = "the quorum of controllers is this one broker; voters cannot be added or removed"
# The metadata is a database and not a log, so it has no epoch and no offset.
_METADATA_EPOCH = 0
_METADATA_END_OFFSET = 0
# The resources that have configurations, by their numbers in DescribeConfigs.
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_RESOURCE_TYPES = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
_FIRST_WITH_RESOURCE_TYPES = 1
_NAME_CHARACTERS_MAX = 1000


def partition_error(context: Context, topic: str, partition: int) -> tuple[ErrorCode, str | None]:
    """Return NONE and no text if the partition exists, else the error."""
    try:
        context.broker.check_partition(topic, partition)
    except SteleError as error:
        return describe_error(error)
    return ErrorCode.NONE, None


async def once_each(topics: Iterable[tuple[str, Sequence[int]]]) -> dict[str, dict[int, None]]:
    """Return the partitions by topic, each once, in the order of the request."""
    requested: dict[str, dict[int, None]] = {}
    async for topic, partitions in visited(topics, SMALL_VISIT):
        requested.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return requested


# ── leaders and replicas ──


async def elect_leaders(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect no leader: every partition is led by its only replica."""
    if request.topic_partitions is None:
        # For "all partitions", Kafka lists only those whose leader would change.
        return ElectLeadersResponse(
            error_code=ErrorCode.NONE,
            replica_election_results=[
                ReplicaElectionResult(topic=topic.name, partition_result=())
                for topic in context.broker.topics()
            ],
        )
    kind = request.election_type
    is_known = kind in (_PREFERRED, _UNCLEAN)
    requested = await once_each((topic.topic, topic.partitions) for topic in request.topic_partitions)
    budget = WorkBudget()
    topics: list[ReplicaElectionResult] = []
    for topic, partitions in requested.items():
        results: list[PartitionResult] = []
        for partition in partitions:
            results.append(
                _elect(context, topic, partition) if is_known else _unknown_election(partition, kind)
            )
            await budget.visit()
        topics.append(ReplicaElectionResult(topic=topic, partition_result=results))
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST, replica_election_results=topics
    )


def _unknown_election(partition: int, kind: int) -> PartitionResult:
    return PartitionResult(
        partition_id=partition,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"election type {kind} is unknown; use 0 (preferred) or 1 (unclean)",
    )


def _elect(context: Context, topic: str, partition: int) -> PartitionResult:
    code, message = partition_error(context, topic, partition)
    if not code:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica leads the partition already"
    return PartitionResult(partition_id=partition, error_code=code, error_message=message)


async def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Accept assignments to this broker, which has all partitions already.

    There is no other.
    """
    budget = WorkBudget()
    responses: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        partitions: list[ReassignablePartitionResponse] = []
        for partition in topic.partitions:
            partitions.append(_reassign(context, topic.name, partition))
            await budget.visit()
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )


def _reassign(
    context: Context, topic: str, partition: ReassignablePartition
) -> ReassignablePartitionResponse:
    code, message = partition_error(context, topic, partition.partition_index)
    if not code:
        code, message = _check_replicas(partition.replicas, here=context.broker.broker_id)
    return ReassignablePartitionResponse(
        partition_index=partition.partition_index, error_code=code, error_message=message
    )


def _check_replicas(replicas: Sequence[int] | None, *, here: int) -> tuple[ErrorCode, str | None]:
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if not replicas:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the list of replicas is empty"
    for replica in replicas:
        if replica != here:
            text = f"broker {replica} does not exist; the only broker is {here}"
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, text
    if len(replicas) > 1:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {here} is listed more than once"
    return ErrorCode.NONE, None


def list_partition_reassignments(
    _context: Context, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=())


# ── controllers, brokers, features ──


async def describe_quorum(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe a quorum of this broker alone; it has no listener for controllers.

    As in Kafka, a request may name only the one partition of the cluster's metadata.
    """
    budget = WorkBudget()
    requested = await once_each(
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in request.topics
    )
    is_metadata = list(requested) == [_METADATA_TOPIC] and list(requested[_METADATA_TOPIC]) == [0]
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=[
            TopicQuorum(
                topic_name=topic,
                partitions=[
                    _quorum(context) if is_metadata else _no_quorum(partition)
                    async for partition in visited(partitions, SMALL_VISIT, budget)
                ],
            )
            async for topic, partitions in visited(requested.items(), SMALL_VISIT, budget)
        ],
        nodes=[Node(node_id=context.broker.broker_id, listeners=())] if is_metadata else (),
    )


def _quorum(context: Context) -> PartitionQuorum:
    now_ms = context.broker.now_ms()
    return PartitionQuorum(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=context.broker.broker_id,
        leader_epoch=_METADATA_EPOCH,
        high_watermark=_METADATA_END_OFFSET,
        current_voters=[
            ReplicaState(
                replica_id=context.broker.broker_id,
                log_end_offset=_METADATA_END_OFFSET,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=(),
    )


def _no_quorum(partition: int) -> PartitionQuorum:
    return PartitionQuorum(
        partition_index=partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=_NO_SUCH_QUORUM,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )


def add_raft_voter(_context: Context, _request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=_NO_VOTERS)


def remove_raft_voter(_context: Context, _request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=_NO_VOTERS)


def unregister_broker(context: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Refuse to unregister this broker, unlike Kafka: it is the only one."""
    here = context.broker.broker_id
    if request.broker_id == here:
        code, message = ErrorCode.INVALID_REQUEST, f"broker {here} is the only one; stop it instead"
    else:
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        message = f"broker {request.broker_id} does not exist; the only broker is {here}"
    return UnregisterBrokerResponse(error_code=code, error_message=message)


def update_features(_context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuse all features: their levels are fixed (ADR-0021).

    As in Kafka, the error of the first feature is that of the whole request.
    """
    if not request.feature_updates:
        return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None)
    feature = request.feature_updates[0].feature[:_NAME_CHARACTERS_MAX]
    level = FEATURES.get(feature)
    reason = "does not exist here" if level is None else f"is fixed at level {level}"
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"feature {feature!r} {reason}, and none of the features were updated; "
        "this broker has no features to turn on or off",
    )


# ── configurations ──


def list_config_resources(
    context: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources that have configurations, in Kafka's order.

    Version 0 lists client metrics subscriptions.
    """
    broker = context.broker
    has_types = context.version >= _FIRST_WITH_RESOURCE_TYPES
    kinds = set((request.resource_types if has_types else (_CLIENT_METRICS,)) or _RESOURCE_TYPES)
    if not kinds <= set(_RESOURCE_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=())
    here = [str(broker.broker_id)]
    names = {
        _GROUP: lambda: broker.configs.entities(ConfigKind.GROUP),
        _CLIENT_METRICS: lambda: broker.configs.entities(ConfigKind.CLIENT_METRICS),
        _BROKER_LOGGER: lambda: here,
        _BROKER: lambda: here,
        _TOPIC: lambda: [topic.name for topic in broker.readable_topics()],
    }
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, list_names in names.items()
            if kind in kinds
            for name in list_names()
        ],
    )


ROWS = (
    Served(ELECT_LEADERS_API, elect_leaders, on_cluster(ALTER_CLUSTER, ElectLeadersResponse), walks=True),
    Served(
        ALTER_PARTITION_REASSIGNMENTS_API,
        alter_partition_reassignments,
        on_cluster(ALTER_CLUSTER, AlterPartitionReassignmentsResponse),
        walks=True,
    ),
    Served(
        LIST_PARTITION_REASSIGNMENTS_API,
        list_partition_reassignments,
        on_cluster(DESCRIBE_CLUSTER, ListPartitionReassignmentsResponse),
    ),
    Served(
        DESCRIBE_QUORUM_API,
        describe_quorum,
        on_cluster(DESCRIBE_CLUSTER, DescribeQuorumResponse),
        finds_topics_itself=True,
    ),
    Served(UPDATE_FEATURES_API, update_features, on_cluster(ALTER_CLUSTER, UpdateFeaturesResponse)),
    Served(UNREGISTER_BROKER_API, unregister_broker, on_cluster(ALTER_CLUSTER, UnregisterBrokerResponse)),
    Served(
        LIST_CONFIG_RESOURCES_API,
        list_config_resources,
        on_cluster(DESCRIBE_CONFIGS_CLUSTER, ListConfigResourcesResponse),
    ),
    Served(ADD_RAFT_VOTER_API, add_raft_voter, on_cluster(ALTER_CLUSTER, AddRaftVoterResponse)),
    Served(REMOVE_RAFT_VOTER_API, remove_raft_voter, on_cluster(ALTER_CLUSTER, RemoveRaftVoterResponse)),
)
