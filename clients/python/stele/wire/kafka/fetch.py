"""Fetch (api key 1): reads batches from partitions."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import NO_UUID, Int8, Int16, Int32, Int64, Records, Rows, Uuid, at, message
from .api import Api


@message
class ReplicaState:
    replica_id: Int32 = at("15+", default=-1)
    replica_epoch: Int64 = at("15+", default=-1)


@message
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = at("9+", default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = at("12+", default=-1)
    log_start_offset: Int64 = at("5+", default=-1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = at("17+", default=NO_UUID, tag=0)
    high_watermark: Int64 = at("18+", default=9223372036854775807, tag=1)


@message
class FetchTopic:
    topic: str = at("0-12", default="")
    topic_id: Uuid = at("13+", default=NO_UUID)
    partitions: Rows[FetchPartition]


@message
class ForgottenTopic:
    topic: str = at("7-12", default="")
    topic_id: Uuid = at("13+", default=NO_UUID)
    partitions: Sequence[Int32] = at("7+", default=())


@message
class FetchRequest:
    cluster_id: str | None = at("12+", default=None, tag=0)
    replica_id: Int32 = at("0-14", default=-1)
    replica_state: ReplicaState | None = at("15+", default=None, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = at("3+", default=2147483647)
    isolation_level: Int8 = at("4+", default=0)
    session_id: Int32 = at("7+", default=0)
    session_epoch: Int32 = at("7+", default=-1)
    topics: Sequence[FetchTopic]
    forgotten_topics_data: Sequence[ForgottenTopic] = at("7+", default=())
    rack_id: str = at("11+", default="")


@message
class EpochEndOffset:
    epoch: Int32 = at("12+", default=-1)
    end_offset: Int64 = at("12+", default=-1)


@message
class LeaderIdAndEpoch:
    leader_id: Int32 = at("12+", default=-1)
    leader_epoch: Int32 = at("12+", default=-1)


@message
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@message
class AbortedTransaction:
    producer_id: Int64 = at("4+", default=0)
    first_offset: Int64 = at("4+", default=0)


@message
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = at("4+", default=-1)
    log_start_offset: Int64 = at("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = at("12+", default=None, tag=0)
    current_leader: LeaderIdAndEpoch | None = at("12+", default=None, tag=1)
    snapshot_id: SnapshotId | None = at("12+", default=None, tag=2)
    aborted_transactions: Sequence[AbortedTransaction] | None = at("4+", default=())
    preferred_read_replica: Int32 = at("11+", default=-1)
    records: Records | None


@message
class FetchableTopicResponse:
    topic: str = at("0-12", default="")
    topic_id: Uuid = at("13+", default=NO_UUID)
    partitions: Rows[PartitionData]


@message
class NodeEndpoint:
    node_id: Int32 = at("16+", default=0)
    host: str = at("16+", default="")
    port: Int32 = at("16+", default=0)
    rack: str | None = at("16+", default=None)


@message
class FetchResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16 = at("7+", default=0)
    session_id: Int32 = at("7+", default=0)
    responses: Sequence[FetchableTopicResponse]
    node_endpoints: Sequence[NodeEndpoint] = at("16+", default=(), tag=0)


FETCH_API = Api(
    key=1,
    name="Fetch",
    versions=(0, 18),
    flexible_since=12,
    request=FetchRequest,
    response=FetchResponse,
)
