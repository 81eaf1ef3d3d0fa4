"""The transactions that brokers share, in PostgreSQL (ADR-0055).

An update locks the rows of its transactional ids by ascending producer id, as commits of batches do, and the logs
after them. So a batch that was admitted is in the log when the end of its transaction looks there, and one that comes
later finds the transaction ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, LiteralString, TypeAlias, TypeVar
from uuid import UUID

from psycopg import Cursor

from ...errors import CoordinatorNotAvailable, IdempotencyKeyInUse
from ...postgres.connector import Connection, PostgresUnavailable
from ...postgres.pool import PostgresPool
from ..shared_transactions import (
    Decide,
    EndOfTransaction,
    OpenInLog,
    PartitionKey,
    SharedTransactionCounts,
    TransactionUpdate,
    Updated,
)
from ..transaction_rows import TRANSACTION_COLUMNS, record_of, values_of
from ..transaction_store import StoredAnswer, TransactionRecord

_T = TypeVar("_T")

# Appends markers to the logs with open transactions of producers (id, epoch, whether committed) at a time in ms, within
# the transaction of the connection; returns their partitions.
AppendMarkers: TypeAlias = Callable[
    [Connection, Sequence[tuple[int, int, bool]], int], Sequence[PartitionKey]
]

_RETRY_S = 10.0
_PAUSE_S = 0.05
_ROWS_MAX = 1000

_NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
# In which history a row got its producer id and epoch. A later one may have forgotten that the next epochs were given out.
_HISTORY = "(SELECT epoch FROM history)"
_READ = f"SELECT {TRANSACTION_COLUMNS}, history < {_HISTORY} FROM transactional_ids"
_LOCK = f"{_READ} WHERE transactional_id = ANY (%s::bytea[]) ORDER BY producer_id FOR UPDATE"
_INSERT = f"""
    INSERT INTO transactional_ids ({TRANSACTION_COLUMNS}, history)
    VALUES ({"%s, " * len(TRANSACTION_COLUMNS.split(", "))}{_HISTORY})
    ON CONFLICT (transactional_id) DO NOTHING
"""
_UPDATE = f"""
    UPDATE transactional_ids SET producer_id = %s, epoch = %s, previous_producer_id = %s, last_epoch = %s,
        timeout_ms = %s, state = %s, started_at_ms = %s, updated_at_ms = %s, partitions = %s, groups = %s,
        history = CASE WHEN producer_id = %s AND epoch = %s THEN history ELSE {_HISTORY} END
    WHERE transactional_id = %s
"""
_END_OFFSETS = """
    UPDATE group_pending_offsets SET outcome = %s
    WHERE producer_id = %s AND producer_epoch = %s AND outcome IS NULL
"""
_INSERT_ANSWER = """
    INSERT INTO transaction_answers (key, digest, answer, created_at_ms) VALUES (%s, %s, %s, %s)
    ON CONFLICT (key) DO UPDATE SET digest = EXCLUDED.digest, answer = EXCLUDED.answer,
        created_at_ms = EXCLUDED.created_at_ms
    WHERE transaction_answers.created_at_ms <= EXCLUDED.created_at_ms - %s
"""
_OPEN_IN_LOGS = """
    SELECT l.topic_id, l.part, t.transactional_id, o.producer_id, p.epoch, o.first_offset,
        CASE WHEN t.producer_id IS NULL THEN (extract(epoch FROM p.last_at) * 1000)::bigint ELSE t.started_at_ms END
    FROM open_transactions o
    JOIN logs l USING (log_id)
    JOIN producer_state p USING (log_id, producer_id)
    LEFT JOIN transactional_ids t ON t.producer_id = o.producer_id AND t.state = 'Ongoing'
    WHERE l.deleted_at IS NULL
        AND (%(topic_id)s::uuid IS NULL OR (l.topic_id, l.part) = (%(topic_id)s, %(part)s))
        AND (%(producer_id)s::bigint IS NULL OR o.producer_id = %(producer_id)s)
    ORDER BY l.log_id, o.first_offset
"""
_OVERDUE = f"""
    SELECT transactional_id FROM transactional_ids
    WHERE state = 'Ongoing' AND started_at_ms + timeout_ms < {_NOW_MS} ORDER BY started_at_ms LIMIT %s
