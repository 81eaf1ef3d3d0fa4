"""Authenticate every request: Bearer (API key or token), Basic, the console's cookie or a certificate.

Everything needs a login except the paths in ``OPEN_PATHS``; a route that is added later does,
too. A login ends with its token, or when its user or key is changed: streams of it are cut.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from http.cookies import CookieError, SimpleCookie
from typing import cast
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import AuthenticationFailed, AuthenticationRequired
from ..security.audit import Peer
from ..security.authenticator import Authenticator
from ..security.authorizer import Access
from ..security.policy import ListenerSecurity
from ..security.principal import ANONYMOUS, Login, Principal
from .errors import http_problem, problem_of, problem_response
from .http.exchange import BODY, Exchange
from .http.traffic import HttpPeer
from .sessions import Sessions, cookie_name

LOGIN_PATH = "/console/login"
# Probes of orchestrators, and what the login page needs.
OPEN_PATHS = frozenset({"/healthz", "/readyz", LOGIN_PATH})
_OPEN_PREFIX = "/console/static/"
_METRICS = "/metrics"
_CHALLENGE = 'Basic realm="stele", charset="UTF-8", Bearer realm="stele"'
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HOW = "send an API key or a token (Authorization: Bearer), or a user and password (Basic)"
_CREDENTIALS_CHARACTERS_MAX = 20_000


class _Ended(Exception):
    """The login of a response has ended."""


class _Open:
    """A response under way, and whether its login has ended."""

    __slots__ = ("_exchange", "is_ended")

    def __init__(self, exchange: Exchange | None) -> None:
        self._exchange = exchange
        self.is_ended = False

    def end(self) -> None:
        self.is_ended = True
        if self._exchange is not None:
            # Streams notice it while they have nothing to send.
            self._exchange.leave()


class Authenticate:
    """ASGI middleware; sets ``scope["stele.principal"]``, ``["stele.login"]`` and ``["stele.access"]``.

    ``sessions`` are those of the console, None on a listener without it.
    """

    def __init__(
        self,
        app: ASGIApp,
        security: ListenerSecurity,
        sessions: Sessions | None,
        *,
        is_metrics_open: bool = False,
    ) -> None:
        self._app = app
        self._security = security
        self._sessions = sessions
        self._is_metrics_open = is_metrics_open
        # Responses under way, by the credential of their login.
        self._open: dict[str, set[_Open]] = {}

    def revoke(self, credential: str) -> None:
        """End sessions and responses of a credential that is no longer valid."""
        if self._sessions is not None:
            self._sessions.revoke(credential)
        for response in list(self._open.get(credential, ())):
            response.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        authenticator = self._security.active
        scope["stele.principal"] = ANONYMOUS
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        certificate = _certificate_principal(scope)
        host = str((scope.get("client") or ("?", 0))[0])
        if authenticator is None:
            scope["stele.principal"] = certificate
            scope["stele.access"] = self._access(scope, certificate, host)
            await self._app(scope, receive, send)
            return
        peer = peer_of(scope, self._security.listener)
        authorizations = [value for name, value in scope["headers"] if name == b"authorization"]
        login: Login | None = None
        if authorizations:
            login = await _login_of_header(authenticator, authorizations, peer)
            if login is None:
                # Never anonymous: the client believes that it has logged in.
                await _unauthorized(problem_of(AuthenticationFailed()))(scope, receive, send)
                return
            _log_once(scope, authenticator, peer, login)
        elif self._sessions is not None and (session_id := session_of(scope)):
            login = self._sessions.find(session_id)
            if login is not None and scope["method"] not in _SAFE_METHODS and not _is_own_page(scope):
                text = "a request with the cookie of the console must come from the console's own pages"
                await problem_response(http_problem(403, text))(scope, receive, send)
                return
        principal = certificate if login is None else login.principal
        if self._security.blocks(principal) and not self._is_open(scope["path"]):
            await _refuse(scope, has_console=self._sessions is not None)(scope, receive, send)
            return
        scope["stele.principal"], scope["stele.login"] = principal, login
        if not (self._is_metrics_open and scope["path"] == _METRICS):
            scope["stele.access"] = self._access(scope, principal, host)
        if login is None:
            await self._app(scope, receive, send)
        else:
            await self._serve(login, authenticator, scope, receive, send)

    def _access(self, scope: Scope, principal: Principal, host: str) -> Access | None:
        """Return what the client may do.

        Mostly it is the access of the last request of the connection.
        """
        connection = _connection(scope)
        if connection is None or self._security.authorizer is None:
            return self._security.access(principal, host)
        access = connection.access
        if access is None or (access.principal is not principal and access.principal != principal):
            access = connection.access = self._security.access(principal, host)
        return access

    def _is_open(self, path: str) -> bool:
        return (
            path in OPEN_PATHS
            or path.startswith(_OPEN_PREFIX)
            or (self._is_metrics_open and path == _METRICS)
        )

    async def _serve(
        self, login: Login, authenticator: Authenticator, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request until its login ends."""
        response = _Open(scope.get(BODY))
        self._open.setdefault(login.credential, set()).add(response)
        timer: asyncio.TimerHandle | None = None
        if login.expires_at_ms is not None:
            left_ms = max(0, login.expires_at_ms - authenticator.now_ms())
            timer = asyncio.get_running_loop().call_later(left_ms / 1000, response.end)

        async def send_until_end(message: Message) -> None:
            if response.is_ended and message["type"] == "http.response.body":
                # The response has no end, so that the client does not take it for complete.
                raise _Ended
            await send(message)

        try:
            await self._app(scope, receive, send_until_end)
        except _Ended:
            pass
        finally:
            if timer is not None:
                timer.cancel()
            responses = self._open[login.credential]
            responses.discard(response)
            if not responses:
                del self._open[login.credential]


