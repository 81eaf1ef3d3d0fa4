"""ConsumerGroupDescribe (api key 69): describes consumer groups (KIP-848).

They are groups of the protocol *consumer*.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, Uuid, at, message

from ..api import Api


@message
class ConsumerGroupDescribeRequest:
    group_ids: Sequence[str]
    include_authorized_operations: Bool


@message
class TopicPartitions:
    topic_id: Uuid
    topic_name: str
    partitions: Sequence[Int32]


@message
class Assignment:
    topic_partitions: Sequence[TopicPartitions]


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
    assignment: Assignment
    target_assignment: Assignment
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


API = Api(
    key=69,
    name="ConsumerGroupDescribe",
    versions=(0, 1),
    flexible_since=0,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
)
