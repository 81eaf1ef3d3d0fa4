"""The table of share groups, in the file of the group store.

::

    share_partitions   one row per partition of a group: its start offset, and as JSON the
                       ranges after it as [first, last, state, delivery count]

The ranges of a partition are a whole, because each write replaces most of them, and the locks
of the partition bound their number.
"""

from __future__ import annotations

import json
import sqlite3
from uuid import UUID

from ..share_group_store import DeleteSharePartitions, ShareGroupChange, SharePartitionRecord, StoredRecords

# A step of ``sqlite_groups``.
CREATE_SHARE_PARTITIONS = """
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
    """


def apply_share_change(database: sqlite3.Connection, change: ShareGroupChange) -> None:
    """Apply one change within a transaction."""
    match change:
        case SharePartitionRecord():
            database.execute(
                "INSERT OR REPLACE INTO share_partitions (group_id, topic_id, partition, topic, state_epoch,"
                " start_offset, records) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    change.group,
                    str(change.topic_id),
                    change.partition,
                    change.topic,
                    change.state_epoch,
                    change.start_offset,
                    json.dumps(change.records, separators=(",", ":")),
                ),
            )
        case DeleteSharePartitions(topic_id=None):
            database.execute("DELETE FROM share_partitions WHERE group_id = ?", (change.group,))
        case DeleteSharePartitions():
            database.execute(
                "DELETE FROM share_partitions WHERE group_id = ? AND topic_id = ?",
                (change.group, str(change.topic_id)),
            )


def share_partitions(database: sqlite3.Connection) -> list[SharePartitionRecord]:
    """Return all rows, by group, topic id and partition."""
    return [
        SharePartitionRecord(
            group=group,
            topic=topic,
            topic_id=UUID(topic_id),
            partition=partition,
            state_epoch=state_epoch,
            start_offset=start_offset,
            records=tuple(StoredRecords(*stored) for stored in json.loads(records)),
        )
        for group, topic, topic_id, partition, state_epoch, start_offset, records in database.execute(
            "SELECT group_id, topic, topic_id, partition, state_epoch, start_offset, records"
            " FROM share_partitions ORDER BY group_id, topic_id, partition"
        )
    ]
