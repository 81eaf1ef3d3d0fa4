"""Limit what a connection may send outside of bodies before a login.

httptools collects the URL, the header fields and the trailers of a request without a
limit, and uvicorn waits for the rest of a head without one.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

# The URL and the header fields of a request, or its trailers. The largest are positions of searches and tokens.
HEAD_BYTES_MAX = 64 * 1024
# Requests of a connection that wait for the response to an earlier one.
PIPELINED_REQUESTS_MAX = 1000

_TOO_LARGE = (
    b"the URL and header fields have more than %d bytes; send positions of a search as the body of a POST\n"
    % HEAD_BYTES_MAX
)
_TOO_LARGE_ANSWER = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(_TOO_LARGE), _TOO_LARGE)
)


class LimitedProtocol(HttpToolsProtocol):
    """A connection of uvicorn that limits the size of heads and the time for them."""

    head_timeout_s: float

    _is_in_head = True
    # Bytes since the last head, piece of a body or request ended.
    _bytes_outside = 0
    _head_timer: asyncio.TimerHandle | None = None
    _is_too_large = False

    def data_received(self, data: bytes) -> None:
        if self._is_too_large:
            return
        self._bytes_outside += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._bytes_outside > HEAD_BYTES_MAX:
            self._refuse()
        elif self._head_timer is None and self._awaits_rest():
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if self._is_too_large:
            self._refuse()
        else:
            super().send_400_response(msg)

    # ── callbacks of the parser; an exception there ends the connection ──

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED_REQUESTS_MAX or self._is_head_too_large():
            self._is_too_large = True
            raise httptools.HttpParserError("the head of a request is too large")
        self._is_in_head = False
        self._bytes_outside = 0
        self._forget_head_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_outside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._bytes_outside = 0
        super().on_message_complete()

    # ──

    def _awaits_rest(self) -> bool:
        """Return whether a head has begun, or the body of an answered request goes on."""
        return bool(self._bytes_outside) if self._is_in_head else self.cycle.response_complete

    def _is_head_too_large(self) -> bool:
        if self._bytes_outside <= HEAD_BYTES_MAX:
            return False
        # Bytes of the body, or of earlier requests, may have come with it.
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES_MAX

    def _refuse(self) -> None:
        self._is_too_large = True
        self._forget_head_timer()
        # None until the first head is complete.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            self.transport.write(_TOO_LARGE_ANSWER)
            self.transport.close()
        else:
            # The response under way is of an earlier request; after it, the client could take this one for its next.
            self.transport.abort()

    def _forget_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
