"""Refuses changes that another site's page asks of the reader's browser.

The broker has no login, so a page from anywhere could have a browser on this
machine send it a form. Browsers say with ``Sec-Fetch-Site`` where a request comes
from; programs do not send it, and are not concerned.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import http_problem, problem_response

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# "none" is somebody who typed the address.
_OWN = frozenset({b"same-origin", b"none"})


class RefuseCrossSite:
    """An ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _SAFE_METHODS:
            for name, value in scope["headers"]:
                if name == b"sec-fetch-site" and value not in _OWN:
                    detail = "a page of another site asked for a change; only this broker's own pages may"
                    await problem_response(http_problem(403, detail))(scope, receive, send)
                    return
        await self._app(scope, receive, send)
