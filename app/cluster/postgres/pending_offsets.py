"""The rows of pending offsets in PostgreSQL: what transactions commit.

The rules are those of ``app.cluster.group_tables``. The end of a transaction may come from any broker, and sets the
outcome of its rows; the coordinator of the group then ends them. A row is only written while its transaction is open,
under a lock of its transactional id. All rows of a write are one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...postgres.connector import Connection
from ..group_store import PendingOffset, StoreChange
from ..group_tables import PENDING_COLUMNS

# In the order in which the ends of transactions lock them.
_LOCK_ONGOING = """
    SELECT producer_id, epoch FROM transactional_ids
    WHERE producer_id = ANY (%s::bigint[]) AND state = 'Ongoing' AND timeout_ms >= 0
    ORDER BY producer_id FOR SHARE
"""
_INSERT = f"""
    INSERT INTO group_pending_offsets ({PENDING_COLUMNS}) SELECT {PENDING_COLUMNS}
    FROM unnest(%s::bigint[], %s::int[], %s::bytea[], %s::text[], %s::int[], %s::uuid[], %s::bigint[], %s::int[],
        %s::bytea[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS p ({PENDING_COLUMNS}, at)
    ORDER BY at
    ON CONFLICT (group_id, topic, part, producer_id) DO UPDATE SET number = DEFAULT,
        producer_epoch = EXCLUDED.producer_epoch, topic_id = EXCLUDED.topic_id,
        committed_offset = EXCLUDED.committed_offset, leader_epoch = EXCLUDED.leader_epoch,
        metadata = EXCLUDED.metadata, committed_at_ms = EXCLUDED.committed_at_ms,
        expires_at_ms = EXCLUDED.expires_at_ms
"""
_DROP = """
    DELETE FROM group_pending_offsets p
    USING unnest(%s::bytea[], %s::text[], %s::int[]) AS d (group_id, topic, part)
    WHERE (p.group_id, p.topic, p.part) = (d.group_id, d.topic, d.part)
"""
DROP_EARLIER = """
    DELETE FROM group_pending_offsets earlier USING group_pending_offsets ended
    WHERE (earlier.group_id, earlier.topic, earlier.part) = (ended.group_id, ended.topic, ended.part)
        AND ended.producer_id = %s AND ended.shard = %s AND earlier.number < ended.number
"""
# Rows without outcome whose transaction is not open were written by nobody who got an answer.
_ENDED = """
    SELECT k.producer_id, coalesce(bool_or(p.outcome), false)
    FROM unnest(%s::bigint[], %s::int[]) AS k (producer_id, epoch)
    LEFT JOIN group_pending_offsets p ON p.producer_id = k.producer_id AND p.shard = %s
    LEFT JOIN transactional_ids t
        ON t.producer_id = k.producer_id AND t.epoch = k.epoch AND t.state = 'Ongoing'
    GROUP BY k.producer_id
    HAVING bool_or(p.outcome) IS NOT NULL OR bool_and(t.producer_id IS NULL)
"""


def lock_ongoing(connection: Connection, changes: Sequence[StoreChange]) -> set[tuple[int, int]]:
    """Lock the transactional ids of pending offsets.

    Return the producers whose transaction is open.
    """
    producers = sorted({change.producer_id for change in changes if isinstance(change, PendingOffset)})
    if not producers:
        return set()
    rows = connection.execute(_LOCK_ONGOING, (producers,)).fetchall()
    return {(producer_id, epoch) for producer_id, epoch in rows}


def insert_pending_offsets(connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Store pending offsets, rows of ``PENDING_COLUMNS``, in order, with one statement."""
    # A statement cannot write a row twice: of a producer, the last offset of a partition counts.
    last: dict[tuple[Any, ...], Sequence[Any]] = {}
    for row in rows:
        producer_id, _, group_id, topic, part = row[:5]
        last.pop((group_id, topic, part, producer_id), None)
        last[group_id, topic, part, producer_id] = row
    if last:
        connection.execute(_INSERT, [list(column) for column in zip(*last.values(), strict=True)])


def drop_pending_offsets(connection: Connection, keys: Sequence[tuple[str, str, int]]) -> None:
    """Drop all pending offsets of partitions (group, topic, number).

    Their committed offsets were replaced or deleted.
    """
    groups, topics, partitions = zip(*keys, strict=True)
    connection.execute(_DROP, ([group.encode() for group in groups], list(topics), list(partitions)))


def ended_producers(
    connection: Connection, producers: Sequence[tuple[int, int]], shard: int
) -> list[tuple[int, bool]]:
    """Return the ids of ``producers`` whose transaction has ended, and whether it was committed.

    ``producers`` are ids and epochs.
    """
    producer_ids, epochs = zip(*producers, strict=True)
    return [
        (producer_id, is_committed)
        for producer_id, is_committed in connection.execute(_ENDED, (list(producer_ids), list(epochs), shard))
    ]
