"""The dialect of the stores: one set of statements for SQLite and PostgreSQL.

Statements are those of PostgreSQL, as far as SQLite understands them; ``app.cluster.sqlite.file`` translates the rest:

==================  =================================  ==================================================
                    PostgreSQL                         SQLite
==================  =================================  ==================================================
placeholder         ``%s``                             ``?``
row lock            ``FOR UPDATE``                     none: a transaction locks the whole file
comparison          ``IS DISTINCT FROM``               ``IS NOT``
name                bytea, because it may have NUL     TEXT: ``SqlTransaction.name`` and ``text_of``
UUID                uuid                               TEXT: any parameter may be a UUID; ``uuid_of``
change of a kind    a version that other brokers see   nothing: ``SqlTransaction.changed``
shard of a group    computed by the database           always 0
==================  =================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, LiteralString, Protocol, TypeVar
from uuid import UUID

_T = TypeVar("_T")


class ChangeKind(StrEnum):
    """Kinds of changes that other brokers notice; the table ``changes`` of PostgreSQL has a row for each."""

    TOPICS = "topics"
    CONFIGS = "configs"
    CREDENTIALS = "credentials"
    ACLS = "acls"


class Rows(Protocol):
    """The result of a statement; ``rowcount`` is the number of rows it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> tuple[Any, ...] | None: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class SqlTransaction(Protocol):
    """Executes the statements of one transaction."""

    def execute(self, statement: LiteralString, values: Sequence[Any] = (), /) -> Rows: ...
    def executemany(self, statement: LiteralString, rows: Sequence[Sequence[Any]], /) -> None: ...
    def name(self, text: str, /) -> str | bytes:
        """Return the parameter for a name that clients choose freely."""
        ...

    def now_ms(self, own_ms: int, /) -> int:
        """Return the time of the database's clock; ``own_ms`` if it has none."""
        ...

    def changed(self, kind: ChangeKind, /) -> None:
        """Raise the version of ``kind``; until the transaction ends, other changes of it wait."""
        ...


class Database(Protocol):
    def run(self, what: str, work: Callable[[SqlTransaction], _T], /) -> _T:
        """Return what ``work`` returns, in a transaction; ``what`` it does is for errors.

        ``work`` may be repeated, also after it had effect.
        """
        ...

    def close(self) -> None: ...


def insert(table: LiteralString, columns: LiteralString) -> LiteralString:
    """Return the statement that stores a row of ``columns``."""
    values = ", ".join("%s" for _ in columns.split(", "))
    return f"INSERT INTO {table} ({columns}) VALUES ({values})"


def upsert(table: LiteralString, key: LiteralString, columns: LiteralString) -> LiteralString:
    """Return the statement that stores a row of ``key`` and ``columns``, in place of one with the same key."""
    return f"{insert(table, f'{key}, {columns}')} {replacing(key, columns)}"


def replacing(key: LiteralString, columns: LiteralString) -> LiteralString:
    """Return the end of an INSERT that takes the place of a row with the same key."""
    updates = ", ".join(f"{column} = EXCLUDED.{column}" for column in columns.split(", "))
    return f"ON CONFLICT ({key}) DO UPDATE SET {updates}"


def stored_once(sql: SqlTransaction, name: str, make: Callable[[], str]) -> str:
    """Return a value of the table ``numbers``; store ``make()`` if there is none."""
    query = "SELECT value FROM numbers WHERE name = %s"
    row = sql.execute(query, (name,)).fetchone()
    if row is None:
        sql.execute("INSERT INTO numbers VALUES (%s, %s) ON CONFLICT (name) DO NOTHING", (name, make()))
        row = sql.execute(query, (name,)).fetchone()
    assert row is not None
    return str(row[0])


def text_of(name: str | bytes) -> str:
    """Return a name that was read."""
    return name if isinstance(name, str) else name.decode()


def uuid_of(value: str | UUID) -> UUID:
    """Return a UUID that was read."""
    return value if isinstance(value, UUID) else UUID(value)