"""
_EXPIRE = f"""
    DELETE FROM transactional_ids WHERE transactional_id IN (
        SELECT transactional_id FROM transactional_ids
        WHERE state <> 'Ongoing' AND updated_at_ms < {_NOW_MS} - %s LIMIT %s FOR UPDATE SKIP LOCKED)
"""
_EXPIRE_ANSWERS = f"""
    DELETE FROM transaction_answers WHERE key IN (
        SELECT key FROM transaction_answers WHERE created_at_ms < {_NOW_MS} - %s LIMIT %s)
"""
_TRIM_ANSWERS = """
    DELETE FROM transaction_answers WHERE key IN (
        SELECT key FROM transaction_answers ORDER BY created_at_ms DESC OFFSET %s LIMIT %s)
"""
_COUNTS = f"""
    SELECT count(*), count(*) FILTER (WHERE state = 'Ongoing'),
        coalesce({_NOW_MS} - min(started_at_ms) FILTER (WHERE state = 'Ongoing'), 0)
    FROM transactional_ids
"""


class _Raced(Exception):
    """Another broker has stored a new transactional id at the same time."""


class PostgresTransactions:
    """Implements ``SharedTransactionStore`` over the connections of ``pool``."""

    def __init__(self, pool: PostgresPool, append_markers: AppendMarkers) -> None:
        self._pool = pool
        self._append_markers = append_markers

    async def _run(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work`` until it succeeds, for a while.

        It is a transaction that may be repeated after it had effect.
        """
        give_up_s = time.monotonic() + _RETRY_S
        while True:
            try:
                return await self._pool.run(work)
            except _Raced:
                continue
            except PostgresUnavailable as error:
                if time.monotonic() >= give_up_s:
                    raise CoordinatorNotAvailable(str(error)) from error
            await asyncio.sleep(_PAUSE_S)

    async def update(self, ids: Collection[str], decide: Decide[_T]) -> Updated[_T]:
        names = [name.encode() for name in ids]

        def work(connection: Connection) -> Updated[_T]:
            # The pool ends a transaction that an error leaves open. Results are fetched after each pipeline: within
            # it, that would be a trip of its own.
            with connection.pipeline():
                connection.execute("BEGIN", prepare=False)
                clock = connection.execute(f"SELECT {_NOW_MS}, {_HISTORY}", prepare=True)
                rows = connection.execute(_LOCK, (names,), prepare=True)
            records = {record.transactional_id: record for record in map(_record, rows)}
            now_ms, history = clock.fetchone() or (0, 0)
            update = decide(records, now_ms)
            return self._apply(connection, records, update, now_ms, history)

        return await self._run(work)

    def _apply(
        self,
        connection: Connection,
        before: Collection[str],
        update: TransactionUpdate[_T],
        now_ms: int,
        history: int,
    ) -> Updated[_T]:
        known = [record for record in update.records if record.transactional_id in before]
        new = [record for record in update.records if record.transactional_id not in before]
        # What may prevent the commit must be known before it.
        is_certain = not new and update.answer is None and not update.ends
        inserted_answer = None
        with connection.pipeline():
            for record in known:
                name = record.transactional_id.encode()
                connection.execute(
                    _UPDATE, (*values_of(record), record.producer_id, record.epoch, name), prepare=True
                )
            inserted = [
                connection.execute(
                    _INSERT, (record.transactional_id.encode(), *values_of(record)), prepare=True
                )
                for record in new
            ]
            if update.answer is not None:
                inserted_answer = _insert_answer(connection, update.answer, update.answer_kept_ms)
            ended_offsets = [_end_offsets(connection, end) for end in update.ends]
            if is_certain:
                _commit(connection)
        if any(result.rowcount == 0 for result in inserted):
            raise _Raced
        if update.answer is not None and inserted_answer is not None and inserted_answer.rowcount == 0:
            raise IdempotencyKeyInUse(update.answer.key.partition("\n")[2])
        partitions: Sequence[PartitionKey] = ()
        if update.ends:
            ended = [(end.producer_id, end.marker_epoch, end.is_commit) for end in update.ends]
            partitions = self._append_markers(connection, ended, now_ms)
        if not is_certain:
            with connection.pipeline():
                _commit(connection)
        has_offsets = any(result.rowcount for result in ended_offsets)
        return Updated(result=update.result, history=history, partitions=partitions, has_offsets=has_offsets)

    async def records(self) -> list[TransactionRecord]:
        return [_record(row) for row in await self._rows(f"{_READ} ORDER BY transactional_id")]

    async def record(self, transactional_id: str) -> TransactionRecord | None:
        rows = await self._rows(f"{_READ} WHERE transactional_id = %s", (transactional_id.encode(),))
        return _record(rows[0]) if rows else None

    async def open_in_logs(
        self, *, partition: PartitionKey | None = None, producer_id: int | None = None
    ) -> list[OpenInLog]:
        topic_id, part = partition or (None, None)
        rows = await self._rows(
            _OPEN_IN_LOGS, {"topic_id": topic_id, "part": part, "producer_id": producer_id}
        )
        return [_open_in_log(*row) for row in rows]

    async def overdue(self, ids_max: int) -> list[str]:
        return [row[0].decode() for row in await self._rows(_OVERDUE, (ids_max,))]

    async def expire(self, unused_ms: int, answers_kept_ms: int, answers_max: int) -> int:
        def work(connection: Connection) -> int:
            connection.execute(_EXPIRE_ANSWERS, (answers_kept_ms, _ROWS_MAX))
            connection.execute(_TRIM_ANSWERS, (answers_max, _ROWS_MAX))
            return connection.execute(_EXPIRE, (unused_ms, _ROWS_MAX)).rowcount

        return await self._run(work)

    async def counts(self) -> SharedTransactionCounts:
        ((ids, open_, oldest_ms),) = await self._rows(_COUNTS)
        return SharedTransactionCounts(ids=ids, open=open_, oldest_ms=max(0, oldest_ms))

    async def answer(self, key: str, kept_ms: int) -> StoredAnswer | None:
        rows = await self._rows(
            f"SELECT digest, answer, created_at_ms FROM transaction_answers WHERE key = %s"
            f" AND created_at_ms > {_NOW_MS} - %s",
            (key.encode(), kept_ms),
        )
        for digest, answer, created_at_ms in rows:
            return StoredAnswer(key=key, digest=digest, answer=answer, created_at_ms=created_at_ms)
        return None

    async def _rows(self, query: LiteralString, given: Any = ()) -> list[tuple[Any, ...]]:
        return await self._run(lambda connection: connection.execute(query, given, prepare=True).fetchall())


