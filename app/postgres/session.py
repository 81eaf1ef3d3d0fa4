"""One connection to PostgreSQL for callers that block in threads of their own.

A call that fails because the connection broke, a lock was not free, or the transaction was idle for too long, is
repeated for a while: a database that restarts is back within seconds. So a call must be one transaction that may be
repeated after it had effect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from .connector import Connection, Connector, PostgresUnavailable
from .history import History
from .traffic import PostgresTraffic

_T = TypeVar("_T")

_RETRY_S = 10.0
_PAUSE_S = 0.1
# The database is away, a lock is not free, or this process had no CPU for the time that a transaction may be idle.
_PASSING = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)


class PostgresSession:
    """Connects with the first call; calls from several threads wait for each other."""

    def __init__(
        self,
        connector: Connector,
        *,
        retry_s: float = _RETRY_S,
        traffic: PostgresTraffic | None = None,
    ) -> None:
        self.traffic = traffic or PostgresTraffic()
        self.connector = connector
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._history: History | None = None
        self._is_closed = False

    def migrate(self) -> int:
        """Bring the schema to the newest version and return that.

        Raises:
            SchemaMismatch: the database belongs to a newer release.
            PostgresUnavailable: it cannot be reached, or refuses the migration.
        """
        return self.run(self.connector.migrate)

    def run(self, work: Callable[[Connection], _T], *, retry_s: float | None = None) -> _T:
        """Return what ``work`` returns, in a transaction that may be tried several times.

        Raises:
            PostgresUnavailable: no attempt succeeded. One of them may have had effect.
        """
        until_s = time.monotonic() + (self._retry_s if retry_s is None else retry_s)
        with self._lock:
            while True:
                try:
                    return self._run(work)
                except _PASSING as error:
                    self.traffic.failed()
                    if self._is_closed or time.monotonic() + _PAUSE_S > until_s:
                        raise PostgresUnavailable(_text(error)) from error
                    time.sleep(_PAUSE_S)
                except psycopg.Error as error:
                    self.traffic.failed()
                    raise PostgresUnavailable(_text(error)) from error

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        if self._connection is not None and self._history != self.connector.history.known:
            # It is perhaps one to a primary that was replaced.
            self._connection.close()
        if self._connection is None or self._connection.closed:
            self._connection = self.connector.connect()
            self._history = self.connector.history.known
        connection = self._connection
        try:
            with connection.transaction():
                return work(connection)
        except psycopg.OperationalError:
            # The session may be half dead, and a new one costs little.
            connection.close()
            raise

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _text(error: psycopg.Error) -> str:
    return f"PostgreSQL: {str(error).strip() or type(error).__name__}"
