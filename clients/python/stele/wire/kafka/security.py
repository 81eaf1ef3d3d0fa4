"""SASL and delegation tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Int16, Int32, Int64, at, message
from .api import Api

# ── SaslHandshake (api key 17): chooses the SASL mechanism (KIP-43).


@message
class SaslHandshakeRequest:
    mechanism: str


@message
class SaslHandshakeResponse:
    error_code: Int16
    mechanisms: Sequence[str]


SASL_HANDSHAKE_API = Api(
    key=17,
    name="SaslHandshake",
    versions=(0, 1),
    flexible_since=None,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
)


# ── SaslAuthenticate (api key 36): carries the bytes of a SASL mechanism (KIP-152).


@message
class SaslAuthenticateRequest:
    auth_bytes: bytes


@message
class SaslAuthenticateResponse:
    error_code: Int16
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: Int64 = at("1+", default=0)


SASL_AUTHENTICATE_API = Api(
    key=36,
    name="SaslAuthenticate",
    versions=(0, 2),
    flexible_since=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
)


# ── CreateDelegationToken (api key 38): issues a delegation token (KIP-48).


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


CREATE_DELEGATION_TOKEN_API = Api(
    key=38,
    name="CreateDelegationToken",
    versions=(1, 3),
    flexible_since=2,
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
)


# ── RenewDelegationToken (api key 39): extends a delegation token (KIP-48).


@message
class RenewDelegationTokenRequest:
    hmac: bytes
    renew_period_ms: Int64


@message
class RenewDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


RENEW_DELEGATION_TOKEN_API = Api(
    key=39,
    name="RenewDelegationToken",
    versions=(1, 2),
    flexible_since=2,
    request=RenewDelegationTokenRequest,
    response=RenewDelegationTokenResponse,
)


# ── ExpireDelegationToken (api key 40): shortens a delegation token's life.
#
# KIP-48.


@message
class ExpireDelegationTokenRequest:
    hmac: bytes
    expiry_time_period_ms: Int64


@message
class ExpireDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


EXPIRE_DELEGATION_TOKEN_API = Api(
    key=40,
    name="ExpireDelegationToken",
    versions=(1, 2),
    flexible_since=2,
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
)


# ── DescribeDelegationToken (api key 41): lists delegation tokens (KIP-48).


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


DESCRIBE_DELEGATION_TOKEN_API = Api(
    key=41,
    name="DescribeDelegationToken",
    versions=(1, 3),
    flexible_since=2,
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
)
