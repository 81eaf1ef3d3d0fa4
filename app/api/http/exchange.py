"""One request over HTTP/1 and its response, between ASGI messages and bytes.

An exchange belongs to a connection (``connection``), which parses the request and keeps the order of exchanges.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope

from ...network.pending_bytes import HeldBytes
from ..errors import HttpError

logger = logging.getLogger(__name__)

# The key in the scope of the exchange, for those who consume its body or send its response piece by piece.
BODY = "stele.body"
NO_ROOM = (
    "requests in progress hold as many bytes as pending_request_bytes_max allows; "
    "send this one again later, or send less at once"
)
# Bodies of at most this many bytes are sent together with their head.
_JOINED_BYTES_MAX = 64 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_CLOSE = b"connection: close\r\n"
_NO_BODY = [(b"content-length", b"0")]
_BODYLESS = frozenset((204, 304))
# Of responses that say nothing else: what is in the log is neither kept by a cache nor taken for a page.
DEFAULTS = {
    b"cache-control": b"cache-control: no-store\r\n",
    b"x-content-type-options": b"x-content-type-options: nosniff\r\n",
}


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_STATUS_LINES = {status: _status_line(status) for status in range(200, 600)}


class ExchangeOwner(Protocol):
    """The interface of an exchange to its connection."""

    held: HeldBytes

    @property
    def default_fields(self) -> list[tuple[bytes, bytes]]:
        """The fields of every response, such as Date."""
        ...

    @property
    def is_write_paused(self) -> bool: ...
    async def drain(self) -> None: ...
    def write(self, data: bytes) -> None: ...
    def read_on(self) -> None: ...
    def responded(self) -> None:
        """Go on with the next exchange: the response of this one is complete."""
        ...

    def broke_off(self) -> None:
        """Close the connection, because a response has no end."""
        ...


class Exchange:
    """A request and its response.

    ``expects``: the client waits for ``100 Continue``.
    """

    __slots__ = (
        "_chunks",
        "_event",
        "_expects",
        "_has_left",
        "_head",
        "_is_body_taken",
        "_is_bodyless",
        "_is_chunked",
        "_is_head",
        "_left",
        "_on_leave",
        "_owner",
        "body_bytes",
        "body_since_s",
        "buffered_bytes",
        "held_bytes",
        "is_abandoned",
        "is_awaited",
        "is_body_whole",
        "is_complete",
        "is_keep_alive",
        "is_started",
        "is_stream",
        "scope",
    )

    def __init__(self, owner: ExchangeOwner, scope: Scope, *, expects: bool, is_keep_alive: bool) -> None:
        self.scope = scope
        self._owner = owner
        self.is_keep_alive = is_keep_alive
        # The application serves a GET, of which the body is not sent.
        self._is_head = scope["method"] == "HEAD"
        if self._is_head:
            scope["method"] = "GET"
        scope[BODY] = self
        # ── the request ──
        self._expects = expects
        self._chunks: list[bytes] = []
        # What the application has not taken yet, and what it or this object keeps.
        self.buffered_bytes = 0
        self.held_bytes = 0
        # How much has come of the body, or of the first incomplete line of a stream, and since when.
        self.body_bytes = 0
        self.body_since_s = 0.0
        self.is_body_whole = False
        self._is_body_taken = False
        # Set by an application that consumes the body piece by piece: a client may pause between pieces.
        self.is_stream = False
        self._event: asyncio.Event | None = None
        # The application waits for more.
        self.is_awaited = False
        # ── the response ──
        # Its head, until it leaves with the first bytes of its body.
        self._head: bytes | None = None
        self._is_bodyless = self._is_chunked = False
        # Bytes of the body that Content-Length promises; -1 without.
        self._left = -1
        self.is_started = False
        self.is_complete = False
        # The application gets no more of the request, and its response is not sent.
        self.is_abandoned = False
        # The client sends nothing more.
        self._has_left = False
        self._on_leave: Callable[[], object] | None = None

    # ── called by the connection ──

    def receive_body(self, piece: bytes) -> bool:
        """Take a piece of the body; False if there is no room for it."""
        size = len(piece)
        if self.is_stream and not self.held_bytes:
            self.begin_line()
        if not self._hold(size):
            return False
        self.body_bytes += size
        self.buffered_bytes += size
        self._chunks.append(piece)
        if self._event is not None:
            self._event.set()
        return True

    def end_body(self) -> None:
        self.is_body_whole = True
        if self._event is not None:
            self._event.set()

    def leave(self) -> None:
        """Have the application see, after the body, that the client has ended its stream, or may get no more."""
        self._has_left = True
        self._end_receive()

    def abandon(self) -> None:
        """Have the application see a disconnect, and drop the response."""
        self.is_abandoned = True
        self._head = None
        self._end_receive()

    def _end_receive(self) -> None:
        if self._event is not None:
            self._event.set()
        observer, self._on_leave = self._on_leave, None
        if observer is not None:
            observer()

    def forget(self) -> None:
        """Hold nothing more of the request."""
        self._chunks.clear()
        self.buffered_bytes = 0
        self._hold(-self.held_bytes)

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
            if not (self.is_started or self.has_left):
                raise RuntimeError("the application returned without a response")
        except Exception as error:  # the edge of a connection
            logger.error("a request failed outside of the application", exc_info=error)
            if not self.is_started:
                self.is_keep_alive = False
                await self.send({"type": "http.response.start", "status": 500, "headers": _NO_BODY})
                await self.send({"type": "http.response.body"})
        finally:
            self.forget()
            # So that both are freed with the last reference, not by a collection of garbage.
            self.scope.pop(BODY, None)
            if not self.is_complete and not self.is_abandoned:
                # The end is missing, so that the client does not take the response for complete.
                self.is_abandoned = True
                self._owner.broke_off()

    # ── called by those who send the response piece by piece ──

    @property
    def has_left(self) -> bool:
        """Whether ``receive`` would see a disconnect after the body."""
        return self.is_abandoned or self._has_left

    def observe_leaving(self, observer: Callable[[], object] | None) -> None:
        """Call ``observer`` once, when the client leaves; None ends that.

        A stream that may wait for records for long needs no task that awaits ``receive``.
        """
        self._on_leave = observer

    # ── called by those who consume the body piece by piece ──

    def hold(self, count: int) -> None:
        """Count bytes that are kept beyond those received.

        Raises ``HttpError`` 503 if there is no room.
        """
        if not self._hold(count):
            raise HttpError(503, NO_ROOM)

    def begin_line(self) -> None:
        """Give the client the time of a body for the next line of a stream."""
        self.body_bytes = 0
        self.body_since_s = asyncio.get_running_loop().time()

    def release(self, count: int) -> None:
        """Stop counting bytes that have been consumed."""
        self._hold(-min(count, self.held_bytes))

    def _hold(self, count: int) -> bool:
        held = self._owner.held
        if not held.set(held.count + count):
            return False
        self.held_bytes += count
        return True

    # ── ASGI ──

    async def receive(self) -> Message:
        if self._expects:
            self._expects = False
            if not self.body_bytes and not self.is_body_whole and not self.is_abandoned:
                self._owner.write(_CONTINUE)
        while not self.is_complete:
            chunks = self._chunks
            if chunks or (self.is_body_whole and not self._is_body_taken):
                # Also of a client that has disconnected since: whole lines of an upload are stored.
                body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                self._chunks = []
                self.buffered_bytes = 0
                self._is_body_taken = self.is_body_whole
                self._owner.read_on()
                return {"type": "http.request", "body": body, "more_body": not self.is_body_whole}
            if self.has_left:
                break
            if self._event is None:
                self._event = asyncio.Event()
            self._event.clear()
            self.is_awaited = True
            self._owner.read_on()
            try:
                await self._event.wait()
            finally:
                self.is_awaited = False
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        owner = self._owner
        if owner.is_write_paused and not self.is_abandoned:
            await owner.drain()
        if self.is_abandoned or self.is_complete:
            return
        if not self.is_started:
            self._start(message["status"], message["headers"])
            if self._is_head:
                self._complete()
            return
        body: bytes = message.get("body", b"")
        is_last = not message.get("more_body", False)
        data = b"" if self._is_bodyless else self._framed(body, is_last=is_last)
        head, self._head = self._head, None
        if head is not None and len(data) <= _JOINED_BYTES_MAX:
            owner.write(head + data)
        else:
            if head is not None:
                owner.write(head)
            if data:
                owner.write(data)
        if is_last:
            self._complete()

    def _framed(self, body: bytes, *, is_last: bool) -> bytes:
        if self._is_chunked:
            end = _LAST_CHUNK if is_last else b""
            return b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
        if self._left >= 0:
            self._left -= len(body)
            if self._left < 0 or (is_last and self._left):
                raise RuntimeError("the body of the response has another length than its Content-Length")
        return body

    def _start(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self.is_started = True
        lines = [_STATUS_LINES[status]]
        defaults = DEFAULTS
        is_close = False
        for name, value in (*self._owner.default_fields, *fields):
            if name == b"content-length":
                self._left = int(value)
            elif name == b"connection":
                is_close = is_close or b"close" in value.lower()
                continue
            elif name in DEFAULTS:
                defaults = {other: line for other, line in defaults.items() if other != name}
            lines.append(b"%b: %b\r\n" % (name, value))
        lines.extend(defaults.values())
        self._is_bodyless = self._is_head or status in _BODYLESS
        if self._left < 0 and not self._is_bodyless and self.scope["http_version"] == "1.1":
            self._is_chunked = True
            lines.append(_CHUNKED)
        # A client that still waits to send the body may send it or not: so the next bytes would be ambiguous.
        if is_close or (self._expects and not self.body_bytes and not self.is_body_whole):
            self.is_keep_alive = False
        if not self.is_keep_alive:
            lines.append(_CLOSE)
        count = len(lines)
        lines.append(b"\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != count + 1 or head.count(b"\r") != count + 1 or b"\0" in head:
            raise RuntimeError("a field of the response contains a line end or NUL")
        self._head = head
        if self._left < 0 or self._is_bodyless:
            # The first bytes of the body may be long in coming.
            asyncio.get_running_loop().call_soon(self._send_head)

    def _send_head(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            self._owner.write(head)

    def _complete(self) -> None:
        self._send_head()
        self.is_complete = True
        if self._event is not None:
            self._event.set()
        self._owner.responded()
