"""RenewDelegationToken (api key 39): extends a delegation token (KIP-48)."""

from __future__ import annotations

from stele.wire.schema import Int16, Int32, Int64, message

from ..api import Api


@message
class RenewDelegationTokenRequest:
    hmac: bytes
    renew_period_ms: Int64


@message
class RenewDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


API = Api(
    key=39,
    name="RenewDelegationToken",
    versions=(1, 2),
    flexible_since=2,
    request=RenewDelegationTokenRequest,
    response=RenewDelegationTokenResponse,
)
