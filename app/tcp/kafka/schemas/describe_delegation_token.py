"""DescribeDelegationToken (api key 41): lists delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, at, message

from ..api import Api


@message
class DescribeDelegationTokenOwner:
    principal_type: str
    principal_name: str


@message
class DescribeDelegationTokenRequest:
    owners: Sequence[DescribeDelegationTokenOwner] | None


@message
class DescribedDelegationTokenRenewer:
    principal_type: str
    principal_name: str


@message
class DescribedDelegationToken:
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = at("3+", default="")
    token_requester_principal_name: str = at("3+", default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: bytes
    renewers: Sequence[DescribedDelegationTokenRenewer]


@message
class DescribeDelegationTokenResponse:
    error_code: Int16
    tokens: Sequence[DescribedDelegationToken]
    throttle_time_ms: Int32 = 0


API = Api(
    key=41,
    name="DescribeDelegationToken",
    versions=(1, 3),
    flexible_since=2,
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
)
