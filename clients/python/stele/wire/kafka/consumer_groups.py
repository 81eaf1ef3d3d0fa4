"""Groups of the protocol "consumer" (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Bool, Int8, Int16, Int32, Uuid, at, message
from .api import Api

# ── ConsumerGroupHeartbeat (api key 68): keeps a member in its group (KIP-848).
#
# It also joins and leaves a group of the protocol *consumer*.


@message
class TopicPartitions:
    topic_id: Uuid
    partitions: Sequence[Int32]


@message
class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = at("1+", default=None)
    server_assignor: str | None = None
    topic_partitions: Sequence[TopicPartitions] | None = None


@message
class TopicPartitionsResult:
    topic_id: Uuid
    partitions: Sequence[Int32]


@message
class Assignment:
    topic_partitions: Sequence[TopicPartitionsResult]


@message
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


CONSUMER_GROUP_HEARTBEAT_API = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    versions=(0, 1),
    flexible_since=0,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
)


# ── ConsumerGroupDescribe (api key 69): describes consumer groups (KIP-848).
#
# They are groups of the protocol *consumer*.


@message
class ConsumerGroupDescribeRequest:
    group_ids: Sequence[str]
    include_authorized_operations: Bool


@message
class ConsumerGroupDescribeTopicPartitions:
    topic_id: Uuid
    topic_name: str
    partitions: Sequence[Int32]


@message
class ConsumerGroupDescribeAssignment:
    topic_partitions: Sequence[ConsumerGroupDescribeTopicPartitions]


@message
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeAssignment
    target_assignment: ConsumerGroupDescribeAssignment
    member_type: Int8 = at("1+", default=-1)


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
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup]


CONSUMER_GROUP_DESCRIBE_API = Api(
    key=69,
    name="ConsumerGroupDescribe",
    versions=(0, 1),
    flexible_since=0,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
)
