"""Delegation tokens, of which there are none; SASL on a listener without logins.

Requests that list them get Apache Kafka's response for none; requests that change them
are refused, entry by entry.
"""

from __future__ import annotations

import logging

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.security import (
    CREATE_DELEGATION_TOKEN_API,
    DESCRIBE_DELEGATION_TOKEN_API,
    EXPIRE_DELEGATION_TOKEN_API,
    RENEW_DELEGATION_TOKEN_API,
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from ..context import Context
from ..guards.rights import open_to_all
from ..served import Served

logger = logging.getLogger(__name__)

_NO_SASL = "this listener has no SASL; connect with security.protocol=PLAINTEXT"


# ── authentication: the responses of a PLAINTEXT listener of Kafka ──


def sasl_handshake(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse every mechanism with ILLEGAL_SASL_STATE, and offer none."""
    logger.info(
        "kafka: %s requested SASL mechanism %.40r, but this listener has no SASL",
        context.client_host,
        request.mechanism,
    )
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())


def sasl_authenticate(_context: Context, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL, auth_bytes=b""
    )


# ── delegation tokens: Kafka refuses them on a listener without authentication ──


def create_delegation_token(
    _context: Context, _request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type="User",
        principal_name="ANONYMOUS",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )


def renew_delegation_token(
    _context: Context, _request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )


def expire_delegation_token(
    _context: Context, _request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )


def describe_delegation_token(
    _context: Context, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=()
    )


ROWS = (
    Served(SASL_HANDSHAKE_API, sasl_handshake, open_to_all()),
    Served(SASL_AUTHENTICATE_API, sasl_authenticate, open_to_all()),
    Served(CREATE_DELEGATION_TOKEN_API, create_delegation_token, open_to_all()),
    Served(RENEW_DELEGATION_TOKEN_API, renew_delegation_token, open_to_all()),
    Served(EXPIRE_DELEGATION_TOKEN_API, expire_delegation_token, open_to_all()),
    Served(DESCRIBE_DELEGATION_TOKEN_API, describe_delegation_token, open_to_all()),
)
