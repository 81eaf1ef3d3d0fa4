"""CreateDelegationToken (api key 38): issues a delegation token (KIP-48)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, at, message

from ..api import Api


@message
class CreatableRenewers:
    principal_type: str
    principal_name: str


@message
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = at("3+", default="")
    owner_principal_name: str | None = at("3+", default="")
    renewers: Sequence[CreatableRenewers]
    max_lifetime_ms: Int64


@message
class CreateDelegationTokenResponse:
    error_code: Int16
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = at("3+", default="")
    token_requester_principal_name: str = at("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: bytes
    throttle_time_ms: Int32 = 0


API = Api(
    key=38,
    name="CreateDelegationToken",
    versions=(1, 3),
    flexible_since=2,
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
)
