"""Connections to PostgreSQL, used by threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus

from .connection_counts import RECORDS
from .connector import Connection, Connector, PostgresUnavailable
from .history import History
from .traffic import PostgresTraffic

_T = TypeVar("_T")

# How often the other servers of the connection string are checked for a promotion.
_LOOK_S = 5


class PostgresPool:
    """Up to ``connections_max`` threads with a connection each, opened on demand.

    ``schema`` is where the tables are. Use it between ``open`` and ``close``.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "stele",
        connections_max: int = RECORDS,
        incarnation: UUID | None = None,
    ) -> None:
        self.traffic = PostgresTraffic()
        # Other connections of the broker are made by it, too: it knows the history of the database.
        self.connector = Connector(dsn, schema=schema, incarnation=incarnation)
        self._threads = ThreadPoolExecutor(connections_max, thread_name_prefix="postgres")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        # A server that ends one session has probably ended all: connections of older generations are not used.
        self._generation = 0
        self._look: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Migrate the schema.

        Raises:
            SchemaMismatch: the database belongs to a newer release.
            PostgresUnavailable: it cannot be reached, or refuses the migration.
        """
        await self.run(self.connector.migrate)
        if self.connector.has_several_hosts:
            self._look = asyncio.create_task(self._look_for_promotions())

    async def _look_for_promotions(self) -> None:
        """Notice that a standby was promoted while its primary goes on.

        Connections to that one do not break.
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            await asyncio.to_thread(self.connector.find_promoted)

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """Call ``work`` in a thread with a connection in autocommit mode.

        A caller that is cancelled does not interrupt it. ``work`` leaves no transaction open.

        Raises:
            PostgresUnavailable: the database cannot be reached, or ended the work with an error.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        try:
            connection = self._connection()
            try:
                return work(connection)
            finally:
                self._clean(connection)
        except psycopg.Error as error:
            self.traffic.failed()
            raise PostgresUnavailable(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error

    def _connection(self) -> Connection:
        """Return the connection of this thread."""
        held: tuple[int, History | None, Connection] | None = getattr(self._own, "held", None)
        if held is not None:
            generation, history, connection = held
            # A connection of another history is perhaps one to a primary that was replaced.
            is_current = generation == self._generation and history == self.connector.history.known
            if is_current and not connection.closed:
                return connection
            connection.close()
            del self._own.held
            with self._lock:
                self._connections.discard(connection)
        generation = self._generation
        connection = self.connector.connect()
        self._own.held = (generation, self.connector.history.known, connection)
        with self._lock:
            self._connections.add(connection)
        return connection

    def _clean(self, connection: Connection) -> None:
        """End the transaction that an error left open; raise nothing, or the error of the work would be lost."""
        if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
            try:
                connection.rollback()
            except psycopg.Error:
                connection.close()
        if connection.closed:
            with self._lock:
                self._generation += 1

    async def close(self) -> None:
        """Wait for the calls under way and close the connections."""
        if self._look is not None:
            self._look.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()
