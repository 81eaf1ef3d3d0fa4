"""The rows of pending offsets in the group store: what open transactions commit.

``number`` counts up with each row and is never used again, so rows of one partition are
ordered by the time of their writing. That decides which offset is the last one when
transactions of several producers have committed the same partition of a group.
"""

from __future__ import annotations

import sqlite3
from uuid import UUID

from ..group_store import EndPendingOffsets, OffsetRecord, PendingOffset

# A step of ``sqlite_groups``.
CREATE_PENDING_OFFSETS = """
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
    """

_OFFSET_COLUMNS = (
    "group_id, topic, partition, topic_id, offset, leader_epoch, metadata, committed_at_ms, expires_at_ms"
)


def insert_pending_offset(database: sqlite3.Connection, pending: PendingOffset) -> None:
    record = pending.record
    database.execute(
        f"INSERT OR REPLACE INTO pending_offsets (producer_id, producer_epoch, {_OFFSET_COLUMNS})"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            pending.producer_id,
            pending.producer_epoch,
            record.group,
            record.topic,
            record.partition,
            str(record.topic_id),
            record.offset,
            record.leader_epoch,
            record.metadata,
            record.committed_at_ms,
            record.expires_at_ms,
        ),
    )


def drop_pending_offsets(database: sqlite3.Connection, group: str, topic: str, partition: int) -> None:
    """Drop all pending offsets of a partition.

    Its committed offset was replaced or deleted.
    """
    database.execute(
        "DELETE FROM pending_offsets WHERE group_id = ? AND topic = ? AND partition = ?",
        (group, topic, partition),
    )


def end_pending_offsets(database: sqlite3.Connection, end: EndPendingOffsets) -> None:
    """Drop the pending offsets of a producer; commit them first if its transaction is committed.

    A committed one drops those that other producers wrote for the same partition before it.
    """
    if end.is_committed:
        database.execute(
            f"INSERT OR REPLACE INTO offsets ({_OFFSET_COLUMNS})"
            f" SELECT {_OFFSET_COLUMNS} FROM pending_offsets WHERE producer_id = ?",
            (end.producer_id,),
        )
        database.execute(
            "DELETE FROM pending_offsets WHERE number IN ("
            " SELECT earlier.number FROM pending_offsets ended JOIN pending_offsets earlier"
            " USING (group_id, topic, partition)"
            " WHERE ended.producer_id = ? AND earlier.number < ended.number)",
            (end.producer_id,),
        )
    database.execute("DELETE FROM pending_offsets WHERE producer_id = ?", (end.producer_id,))


def pending_offsets(database: sqlite3.Connection) -> list[PendingOffset]:
    """Return all pending offsets in the order in which they were written."""
    return [
        PendingOffset(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            record=OffsetRecord(
                group=group_id,
                topic=topic,
                topic_id=UUID(topic_id),
                partition=partition,
                offset=offset,
                leader_epoch=leader_epoch,
                metadata=metadata,
                committed_at_ms=committed_at_ms,
                expires_at_ms=expires_at_ms,
            ),
        )
        for (
            producer_id,
            producer_epoch,
            group_id,
            topic,
            partition,
            topic_id,
            offset,
            leader_epoch,
            metadata,
            committed_at_ms,
            expires_at_ms,
        ) in database.execute(
            f"SELECT producer_id, producer_epoch, {_OFFSET_COLUMNS} FROM pending_offsets ORDER BY number"
        )
    ]
