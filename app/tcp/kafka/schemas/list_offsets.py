"""ListOffsets (api key 2): finds first, next and timestamped offsets."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int8, Int16, Int32, Int64, at, message

from ..api import Api


@message
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = at("4+", default=-1)
    timestamp: Int64
    max_num_offsets: Int32 = at("0", default=1)


@message
class ListOffsetsTopic:
    name: str
    partitions: Sequence[ListOffsetsPartition]


@message
class ListOffsetsRequest:
    replica_id: Int32
    isolation_level: Int8 = at("2+", default=0)
    topics: Sequence[ListOffsetsTopic]
    timeout_ms: Int32 = at("10+", default=0)


@message
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16
    old_style_offsets: Sequence[Int64] = at("0", default=())
    timestamp: Int64 = at("1+", default=-1)
    offset: Int64 = at("1+", default=-1)
    leader_epoch: Int32 = at("4+", default=-1)


@message
class ListOffsetsTopicResponse:
    name: str
    partitions: Sequence[ListOffsetsPartitionResponse]


@message
class ListOffsetsResponse:
    throttle_time_ms: Int32 = at("2+", default=0)
    topics: Sequence[ListOffsetsTopicResponse]


API = Api(
    key=2,
    name="ListOffsets",
    versions=(0, 11),
    flexible_since=6,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
)
