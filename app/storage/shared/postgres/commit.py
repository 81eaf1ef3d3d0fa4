"""T1 over PostgreSQL: objects get committed and their batches get offsets, in two trips to the server.

The first trip inserts the objects, locks the logs and reads the producers. Python decides. The second trip
stores the decision and commits. The offsets are thus known before COMMIT is sent: if its answer is lost,
the same keys are inserted again. The unique index makes that wait for a backend still at work, and a row
that is there already says that the first attempt succeeded.

The durability of a commit is queried after it: while COMMIT waits for a standby, the wait may end without one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, LiteralString

import psycopg
from psycopg.pq import TransactionStatus
from stele.wire.messages import Durability

from ....postgres.connector import Connection
from ...topic_partition import TopicPartition
from ..commit_rules import (
    Decision,
    IdRow,
    ProducerKey,
    claimants,
    decide_commit,
    log_ids,
    logs_of_producers,
    producer_keys,
)
from ..meta import (
    CommitAnswer,
    CommitUnknown,
    CopyPhase,
    LogRow,
    ObjectFenced,
    ObjectWrite,
    PartitionId,
    ProducerRow,
)
from .runs import NOW_MS

# One batch of ``producer_state.recent``: base sequence, last sequence, base offset.
_BATCH = struct.Struct(">iiq")
# One of ``logs.copied_epochs``: leader epoch and first offset.
_EPOCH = struct.Struct(">iq")
# What the session promises of its next COMMIT: a ``Durability``.
_DURABILITY = (
    "SELECT CASE WHEN current_setting('synchronous_commit') = 'off' THEN 1"
    " WHEN current_setting('synchronous_commit') <> 'local' AND current_setting('synchronous_standby_names') <> ''"
    " THEN 3 ELSE 2 END"
)
# The last two are the same for all rows: one look per query.
LOG_COLUMNS = (
    "l.log_id, l.topic_id, l.part, l.log_start, l.next_offset, l.size_bytes, l.unmerged_bytes, l.merged_until, "
    "l.first_open, l.last_aborted, l.epoch, l.copy_phase, l.copied_epochs, (SELECT epoch FROM history), "
    f"({_DURABILITY})"
)
LOG_WIDTH = 15
EPOCH_COLUMNS = """
    ARRAY(SELECT e.epoch FROM log_epochs e WHERE e.log_id = l.log_id ORDER BY e.epoch),
    ARRAY(SELECT e.start_offset FROM log_epochs e WHERE e.log_id = l.log_id ORDER BY e.epoch)
"""

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
_READ_OPEN = (
    "SELECT log_id, producer_id, first_offset FROM open_transactions WHERE log_id = ANY (%s::bigint[])"
)
# A producer whose transaction may be torn is fenced before that is aborted, with all epochs that a lost part may have given
# out (ADR-0071): the last one is never that of a producer.
_LOCK_IDS = """
    SELECT producer_id, transactional_id, CASE WHEN timeout_ms < 0 THEN 32767 ELSE epoch END, state = 'Ongoing',
        partitions
    FROM transactional_ids
    WHERE producer_id = ANY (%s::bigint[]) ORDER BY producer_id FOR NO KEY UPDATE
"""
_BEGIN_TRANSACTIONS = f"""
    UPDATE transactional_ids SET state = 'Ongoing', started_at_ms = {NOW_MS}, updated_at_ms = {NOW_MS}
    WHERE producer_id = ANY (%s::bigint[])
"""
_STORE = """
    WITH moved AS (
        UPDATE logs l
        SET next_offset = n.next_offset, size_bytes = n.size_bytes, unmerged_bytes = n.unmerged_bytes,
            first_open = n.first_open, last_aborted = n.last_aborted, epoch = n.epoch,
            unmerged_since = CASE WHEN l.unmerged_bytes = 0 THEN now() ELSE l.unmerged_since END
        FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[])
            AS n (log_id, next_offset, size_bytes, unmerged_bytes, first_open, last_aborted, epoch)
        WHERE l.log_id = n.log_id
    )
    INSERT INTO batches (log_id, base_offset, last_offset, object_id, pos, len, max_ts, cleaned_until)
    SELECT * FROM unnest(
        %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::int[], %s::bigint[], %s::bigint[]
    )
