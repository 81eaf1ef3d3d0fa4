"""Copies that go on beside the stream: those that were interrupted, and those that are asked for meanwhile."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from ...wire.cdc_requests import Request, check_condition
from .. import state as state_of
from ..context import RunContext
from ..decoding.notation import split_name
from ..decoding.pgoutput import Begin, LogicalMessage, Row
from ..decoding.snapshot import parse_line
from ..errors import CdcError, QueryTimedOutError, TableLockedError
from ..postgres.catalog import LOCK_TIMEOUT_MS, TableInfo
from ..postgres.connection import Connection, connect, translated
from ..postgres.replication import Part, copy_rows, last_key
from ..records.events import Position, Table
from ..shapes import shape_of
from .windows import Passed, Snapshot, Window

logger: logging.Logger = logging.getLogger("stele.cdc")

# Prefix of the message that shows where a chunk belongs; the content names the chunk.
MARK = "stele-copy:"
# Messages of pgoutput came with this version of PostgreSQL.
SINCE = 140_000
# What a chunk has at most; the first one of a table has few rows, because they may be large.
_BYTES = 4 * 1024 * 1024
_ROWS_FIRST, _ROWS = 100, 20_000
# Of a chunk whose rows a condition chooses: the stream waits for it.
_TIMEOUT_MS = 20_000
_PATIENCE_S = 30.0


@dataclass(slots=True, kw_only=True)
class _Chunk:
    """Rows of the copy ``key`` that wait for their place; ``rest`` is None if they are its last ones.

    ``copied`` is how many rows the copy then has.
    """

    key: str
    window: Window
    table: Table
    copied: int
    rest: state_of.Copying | None


class CopiesBeside:
    """Copies tables chunk by chunk while changes stream; one chunk at a time waits for its place in the stream."""

    def __init__(
        self,
        context: RunContext,
        notebook: state_of.Notebook,
        *,
        on_end: Callable[[str], None],
    ) -> None:
        """``on_end`` is told when the first copy of a table is whole."""
        self._context = context
        self._notebook = notebook
        self._on_end = on_end
        self._wanted = context.options.full_names
        self._known: set[str] = set()
        self._copying: dict[str, state_of.Copying] = {}
        self._connection: Connection | None = None
        self._passed: Passed | None = None
        self._chunk: _Chunk | None = None
        # The copy to which the counts of the status belong.
        self._shown = ""
        self._limit = _ROWS_FIRST
        self._waiting_since_s: float | None = None

    def begin(self, copying: Mapping[str, state_of.Copying]) -> None:
        """Add copies, by their keys in the state, that are not done."""
        self._known.update(copying)
        for key, copy in copying.items():
            if copy.is_done:
                continue
            logger.info(
                "the rows of %s%s%s are copied beside the stream",
                copy.table,
                f" after {', '.join(copy.after)}" if copy.after else "",
                f" where {copy.where}" if copy.where else "",
            )
            self._copying[key] = copy
            if copy.table in self._wanted:
                self._context.status.table(copy.table).is_copying = True
            else:
                self._refuse(key, copy, "it is not followed")

    def ask(self, requests: Iterable[Request]) -> None:
        """Begin the copies among requests; those that are done, or under way, are left out."""
        asked = {
            f"{state_of.ASK}{one.id}": state_of.Copying(one.table, where=one.where)
            for one in requests
            if one.action == "copy"
        }
        self.begin({key: copy for key, copy in asked.items() if key not in self._known})

    def _refuse(self, key: str, copy: state_of.Copying, reason: str) -> None:
        """End a copy that whoever asked for it must correct."""
        logger.error("the copy of %s that was asked for cannot be made: %s", copy.table, reason)
        self._context.status.last_error = f"copy of {copy.table}: {reason}"
        self._end(key, copy.table)
        self._notebook.write(key, msgspec.structs.replace(copy, is_done=True), now_ms=_now_ms())

    def _end(self, key: str, name: str) -> None:
        del self._copying[key]
        if name in self._wanted:
            is_copying = any(other.table == name for other in self._copying.values())
            self._context.status.table(name).is_copying = is_copying

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def is_copying(self) -> bool:
        return bool(self._copying)

    @property
    def must_hurry(self) -> bool:
        """Whether ``step`` has something to do that no message announces."""
        return bool(self._copying) and self._chunk is None

    # ── what the stream passes ──

    def is_changed(self, name: str, xid: int) -> bool:
        """Return whether ``changed`` must know what a transaction changes in a table."""
        chunk = self._chunk
        return chunk is not None and chunk.table.name == name and not chunk.window.snapshot.sees(xid)

    def changed(self, keys: Iterable[bytes | None]) -> None:
        if self._chunk is not None:
            self._chunk.window.passed(keys)

    def committed(self, xid: int) -> None:
        if self._passed is not None:
            self._passed.add(xid)

    def marked(self, message: LogicalMessage, transaction: Begin) -> None:
        """Write the rows of the chunk here, if this is its message; that of an earlier run means nothing.

        Raises:
            CdcError, SteleClientError
        """
        chunk = self._chunk
        if chunk is None or message.content != chunk.window.token:
            return
        self._chunk = None
        # In one transaction of the log: the rows, and how the copy stands after them.
        for number, event in enumerate(chunk.window.rows()):
            position = Position(transaction.commit_lsn, message.end_lsn - 1, number)
            self._context.writer.add(
                chunk.table.topic,
                event,
                chunk.table.headers(event, position),
                timestamp_ms=transaction.commit_ms,
                position=position,
            )
        name = chunk.table.name
        counts = self._context.status.table(name)
        counts.copied = chunk.copied
        if chunk.rest is not None:
            self._notebook.write(chunk.key, chunk.rest, now_ms=_now_ms())
            self._copying[chunk.key] = chunk.rest
            return
        logger.info("copied %s: %d rows", name, counts.copied)
        copy = self._copying[chunk.key]
        self._end(chunk.key, name)
        self._limit = _ROWS_FIRST
        if chunk.key.startswith(state_of.COPY):
            self._notebook.write(chunk.key, None, now_ms=_now_ms())
            self._on_end(name)
        else:
            done = msgspec.structs.replace(copy, is_done=True)
            self._notebook.write(chunk.key, done, now_ms=_now_ms())
        if not self._copying:
            self._passed = None
            self.close()

    # ── chunks ──

    def step(self) -> None:
        """Read the next chunk, if none waits for its place.

        Raises:
            CdcError, Interrupted, SteleClientError
        """
        if not self.must_hurry:
            return
        key, copy = next(iter(self._copying.items()))
        try:
            self._next(key, copy)
        except TableLockedError:
            # Changes go on, and the next step tries again.
            return
        except CdcError as error:
            if key.startswith(state_of.COPY):
                raise
            self._refuse(key, copy, str(error))

    def _next(self, key: str, copy: state_of.Copying) -> None:
        info = self._table(copy.table)
        if not info.has_keys():
            raise CdcError(f"{copy.table} has no key, by which it could be copied in parts")
        try:
            check_condition(copy.where)
        except ValueError as error:
            raise CdcError(str(error)) from error
        if key != self._shown:
            self._shown = key
            counts = self._context.status.table(copy.table)
            counts.copied = copy.copied
            counts.expected = (
                0 if copy.where else self._context.postgres.estimated_rows(info.schema, info.table)
            )
        connection = self._connection = self._connection or connect(self._context.options.dsn)
        with translated(), connection.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                cursor.execute("SELECT pg_current_snapshot()::text")
                snapshot = Snapshot.parse(cursor.fetchone()[0])
                if self._passed is None:
                    self._passed = Passed(snapshot.next)
                awaited = self._passed.awaited(snapshot)
                if awaited is not None:
                    self._wait(copy.table, awaited)
                    return
                self._waiting_since_s = None
                cursor.execute("SET LOCAL lock_timeout = %s", (LOCK_TIMEOUT_MS,))
                if copy.where:
                    cursor.execute("SET LOCAL statement_timeout = %s", (_TIMEOUT_MS,))
                try:
                    chunk = self._read(connection, info, key, copy, snapshot)
                except CdcError:
                    if self._table(copy.table) == info:
                        raise
                    # It was altered meanwhile; the next step reads it as it is then.
                    return
            finally:
                cursor.execute("ROLLBACK")
            self._chunk = chunk
            # Its commit is in the WAL after those of all that the snapshot sees.
            content = chunk.window.token.decode()
            cursor.execute(
                "SELECT pg_logical_emit_message(true, %s, %s)", (MARK + self._context.options.slot, content)
            )

    def _table(self, name: str) -> TableInfo:
        with self._context.postgres.without_waiting():
            return self._context.postgres.table(*split_name(name))

    def _read(
        self,
        connection: Connection,
        info: TableInfo,
        key: str,
        copy: state_of.Copying,
        snapshot: Snapshot,
    ) -> _Chunk:
        rows: list[Row] = []
        size = 0
        is_cut = False

        def take(line: bytes) -> None:
            nonlocal size, is_cut
            # What is too much is read again with the next chunk.
            is_cut = is_cut or (bool(rows) and size + len(line) > _BYTES)
            if not is_cut:
                size += len(line)
                rows.append(parse_line(line))

        until = last_key(connection, info, copy.after, self._limit)
        try:
            copy_rows(connection, info, take, Part(after=copy.after, until=until, where=copy.where))
        except QueryTimedOutError as error:
            if not copy.where:
                raise
            raise CdcError(
                f"the condition takes more than {_TIMEOUT_MS // 1000} s for {self._limit} rows; choose one that is faster"
            ) from error
        self._limit = min(_ROWS, 2 * len(rows) + 1 if is_cut else 2 * self._limit)
        end = info.key_of(rows[-1]) if is_cut else until
        copied = copy.copied + len(rows)
        table = shape_of(info.relation(), keys=info.keys, context=self._context)
        source = table.source(lsn=copy.lsn, commit_lsn=copy.lsn, xid=None, ts_us=_now_ms() * 1000)
        return _Chunk(
            key=key,
            window=Window(str(uuid.uuid4()).encode(), snapshot, (table.read(row, source) for row in rows)),
            table=table,
            copied=copied,
            rest=msgspec.structs.replace(copy, after=end, copied=copied) if end else None,
        )

    def _wait(self, name: str, xid: int) -> None:
        now_s = time.monotonic()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        elif now_s - self._waiting_since_s >= _PATIENCE_S:
            self._waiting_since_s = now_s
            logger.warning("the copy of %s waits until transaction %d of PostgreSQL has ended", name, xid)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
