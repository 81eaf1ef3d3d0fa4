"""DeleteShareGroupOffsets (api key 92): deletes a share group's start offsets.

KIP-932.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Uuid, message

from ..api import Api


@message
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str


@message
class DeleteShareGroupOffsetsRequest:
    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic]


@message
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    error_code: Int16
    error_message: str | None = None


@message
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic]


API = Api(
    key=92,
    name="DeleteShareGroupOffsets",
    versions=(0, 0),
    flexible_since=0,
    request=DeleteShareGroupOffsetsRequest,
    response=DeleteShareGroupOffsetsResponse,
)
