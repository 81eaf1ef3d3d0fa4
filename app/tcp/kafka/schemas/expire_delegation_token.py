"""ExpireDelegationToken (api key 40): shortens a delegation token's life.

KIP-48.
"""

from __future__ import annotations

from stele.wire.schema import Int16, Int32, Int64, message

from ..api import Api


@message
class ExpireDelegationTokenRequest:
    hmac: bytes
    expiry_time_period_ms: Int64


@message
class ExpireDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


API = Api(
    key=40,
    name="ExpireDelegationToken",
    versions=(1, 2),
    flexible_since=2,
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
)
