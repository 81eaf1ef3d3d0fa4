"""The embedded catalog: one SQLite file, WAL, ``synchronous=FULL`` (ADR-0008)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from ...errors import CatalogFailed, StorageFull
from ..catalog import USE_STORED_MS, Catalog, DeletedTopic, TopicRecord
from ..database import SqlTransaction, uuid_of
from .file import SqliteFailed, SqliteFile

_T = TypeVar("_T")

# One script per schema version, in order; user_version counts those that were applied.
MIGRATIONS = (
    """
    CREATE TABLE topics (
        topic_id TEXT PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        partitions INTEGER NOT NULL,
        configs TEXT NOT NULL
    );
    CREATE TABLE numbers (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    """,
    """
    CREATE TABLE named_producers (
        name TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        producer_id INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        begun_at_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE configs (
        kind TEXT NOT NULL,
        entity TEXT NOT NULL,
        configs TEXT NOT NULL,
        PRIMARY KEY (kind, entity)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE scram_credentials (
        user TEXT NOT NULL,
        mechanism TEXT NOT NULL,
        salt BLOB NOT NULL,
        stored_key BLOB NOT NULL,
        server_key BLOB NOT NULL,
        iterations INTEGER NOT NULL,
        PRIMARY KEY (user, mechanism)
    ) WITHOUT ROWID;
    CREATE TABLE api_keys (
        key_id TEXT PRIMARY KEY,
        digest BLOB NOT NULL,
        principal TEXT NOT NULL,
        description TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE acls (
        resource_type INTEGER NOT NULL,
        pattern_type INTEGER NOT NULL,
        resource_name TEXT NOT NULL,
        principal TEXT NOT NULL,
        host TEXT NOT NULL,
        operation INTEGER NOT NULL,
        permission INTEGER NOT NULL,
        PRIMARY KEY (resource_type, pattern_type, resource_name, principal, host, operation, permission)
    ) WITHOUT ROWID;
    """,
    # When those of earlier releases were used last is not known: they count as used now.
    """
    ALTER TABLE named_producers ADD COLUMN used_at_ms INTEGER NOT NULL DEFAULT 0;
    UPDATE named_producers SET used_at_ms = 1000 * CAST(strftime('%s', 'now') AS INTEGER);
    """,
    # Topics that were deleted, until their files are.
    """
    CREATE TABLE deleted_topics (
        topic_id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        partitions INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    # PostgreSQL reserves the word.
    "ALTER TABLE scram_credentials RENAME COLUMN user TO username;",
    # Epochs of a named producer that may have been given out and forgotten (``restored``); its next version skips them.
    "ALTER TABLE named_producers ADD COLUMN forgotten_epochs INTEGER NOT NULL DEFAULT 0;",
)


class CatalogDatabase:
    """Implements ``Database``: a connection to the catalog's file, with all migrations applied.

    Methods raise ``StorageFull`` and ``CatalogFailed``: nothing was changed.
    """

    def __init__(self, path: Path) -> None:
        with _translated(path):
            self._file = SqliteFile(path, MIGRATIONS)

    def run(self, what: str, work: Callable[[SqlTransaction], _T], /) -> _T:
        with _translated(self._file.path), self._file.transaction() as sql:
            return work(sql)

    def close(self) -> None:
        self._file.close()


@contextmanager
def _translated(path: Path) -> Generator[None]:
    try:
        yield
    except SqliteFailed as error:
        raise StorageFull(path, str(error)) if error.is_full else CatalogFailed(path, str(error)) from error


class SqliteCatalog(Catalog):
    def __init__(self, path: Path) -> None:
        super().__init__(CatalogDatabase(path))

    def _create_logs(self, sql: SqlTransaction, topic: TopicRecord) -> None:
        """Do nothing: logs are directories."""

    def delete_topic(self, topic_id: UUID) -> bool:
        def work(sql: SqlTransaction) -> bool:
            sql.execute(
                "INSERT INTO deleted_topics SELECT topic_id, name, partitions FROM topics WHERE topic_id = %s",
                (topic_id,),
            )
            return sql.execute("DELETE FROM topics WHERE topic_id = %s", (topic_id,)).rowcount == 1

        return self._run(work)

    def deleted_topics(self) -> list[DeletedTopic]:
        query = "SELECT topic_id, name, partitions FROM deleted_topics"
        return [
            DeletedTopic(uuid_of(topic_id), name=name, partitions=partitions)
            for topic_id, name, partitions in self._run(lambda sql: sql.execute(query).fetchall())
        ]

    def forget_deleted_topic(self, topic_id: UUID) -> None:
        self._run(lambda sql: sql.execute("DELETE FROM deleted_topics WHERE topic_id = %s", (topic_id,)))

    def _epochs_forgotten(self, sql: SqlTransaction, name: str) -> int:
        row = sql.execute("SELECT forgotten_epochs FROM named_producers WHERE name = %s", (name,)).fetchone()
        if row is None or not row[0]:
            return 0
        sql.execute("UPDATE named_producers SET forgotten_epochs = 0 WHERE name = %s", (name,))
        return row[0]

    def forget_named_producers(self, *, now_ms: int, kept_ms: int, last_uses: Mapping[int, int]) -> list[int]:
        def work(sql: SqlTransaction) -> list[int]:
            used: list[tuple[int, str]] = []
            forgotten: dict[str, int] = {}
            # The beginning of a version is a use, too.
            for name, producer_id, stored_ms in sql.execute(
                "SELECT name, producer_id, max(used_at_ms, begun_at_ms) FROM named_producers"
            ).fetchall():
                used_ms = max(stored_ms, last_uses.get(producer_id, stored_ms))
                if used_ms < now_ms - kept_ms:
                    forgotten[name] = producer_id
                elif used_ms - stored_ms >= USE_STORED_MS:
                    used.append((used_ms, name))
            sql.executemany("UPDATE named_producers SET used_at_ms = %s WHERE name = %s", used)
            sql.executemany("DELETE FROM named_producers WHERE name = %s", [(name,) for name in forgotten])
            return list(forgotten.values())

        return self._run(work)
