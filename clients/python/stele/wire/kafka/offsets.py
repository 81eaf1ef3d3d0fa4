"""Offsets of a log: list, by leader epoch, delete before."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Int8, Int16, Int32, Int64, at, message
from .api import Api

# ── ListOffsets (api key 2): finds first, next and timestamped offsets.


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


LIST_OFFSETS_API = Api(
    key=2,
    name="ListOffsets",
    versions=(0, 11),
    flexible_since=6,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
)


# ── OffsetForLeaderEpoch (api key 23): returns the end of a leader epoch.
#
# KIP-101, KIP-320.


@message
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@message
class OffsetForLeaderTopic:
    topic: str
    partitions: Sequence[OffsetForLeaderPartition]


@message
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = at("3+", default=-2)
    topics: Sequence[OffsetForLeaderTopic]


@message
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@message
class OffsetForLeaderTopicResult:
    topic: str
    partitions: Sequence[EpochEndOffset]


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetForLeaderTopicResult]


OFFSET_FOR_LEADER_EPOCH_API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    versions=(2, 4),
    flexible_since=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)


# ── DeleteRecords (api key 21): moves log start offsets up.


@message
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@message
class DeleteRecordsTopic:
    name: str
    partitions: Sequence[DeleteRecordsPartition]


@message
class DeleteRecordsRequest:
    topics: Sequence[DeleteRecordsTopic]
    timeout_ms: Int32


@message
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@message
class DeleteRecordsTopicResult:
    name: str
    partitions: Sequence[DeleteRecordsPartitionResult]


@message
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[DeleteRecordsTopicResult]


DELETE_RECORDS_API = Api(
    key=21,
    name="DeleteRecords",
    versions=(0, 2),
    flexible_since=2,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
)
