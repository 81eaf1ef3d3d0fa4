"""DeleteAcls (api key 31): deletes access rules."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int8, Int16, Int32, message

from ..api import Api


@message
class DeleteAclsFilter:
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsRequest:
    filters: Sequence[DeleteAclsFilter]


@message
class DeleteAclsMatchingAcl:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsFilterResult:
    error_code: Int16
    error_message: str | None
    matching_acls: Sequence[DeleteAclsMatchingAcl]


@message
class DeleteAclsResponse:
    throttle_time_ms: Int32 = 0
    filter_results: Sequence[DeleteAclsFilterResult]


API = Api(
    key=31,
    name="DeleteAcls",
    versions=(1, 3),
    flexible_since=2,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
)
