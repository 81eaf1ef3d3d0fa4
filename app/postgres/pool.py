"""Connections to PostgreSQL, used by threads.

A session has settings that bound how long it can hold locks: a broker that is paused inside a transaction
keeps its row locks for ``idle_in_transaction_session_timeout``, then the server ends the session.
That time does not begin in the middle of a pipeline. The name of a session therefore says which broker it
belongs to, and other brokers end the sessions of a dead one (``app.cluster.postgres_membership``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from .connection_counts import RECORDS
from .migrations import migrate
from .traffic import PostgresTraffic

_T = TypeVar("_T")

Connection = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT_S = 5

_SESSION = {
    "synchronous_commit": "on",
    "idle_in_transaction_session_timeout": "2s",
    "lock_timeout": "2s",
    "statement_timeout": "5s",
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
}
# ``application_name`` of the sessions of a broker, before its incarnation.
BROKER_SESSION = "stele "
_CONNECTION = {
    "application_name": "stele",
    "connect_timeout": _CONNECT_TIMEOUT_S,
    # With several hosts: the one that takes writes.
    "target_session_attrs": "read-write",
    # A peer that is gone is noticed within about ten seconds.
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class PostgresUnavailable(Exception):
    """The database cannot be reached, or ended a call with an error.

    The call may have had effect.
    """


def connection_string(dsn: str, schema: str, incarnation: UUID | None = None) -> str:
    """Return ``dsn`` with the settings of a session; those that it sets itself stay.

    ``incarnation`` is that of the broker that the session belongs to.

    Raises:
        ValueError: it is not a connection string.
    """
    unreadable = ValueError(
        "not a PostgreSQL connection string; write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with / @ : and "
        "% in the password as %2F %40 %3A and %25"
    )
    try:
        given = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # Its message may contain the password.
        raise unreadable from None
    ports = str(given.get("port") or "").split(",")
    if (
        not all(port.isdigit() or not port for port in ports)
        or "@" in f"{given.get('host')}{given.get('dbname')}"
    ):
        # A part of a password that was not escaped.
        raise unreadable
    settings = {**_SESSION, "search_path": f'"{schema}"'}
    options = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items())
    # The last one counts, so an operator's own options come last.
    name = {} if incarnation is None else {"application_name": f"{BROKER_SESSION}{incarnation}"}
    merged = {**_CONNECTION, **name, **given, "options": f"{options} {given.get('options') or ''}".strip()}
    return conninfo.make_conninfo("", **merged)


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
        self._schema = schema
        self._conninfo = connection_string(dsn, schema, incarnation)
        self._threads = ThreadPoolExecutor(connections_max, thread_name_prefix="postgres")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        # A server that ends one session has probably ended all: connections of older generations are not used.
        self._generation = 0

    async def open(self) -> None:
        """Migrate the schema.

        Raises:
            SchemaMismatch: the database belongs to a newer release.
            PostgresUnavailable: it cannot be reached, or refuses the migration.
        """
        await self.run(lambda connection: migrate(connection, self._schema))

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
        held: tuple[int, Connection] | None = getattr(self._own, "held", None)
        if held is not None:
            generation, connection = held
            if generation == self._generation and not connection.closed:
                return connection
            connection.close()
            del self._own.held
            with self._lock:
                self._connections.discard(connection)
        generation = self._generation
        connection = psycopg.connect(self._conninfo, autocommit=True)
        self._own.held = (generation, connection)
        with self._lock:
            self._connections.add(connection)
        return connection

    def _clean(self, connection: Connection) -> None:
        """End the transaction that an error left open.

        Raise nothing, or the error of the work would be lost.
        """
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
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()
