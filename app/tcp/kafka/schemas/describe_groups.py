"""DescribeGroups (api key 15): returns the state and the members of groups."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, at, message

from ..api import Api


@message
class DescribeGroupsRequest:
    groups: Sequence[str]
    include_authorized_operations: Bool = at("3+", default=False)


@message
class DescribedGroupMember:
    member_id: str
    group_instance_id: str | None = at("4+", default=None)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@message
class DescribedGroup:
    error_code: Int16
    error_message: str | None = at("6+", default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMember]
    authorized_operations: Int32 = at("3+", default=-2147483648)


@message
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    groups: Sequence[DescribedGroup]


API = Api(
    key=15,
    name="DescribeGroups",
    versions=(0, 6),
    flexible_since=5,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
)
