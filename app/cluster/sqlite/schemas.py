"""The tables of the two files of the data directory (ADR-0008, ADR-0012, ADR-0029).

Those of groups are in ``app.cluster.group_tables``, those of transactions in ``.transactions``; ``coordinator`` has one
row, the epoch of the coordinator that opened the file last. Names and columns are those of PostgreSQL.
"""

from __future__ import annotations

from typing import NamedTuple


class Schema(NamedTuple):
    """How a file gets its tables.

    The first of ``scripts`` makes those of version ``oldest``, and each of the others brings the file from one version
    to the next. Versions before ``oldest`` are those of pre-releases.
    """

    oldest: int
    scripts: tuple[str, ...]

    @property
    def newest(self) -> int:
        return self.oldest + len(self.scripts) - 1


CATALOG = Schema(
    8,
    (
        """
        CREATE TABLE topics (
            topic_id TEXT PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            partitions INTEGER NOT NULL,
            configs TEXT NOT NULL
        );
        CREATE TABLE numbers (name TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE named_producers (
            name TEXT PRIMARY KEY,
            version INTEGER NOT NULL,
            producer_id INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            begun_at_ms INTEGER NOT NULL,
            used_at_ms INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID;
        CREATE TABLE configs (
            kind TEXT NOT NULL,
            entity TEXT NOT NULL,
            configs TEXT NOT NULL,
            PRIMARY KEY (kind, entity)
        ) WITHOUT ROWID;
        CREATE TABLE scram_credentials (
            username TEXT NOT NULL,
            mechanism TEXT NOT NULL,
            salt BLOB NOT NULL,
            stored_key BLOB NOT NULL,
            server_key BLOB NOT NULL,
            iterations INTEGER NOT NULL,
            PRIMARY KEY (username, mechanism)
        ) WITHOUT ROWID;
        CREATE TABLE api_keys (
            key_id TEXT PRIMARY KEY,
            digest BLOB NOT NULL,
            principal TEXT NOT NULL,
            description TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            expires_at_ms INTEGER
        ) WITHOUT ROWID;
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
        CREATE TABLE deleted_topics (
            topic_id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            partitions INTEGER NOT NULL
        ) WITHOUT ROWID;
        """,
    ),
)

GROUPS = Schema(
    9,
    (
        """
        CREATE TABLE coordinator (number INTEGER PRIMARY KEY CHECK (number = 1), epoch INTEGER NOT NULL);
        INSERT INTO coordinator VALUES (1, 0);
        CREATE TABLE groups (
            group_id TEXT PRIMARY KEY,
            record TEXT NOT NULL,
            shard INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID;
        CREATE TABLE consumer_groups (
            group_id TEXT PRIMARY KEY,
            record TEXT NOT NULL,
            shard INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID;
        CREATE TABLE consumer_members (
            group_id TEXT NOT NULL,
            member_id TEXT NOT NULL,
            record TEXT NOT NULL,
            shard INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (group_id, member_id)
        ) WITHOUT ROWID;
        CREATE TABLE group_owners (
            group_id TEXT NOT NULL,
            topic TEXT NOT NULL,
            part INTEGER NOT NULL,
            member_id TEXT NOT NULL,
            shard INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (group_id, topic, part)
        ) WITHOUT ROWID;
        CREATE TABLE group_offsets (
            group_id TEXT NOT NULL,
            topic TEXT NOT NULL,
            part INTEGER NOT NULL,
            topic_id TEXT NOT NULL,
            committed_offset INTEGER NOT NULL,
            leader_epoch INTEGER NOT NULL,
            metadata TEXT NOT NULL,
            committed_at_ms INTEGER NOT NULL,
            expires_at_ms INTEGER,
            shard INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (group_id, topic, part)
        ) WITHOUT ROWID;
        CREATE TABLE group_pending_offsets (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            producer_id INTEGER NOT NULL,
            producer_epoch INTEGER NOT NULL,
            group_id TEXT NOT NULL,
            topic TEXT NOT NULL,
            part INTEGER NOT NULL,
            topic_id TEXT NOT NULL,
            committed_offset INTEGER NOT NULL,
            leader_epoch INTEGER NOT NULL,
            metadata TEXT NOT NULL,
            committed_at_ms INTEGER NOT NULL,
            expires_at_ms INTEGER,
            shard INTEGER NOT NULL DEFAULT 0,
            UNIQUE (group_id, topic, part, producer_id)
        );
        CREATE INDEX pending_offsets_of_producers ON group_pending_offsets (producer_id);
        CREATE TABLE share_partitions (
            group_id TEXT NOT NULL,
            topic_id TEXT NOT NULL,
            part INTEGER NOT NULL,
            topic TEXT NOT NULL,
            state_epoch INTEGER NOT NULL,
            start_offset INTEGER NOT NULL,
            records TEXT NOT NULL,
            shard INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (group_id, topic_id, part)
        ) WITHOUT ROWID;
        CREATE TABLE transactional_ids (
            transactional_id TEXT PRIMARY KEY,
            producer_id INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            previous_producer_id INTEGER NOT NULL,
            last_epoch INTEGER NOT NULL,
            timeout_ms INTEGER NOT NULL,
            state TEXT NOT NULL,
            started_at_ms INTEGER NOT NULL,
            updated_at_ms INTEGER NOT NULL,
            partitions TEXT NOT NULL,
            groups TEXT NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE transaction_outcomes (
            number INTEGER PRIMARY KEY,
            transactional_id TEXT NOT NULL,
            producer_id INTEGER NOT NULL,
            producer_epoch INTEGER NOT NULL,
            is_commit INTEGER NOT NULL,
            partitions TEXT NOT NULL
        );
        CREATE TABLE transaction_answers (
            key TEXT PRIMARY KEY,
            digest BLOB NOT NULL,
            answer BLOB NOT NULL,
            created_at_ms INTEGER NOT NULL
        );
        """,
    ),
)
