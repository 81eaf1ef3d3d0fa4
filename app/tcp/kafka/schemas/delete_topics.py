"""DeleteTopics (api key 20): deletes topics by name or id."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import NO_UUID, Int16, Int32, Uuid, at, message

from ..api import Api


@message
class DeleteTopicState:
    name: str | None = at("6+", default=None)
    topic_id: Uuid = at("6+", default=NO_UUID)


@message
class DeleteTopicsRequest:
    topics: Sequence[DeleteTopicState] = at("6+", default=())
    topic_names: Sequence[str] = at("0-5", default=())
    timeout_ms: Int32


@message
class DeletableTopicResult:
    name: str | None = at(nullable="6+")
    topic_id: Uuid = at("6+", default=NO_UUID)
    error_code: Int16
    error_message: str | None = at("5+", default=None)


@message
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = 0
    responses: Sequence[DeletableTopicResult]


API = Api(
    key=20,
    name="DeleteTopics",
    versions=(1, 6),
    flexible_since=4,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
)
