"""DescribeQuorum (api key 55): describes the quorum of controllers (KIP-595)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import NO_UUID, Int16, Int32, Int64, UInt16, Uuid, at, message

from ..api import Api


@message
class PartitionData:
    partition_index: Int32


@message
class TopicData:
    topic_name: str
    partitions: Sequence[PartitionData]


@message
class DescribeQuorumRequest:
    topics: Sequence[TopicData]


@message
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Uuid = at("2+", default=NO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = at("1+", default=-1)
    last_caught_up_timestamp: Int64 = at("1+", default=-1)


@message
class PartitionQuorum:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = at("2+", default="")
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: Sequence[ReplicaState]
    observers: Sequence[ReplicaState]


@message
class TopicQuorum:
    topic_name: str
    partitions: Sequence[PartitionQuorum]


@message
class Listener:
    name: str = at("2+", default="")
    host: str = at("2+", default="")
    port: UInt16 = at("2+", default=0)


@message
class Node:
    node_id: Int32 = at("2+", default=0)
    listeners: Sequence[Listener] = at("2+", default=())


@message
class DescribeQuorumResponse:
    error_code: Int16
    error_message: str | None = at("2+", default="")
    topics: Sequence[TopicQuorum]
    nodes: Sequence[Node] = at("2+", default=())


API = Api(
    key=55,
    name="DescribeQuorum",
    versions=(0, 2),
    flexible_since=0,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
)
