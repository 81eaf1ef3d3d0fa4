"""Faults of SQLite: any statement of a connection of the broker fails with any error code."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.cluster.sqlite.file import SqliteFile

TEXTS = {
    sqlite3.SQLITE_FULL: "database or disk is full",
    sqlite3.SQLITE_IOERR: "disk I/O error",
    sqlite3.SQLITE_IOERR_WRITE: "disk I/O error",
    sqlite3.SQLITE_IOERR_FSYNC: "disk I/O error",
    sqlite3.SQLITE_CANTOPEN: "unable to open database file",
    sqlite3.SQLITE_BUSY: "database is locked",
}


@dataclass
class SqliteFaults:
    """From the ``call``-th statement on (1 is the next), ``times`` fail with ``code``; 0: none."""

    code: int = 0
    call: int = 1
    times: int = 1
    struck: list[str] = field(default_factory=list[str])

    def arm(self, code: int, *, call: int = 1, times: int = 1) -> None:
        self.code, self.call, self.times, self.struck = code, call, times, []

    def heal(self) -> None:
        self.code = 0

    def called(self, statement: str) -> None:
        if not self.code or statement.startswith("ROLLBACK"):
            return
        self.call -= 1
        if self.call <= 0 and len(self.struck) < self.times:
            self.struck.append(statement)
            error = sqlite3.OperationalError(TEXTS[self.code])
            error.sqlite_errorcode = self.code
            raise error


class _FaultyConnection:
    def __init__(self, connection: sqlite3.Connection, faults: SqliteFaults) -> None:
        self._connection = connection
        self._faults = faults

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        self._faults.called(statement)
        return self._connection.execute(statement, *arguments)

    def executemany(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        self._faults.called(statement)
        return self._connection.executemany(statement, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def install(monkeypatch: pytest.MonkeyPatch) -> SqliteFaults:
    """Let the statements of all files that are opened from now on fail as the result says."""
    faults = SqliteFaults()
    opened = SqliteFile.__init__

    def open_faulty(self: SqliteFile, *arguments: Any) -> None:
        opened(self, *arguments)
        self.connection = _FaultyConnection(self.connection, faults)  # type: ignore[assignment]  # pyright: ignore

    monkeypatch.setattr(SqliteFile, "__init__", open_faulty)
    return faults
