"""T1 over PostgreSQL.

Objects get committed and their batches get offsets, in two trips to the server.

The first trip inserts the objects, locks the logs and reads the producers. Python decides. The second trip
stores the decision and commits. The offsets are thus known before COMMIT is sent: if its answer is lost,
the same keys are inserted again. The unique index makes that wait for a backend still at work, and a row
that is there already says that the first attempt succeeded.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.pq import TransactionStatus

from ...postgres.pool import Connection
from .commit_rules import Decision, ProducerKey, decide_commit, log_ids, producer_keys
from .meta import (
    CommitAnswer,
    CommitUnknown,
    LogRow,
    ObjectFenced,
    ObjectWrite,
    PartitionId,
    ProducerRow,
)

# One batch of ``producer_state.recent``: base sequence, last sequence, base offset.
_BATCH = struct.Struct(">iiq")
LOG_COLUMNS = (
    "l.log_id, l.topic_id, l.part, l.log_start, l.next_offset, l.size_bytes, l.unmerged_bytes, l.merged_until"
)

_INSERT_OBJECTS = """
    INSERT INTO objects (key, state, store, size, uploader)
    SELECT key, 'c', store, size, uploader
    FROM unnest(%s::text[], %s::smallint[], %s::bigint[], %s::uuid[]) AS o (key, store, size, uploader)
    ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING key, object_id
"""
_LOCK_LOGS = f"""
    SELECT {LOG_COLUMNS} FROM logs l
    WHERE l.log_id = ANY (%s::bigint[]) AND l.deleted_at IS NULL
    ORDER BY l.log_id FOR UPDATE
"""
_READ_PRODUCERS = """
    SELECT p.log_id, p.producer_id, p.epoch, p.is_whole, p.recent
    FROM unnest(%s::bigint[], %s::bigint[]) AS k (log_id, producer_id)
    JOIN producer_state p USING (log_id, producer_id)
"""
# A new version of a named producer waits for the commits of the one before, and fences those that come after it.
_READ_NAMED = """
    SELECT producer_id, epoch FROM named_producers WHERE producer_id = ANY (%s::bigint[])
    ORDER BY producer_id FOR SHARE
"""
_STORE = """
    WITH moved AS (
        UPDATE logs l
        SET next_offset = n.next_offset, size_bytes = n.size_bytes, unmerged_bytes = n.unmerged_bytes,
            unmerged_since = CASE WHEN l.unmerged_bytes = 0 THEN now() ELSE l.unmerged_since END
        FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
            AS n (log_id, next_offset, size_bytes, unmerged_bytes)
        WHERE l.log_id = n.log_id
    )
    INSERT INTO batches (log_id, base_offset, last_offset, object_id, pos, len, max_ts)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::int[], %s::bigint[])
"""
_STORE_PRODUCERS = """
    INSERT INTO producer_state (log_id, producer_id, epoch, is_whole, recent, last_at)
    SELECT log_id, producer_id, epoch, is_whole, recent, now()
    FROM unnest(%s::bigint[], %s::bigint[], %s::smallint[], %s::boolean[], %b::bytea[])
        AS p (log_id, producer_id, epoch, is_whole, recent)
    ON CONFLICT (log_id, producer_id) DO UPDATE
    SET epoch = EXCLUDED.epoch, is_whole = EXCLUDED.is_whole, recent = EXCLUDED.recent, last_at = EXCLUDED.last_at
