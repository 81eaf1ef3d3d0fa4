"""States of share groups in the store that brokers share (KIP-932, ADR-0047)."""

from __future__ import annotations

import json

from ...postgres.connector import Connection
from ..share_group_store import DeleteSharePartitions, ShareGroupChange, SharePartitionRecord, StoredRecords

_INSERT = """
    INSERT INTO share_partitions (group_id, topic_id, part, topic, state_epoch, start_offset, records)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (group_id, topic_id, part) DO UPDATE SET topic = EXCLUDED.topic,
        state_epoch = EXCLUDED.state_epoch, start_offset = EXCLUDED.start_offset, records = EXCLUDED.records
"""


def apply_share_change(connection: Connection, change: ShareGroupChange) -> None:
    """Apply one change within a transaction."""
    group_id = change.group.encode()
    match change:
        case SharePartitionRecord():
            connection.execute(
                _INSERT,
                (
                    group_id,
                    change.topic_id,
                    change.partition,
                    change.topic,
                    change.state_epoch,
                    change.start_offset,
                    json.dumps(change.records, separators=(",", ":")),
                ),
            )
        case DeleteSharePartitions(topic_id=None):
            connection.execute("DELETE FROM share_partitions WHERE group_id = %s", (group_id,))
        case DeleteSharePartitions():
            connection.execute(
                "DELETE FROM share_partitions WHERE group_id = %s AND topic_id = %s",
                (group_id, change.topic_id),
            )


def share_partitions(connection: Connection, shard: int) -> list[SharePartitionRecord]:
    """Return the rows of a shard, by group, topic id and partition."""
    return [
        SharePartitionRecord(
            group=group_id.decode(),
            topic=topic,
            topic_id=topic_id,
            partition=part,
            state_epoch=state_epoch,
            start_offset=start_offset,
            records=tuple(StoredRecords(*stored) for stored in json.loads(records)),
        )
        for group_id, topic_id, part, topic, state_epoch, start_offset, records in connection.execute(
            "SELECT group_id, topic_id, part, topic, state_epoch, start_offset, records"
            " FROM share_partitions WHERE shard = %s ORDER BY group_id, topic_id, part",
            (shard,),
        )
    ]
