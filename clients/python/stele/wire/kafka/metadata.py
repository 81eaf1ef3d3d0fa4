"""Topics and brokers, as clients find them."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import NO_UUID, Bool, Int8, Int16, Int32, Uuid, at, message
from .api import Api

# ── Metadata (api key 3): returns brokers, topics, partitions and leaders.
#
# May create topics.


@message
class MetadataRequestTopic:
    topic_id: Uuid = at("10+", default=NO_UUID)
    name: str | None = at(nullable="10+")


@message
class MetadataRequest:
    topics: Sequence[MetadataRequestTopic] | None = at(nullable="1+")
    allow_auto_topic_creation: Bool = at("4+", default=True)
    include_cluster_authorized_operations: Bool = at("8-10", default=False)
    include_topic_authorized_operations: Bool = at("8+", default=False)


@message
class MetadataResponseBroker:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = at("1+", default=None)


@message
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = at("7+", default=-1)
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    offline_replicas: Sequence[Int32] = at("5+", default=())


@message
class MetadataResponseTopic:
    error_code: Int16
    name: str | None = at(nullable="12+")
    topic_id: Uuid = at("10+", default=NO_UUID)
    is_internal: Bool = at("1+", default=False)
    partitions: Sequence[MetadataResponsePartition]
    topic_authorized_operations: Int32 = at("8+", default=-2147483648)


@message
class MetadataResponse:
    throttle_time_ms: Int32 = at("3+", default=0)
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: str | None = at("2+", default=None)
    controller_id: Int32 = at("1+", default=-1)
    topics: Sequence[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = at("8-10", default=-2147483648)
    error_code: Int16 = at("13+", default=0)


METADATA_API = Api(
    key=3,
    name="Metadata",
    versions=(0, 13),
    flexible_since=9,
    request=MetadataRequest,
    response=MetadataResponse,
)


# ── DescribeCluster (api key 60): returns the cluster's id and brokers (KIP-700).


@message
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = at("1+", default=1)
    include_fenced_brokers: Bool = at("2+", default=False)


@message
class DescribeClusterBroker:
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: Bool = at("2+", default=False)


@message
class DescribeClusterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    endpoint_type: Int8 = at("1+", default=1)
    cluster_id: str
    controller_id: Int32 = -1
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648


DESCRIBE_CLUSTER_API = Api(
    key=60,
    name="DescribeCluster",
    versions=(0, 2),
    flexible_since=0,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
)


# ── DescribeTopicPartitions (api key 75): describes topics page by page (KIP-966).


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


DESCRIBE_TOPIC_PARTITIONS_API = Api(
    key=75,
    name="DescribeTopicPartitions",
    versions=(0, 0),
    flexible_since=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
)