def _record(row: Sequence[Any]) -> TransactionRecord:
    return record_of(row, epochs_may_repeat=row[-1])


def _commit(connection: Connection) -> None:
    # While COMMIT waits for a synchronous standby, a statement_timeout would make it report success without the
    # standby.
    connection.execute("SET LOCAL statement_timeout = 0", prepare=False)
    connection.execute("COMMIT", prepare=False)


def _end_offsets(connection: Connection, end: EndOfTransaction) -> Cursor[tuple[Any, ...]]:
    """Set the outcome of the pending offsets of a transaction.

    ``rowcount`` says how many there are.
    """
    return connection.execute(_END_OFFSETS, (end.is_commit, end.producer_id, end.epoch), prepare=True)


def _insert_answer(connection: Connection, answer: StoredAnswer, kept_ms: int) -> Cursor[tuple[Any, ...]]:
    """Store an answer; ``rowcount`` is 0 if its key has one."""
    given = (answer.key.encode(), answer.digest, answer.answer, answer.created_at_ms, kept_ms)
    return connection.execute(_INSERT_ANSWER, given, prepare=True)


def _open_in_log(
    topic_id: UUID,
    part: int,
    transactional_id: bytes | None,
    producer_id: int,
    epoch: int,
    first_offset: int,
    since_ms: int,
) -> OpenInLog:
    return OpenInLog(
        partition=(topic_id, part),
        transactional_id=None if transactional_id is None else transactional_id.decode(),
        producer_id=producer_id,
        producer_epoch=epoch,
        first_offset=first_offset,
        since_ms=since_ms,
    )
