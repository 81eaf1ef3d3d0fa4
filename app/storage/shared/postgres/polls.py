"""Repeated queries of brokers about very many logs.

Each is one query without locks, which answers with the few logs that there is something to do about.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..meta import KeptLog, KnownLog, LogRow
from .commit import LOG_COLUMNS, log_row
from .runs import NOW_MS, PostgresCalls

_MOVED_LOGS = f"""
    SELECT {LOG_COLUMNS}
    FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[])
        AS known (log_id, log_start, next_offset, size_bytes, history)
    JOIN logs l ON l.log_id = known.log_id AND l.deleted_at IS NULL
    WHERE (l.log_start, l.next_offset, l.size_bytes) <> (known.log_start, known.next_offset, known.size_bytes)
        OR known.history <> (SELECT epoch FROM history)
"""
# As ``expired_runs`` judges the oldest run.
_EXPIRING = f"""
    SELECT l.log_id
    FROM unnest(%s::bigint[], %s::float8[], %s::bigint[]) AS kept (log_id, retention_s, retention_bytes)
    JOIN logs l ON l.log_id = kept.log_id AND l.deleted_at IS NULL
    CROSS JOIN LATERAL (
        SELECT * FROM batches WHERE log_id = l.log_id ORDER BY last_offset LIMIT 1
    ) AS b
    JOIN objects o USING (object_id)
    WHERE b.last_offset < l.log_start
        OR CASE b.max_ts WHEN -1 THEN (extract(epoch FROM o.created_at) * 1000)::bigint ELSE b.max_ts END
            < {NOW_MS} - kept.retention_s * 1000
        OR l.size_bytes - b.len >= kept.retention_bytes
    ORDER BY l.log_id
"""


class PostgresPolls(PostgresCalls):
    """The part of ``Meta`` that is about many logs at once."""

    async def moved_logs(self, known: Sequence[KnownLog]) -> dict[int, LogRow]:
        rows = await self._rows(_MOVED_LOGS, *(_bigints(column) for column in zip(*known, strict=True)))
        return {row[0]: log_row(row) for row in rows}

    async def expiring(self, kept: Sequence[KeptLog]) -> list[int]:
        rows = await self._rows(
            _EXPIRING,
            [log.log_id for log in kept],
            [log.retention_s for log in kept],
            [log.retention_bytes for log in kept],
        )
        return [row[0] for row in rows]


def _bigints(numbers: Sequence[int]) -> str:
    """Return an array as text.

    That takes a fraction of the time that the driver takes for a list.
    """
    return f"{{{','.join(map(str, numbers))}}}"
