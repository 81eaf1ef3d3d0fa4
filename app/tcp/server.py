"""Accepts the connections of one TCP listener, counts them, and closes them gracefully."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from ..broker.admission import Admission
from ..broker.listeners import CLIENT_TEXT_CHARACTERS_MAX, ConnectionView, Traffic
from .connection import Connection
from .deadlines import Deadlines

AnyConnection = Connection[Any]

logger = logging.getLogger(__name__)

# Refused connections that get time to read the reason; further ones are closed at once.
_REFUSED_MAX = 100


class TcpServer:
    """One TCP listener. Implements ``ConnectionRegistry``."""

    def __init__(
        self, name: str, make_connection: Callable[[TcpServer], AnyConnection], *, admission: Admission
    ) -> None:
        self.name = name
        self._make_connection = make_connection
        self._admission = admission
        # Refused and not closed yet: they may still read the reason.
        self._refused: set[AnyConnection] = set()
        self._connections: set[AnyConnection] = set()
        self._server: asyncio.Server | None = None
        self._deadlines: Deadlines | None = None
        self._all_closed = asyncio.Event()
        self._is_stopping = False
        # Totals over connections that were opened, and bytes of those that are closed.
        self._opened = 0
        self._bytes_in = 0
        self._bytes_out = 0

    async def start(self, listening: socket.socket) -> None:
        """Accept connections from now on. Takes over ``listening``, which is bound."""
        loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        self._server = await loop.create_server(
            lambda: self._make_connection(self), sock=listening, backlog=1024
        )

    @property
    def deadlines(self) -> Deadlines:
        assert self._deadlines is not None, "start() comes first"
        return self._deadlines

    @property
    def connections(self) -> int:
        return len(self._connections)

    def traffic(self) -> Traffic:
        return Traffic(
            connections=len(self._connections),
            connections_opened=self._opened,
            connections_refused=self._admission.refused,
            bytes_in=self._bytes_in + sum(connection.bytes_in for connection in self._connections),
            bytes_out=self._bytes_out + sum(connection.bytes_out for connection in self._connections),
        )

    def connection_views(self) -> list[ConnectionView]:
        if self._server is None:
            return []
        now_s = self._server.get_loop().time()
        most = CLIENT_TEXT_CHARACTERS_MAX
        return [
            ConnectionView(
                protocol=self.name,
                peer=connection.peer_address,
                age_ms=round((now_s - connection.opened_s) * 1000),
                bytes_in=connection.bytes_in,
                bytes_out=connection.bytes_out,
                client_id=connection.client_id[:most],
                client_name=connection.client_name[:most],
                client_version=connection.client_version[:most],
            )
            for connection in self._connections
        ]

    def opened(self, connection: AnyConnection) -> str | None:
        if self._is_stopping:
            return "the broker is shutting down; connect again when it is back"
        refused = self._admission.refusal(len(self._connections), connection.peer, connection.file_number)
        if refused is not None:
            self._refused.add(connection)
            if len(self._refused) > _REFUSED_MAX:
                connection.abort()
            return refused
        self._connections.add(connection)
        self._opened += 1
        self._all_closed.clear()
        return None

    def closed(self, connection: AnyConnection) -> None:
        self._refused.discard(connection)
        if connection in self._connections:
            self._bytes_in += connection.bytes_in
            self._bytes_out += connection.bytes_out
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    async def stop(self, timeout_ms: int) -> None:
        """Stop accepting, answer what was received, then close.

        Connections that are left after ``timeout_ms`` are cut off.
        """
        if self._server is None:
            return
        self._is_stopping = True
        self._server.close()
        for connection in list(self._connections):
            connection.close_after_answers()
        if self._connections:
            try:
                await asyncio.wait_for(self._all_closed.wait(), timeout_ms / 1000)
            except TimeoutError:
                logger.warning("%s: %d connections did not finish in time", self.name, self.connections)
                for connection in list(self._connections):
                    connection.abort()
