"""Produce (api key 0): appends batches to partitions."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import NO_UUID, Int16, Int32, Int64, Records, Uuid, at, message
from .api import Api


@message
class PartitionProduceData:
    index: Int32
    records: Records | None


@message
class TopicProduceData:
    name: str = at("0-12", default="")
    topic_id: Uuid = at("13+", default=NO_UUID)
    partition_data: Sequence[PartitionProduceData]


@message
class ProduceRequest:
    transactional_id: str | None = at("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: Sequence[TopicProduceData]


@message
class BatchIndexAndErrorMessage:
    batch_index: Int32 = at("8+", default=0)
    batch_index_error_message: str | None = at("8+", default=None)


@message
class LeaderIdAndEpoch:
    leader_id: Int32 = at("10+", default=-1)
    leader_epoch: Int32 = at("10+", default=-1)


@message
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = at("2+", default=-1)
    log_start_offset: Int64 = at("5+", default=-1)
    record_errors: Sequence[BatchIndexAndErrorMessage] = at("8+", default=())
    error_message: str | None = at("8+", default=None)
    current_leader: LeaderIdAndEpoch | None = at("10+", default=None, tag=0)


@message
class TopicProduceResponse:
    name: str = at("0-12", default="")
    topic_id: Uuid = at("13+", default=NO_UUID)
    partition_responses: Sequence[PartitionProduceResponse]


@message
class NodeEndpoint:
    node_id: Int32 = at("10+", default=0)
    host: str = at("10+", default="")
    port: Int32 = at("10+", default=0)
    rack: str | None = at("10+", default=None)


@message
class ProduceResponse:
    responses: Sequence[TopicProduceResponse]
    throttle_time_ms: Int32 = at("1+", default=0)
    node_endpoints: Sequence[NodeEndpoint] = at("10+", default=(), tag=0)


PRODUCE_API = Api(
    key=0,
    name="Produce",
    versions=(0, 13),
    flexible_since=9,
    request=ProduceRequest,
    response=ProduceResponse,
)
