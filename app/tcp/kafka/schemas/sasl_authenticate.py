"""SaslAuthenticate (api key 36): carries the bytes of a SASL mechanism (KIP-152)."""

from __future__ import annotations

from stele.wire.schema import Int16, Int64, at, message

from ..api import Api


@message
class SaslAuthenticateRequest:
    auth_bytes: bytes


@message
class SaslAuthenticateResponse:
    error_code: Int16
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: Int64 = at("1+", default=0)


API = Api(
    key=36,
    name="SaslAuthenticate",
    versions=(0, 2),
    flexible_since=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
)
