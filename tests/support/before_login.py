"""The listeners without sockets, for clients that have not logged in: many connections a second.

What is below a login is not there: a request that gets so far raises. ``attack`` plays the
bytes of one connection, and checks what was kept of them and what was answered.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import re
import ssl
import struct
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from stele.wire import messages as m
from stele.wire.framing import FrameReader
from uvicorn.server import ServerState

from app.api.authentication import LOGIN_PATH, Authenticate
from app.api.console.login import login_routes
from app.api.errors import HttpError, problem_response
from app.api.http.connection import BUFFERED_BYTES_MAX, HEAD_BYTES_MAX
from app.api.http.cross_site import RefuseCrossSite
from app.api.http.request_ids import RequestIds
from app.api.http.traffic import HttpTraffic, counted_protocol
from app.api.sessions import Sessions
from app.broker.reading.unread_responses import UnreadResponses
from app.cluster.credentials import CredentialStore
from app.cluster.sqlite.catalog import CatalogDatabase
from app.network.admission import Admission
from app.network.first_bytes import HANDSHAKE_FAILURE_ALERT
from app.network.handshake_thread import HandshakeThread
from app.network.pending_bytes import PendingBytes
from app.network.tls_transport import _HANDSHAKE_BYTES_MAX, TlsTransport
from app.security.authenticator import Authenticator
from app.security.credentials import Credentials
from app.security.policy import ListenerSecurity
from app.security.sasl import MECHANISMS
from app.security.tls.listener_tls import ListenerTls, TlsOptions
from app.security.tls.principal_mapping import PrincipalMapping
from app.settings import Settings
from app.tcp.binary.connection import BinaryConnection
from app.tcp.binary.handlers.context import BinaryListener
from app.tcp.binary.login import LOGIN_FRAME_BYTES_MAX, LOGIN_FRAMES_MAX
from app.tcp.connection import Connection
from app.tcp.deadlines import Deadlines
from app.tcp.kafka.connection import KafkaConnection
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.sasl_session import LOGIN_REQUEST_BYTES_MAX, LOGIN_REQUESTS_MAX
from app.tcp.server import TURNS_PER_LOOP
from app.turns import Turns
from tests.support.certificates import Authority
from tests.support.hostile_bytes import Source, pieces
from tests.support.simulated_time import SimulatedClock

USER, PASSWORD = "alice", "zebra-Quartz-71"
# Most attackers share an address, so that the limit of failed logins refuses them before a password is hashed.
ATTACKER, GOOD_CLIENT = "10.0.0.1", "10.9.9.9"
# Beyond the answers to so many requests; the largest is that of ApiVersions.
ANSWER_BYTES_MAX = 2048


class Wire(asyncio.Transport):
    """The transport of one connection: keeps what the broker writes."""

    def __init__(self, host: str) -> None:
        super().__init__({"peername": (host, 40_000), "sockname": ("10.0.0.99", 9092)})
        self.written = bytearray()
        self.is_over = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def write_eof(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class _NoQuotas:
    is_active = False


class NothingBelow:
    """Stands for the broker, its groups and its transactions: nobody may get there."""

    quotas = _NoQuotas()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a client without a login has reached {name}")


@dataclass(slots=True)
class Registry:
    """Implements ``ConnectionRegistry``."""

    deadlines: Deadlines = field(default_factory=Deadlines)
    pending: PendingBytes = field(default_factory=lambda: PendingBytes(Settings().pending_request_bytes_max))
    unread: UnreadResponses = field(
        default_factory=lambda: UnreadResponses(fetch_bytes_max=Settings().fetch_bytes_max)
    )
    turns: Turns = field(default_factory=lambda: Turns(TURNS_PER_LOOP))
    is_crowded: bool = False

    def has_turn(self, later: Callable[[], object], client: Hashable) -> bool:
        return True

    def opened(self, connection: Connection[Any]) -> str | None:
        return None

    def closed(self, connection: Connection[Any]) -> None:
        pass


class Target(Protocol):
    """One listener that requires logins."""

    # What may be kept of a client's bytes, beside the piece that was received last.
    held_bytes_max: int

    def connect(self, host: str) -> asyncio.Protocol: ...
    def held_bytes(self, connection: Any) -> int: ...
    def is_working(self, connection: Any) -> bool: ...
    def check_answer(self, written: bytes) -> None:
        """Fail unless these are whole answers that a client without a login may get."""
        ...

    async def check_good_client(self) -> None:
        """Fail unless a client with the password of ``USER`` logs in."""
        ...


def _security(listener: Any, authenticator: Authenticator) -> ListenerSecurity:
    return ListenerSecurity(
        listener=listener,
        mode="required",
        authenticator=authenticator,
        credentials=authenticator.credentials,
        guards_users=True,
    )


async def _until(is_so: Callable[[], bool]) -> None:
    """Wait for a minute of simulated time at most."""
    for _ in range(600):
        if is_so():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the good client was not served")


class _Tcp:
    def is_working(self, connection: Connection[Any]) -> bool:
        return connection._abandonable is not None


class KafkaTarget(_Tcp):
    held_bytes_max = LOGIN_REQUEST_BYTES_MAX + 4

    def __init__(self, authenticator: Authenticator, settings: Settings) -> None:
        nothing = cast("Any", NothingBelow())
        self._settings, self._registry = settings, Registry()
        self._listener = KafkaListener(
            broker=nothing,
            groups=nothing,
            transactions=nothing,
            host="localhost",
            port=9092,
            fetch_sessions=nothing,
            security=_security("kafka", authenticator),
        )

    def connect(self, host: str) -> KafkaConnection:
        connection = KafkaConnection(
            listener=self._listener, settings=self._settings, registry=self._registry
        )
        connection.peer_host = host
        return connection

    def held_bytes(self, connection: KafkaConnection) -> int:
        return len(connection._frames._buffer)

    def check_answer(self, written: bytes) -> None:
        position = 0
        while position < len(written):
            (size,) = struct.unpack_from(">i", written, position)
            assert 0 <= size <= len(written) - position - 4
            position += 4 + size
        assert len(written) <= (LOGIN_REQUESTS_MAX + 4) * ANSWER_BYTES_MAX

    async def check_good_client(self) -> None:
        wire, connection = Wire(GOOD_CLIENT), self.connect(GOOD_CLIENT)
        connection.connection_made(wire)
        token = f"\0{USER}\0{PASSWORD}".encode()
        connection.data_received(struct.pack(">ihhih", 17, 17, 0, 1, -1) + b"\0\5PLAIN")
        connection.data_received(struct.pack(">i", len(token)) + token)
        await _until(lambda: not connection.principal.is_anonymous)
        assert str(connection.principal) == f"User:{USER}"
        connection.connection_lost(None)


class BinaryTarget(_Tcp):
    held_bytes_max = LOGIN_FRAME_BYTES_MAX

    def __init__(self, authenticator: Authenticator, settings: Settings) -> None:
        nothing = cast("Any", NothingBelow())
        self._settings, self._registry = settings, Registry()
        self._listener = BinaryListener(
            broker=nothing,
            groups=nothing,
            transactions=nothing,
            host="localhost",
            port=9009,
            security=_security("binary", authenticator),
        )

    def connect(self, host: str) -> BinaryConnection:
        connection = BinaryConnection(
            listener=self._listener, settings=self._settings, registry=self._registry
        )
        connection.peer_host = host
        return connection

    def held_bytes(self, connection: BinaryConnection) -> int:
        frames = connection._frames
        return len(frames._buffer) - frames._position + len(frames._partial or b"")

    def check_answer(self, written: bytes) -> None:
        if written == HANDSHAKE_FAILURE_ALERT:
            # The input began like TLS by chance.
            return
        frames = FrameReader()
        for kind, body in frames.feed(written):
            answer = m.decode_response(kind, body)
            assert isinstance(answer, m.ErrorResponse) or (
                isinstance(answer, m.AuthenticateResponse) and not answer.is_done
            )
        assert not frames.has_partial_frame
        assert len(written) <= (LOGIN_FRAMES_MAX + 4) * ANSWER_BYTES_MAX

    async def check_good_client(self) -> None:
        wire, connection = Wire(GOOD_CLIENT), self.connect(GOOD_CLIENT)
        connection.connection_made(wire)
        token = f"\0{USER}\0{PASSWORD}".encode()
        connection.data_received(m.AuthenticateRequest(mechanism="PLAIN", data=token).encode())
        await _until(lambda: bool(wire.written))
        ((kind, body),) = FrameReader().feed(bytes(wire.written))
        answer = m.decode_response(kind, body)
        assert isinstance(answer, m.AuthenticateResponse)
        assert answer.is_done
        connection.connection_lost(None)


class HttpTarget:
    held_bytes_max = HEAD_BYTES_MAX + BUFFERED_BYTES_MAX
    # Redirects to the login page; errors of a request. No 500 is among them.
    _STATUSES = frozenset(
        (100, 200, 303, 400, 401, 403, 404, 405, 406, 408, 413, 415, 417, 431, 501, 503, 505)
    )

    def __init__(self, authenticator: Authenticator, settings: Settings) -> None:
        security = _security("http", authenticator)
        sessions = Sessions(SimulatedClock())
        login = Starlette(
            routes=login_routes(security, sessions, _login_page),
            exception_handlers={HttpError: _refuse, ClientDisconnect: _gone},
        )
        self.reached: list[str] = []

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == LOGIN_PATH:
                await login(scope, receive, send)
                return
            if scope["stele.principal"].is_anonymous:
                is_open = scope["path"] in ("/healthz", "/readyz") or scope["path"].startswith(
                    "/console/static/"
                )
                assert is_open, f"a client without a login has reached {scope['path']!r}"
            else:
                self.reached.append(scope["path"])
            await Response("served")(scope, receive, send)

        authenticate = Authenticate(application, security, sessions, is_metrics_open=False)
        admission = Admission("http", connections_max=1 << 30, open_files_max=1 << 30)
        self._protocol = counted_protocol(
            HttpTraffic(),
            admission,
            idle_timeout_ms=settings.idle_timeout_ms,
            frame_timeout_ms=settings.frame_timeout_ms,
            pending=PendingBytes(settings.pending_request_bytes_max),
            login_timeout_ms=settings.login_timeout_ms,
        )
        self._admission = admission
        self._config = uvicorn.Config(
            RequestIds(RefuseCrossSite(authenticate, settings)),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=self._protocol,
            ws="none",
            proxy_headers=False,
            server_header=False,
        )
        self._config.load()
        self._state = ServerState()

    def connect(self, host: str) -> asyncio.Protocol:
        self._admission.admit(host, 1)
        connection = self._protocol(self._config, self._state, {})
        connection.host = host
        return connection

    def held_bytes(self, connection: Any) -> int:
        return connection.held_bytes

    def is_working(self, connection: Any) -> bool:
        return bool(self._state.tasks)

    def check_answer(self, written: bytes) -> None:
        if not written:
            return
        assert written.startswith(b"HTTP/1.1 ")
        statuses = {int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", written)}
        assert statuses <= self._STATUSES, statuses

    async def check_good_client(self) -> None:
        wire, connection = Wire(GOOD_CLIENT), cast("Any", self.connect(GOOD_CLIENT))
        connection.connection_made(wire)
        head = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic "
        login = f"{USER}:{PASSWORD}".encode()
        connection.data_received(head + base64.b64encode(login) + b"\r\n\r\n")
        await _until(lambda: wire.written.endswith(b"served"))
        assert self.reached.pop() == "/v1/topics"
        connection.connection_lost(None)


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return problem_response(error.problem)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)


def _login_page(**_: Any) -> Response:
    return Response("log in")


class TlsTarget:
    """A listener with TLS, of which no client gets past the handshake."""

    held_bytes_max = _HANDSHAKE_BYTES_MAX

    def __init__(self, authority: Authority) -> None:
        server = authority.server()
        self._authority = authority
        self._tls = ListenerTls(
            TlsOptions(
                certificate_file=server.certificate_file,
                key_file=server.key_file,
                mapping=PrincipalMapping(),
            )
        )
        # On a simulated loop, it is the loop that runs the handshakes.
        self._thread = HandshakeThread(asyncio.get_running_loop())
        self.made = self.completed = self.failed = 0

    def connect(self, host: str) -> TlsTransport:
        return TlsTransport(self._make, tls=self._tls, observer=self, timeout_s=10, thread=self._thread)

    def _make(self) -> asyncio.Protocol:
        self.made += 1
        return asyncio.Protocol()

    def handshake_completed(self, transport: TlsTransport) -> None:
        self.completed += 1

    def handshake_failed(self, transport: TlsTransport, reason: str, detail: str) -> None:
        self.failed += 1

    def held_bytes(self, connection: TlsTransport) -> int:
        return connection._handshake_bytes

    def is_working(self, connection: TlsTransport) -> bool:
        return connection._is_shaking

    def check_answer(self, written: bytes) -> None:
        assert self.made == 0
        position = 0
        while position < len(written):
            # Alerts, handshakes, changes of the cipher and encrypted records: all whole.
            kind, _, size = struct.unpack_from(">BHH", written, position)
            assert kind in (20, 21, 22, 23)
            position += 5 + size
        assert position == len(written)

    async def check_good_client(self) -> None:
        wire, connection = Wire(GOOD_CLIENT), self.connect(GOOD_CLIENT)
        connection.connection_made(wire)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self._authority.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        for _ in range(2):
            with suppress(ssl.SSLWantReadError):
                session.do_handshake()
            connection.data_received(outgoing.read())
            await _until(lambda: not self.is_working(connection))
            incoming.write(bytes(wire.written))
            wire.written.clear()
        assert (self.made, self.completed) == (1, 1)
        self.made = self.completed = 0
        connection.connection_lost(None)


class _Errors(logging.Handler):
    """Keeps what the broker logs as an error: exceptions of its edges, among them ``NothingBelow``'s."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@asynccontextmanager
