"""DescribeShareGroupOffsets (api key 90): lists share groups' start offsets.

KIP-932.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, Uuid, at, message

from ..api import Api


@message
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: Sequence[Int32]


@message
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None


@message
class DescribeShareGroupOffsetsRequest:
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup]


@message
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = at("1+", default=-1)
    error_code: Int16
    error_message: str | None = None


@message
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition]


@message
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: str | None = None


@message
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup]


API = Api(
    key=90,
    name="DescribeShareGroupOffsets",
    versions=(0, 1),
    flexible_since=0,
    request=DescribeShareGroupOffsetsRequest,
    response=DescribeShareGroupOffsetsResponse,
)
