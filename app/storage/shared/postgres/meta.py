"""The metadata of the shared engine in PostgreSQL: all SQL on its tables, apart from T1.

The tables are in ``app/postgres/migrations``. Locks are taken in one order: unique keys of objects, then
rows of logs by id. Every deletion of runs holds the row lock of their log, because a snapshot alone would
miss the rows of a transaction that was committed in the meantime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

from ....postgres.connector import Connection
from ..meta import (
    ROWS_MAX,
    RUNS_DELETED_MAX,
    RUNS_READ_MAX,
    CommitAnswer,
    CommittedRun,
    CopyPhase,
    LogRow,
    MergedObject,
    MergePlan,
    ObjectRef,
    ObjectWrite,
    ProducerRow,
    Retained,
    RunRead,
    RunsFound,
    RunsWanted,
    SilentUploader,
    StoreKind,
)
from ..upkeep_rules import expired_runs, merged_log, runs_read_max, runs_to_merge, without_runs
from .cleaning import CLAIM, PostgresCleaning
from .commit import (
    EPOCH_COLUMNS,
    LIST_PRODUCERS,
    LOG_COLUMNS,
    LOG_WIDTH,
    STORE_COPY,
    STORE_INLINE,
    commit_objects,
    copy_values,
    listed_producer,
    log_row,
)
from .polls import PostgresPolls
from .runs import NOW_MS, RUN_COLUMNS, fetch, run_read

_AGO = "now() - make_interval(secs => %s)"

_LOCK_LOG = f"SELECT {LOG_COLUMNS}, {NOW_MS} FROM logs l WHERE log_id = %s AND deleted_at IS NULL FOR UPDATE"
_RUNS = f"""
    SELECT {LOG_COLUMNS}, r.* FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::int[])
        AS w (log_id, from_offset, budget, runs_max)
    JOIN logs l ON l.log_id = w.log_id AND l.deleted_at IS NULL
    LEFT JOIN LATERAL (
        SELECT {RUN_COLUMNS} FROM (
            SELECT *, sum(len) OVER (ORDER BY last_offset) - len AS before
            FROM (
                SELECT * FROM batches
                WHERE log_id = w.log_id AND last_offset >= w.from_offset AND w.from_offset >= l.log_start
                ORDER BY last_offset LIMIT w.runs_max
            ) AS nearest
        ) AS b JOIN objects o USING (object_id)
        WHERE b.before < w.budget OR b.before = 0
        ORDER BY b.last_offset
    ) AS r ON true
"""
_OLDEST_RUNS = f"""
    SELECT {RUN_COLUMNS}, (extract(epoch FROM o.created_at) * 1000)::bigint
    FROM batches b JOIN objects o USING (object_id)
    WHERE b.log_id = %s ORDER BY b.last_offset LIMIT %s
"""
_RUN_AT_TIME = f"""
    SELECT {RUN_COLUMNS} FROM logs l JOIN batches b USING (log_id) JOIN objects o USING (object_id)
    WHERE l.log_id = %s AND l.deleted_at IS NULL AND b.last_offset >= l.log_start AND b.max_ts >= %s
    ORDER BY b.last_offset LIMIT 1
"""
_NEWEST_RUN = f"""
    SELECT {RUN_COLUMNS} FROM logs l JOIN batches b USING (log_id) JOIN objects o USING (object_id)
    WHERE l.log_id = %s AND l.deleted_at IS NULL AND b.last_offset >= l.log_start AND b.base_offset >= %s
    ORDER BY b.max_ts DESC, b.last_offset LIMIT 1
"""
_DELETE_OLDEST = """
    WITH gone AS (DELETE FROM batches WHERE log_id = %s AND last_offset <= %s RETURNING object_id)
    INSERT INTO suspects (object_id) SELECT DISTINCT object_id FROM gone
"""
_SKIP_COPIES = """
    UPDATE logs SET log_start = %s, next_offset = %s, size_bytes = 0, unmerged_bytes = 0, merged_until = %s, first_open = NULL
    WHERE log_id = %s
