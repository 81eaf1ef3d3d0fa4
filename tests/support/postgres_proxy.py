"""A TCP proxy before PostgreSQL that loses the connection at a COMMIT."""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum
from types import TracebackType
from typing import Self

_COMMIT = b"COMMIT"
_CHUNK = 1 << 16


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


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(_CHUNK)
    except OSError:
        return b""


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
