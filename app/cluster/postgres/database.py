"""PostgreSQL as the database of the stores that brokers share; see ``app.cluster.database``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, LiteralString, TypeVar

from ...errors import StorageUnavailable
from ...postgres.connector import Connection, PostgresUnavailable
from ...postgres.session import PostgresSession
from ..database import ChangeKind, Rows

_T = TypeVar("_T")

NOW_MS = "(extract(epoch FROM now()) * 1000)::bigint"


class PostgresTransaction:
    """Implements ``SqlTransaction``."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def execute(self, statement: LiteralString, values: Sequence[Any] = (), /) -> Rows:
        return self.connection.execute(statement, values)

    def executemany(self, statement: LiteralString, rows: Sequence[Sequence[Any]], /) -> None:
        # No rows would be a round trip, too.
        if rows:
            with self.connection.cursor() as cursor:
                cursor.executemany(statement, rows)

    def name(self, text: str, /) -> bytes:
        return text.encode()

    def now_ms(self, own_ms: int, /) -> int:
        ((now_ms,),) = self.execute(f"SELECT {NOW_MS}")
        return now_ms

    def changed(self, kind: ChangeKind, /) -> None:
        self.execute("UPDATE changes SET version = version + 1 WHERE kind = %s", (kind.value,))


class PostgresDatabase:
    """Implements ``Database``. The session is the caller's, who closes it."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def run(self, what: str, work: Callable[[PostgresTransaction], _T], /) -> _T:
        """Raises ``StorageUnavailable``."""
        try:
            return self._session.run(lambda connection: work(PostgresTransaction(connection)))
        except PostgresUnavailable as error:
            raise StorageUnavailable(what, str(error)) from error

    def close(self) -> None:
        """Leave the session open: several stores share it."""


def read_versions(connection: Connection) -> dict[ChangeKind, int]:
    """Return the version of each kind of changes."""
    rows = connection.execute("SELECT kind, version FROM changes").fetchall()
    known = {kind.value for kind in ChangeKind}
    return {ChangeKind(kind): version for kind, version in rows if kind in known}
