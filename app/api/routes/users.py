"""Users and API keys of a running broker (ADR-0033).

Secrets come in bodies, never in URLs, and leave in the response to the creation of a key
alone. Access rules decide who may use these routes; without them, clients that are logged
in, where a listener has logins, and otherwise only peers on loopback, for example to
create the first user.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...errors import AuthenticationRequired
from ...security.audit import log_change
from ...security.credentials import Credentials
from ...security.policy import is_loopback
from ...security.principal import ANONYMOUS, Login, Principal
from ..authentication import peer_of
from ..bodies import KeyBody, PasswordBody, UserBody
from ..errors import HttpError
from ..guarded_route import GuardedRoute
from ..json_bodies import client_host, json_answer, json_body
from ..openapi import users as openapi
from ..rights import access_of
from ..state import api_state, broker_of

router = APIRouter(tags=["users"], route_class=GuardedRoute)

_HOW = "log in to list and change users; otherwise any client could take over the account of another"
_NO_STORE = {"Cache-Control": "no-store"}


def _credentials(request: Request, *, carries_secret: bool = False) -> Credentials:
    """Return the users, if the client of ``request`` may see and change them.

    Raises:
        AuthenticationRequired: some listener has logins, and the client is not logged in.
        HttpError: 403 if no listener has logins and the client is on another machine, or if others
            could read the secret on its way.
    """
    security, host = api_state(request).security, client_host(request)
    credentials = None if security is None else security.credentials
    if security is None or credentials is None:
        raise HttpError(403, "this broker stores no users")
    if access_of(request) is not None:
        # Access rules have decided already.
        pass
    elif security.guards_users:
        if request.scope.get("stele.principal", ANONYMOUS).is_anonymous:
            raise AuthenticationRequired(_HOW)
    elif not is_loopback(host):
        raise HttpError(
            403,
            "no listener has logins, so users can be changed only from the broker's own machine; "
            "set STELE_AUTHENTICATION, or use `stele user` there",
        )
    if carries_secret and not security.may_carry_secrets(host, is_encrypted=request.url.scheme == "https"):
        raise HttpError(403, "passwords and keys are not sent unencrypted over a network; use https://")
    return credentials


def _has_key(request: Request) -> bool:
    """Return whether the client has logged in with an API key."""
    login: Login | None = request.scope.get("stele.login")
    return login is not None and login.credential.startswith("key:")


def _log(request: Request, operation: str, resource: str) -> None:
    principal = request.scope.get("stele.principal", ANONYMOUS)
    log_change(peer_of(request.scope), principal=str(principal), operation=operation, resource=resource)


@router.get("/v1/users", openapi_extra=openapi.LIST_USERS, summary="List users")
async def list_users(request: Request) -> Response:
    """Return the users that have a password, with their SCRAM mechanisms."""
    users = _credentials(request).users()
    return json_answer(
        {
            "users": [
                {"name": name, "mechanisms": [c.mechanism for c in known]} for name, known in users.items()
            ]
        }
    )


@router.post("/v1/users", status_code=201, openapi_extra=openapi.ADD_USER, summary="Add a user")
async def add_user(request: Request) -> Response:
    """Create a user with a password."""
    credentials = _credentials(request, carries_secret=True)
    body = await json_body(request, UserBody, '{"name": "alice", "password": "…"}')
    await credentials.add_user(body.name, body.password)
    _log(request, "create-user", f"User:{body.name}")
    return json_answer({"name": body.name}, 201)


@router.put(
    "/v1/users/{user:path}/password",
    status_code=204,
    openapi_extra=openapi.SET_PASSWORD,
    summary="Change a password",
)
async def set_password(request: Request) -> Response:
    """Replace the password of a user.

    Connections and sessions that began with the old one end.
    """
    credentials = _credentials(request, carries_secret=True)
    body = await json_body(request, PasswordBody, '{"password": "…"}')
    user = request.path_params["user"]
    await credentials.set_password(user, body.password)
    _log(request, "alter-user", f"User:{user}")
    return Response(status_code=204)


@router.delete(
    "/v1/users/{user:path}", status_code=204, openapi_extra=openapi.DELETE_USER, summary="Delete a user"
)
async def delete_user(request: Request) -> Response:
    """Delete a user and its API keys. Its connections and sessions end."""
    user = request.path_params["user"]
    await _credentials(request).delete_user(user)
    _log(request, "delete-user", f"User:{user}")
    return Response(status_code=204)


@router.get("/v1/keys", openapi_extra=openapi.LIST_KEYS, summary="List API keys")
async def list_keys(request: Request) -> Response:
    """Return the API keys that the client may see, without their secrets; its own always."""
    access = access_of(request)
    return json_answer(
        {
            "keys": [
                {
                    "id": key.key_id,
                    "principal": key.principal,
                    "description": key.description,
                    "created_at": key.created_at_ms,
                    "expires_at": key.expires_at_ms,
                }
                for key in _credentials(request).api_keys()
                if access is None or access.sees_keys_of(key.principal)
            ]
        }
    )


@router.post("/v1/keys", status_code=201, openapi_extra=openapi.CREATE_KEY, summary="Create an API key")
async def create_key(request: Request) -> Response:
    """Create an API key that acts as a user.

    Its secret is in this response, and cannot be shown again.
    """
    credentials = _credentials(request, carries_secret=True)
    body = await json_body(request, KeyBody, '{"user": "alice", "description": "ingest"}')
    access = access_of(request)
    if access is not None:
        access.require_create_keys(str(Principal(body.user)), with_key=_has_key(request))
    now_ms = broker_of(request).now_ms()
    made = await credentials.create_key(
        body.user,
        description=body.description,
        now_ms=now_ms,
        expires_at_ms=None if body.expires_in_ms is None else now_ms + body.expires_in_ms,
    )
    _log(request, "create-key", f"Key:{made.record.key_id} of {made.record.principal}")
    answer = json_answer({"id": made.record.key_id, "key": made.token}, 201)
    answer.headers.update(_NO_STORE)
    return answer


@router.delete(
    "/v1/keys/{key_id}", status_code=204, openapi_extra=openapi.DELETE_KEY, summary="Delete an API key"
)
async def delete_key(request: Request) -> Response:
    """Delete an API key. Its connections and sessions end."""
    key_id, credentials, access = request.path_params["key_id"], _credentials(request), access_of(request)
    if access is not None:
        access.require_delete_key(credentials.owner_of_key(key_id))
    await credentials.delete_key(key_id)
    _log(request, "delete-key", f"Key:{key_id}")
    return Response(status_code=204)
