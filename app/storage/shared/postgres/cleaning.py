"""The metadata of compaction in PostgreSQL: which logs are dirty, passes over them, and reads by key."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ....postgres.connector import Connection
from ...config_types import INT64_MAX
from ...engine import AbortedTransaction
from ...keys.key_index import SALT_BYTES
from ..meta import RUNS_PLANNED_MAX, AbortedFound, CleaningPlan, CommittedRun, KeyRuns, LogDirt
from .commit import LOG_COLUMNS, LOG_WIDTH, log_row
from .runs import NOW_MS, SHORT_RUN_COLUMNS, PostgresCalls, fetch, run_read

# A run with timestamps of the future is as old as its object. Where a transaction is open, no run may be cleaned.
_DIRT = f"""
    SELECT {LOG_COLUMNS}, d.first_dirty, clean.bytes, oldest.since_ms, {NOW_MS}
    FROM logs l
    LEFT JOIN cleaned_logs c USING (log_id),
    LATERAL (SELECT greatest(coalesce(c.first_dirty, 0), l.log_start) AS first_dirty) AS d,
    LATERAL (
        SELECT coalesce(sum(b.len), 0)::bigint AS bytes FROM batches b
        WHERE b.log_id = l.log_id AND b.last_offset >= l.log_start AND b.last_offset < d.first_dirty
    ) AS clean
    LEFT JOIN LATERAL (
        SELECT least(
            (extract(epoch FROM o.created_at) * 1000)::bigint,
            CASE WHEN b.max_ts >= 0 THEN b.max_ts END
        ) AS since_ms
        FROM batches b JOIN objects o USING (object_id)
        WHERE b.log_id = l.log_id AND b.last_offset >= d.first_dirty
            AND b.last_offset < coalesce(l.first_open, l.next_offset)
        ORDER BY b.last_offset LIMIT 1
    ) AS oldest ON true
    WHERE l.log_id = ANY (%s::bigint[]) AND l.deleted_at IS NULL
"""
_SHORT_RUNS = f"""
    SELECT {SHORT_RUN_COLUMNS}, (extract(epoch FROM o.created_at) * 1000)::bigint
    FROM batches b JOIN objects o USING (object_id)
    WHERE b.log_id = %s AND b.last_offset >= %s ORDER BY b.last_offset LIMIT %s
"""
# One statement, so that the log is as of the same moment: rows go when the log start rises. Conditions that compare
# columns of both tables are left to the caller, or PostgreSQL would read all rows of the log.
_ABORTED = f"""
    SELECT {LOG_COLUMNS}, {NOW_MS}, a.producers, a.firsts, a.lasts
    FROM logs l, LATERAL (
        SELECT array_agg(producer_id) AS producers, array_agg(first_offset) AS firsts, array_agg(last_offset) AS lasts
        FROM aborted_transactions WHERE log_id = %s AND last_offset >= %s AND first_offset < %s
    ) AS a
    WHERE l.log_id = %s AND l.deleted_at IS NULL
"""
CLAIM = """
    INSERT INTO upkeep (log_id, claimed_until) VALUES (%s, now() + make_interval(secs => %s))
    ON CONFLICT (log_id) DO UPDATE SET claimed_until = EXCLUDED.claimed_until WHERE upkeep.claimed_until <= now()
    RETURNING log_id
