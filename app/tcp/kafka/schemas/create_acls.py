"""CreateAcls (api key 30): adds access rules."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int8, Int16, Int32, message

from ..api import Api


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


API = Api(
    key=30,
    name="CreateAcls",
    versions=(1, 3),
    flexible_since=2,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
)