"""
_LOCK_LOGS = f"""
    SELECT {LOG_COLUMNS} FROM logs l WHERE log_id = ANY (%s::bigint[]) AND deleted_at IS NULL
    ORDER BY log_id FOR UPDATE
"""
_UPDATE_LOG = """
    UPDATE logs SET log_start = %s, size_bytes = %s, unmerged_bytes = %s, merged_until = %s,
        unmerged_since = CASE WHEN %s THEN now() ELSE unmerged_since END
    WHERE log_id = %s
"""
_CREATE_LOGS = """
    INSERT INTO logs (topic_id, part)
    SELECT %(topic)s, part FROM generate_series(0, %(partitions)s - 1) AS part
    WHERE NOT EXISTS (SELECT FROM logs l WHERE l.topic_id = %(topic)s AND l.part = part.part)
    ORDER BY part
    ON CONFLICT (topic_id, part) DO NOTHING
"""
_MERGE_CANDIDATE = f"""
    SELECT {LOG_COLUMNS} FROM logs l
    WHERE deleted_at IS NULL AND unmerged_bytes > 0 AND (unmerged_bytes >= %s OR unmerged_since <= {_AGO})
        AND NOT EXISTS (SELECT FROM upkeep u WHERE u.log_id = l.log_id AND u.claimed_until > now())
    ORDER BY unmerged_bytes DESC, log_id LIMIT 1
"""
_UNMERGED_RUNS = f"""
    SELECT {RUN_COLUMNS} FROM batches b JOIN objects o USING (object_id)
    WHERE b.log_id = %s AND b.last_offset >= %s AND b.idx IS NULL ORDER BY b.last_offset LIMIT %s
"""
_TAKE_RUNS = """
    WITH gone AS (
        DELETE FROM batches b USING objects o
        WHERE b.log_id = %s AND b.last_offset = ANY (%s::bigint[]) AND o.object_id = b.object_id
        RETURNING b.base_offset, b.last_offset, o.key, b.pos, b.len, b.object_id
    ), suspected AS (
        INSERT INTO suspects (object_id) SELECT DISTINCT object_id FROM gone
    )
    SELECT base_offset, last_offset, key, pos, len FROM gone ORDER BY last_offset
"""
_INSERT_OBJECT = """
    INSERT INTO objects (key, state, store, size, uploader, dead_at)
    VALUES (%s, %s, %s, %s, %s, CASE WHEN %s THEN now() END)
    ON CONFLICT (key) DO NOTHING RETURNING object_id
"""
_FENCE = """
    INSERT INTO objects (key, state, store, size, uploader, dead_at)
    SELECT key, 'f', 0, 0, %s, now() FROM unnest(%s::text[]) AS k (key) ORDER BY key
    ON CONFLICT (key) DO NOTHING
"""
_FOUND_AGAIN = """
    UPDATE objects SET has_bytes = true, dead_at = now()
    WHERE key = ANY (%s::text[]) AND state <> 'c' AND NOT has_bytes
"""
_SWEEP = """
    WITH taken AS (
        DELETE FROM suspects WHERE suspect_id IN (
            SELECT suspect_id FROM suspects ORDER BY suspect_id LIMIT %s FOR UPDATE SKIP LOCKED
        ) RETURNING object_id
    ), dead AS (
        UPDATE objects o SET state = 'd', dead_at = now()
        WHERE o.object_id IN (SELECT object_id FROM taken) AND o.state = 'c'
            AND NOT EXISTS (SELECT FROM batches b WHERE b.object_id = o.object_id)
    )
    SELECT count(*) FROM taken
"""


# Of named producers it notes when they were used last: their names are kept for longer than what is deleted here.
_FORGET_PRODUCERS = """
    WITH forgotten AS (DELETE FROM producer_state p {} RETURNING p.producer_id, p.last_at),
    used AS (
        INSERT INTO named_producer_uses AS u (producer_id, used_at)
        SELECT f.producer_id, max(f.last_at) FROM forgotten f JOIN named_producers n USING (producer_id)
        GROUP BY f.producer_id ORDER BY f.producer_id
        ON CONFLICT (producer_id) DO UPDATE SET used_at = greatest(u.used_at, EXCLUDED.used_at)
    )
    SELECT count(*) FROM forgotten
