"""AlterShareGroupOffsets (api key 91): sets start offsets of a share group.

KIP-932.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, Uuid, message

from ..api import Api


@message
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    start_offset: Int64


@message
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition]


@message
class AlterShareGroupOffsetsRequest:
    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequestTopic]


@message
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None


@message
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition]


@message
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    responses: Sequence[AlterShareGroupOffsetsResponseTopic]


API = Api(
    key=91,
    name="AlterShareGroupOffsets",
    versions=(0, 0),
    flexible_since=0,
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
)
