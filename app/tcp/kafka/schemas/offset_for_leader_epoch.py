"""OffsetForLeaderEpoch (api key 23): returns the end of a leader epoch.

KIP-101, KIP-320.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, at, message

from ..api import Api


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


API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    versions=(2, 4),
    flexible_since=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)
