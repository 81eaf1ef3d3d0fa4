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
import socket
import struct
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.broker.admission import Admission
from app.tcp.connection import Connection, ConnectionRegistry
from app.tcp.deferred_response import DeferredResponse
from app.tcp.request_cutter import UnreadableStream
from app.tcp.response_queue import Buffers
from app.tcp.server import TcpServer

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

    def discard(self) -> None:
        self._rest = b""


class ToyConnection(Connection[str]):
    def __init__(self, *, works: Works, limits: Limits, registry: ConnectionRegistry) -> None:
        super().__init__(LineCutter(works), limits=limits, registry=registry)
        self._works = works
        self.is_lost = False
        works.connections.append(self)

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
        self._reader = reader
        self._writer = writer

    async def send(self, *lines: str) -> None:
        await self.send_bytes("".join(f"{line}\n" for line in lines).encode())

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def send_soon(self, *lines: str) -> None:
        """Without waiting for the listener to read."""
        self._writer.write("".join(f"{line}\n" for line in lines).encode())

    async def answer(self) -> str:
        async with asyncio.timeout(TIMEOUT_S):
            return (await self._reader.readuntil(b"\n")).decode().rstrip("\n")

    async def answers(self, count: int) -> list[str]:
        return [await self.answer() for _ in range(count)]

    async def rest(self) -> bytes:
        """Return everything until the listener closes the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self._reader.read()

    def end(self) -> None:
        """Send no more, but continue to read."""
        self._writer.write_eof()

    def reset(self) -> None:
        """Reset the connection, as a process that crashed; a FIN would only end one direction."""
        transport = self._writer.transport
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def read_nothing(self) -> None:
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def read_again(self) -> None:
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.resume_reading()

    async def close(self) -> None:
        self._writer.transport.abort()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


class Listener:
    """A ``TcpServer`` of toy connections."""

    def __init__(self, *, limits: Limits, connections_max: int, open_files_max: int = 1 << 20) -> None:
        self.works = Works()
        self.server = TcpServer(
            "toy",
            lambda server: ToyConnection(works=self.works, limits=limits, registry=server),
            admission=Admission("toy", connections_max=connections_max, open_files_max=open_files_max),
        )
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self._clients: list[Client] = []

    async def start(self) -> None:
        await self.server.start(self._socket)

    async def connect(self) -> Client:
        # Small buffers: a peer that does not read is felt after kilobytes, not megabytes.
        connecting = socket.socket()
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connecting.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connecting, self.address)
        except OSError:
            connecting.close()
            raise
        client = Client(*await asyncio.open_connection(sock=connecting, limit=2**20))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.server.stop(0)
        await self.works.until(lambda: all(c.is_lost for c in self.works.connections))


class OpenListener(Protocol):
    """Opens a listener that the fixture closes."""

    async def __call__(self, limits: Limits | None = None, *, connections_max: int = 100) -> Listener: ...


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
