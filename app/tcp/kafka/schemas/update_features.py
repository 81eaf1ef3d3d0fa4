"""UpdateFeatures (api key 57): turns features of the cluster on and off (KIP-584)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, at, message

from ..api import Api


@message
class FeatureUpdateKey:
    feature: str
    max_version_level: Int16
    allow_downgrade: Bool = at("0", default=False)
    upgrade_type: Int8 = at("1+", default=1)


@message
class UpdateFeaturesRequest:
    timeout_ms: Int32 = 60000
    feature_updates: Sequence[FeatureUpdateKey]
    validate_only: Bool = at("1+", default=False)


@message
class UpdatableFeatureResult:
    feature: str
    error_code: Int16
    error_message: str | None


@message
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    results: Sequence[UpdatableFeatureResult] = at("0-1", default=())


API = Api(
    key=57,
    name="UpdateFeatures",
    versions=(0, 2),
    flexible_since=0,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
)
