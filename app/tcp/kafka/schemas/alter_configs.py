"""AlterConfigs (api key 33): replaces all configurations of resources."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, message

from ..api import Api


@message
class AlterableConfig:
    name: str
    value: str | None


@message
class AlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: Sequence[AlterableConfig]


@message
class AlterConfigsRequest:
    resources: Sequence[AlterConfigsResource]
    validate_only: Bool


@message
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


@message
class AlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse]


API = Api(
    key=33,
    name="AlterConfigs",
    versions=(0, 2),
    flexible_since=2,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
)
