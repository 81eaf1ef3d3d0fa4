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
from typing import Any, cast

from ..client import Client
from ..errors import ProducerStateError, SteleClientError
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
_IDLE_CONFIRM_S = 10.0
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
        # --snapshot again is meant once, not for every run after a failure.
        self._again = _full_names(options) if options.snapshot == "again" else set[str]()

    def stop(self) -> None:
        """End ``run`` soon: what was read is stored and confirmed."""
        self._stopping.set()
        os.write(self._wake_write, b"x")

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
                if not error.retriable:
                    raise
                cause = error
            else:
                continue
            failures = 0 if self._status.events > stored_before else failures + 1
            pause_s = min(_PAUSE_MAX_S, retry_pause_s(failures) * 4)
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
        self._writer = LogWriter(
            client,
            name=options.producer_name,
            version=postgres.run_number(),
            partitions=options.partitions,
            configs=options.topic_configs,
            patience_s=options.patience_s,
            pause=self._pause,
        )
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
        finally:
            if self._stream is not None:
                self._stream.close()
            for spool in self._spools.values():
                spool.close()

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
        state = state_of.load(self._client, options.state_topic)
        self._check_origin(state)
        notebook = state_of.Notebook(self._writer, options.state_topic)
        now_ms = time.time_ns() // 1_000_000
        if state.origin is None:
            notebook.note("origin", state_of.Origin(*postgres.identity()), now_ms=now_ms)
        wanted = sorted(self._wanted)
        todo = [name for name in wanted if self._must_copy(state, name)]
        slot = postgres.slot()
        stream = self._stream = Stream(options)
        if slot is None:
            lost = [name for name in wanted if name in state.tables and name not in todo]
            if lost:
                raise CdcError(
                    f"slot {options.slot} is gone, and with it the changes of {', '.join(lost)} since the last run; "
                    "run once with --snapshot again, which copies the tables anew"
                )
            lsn, snapshot = stream.create_slot()
            logger.info("made slot %s at %s", options.slot, lsn_text(lsn))
            self._status.confirmed_lsn = lsn
            if todo:
                self._copy_all(todo, state, notebook, lsn, snapshot)
        else:
            self._status.confirmed_lsn = slot.confirmed_lsn
            if todo:
                # A slot that goes with its connection, for a snapshot that is exact to the transaction.
                exporting = Stream(options)
                try:
                    lsn, snapshot = exporting.create_slot(temporary=True)
                    self._copy_all(todo, state, notebook, lsn, snapshot)
                finally:
                    exporting.close()
        self._copied_lsn = {name: table.lsn for name, table in state.tables.items()}
        stream.start(postgres.server_version)
        postgres.streaming_by(stream.pid)

    def _check_origin(self, state: state_of.State) -> None:
        here = state_of.Origin(*self._postgres.identity())
        if state.origin is not None and state.origin != here:
            raise CdcError(
                f"topic {self._options.state_topic} belongs to database {state.origin.database} of another PostgreSQL "
                f"(system {state.origin.system}, and this is {here.database} of {here.system}); "
                "choose another --prefix or --slot"
            )

    def _must_copy(self, state: state_of.State, name: str) -> bool:
        if self._options.snapshot == "never":
            return False
        known = state.tables.get(name)
        return known is None or known.copy != "done" or name in self._again

    def _copy_all(
        self, names: list[str], state: state_of.State, notebook: state_of.Notebook, lsn: int, snapshot: str
    ) -> None:
        self._status.state = "copying"
        with snapshot_connection(self._options.dsn, snapshot) as connection:
            for name in names:
                table = self._postgres.table(*split_name(name))
                begun = state_of.TableState("begun", lsn)
                now_ms = time.time_ns() // 1_000_000
                has_rows = name in state.tables
                notebook.note(f"table:{name}", begun, now_ms=now_ms)
                state.tables[name] = begun
                self._copy(connection, table, lsn, is_anew=has_rows)
                state.tables[name] = state_of.TableState("done", lsn)
                notebook.note(f"table:{name}", state.tables[name], now_ms=time.time_ns() // 1_000_000)
                self._again.discard(name)
                logger.info("copied %s: %d rows", name, self._status.table(name).copied)

    def _copy(self, connection: Any, info: TableInfo, lsn: int, *, is_anew: bool) -> None:
        now_ms = time.time_ns() // 1_000_000
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
                if self._writer.buffered_bytes >= FLUSH_BYTES:
                    self._flush()
            else:
                self._chores(is_idle=False)
                continue
            self._chores(is_idle=True)
            if self._stopping.is_set():
                self._confirm(force=True)
                raise Stopped
            waiting = [
                self._postgres.connection,
                self._wake,
                *([self._stream] if self._stream is not None else []),
            ]
            select.select(waiting, [], [], _LAG_S)

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
            or since_s >= _IDLE_CONFIRM_S
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
        if self._stream is not None and now_s - self._confirmed_s >= _IDLE_CONFIRM_S:
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
        table = self._shape(relation, keys=self._postgres.keys(relation.schema, relation.table))
        self._tables[relation.relation_id] = table
        if known is not None and known.relation.columns != relation.columns:
            logger.info(
                "%s has changed: its columns are %s", table.name, ", ".join(c.name for c in relation.columns)
            )

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
                timestamp_ms=time.time_ns() // 1_000_000,
                position=None,
            )
            self._status.notifications += 1
        waiting.clear()


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
