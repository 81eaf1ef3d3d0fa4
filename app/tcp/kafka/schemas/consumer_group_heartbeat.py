"""ConsumerGroupHeartbeat (api key 68): keeps a member in its group (KIP-848).

It also joins and leaves a group of the protocol *consumer*.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Uuid, at, message

from ..api import Api


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


API = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    versions=(0, 1),
    flexible_since=0,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
)