"""
# The first records of a log in this history. Epochs are seconds: what retention has deleted needs none after a day, in
# which brokers that were paused may have come back.
_BEGIN_EPOCHS = """
    WITH begun AS (
        SELECT * FROM unnest(%s::bigint[], %s::int[], %s::bigint[], %s::bigint[])
            AS b (log_id, epoch, start_offset, log_start)
    ), gone AS (
        DELETE FROM log_epochs e USING begun b
        WHERE e.log_id = b.log_id AND e.epoch < b.epoch - 86400 AND EXISTS (
            SELECT FROM log_epochs later
            WHERE later.log_id = e.log_id AND later.epoch > e.epoch AND later.start_offset <= b.log_start
        )
    )
    INSERT INTO log_epochs (log_id, epoch, start_offset) SELECT log_id, epoch, start_offset FROM begun
"""
_STORE_PRODUCERS = """
    INSERT INTO producer_state (log_id, producer_id, epoch, is_whole, recent, last_at)
    SELECT log_id, producer_id, epoch, is_whole, recent, now()
    FROM unnest(%s::bigint[], %s::bigint[], %s::smallint[], %s::boolean[], %b::bytea[])
        AS p (log_id, producer_id, epoch, is_whole, recent)
    ON CONFLICT (log_id, producer_id) DO UPDATE
    SET epoch = EXCLUDED.epoch, is_whole = EXCLUDED.is_whole, recent = EXCLUDED.recent, last_at = EXCLUDED.last_at
"""
_CLOSE = """
    DELETE FROM open_transactions o USING unnest(%s::bigint[], %s::bigint[]) AS c (log_id, producer_id)
    WHERE (o.log_id, o.producer_id) = (c.log_id, c.producer_id)
"""
_OPEN = """
    INSERT INTO open_transactions (log_id, producer_id, first_offset)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT (log_id, producer_id) DO UPDATE SET first_offset = EXCLUDED.first_offset
"""
_STORE_ABORTED = """
    INSERT INTO aborted_transactions (log_id, last_offset, producer_id, first_offset)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
"""
STORE_COPY = "UPDATE logs SET copy_phase = %s, copied_epochs = %b WHERE log_id = %s"
LIST_PRODUCERS = """
    SELECT producer_id, epoch, is_whole, recent, (extract(epoch FROM last_at) * 1000)::bigint, first_offset
    FROM producer_state LEFT JOIN open_transactions USING (log_id, producer_id)
    WHERE log_id = %s ORDER BY producer_id