async def targets(path: Path, authority: Authority) -> AsyncGenerator[dict[str, Target]]:
    """All listeners, with one user. Everything but errors of the broker goes unlogged."""
    settings, errors = Settings(data_dir=path), _Errors()
    credentials = Credentials(CredentialStore(CatalogDatabase(path / "metadata.sqlite")))
    await credentials.open()
    await credentials.add_user(USER, PASSWORD)
    authenticator = Authenticator(credentials, clock=SimulatedClock(), mechanisms=MECHANISMS)
    disabled = logging.root.manager.disable
    logging.getLogger().addHandler(errors)
    logging.disable(logging.WARNING)
    try:
        yield {
            "kafka": KafkaTarget(authenticator, settings),
            "binary": BinaryTarget(authenticator, settings),
            "http": HttpTarget(authenticator, settings),
            "tls": TlsTarget(authority),
        }
    finally:
        logging.disable(disabled)
        logging.getLogger().removeHandler(errors)
        authenticator.close()
        await credentials.close()
    assert errors.texts == []


async def attack(target: Target, source: Source, rng: random.Random) -> bytes:
    """Play one connection; return what it was answered."""
    host = ATTACKER if rng.random() < 0.99 else f"10.1.{rng.randrange(256)}.{rng.randrange(256)}"
    wire, connection = Wire(host), target.connect(host)
    connection.connection_made(wire)
    for piece in pieces(rng, source(rng)):
        if wire.is_over or wire.is_paused:
            break
        connection.data_received(piece)
        assert target.held_bytes(connection) <= target.held_bytes_max + len(piece)
        await _settle(target, connection)
    written = bytes(wire.written)
    target.check_answer(written)
    connection.connection_lost(None)
    await _settle(target, connection)
    return written


async def _settle(target: Target, connection: asyncio.Protocol) -> None:
    """Let the broker work as long as it can without more of this client."""
    for _ in range(20):
        if not target.is_working(connection):
            return
        await asyncio.sleep(0.05)
