"""Configurations."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from ..schema import Bool, Int8, Int16, Int32, at, message
from .api import Api


class ResourceType(IntEnum):
    """What has configurations, as the APIs about them number it."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# ── DescribeConfigs (api key 32): lists the configurations of resources.


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


DESCRIBE_CONFIGS_API = Api(
    key=32,
    name="DescribeConfigs",
    versions=(1, 4),
    flexible_since=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)


# ── AlterConfigs (api key 33): replaces all configurations of resources.


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


ALTER_CONFIGS_API = Api(
    key=33,
    name="AlterConfigs",
    versions=(0, 2),
    flexible_since=2,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
)


# ── IncrementalAlterConfigs (api key 44): changes single configurations (KIP-339).


@message
class IncrementalAlterableConfig:
    name: str
    config_operation: Int8
    value: str | None


@message
class IncrementalAlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: Sequence[IncrementalAlterableConfig]


@message
class IncrementalAlterConfigsRequest:
    resources: Sequence[IncrementalAlterConfigsResource]
    validate_only: Bool


@message
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse]


INCREMENTAL_ALTER_CONFIGS_API = Api(
    key=44,
    name="IncrementalAlterConfigs",
    versions=(0, 1),
    flexible_since=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)


# ── ListConfigResources (api key 74): lists resources with configurations.
#
# KIP-714, KIP-1142.


@message
class ListConfigResourcesRequest:
    resource_types: Sequence[Int8] = at("1+", default=())


@message
class ConfigResource:
    resource_name: str
    resource_type: Int8 = at("1+", default=16)


@message
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: Sequence[ConfigResource]


LIST_CONFIG_RESOURCES_API = Api(
    key=74,
    name="ListConfigResources",
    versions=(0, 1),
    flexible_since=0,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
)
