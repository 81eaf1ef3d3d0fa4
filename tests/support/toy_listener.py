"""A listener of lines over ``Connection``: what a protocol may do, without a broker.

Each line is a request, answered by a line:

=============== ==========================================================
``now X``       ``X`` at once
``big N``       N bytes at once
``later X``     ``X`` when the test calls ``finish(X)``
``change X``    the same, and it continues after the peer has disconnected
``alone X``     the same, and no later request begins before it has ended
``read X N``    the same, as a read that may return N bytes
``shared X``    ``X ended`` when the future ``shared`` ends, ``X timed-out`` after its time-out
``fail``        the work raises
``crash``       beginning it raises
``unreadable``  the cutter raises
=============== ==========================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from app.broker.reading.unread_responses import UnreadResponses
from app.network.accept_loop import AcceptOptions
from app.network.admission import Admission
from app.security.tls.listener_tls import ListenerTls, TlsOptions
from app.security.tls.principal_mapping import PrincipalMapping
from app.storage.waiters import Wakeup
from app.tcp.connection import Connection
from app.tcp.connection_owner import ConnectionRegistry
from app.tcp.deferred_response import DeferredResponse
from app.tcp.request_cutter import UnreadableStream
from app.tcp.response_queue import Buffers
from app.tcp.server import TcpServer
from app.turns import Turns
from tests.support.certificates import Authority

TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``ConnectionLimits`` without the bounds that ``Settings`` puts on them."""

    pipelined_requests_max: int = 1000
    output_bytes_max: int = 1024 * 1024
    frame_timeout_ms: int = 30_000
    idle_timeout_ms: int = 600_000


