"""The schema of the database, from numbered SQL files (ADR-0040).

``0001_….sql`` is the first version, and so on. A file is one transaction and never changes once it is
released. A change is made in two releases: the first adds what is new, the second removes what is
old, so that brokers of two neighbouring releases can work on one database while they are replaced. Indexes of
large tables are not made here but with CREATE INDEX CONCURRENTLY, by the operator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql

_FILES = sorted((Path(__file__).parent / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
# A database may be that far ahead of a broker.
_VERSIONS_AHEAD = 1
# Migrations hold this advisory lock; any number that no other program uses.
_LOCK = 0x57E1E


class SchemaMismatch(Exception):
    """A broker cannot work with the schema of this database; the text says what to do."""


def newest_version() -> int:
    return len(_FILES)


def migrate(connection: psycopg.Connection[Any], schema: str) -> int:
    """Bring ``schema`` to the newest version, or wait until another broker has; return its version.

    Raises:
        SchemaMismatch: the database belongs to a newer release.
        psycopg.Error: the database refuses it.
    """
    with connection.transaction():
        # Waits for another broker that migrates, longer than any statement of a session may take.
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SET LOCAL lock_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version int NOT NULL)")
        row = connection.execute("SELECT version FROM schema_version").fetchone()
        version = 0 if row is None else int(row[0])
        if version > newest_version() + _VERSIONS_AHEAD:
            raise SchemaMismatch(
                f"the PostgreSQL schema {schema!r} has version {version}, and this release works with versions up to "
                f"{newest_version() + _VERSIONS_AHEAD}; upgrade the broker"
            )
        if version >= newest_version():
            return version
        for path in _FILES[version:]:
            connection.execute(cast(LiteralString, path.read_text()))
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version VALUES (%s)", (newest_version(),))
        return newest_version()
