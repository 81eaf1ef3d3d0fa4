"""Assign an id to every request, for its answer, log lines and problem document."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import BrokerClosing
from ...logs import request_id
from ..errors import error_response

logger = logging.getLogger(__name__)

# Ids that a proxy or a client may choose; other characters would not be safe in a log.
_GIVEN = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_HEADER = b"x-request-id"


def new_id() -> bytes:
    """Return an id for a request whose client has chosen none."""
    return secrets.token_hex(8).encode()


class RequestIds:
    """ASGI middleware; keeps the ``X-Request-Id`` of the request if it is valid.

    It also answers a request that the end of a shutdown cancels.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        name = given if _GIVEN.fullmatch(given) else new_id()
        token = request_id.set(name.decode())
        begin_s = time.perf_counter()
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_HEADER, name)]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except asyncio.CancelledError:
            if status:
                raise
            # The shutdown does not wait any longer. uvicorn would answer 500, which says nothing.
            await error_response(BrokerClosing())(scope, receive, send_named)
        finally:
            if logger.isEnabledFor(logging.DEBUG):
                spent_ms = (time.perf_counter() - begin_s) * 1000
                # The client chose the path, so it may contain control characters.
                path = scope["path"][:500].encode("unicode_escape").decode()
                logger.debug("%s %s %d %.1f ms", scope["method"], path, status, spent_ms)
            request_id.reset(token)
