"""SASL, access rules, users, tokens and quotas, of which a broker without security has none.

Requests that list them get Apache Kafka's response for none; requests that change them
are refused, entry by entry.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode

from ....errors import InvalidRequest, SteleError
from ..schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataResult,
    EntryData,
    EntryDataResult,
)
from ..schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ..schemas.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ..schemas.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ..schemas.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ..schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ..schemas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ..schemas.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ..schemas.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ..schemas.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ..schemas.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ..schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from .context import Context, describe_error

logger = logging.getLogger(__name__)

_NO_SASL = "this listener has no SASL; connect with security.protocol=PLAINTEXT"
_NO_AUTHORIZER = "this broker has no authorizer, and no access rules: every client may do everything"
_NO_SUCH_USER = "this broker has no SCRAM users"
_NO_SCRAM = "this broker has no SASL: SCRAM credentials cannot be stored"
_NO_QUOTAS = "this broker has no quotas: they cannot be set"
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_ENTITY_TYPES = ("user", "client-id", "ip")
_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_SHOWN_CHARACTERS_MAX = 200


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


# ── access rules ──


def describe_acls(_context: Context, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, resources=()
    )


def create_acls(_context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def delete_acls(_context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, matching_acls=()
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


# ── users ──


def describe_user_scram_credentials(
    _context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Return no users: a user that the request names does not exist, or is named twice."""
    times = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND if count == 1 else ErrorCode.DUPLICATE_RESOURCE,
                error_message=_NO_SUCH_USER if count == 1 else "the request names the user more than once",
                credential_infos=(),
            )
            for name, count in times.items()
        ],
    )


def alter_user_scram_credentials(
    _context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    refused = {user.name: (ErrorCode.RESOURCE_NOT_FOUND, _NO_SUCH_USER) for user in request.deletions} | {
        user.name: (ErrorCode.UNSUPPORTED_SASL_MECHANISM, _NO_SCRAM) for user in request.upsertions
    }
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
            for name, (code, message) in refused.items()
        ]
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


# ── quotas ──


def describe_client_quotas(
    _context: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return no quotas, or refuse an invalid filter; the checks are in Kafka's order."""
    try:
        code, message = _check_filter(request.components)
    except SteleError as error:
        code, message = describe_error(error)
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None if code else ())


def _check_filter(components: Sequence[ComponentData]) -> tuple[ErrorCode, str | None]:
    """Return NONE, or the error of an entity type that does not exist.

    Raises:
        InvalidRequest: the filter is invalid in another way.
    """
    kinds: set[str] = set()
    for component in components:
        kind = component.entity_type
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise InvalidRequest(
                f"match type {component.match_type} is unknown; use 0 (exact), 1 (default), 2 (any)"
            )
        if component.match_type == _EXACT and component.match is None:
            raise InvalidRequest("an exact match needs a name")
        if component.match_type != _EXACT and component.match is not None:
            raise InvalidRequest("only an exact match has a name")
        if not kind:
            raise InvalidRequest("a component of the filter has no entity type")
        if kind in kinds:
            raise InvalidRequest(f"entity type {kind[:_SHOWN_CHARACTERS_MAX]} is in the filter twice")
        if kind not in _ENTITY_TYPES:
            return ErrorCode.UNSUPPORTED_VERSION, _unknown_type(kind)
        kinds.add(kind)
    if "ip" in kinds and len(kinds) > 1:
        raise InvalidRequest("ip cannot be combined with user or client-id")
    return ErrorCode.NONE, None


def alter_client_quotas(_context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Succeed for removals, because there are no quotas, and refuse to set one."""
    return AlterClientQuotasResponse(
        entries=[
            EntryDataResult(
                error_code=ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST,
                error_message=message,
                entity=[
                    EntityDataResult(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
            for message in (_why_not(entry),)
        ]
    )


def _why_not(entry: EntryData) -> str | None:
    """Return why the quota cannot be changed; None if there is nothing to change."""
    if not entry.entity:
        return "the quota has no entity"
    for part in entry.entity:
        if part.entity_type not in _ENTITY_TYPES:
            return _unknown_type(part.entity_type)
    for change in entry.ops:
        if change.key not in _QUOTAS:
            return f"{change.key[:_SHOWN_CHARACTERS_MAX]} is not a quota"
        if not change.remove:
            return _NO_QUOTAS
    return None


def _unknown_type(kind: str) -> str:
    return f"entity type {kind[:_SHOWN_CHARACTERS_MAX]} is unknown; use user, client-id or ip"
