"""DescribeLogDirs (api key 35): returns the sizes of partitions on disk."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, Int64, at, message

from ..api import Api


@message
class DescribableLogDirTopic:
    topic: str
    partitions: Sequence[Int32]


@message
class DescribeLogDirsRequest:
    topics: Sequence[DescribableLogDirTopic] | None


@message
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@message
class DescribeLogDirsTopic:
    name: str
    partitions: Sequence[DescribeLogDirsPartition]


@message
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: str
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: Int64 = at("4+", default=-1)
    usable_bytes: Int64 = at("4+", default=-1)
    is_cordoned: Bool = at("5+", default=False)


@message
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = at("3+", default=0)
    results: Sequence[DescribeLogDirsResult]


API = Api(
    key=35,
    name="DescribeLogDirs",
    versions=(1, 5),
    flexible_since=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)