"""
_SUSPECT = "INSERT INTO suspects (object_id) SELECT * FROM unnest(%s::bigint[])"
STORE_INLINE: LiteralString = "INSERT INTO inline_objects (key, data) VALUES (%s, %b)"
_STATES = "SELECT key, state::text FROM objects WHERE key = ANY (%s::text[])"


def commit_objects(
    connection: Connection, objects: Sequence[ObjectWrite], computed: CommitAnswer | None
) -> CommitAnswer:
    """See ``Meta.commit_objects``.

    Raises also ``psycopg.Error``, which means that nothing was committed.
    """
    inserted, logs, producers, named_epochs = _first_trip(connection, objects)
    if len(inserted) < len(objects):
        states = dict(connection.execute(_STATES, ([written.key for written in objects],)).fetchall())
        connection.execute("ROLLBACK", prepare=False)
        return _answer_of_earlier(objects, set(inserted), states, computed)
    decision = decide_commit(objects, logs, producers, named_epochs)
    _second_trip(connection, objects, inserted, decision)
    return decision.answer


def _first_trip(
    connection: Connection, objects: Sequence[ObjectWrite]
) -> tuple[dict[str, int], dict[int, LogRow], dict[ProducerKey, ProducerRow], dict[int, int]]:
    keys = producer_keys(objects)
    with connection.pipeline():
        connection.execute("BEGIN", prepare=False)
        inserted = connection.execute(
            _INSERT_OBJECTS,
            (
                [written.key for written in objects],
                [written.store.value for written in objects],
                [written.size for written in objects],
                [written.uploader for written in objects],
            ),
            prepare=True,
            binary=True,
        )
        logs = connection.execute(_LOCK_LOGS, (log_ids(objects),), prepare=True, binary=True)
        producers = named = None
        if keys:
            producers = connection.execute(
                _READ_PRODUCERS,
                ([key.log_id for key in keys], [key.producer_id for key in keys]),
                prepare=True,
                binary=True,
            )
            named = connection.execute(
                _READ_NAMED, (sorted({key.producer_id for key in keys}),), prepare=True, binary=True
            )
        return (
            dict(inserted.fetchall()),
            {row[0]: log_row(row) for row in logs},
            {} if producers is None else dict(_producer(row) for row in producers),
            {} if named is None else dict(named.fetchall()),
        )


def _second_trip(
    connection: Connection, objects: Sequence[ObjectWrite], inserted: Mapping[str, int], decision: Decision
) -> None:
    ids = [inserted[written.key] for written in objects]
    logs, runs = decision.logs.values(), decision.runs
    used = {run.object_at for run in runs}
    unused = [object_id for at, object_id in enumerate(ids) if at not in used]
    is_commit_sent = False
    try:
        with connection.pipeline():
            if runs:
                connection.execute(
                    _STORE,
                    (
                        [log.log_id for log in logs],
                        [log.next_offset for log in logs],
                        [log.size_bytes for log in logs],
                        [log.unmerged_bytes for log in logs],
                        [run.log_id for run in runs],
                        [run.base_offset for run in runs],
                        [run.last_offset for run in runs],
                        [ids[run.object_at] for run in runs],
                        [run.position for run in runs],
                        [run.length for run in runs],
                        [run.max_timestamp for run in runs],
                    ),
                    prepare=True,
                )
            if decision.producers:
                keys, rows = decision.producers.keys(), decision.producers.values()
                connection.execute(
                    _STORE_PRODUCERS,
                    (
                        [key.log_id for key in keys],
                        [key.producer_id for key in keys],
                        [row.epoch for row in rows],
                        [row.is_whole for row in rows],
                        [b"".join(_BATCH.pack(*batch) for batch in row.batches) for row in rows],
                    ),
                    prepare=True,
                )
            if unused:
                connection.execute(_SUSPECT, (unused,), prepare=True)
            for written in objects:
                if written.inline is not None:
                    connection.execute(STORE_INLINE, (written.key, written.inline), prepare=True)
            # While COMMIT waits for a synchronous standby, a statement_timeout would make it report success
            # without the standby.
            connection.execute("SET LOCAL statement_timeout = 0", prepare=False)
            is_commit_sent = True
            connection.execute("COMMIT", prepare=False)
    except psycopg.Error as error:
        # COMMIT has certainly had no effect if the server says that the transaction has failed. Any other state
        # proves nothing: the server may end a session between COMMIT and the end of the pipeline.
        if is_commit_sent and connection.info.transaction_status != TransactionStatus.INERROR:
            raise CommitUnknown(decision.answer) from error
        raise


def _answer_of_earlier(
    objects: Sequence[ObjectWrite],
    inserted: set[str],
    states: Mapping[str, str],
    computed: CommitAnswer | None,
) -> CommitAnswer:
    """Return what an earlier attempt computed, if all of its objects were committed."""
    fenced = [key for key, state in states.items() if state == "f"]
    if fenced:
        raise ObjectFenced(sorted(fenced))
    assert computed is not None, "objects are committed again, without the answer of the first time"
    assert not inserted, "the objects of a repeated commit are not those of the first time"
    return computed


def log_row(row: Sequence[Any]) -> LogRow:
    """Return a log from ``LOG_COLUMNS``."""
    log_id, topic_id, part, log_start, next_offset, size_bytes, unmerged_bytes, merged_until = row
    return LogRow(
        log_id=log_id,
        partition_id=PartitionId(topic_id, part),
        log_start=log_start,
        next_offset=next_offset,
        size_bytes=size_bytes,
        unmerged_bytes=unmerged_bytes,
        merged_until=merged_until,
    )


def _producer(row: Sequence[Any]) -> tuple[ProducerKey, ProducerRow]:
    log_id, producer_id, epoch, is_whole, recent = row
    return ProducerKey(log_id, producer_id), ProducerRow(producer_id, epoch, is_whole, batches_of(recent), -1)


def batches_of(recent: bytes) -> tuple[tuple[int, int, int], ...]:
    """Return the batches of ``producer_state.recent``."""
    return tuple(_BATCH.iter_unpack(recent))
