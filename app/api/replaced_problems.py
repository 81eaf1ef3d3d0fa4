"""Answer with the errors of another API in place of problem documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import MEDIA_TYPE

# Returns the status, the body and the media type of what is answered to a request in place of a problem.
Encode = Callable[[Scope, Mapping[str, Any]], tuple[int, bytes, str]]


class ReplaceProblems:
    """ASGI middleware that replaces problem documents below ``prefix``; it is the outermost one."""

    def __init__(self, app: ASGIApp, encode: Encode, *, prefix: str = "/") -> None:
        self._app = app
        self._encode = encode
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("path", "/").startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def send_error(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                if (b"content-type", MEDIA_TYPE.encode()) in message["headers"]:
                    start = message
                    return
            elif start is not None:
                # A problem document comes in one piece.
                status, body, media_type = self._encode(scope, msgspec.json.decode(message["body"]))
                fields = {b"content-type": media_type.encode(), b"content-length": b"%d" % len(body)}
                kept = [(name, value) for name, value in start["headers"] if name not in fields]
                await send({**start, "status": status, "headers": [*kept, *fields.items()]})
                message = {**message, "body": body}
            await send(message)

        await self._app(scope, receive, send_error)
