"""ShareGroupHeartbeat (api key 76): keeps a member in a share group (KIP-932).

It also joins and leaves the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Uuid, message

from ..api import Api


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


API = Api(
    key=76,
    name="ShareGroupHeartbeat",
    versions=(1, 1),
    flexible_since=0,
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
)
