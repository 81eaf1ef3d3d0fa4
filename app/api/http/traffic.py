"""Count the connections of the HTTP listener and the bytes of its bodies.

The class of connections reports them; a middleware counts bytes. A
connection is identified by its object, not by its address, because the address may be
reused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...broker.listeners import CLIENT_TEXT_CHARACTERS_MAX, ConnectionView, TlsStatus, Traffic
from ...network.accept_loop import AcceptLoop
from ...network.admission import Admission
from ...network.first_bytes import HANDSHAKE_FAILURE_ALERT, is_tls_hello
from ...network.pending_bytes import PendingBytes
from ...patience import Timeout
from ...security.authorizer import Access
from ...security.principal import ANONYMOUS, Principal
from ...turns import Turns
from ..errors import ProblemEncoder, encode_problem, http_problem, problem_response
from .connection import HttpConnection

logger = logging.getLogger(__name__)

# Key of the connection in the ``state`` of each of its requests.
_STATE = "stele.connection"
# Connections of which what has arrived is parsed in one turn of the loop; most take 10 to 20 µs.
READINGS_PER_TURN = 32
# Requests that begin in one turn of the loop. The first step of one takes 0.1 to 0.3 ms.
REQUESTS_PER_TURN = 8
# Refused connections that may wait for their 503, and how long; further ones are aborted.
_REFUSED_MAX = 100
_REFUSED_S = 2.0


class CountedProtocol(HttpConnection):
    """A connection of the HTTP listener.

    ``host`` and ``refusal``, why it was not admitted, are set before it begins.
    """

    refusal: str | None = None
    # The address that it was admitted for.
    host: str = "?"


@dataclass(slots=True, eq=False)
class HttpPeer:
    """One connection, with the ``User-Agent`` of its last request."""

    address: tuple[str, int] | None
    since_s: float
    # Empty without TLS.
    tls_version: str = ""
    # By the certificate; and by the last login, which the certificate stands for until then.
    certificate_principal: Principal = ANONYMOUS
    principal: str = str(ANONYMOUS)
    user_agent: bytes = b""
    bytes_in: int = 0
    bytes_out: int = 0
    # What the principal of its last request may do; None before the first, or where that is not checked.
    access: Access | None = None

    def view(self, protocol: str, now_s: float) -> ConnectionView:
        host, port = self.address or ("?", 0)
        text = self.user_agent.decode("latin-1")
        name, _, version = text.partition("/")
        return ConnectionView(
            protocol=protocol,
            peer=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            age_ms=round((now_s - self.since_s) * 1000),
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            client_name=name,
            client_version=version,
            tls_version=self.tls_version,
            principal=self.principal,
        )


class HttpTraffic:
    """Connections and byte counts of a listener that speaks HTTP; a ``ListenerView``."""

    def __init__(self, name: str = "http") -> None:
        self.name = name
        # Set by ``HttpServer``; None under a server other than ours.
        self.admission: Admission | None = None
        self.accept: AcceptLoop | None = None
        self._opened = 0
        self._bytes_in = 0
        self._bytes_out = 0
        # In the order in which they were opened.
        self._peers: dict[HttpPeer, None] = {}

    @property
    def connections(self) -> int:
        return len(self._peers)

    def opened(self, address: tuple[str, int] | None, *, tls_version: str, principal: str) -> HttpPeer:
        peer = HttpPeer(address, time.monotonic(), tls_version, Principal.parse(principal), principal)
        self._peers[peer] = None
        self._opened += 1
        return peer

    def closed(self, peer: HttpPeer) -> None:
        self._peers.pop(peer, None)

    def traffic(self) -> Traffic:
        accept = self.accept
        return Traffic(
            connections=len(self._peers),
            connections_opened=self._opened,
            connections_refused=0 if self.admission is None else self.admission.refused,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            handshakes_pending=0 if accept is None else accept.handshakes_pending,
            handshakes=0 if accept is None else accept.handshakes,
            handshakes_failed={} if accept is None else accept.handshakes_failed,
            accept_failures=0 if accept is None else accept.accept_failures,
        )

    def tls_status(self) -> TlsStatus | None:
        tls = None if self.accept is None else self.accept.tls
        return None if tls is None else tls.status()

    def connection_views(self) -> Iterator[ConnectionView]:
        now_s = time.monotonic()
        return (peer.view(self.name, now_s) for peer in list(self._peers))

    def note(self, scope: Scope, bytes_in: int, bytes_out: int) -> None:
        """Count the bodies of a request that the middleware does not see."""
        self._bytes_in += bytes_in
        self._bytes_out += bytes_out
        peer = cast("dict[str, HttpPeer]", scope.get("state", {})).get(_STATE)
        if peer is None:
            return
        peer.bytes_in += bytes_in
        peer.bytes_out += bytes_out
        for name, value in scope["headers"]:
            if name == b"user-agent":
                peer.user_agent = value[:CLIENT_TEXT_CHARACTERS_MAX]

    def middleware(self, app: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            # A server other than ours does not report connections.
            state = cast("dict[str, HttpPeer]", scope.get("state", {}))
            peer = state.get(_STATE) or HttpPeer(None, time.monotonic())
            for name, value in scope["headers"]:
                if name == b"user-agent":
                    peer.user_agent = value[:CLIENT_TEXT_CHARACTERS_MAX]

            async def receive_counted() -> Message:
                message = await receive()
                size = len(message.get("body", b""))
                peer.bytes_in += size
                self._bytes_in += size
                return message

            async def send_counted(message: Message) -> None:
                size = len(message.get("body", b""))
                peer.bytes_out += size
                self._bytes_out += size
                await send(message)

            await app(scope, receive_counted, send_counted)

        return counted


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the request of a connection that was not admitted."""
    problem = http_problem(503, "the broker has too many connections; close one, or raise connections_max")
    await problem_response(problem, headers={"Connection": "close"})(scope, receive, send)


