"""The embedded catalog: one SQLite file, WAL, ``synchronous=FULL`` (ADR-0008)."""

from __future__ import annotations

import base64
import json
import sqlite3
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...errors import CatalogFailed, StorageFull
from ..catalog import USE_STORED_MS, ConfigRecord, DeletedTopic, NamedProducer, TopicRecord
from .file import SqliteFailed, SqliteFile

# One script per schema version, in order; user_version counts those that were applied.
_MIGRATIONS = (
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
)

# A batch stores the epoch as a signed 16-bit number.
_EPOCH_MAX = 2**15 - 1


class CatalogDatabase:
    """A connection to the catalog's file, with all migrations applied.

    Methods raise ``StorageFull`` and ``CatalogFailed``: nothing was changed.
    """

    def __init__(self, path: Path) -> None:
        with _translated(path):
            self._file = SqliteFile(path, _MIGRATIONS)

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        with _translated(self._file.path), self._file.transaction() as connection:
            yield connection

    def close(self) -> None:
        self._file.close()


@contextmanager
def _translated(path: Path) -> Generator[None]:
    try:
        yield
    except SqliteFailed as error:
        raise StorageFull(path, str(error)) if error.is_full else CatalogFailed(path, str(error)) from error


class SqliteCatalog:
    """Implements ``Catalog``; calls must come one at a time, from any thread."""

    def __init__(self, path: Path) -> None:
        self._database = CatalogDatabase(path)
        self._transaction = self._database.transaction

    def cluster_id(self) -> str:
        with self._transaction() as database:
            row = database.execute("SELECT value FROM numbers WHERE name = 'cluster_id'").fetchone()
            if row:
                return str(row[0])
            # Kafka's form: 16 random bytes in 22 URL-safe characters.
            made = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            database.execute("INSERT INTO numbers VALUES ('cluster_id', ?)", (made,))
            return made

    def topics(self) -> list[TopicRecord]:
        with self._transaction() as database:
            rows = database.execute(
                "SELECT name, topic_id, partitions, configs FROM topics ORDER BY name"
            ).fetchall()
        return [
            TopicRecord(
                name=name, topic_id=uuid.UUID(topic_id), partitions=partitions, configs=json.loads(configs)
            )
            for name, topic_id, partitions, configs in rows
        ]

    def create_topic(self, topic: TopicRecord) -> bool:
        try:
            with self._transaction() as database:
                database.execute(
                    "INSERT INTO topics (topic_id, name, partitions, configs) VALUES (?, ?, ?, ?)",
                    (str(topic.topic_id), topic.name, topic.partitions, json.dumps(dict(topic.configs))),
                )
        except sqlite3.IntegrityError:
            return False
        return True

    def update_topic(self, topic: TopicRecord, *, previous: TopicRecord | None = None) -> bool:
        with self._transaction() as database:
            changed = database.execute(
                "UPDATE topics SET partitions = ?, configs = ? WHERE topic_id = ?",
                (topic.partitions, json.dumps(dict(topic.configs)), str(topic.topic_id)),
            )
            return changed.rowcount == 1

    def delete_topic(self, topic_id: uuid.UUID) -> bool:
        with self._transaction() as database:
            database.execute(
                "INSERT INTO deleted_topics SELECT topic_id, name, partitions FROM topics WHERE topic_id = ?",
                (str(topic_id),),
            )
            return database.execute("DELETE FROM topics WHERE topic_id = ?", (str(topic_id),)).rowcount == 1

    def deleted_topics(self) -> list[DeletedTopic]:
        with self._transaction() as database:
            rows = database.execute("SELECT topic_id, name, partitions FROM deleted_topics").fetchall()
        return [
            DeletedTopic(uuid.UUID(topic_id), name=name, partitions=partitions)
            for topic_id, name, partitions in rows
        ]

    def forget_deleted_topic(self, topic_id: uuid.UUID) -> None:
        with self._transaction() as database:
            database.execute("DELETE FROM deleted_topics WHERE topic_id = ?", (str(topic_id),))

    def configs(self) -> list[ConfigRecord]:
        with self._transaction() as database:
            rows = database.execute(
                "SELECT kind, entity, configs FROM configs ORDER BY kind, entity"
            ).fetchall()
        return [
            ConfigRecord(kind=kind, entity=entity, configs=json.loads(configs))
            for kind, entity, configs in rows
        ]

    def set_configs(self, record: ConfigRecord) -> None:
        key = (record.kind, record.entity)
        with self._transaction() as database:
            if record.configs:
                database.execute(
                    "INSERT OR REPLACE INTO configs (kind, entity, configs) VALUES (?, ?, ?)",
                    (*key, json.dumps(dict(record.configs))),
                )
            else:
                database.execute("DELETE FROM configs WHERE kind = ? AND entity = ?", key)

    def next_producer_id_block(self, size: int) -> int:
        with self._transaction() as database:
            row = database.execute("SELECT value FROM numbers WHERE name = 'next_producer_id'").fetchone()
            first = int(row[0]) if row else 1
            database.execute(
                "INSERT INTO numbers VALUES ('next_producer_id', ?)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (str(first + size),),
            )
            return first

    def begin_producer_version(self, name: str, version: int, *, fresh_id: int, now_ms: int) -> NamedProducer:
        with self._transaction() as database:
            row = database.execute(
                "SELECT version, producer_id, epoch, begun_at_ms FROM named_producers WHERE name = ?", (name,)
            ).fetchone()
            producer_id, epoch = fresh_id, 0
            if row is not None:
                begun, last_id, last_epoch, begun_at_ms = (int(number) for number in row)
                if version <= begun:
                    return NamedProducer(
                        name=name,
                        version=begun,
                        producer_id=last_id,
                        epoch=last_epoch,
                        begun_at_ms=begun_at_ms,
                        is_resumed=True,
                    )
                if last_epoch < _EPOCH_MAX:
                    producer_id, epoch = last_id, last_epoch + 1
            database.execute(
                "INSERT OR REPLACE INTO named_producers VALUES (?, ?, ?, ?, ?, ?)",
                (name, version, producer_id, epoch, now_ms, now_ms),
            )
        return NamedProducer(
            name=name,
            version=version,
            producer_id=producer_id,
            epoch=epoch,
            begun_at_ms=now_ms,
            is_resumed=False,
        )

    def named_producers(self) -> list[NamedProducer]:
        """Return all named producers as they stand."""
        with self._transaction() as database:
            rows = database.execute(
                "SELECT name, version, producer_id, epoch, begun_at_ms FROM named_producers ORDER BY name"
            ).fetchall()
        return [
            NamedProducer(
                name=name,
                version=version,
                producer_id=producer_id,
                epoch=epoch,
                begun_at_ms=begun_at_ms,
                is_resumed=True,
            )
            for name, version, producer_id, epoch, begun_at_ms in rows
        ]

    def named_epochs(self) -> dict[int, int]:
        with self._transaction() as database:
            return dict(database.execute("SELECT producer_id, epoch FROM named_producers").fetchall())

    def forget_named_producers(self, *, now_ms: int, kept_ms: int, last_uses: Mapping[int, int]) -> list[int]:
        used: list[tuple[int, str]] = []
        forgotten: dict[str, int] = {}
        with self._transaction() as database:
            rows = database.execute("SELECT name, producer_id, used_at_ms FROM named_producers").fetchall()
            for name, producer_id, stored_ms in rows:
                used_ms = max(stored_ms, last_uses.get(producer_id, stored_ms))
                if used_ms < now_ms - kept_ms:
                    forgotten[name] = producer_id
                elif used_ms - stored_ms >= USE_STORED_MS:
                    used.append((used_ms, name))
            database.executemany("UPDATE named_producers SET used_at_ms = ? WHERE name = ?", used)
            database.executemany(
                "DELETE FROM named_producers WHERE name = ?", [(name,) for name in forgotten]
            )
        return list(forgotten.values())

    def close(self) -> None:
        self._database.close()