"""


_OF_LOGS: tuple[LiteralString, ...] = (
    *("open_transactions", "aborted_transactions", "upkeep", "cleaned_logs", "log_epochs"),
    "logs",
)


class _PlanOutdatedError(Exception):
    """The runs of a merge plan are no longer those of the log."""


class PostgresMeta(PostgresPolls, PostgresCleaning):
    """Implements ``Meta``. It uses ``pool``, and does not close it."""

    # ── logs ──

    async def create_logs(self, topic_id: UUID, partitions: int) -> list[LogRow]:
        def work(connection: Connection) -> list[LogRow]:
            connection.execute(_CREATE_LOGS, {"topic": topic_id, "partitions": partitions})
            query = f"SELECT {LOG_COLUMNS}, {EPOCH_COLUMNS} FROM logs l WHERE topic_id = %s AND part < %s AND deleted_at IS NULL ORDER BY part"
            return [log_row(row) for row in fetch(connection, query, topic_id, partitions)]

        return await self._run(work)

    async def delete_logs(self, topic_id: UUID) -> None:
        await self._count(
            "UPDATE logs SET deleted_at = now() WHERE topic_id = %s AND deleted_at IS NULL", topic_id
        )

    async def log_rows(self, log_ids: Sequence[int]) -> dict[int, LogRow]:
        query = f"SELECT {LOG_COLUMNS}, {EPOCH_COLUMNS} FROM logs l WHERE log_id = ANY (%s::bigint[]) AND deleted_at IS NULL"
        return {row[0]: log_row(row) for row in await self._rows(query, list(log_ids))}

    # ── T1 ──

    async def commit_objects(
        self, objects: Sequence[ObjectWrite], *, computed: CommitAnswer | None = None
    ) -> CommitAnswer:
        return await self._run(lambda connection: commit_objects(connection, objects, computed))

    # ── copies of a mirror ──

    async def skip_copies(self, log_id: int, *, expected_end: int, offset: int) -> LogRow | None:
        def work(connection: Connection) -> LogRow | None:
            with connection.transaction():
                log, _ = _lock_log(connection, log_id)
                if log is None or log.copy_phase is CopyPhase.ENDED or log.next_offset != expected_end:
                    return log
                after = log.skipped_to(offset)
                connection.execute(_DELETE_OLDEST, (log_id, offset))
                connection.execute(_FORGET_PRODUCERS.format("WHERE log_id = %s"), (log_id,))
                connection.execute("DELETE FROM open_transactions WHERE log_id = %s", (log_id,))
                connection.execute("DELETE FROM aborted_transactions WHERE log_id = %s", (log_id,))
                connection.execute(_SKIP_COPIES, (offset, offset, offset, log_id))
                connection.execute(STORE_COPY, copy_values(after))
                return after

        return await self._run(work)

    async def end_copies(self, log_ids: Sequence[int]) -> dict[int, LogRow]:
        def work(connection: Connection) -> dict[int, LogRow]:
            with connection.transaction():
                ended = [log_row(row).ended_copy() for row in fetch(connection, _LOCK_LOGS, list(log_ids))]
                for log in ended:
                    connection.execute(STORE_COPY, copy_values(log))
                newest = max((log.copied_epochs[-1][0] for log in ended), default=0)
                connection.execute(
                    "UPDATE history SET leader_epoch = %s WHERE leader_epoch < %s", (newest, newest)
                )
                return {log.log_id: log for log in ended}

        return await self._run(work)

    async def forget_producers(self, log_id: int) -> None:
        await self._rows(_FORGET_PRODUCERS.format("WHERE log_id = %s"), log_id)

    # ── T2 ──

    async def runs(self, wanted: Sequence[RunsWanted]) -> dict[int, RunsFound]:
        rows = await self._rows(
            _RUNS,
            [read.log_id for read in wanted],
            [read.offset for read in wanted],
            [read.max_bytes for read in wanted],
            [runs_read_max(read.max_bytes, RUNS_READ_MAX) for read in wanted],
        )
        found: dict[int, tuple[LogRow, list[RunRead]]] = {}
        for row in rows:
            log = log_row(row[:LOG_WIDTH])
            _, runs = found.setdefault(log.log_id, (log, []))
            if row[LOG_WIDTH] is not None:
                runs.append(run_read(row[LOG_WIDTH:]))
        return {log_id: RunsFound(log, runs) for log_id, (log, runs) in found.items()}

    async def run_at_time(self, log_id: int, timestamp: int) -> RunRead | None:
        rows = await self._rows(_RUN_AT_TIME, log_id, timestamp)
        return run_read(rows[0]) if rows else None

    async def newest_run(self, log_id: int, from_offset: int) -> RunRead | None:
        rows = await self._rows(_NEWEST_RUN, log_id, from_offset)
        return run_read(rows[0]) if rows else None

    # ── producers ──

    async def producers(self, log_id: int) -> list[ProducerRow]:
        return [listed_producer(row) for row in await self._rows(LIST_PRODUCERS, log_id)]

    async def expire_producers(self, idle_s: float) -> int:
        # A producer that writes meanwhile has a new last_at: the row is looked at again when its lock is free.
        rows = await self._rows(
            _FORGET_PRODUCERS.format(
                "USING (SELECT log_id, producer_id FROM producer_state "
                f"WHERE last_at <= {_AGO} AND NOT EXISTS (SELECT FROM open_transactions o "
                "WHERE (o.log_id, o.producer_id) = (producer_state.log_id, producer_state.producer_id)) "
                "LIMIT %s) AS old "
                f"WHERE (p.log_id, p.producer_id) = (old.log_id, old.producer_id) AND p.last_at <= {_AGO}"
            ),
            idle_s,
            ROWS_MAX,
            idle_s,
        )
        return rows[0][0]

    # ── T4 ──

    async def delete_records(self, log_id: int, before_offset: int) -> LogRow | None:
        def work(connection: Connection) -> LogRow | None:
            with connection.transaction():
                log, _ = _lock_log(connection, log_id)
                if log is None:
                    return None
                moved = log.moved_start(before_offset)
                oldest = [committed.run for committed in _oldest(connection, log_id, RUNS_DELETED_MAX)]
                gone = [run for run in oldest if run.last_offset < moved.log_start]
                return _delete_oldest(connection, log, without_runs(moved, gone), gone)

        return await self._run(work)

    async def retain(
        self, log_id: int, *, retention_s: float | None, retention_bytes: int | None
    ) -> Retained | None:
        def work(connection: Connection) -> Retained | None:
            with connection.transaction():
                log, now_ms = _lock_log(connection, log_id)
                if log is None:
                    return None
                oldest = _oldest(connection, log_id, RUNS_DELETED_MAX + 1)
                count = expired_runs(
                    log, oldest, now_ms=now_ms, retention_s=retention_s, retention_bytes=retention_bytes
                )
                gone = [committed.run for committed in oldest[:count]]
                after = _delete_oldest(connection, log, without_runs(log, gone), gone)
                return Retained(after.log_start, count, count == RUNS_DELETED_MAX < len(oldest))

        return await self._run(work)

    async def purge(self) -> int:
        def work(connection: Connection) -> int:
            with connection.transaction():
                rows = fetch(
                    connection,
                    "SELECT log_id FROM logs WHERE deleted_at IS NOT NULL ORDER BY log_id LIMIT 1 "
                    "FOR UPDATE SKIP LOCKED",
                )
                if not rows:
                    return 0
                ((log_id,),) = rows
                runs = _oldest(connection, log_id, ROWS_MAX + 1)
                gone = runs[:ROWS_MAX]
                if gone:
                    connection.execute(_DELETE_OLDEST, (log_id, gone[-1].run.last_offset))
                if len(runs) > len(gone):
                    return len(gone)
                connection.execute(_FORGET_PRODUCERS.format("WHERE log_id = %s"), (log_id,))
                for table in _OF_LOGS:
                    connection.execute(f"DELETE FROM {table} WHERE log_id = %s", (log_id,))
                return len(gone) + 1

        return await self._run(work)

    # ── T5 ──

    async def plan_merge(
        self, *, claim_s: float, min_bytes: int, min_age_s: float, max_bytes: int
    ) -> MergePlan | None:
        def work(connection: Connection) -> MergePlan | None:
            with connection.transaction():
                rows = fetch(connection, _MERGE_CANDIDATE, min_bytes, min_age_s)
                if not rows:
                    return None
                log = log_row(rows[0])
                if not fetch(connection, CLAIM, log.log_id, claim_s):
                    # Another broker was faster.
                    return None
                unmerged = [
                    run_read(row)
                    for row in fetch(
                        connection, _UNMERGED_RUNS, log.log_id, log.merged_until, RUNS_DELETED_MAX
                    )
                ]
                if not unmerged:
                    return None
                return MergePlan(log=log, runs=runs_to_merge(unmerged, max_bytes))

        return await self._run(work)

    async def commit_merge(self, plan: MergePlan, merged: MergedObject) -> bool:
        def insert(connection: Connection, *, is_fenced: bool) -> int | None:
            state = "f" if is_fenced else "c"
            rows = fetch(
                connection,
                _INSERT_OBJECT,
                merged.key,
                state,
                merged.store.value,
                merged.size,
                merged.uploader,
                is_fenced,
            )
            return rows[0][0] if rows else None

        def work(connection: Connection) -> bool:
            log_id = plan.log.log_id
            try:
                with connection.transaction():
                    object_id = insert(connection, is_fenced=False)
                    if object_id is None:
                        # It was done before, or refused.
                        rows = fetch(connection, "SELECT state::text FROM objects WHERE key = %s", merged.key)
                        return rows[0][0] != "f"
                    _replace_runs(connection, plan, merged, object_id)
                    if not merged.keeps_claim:
                        connection.execute("DELETE FROM upkeep WHERE log_id = %s", (log_id,))
                    return True
            except _PlanOutdatedError:
                with connection.transaction():
                    insert(connection, is_fenced=True)
                    connection.execute("DELETE FROM upkeep WHERE log_id = %s", (log_id,))
                return False

        return await self._run(work)

    # ── T3, garbage collection ──

    async def heartbeat(self, uploader: UUID) -> None:
        await self._count(
            "INSERT INTO uploaders (uploader, seen) VALUES (%s, now()) "
            "ON CONFLICT (uploader) DO UPDATE SET seen = EXCLUDED.seen, looked = NULL",
            uploader,
        )

    async def note_uploaders(self, uploaders: Sequence[UUID]) -> None:
        await self._count(
            "INSERT INTO uploaders (uploader, seen) SELECT unnest(%s::uuid[]), now() ON CONFLICT (uploader) DO NOTHING",
            list(uploaders),
        )

    async def silent_uploaders(self, silent_s: float) -> list[SilentUploader]:
        query = (
            "SELECT uploader, extract(epoch FROM now() - seen)::float8, extract(epoch FROM looked - seen)::float8"
            f" FROM uploaders WHERE seen <= {_AGO} ORDER BY coalesce(looked, seen), uploader LIMIT %s"
        )
        return [SilentUploader(*row) for row in await self._rows(query, silent_s, ROWS_MAX)]

    async def note_look(self, uploader: UUID, forget_s: float) -> None:
        forgotten = await self._count(
            f"DELETE FROM uploaders WHERE uploader = %s AND seen <= {_AGO}", uploader, forget_s
        )
        if not forgotten:
            await self._count("UPDATE uploaders SET looked = now() WHERE uploader = %s", uploader)

    async def fence(self, uploader: UUID, keys: Sequence[str]) -> list[str]:
        def work(connection: Connection) -> list[str]:
            connection.execute(_FENCE, (uploader, list(keys)))
            connection.execute(_FOUND_AGAIN, (list(keys),))
            query = "SELECT key FROM objects WHERE key = ANY (%s::text[]) AND state = 'f' ORDER BY key"
            return [row[0] for row in fetch(connection, query, list(keys))]

        return await self._run(work)

    async def sweep(self) -> int:
        return (await self._rows(_SWEEP, ROWS_MAX))[0][0]

    async def dead_objects(self, dead_s: float) -> list[ObjectRef]:
        rows = await self._rows(
            f"SELECT key, store FROM objects WHERE state <> 'c' AND has_bytes AND dead_at <= {_AGO} "
            "ORDER BY dead_at, key LIMIT %s",
            dead_s,
            ROWS_MAX,
        )
        return [ObjectRef(key, StoreKind(store)) for key, store in rows]

    async def bytes_deleted(self, keys: Sequence[str]) -> None:
        await self._count(
            "UPDATE objects SET has_bytes = false WHERE key = ANY (%s::text[]) AND state <> 'c'", list(keys)
        )

    async def forget_objects(self, dead_s: float) -> int:
        return await self._count(
            "DELETE FROM objects WHERE object_id IN (SELECT object_id FROM objects "
            f"WHERE state <> 'c' AND NOT has_bytes AND dead_at <= {_AGO} ORDER BY dead_at LIMIT %s)",
            dead_s,
            ROWS_MAX,
        )

    async def close(self) -> None:
        """Do nothing: the pool has an owner."""


def _lock_log(connection: Connection, log_id: int) -> tuple[LogRow | None, int]:
    """Return a log, locked until the end of the transaction, and the time in ms."""
    rows = fetch(connection, _LOCK_LOG, log_id)
    return (log_row(rows[0][:LOG_WIDTH]), rows[0][LOG_WIDTH]) if rows else (None, 0)


def _oldest(connection: Connection, log_id: int, limit: int) -> list[CommittedRun]:
    rows = fetch(connection, _OLDEST_RUNS, log_id, limit)
    return [CommittedRun(run_read(row[:-1]), row[-1]) for row in rows]


def _delete_oldest(connection: Connection, before: LogRow, after: LogRow, gone: Sequence[RunRead]) -> LogRow:
    if gone:
        connection.execute(_DELETE_OLDEST, (before.log_id, gone[-1].last_offset))
    if after != before:
        _update_log(connection, after, restarts_age=False)
    if before.log_start < after.log_start and before.last_aborted >= 0:
        connection.execute(
            "DELETE FROM aborted_transactions WHERE log_id = %s AND last_offset < %s",
            (before.log_id, after.log_start),
        )
    return after


def _update_log(connection: Connection, log: LogRow, *, restarts_age: bool) -> None:
    connection.execute(
        _UPDATE_LOG,
        (log.log_start, log.size_bytes, log.unmerged_bytes, log.merged_until, restarts_age, log.log_id),
    )


def _replace_runs(connection: Connection, plan: MergePlan, merged: MergedObject, object_id: int) -> None:
    """Put one run in the place of those of the plan.

    Raises:
        _PlanOutdatedError: they no longer exist.
    """
    log, _ = _lock_log(connection, plan.log.log_id)
    if log is None:
        raise _PlanOutdatedError
    gone = fetch(connection, _TAKE_RUNS, log.log_id, [run.last_offset for run in plan.runs])
    if gone != [
        (run.base_offset, run.last_offset, run.object.key, run.position, run.length) for run in plan.runs
    ]:
        raise _PlanOutdatedError
    connection.execute(
        "INSERT INTO batches (log_id, base_offset, last_offset, object_id, pos, len, max_ts, idx, "
        "cleaned_until, keys_pos, keys_len) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            log.log_id,
            plan.runs[0].base_offset,
            plan.runs[-1].last_offset,
            object_id,
            merged.position,
            merged.length,
            merged.max_timestamp,
            merged.sparse_index,
            merged.cleaned_until or None,
            *(merged.keys or (None, None)),
        ),
    )
    if merged.inline is not None:
        connection.execute(STORE_INLINE, (merged.key, merged.inline))
    if merged.gone_markers:
        connection.execute(
            "DELETE FROM aborted_transactions WHERE log_id = %s AND last_offset = ANY (%s::bigint[])",
            (log.log_id, list(merged.gone_markers)),
        )
    _update_log(connection, merged_log(log, plan.runs, merged.length), restarts_age=True)
