"""IncrementalAlterConfigs (api key 44): changes single configurations (KIP-339)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, message

from ..api import Api


@message
class AlterableConfig:
    name: str
    config_operation: Int8
    value: str | None


@message
class AlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: Sequence[AlterableConfig]


@message
class IncrementalAlterConfigsRequest:
    resources: Sequence[AlterConfigsResource]
    validate_only: Bool


@message
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


@message
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse]


API = Api(
    key=44,
    name="IncrementalAlterConfigs",
    versions=(0, 1),
    flexible_since=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)