class Works:
    """What the requests of all connections do, observed and controlled by the test."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.wakeups: dict[str, Wakeup] = {}
        self.connections: list[ToyConnection] = []
        self.bytes_received = 0
        self.peers_ended = 0
        self.shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.shared_timeout_ms = 60_000
        self._finish: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._changed = asyncio.Event()

    def finish(self, *names: str) -> None:
        for name in names:
            self._finish[name].set()

    async def run(self, name: str) -> Buffers:
        self.begun.append(name)
        try:
            await self._finish[name].wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            self.note()
            raise
        self.ended.append(name)
        self.note()
        return f"{name}\n".encode()

    async def poll(self, name: str) -> Buffers:
        """Wait for news, as reads of the log do, and ``run`` then."""
        wakeup = self.wakeups[name] = Wakeup(Turns(per_turn=8))
        self.note()
        try:
            await wakeup.within(10_000_000)
        except GeneratorExit:
            self.cancelled.append(name)
            self.note()
            raise
        if name == "crash":
            raise ValueError("this read fails after its wait")
        self.note()
        return await self.run(name)

    def note(self) -> None:
        self._changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until ``is_so()``; it is looked at whenever something happens to a connection."""
        async with asyncio.timeout(TIMEOUT_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


class LineCutter:
    """Implements ``RequestCutter``: a request is a line."""

    def __init__(self, works: Works) -> None:
        self._works = works
        self._rest = b""

    def receive(self, data: bytes) -> None:
        self._rest += data
        self._works.bytes_received += len(data)
        self._works.note()

    def next_request(self) -> str | None:
        line, end, rest = self._rest.partition(b"\n")
        if not end:
            return None
        self._rest = rest
        if line == b"unreadable":
            self.discard()
            raise UnreadableStream("this line cannot be read")
        return line.decode()

    def has_request(self) -> bool:
        return b"\n" in self._rest

    def has_partial_request(self) -> bool:
        return bool(self._rest) and not self.has_request()

    def partial_bytes(self) -> int:
        return len(self._rest) if self.has_partial_request() else 0

    def discard(self) -> None:
        self._rest = b""


class ToyConnection(Connection[str]):
    def __init__(
        self, *, works: Works, limits: Limits, registry: ConnectionRegistry[Connection[Any]]
    ) -> None:
        super().__init__(LineCutter(works), limits=limits, registry=registry)
        self._works = works
        self.is_lost = False
        works.connections.append(self)
        works.note()

    # ── what a protocol implements ──

    def refusal(self, reason: str) -> bytes:
        return f"refused: {reason}\n".encode()

    def begin(self, request: str) -> None:
        self._works.taken.append(request)
        self._works.note()
        match request.split():
            case ["now", name]:
                self.answer(f"{name}\n".encode())
            case ["big", size]:
                self.answer([b"x" * (int(size) - 1), b"\n"])
            case ["later", name]:
                self.answer_later(self._works.run(name))
            case ["change", name]:
                self.answer_later(self._works.run(name), is_change=True)
            case ["alone", name]:
                self.pause_requests()
                self.answer_later(self._alone(name), is_change=True)
            case ["read", name, size]:
                self.read_later(self._works.run(name), bytes_max=int(size))
            case ["poll", name, size]:
                self.read_later(self._works.poll(name), bytes_max=int(size))
            case ["shared", name]:
                deferred = DeferredResponse(
                    future=self._works.shared,
                    timeout_ms=self._works.shared_timeout_ms,
                    make=lambda has_ended: self._shared(name, has_ended=has_ended),
                )
                self.answer_deferred(deferred, deferred.make)
            case ["fail"]:
                self.answer_later(self._fail())
            case _:
                raise ValueError(request)

    def _shared(self, name: str, *, has_ended: bool) -> Buffers:
        if name == "crash":
            raise ValueError("this response cannot be made")
        return f"{name} {'ended' if has_ended else 'timed-out'}\n".encode()

    async def _alone(self, name: str) -> Buffers:
        try:
            return await self._works.run(name)
        finally:
            self.resume_requests()

    async def _fail(self) -> Buffers:
        raise ValueError("this work cannot be done")

    # ── what a test looks at ──

    @property
    def unsent_bytes(self) -> int:
        assert self._transport is not None
        return self._transport.get_write_buffer_size()

    @property
    def is_reading(self) -> bool:
        assert self._transport is not None
        return self._transport.is_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._works.note()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._works.note()

    def eof_received(self) -> bool:
        answer = super().eof_received()
        self._works.peers_ended += 1
        self._works.note()
        return answer

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_lost = True
        self._works.note()


class Client:
    """One peer of the listener, over asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *lines: str) -> None:
        await self.send_bytes("".join(f"{line}\n" for line in lines).encode())

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def send_soon(self, *lines: str) -> None:
        """Without waiting for the listener to read."""
        self.writer.write("".join(f"{line}\n" for line in lines).encode())

    async def answer(self) -> str:
        async with asyncio.timeout(TIMEOUT_S):
            return (await self.reader.readuntil(b"\n")).decode().rstrip("\n")

    async def answers(self, count: int) -> list[str]:
        return [await self.answer() for _ in range(count)]

    async def rest(self) -> bytes:
        """Return everything until the listener closes the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.reader.read()

    def end(self) -> None:
        """Send no more, but continue to read."""
        self.writer.write_eof()

    def reset(self) -> None:
        """Reset the connection, as a process that crashed; a FIN would only end one direction."""
        transport = self.writer.transport
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def read_nothing(self) -> None:
        transport = self.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def read_again(self) -> None:
        transport = self.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.resume_reading()

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


class TlsClient(Client):
    """A peer that speaks TLS, and can end its side of the connection and continue to read."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext, host: str
    ) -> None:
        super().__init__(reader, writer)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._received = bytearray()
        self._has_ended = False

    async def shake_hands(self) -> None:
        while True:
            try:
                self.session.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                await self._receive()
            else:
                self._flush()
                return

    async def send_bytes(self, data: bytes) -> None:
        self._encrypt(data)
        await self.writer.drain()

    def send_soon(self, *lines: str) -> None:
        self._encrypt("".join(f"{line}\n" for line in lines).encode())

    async def answer(self) -> str:
        async with asyncio.timeout(TIMEOUT_S):
            while (end := self._received.find(b"\n")) < 0:
                if self._has_ended:
                    raise asyncio.IncompleteReadError(bytes(self._received), None)
                await self._decrypt()
            line = self._received[:end].decode()
            del self._received[: end + 1]
            return line

    async def rest(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            while not self._has_ended:
                await self._decrypt()
        rest = bytes(self._received)
        self._received.clear()
        return rest

    def end(self) -> None:
        # It reports that it waits for the listener's.
        with contextlib.suppress(ssl.SSLWantReadError):
            self.session.unwrap()
        self._flush()
        self.writer.write_eof()

    def _encrypt(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self.session.write(view) :]
        self._flush()

    def _flush(self) -> None:
        self.writer.write(self._outgoing.read())

    async def _decrypt(self) -> None:
        try:
            data = self.session.read(65536)
            self._received += data
            self._has_ended = not data
        except ssl.SSLZeroReturnError:
            self._has_ended = True
        except ssl.SSLWantReadError:
            await self._receive()

    async def _receive(self) -> None:
        data = await self.reader.read(65536)
        if data:
            self._incoming.write(data)
        else:
            self._has_ended = True
            self._incoming.write_eof()


class Listener:
    """A ``TcpServer`` of toy connections; with TLS if an ``authority`` issues its certificate."""

    def __init__(
        self,
        *,
        limits: Limits,
        connections_max: int,
        open_files_max: int = 1 << 20,
        authority: Authority | None = None,
        accept: AcceptOptions | None = None,
        unread: UnreadResponses | None = None,
    ) -> None:
        self.works = Works()
        self.authority = authority
        self.admission = Admission("toy", connections_max=connections_max, open_files_max=open_files_max)
        self.tls: ListenerTls | None = None
        if authority is not None:
            server = authority.server()
            options = TlsOptions(
                certificate_file=server.certificate_file,
                key_file=server.key_file,
                client_ca_file=authority.ca_file,
                client_auth="requested",
                mapping=PrincipalMapping(),
            )
            self.tls = ListenerTls(options)
        self.server = TcpServer(
            "toy",
            lambda server: ToyConnection(works=self.works, limits=limits, registry=server),
            admission=self.admission,
            accept=accept,
            tls=self.tls,
            unread=unread,
        )
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self._clients: list[Client] = []

    async def start(self) -> None:
        self.server.start(self._socket)

    async def connect(self) -> Client:
        before = len(self.works.connections)
        client = await self.connect_plaintext()
        if self.authority is None:
            return client
        over_tls = await self.add_tls(client, self.authority.client_context())
        # With TLS 1.3, the client is the first to end the handshake.
        await self.works.until(lambda: len(self.works.connections) > before)
        return over_tls

    async def add_tls(self, client: Client, context: ssl.SSLContext) -> TlsClient:
        """Return the client with TLS on top of its connection."""
        self._clients.remove(client)
        over_tls = TlsClient(client.reader, client.writer, context, self.address[0])
        self._clients.append(over_tls)
        await over_tls.shake_hands()
        return over_tls

    async def connect_plaintext(self) -> Client:
        # Small buffers: a peer that does not read is felt after kilobytes, not megabytes.
        connecting = socket.socket()
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connecting.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connecting, self.address)
        except OSError:
            connecting.close()
            raise
        client = Client(*await asyncio.open_connection(sock=connecting, limit=2**24))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.server.stop(0)
        await self.works.until(lambda: all(c.is_lost for c in self.works.connections))


class OpenListener(Protocol):
    """Opens a listener that the fixture closes."""

    async def __call__(
        self,
        limits: Limits | None = None,
        *,
        connections_max: int = 100,
        accept: AcceptOptions | None = None,
        unread: UnreadResponses | None = None,
    ) -> Listener: ...


class SteeredClock:
    """The loop's clock, and jumps ahead on top of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real = loop.time
        self._ahead_s = 0.0
        vars(loop)["time"] = self._now

    def _now(self) -> float:
        return self._real() + self._ahead_s

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds

    async def advance_until(self, is_so: Callable[[], bool], *, step_s: float) -> None:
        """Jump on and on, the loop turning in between, for as many steps as no right answer needs."""
        for _ in range(1000):
            if is_so():
                return
            self.advance(step_s)
            await asyncio.sleep(0)
        raise AssertionError("it did not happen, however late it became")
