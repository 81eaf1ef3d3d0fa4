"""DeleteRecords (api key 21): moves log start offsets up."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, message

from ..api import Api


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


API = Api(
    key=21,
    name="DeleteRecords",
    versions=(0, 2),
    flexible_since=2,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
)
