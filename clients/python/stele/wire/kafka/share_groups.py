"""Share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Bool, Int8, Int16, Int32, Int64, Records, Uuid, at, message
from .api import Api

# ── ShareGroupHeartbeat (api key 76): keeps a member in a share group (KIP-932).
#
# It also joins and leaves the group.


@message
class ShareGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: Int32
    rack_id: str | None = None
    subscribed_topic_names: Sequence[str] | None = None


@message
class TopicPartitions:
    topic_id: Uuid
    partitions: Sequence[Int32]


@message
class Assignment:
    topic_partitions: Sequence[TopicPartitions]


@message
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


SHARE_GROUP_HEARTBEAT_API = Api(
    key=76,
    name="ShareGroupHeartbeat",
    versions=(1, 1),
    flexible_since=0,
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
)


# ── ShareGroupDescribe (api key 77): describes share groups and members (KIP-932).


@message
class ShareGroupDescribeRequest:
    group_ids: Sequence[str]
    include_authorized_operations: Bool


@message
class ShareGroupDescribeTopicPartitions:
    topic_id: Uuid
    topic_name: str
    partitions: Sequence[Int32]


@message
class ShareGroupDescribeAssignment:
    topic_partitions: Sequence[ShareGroupDescribeTopicPartitions]


@message
class Member:
    member_id: str
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    assignment: ShareGroupDescribeAssignment


@message
class DescribedGroup:
    error_code: Int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: Sequence[Member]
    authorized_operations: Int32 = -2147483648


@message
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup]


SHARE_GROUP_DESCRIBE_API = Api(
    key=77,
    name="ShareGroupDescribe",
    versions=(1, 1),
    flexible_since=0,
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
)


# ── ShareFetch (api key 78): reads records for a member of a share group (KIP-932).


@message
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: Sequence[Int8]


@message
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: Sequence[AcknowledgementBatch]


@message
class FetchTopic:
    topic_id: Uuid
    partitions: Sequence[FetchPartition]


@message
class ForgottenTopic:
    topic_id: Uuid
    partitions: Sequence[Int32]


@message
class ShareFetchRequest:
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = at("2+", default=0)
    is_renew_ack: Bool = at("2+", default=False)
    topics: Sequence[FetchTopic]
    forgotten_topics_data: Sequence[ForgottenTopic]


@message
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@message
class AcquiredRecords:
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@message
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    acknowledge_error_code: Int16
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: Sequence[AcquiredRecords]


@message
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: Sequence[PartitionData]


@message
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@message
class ShareFetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32
    responses: Sequence[ShareFetchableTopicResponse]
    node_endpoints: Sequence[NodeEndpoint]


SHARE_FETCH_API = Api(
    key=78,
    name="ShareFetch",
    versions=(1, 2),
    flexible_since=0,
    request=ShareFetchRequest,
    response=ShareFetchResponse,
)


# ── ShareAcknowledge (api key 79): acknowledges records of a share group (KIP-932).


@message
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: Sequence[AcknowledgementBatch]


@message
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: Sequence[AcknowledgePartition]


@message
class ShareAcknowledgeRequest:
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    is_renew_ack: Bool = at("2+", default=False)
    topics: Sequence[AcknowledgeTopic]


@message
class ShareAcknowledgePartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch


@message
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: Sequence[ShareAcknowledgePartitionData]


@message
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = at("2+", default=0)
    responses: Sequence[ShareAcknowledgeTopicResponse]
    node_endpoints: Sequence[NodeEndpoint]


SHARE_ACKNOWLEDGE_API = Api(
    key=79,
    name="ShareAcknowledge",
    versions=(1, 2),
    flexible_since=0,
    request=ShareAcknowledgeRequest,
    response=ShareAcknowledgeResponse,
)


# ── DescribeShareGroupOffsets (api key 90): lists share groups' start offsets.
#
# KIP-932.


@message
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: Sequence[Int32]


@message
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None


@message
class DescribeShareGroupOffsetsRequest:
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup]


@message
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = at("1+", default=-1)
    error_code: Int16
    error_message: str | None = None


@message
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition]


@message
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: str | None = None


@message
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup]


DESCRIBE_SHARE_GROUP_OFFSETS_API = Api(
    key=90,
    name="DescribeShareGroupOffsets",
    versions=(0, 1),
    flexible_since=0,
    request=DescribeShareGroupOffsetsRequest,
    response=DescribeShareGroupOffsetsResponse,
)


# ── AlterShareGroupOffsets (api key 91): sets start offsets of a share group.
#
# KIP-932.


@message
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    start_offset: Int64


@message
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition]


@message
class AlterShareGroupOffsetsRequest:
    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequestTopic]


@message
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None


@message
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition]


@message
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    responses: Sequence[AlterShareGroupOffsetsResponseTopic]


ALTER_SHARE_GROUP_OFFSETS_API = Api(
    key=91,
    name="AlterShareGroupOffsets",
    versions=(0, 0),
    flexible_since=0,
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
)


# ── DeleteShareGroupOffsets (api key 92): deletes a share group's start offsets.
#
# KIP-932.


@message
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str


@message
class DeleteShareGroupOffsetsRequest:
    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic]


@message
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    error_code: Int16
    error_message: str | None = None


@message
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic]


DELETE_SHARE_GROUP_OFFSETS_API = Api(
    key=92,
    name="DeleteShareGroupOffsets",
    versions=(0, 0),
    flexible_since=0,
    request=DeleteShareGroupOffsetsRequest,
    response=DeleteShareGroupOffsetsResponse,
)