"""
_SUSPECT = "INSERT INTO suspects (object_id) SELECT * FROM unnest(%s::bigint[])"
STORE_INLINE: LiteralString = "INSERT INTO inline_objects (key, data) VALUES (%s, %b)"
# The lock writes to the WAL, so the COMMIT after it waits for a standby as the one before may not have done.
_STATES = "SELECT key, state::text FROM objects WHERE key = ANY (%s::text[]) ORDER BY key FOR NO KEY UPDATE"


@dataclass(frozen=True, slots=True)
class _Known:
    """The result of the first round trip; ``inserted`` has the ids of the objects by key."""

    inserted: dict[str, int]
    logs: dict[int, LogRow]
    producers: dict[ProducerKey, ProducerRow]
    opened: dict[ProducerKey, int]
    named_epochs: dict[int, int]
    ids: dict[int, IdRow]

    def decide(self, objects: Sequence[ObjectWrite]) -> Decision:
        return decide_commit(objects, self.logs, self.producers, self.opened, self.named_epochs, self.ids)


def commit_objects(
    connection: Connection, objects: Sequence[ObjectWrite], computed: CommitAnswer | None
) -> CommitAnswer:
    """See ``Meta.commit_objects``; raises also ``psycopg.Error``, which means that nothing was committed."""
    known = _first_trip(connection, objects, begins=True)
    if len(known.inserted) < len(objects):
        return _commit_again(connection, objects, set(known.inserted), computed)
    decision = known.decide(objects)
    return _end(connection, decision.answer, lambda: _store(connection, objects, known, decision))


def _end(
    connection: Connection, answer: CommitAnswer, store: Callable[[], None] = lambda: None
) -> CommitAnswer:
    """Commit after ``store``, in one trip, and return what the commit promises.

    That is ``answer``, perhaps with a lower durability.

    The wait of a COMMIT for a standby may end without one: ``synchronous_standby_names`` is emptied, or an
    administrator cancels it. Neither is an error, so the setting is read once more, and a warning counts.
    """
    warnings: list[str] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(notice.message_primary or "")

    is_commit_sent = False
    connection.add_notice_handler(note)
    try:
        with connection.pipeline():
            store()
            # While COMMIT waits for a synchronous standby, a statement_timeout would make it report success
            # without the standby.
            connection.execute("SET LOCAL statement_timeout = 0", prepare=False)
            is_commit_sent = True
            connection.execute("COMMIT", prepare=False)
            promised = connection.execute(_DURABILITY, prepare=True)
        row = promised.fetchone()
    except psycopg.Error as error:
        # COMMIT has certainly had no effect if the server says that the transaction has failed. Any other state
        # proves nothing: the server may end a session between COMMIT and the end of the pipeline.
        if is_commit_sent and connection.info.transaction_status != TransactionStatus.INERROR:
            raise CommitUnknown(answer) from error
        raise
    finally:
        connection.remove_notice_handler(note)
    assert row is not None
    durability = Durability(row[0])
    return _limited(answer, min(durability, Durability.SYNCED) if warnings else durability)


def _limited(answer: CommitAnswer, durability: Durability) -> CommitAnswer:
    """Return an answer that promises no more than ``durability``."""
    if all(place.log is None or place.log.durability <= durability for runs in answer for place in runs):
        return answer
    return [
        [
            place
            if place.log is None
            else replace(place, log=replace(place.log, durability=min(place.log.durability, durability)))
            for place in runs
        ]
        for runs in answer
    ]


def place_objects(connection: Connection, objects: Sequence[ObjectWrite]) -> CommitAnswer:
    """Give new objects their offsets within the caller's transaction.

    Raises ``psycopg.Error``.
    """
    known = _first_trip(connection, objects, begins=False)
    decision = known.decide(objects)
    with connection.pipeline():
        _store(connection, objects, known, decision)
    return decision.answer


def _first_trip(connection: Connection, objects: Sequence[ObjectWrite], *, begins: bool) -> _Known:
    keys, claiming = producer_keys(objects), claimants(objects)
    with connection.pipeline():
        if begins:
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
        ids = producers = opened = named = None
        if claiming:
            # Before the logs, as the end of a transaction locks them: so no batch slips in after it.
            ids = connection.execute(_LOCK_IDS, (claiming,), prepare=True, binary=True)
        logs = connection.execute(_LOCK_LOGS, (log_ids(objects),), prepare=True, binary=True)
        if keys:
            producers = connection.execute(
                _READ_PRODUCERS,
                ([key.log_id for key in keys], [key.producer_id for key in keys]),
                prepare=True,
                binary=True,
            )
            opened = connection.execute(_READ_OPEN, (logs_of_producers(objects),), prepare=True, binary=True)
            named = connection.execute(
                _READ_NAMED, (sorted({key.producer_id for key in keys}),), prepare=True, binary=True
            )
    # After the end of the pipeline, which brings all results: to fetch one before would be a trip of its own.
    return _Known(
        inserted=dict(inserted.fetchall()),
        logs={row[0]: log_row(row) for row in logs},
        producers={} if producers is None else dict(_producer(row) for row in producers),
        opened={} if opened is None else {ProducerKey(*row[:2]): row[2] for row in opened},
        named_epochs={} if named is None else dict(named.fetchall()),
        ids={} if ids is None else {row[0]: _id_row(row) for row in ids},
    )


def _store(connection: Connection, objects: Sequence[ObjectWrite], known: _Known, decision: Decision) -> None:
    ids = [known.inserted[written.key] for written in objects]
    logs, runs = decision.logs.values(), decision.runs
    used = {run.object_at for run in runs}
    unused = [object_id for at, object_id in enumerate(ids) if at not in used]
    if runs:
        connection.execute(
            _STORE,
            (
                [log.log_id for log in logs],
                [log.next_offset for log in logs],
                [log.size_bytes for log in logs],
                [log.unmerged_bytes for log in logs],
                [log.first_open for log in logs],
                [log.last_aborted for log in logs],
                [_epoch_of(log) for log in logs],
                [run.log_id for run in runs],
                [run.base_offset for run in runs],
                [run.last_offset for run in runs],
                [ids[run.object_at] for run in runs],
                [run.position for run in runs],
                [run.length for run in runs],
                [run.max_timestamp for run in runs],
                [run.cleaned_until or None for run in runs],
            ),
            prepare=True,
        )
        for log in logs:
            before = known.logs[log.log_id]
            if (log.copy_phase, log.copied_epochs) != (before.copy_phase, before.copied_epochs):
                connection.execute(STORE_COPY, copy_values(log), prepare=True)
        begun = [known.logs[log.log_id] for log in logs if log.epoch < _epoch_of(log)]
        if begun:
            connection.execute(
                _BEGIN_EPOCHS,
                _columns([(log.log_id, log.history, log.next_offset, log.log_start) for log in begun]),
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
    _store_transactions(connection, decision)
    if unused:
        connection.execute(_SUSPECT, (unused,), prepare=True)
    for written in objects:
        if written.inline is not None:
            connection.execute(STORE_INLINE, (written.key, written.inline), prepare=True)


def _store_transactions(connection: Connection, decision: Decision) -> None:
    if decision.closed:
        connection.execute(_CLOSE, _columns(decision.closed), prepare=True)
    if decision.opened:
        connection.execute(
            _OPEN,
            _columns([(*key, first_offset) for key, first_offset in decision.opened.items()]),
            prepare=True,
        )
    if decision.aborted:
        connection.execute(
            _STORE_ABORTED,
            _columns(
                [
                    (log_id, aborted.last_offset, aborted.producer_id, aborted.first_offset)
                    for log_id, aborted in decision.aborted
                ]
            ),
            prepare=True,
        )
    if decision.begun:
        connection.execute(_BEGIN_TRANSACTIONS, (decision.begun,), prepare=True)


def _columns(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _commit_again(
    connection: Connection,
    objects: Sequence[ObjectWrite],
    inserted: set[str],
    computed: CommitAnswer | None,
) -> CommitAnswer:
    """Return what an earlier attempt computed, if all of its objects were committed.

    It may have ended before a standby had it, so this one waits for the standby.
    """
    states = dict(connection.execute(_STATES, ([written.key for written in objects],)).fetchall())
    fenced = [key for key, state in states.items() if state == "f"]
    if fenced:
        connection.execute("ROLLBACK", prepare=False)
        raise ObjectFenced(sorted(fenced))
    assert computed is not None, "objects are committed again, without the answer of the first time"
    assert not inserted, "the objects of a repeated commit are not those of the first time"
    return _end(connection, computed)


def log_row(row: Sequence[Any]) -> LogRow:
    """Return a log from ``LOG_COLUMNS``, and ``EPOCH_COLUMNS`` if the query has them."""
    log_id, topic_id, part, log_start, next_offset, size_bytes, unmerged_bytes, merged_until, *rest = row
    first_open, last_aborted, epoch, copy_phase, copied_epochs, history, durability, *epochs = rest
    return LogRow(
        log_id=log_id,
        partition_id=PartitionId(topic_id, part),
        log_start=log_start,
        next_offset=next_offset,
        size_bytes=size_bytes,
        unmerged_bytes=unmerged_bytes,
        merged_until=merged_until,
        first_open=first_open,
        last_aborted=last_aborted,
        history=history,
        epoch=epoch,
        epochs=tuple(zip(*epochs, strict=True)) if epochs else (),
        durability=Durability(durability),
        copy_phase=CopyPhase(copy_phase),
        copied_epochs=tuple(_EPOCH.iter_unpack(copied_epochs)) if copied_epochs else (),
    )


def copy_values(log: LogRow) -> tuple[int, bytes, int]:
    """Return the values of ``STORE_COPY``."""
    return log.copy_phase.value, b"".join(_EPOCH.pack(*entry) for entry in log.copied_epochs), log.log_id


def _epoch_of(log: LogRow) -> int:
    """Return the newest history in which a log that gets batches has some of its own; a copy has those of its source."""
    return log.epoch if log.copy_phase is CopyPhase.COPIED else log.history


def _producer(row: Sequence[Any]) -> tuple[ProducerKey, ProducerRow]:
    log_id, producer_id, epoch, is_whole, recent = row
    return ProducerKey(log_id, producer_id), ProducerRow(
        producer_id, epoch, is_whole, _batches_of(recent), -1
    )


def _id_row(row: Sequence[Any]) -> IdRow:
    _, transactional_id, epoch, is_ongoing, partitions = row
    return IdRow(
        transactional_id.decode(),
        epoch,
        is_ongoing,
        frozenset(TopicPartition(*pair) for pair in json.loads(partitions)),
    )


def listed_producer(row: Sequence[Any]) -> ProducerRow:
    """Return a producer from ``LIST_PRODUCERS``."""
    producer_id, epoch, is_whole, recent, last_ms, first_open = row
    return ProducerRow(
        producer_id, epoch, is_whole, _batches_of(recent), last_ms, -1 if first_open is None else first_open
    )


def _batches_of(recent: bytes) -> tuple[tuple[int, int, int], ...]:
    """Return the batches of ``producer_state.recent``."""
    return tuple(_BATCH.iter_unpack(recent))
