"""The login page of the console: a form that works without scripts, and logout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...security.policy import ListenerSecurity
from ..authentication import LOGIN_PATH, peer_of, session_of
from ..errors import HttpError
from ..requests import read_body
from ..sessions import Sessions, cookie, cookie_name

LOGOUT_PATH = "/console/logout"
_FORM_BYTES_MAX = 16 * 1024


def login_routes(
    security: ListenerSecurity,
    sessions: Sessions,
    page: Callable[..., Response],
) -> list[Route]:
    """Return the routes; ``page`` renders the form, with ``next_path`` and ``failed``."""

    async def show(request: Request) -> Response:
        next_path = _own_path(request.query_params.get("next", "/"))
        return await asyncio.to_thread(page, next_path=next_path, failed="failed" in request.query_params)

    async def log_in(request: Request) -> Response:
        try:
            async with asyncio.timeout(security.login_timeout_ms / 1000):
                body = await read_body(request, _FORM_BYTES_MAX)
        except TimeoutError:
            raise HttpError(408, "the login form did not arrive in time; send it again") from None
        form = parse_qs(body.decode("utf-8", "replace"))
        user, password, next_path = (form.get(name, [""])[0] for name in ("user", "password", "next"))
        next_path = _own_path(next_path)
        authenticator = security.active
        login = None
        if authenticator is not None:
            peer = peer_of(request.scope)
            login = await authenticator.login_password(user, password, peer, mechanism="CONSOLE")
            if login is not None:
                authenticator.log_allowed(peer, login)
        if login is None:
            return RedirectResponse(f"{LOGIN_PATH}?failed&next={quote(next_path, safe='/')}", status_code=303)
        # A new id at each login: one that was planted in the browser before is worth nothing.
        sessions.end(session_of(request.scope))
        return _with_cookie(request, RedirectResponse(next_path, status_code=303), sessions.begin(login))

    async def log_out(request: Request) -> Response:
        sessions.end(session_of(request.scope))
        return _with_cookie(request, RedirectResponse(LOGIN_PATH, status_code=303), "")

    return [
        Route(LOGIN_PATH, show, methods=["GET"], include_in_schema=False),
        Route(LOGIN_PATH, log_in, methods=["POST"], include_in_schema=False),
        Route(LOGOUT_PATH, log_out, methods=["POST"], include_in_schema=False),
    ]


def _own_path(path: str) -> str:
    """Return ``path`` if it is one of this origin, otherwise the first page."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own else "/"


def _with_cookie(request: Request, response: Response, session_id: str) -> Response:
    scheme = request.scope["scheme"]
    server = request.scope.get("server") or ("", 0)
    response.headers["Set-Cookie"] = cookie(cookie_name(scheme, server[1] or 0), session_id, scheme)
    response.headers["Cache-Control"] = "no-store"
    return response