"""


class PostgresCleaning(PostgresCalls):
    """The part of ``Meta`` that compaction and reads by key need."""

    async def aborted(self, log_id: int, offset: int, end_offset: int) -> AbortedFound | None:
        def work(connection: Connection) -> AbortedFound | None:
            found = _aborted(connection, log_id, offset, end_offset)
            return None if found is None else found[0]

        return await self._run(work)

    async def dirt(self, log_ids: Sequence[int]) -> dict[int, LogDirt]:
        rows = await self._rows(_DIRT, list(log_ids))
        return {
            row[0]: LogDirt(
                log=log_row(row[:LOG_WIDTH]),
                first_dirty=first_dirty,
                clean_bytes=clean_bytes,
                dirty_since_ms=since_ms,
                now_ms=now_ms,
            )
            for row in rows
            for first_dirty, clean_bytes, since_ms, now_ms in [row[LOG_WIDTH:]]
        }

    async def plan_cleaning(self, log_id: int, *, claim_s: float) -> CleaningPlan | None:
        def work(connection: Connection) -> CleaningPlan | None:
            with connection.transaction():
                found = _aborted(connection, log_id)
                if found is None or not fetch(connection, CLAIM, log_id, claim_s):
                    return None
                (log, aborted), now_ms = found
                first_dirty, key_salt = _cleaned_log(connection, log_id)
                rows = fetch(connection, _SHORT_RUNS, log_id, log.log_start, RUNS_PLANNED_MAX)
                return CleaningPlan(
                    log=log,
                    first_dirty=max(first_dirty, log.log_start),
                    key_salt=key_salt,
                    runs=[CommittedRun(run_read(row[:-1]), row[-1]) for row in rows],
                    now_ms=now_ms,
                    aborted=aborted,
                )

        return await self._run(work)

    async def extend_claim(self, log_id: int, *, claim_s: float) -> None:
        await self._count(
            "UPDATE upkeep SET claimed_until = now() + make_interval(secs => %s) WHERE log_id = %s",
            claim_s,
            log_id,
        )

    async def end_cleaning(self, log_id: int, first_dirty: int | None) -> None:
        def work(connection: Connection) -> None:
            with connection.transaction():
                if first_dirty is not None:
                    connection.execute(
                        "UPDATE cleaned_logs SET first_dirty = greatest(first_dirty, %s) WHERE log_id = %s",
                        (first_dirty, log_id),
                    )
                connection.execute("DELETE FROM upkeep WHERE log_id = %s", (log_id,))

        await self._run(work)

    async def key_salt(self, log_id: int) -> bytes:
        def work(connection: Connection) -> bytes:
            with connection.transaction():
                return _cleaned_log(connection, log_id)[1]

        return await self._run(work)

    async def key_runs(self, log_id: int, offset: int) -> KeyRuns | None:
        def work(connection: Connection) -> KeyRuns | None:
            with connection.transaction():
                found = _aborted(connection, log_id, offset)
                if found is None:
                    return None
                (log, aborted), _ = found
                stable_offset = log.last_stable
                rows = fetch(connection, _SHORT_RUNS, log_id, offset, RUNS_PLANNED_MAX)
                runs = [run for row in rows if (run := run_read(row[:-1])).last_offset >= log.log_start]
                if any(run.cleaned_until > stable_offset for run in runs):
                    # By a pass that began since: the records that replaced others are after the end known so far.
                    found = _aborted(connection, log_id, log.next_offset)
                    if found is None:
                        return None
                    log = found[0].log
                return KeyRuns(
                    log=log,
                    key_salt=_cleaned_log(connection, log_id)[1],
                    runs=runs,
                    stable_offset=stable_offset,
                    aborted=aborted,
                )

        return await self._run(work)


def _aborted(
    connection: Connection, log_id: int, offset: int = 0, end_offset: int = INT64_MAX
) -> tuple[AbortedFound, int] | None:
    """Return a log with its aborted transactions, and the time in ms.

    None if it was deleted.

    A plan asks for runs only after this: a pass forgets a transaction once it has no batches.
    """
    rows = fetch(connection, _ABORTED, log_id, offset, end_offset, log_id)
    if not rows:
        return None
    (row,) = rows
    log, now_ms, columns = log_row(row[:LOG_WIDTH]), row[LOG_WIDTH], row[LOG_WIDTH + 1 :]
    found = () if columns[0] is None else map(AbortedTransaction, *columns)
    stable = [transaction for transaction in found if transaction.first_offset < log.last_stable]
    return AbortedFound(log, sorted(stable, key=lambda transaction: transaction.first_offset)), now_ms


def _cleaned_log(connection: Connection, log_id: int) -> tuple[int, bytes]:
    """Return where the next pass begins, and the salt of the key indexes."""
    query = "SELECT first_dirty, key_salt FROM cleaned_logs WHERE log_id = %s"
    rows = fetch(connection, query, log_id)
    if not rows:
        connection.execute(
            "INSERT INTO cleaned_logs (log_id, key_salt) VALUES (%s, %s) ON CONFLICT (log_id) DO NOTHING",
            (log_id, os.urandom(SALT_BYTES)),
        )
        rows = fetch(connection, query, log_id)
    first_dirty, key_salt = rows[0]
    return first_dirty, key_salt
