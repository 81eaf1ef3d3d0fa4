"""ListGroups (api key 16): lists groups."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, at, message

from ..api import Api


@message
class ListGroupsRequest:
    states_filter: Sequence[str] = at("4+", default=())
    types_filter: Sequence[str] = at("5+", default=())


@message
class ListedGroup:
    group_id: str
    protocol_type: str
    group_state: str = at("4+", default="")
    group_type: str = at("5+", default="")


@message
class ListGroupsResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16
    groups: Sequence[ListedGroup]


API = Api(
    key=16,
    name="ListGroups",
    versions=(0, 5),
    flexible_since=3,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
)
