"""ShareGroupDescribe (api key 77): describes share groups and members (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, Uuid, message

from ..api import Api


@message
class ShareGroupDescribeRequest:
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
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    assignment: Assignment


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


API = Api(
    key=77,
    name="ShareGroupDescribe",
    versions=(1, 1),
    flexible_since=0,
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
)
