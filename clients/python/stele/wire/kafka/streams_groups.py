"""Groups of the protocol "streams" (KIP-1071)."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Bool, Int8, Int16, Int32, Int64, UInt16, message
from .api import Api

# ── StreamsGroupHeartbeat (api key 88): keeps a Kafka Streams member (KIP-1071).


@message
class KeyValue:
    key: str
    value: str


@message
class TopicInfo:
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: Sequence[KeyValue]


@message
class TaskIds:
    subtopology_id: str
    partitions: Sequence[Int32]


@message
class Endpoint:
    host: str
    port: UInt16


@message
class TaskOffset:
    subtopology_id: str
    partition: Int32
    offset: Int64


@message
class StreamsGroupHeartbeatRequest:
    """It is refused, so its fields are not read."""


@message
class Status:
    status_code: Int8
    status_detail: str


@message
class TaskIdsResult:
    subtopology_id: str
    partitions: Sequence[Int32]


@message
class EndpointResult:
    host: str
    port: UInt16


@message
class TopicPartition:
    topic: str
    partitions: Sequence[Int32]


@message
class EndpointToPartitions:
    user_endpoint: EndpointResult
    active_partitions: Sequence[TopicPartition]
    standby_partitions: Sequence[TopicPartition]


@message
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    member_id: str
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag: Int32
    task_offset_interval_ms: Int32
    status: Sequence[Status] | None
    active_tasks: Sequence[TaskIdsResult] | None = None
    standby_tasks: Sequence[TaskIdsResult] | None = None
    warmup_tasks: Sequence[TaskIdsResult] | None = None
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None = None


STREAMS_GROUP_HEARTBEAT_API = Api(
    key=88,
    name="StreamsGroupHeartbeat",
    versions=(0, 0),
    flexible_since=0,
    request=StreamsGroupHeartbeatRequest,
    response=StreamsGroupHeartbeatResponse,
    reads_request=False,
)


# ── StreamsGroupDescribe (api key 89): describes groups of Kafka Streams (KIP-1071).


@message
class StreamsGroupDescribeRequest:
    group_ids: Sequence[str]
    include_authorized_operations: Bool


@message
class Subtopology:
    subtopology_id: str
    source_topics: Sequence[str]
    repartition_sink_topics: Sequence[str]
    state_changelog_topics: Sequence[TopicInfo]
    repartition_source_topics: Sequence[TopicInfo]


@message
class Topology:
    epoch: Int32
    subtopologies: Sequence[Subtopology] | None = None


@message
class Assignment:
    active_tasks: Sequence[TaskIds]
    standby_tasks: Sequence[TaskIds]
    warmup_tasks: Sequence[TaskIds]


@message
class Member:
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topology_epoch: Int32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue]
    task_offsets: Sequence[TaskOffset]
    task_end_offsets: Sequence[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Bool


@message
class DescribedGroup:
    error_code: Int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Topology | None = None
    members: Sequence[Member]
    authorized_operations: Int32 = -2147483648


@message
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup]


STREAMS_GROUP_DESCRIBE_API = Api(
    key=89,
    name="StreamsGroupDescribe",
    versions=(0, 0),
    flexible_since=0,
    request=StreamsGroupDescribeRequest,
    response=StreamsGroupDescribeResponse,
)
