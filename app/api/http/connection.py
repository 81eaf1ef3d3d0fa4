"""A connection of the HTTP listener, with its requests in order (ADR-0066).

What the parser (llhttp) or a rule refuses is answered when its turn comes, and nothing after it is read: no byte that
may belong to a body is taken for a request.

It is one class in one file, however long, because each method changes the same state: that of one connection.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Scope
from uvicorn import Config
from uvicorn.server import ServerState

from ...network.closings import end_in_turn
from ...network.pending_bytes import HeldBytes, PendingBytes
from ...patience import grace_s
from ...turns import Turns
from ..errors import ProblemEncoder, encode_problem
from .exchange import NO_ROOM, Exchange
from .head_rules import BLANKS, Fields, check_head, framing_of, target_of
from .refusals import Refused, answer_for_the_server, answer_of, refusal_of

# The URL and the header fields of a request, or its trailers. The largest are positions of searches and tokens.
HEAD_BYTES_MAX = 64 * 1024
# Requests of a connection that wait for the response to an earlier one.
PIPELINED_REQUESTS_MAX = 1000
# Bytes of a body that wait for the application, at which the connection is not read from.
BUFFERED_BYTES_MAX = 64 * 1024
# A body, or a line of a stream, may take ``frame_timeout_ms`` and a second for each of these.
BODY_BYTES_PER_S = 16 * 1024
# Requests that wait, at which the connection is not read from.
_WAITING_MAX = 64
# Bytes that are parsed without a look at the clock, and for how long the others may be parsed in one turn of the loop:
# they may be requests or chunks of a few bytes each.
_PIECE_BYTES = 64 * 1024
_TURN_S = 0.001
# Closing on unread bytes would reset the connection and take the answer with it, so those of a client that is refused
# are read and dropped until it is quiet, or for so long.
_LINGER_S = 2.0
_LINGER_QUIET_S = 0.1

_TOO_LARGE = (
    f"the URL and header fields have more than {HEAD_BYTES_MAX} bytes; "
    "send positions of a search as the body of a POST"
)
_TOO_SLOW = "the body of the request did not arrive in time; send it faster, or as NDJSON"
# Of a field beside its name and value: a colon, a blank, the end of the line.
_FIELD_BYTES = 4


class _Ended(Exception):
    """Raised in the parser for data after the last request of a connection."""


class HttpConnection(asyncio.Protocol):
    """Implements ``ExchangeOwner``.

    ``head_timeout_s`` is the time for a head and for each piece of a body, ``idle_timeout_s`` that between requests
    and between the pieces of a stream. ``pending`` counts the bodies of all connections, which take ``readings`` to
    parse what has arrived, and ``turns`` to begin requests. ``encode_problem`` writes what is refused.
    """

    head_timeout_s: float
    idle_timeout_s: float
    pending: PendingBytes
    readings: Turns
    turns: Turns
    encode_problem: ProblemEncoder = staticmethod(encode_problem)

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self.app = cast("ASGIApp", config.loaded_app)
        self.app_state = app_state
        self.loop = asyncio.get_running_loop()
        self.transport = cast("asyncio.Transport", None)
        self.client: tuple[str, int] | None = None
        self.held = HeldBytes(self.pending)
        self._server_state = server_state
        self._server: tuple[str, int] | None = None
        self._scheme = "http"
        # ── what is parsed ──
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._fields: Fields = []
        # A head has begun; outside of a body otherwise; and what the parser does about an upgrade.
        self._has_begun, self._is_outside = False, True
        self._is_upgrade = self._is_framing = False
        self._refusal: Refused | None = None
        # Bytes since the last head, piece of a body or request ended.
        self._bytes_outside = 0
        # What has arrived and waits for a turn, and whether the client has ended its stream after it.
        self._unread: bytes | memoryview = b""
        self._is_end_unread = False
        # The request parsed last; the one that is served; those after it, and what is answered after all of them.
        self._parsed: Exchange | None = None
        self._served: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._last_words = b""
        # Nothing more is read: it cannot be understood, or is not wanted.
        self._is_deaf = False
        # ── time and flow ──
        self._timer: asyncio.Handle | None = None
        # Not read from the timer: uvloop's handles of calls that are due at once do not say when.
        self._timer_at_s = 0.0
        # Since when the client is waited for.
        self._since_s = 0.0
        self._linger_until_s = 0.0
        # The last moment that was put off because the broker was late.
        self._put_off_s = 0.0
        self._is_read_paused = False
        self._can_write: asyncio.Event | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes in memory of requests that have not ended."""
        return len(self._unread) + self._bytes_outside + self.held.count

    # ── asyncio.Protocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server_state.connections.add(cast("Any", self))
        self._server = _address(transport.get_extra_info("sockname"))
        self.client = _address(transport.get_extra_info("peername"))
        if transport.get_extra_info("sslcontext"):
            self._scheme = "https"

    def connection_lost(self, exc: Exception | None) -> None:
        self._server_state.connections.discard(cast("Any", self))
        self._is_deaf = True
        self._unread = b""
        if self._timer is not None:
            self._timer.cancel()
        if self._served is not None:
            self._served.abandon()
        for exchange in self._waiting:
            exchange.forget()
        self._waiting.clear()
        self.resume_writing()
        # They refer to this connection: without the cycle it is freed at once, and not by a collection of garbage.
        self._served = self._parsed = None
        del self._parser

    def eof_received(self) -> bool:
        """Return whether a client that sends nothing more gets its response."""
        if self._unread:
            self._is_end_unread = True
            return True
        self._is_deaf = True
        if self._served is None or self._parsed is None or not self._parsed.is_body_whole:
            end_in_turn(self.transport.close)
            return True
        self._parsed.is_keep_alive = False
        # A tail would never end, and most clients that end their stream have disconnected.
        self._served.leave()
        return True

    def pause_writing(self) -> None:
        if self._can_write is None:
            self._can_write = asyncio.Event()
        self._can_write.clear()

    def resume_writing(self) -> None:
        if self._can_write is not None:
            self._can_write.set()

    def data_received(self, data: bytes) -> None:
        # Requests of a thousand clients may arrive in the same turn.
        if (
            len(self._server_state.connections) <= self.readings.per_turn
            or len(data) > _PIECE_BYTES
            or self.readings.take()
        ):
            self._parse(data)
        else:
            self._put_off(data)

    def _put_off(self, data: bytes | memoryview) -> None:
        """Parse ``data`` in a later turn of the loop; nothing more is read before."""
        self._set_reading(False)
        self._unread = data
        self.readings.call(partial(self.loop.call_soon, self._parse_unread), self.client and self.client[0])

    def _parse_unread(self) -> None:
        data, self._unread = self._unread, b""
        if not data:
            # The connection was lost.
            return
        self._parse(data)
        if self._unread:
            return
        if self._is_deaf or self._has_room:
            self._set_reading(True)
        if self._is_end_unread and not self.eof_received():
            self.transport.close()

    def _parse(self, data: bytes | memoryview) -> None:
        end_s = 0.0
        while not self._is_deaf:
            piece = data if len(data) <= _PIECE_BYTES else memoryview(data)[:_PIECE_BYTES]
            self._feed(piece)
            if len(piece) == len(data):
                return
            data = memoryview(data)[_PIECE_BYTES:]
            now_s = time.perf_counter()
            end_s = end_s or now_s + _TURN_S
            if now_s > end_s:
                self._put_off(data)
                return
        self._since_s = self.loop.time()

    def _feed(self, data: bytes | memoryview) -> None:
        self._bytes_outside += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data, upgrade)
        except httptools.HttpParserError as error:
            self._end_input(error, bytes(data))
        if self._is_deaf or self.transport.is_closing():
            return
        if self._bytes_outside > HEAD_BYTES_MAX:
            self._refuse(Refused(431, _TOO_LARGE))
        else:
            self._watch_input()

    def shutdown(self) -> None:
        """Close after the responses in progress. Called by uvicorn's server."""
        if self._served is None:
            self.transport.close()
        elif self._parsed is not None:
            self._parsed.is_keep_alive = False

    # ── callbacks of the parser; an exception there ends the input ──

    def on_message_begin(self) -> None:
        if self._is_framing:
            return
        if self._parsed is not None and not self._parsed.is_keep_alive:
            raise _Ended
        self._url = b""
        self._fields = []
        self._has_begun = True
        self._since_s = self.loop.time()

    def on_url(self, url: bytes) -> None:
        if not self._is_framing:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are read and dropped: merged with the fields of the head, they could replace them.
        if self._is_outside and not self._is_framing:
            self._fields.append((name.lower(), value.strip(BLANKS)))

    def on_headers_complete(self) -> None:
        self._is_upgrade = self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT"
        if self._is_upgrade:
            return
        self._is_framing = False
        try:
            self._begin()
        except Refused as refusal:
            self._refusal = refusal
            raise

    def on_body(self, body: bytes) -> None:
        self._bytes_outside = 0
        parsed = self._parsed
        assert parsed is not None
        if parsed.is_complete or parsed.is_abandoned:
            return
        self._since_s = self.loop.time()
        if not parsed.receive_body(body):
            self._refusal = Refused(503, NO_ROOM)
            raise self._refusal
        if parsed.buffered_bytes > BUFFERED_BYTES_MAX:
            self._set_reading(False)

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        self._is_outside = True
        self._bytes_outside = 0
        if self._parsed is not None:
            self._parsed.end_body()

    # ── requests ──

    def _begin(self) -> None:
        """Begin the request of which the head is complete. Raises ``Refused``."""
        parser, fields = self._parser, self._fields
        version, method = parser.get_http_version(), parser.get_method().decode()
        if self._is_head_too_large():
            raise Refused(431, _TOO_LARGE)
        if len(self._waiting) >= PIPELINED_REQUESTS_MAX:
            raise Refused(429, f"{PIPELINED_REQUESTS_MAX} requests of this connection wait; send fewer")
        expects = check_head(version, method, fields)
        target = target_of(method, self._url, fields)
        self._has_begun = self._is_outside = False
        self._bytes_outside = 0
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": method,
            "scheme": self._scheme,
            "path": target.path,
            "raw_path": target.raw_path,
            "query_string": target.query,
            "root_path": "",
            "headers": fields,
            "client": self.client,
            "server": self._server,
            "state": self.app_state.copy(),
        }
        is_keep_alive = version == "1.1" and parser.should_keep_alive()
        self._parsed = exchange = Exchange(self, scope, expects=expects, is_keep_alive=is_keep_alive)
        if self._served is None:
            self._serve(exchange)
            return
        self._waiting.append(exchange)
        if len(self._waiting) >= _WAITING_MAX:
            self._set_reading(False)

    def _serve(self, exchange: Exchange) -> None:
        self._served = exchange
        self._since_s = exchange.body_since_s = self.loop.time()
        # All clients of a topic may poll again in the same moment.
        self.turns.call(partial(self._start, exchange), self.client and self.client[0])

    def _start(self, exchange: Exchange) -> None:
        app = self.app if exchange.scope["path"] != "*" else answer_for_the_server
        task = self.loop.create_task(exchange.run(app))
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    def _is_head_too_large(self) -> bool:
        if self._bytes_outside <= HEAD_BYTES_MAX:
            return False
        # Bytes of the body, or of earlier requests, may have come with it.
        sizes = (len(name) + len(value) + _FIELD_BYTES for name, value in self._fields)
        return sum(sizes, len(self._url)) > HEAD_BYTES_MAX

    def _ignore_upgrade(self, data: bytes | memoryview, upgrade: Exception) -> None:
        """Go on as if the request had offered no other protocol (RFC 9110, 7.8).

        The parser takes what follows the head for the other protocol. Another one reads it after those fields of
        the head that its end depends on.
        """
        rest = memoryview(data)
        while True:
            rest = rest[cast("int", upgrade.args[0]) :]
            method, version = self._parser.get_method(), self._parser.get_http_version()
            framing = framing_of(method, version, self._fields)
            self._parser = httptools.HttpRequestParser(self)
            self._is_framing, self._is_upgrade = True, False
            try:
                self._parser.feed_data(framing)
                if rest:
                    self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as again:
                upgrade = again
            except httptools.HttpParserError as error:
                self._end_input(error, bytes(rest))
                return
            else:
                return

    def _end_input(self, error: Exception, data: bytes) -> None:
        parsed = self._parsed
        if parsed is not None and parsed.is_body_whole and not parsed.is_keep_alive:
            # Sent although the connection closes after the last request.
            self._is_deaf = True
            return
        self._refuse(self._refusal or refusal_of(error, data))

    def _refuse(self, refusal: Refused) -> None:
        """Answer what cannot be served when its turn comes, and read nothing more."""
        self._is_deaf = True
        self._has_begun = False
        answer = answer_of(refusal, self.default_fields, self.encode_problem)
        served, parsed = self._served, self._parsed
        if parsed is None or self._is_outside:
            # A head: the requests before it are whole.
            if served is None:
                self._say_last(answer)
            else:
                self._last_words = answer
        elif self._waiting:
            # The body of the last of them, which has not been served.
            self._waiting.pop().forget()
            self._last_words = answer
        elif parsed is not served:
            # It has its response already.
            self._linger()
        elif parsed.is_started:
            # The end of its response is missing, so that the client does not take it for complete.
            parsed.abandon()
            self._linger()
        else:
            parsed.abandon()
            self._served = None
            self._say_last(answer)

    def _say_last(self, answer: bytes) -> None:
        self.write(answer)
        self._linger()

    # ── ``ExchangeOwner`` ──

    @property
    def default_fields(self) -> list[tuple[bytes, bytes]]:
        return self._server_state.default_headers

    @property
    def is_write_paused(self) -> bool:
        return self._can_write is not None and not self._can_write.is_set()

    async def drain(self) -> None:
        if self._can_write is not None:
            await self._can_write.wait()

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def read_on(self) -> None:
        parsed = self._parsed
        if parsed is None:
            return
        if not self._is_read_paused:
            if not parsed.is_body_whole:
                self._since_s = self.loop.time()
                self._watch_input()
        elif self._has_room:
            self._set_reading(True)

    def responded(self) -> None:
        self._server_state.total_requests += 1
        served, self._served = self._served, None
        if served is None or self.transport.is_closing():
            return
        if not served.is_keep_alive:
            if served.is_body_whole:
                self._is_deaf = True
                self.transport.close()
            else:
                self._linger()
        elif self._waiting:
            self._serve(self._waiting.popleft())
            self.read_on()
            self._watch_input()
        elif self._last_words:
            self._say_last(self._last_words)
        else:
            self._since_s = self.loop.time()
            self._set_reading(True)
            self._watch_input()

    def broke_off(self) -> None:
        self._is_deaf = True
        self.transport.close()

    # ── flow and time ──

    @property
    def _has_room(self) -> bool:
        parsed = self._parsed
        has_room = parsed is None or parsed.buffered_bytes <= BUFFERED_BYTES_MAX
        return has_room and len(self._waiting) < _WAITING_MAX

    def _set_reading(self, may_read: bool) -> None:
        if may_read is not self._is_read_paused or (may_read and self._unread) or self.transport.is_closing():
            return
        self._is_read_paused = not may_read
        if may_read:
            self.transport.resume_reading()
            self._since_s = self.loop.time()
            self._watch_input()
        else:
            self.transport.pause_reading()

    def _linger(self) -> None:
        """Close when the client has had time to read the last response."""
        self._is_deaf = True
        if self.transport.is_closing():
            return
        self._set_reading(True)
        self._since_s = self.loop.time()
        self._linger_until_s = self._since_s + _LINGER_S
        try:
            self.transport.write_eof()
        except OSError:  # it is gone already
            self.transport.abort()
            return
        self._watch(self._since_s + _LINGER_QUIET_S)

    def _watch_input(self) -> None:
        if (due_s := self._due_s()) is not None:
            self._watch(due_s)

    def _watch(self, due_s: float) -> None:
        """Have ``_look_at_clock`` called by ``due_s``; too early is harmless."""
        if self._timer is not None:
            if self._timer_at_s <= due_s:
                return
            self._timer.cancel()
        self._timer_at_s = due_s
        self._timer = self.loop.call_at(due_s, self._look_at_clock)

    def _due_s(self) -> float | None:
        """Return when the client is late; None if it is not its turn."""
        if self._has_begun:
            return self._since_s + self.head_timeout_s
        parsed = self._parsed
        if parsed is None:
            return None
        if parsed.is_body_whole:
            return self._since_s + self.idle_timeout_s if self._served is None else None
        if parsed.is_complete:
            return self._since_s + self.head_timeout_s
        if parsed is not self._served or self._is_read_paused or not parsed.is_awaited:
            return None
        if parsed.is_stream and not parsed.held_bytes:
            # Between two lines of an upload a client may pause, within a line it may not.
            return self._since_s + self.idle_timeout_s
        slowest_s = self.head_timeout_s + parsed.body_bytes / BODY_BYTES_PER_S
        return min(self._since_s + self.head_timeout_s, parsed.body_since_s + slowest_s)

    def _look_at_clock(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        now_s = self.loop.time()
        if self._linger_until_s:
            due_s = min(self._linger_until_s, self._since_s + _LINGER_QUIET_S)
            if now_s >= due_s:
                self.transport.close()
            else:
                self._watch(due_s)
            return
        due_s = None if self._is_deaf or self._unread else self._due_s()
        if due_s is None:
            return
        if due_s > now_s:
            self._watch(due_s)
        elif due_s != self._put_off_s and (grace := grace_s(now_s - due_s)):
            self._put_off_s = due_s
            self._watch(now_s + grace)
        elif self._served is None:
            self.transport.close()
        elif self._has_begun:
            # The requests before it are whole, and get their responses.
            self._is_deaf, self._has_begun = True, False
            if self._parsed is not None:
                self._parsed.is_keep_alive = False
        else:
            self._refuse(Refused(408, _TOO_SLOW))


def _address(info: tuple[Any, ...] | str | None) -> tuple[str, int] | None:
    return (str(info[0]), int(info[1])) if isinstance(info, tuple) else None
