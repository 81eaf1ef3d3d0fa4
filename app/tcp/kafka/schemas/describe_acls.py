"""DescribeAcls (api key 29): lists access rules."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int8, Int16, Int32, message

from ..api import Api


@message
class DescribeAclsRequest:
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


@message
class AclDescription:
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message
class DescribeAclsResource:
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    acls: Sequence[AclDescription]


@message
class DescribeAclsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    resources: Sequence[DescribeAclsResource]


API = Api(
    key=29,
    name="DescribeAcls",
    versions=(1, 3),
    flexible_since=2,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
)
