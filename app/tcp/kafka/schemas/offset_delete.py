"""OffsetDelete (api key 47): deletes committed offsets of a group (KIP-496)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, message

from ..api import Api


@message
class OffsetDeleteRequestPartition:
    partition_index: Int32


@message
class OffsetDeleteRequestTopic:
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]


@message
class OffsetDeleteRequest:
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]


@message
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@message
class OffsetDeleteResponseTopic:
    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


@message
class OffsetDeleteResponse:
    error_code: Int16
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetDeleteResponseTopic]


API = Api(
    key=47,
    name="OffsetDelete",
    versions=(0, 0),
    flexible_since=None,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
)
