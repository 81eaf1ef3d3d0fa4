"""Metadata (api key 3): returns brokers, topics, partitions and leaders.

May create topics.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import NO_UUID, Bool, Int16, Int32, Uuid, at, message

from ..api import Api


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


API = Api(
    key=3,
    name="Metadata",
    versions=(0, 13),
    flexible_since=9,
    request=MetadataRequest,
    response=MetadataResponse,
)
