"""Changes of PostgreSQL → topics: runs that end at the first failure, and begin again from what is stored.

A run: take the lock, check what is set up, find or make the slot, begin a version of
the producer, copy the tables that no run has copied, follow the slot. Nothing is kept
in memory that a run could not find again, so a crash anywhere is the same as a restart
(ADR-0016).
"""

from __future__ import annotations

import json
import logging
import os
import select
import threading
import time
import uuid
from typing import Any, Literal, NoReturn, cast

from ..client import Client
from ..errors import InvalidRequestError, ProducerStateError, SteleClientError
from ..transport.base import retry_pause_s
from . import state as state_of
from .events import EVENT_ID, Event, Headers, Position, Table, source_of
from .log_writer import FLUSH_BYTES, LogWriter
from .options import CdcOptions
from .pgoutput import (
    Begin,
    Commit,
    Message,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamStart,
    Truncate,
    decode,
)
from .postgres import (
    CdcError,
    Interrupted,
    Postgres,
    Stream,
    TableInfo,
    break_connections,
    copy_rows,
    lsn_text,
    snapshot_connection,
    split_name,
    translated,
)
from .snapshot import parse_line
from .spool import Spool
from .status import Status

logger = logging.getLogger("stele.cdc")

_PAUSE_MAX_S = 30.0
# How often PostgreSQL hears what is safe while changes come, and at least.
_CONFIRM_S = 0.1
# How long a call may hold up the end.
_GRACE_S = 5.0
_LAG_S = 2.0
# Messages handled between two looks at what else there is to do.
_TURN = 500


class Stopped(Exception):
    """The run was asked to end."""


