"""The schema of the file of the group store, as the steps that made it (ADR-0012, ADR-0029).

The tables are those of ``app.cluster.group_tables``, those of ``.transactions``, and ``coordinator`` with one row: the
epoch of the coordinator that opened the file last.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from typing import Any
from uuid import UUID

from ..group_documents import encoded_bytes
from .file import Migration, run_script

_DOCUMENT_TABLES = """
    DROP TABLE groups;
    DROP TABLE members;
    DROP TABLE member_protocols;
    DROP TABLE consumer_groups;
    DROP TABLE consumer_members;
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
    """


def _make_documents(database: sqlite3.Connection) -> None:
    """Make each group with its members, and each consumer group and member, one row of JSON as in PostgreSQL."""
    protocols: defaultdict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    for row in _rows(database, "SELECT * FROM member_protocols ORDER BY group_id, member_place, place"):
        protocols[row["group_id"], row["member_place"]].append((row["name"], encoded_bytes(row["metadata"])))
    members: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _rows(database, "SELECT * FROM members ORDER BY group_id, place"):
        group_id, place = row.pop("group_id"), row.pop("place")
        row["assignment"], row["is_managed"] = encoded_bytes(row["assignment"]), bool(row["is_managed"])
        members[group_id].append({**row, "protocols": protocols[group_id, place]})
    groups = _rows(database, "SELECT * FROM groups")
    consumer_groups = _rows(database, "SELECT * FROM consumer_groups")
    consumer_members = _rows(database, "SELECT * FROM consumer_members")
    for row in groups:
        row["members"] = members[row["group_id"]]
    for row in consumer_groups:
        row["regexes"] = json.loads(row["regexes"])
    for row in consumer_members:
        row["topics"] = json.loads(row["topics"])
        row["target"] = [
            (str(UUID(topic_id)), number)
            for topic_id, numbers in json.loads(row["target"]).items()
            for number in numbers
        ]
        if row["classic"] is not None:
            classic = json.loads(row["classic"])
            row["classic"] = [classic["session_timeout_ms"], classic["protocols"], classic["is_managed"]]
    run_script(database, _DOCUMENT_TABLES)
    for table, rows in (("groups", groups), ("consumer_groups", consumer_groups)):
        database.executemany(
            f"INSERT INTO {table} (group_id, record) VALUES (?, ?)",
            [(row.pop("group_id"), json.dumps(row)) for row in rows],
        )
    database.executemany(
        "INSERT INTO consumer_members (group_id, member_id, record) VALUES (?, ?, ?)",
        [(row.pop("group_id"), row.pop("member_id"), json.dumps(row)) for row in consumer_members],
    )


def _rows(database: sqlite3.Connection, query: str) -> list[dict[str, Any]]:
    cursor = database.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


MIGRATIONS: tuple[Migration, ...] = (
    """
    CREATE TABLE coordinator (number INTEGER PRIMARY KEY CHECK (number = 1), epoch INTEGER NOT NULL);
    INSERT INTO coordinator VALUES (1, 0);
    CREATE TABLE groups (
        group_id TEXT PRIMARY KEY,
        generation INTEGER NOT NULL,
        protocol_type TEXT,
        protocol_name TEXT,
        leader TEXT,
        emptied_at_ms INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE members (
        group_id TEXT NOT NULL,
        place INTEGER NOT NULL,
        member_id TEXT NOT NULL,
        instance_id TEXT,
        client_id TEXT NOT NULL,
        client_host TEXT NOT NULL,
        session_timeout_ms INTEGER NOT NULL,
        rebalance_timeout_ms INTEGER NOT NULL,
        assignment BLOB NOT NULL,
        PRIMARY KEY (group_id, place)
    );
    CREATE TABLE member_protocols (
        group_id TEXT NOT NULL,
        member_place INTEGER NOT NULL,
        place INTEGER NOT NULL,
        name TEXT NOT NULL,
        metadata BLOB NOT NULL,
        PRIMARY KEY (group_id, member_place, place)
    );
    CREATE TABLE offsets (
        group_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        topic_id TEXT NOT NULL,
        offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        committed_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER,
        PRIMARY KEY (group_id, topic, partition)
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE members ADD COLUMN is_managed INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE owners (
        group_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        member_id TEXT NOT NULL,
        PRIMARY KEY (group_id, topic, partition)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE pending_offsets (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        producer_id INTEGER NOT NULL,
        producer_epoch INTEGER NOT NULL,
        group_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        topic_id TEXT NOT NULL,
        offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        committed_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER,
        UNIQUE (group_id, topic, partition, producer_id)
    );
    CREATE INDEX pending_offsets_of_producers ON pending_offsets (producer_id);
    """,
    """
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
    """,
    """
    CREATE TABLE transaction_answers (
        key TEXT PRIMARY KEY,
        digest BLOB NOT NULL,
        answer BLOB NOT NULL,
        created_at_ms INTEGER NOT NULL
    );
    """,
    """
    CREATE TABLE consumer_groups (
        group_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        assignment_epoch INTEGER NOT NULL,
        assignor TEXT NOT NULL,
        regexes TEXT NOT NULL,
        emptied_at_ms INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE consumer_members (
        group_id TEXT NOT NULL,
        member_id TEXT NOT NULL,
        instance_id TEXT,
        rack_id TEXT,
        client_id TEXT NOT NULL,
        client_host TEXT NOT NULL,
        rebalance_timeout_ms INTEGER NOT NULL,
        topics TEXT NOT NULL,
        regex TEXT NOT NULL,
        assignor TEXT,
        epoch INTEGER NOT NULL,
        previous_epoch INTEGER NOT NULL,
        state INTEGER NOT NULL,
        assigned TEXT NOT NULL,
        revoking TEXT NOT NULL,
        target TEXT NOT NULL,
        classic TEXT,
        PRIMARY KEY (group_id, member_id)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE share_partitions (
        group_id TEXT NOT NULL,
        topic_id TEXT NOT NULL,
        partition INTEGER NOT NULL,
        topic TEXT NOT NULL,
        state_epoch INTEGER NOT NULL,
        start_offset INTEGER NOT NULL,
        records TEXT NOT NULL,
        PRIMARY KEY (group_id, topic_id, partition)
    ) WITHOUT ROWID;
    """,
    _make_documents,
    # The names of PostgreSQL.
    """
    ALTER TABLE owners RENAME TO group_owners;
    ALTER TABLE group_owners RENAME COLUMN partition TO part;
    ALTER TABLE group_owners ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE offsets RENAME TO group_offsets;
    ALTER TABLE group_offsets RENAME COLUMN partition TO part;
    ALTER TABLE group_offsets RENAME COLUMN offset TO committed_offset;
    ALTER TABLE group_offsets ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE pending_offsets RENAME TO group_pending_offsets;
    ALTER TABLE group_pending_offsets RENAME COLUMN partition TO part;
    ALTER TABLE group_pending_offsets RENAME COLUMN offset TO committed_offset;
    ALTER TABLE group_pending_offsets ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE share_partitions RENAME COLUMN partition TO part;
    ALTER TABLE share_partitions ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;
    """,
)