def counted_protocol(
    traffic: HttpTraffic,
    admission: Admission,
    *,
    idle_timeout_ms: int,
    frame_timeout_ms: int,
    pending: PendingBytes,
    login_timeout_ms: int | None = None,
    refusing: ASGIApp = refuse,
    problem_encoder: ProblemEncoder = encode_problem,
) -> type[CountedProtocol]:
    """Return a class of connections that report to ``traffic``.

    They leave ``admission`` when they are closed, and count their bodies in ``pending``.

    A refused connection gets 503 as the answer of ``refusing`` to its first request, if that arrives
    within two seconds. The class closes a connection that has not sent the head of its first request within
    ``idle_timeout_ms``, or ``login_timeout_ms`` where requests need a login (None: they
    do not) and the client has no certificate. A head that has begun must be complete
    within ``frame_timeout_ms``.
    """
    refused_now: set[CountedProtocol] = set()
    held = pending
    shared_readings, shared_turns = Turns(READINGS_PER_TURN), Turns(REQUESTS_PER_TURN)

    class CountedConnection(CountedProtocol):
        head_timeout_s = frame_timeout_ms / 1000
        idle_timeout_s = idle_timeout_ms / 1000
        pending = held
        readings, turns = shared_readings, shared_turns
        encode_problem = staticmethod(problem_encoder)
        _peer: HttpPeer | None = None
        _first_request: Timeout | None = None
        _is_first = True

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            wait_s = idle_timeout_ms / 1000
            if self.refusal is None:
                principal = transport.get_extra_info("principal") or str(ANONYMOUS)
                self._peer = traffic.opened(
                    self.client,
                    tls_version=transport.get_extra_info("tls_version") or "",
                    principal=principal,
                )
                if login_timeout_ms is not None and principal == str(ANONYMOUS):
                    wait_s = min(wait_s, login_timeout_ms / 1000)
                self.app_state = {**self.app_state, _STATE: self._peer}
            elif len(refused_now) < _REFUSED_MAX:
                refused_now.add(self)
                self.app = refusing
                wait_s = _REFUSED_S
            else:
                self.transport.abort()
                return
            self._first_request = Timeout(self.loop, wait_s, self.transport.close)

        def data_received(self, data: bytes) -> None:
            if self._is_first:
                self._is_first = False
                if is_tls_hello(data):
                    logger.warning("http: %s speaks TLS, and this listener has none", self.host)
                    self.transport.write(HANDSHAKE_FAILURE_ALERT)
                    self.transport.close()
                    return
            super().data_received(data)

        def on_headers_complete(self) -> None:
            if self._first_request is not None:
                self._first_request.cancel()
                self._first_request = None
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._first_request is not None:
                self._first_request.cancel()
            refused_now.discard(self)
            if self.refusal is None:
                admission.leave(self.host)
            if self._peer is not None:
                traffic.closed(self._peer)

    traffic.admission = admission
    return CountedConnection