class Connector:
    """``run`` works until ``stop`` is called from another thread or a signal's handler."""

    def __init__(self, options: CdcOptions, status: Status) -> None:
        self._options = options
        self._status = status
        self._stopping = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        self._client: Client | None = None
        # --snapshot again is meant once, not for every run after a failure.
        self._again = _full_names(options) if options.snapshot == "again" else set[str]()

    def stop(self) -> None:
        """End ``run`` soon: what was read is stored and confirmed, if PostgreSQL and the broker answer in time."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        os.write(self._wake_write, b"x")
        # It may wait for a lock, for open transactions, or for a peer that hangs: none of them hears the word.
        breaking = threading.Timer(_GRACE_S, self._break)
        breaking.daemon = True
        breaking.start()

    def _break(self) -> None:
        break_connections()
        client = self._client
        if client is not None:
            client.close()

    def close(self) -> None:
        os.close(self._wake_read)
        os.close(self._wake_write)

    def run(self) -> None:
        """Returns when stopped. Raises CdcError, SteleClientError, OSError for what waiting does not mend."""
        failures = 0
        while not self._stopping.is_set():
            stored_before = self._status.events
            try:
                self._run_once()
            except Stopped:
                break
            except (Interrupted, ProducerStateError) as error:
                cause: Exception = error
            except SteleClientError as error:
                if self._stopping.is_set():
                    break
                if not error.retriable:
                    raise
                cause = error
            else:
                continue
            failures = 0 if self._status.events > stored_before else failures + 1
            pause_s = min(_PAUSE_MAX_S, retry_pause_s(failures) * 4)
            if self._stopping.is_set():
                break
            self._status.failed(cause)
            logger.warning("%s; going on in %.1f s", cause, pause_s)
            self._stopping.wait(pause_s)
        self._status.state = "stopped"

    def _run_once(self) -> None:
        self._status.state = "connecting"
        postgres = Postgres(self._options)
        try:
            postgres.take_lock()
            with Client(self._options.broker) as client:
                self._client = client
                Run(
                    self._options,
                    self._status,
                    postgres,
                    client,
                    self._stopping,
                    self._wake_read,
                    self._again,
                ).go()
        finally:
            self._client = None
            postgres.close()


class Run:
    """One attempt, from connecting to the first failure or the end."""

    def __init__(
        self,
        options: CdcOptions,
        status: Status,
        postgres: Postgres,
        client: Client,
        stopping: threading.Event,
        wake: int,
        again: set[str],
    ) -> None:
        self._options = options
        self._status = status
        self._postgres = postgres
        self._client = client
        self._stopping = stopping
        self._wake = wake
        self._again = again
        self._stream: Stream | None = None
        self._origin = state_of.Origin(*postgres.identity())
        self._state = state_of.load(client, options.state_topic)
        # Before anything is fenced: a connector to another database by mistake must not stop the right one.
        self._check_origin()
        self._writer = self._begin_writer()
        self._notebook = state_of.Notebook(self._writer, options.state_topic)
        if self._state.origin is None:
            self._notebook.note("origin", self._origin, now_ms=_now_ms())
        self._keep_alive_s = postgres.keep_alive_s()
        # OIDs of the tables that are followed, as they were when the run began.
        self._table_ids: dict[str, int] = {}
        self._tables: dict[int, Table] = {}
        # What is in the copy of a table is not told again by the stream.
        self._copied_lsn: dict[str, int] = {}
        self._wanted = _full_names(options)
        self._spools: dict[int, Spool] = {}
        self._spool: Spool | None = None
        self._transaction: Begin | None = None
        self._source = b""
        self._last_change_lsn = -1
        self._number = 0
        # Everything before it is handled; safe once the writer is flushed.
        self._handled_lsn = 0
        self._confirmed_s = 0.0
        self._flushed_s = 0.0
        self._lag_s = 0.0

    def go(self) -> None:
        """Raises Stopped, Interrupted, CdcError, SteleClientError."""
        try:
            if self._options.tables:
                self._prepare()
            if self._options.channels:
                self._listen()
            self._status.state = "streaming"
            self._follow()
        except CdcError as error:
            if (
                "publication" in str(error)
                and "does not exist" in str(error)
                and self._postgres.has_publication()
            ):
                raise CdcError(
                    f"publication {self._options.publication} was made after changes that are still to be read, and "
                    f"PostgreSQL looks for it as it was then: SELECT pg_drop_replication_slot('{self._options.slot}'), "
                    "and run once with --snapshot again"
                ) from error
            raise
        finally:
            if self._stream is not None:
                self._stream.close()
            for spool in self._spools.values():
                spool.close()

    def _begin_writer(self) -> LogWriter:
        options = self._options
        try:
            return LogWriter(
                self._client,
                name=options.producer_name(self._origin.system, self._origin.database),
                version=self._postgres.run_number(),
                partitions=options.partitions,
                configs=options.topic_configs,
                patience_s=options.patience_s,
                pause=self._pause,
            )
        except InvalidRequestError as error:
            raise CdcError(
                f"{error}. Versions are transaction ids of PostgreSQL: was it restored from a backup? Then begin anew "
                "with another --prefix"
            ) from error

    def _pause(self, seconds: float) -> None:
        """Between two attempts to store: the broker is away, and PostgreSQL must not think that we are too."""
        if self._stopping.wait(seconds):
            raise Stopped
        if self._stream is not None and self._confirmed_s:
            self._stream.confirm(self._status.confirmed_lsn)

    # ── slot and copies ──

    def _prepare(self) -> None:
        options, postgres = self._options, self._postgres
        postgres.check_settings()
        postgres.check_tables()
        postgres.ensure_publication()
        state = self._state
        self._table_ids = postgres.table_ids()
        wanted = sorted(self._wanted)
        self._leave(set(state.tables) - self._wanted)
        for name in wanted:
            if name not in state.tables:
                self._writer.check_owner(options.topic_of(*split_name(name)))
        todo = [name for name in wanted if self._must_copy(name)]
        slot = postgres.slot()
        stream = self._stream = Stream(options)
        if slot is None:
            lost = [name for name in wanted if self._is_followed(name) and name not in todo]
            if lost:
                raise CdcError(
                    f"slot {options.slot} is gone, and with it the changes of {', '.join(lost)} since the last run; "
                    "run once with --snapshot again, which copies the tables anew"
                )
            logger.info(
                "making slot %s: PostgreSQL waits for the transactions that are open now", options.slot
            )
            lsn, snapshot = stream.create_slot()
            logger.info("made slot %s at %s", options.slot, lsn_text(lsn))
            self._status.confirmed_lsn = lsn
            if todo:
                self._copy_all(todo, lsn, snapshot)
        else:
            self._status.confirmed_lsn = slot.confirmed_lsn
            if todo:
                # A slot that goes with its connection, for a snapshot that is exact to the transaction.
                exporting = Stream(options)
                try:
                    logger.info("waiting for the transactions that are open now, for a snapshot")
                    lsn, snapshot = exporting.create_slot(temporary=True)
                    self._copy_all(todo, lsn, snapshot)
                finally:
                    exporting.close()
        for name in wanted:
            if not self._is_followed(name):
                self._note_table(name, "done", self._status.confirmed_lsn)
        self._copied_lsn = {name: state.tables[name].lsn for name in wanted}
        stream.start(postgres.server_version, keep_alive_s=self._keep_alive_s)
        postgres.streaming_by(stream.pid)

    def _check_origin(self) -> None:
        known, here = self._state.origin, self._origin
        if known is not None and known != here:
            raise CdcError(
                f"topic {self._options.state_topic} belongs to database {known.database} of another PostgreSQL "
                f"(system {known.system}, and this is {here.database} of {here.system}); choose another --prefix"
            )

    def _leave(self, names: set[str]) -> None:
        """Tables that are not followed any more have a gap from now on, should they ever come back."""
        for name in sorted(names):
            if self._state.tables[name].copy != "left":
                self._note_table(name, "left", self._state.tables[name].lsn)

    def _is_followed(self, name: str) -> bool:
        """Earlier runs have told everything of this table, and it is the same table."""
        known = self._state.tables.get(name)
        return known is not None and known.copy == "done" and known.table_id == self._table_ids.get(name)

    def _must_copy(self, name: str) -> bool:
        if self._options.snapshot == "never":
            return False
        return not self._is_followed(name) or name in self._again

    def _note_table(self, name: str, copy: Literal["begun", "done", "left"], lsn: int) -> None:
        noted = state_of.TableState(copy, lsn, self._table_ids.get(name, 0))
        self._notebook.note(f"table:{name}", noted, now_ms=_now_ms())
        self._state.tables[name] = noted

    def _copy_all(self, names: list[str], lsn: int, snapshot: str) -> None:
        self._status.state = "copying"
        with snapshot_connection(self._options.dsn, snapshot) as connection:
            for name in names:
                table = self._postgres.table(*split_name(name))
                has_rows = name in self._state.tables
                self._note_table(name, "begun", lsn)
                self._copy(connection, table, lsn, is_anew=has_rows)
                self._note_table(name, "done", lsn)
                self._again.discard(name)
                logger.info("copied %s: %d rows", name, self._status.table(name).copied)

    def _copy(self, connection: Any, info: TableInfo, lsn: int, *, is_anew: bool) -> None:
        now_ms = _now_ms()
        shape = self._shape(info.relation(), keys=info.keys)
        source = source_of(lsn=lsn, xid=None, ts_ms=now_ms)
        counts = self._status.table(info.name)
        counts.copied = 0
        counts.expected = self._postgres.rows(
            "SELECT GREATEST(reltuples, 0)::bigint FROM pg_class WHERE oid = %s::regclass",
            ('"{}"."{}"'.format(info.schema.replace('"', '""'), info.table.replace('"', '""')),),
        )[0][0]
        numbers = iter(range(2**62))

        def store(event: Event) -> None:
            # Before every change of the stream that is not in the copy.
            position = Position(lsn, 0, next(numbers))
            self._writer.add(
                shape.topic, event, shape.headers(event.op, position), timestamp_ms=now_ms, position=None
            )

        def row(line: bytes) -> None:
            store(shape.read(parse_line(line), source))
            counts.copied += 1
            if self._writer.buffered_bytes >= FLUSH_BYTES:
                if self._stopping.is_set():
                    raise Stopped
                self._flush()

        if is_anew:
            # Rows of a copy that was broken off may be gone by now: whoever replays begins again here.
            store(shape.truncate(source))
        copy_rows(connection, info, row)
        self._flush()

    def _shape(self, relation: Relation, *, keys: tuple[str, ...]) -> Table:
        return Table(
            relation,
            [self._postgres.encoder(column.type_id) for column in relation.columns],
            topic=self._options.topic_of(relation.schema, relation.table),
            key_columns=keys,
            key_column=self._options.key_column,
            with_tombstones=self._options.tombstones,
        )

    # ── the stream ──

    def _listen(self) -> None:
        for channel in self._options.channels:
            self._postgres.rows('LISTEN "{}"'.format(channel.replace('"', '""')))

    def _follow(self) -> None:
        while True:
            for _ in range(_TURN):
                message = self._stream.read() if self._stream is not None else None
                if message is None:
                    break
                self._take(*message)
                if self._writer.buffered_bytes >= FLUSH_BYTES or self._may_confirm_too_much(message[0]):
                    self._flush()
            else:
                self._chores(is_idle=False)
                if self._stopping.is_set():
                    self._end()
                continue
            self._chores(is_idle=True)
            if self._stopping.is_set():
                self._end()
            waiting = [
                self._postgres.connection,
                self._wake,
                *([self._stream] if self._stream is not None else []),
            ]
            select.select(waiting, [], [], _LAG_S)

    def _may_confirm_too_much(self, lsn: int) -> bool:
        """psycopg2 takes it that all is safe up to a keepalive's LSN when the message before it stands at or before
        what was confirmed last, as changes of an old transaction do: then nothing that has ended may be unsynced."""
        return lsn <= self._status.confirmed_lsn < self._handled_lsn

    def _end(self) -> NoReturn:
        self._flush()
        self._confirm(force=True)
        raise Stopped

    def _chores(self, *, is_idle: bool) -> None:
        self._notifications()
        now_s = time.monotonic()
        if is_idle or now_s - self._flushed_s >= _CONFIRM_S:
            self._flush()
            self._flushed_s = now_s
        if is_idle and self._stream is not None and self._transaction is None and self._spool is None:
            # Nothing that was published is behind it.
            self._handled_lsn = max(self._handled_lsn, self._stream.wal_end)
        self._confirm(force=False)
        if now_s - self._lag_s >= _LAG_S and self._stream is not None:
            self._lag_s = now_s
            slot = self._postgres.slot()
            if slot is None:
                raise Interrupted(f"slot {self._options.slot} was dropped")
            self._status.measured(slot.lag_bytes, slot.wal_status)
            self._check_tables()

    def _check_tables(self) -> None:
        """Raises CdcError for a table that is there no more: its changes would just not come."""
        now = self._postgres.table_ids()
        for name, table_id in self._table_ids.items():
            if now.get(name) != table_id:
                raise CdcError(
                    f"{name} was dropped, renamed, made anew or taken out of publication {self._options.publication}; "
                    "correct --tables, or add it to the publication, and start again: a table that is another one is "
                    "copied again"
                )

    def _flush(self) -> None:
        self._writer.flush()
        self._status.events = self._status.events_before + self._writer.written
        self._status.repeated = self._writer.repeated

    def _confirm(self, *, force: bool) -> None:
        """Tell PostgreSQL what is synced: all that is handled, if nothing waits in the writer."""
        if self._stream is None or self._writer.buffered_bytes:
            return
        now_s = time.monotonic()
        lsn = max(self._handled_lsn, self._status.confirmed_lsn)
        since_s = now_s - self._confirmed_s
        if (
            force
            or (lsn > self._status.confirmed_lsn and since_s >= _CONFIRM_S)
            or since_s >= self._keep_alive_s
        ):
            self._stream.confirm(lsn)
            self._status.confirmed_lsn = lsn
            self._confirmed_s = now_s

    def _take(self, lsn: int, payload: bytes) -> None:
        if self._spool is not None:
            if payload[:1] == b"E":
                self._spool = None
            else:
                self._spool.append(lsn, payload)
            return
        message = decode(payload)
        match message:
            case Begin():
                self._begin(message)
            case Commit():
                self._commit(message.end_lsn)
            case StreamStart(xid=xid):
                self._spool = self._spools.get(xid)
                if self._spool is None:
                    self._spool = self._spools[xid] = Spool(self._options.spool_dir)
            case StreamAbort(xid=xid, sub_xid=sub_xid):
                if sub_xid != xid:
                    if xid in self._spools:
                        self._spools[xid].abort(sub_xid)
                elif (spool := self._spools.pop(xid, None)) is not None:
                    spool.close()
            case StreamCommit():
                self._replay(message)
            case _:
                self._apply(lsn, message)

    def _begin(self, begin: Begin) -> None:
        self._transaction = begin
        self._last_change_lsn, self._number = -1, 0

    def _commit(self, end_lsn: int) -> None:
        transaction = self._transaction
        self._transaction = None
        self._handled_lsn = end_lsn
        self._status.transactions += 1
        if transaction is not None:
            self._status.commit_ms = transaction.commit_ms

    def _replay(self, commit: StreamCommit) -> None:
        """A transaction that came before its commit has committed: now it stands in the order of all."""
        self._begin(Begin(commit.commit_lsn, commit.commit_ms, commit.xid))
        spool = self._spools.pop(commit.xid, None)
        if spool is not None:
            try:
                for count, (lsn, payload) in enumerate(spool.messages(), 1):
                    message = decode(payload, in_stream=True)
                    if not spool.is_aborted(getattr(message, "xid", None)):
                        self._apply(lsn, message)
                    if self._writer.buffered_bytes >= FLUSH_BYTES:
                        self._flush()
                        if self._stopping.is_set():
                            raise Stopped
                    if not count % _TURN:
                        self._keep_alive()
            finally:
                spool.close()
        self._commit(commit.end_lsn)

    def _keep_alive(self) -> None:
        now_s = time.monotonic()
        if self._stream is not None and now_s - self._confirmed_s >= self._keep_alive_s:
            self._stream.confirm(self._status.confirmed_lsn)
            self._confirmed_s = now_s

    def _apply(self, lsn: int, message: Message) -> None:
        match message:
            case Relation():
                self._learn(message)
            case Truncate():
                for relation_id in message.relation_ids:
                    self._change(lsn, relation_id, message)
            case _:
                relation_id = getattr(message, "relation_id", None)
                if relation_id is not None:
                    self._change(lsn, relation_id, message)

    def _learn(self, relation: Relation) -> None:
        known = self._tables.get(relation.relation_id)
        table = self._shape(relation, keys=self._keys(relation))
        self._tables[relation.relation_id] = table
        if known is not None and known.relation.columns != relation.columns:
            logger.info(
                "%s has changed: its columns are %s", table.name, ", ".join(c.name for c in relation.columns)
            )

    def _keys(self, relation: Relation) -> tuple[str, ...]:
        """Of the table as it was then: the catalog knows it as it is now, and tells the order."""
        now = self._postgres.keys(relation.schema, relation.table)
        then = tuple(column.name for column in relation.columns if column.is_key)
        return now if relation.identity == "f" or set(now) == set(then) else then

    def _change(self, lsn: int, relation_id: int, change: Any) -> None:
        table, transaction = self._tables.get(relation_id), self._transaction
        if table is None or transaction is None:
            raise CdcError("PostgreSQL sent a change without its table or transaction; please report this")
        name = table.name
        if name not in self._wanted or transaction.commit_lsn < self._copied_lsn.get(name, 0):
            return
        if lsn != self._last_change_lsn:
            self._last_change_lsn, self._number = lsn, 0
        source = source_of(lsn=lsn, xid=transaction.xid, ts_ms=transaction.commit_ms)
        for event in table.events(change, source):
            position = Position(transaction.commit_lsn, lsn, self._number)
            self._number += 1
            self._writer.add(
                table.topic,
                event,
                table.headers(event.op, position),
                timestamp_ms=transaction.commit_ms,
                position=position,
            )
        self._status.table(name).changes += 1

    # ── NOTIFY ──

    def _notifications(self) -> None:
        connection = self._postgres.connection
        # Also without channels: this is how one learns that the connection is gone, and the lock with it.
        with translated():
            connection.poll()
        waiting: list[Any] = connection.notifies
        for notification in waiting:
            event, headers = notified(
                notification.channel, notification.payload, key_column=self._options.key_column
            )
            self._writer.add(
                self._options.topic_of_channel(notification.channel),
                event,
                headers,
                timestamp_ms=_now_ms(),
                position=None,
            )
            self._status.notifications += 1
        waiting.clear()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _full_names(options: CdcOptions) -> set[str]:
    return {".".join(split_name(name)) for name in options.tables}


def notified(channel: str, payload: str, *, key_column: str) -> tuple[Event, Headers]:
    """The record of a notification: its payload as it is, keyed by a field of it if it is a JSON object.

    ``operation`` and ``event_id`` of the object become headers; else ``notify``, and an id of its own.
    """
    found: dict[str, Any] = {}
    try:
        parsed: Any = json.loads(payload)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        found = cast("dict[str, Any]", parsed)
    key = found.get(key_column)
    # Without a key of its own, a notification keeps its place among those of its channel.
    text = channel if key is None else key if isinstance(key, str) else json.dumps(key, separators=(",", ":"))
    operation = str(found.get("operation") or found.get("op") or "notify")
    event_id = str(found.get("event_id") or uuid.uuid4())
    headers: Headers = [
        ("channel", channel.encode()),
        ("operation", operation.encode()),
        (EVENT_ID, event_id.encode()),
    ]
    return Event(operation, text.encode(), payload.encode()), headers
