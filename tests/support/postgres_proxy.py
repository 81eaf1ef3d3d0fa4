"""TCP proxies before PostgreSQL: one loses the connection at a COMMIT, one stalls it where a test says."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

_COMMIT = b"COMMIT"
_CHUNK = 1 << 16
_INT = struct.Struct(">i")
# SSLRequest and GSSENCRequest.
_ENCRYPTION_REQUESTS = frozenset((80877103, 80877104))
# What a client sends begins with a Parse message and ends with a Sync or a Flush, unless it is a simple query.
_PARSE, _LAST = b"P", (b"S\0\0\0\4", b"H\0\0\0\4")


class AtCommit(Enum):
    """What happens to the next COMMIT; the client's connection ends in each case but the first."""

    PASS = "pass"
    # The server gets it; its answer is lost.
    LOSE_ANSWER = "lose answer"
    # The server never gets it.
    LOSE_REQUEST = "lose request"
    # The server gets it some time after the client's connection has ended.
    HOLD = "hold"


class PostgresProxy:
    """Listens on ``port`` within a ``with``. ``at_commit`` applies to one COMMIT, then it is PASS again.

    ``release`` lets a COMMIT go on that is held.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.at_commit = AtCommit.PASS
        self.release = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for each in self._sockets:
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in (*self._sockets, self._listener):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, server]
            for work in (self._to_server, self._to_client):
                thread = threading.Thread(target=work, args=(client, server))
                self._threads.append(thread)
                thread.start()

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        _copy(server, client)

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        while data := _receive(client):
            fault = self.at_commit if _COMMIT in data else AtCommit.PASS
            if fault is AtCommit.PASS:
                if not _sent(server, data):
                    break
                continue
            self.at_commit = AtCommit.PASS
            # The other thread's sendall fails from now on: no answer arrives.
            _end(client)
            if fault is AtCommit.HOLD:
                self.release.wait()
            if fault is not AtCommit.LOSE_REQUEST:
                _sent(server, data)
            # The server works off what it has before it notices the end. If it has answered, the other thread may
            # have ended the connection already.
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)
            return
        _end(server)


class StallingProxy(PostgresProxy):
    """Holds what one connection sends, from a point that ``stall`` names until ``release`` is set.

    ``held`` is set when it does. What is held has not reached the server, so it locks nothing there.
    ``held_data`` has all that this connection has sent from there on.
    """

    def __init__(self, server_port: int) -> None:
        super().__init__(server_port)
        self.held = threading.Event()
        self.held_data = b""
        self._lock = threading.Lock()
        self._is_point: Callable[[bytearray, bytes], bool] | None = None

    def stall(self, is_point: Callable[[bytearray, bytes], bool]) -> None:
        """Hold the next data for which ``is_point`` is true.

        It gets what the connection has carried before, and the data.
        """
        self._is_point = is_point

    def _is_held(self, carried: bytearray, data: bytes) -> bool:
        with self._lock:
            if self._is_point is None or not self._is_point(carried, data):
                return False
            self._is_point = None
            return True

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        carried = bytearray()
        is_held = False
        while data := _receive_pipeline(client):
            if not is_held and self._is_held(carried, data):
                is_held = True
                self.held.set()
                self.release.wait()
            if is_held:
                self.held_data += data
            carried += data
            if not _sent(server, data):
                break
        _end(server)


class PoolerProxy(PostgresProxy):
    """Treats the startup parameter ``options`` as a connection pooler does.

    PgBouncer refuses it by default, and drops it if ``ignore_startup_parameters`` says so.
    """

    def __init__(self, server_port: int, *, is_refused: bool) -> None:
        super().__init__(server_port)
        self._is_refused = is_refused

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        code, body = _startup(client)
        while code in _ENCRYPTION_REQUESTS:
            client.sendall(b"N")
            code, body = _startup(client)
        names = body.split(b"\0")
        pairs = [pair for pair in zip(names[::2], names[1::2], strict=False) if pair[0]]
        if self._is_refused and any(name == b"options" for name, _ in pairs):
            fields = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
            client.sendall(b"E" + _INT.pack(len(fields) + 4) + fields)
            _end(client)
            _end(server)
            return
        kept = b"".join(name + b"\0" + value + b"\0" for name, value in pairs if name != b"options") + b"\0"
        server.sendall(_INT.pack(len(kept) + 8) + _INT.pack(code) + kept)
        super()._to_server(client, server)


def _startup(client: socket.socket) -> tuple[int, bytes]:
    """Return code and rest of the message with which a client begins; 0 if it leaves."""
    head = client.recv(8, socket.MSG_WAITALL)
    if len(head) < 8:
        return 0, b""
    length, code = _INT.unpack(head[:4])[0], _INT.unpack(head[4:])[0]
    return code, client.recv(length - 8, socket.MSG_WAITALL) if length > 8 else b""


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(_CHUNK)
    except OSError:
        return b""


def _receive_pipeline(source: socket.socket) -> bytes:
    """Return all that a client sends before it waits for an answer."""
    data = _receive(source)
    while data.startswith(_PARSE) and not data.endswith(_LAST):
        more = _receive(source)
        if not more:
            break
        data += more
    return data


def _sent(target: socket.socket, data: bytes) -> bool:
    """Send; return False if the connection has ended."""
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _copy(source: socket.socket, target: socket.socket) -> None:
    while data := _receive(source):
        # If the client's side was ended, what the server sends is lost.
        _sent(target, data)
    _end(target)


def _end(of: socket.socket) -> None:
    try:
        of.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
