"""Describe, store and delete SCRAM credentials of users (KIP-554).

Descriptions contain no secrets.
"""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.users import (
    ALTER_USER_SCRAM_CREDENTIALS_API,
    DESCRIBE_USER_SCRAM_CREDENTIALS_API,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialUpsertion,
)

from ....errors import InvalidCredential, SteleError, UnknownCredential
from ....security.acl import ALTER_CLUSTER, DESCRIBE_CLUSTER
from ....security.audit import Peer, log_change
from ....security.credentials import Credentials, check_user_name
from ....security.scram import (
    ScramCredential,
    ScramMechanism,
    credential_of,
    mechanism_number,
    mechanism_of_number,
)
from ....work_budget import SMALL_VISIT, Steps, by_key, visited
from ..context import Context, describe_error
from ..guards.rights import Parts, on_cluster
from ..served import Served, always

_TWICE = "the request names the user more than once"
_NO_STORE = "this listener stores no users"
_NOT_ENCRYPTED = (
    "passwords cannot be changed over an unencrypted connection; connect with TLS or over loopback"
)

_ANONYMOUS = "log in to list and change users; otherwise any client could take over the account of another"

# A change of one user: a credential to store, or the mechanism whose credential is deleted.
_Change = ScramCredential | ScramMechanism


def _is_kept_from_users(context: Context) -> bool:
    # With access rules, these have decided already.
    return (
        context.access is None and context.listener.security.guards_users and context.principal.is_anonymous
    )


async def describe_user_scram_credentials(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Return mechanisms and iterations of the named users, or of all."""
    if _is_kept_from_users(context):
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=_ANONYMOUS, results=[]
        )
    credentials = context.listener.security.credentials
    users = {} if credentials is None else credentials.users()
    # Without names all are meant.
    names, repeated = await by_key([user.name for user in request.users or ()] or list(users), str)

    def result(name: str) -> DescribeUserScramCredentialsResult:
        code, message = ErrorCode.NONE, None
        if name in repeated:
            code, message = ErrorCode.DUPLICATE_RESOURCE, _TWICE
        elif name not in users:
            code, message = describe_error(UnknownCredential("user", name))
        known = () if code else users[name]
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=code,
            error_message=message,
            credential_infos=[
                CredentialInfo(mechanism=mechanism_number(one.mechanism), iterations=one.iterations)
                for one in known
            ],
        )

    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[result(name) async for name in visited(names)],
    )


async def alter_user_scram_credentials(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Store and delete credentials.

    The first error of a user leaves all of that user's as they were.
    """
    credentials = context.listener.security.credentials
    errors: dict[str, tuple[ErrorCode, str | None]] = {}
    changes: dict[str, list[_Change]] = {}
    entries = (*request.deletions, *request.upsertions)
    _, repeated = await by_key(entries, lambda entry: (entry.name, entry.mechanism))
    async for entry in visited(entries):
        name = entry.name
        try:
            mechanism = mechanism_of_number(entry.mechanism)
            if mechanism is None:
                raise _Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "the mechanism is unknown; use 1 or 2")
            if (name, entry.mechanism) in repeated:
                raise _Refused(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            if credentials is None:
                raise _Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, _NO_STORE)
            if _is_kept_from_users(context):
                raise _Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, _ANONYMOUS)
            changes.setdefault(name, []).append(_change(context, credentials, mechanism, entry))
        except _Refused as refused:
            errors.setdefault(name, (refused.code, refused.message))
        except SteleError as error:
            errors.setdefault(name, describe_error(error))
    names, _ = await by_key(entries, lambda entry: entry.name)
    async for name in visited(names):
        if name not in errors and credentials is not None:
            errors[name] = await _apply(context, credentials, name, changes[name])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name, error_code=errors[name][0], error_message=errors[name][1]
            )
            async for name in visited(names, SMALL_VISIT)
        ]
    )


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def _change(context: Context, credentials: Credentials, mechanism: ScramMechanism, entry: object) -> _Change:
    """Check one entry of the request. Raises SteleError or _Refused."""
    if not isinstance(entry, ScramCredentialUpsertion):
        name = str(getattr(entry, "name", ""))
        if not credentials.has_scram(name, mechanism):
            raise UnknownCredential("user", name)
        return mechanism
    check_user_name(entry.name)
    if not context.may_carry_secrets:
        raise _Refused(ErrorCode.INVALID_REQUEST, _NOT_ENCRYPTED)
    try:
        return credential_of(
            mechanism, bytes(entry.salted_password), salt=bytes(entry.salt), iterations=entry.iterations
        )
    except ValueError as error:
        raise InvalidCredential(entry.name, str(error)) from error


async def _apply(
    context: Context, credentials: Credentials, name: str, changes: list[_Change]
) -> tuple[ErrorCode, str | None]:
    peer = Peer("kafka", context.peer, context.client_host)
    try:
        for change in changes:
            if isinstance(change, ScramCredential):
                await credentials.set_scram(name, change)
                operation = "set-password"
            else:
                await credentials.delete_scram(name, change)
                operation = "delete-user"
            log_change(peer, principal=str(context.principal), operation=operation, resource=f"User:{name}")
    except SteleError as error:
        return describe_error(error)
    return ErrorCode.NONE, None


_PARTS = Parts(field="", name="", answers="results", answer_name="user")


def _each_user(request: AlterUserScramCredentialsRequest) -> Steps[AlterUserScramCredentialsResponse]:
    names = dict.fromkeys(entry.name for entry in (*request.deletions, *request.upsertions))
    results = yield from _PARTS.refuse_all(AlterUserScramCredentialsResponse, names, ALTER_CLUSTER)
    return AlterUserScramCredentialsResponse(results=results)


ROWS = (
    Served(
        DESCRIBE_USER_SCRAM_CREDENTIALS_API,
        describe_user_scram_credentials,
        on_cluster(DESCRIBE_CLUSTER, DescribeUserScramCredentialsResponse),
        walks=True,
    ),
    Served(
        ALTER_USER_SCRAM_CREDENTIALS_API,
        alter_user_scram_credentials,
        on_cluster(ALTER_CLUSTER, AlterUserScramCredentialsResponse, _each_user),
        changes=True,
        is_barrier=always,
    ),
)
