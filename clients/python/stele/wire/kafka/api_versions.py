"""ApiVersions (api key 18): lists the APIs and versions that the broker serves."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Bool, Int16, Int32, Int64, at, message
from .api import Api


@message
class ApiVersionsRequest:
    client_software_name: str = at("3+", default="")
    client_software_version: str = at("3+", default="")


@message
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class SupportedFeatureKey:
    name: str = at("3+", default="")
    min_version: Int16 = at("3+", default=0)
    max_version: Int16 = at("3+", default=0)


@message
class FinalizedFeatureKey:
    name: str = at("3+", default="")
    max_version_level: Int16 = at("3+", default=0)
    min_version_level: Int16 = at("3+", default=0)


@message
class ApiVersionsResponse:
    error_code: Int16
    api_keys: Sequence[ApiVersion]
    throttle_time_ms: Int32 = at("1+", default=0)
    supported_features: Sequence[SupportedFeatureKey] = at("3+", default=(), tag=0)
    finalized_features_epoch: Int64 = at("3+", default=-1, tag=1)
    finalized_features: Sequence[FinalizedFeatureKey] = at("3+", default=(), tag=2)
    zk_migration_ready: Bool = at("3+", default=False, tag=3)


API_VERSIONS_API = Api(
    key=18,
    name="ApiVersions",
    versions=(0, 4),
    flexible_since=3,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    has_plain_response_header=True,
)
