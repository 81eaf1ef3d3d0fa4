"""DescribeConfigs (api key 32): lists the configurations of resources."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, at, message

from ..api import Api


@message
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: str
    configuration_keys: Sequence[str] | None


@message
class DescribeConfigsRequest:
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Bool = at("3+", default=False)


@message
class DescribeConfigsSynonym:
    name: str
    value: str | None
    source: Int8


@message
class DescribeConfigsResourceResult:
    name: str
    value: str | None
    read_only: Bool
    config_source: Int8 = -1
    is_default: Bool = at("0", default=False)
    is_sensitive: Bool
    synonyms: Sequence[DescribeConfigsSynonym]
    config_type: Int8 = at("3+", default=0)
    documentation: str | None = at("3+", default="")


@message
class DescribeConfigsResult:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResult]


@message
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[DescribeConfigsResult]


API = Api(
    key=32,
    name="DescribeConfigs",
    versions=(1, 4),
    flexible_since=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)
