"""ListConfigResources (api key 74): lists resources with configurations.

KIP-714, KIP-1142.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int8, Int16, Int32, at, message

from ..api import Api


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


API = Api(
    key=74,
    name="ListConfigResources",
    versions=(0, 1),
    flexible_since=0,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
)
