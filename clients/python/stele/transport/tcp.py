"""The binary protocol for threads, on blocking sockets.

It does not wrap an event loop, because under gevent (Locust) a loop in a background
thread does not run. A connection serves one call at a time, and is kept for the next.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from .. import forks
from ..config import Endpoint
from ..errors import (
    BrokerUnavailableError,
    ClosedError,
    ConnectionLostError,
    ProtocolError,
    RequestTimedOutError,
    SteleClientError,
)
from ..operations.base import Operation, result_of_frame
from ..wire.framing import FrameError, FrameReader
from .base import Endpoints, backoff, frame_of, lost, timed_out, unavailable
from .login import LOGIN_TIMEOUT_S, RENEW_AFTER, Login
from .tls import client_context, is_about_own_certificate, refused

R = TypeVar("R")

IDLE_CONNECTIONS_MAX = 16
# Pipelined requests of call_all; their responses must fit in the socket buffers.
WINDOW_MAX = 256
ANSWER_BYTES_MAX = 256 * 1024 * 1024
_RECEIVE_BYTES = 256 * 1024


class TcpTransport:
    """A ``Transport`` over TCP."""

    fetches_many = True
    keeps_order = True
    broker_partitions_by_key = False

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float) -> None:
        self._endpoints = Endpoints(endpoint)
        self._connect_timeout_s = connect_timeout_s
        self._tls = client_context(endpoint)
        self._login = Login(endpoint.credentials, endpoint.all) if endpoint.credentials else None
        self._lock = threading.Lock()
        self._idle: deque[_Connection] = deque()
        self._busy: set[_Connection] = set()
        self._is_closed = False
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        forks.leave(connection.fileno() for connection in (*self._idle, *self._busy))
        self._lock = threading.Lock()
        self._idle = deque()
        self._busy = set()

    def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        timeout_s += operation.wait_s
        frame = frame_of(operation)
        deadline_s = time.monotonic() + timeout_s
        connection = self._take(deadline_s)
        is_reusable = False
        try:
            connection.send(frame, deadline_s, timeout_s)
            frame_type, body = connection.receive(deadline_s, timeout_s)
            is_reusable = True
        except (ConnectionLostError, RequestTimedOutError):
            self._move_on(connection.endpoint)
            raise
        finally:
            self._give_back(connection, is_reusable=is_reusable)
        return result_of_frame(operation, frame_type, body)

    def call_all(self, operations: Sequence[Operation[R]], *, timeout_s: float) -> list[R | SteleClientError]:
        return self.start_all(operations, timeout_s=timeout_s)()

    def start_all(
        self, operations: Sequence[Operation[R]], *, timeout_s: float
    ) -> Callable[[], list[R | SteleClientError]]:
        """Send all operations, as ``call_all`` does; return what waits for their outcomes, and is called once."""
        exchange = self._exchange(operations, timeout_s)
        outcomes = next(exchange)
        return lambda: outcomes or next(exchange, outcomes)

    def _exchange(
        self, operations: Sequence[Operation[R]], timeout_s: float
    ) -> Generator[list[R | SteleClientError]]:
        """Yield an empty list when all operations are sent, and then the outcomes; after an error only those."""
        deadline_s = time.monotonic() + timeout_s
        outcomes: list[R | SteleClientError] = []
        try:
            connection = self._take(deadline_s)
        except SteleClientError as error:
            yield [error.twin() for _ in operations]
            return
        sent: deque[Operation[R]] = deque()
        is_reusable = False
        try:
            for operation in operations:
                sent.append(operation)
                connection.send(frame_of(operation), deadline_s, timeout_s)
                if len(sent) >= WINDOW_MAX:
                    outcomes.append(self._outcome(connection, sent, deadline_s, timeout_s))
            yield []
            while sent:
                outcomes.append(self._outcome(connection, sent, deadline_s, timeout_s))
            is_reusable = True
        except SteleClientError as error:
            if isinstance(error, ConnectionLostError | RequestTimedOutError):
                self._move_on(connection.endpoint)
            outcomes += [error.twin() for _ in sent]
            not_sent = len(operations) - len(outcomes)
            outcomes += [unavailable(connection.endpoint, error.message) for _ in range(not_sent)]
        finally:
            self._give_back(connection, is_reusable=is_reusable)
        yield outcomes

    @staticmethod
    def _outcome(
        connection: _Connection, sent: deque[Operation[R]], deadline_s: float, timeout_s: float
    ) -> R | SteleClientError:
        frame_type, body = connection.receive(deadline_s, timeout_s)
        try:
            return result_of_frame(sent.popleft(), frame_type, body)
        except SteleClientError as error:
            return error

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            connections = [*self._idle, *self._busy]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def _take(self, deadline_s: float) -> _Connection:
        while True:
            with self._lock:
                if self._is_closed:
                    raise ClosedError("client")
                if not self._idle:
                    break
                connection = self._idle.pop()
                self._busy.add(connection)
            # A request on a connection that the broker closed would have an unknown outcome.
            if connection.is_usable() and self._renew(connection, deadline_s):
                return connection
            self._give_back(connection, is_reusable=False)
        connection = self._connect(min(deadline_s, time.monotonic() + self._connect_timeout_s))
        with self._lock:
            self._busy.add(connection)
        self._log_in(connection, deadline_s)
        return connection

    def _renew(self, connection: _Connection, deadline_s: float) -> bool:
        """Log in again if the session ends soon; return whether the connection can be used."""
        if connection.renew_at_s is None or time.monotonic() < connection.renew_at_s:
            return True
        try:
            self._log_in(connection, deadline_s)
        except BrokerUnavailableError:
            return False
        return True

    def _log_in(self, connection: _Connection, deadline_s: float) -> None:
        """Log in, or give the connection up and raise."""
        if self._login is None:
            return
        now_s = time.monotonic()
        is_done = False
        try:
            connection.log_in(self._login, min(deadline_s, now_s + LOGIN_TIMEOUT_S))
            is_done = True
        except (ConnectionLostError, RequestTimedOutError) as error:
            # The request of the caller has not been sent.
            raise unavailable(connection.endpoint, f"the login did not end: {error.message}") from error
        finally:
            if not is_done:
                self._give_back(connection, is_reusable=False)

    def _move_on(self, silent: Endpoint) -> None:
        """Go on with another broker than ``silent``.

        That one may be paused, or cut off from what it needs.
        """
        self._endpoints.move_on(silent)
        if self._endpoints.current is silent:
            return
        with self._lock:
            left = [connection for connection in self._idle if connection.endpoint is silent]
            for connection in left:
                self._idle.remove(connection)
        for connection in left:
            connection.close()

    def _give_back(self, connection: _Connection, *, is_reusable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if is_reusable and not self._is_closed and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self, give_up_s: float) -> _Connection:
        cause: object
        pauses = backoff()
        while True:
            endpoint = self._endpoints.current
            try:
                left_s = self._endpoints.attempt_s(give_up_s - time.monotonic())
                return _Connection(endpoint, left_s, self._tls)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
                # The broker may have stopped, or have too many connections.
                cause = error
            except ssl.SSLError as error:
                raise refused(endpoint, error) from error
            except OSError as error:
                cause = error
            pause_s = next(pauses) if self._endpoints.move_on(endpoint) else 0.0
            if self._is_closed or time.monotonic() + pause_s >= give_up_s:
                raise unavailable(endpoint, cause)
            time.sleep(pause_s)


class _Connection:
    """A connected socket, used by one thread at a time."""

    def __init__(self, endpoint: Endpoint, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            # On an error, this closes the socket.
            self._socket = tls.wrap_socket(self._socket, server_hostname=endpoint.host)
        self._reader = FrameReader(frame_bytes_max=ANSWER_BYTES_MAX)
        self._frames: deque[tuple[int, bytes]] = deque()
        # When the session should be renewed; None without a limit.
        self.renew_at_s: float | None = None

    def log_in(self, login: Login, deadline_s: float) -> None:
        """Log in, for the first time or again.

        Raises AuthenticationError and as ``receive`` does.
        """
        begun_s = time.monotonic()
        timeout_s = deadline_s - begun_s
        attempt = login.begin(self.endpoint)
        frame: bytes | None = attempt.first()
        while frame is not None:
            self.send(frame, deadline_s, timeout_s)
            frame = attempt.receive(*self.receive(deadline_s, timeout_s))
        lifetime_s = attempt.lifetime_ms / 1000
        self.renew_at_s = begun_s + lifetime_s * RENEW_AFTER if lifetime_s else None

    def fileno(self) -> int:
        return self._socket.fileno()

    def is_usable(self) -> bool:
        """Return whether the broker has kept it open; costs one system call."""
        try:
            self._socket.settimeout(0)
            # TLS cannot peek, and need not: nothing but the end of the stream may be there.
            self._socket.recv(1, 0 if isinstance(self._socket, ssl.SSLSocket) else socket.MSG_PEEK)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        # Either the end of the stream, or a response without a request.
        return False

    def send(self, frame: bytes, deadline_s: float, timeout_s: float) -> None:
        try:
            self._socket.settimeout(self._remaining(deadline_s, timeout_s))
            self._socket.sendall(frame)
        except TimeoutError:
            raise timed_out(self.endpoint, timeout_s) from None
        except OSError as error:
            raise lost(self.endpoint, error) from error

    def receive(self, deadline_s: float, timeout_s: float) -> tuple[int, bytes]:
        while not self._frames:
            try:
                self._socket.settimeout(self._remaining(deadline_s, timeout_s))
                data = self._socket.recv(_RECEIVE_BYTES)
            except TimeoutError:
                raise timed_out(self.endpoint, timeout_s) from None
            except OSError as error:
                if isinstance(error, ssl.SSLError) and is_about_own_certificate(error):
                    raise refused(self.endpoint, error) from error
                raise lost(self.endpoint, error) from error
            if not data:
                raise lost(self.endpoint, "closed by the broker")
            try:
                self._frames.extend(self._reader.feed(data))
            except FrameError as error:
                raise ProtocolError(
                    f"the response is not of the binary protocol: {error}; is this the binary listener's port?"
                ) from error
        return self._frames.popleft()

    def _remaining(self, deadline_s: float, timeout_s: float) -> float:
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise timed_out(self.endpoint, timeout_s)
        return remaining_s

    def close(self) -> None:
        try:
            # Wakes a thread that waits in recv, which close alone does not.
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        finally:
            self._socket.close()
