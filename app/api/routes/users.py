"""Users and API keys of a running broker (ADR-0033).

Secrets come in bodies, never in URLs, and leave in the response to the creation of a key
alone. Access rules decide who may use these routes; without them, clients that are logged
in, where a listener has logins, and otherwise only peers on loopback, for example to
create the first user.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from msgspec import Struct
from starlette.requests import Request

from ...errors import AuthenticationRequired
from ...security.audit import log_change
from ...security.credentials import Credentials
from ...security.policy import is_loopback
from ...security.principal import ANONYMOUS, Login, Principal
from ..authentication import peer_of
from ..errors import HttpError
from ..guarded_route import GuardedRoute
from ..json_bodies import JsonBody, client_host
from ..parameters import KEY_ID, USER
from ..rights import access_of
from ..routing import NO_STORE, Routes
from ..schemas import Shown
from ..state import api_state, broker_of

route = Routes("users", GuardedRoute, errors=(401, 403))


class User(TypedDict):
    name: str
    mechanisms: list[str]


class UserList(TypedDict):
    users: list[User]


class AddedUser(TypedDict):
    name: str


class Key(TypedDict):
    id: str
    principal: str
    description: str
    created_at: int
    expires_at: int | None


class KeyList(TypedDict):
    keys: list[Key]


class CreatedKey(TypedDict):
    id: str
    key: str


class UserBody(Struct, forbid_unknown_fields=True):
    """The body that adds a user."""

    name: Annotated[str, Shown(minLength=1, maxLength=255)]
    password: Annotated[str, Shown(minLength=8, maxLength=1024)]


class PasswordBody(Struct, forbid_unknown_fields=True):
    """The body that changes a password."""

    password: Annotated[str, Shown(minLength=8, maxLength=1024)]


class KeyBody(Struct, forbid_unknown_fields=True):
    """The body that creates an API key; ``expires_in_ms`` null does not expire."""

    user: Annotated[str, Shown(minLength=1, maxLength=255)]
    description: Annotated[str, Shown(maxLength=255)] = ""
    expires_in_ms: Annotated[
        int | None, Shown(type=["integer", "null"], minimum=1, maximum=3_153_600_000_000)
    ] = None


_NEW_USER = JsonBody(UserBody, '{"name": "alice", "password": "a long generated password"}')
_NEW_PASSWORD = JsonBody(PasswordBody, '{"password": "a long generated password"}')
_NEW_KEY = JsonBody(KeyBody, '{"user": "alice", "description": "ingest", "expires_in_ms": 86400000}')

_HOW = "log in to list and change users; otherwise any client could take over the account of another"


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


@route("GET /v1/users", "List users")
async def list_users(request: Request) -> UserList:
    """Return the users that have a password, with their SCRAM mechanisms."""
    users = _credentials(request).users()
    return {
        "users": [{"name": name, "mechanisms": [c.mechanism for c in known]} for name, known in users.items()]
    }


@route("POST /v1/users", "Add a user", body=_NEW_USER, errors=(409,), status=201)
async def add_user(request: Request) -> AddedUser:
    """Create a user with a password."""
    credentials = _credentials(request, carries_secret=True)
    body = await _NEW_USER.read(request)
    await credentials.add_user(body.name, body.password)
    _log(request, "create-user", f"User:{body.name}")
    return {"name": body.name}


@route("PUT /v1/users/{user:path}/password", "Change a password", body=_NEW_PASSWORD, errors=(404,))
async def set_password(request: Request) -> None:
    """Replace the password of a user.

    Connections and sessions that began with the old one end.
    """
    credentials = _credentials(request, carries_secret=True)
    body = await _NEW_PASSWORD.read(request)
    user = USER.read(request)
    await credentials.set_password(user, body.password)
    _log(request, "alter-user", f"User:{user}")


@route("DELETE /v1/users/{user:path}", "Delete a user", errors=(404,))
async def delete_user(request: Request) -> None:
    """Delete a user and its API keys. Its connections and sessions end."""
    user = USER.read(request)
    await _credentials(request).delete_user(user)
    _log(request, "delete-user", f"User:{user}")


@route("GET /v1/keys", "List API keys")
async def list_keys(request: Request) -> KeyList:
    """Return the API keys that the client may see, without their secrets; its own always."""
    access = access_of(request)
    return {
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


@route("POST /v1/keys", "Create an API key", body=_NEW_KEY, errors=(409,), headers=NO_STORE, status=201)
async def create_key(request: Request) -> CreatedKey:
    """Create an API key that acts as a user.

    Its secret is in this response, and cannot be shown again.
    """
    credentials = _credentials(request, carries_secret=True)
    body = await _NEW_KEY.read(request)
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
    return {"id": made.record.key_id, "key": made.token}


@route("DELETE /v1/keys/{key_id}", "Delete an API key", errors=(404,))
async def delete_key(request: Request) -> None:
    """Delete an API key. Its connections and sessions end."""
    key_id, credentials, access = KEY_ID.read(request), _credentials(request), access_of(request)
    if access is not None:
        access.require_delete_key(credentials.owner_of_key(key_id))
    await credentials.delete_key(key_id)
    _log(request, "delete-key", f"Key:{key_id}")
