"""Deletions of committed offsets and groups in PostgreSQL, for a day (ADR-0059).

A deletion is noted in the transaction that deletes. So a later coordinator of the group can tell readers of
``__consumer_offsets`` what is gone, as the tombstones of a log would. A row may outlive the deletion: the offset may
have been committed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from ...postgres.connector import Connection

# As many as a partition of the topic keeps.
_DELETIONS_MAX = 1000
_NOTE = "INSERT INTO group_deletions (group_id, topic, part)"
_AGAIN = "ON CONFLICT (group_id, topic, part) DO UPDATE SET deleted_at = now()"
_FORGET = "DELETE FROM group_deletions WHERE shard = %s AND deleted_at < now() - interval '1 day'"
_LIST = """
    SELECT group_id, topic, part FROM (
        SELECT group_id, topic, part, deleted_at FROM group_deletions
        WHERE shard = %s AND deleted_at >= now() - interval '1 day' ORDER BY deleted_at DESC LIMIT %s
    ) AS newest ORDER BY deleted_at
"""

# Group, topic and partition; without a topic it is the group itself.
Deletion = tuple[str, str | None, int]


def delete_offsets(connection: Connection, condition: LiteralString, parameters: Sequence[Any]) -> None:
    """Delete the committed offsets that ``condition`` names, and note it."""
    connection.execute(
        f"WITH gone AS (DELETE FROM group_offsets WHERE {condition} RETURNING group_id, topic, part)"
        f" {_NOTE} SELECT group_id, topic, part FROM gone {_AGAIN}",
        parameters,
    )


def delete_group_record(connection: Connection, group_id: str | bytes) -> None:
    """Delete the record of a classic group, and note it."""
    connection.execute(
        "WITH gone AS (DELETE FROM groups WHERE group_id = %s RETURNING group_id)"
        f" {_NOTE} SELECT group_id, '', -1 FROM gone {_AGAIN}",
        (group_id,),
    )


def forget_deletions(connection: Connection, shard: int) -> None:
    """Forget the deletions of a shard that are older than a day."""
    connection.execute(_FORGET, (shard,))


def deletions(connection: Connection, shard: int) -> Sequence[Deletion]:
    """Return the newest deletions of a shard, the oldest of them first."""
    rows = connection.execute(_LIST, (shard, _DELETIONS_MAX)).fetchall()
    return [(group_id.decode(), topic or None, part) for group_id, topic, part in rows]