def session_of(scope: Scope) -> str:
    """Return the id in the session cookie of a request, empty without one."""
    server = scope.get("server") or ("", 0)
    name = cookie_name(scope["scheme"], server[1] or 0)
    for header, value in scope["headers"]:
        if header == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(name)
            except CookieError:
                return ""
            if found is not None:
                return found.value
    return ""


def peer_of(scope: Scope, listener: str = "http") -> Peer:
    host, port = scope.get("client") or ("?", 0)
    return Peer(listener, f"{host}:{port}", str(host))


def _connection(scope: Scope) -> HttpPeer | None:
    return cast("HttpPeer | None", scope.get("state", {}).get("stele.connection"))


def _certificate_principal(scope: Scope) -> Principal:
    connection = _connection(scope)
    return ANONYMOUS if connection is None else connection.certificate_principal


def _log_once(scope: Scope, authenticator: Authenticator, peer: Peer, login: Login) -> None:
    """Log the first login of each principal on a connection; later requests only repeat it."""
    connection = _connection(scope)
    if connection is None:
        authenticator.log_allowed(peer, login)
    elif connection.principal != str(login.principal):
        connection.principal = str(login.principal)
        authenticator.log_allowed(peer, login)


async def _login_of_header(authenticator: Authenticator, values: list[bytes], peer: Peer) -> Login | None:
    """Return the login of the only ``Authorization`` header.

    None if it is wrong or there are two.
    """
    if len(values) != 1 or len(values[0]) > _CREDENTIALS_CHARACTERS_MAX:
        return None
    scheme, _, rest = values[0].decode("latin-1").partition(" ")
    match scheme.lower():
        case "bearer":
            return await authenticator.login_token(rest.strip(), peer)
        case "basic":
            try:
                user, colon, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
            except (binascii.Error, ValueError):
                return None
            if not user or not colon:
                return None
            return await authenticator.login_password(user, password, peer, mechanism="BASIC")
        case _:
            return None


def _is_own_page(scope: Scope) -> bool:
    """Return whether a browser says that the request comes from a page of this origin."""
    headers = dict(scope["headers"])
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    origin = headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2] == headers.get(b"host")


def _refuse(scope: Scope, *, has_console: bool) -> Response:
    """Return the response to a request without a login: the login page for people, 401 for programs."""
    accept = dict(scope["headers"]).get(b"accept", b"")
    path: str = scope["path"]
    if has_console and scope["method"] == "GET" and b"text/html" in accept and not path.startswith("/v1/"):
        return RedirectResponse(f"{LOGIN_PATH}?next={quote(path, safe='/')}", status_code=303)
    return _unauthorized(problem_of(AuthenticationRequired(_HOW)))


def _unauthorized(problem: dict[str, object]) -> Response:
    return problem_response(problem, headers={"WWW-Authenticate": _CHALLENGE, "Cache-Control": "no-store"})
