"""DescribeTopicPartitions (api key 75): describes topics page by page (KIP-966)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, Uuid, message

from ..api import Api


@message
class TopicRequest:
    name: str


@message
class Cursor:
    topic_name: str
    partition_index: Int32


@message
class DescribeTopicPartitionsRequest:
    topics: Sequence[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


@message
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32]


@message
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: str | None
    topic_id: Uuid
    is_internal: Bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = -2147483648


@message
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None


API = Api(
    key=75,
    name="DescribeTopicPartitions",
    versions=(0, 0),
    flexible_since=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
)
