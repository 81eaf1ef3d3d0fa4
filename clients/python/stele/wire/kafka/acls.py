"""Access rules (KIP-140)."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Int8, Int16, Int32, message
from .api import Api

# ── DescribeAcls (api key 29): lists access rules.


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


DESCRIBE_ACLS_API = Api(
    key=29,
    name="DescribeAcls",
    versions=(1, 3),
    flexible_since=2,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
)


# ── CreateAcls (api key 30): adds access rules.


@message
class AclCreation:
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message
class CreateAclsRequest:
    creations: Sequence[AclCreation]


@message
class AclCreationResult:
    error_code: Int16
    error_message: str | None


@message
class CreateAclsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[AclCreationResult]


CREATE_ACLS_API = Api(
    key=30,
    name="CreateAcls",
    versions=(1, 3),
    flexible_since=2,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
)


# ── DeleteAcls (api key 31): deletes access rules.


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


DELETE_ACLS_API = Api(
    key=31,
    name="DeleteAcls",
    versions=(1, 3),
    flexible_since=2,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
)
