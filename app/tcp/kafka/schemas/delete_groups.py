"""DeleteGroups (api key 42): deletes groups and their offsets."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, message

from ..api import Api


@message
class DeleteGroupsRequest:
    groups_names: Sequence[str]


@message
class DeletableGroupResult:
    group_id: str
    error_code: Int16


@message
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[DeletableGroupResult]


API = Api(
    key=42,
    name="DeleteGroups",
    versions=(0, 2),
    flexible_since=2,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
)
