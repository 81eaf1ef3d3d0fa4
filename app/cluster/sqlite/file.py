"""A SQLite file of the data directory, in WAL mode, and its errors told apart.

======================================  =======================================================
error                                   meaning
======================================  =======================================================
SQLITE_FULL, and failed writes while    the disk is full: nothing was changed, and there may be
a write beside the file fails so, too   space later
a failed sync, any other failed write   what is on the disk is not known: only a restart finds
                                        out, so nothing more is stored (ADR-0003)
all others                              nothing was changed; the next call may succeed
======================================  =======================================================
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, LiteralString, TypeAlias
from uuid import UUID

from ..database import ChangeKind, Rows

# What is stored is for the broker alone. SQLite gives its other files the permissions of this one.
_MODE = 0o600
# Another process may read or copy the file and hold its lock meanwhile, at most for so long.
_BUSY_TIMEOUT_S = 10.0
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PROBE_BYTES = 4096
# SQLite reports only ENOSPC as SQLITE_FULL.
_MAYBE_FULL = frozenset(
    {
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMMAP,
        sqlite3.SQLITE_CANTOPEN,
    }
)
_UNKNOWN_STATE = frozenset(
    {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC, sqlite3.SQLITE_IOERR_WRITE}
)

# What SQLite spells otherwise than PostgreSQL, or leaves out (``app.cluster.database``).
_SPELLINGS = (("%s", "?"), (" FOR UPDATE", ""), ("IS DISTINCT FROM", "IS NOT"))
sqlite3.register_adapter(UUID, str)


@cache
def _translated(statement: str) -> str:
    for theirs, ours in _SPELLINGS:
        statement = statement.replace(theirs, ours)
    return statement


class SqliteTransaction:
    """Implements ``SqlTransaction``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def execute(self, statement: LiteralString, values: Sequence[Any] = (), /) -> Rows:
        return self.connection.execute(_translated(statement), values)

    def executemany(self, statement: LiteralString, rows: Sequence[Sequence[Any]], /) -> None:
        self.connection.executemany(_translated(statement), rows)

    def name(self, text: str, /) -> str:
        return text

    def now_ms(self, own_ms: int, /) -> int:
        return own_ms

    def changed(self, kind: ChangeKind, /) -> None:
        """Do nothing: no other broker uses the file."""


# A script, or what no script can do.
Migration: TypeAlias = str | Callable[[sqlite3.Connection], None]


def run_script(connection: sqlite3.Connection, script: str) -> None:
    """Execute statements within the transaction of the connection, which ``executescript`` would end."""
    for statement in script.split(";"):
        connection.execute(statement)


class SqliteFailed(Exception):
    """A call of SQLite failed; nothing was changed, unless ``is_final``."""

    def __init__(self, reason: str, *, is_full: bool = False, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_full = is_full
        self.is_final = is_final


class SqliteFile:
    """One connection to a file.

    Methods raise ``SqliteFailed``, and ``sqlite3.IntegrityError`` of ``transaction``.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration]) -> None:
        """Open the file and apply the migrations that are missing.

        ``user_version`` counts them.
        """
        self.path = path
        self._failure: str | None = None
        with self._told_apart():
            path.touch(mode=_MODE)
            path.chmod(_MODE)
            self.connection = sqlite3.connect(
                path, check_same_thread=False, isolation_level=None, timeout=_BUSY_TIMEOUT_S
            )
        try:
            with self._told_apart():
                self._prepare(migrations)
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, migrations: Sequence[Migration]) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        # A file elsewhere would need a descriptor, and space on another disk.
        self.connection.execute("PRAGMA temp_store = MEMORY")
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if version > len(migrations):
            raise SqliteFailed(f"a newer release wrote it, schema {version}")
        if version == len(migrations):
            return
        self.connection.execute("BEGIN IMMEDIATE")
        for migration in migrations[version:]:
            if isinstance(migration, str):
                run_script(self.connection, migration)
            else:
                migration(self.connection)
        self.connection.execute(f"PRAGMA user_version = {len(migrations)}")
        self.connection.execute("COMMIT")

    @contextmanager
    def transaction(self) -> Generator[SqliteTransaction]:
        """Begin a transaction, and commit it at the end.

        An exception rolls it back.
        """
        if self._failure is not None:
            raise SqliteFailed(self._failure, is_final=True)
        with self._told_apart():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteTransaction(self.connection)
                self.connection.execute("COMMIT")
            except BaseException:
                # Some errors, a full disk among them, have rolled back already.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _told_apart(self) -> Generator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except MemoryError as error:
            raise SqliteFailed("out of memory") from error
        except OSError as error:
            raise SqliteFailed(error.strerror or str(error), is_full=error.errno in _DISK_FULL) from error
        except sqlite3.Error as error:
            code: int = getattr(error, "sqlite_errorcode", 0)
            is_full = code & 0xFF == sqlite3.SQLITE_FULL or (code in _MAYBE_FULL and self._is_disk_full())
            is_final = code in _UNKNOWN_STATE and not is_full
            if is_final:
                self._failure = f"{error} before"
            raise SqliteFailed(str(error), is_full=is_full, is_final=is_final) from error

    def _is_disk_full(self) -> bool:
        """Return whether a write where the log of this file ends is refused, too."""
        probe = self.path.with_name(self.path.name + ".probe")
        sizes = [self.path.stat().st_size]
        with suppress(FileNotFoundError):
            sizes.append(self.path.with_name(self.path.name + "-wal").stat().st_size)
        try:
            fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _MODE)
            try:
                os.pwrite(fd, os.urandom(_PROBE_BYTES), max(sizes))
            finally:
                os.close(fd)
                probe.unlink()
        except OSError as error:
            return error.errno in _DISK_FULL
        return False

    def close(self) -> None:
        self.connection.close()
