"""Answer requests that never reach the application."""

from __future__ import annotations

import logging
import re
from http import HTTPMethod, HTTPStatus

import httptools
from starlette.types import Receive, Scope, Send

from ..errors import ProblemEncoder, http_problem
from .exchange import DEFAULTS
from .request_ids import new_id

logger = logging.getLogger(__name__)

_METHOD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ")
_ALLOWED = b"DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"


class Refused(Exception):
    """A request that is answered with ``status``.

    The connection ends, because what follows is not understood.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def refusal_of(error: Exception, data: bytes) -> Refused:
    """Translate an error that the parser reports for ``data``."""
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        method = _METHOD.match(data)
        # What begins with a known method is a request before the one in question.
        if method is not None and method[1].decode() not in HTTPMethod.__members__:
            return Refused(501, f"the method {method[1][:40]!r} is not supported")
    if "version" in str(error) or "PRI" in str(error):
        return Refused(505, "this version of HTTP is not supported; send HTTP/1.1")
    return Refused(400, f"the request cannot be read: {error}")


def answer_of(refusal: Refused, fields: list[tuple[bytes, bytes]], encode: ProblemEncoder) -> bytes:
    """Return the response to ``refusal``, with ``fields`` in its head."""
    content, media_type = encode(http_problem(refusal.status, refusal.detail))
    name = new_id()
    logger.debug("request %s is not read: %d %s", name.decode(), refusal.status, refusal.detail)
    lines = [b"HTTP/1.1 %d %b" % (refusal.status, HTTPStatus(refusal.status).phrase.encode())]
    lines += [b"%b: %b" % field for field in fields]
    lines += [line.rstrip() for line in DEFAULTS.values()]
    lines.append(b"x-request-id: " + name)
    if refusal.status in (429, 503):
        lines.append(b"retry-after: 1")
    lines.append(b"content-type: " + media_type.encode())
    lines.append(b"content-length: %d" % len(content))
    return b"\r\n".join(lines) + b"\r\nconnection: close\r\n\r\n" + content


async def answer_for_the_server(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer ``OPTIONS *``, which asks for no resource."""
    await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", _ALLOWED)]})
    await send({"type": "http.response.body"})
