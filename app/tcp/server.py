"""Counts the connections of one TCP listener, and closes them gracefully."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from ..broker.listeners import CLIENT_TEXT_CHARACTERS_MAX, ConnectionView, TlsStatus, Traffic
from ..broker.reading.unread_responses import UnreadResponses
from ..network.accept_loop import AcceptLoop, AcceptOptions
from ..network.admission import Admission
from ..network.pending_bytes import PendingBytes
from ..security.tls.listener_tls import ListenerTls
from ..turns import Turns
from .connection import Connection
from .deadlines import Deadlines

AnyConnection = Connection[Any]

logger = logging.getLogger(__name__)

# Connections with much work that go on in one turn of the loop; each takes about a millisecond at most.
TURNS_PER_LOOP = 2
# Connections that begin requests in one turn of the loop as soon as these have come; most take 20 to 80 µs.
BEGINNINGS_PER_TURN = 24
# Refused connections that get time to read the reason; further ones are closed at once.
_REFUSED_MAX = 100


class TcpServer:
    """One TCP listener. Implements ``ConnectionRegistry``."""

    def __init__(
        self,
        name: str,
        make_connection: Callable[[TcpServer], AnyConnection],
        *,
        admission: Admission,
        accept: AcceptOptions | None = None,
        tls: ListenerTls | None = None,
        unread: UnreadResponses | None = None,
        pending_bytes_max: int = sys.maxsize,
    ) -> None:
        """``pending_bytes_max``: the most bytes of incomplete requests together; ``unread``: no limit without it."""
        self.name = name
        self.unread = unread or UnreadResponses(fetch_bytes_max=sys.maxsize)
        self.pending = PendingBytes(pending_bytes_max)
        self.turns = Turns(TURNS_PER_LOOP)
        self._beginnings = Turns(BEGINNINGS_PER_TURN)
        self._make_connection = make_connection
        self._admission = admission
        self._accept_options = accept or AcceptOptions()
        self._tls = tls
        # Refused and not closed yet, with the reason: they may still read it.
        self._refused: dict[AnyConnection, str] = {}
        self._connections: set[AnyConnection] = set()
        self.is_crowded = False
        self._accept: AcceptLoop | None = None
        self._deadlines: Deadlines | None = None
        self._all_closed = asyncio.Event()
        self._is_stopping = False
        # Totals over connections that were opened, and bytes of those that are closed.
        self._opened = 0
        self._bytes_in = 0
        self._bytes_out = 0

    def start(self, listening: socket.socket) -> None:
        """Accept connections from now on. Takes over ``listening``, which is bound."""
        self._deadlines = Deadlines()
        self._accept = AcceptLoop(
            self.name, self._make, admission=self._admission, options=self._accept_options, tls=self._tls
        )
        self._accept.start(listening)

    def _make(self, host: str, refusal: str | None) -> AnyConnection:
        connection = self._make_connection(self)
        # Clients come from few hosts.
        connection.peer_host = sys.intern(host)
        if refusal is not None:
            self._refused[connection] = refusal
        return connection

    @property
    def deadlines(self) -> Deadlines:
        assert self._deadlines is not None, "start() comes first"
        return self._deadlines

    @property
    def connections(self) -> int:
        return len(self._connections)

    def has_turn(self, later: Callable[[], object], client: Hashable) -> bool:
        if self._beginnings.take():
            return True
        self._beginnings.call(later, client)
        return False

    def traffic(self) -> Traffic:
        accept = self._accept
        return Traffic(
            connections=len(self._connections),
            connections_opened=self._opened,
            connections_refused=self._admission.refused,
            bytes_in=self._bytes_in + sum(connection.bytes_in for connection in self._connections),
            bytes_out=self._bytes_out + sum(connection.bytes_out for connection in self._connections),
            handshakes_pending=0 if accept is None else accept.handshakes_pending,
            handshakes=0 if accept is None else accept.handshakes,
            handshakes_failed={} if accept is None else accept.handshakes_failed,
            accept_failures=0 if accept is None else accept.accept_failures,
        )

    def tls_status(self) -> TlsStatus | None:
        return None if self._tls is None else self._tls.status()

    def connection_views(self) -> Iterator[ConnectionView]:
        if not self._connections:
            return iter(())
        now_s = asyncio.get_running_loop().time()
        most = CLIENT_TEXT_CHARACTERS_MAX
        return (
            ConnectionView(
                protocol=self.name,
                peer=connection.peer_address,
                age_ms=round((now_s - connection.opened_s) * 1000),
                bytes_in=connection.bytes_in,
                bytes_out=connection.bytes_out,
                client_id=connection.client_id[:most],
                client_name=connection.client_name[:most],
                client_version=connection.client_version[:most],
                tls_version=connection.tls_version,
                principal=str(connection.principal),
            )
            for connection in list(self._connections)
        )

    def opened(self, connection: AnyConnection) -> str | None:
        refusal = self._refused.get(connection)
        if refusal is not None:
            if len(self._refused) > _REFUSED_MAX:
                connection.abort()
            return refusal
        if self._is_stopping:
            return "the broker is shutting down; connect again when it is back"
        self._connections.add(connection)
        self.is_crowded = len(self._connections) > BEGINNINGS_PER_TURN
        self._opened += 1
        self._all_closed.clear()
        return None

    def closed(self, connection: AnyConnection) -> None:
        if self._refused.pop(connection, None) is None:
            self._admission.leave(connection.peer_host)
        if connection in self._connections:
            self._bytes_in += connection.bytes_in
            self._bytes_out += connection.bytes_out
        self._connections.discard(connection)
        self.is_crowded = len(self._connections) > BEGINNINGS_PER_TURN
        if not self._connections:
            self._all_closed.set()

    def close_logins(self, credential: str) -> None:
        """Close the connections whose login with ``credential`` is no longer valid."""
        for connection in [c for c in self._connections if c.credential == credential]:
            logger.info("%s: %s is closed: its credentials were changed", self.name, connection.peer)
            connection.end_login()

    async def stop(self, timeout_ms: int) -> None:
        """Stop accepting, answer what was received, then close.

        Connections that are left after ``timeout_ms`` are cut off.
        """
        if self._accept is None:
            return
        self._is_stopping = True
        self._accept.close()
        for connection in list(self._connections):
            connection.close_after_answers()
        if self._connections:
            try:
                await asyncio.wait_for(self._all_closed.wait(), timeout_ms / 1000)
            except TimeoutError:
                logger.warning("%s: %d connections did not finish in time", self.name, self.connections)
                for connection in list(self._connections):
                    connection.abort()
