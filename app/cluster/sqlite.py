"""The embedded catalog: one SQLite file, WAL, ``synchronous=FULL`` (ADR-0008)."""

from __future__ import annotations

import base64
import json
import sqlite3
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from .catalog import TopicRecord

# One step for each change of the schema, in order; user_version counts those done.
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
)


class SqliteCatalog:
    """Implements ``Catalog``; calls come one at a time, from whichever thread."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > len(_MIGRATIONS):
            raise sqlite3.DatabaseError(f"{path} was written by a newer release (schema {version})")
        for number, script in enumerate(_MIGRATIONS[version:], version + 1):
            self._database.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

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
        rows = self._database.execute("SELECT name, topic_id, partitions, configs FROM topics ORDER BY name")
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

    def update_topic(self, topic: TopicRecord) -> bool:
        with self._transaction() as database:
            changed = database.execute(
                "UPDATE topics SET partitions = ?, configs = ? WHERE topic_id = ?",
                (topic.partitions, json.dumps(dict(topic.configs)), str(topic.topic_id)),
            )
            return changed.rowcount == 1

    def delete_topic(self, topic_id: uuid.UUID) -> bool:
        with self._transaction() as database:
            return database.execute("DELETE FROM topics WHERE topic_id = ?", (str(topic_id),)).rowcount == 1

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

    def close(self) -> None:
        self._database.close()
