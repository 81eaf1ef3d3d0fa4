"""The catalog that brokers share, in PostgreSQL (ADR-0046)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from ..catalog import Catalog, DeletedTopic, TopicRecord
from ..database import ChangeKind, SqlTransaction
from .database import NOW_MS

# Partitions forget a producer a day after its last batch (by default), and note when that was.
_IS_UNUSED = f"""
    n.begun_at_ms < {NOW_MS} - %s
    AND NOT EXISTS (SELECT FROM producer_state p WHERE p.producer_id = n.producer_id)
    AND NOT EXISTS (
        SELECT FROM named_producer_uses u WHERE u.producer_id = n.producer_id
        AND u.used_at >= now() - make_interval(secs => %s / 1000.0)
    )
"""
# A name that is locked is being used. The second statement sees what was committed before the lock.
_LOCK_UNUSED = (
    f"SELECT name FROM named_producers n WHERE {_IS_UNUSED} ORDER BY producer_id FOR UPDATE SKIP LOCKED"
)
_DELETE_UNUSED = f"DELETE FROM named_producers n WHERE {_IS_UNUSED} AND name = ANY (%s) RETURNING producer_id"
# More than a lost part of the database has given out of a name (ADR-0071).
SKIPPED_EPOCHS = 1_000
_CREATE_LOGS = """
    INSERT INTO logs (topic_id, part) SELECT %s, part FROM generate_series(0, %s - 1) AS part
    WHERE NOT EXISTS (SELECT FROM logs l WHERE l.topic_id = %s AND l.part = part.part)
    ORDER BY part ON CONFLICT (topic_id, part) DO NOTHING
"""


class PostgresCatalog(Catalog):
    def _create_logs(self, sql: SqlTransaction, topic: TopicRecord) -> None:
        # Together with the topic, so that no broker needs to.
        sql.execute(_CREATE_LOGS, (topic.topic_id, topic.partitions, topic.topic_id))

    def delete_topic(self, topic_id: UUID) -> bool:
        def work(sql: SqlTransaction) -> bool:
            sql.changed(ChangeKind.TOPICS)
            deleted = sql.execute("DELETE FROM topics WHERE topic_id = %s", (topic_id,))
            # Together, so that no broker that dies in between leaves logs without a topic.
            sql.execute(
                "UPDATE logs SET deleted_at = now() WHERE topic_id = %s AND deleted_at IS NULL", (topic_id,)
            )
            return deleted.rowcount == 1

        return self._run(work)

    def deleted_topics(self) -> list[DeletedTopic]:
        """Return none: ``delete_topic`` has marked their logs."""
        return []

    def forget_deleted_topic(self, topic_id: UUID) -> None:
        """Do nothing: see ``deleted_topics``."""

    def _epochs_forgotten(self, sql: SqlTransaction, name: str) -> int:
        noted = sql.execute(
            "UPDATE named_producers n SET history = h.epoch FROM history h"
            " WHERE n.name = %s AND n.history < h.epoch",
            (sql.name(name),),
        )
        return SKIPPED_EPOCHS if noted.rowcount else 0

    def forget_named_producers(self, *, now_ms: int, kept_ms: int, last_uses: Mapping[int, int]) -> list[int]:
        def work(sql: SqlTransaction) -> list[int]:
            idle = [name for (name,) in sql.execute(_LOCK_UNUSED, (kept_ms, kept_ms))]
            forgotten = sql.execute(_DELETE_UNUSED, (kept_ms, kept_ms, idle)).fetchall()
            sql.execute(
                "DELETE FROM named_producer_uses u WHERE NOT EXISTS"
                " (SELECT FROM named_producers n WHERE n.producer_id = u.producer_id)"
            )
            return [producer_id for (producer_id,) in forgotten]

        return self._run(work)
