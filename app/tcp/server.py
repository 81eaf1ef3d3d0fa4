"""Listens for a TCP door, counts its connections, and closes it gracefully."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from .connection import OrderedConnection

logger = logging.getLogger(__name__)


class TcpServer:
    """One listening door. Implements ``ConnectionRegistry``."""

    def __init__(
        self, name: str, make_connection: Callable[[TcpServer], OrderedConnection], *, connections_max: int
    ) -> None:
        self.name = name
        self._make_connection = make_connection
        self._connections_max = connections_max
        self._connections: set[OrderedConnection] = set()
        self._server: asyncio.Server | None = None
        self._all_closed = asyncio.Event()
        self._is_stopping = False

    async def start(self, listening: socket.socket) -> None:
        """Accept from now on. Takes the (bound) socket over."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: self._make_connection(self), sock=listening, backlog=1024
        )

    @property
    def connections(self) -> int:
        return len(self._connections)

    def opened(self, connection: OrderedConnection) -> str | None:
        if self._is_stopping:
            return "the broker is shutting down; connect again when it is back"
        if len(self._connections) >= self._connections_max:
            logger.warning(
                "%s: refused %s, there are %d connections", self.name, connection.peer, self.connections
            )
            return "too many connections; close one, or raise connections_max"
        self._connections.add(connection)
        self._all_closed.clear()
        return None

    def closed(self, connection: OrderedConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    async def stop(self, timeout_ms: int) -> None:
        """Stop accepting, answer what was received, close; after ``timeout_ms`` cut off what is left."""
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
