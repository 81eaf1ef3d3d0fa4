"""Copies that go on beside the stream: those that were interrupted, and those that are asked for meanwhile."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from . import state as state_of
from .connection import Connection, connect, translated
from .context import RunContext
from .errors import CdcError
from .events import Position, Table
from .notation import split_name
from .pgoutput import Begin, LogicalMessage, Row
from .postgres import TableInfo
from .replication import Part, copy_rows
from .shapes import shape_of
from .snapshot import parse_line
from .windows import Passed, Snapshot, Window

logger: logging.Logger = logging.getLogger("stele.cdc")

# Prefix of the message that shows where a chunk belongs; the content names the chunk. A content of its own says that
# the state has a copy that somebody asked for.
MARK = "stele-copy:"
ASKED = b"asked"
# Messages of pgoutput came with this version of PostgreSQL.
SINCE = 140_000
# What a chunk has at most, and what it has if its rows are small.
_BYTES = 4 * 1024 * 1024
_ROWS = 20_000
_PATIENCE_S = 30.0


@dataclass(slots=True, kw_only=True)
class _Chunk:
    """Rows of the copy ``key`` that wait for their place; ``rest`` is None if they are its last ones."""

    key: str
    window: Window
    table: Table
    count: int
    rest: state_of.Copying | None


class CopiesBeside:
    """Copies tables chunk by chunk while changes stream; one chunk at a time waits for its place in the stream."""

    def __init__(
        self,
        context: RunContext,
        notebook: state_of.Notebook,
        *,
        on_end: Callable[[str], None],
        reload: Callable[[], state_of.State],
    ) -> None:
        """``on_end`` is told when the first copy of a table is whole; ``reload`` loads the state."""
        self._context = context
        self._notebook = notebook
        self._on_end = on_end
        self._reload = reload
        self._wanted = context.options.full_names
        self._known: set[str] = set()
        self._copying: dict[str, state_of.Copying] = {}
        self._connection: Connection | None = None
        self._passed: Passed | None = None
        self._chunk: _Chunk | None = None
        self._limit = _ROWS
        self._waiting_since_s: float | None = None

    def begin(self, copying: Mapping[str, state_of.Copying]) -> None:
        """Add copies, by their keys in the state."""
        for key, copy in copying.items():
            logger.info(
                "the rows of %s%s%s are copied beside the stream",
                copy.table,
                f" after {', '.join(copy.after)}" if copy.after else "",
                f" where {copy.where}" if copy.where else "",
            )
            self._known.add(key)
            self._copying[key] = copy

    def _look(self) -> None:
        """Begin the copies that were asked for since the last time."""
        copying = self._reload().copying
        new = {
            key: copy
            for key, copy in copying.items()
            if key.startswith(state_of.ASK) and key not in self._known
        }
        for key, copy in new.items():
            if copy.table not in self._wanted:
                self._refuse(key, copy, f"{copy.table} is not followed")
        self.begin({key: copy for key, copy in new.items() if copy.table in self._wanted})

    def _refuse(self, key: str, copy: state_of.Copying, reason: str) -> None:
        """End a copy that whoever asked for it must correct."""
        logger.error("the copy of %s that was asked for cannot be made: %s", copy.table, reason)
        self._context.status.last_error = f"copy of {copy.table}: {reason}"
        self._known.add(key)
        self._copying.pop(key, None)
        self._notebook.write(key, None, now_ms=_now_ms())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
        if message.content == ASKED:
            self._look()
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
        counts.copied += chunk.count
        self._notebook.write(chunk.key, chunk.rest, now_ms=_now_ms())
        if chunk.rest is not None:
            self._copying[chunk.key] = chunk.rest
            return
        logger.info("copied %s: %d rows", name, counts.copied)
        del self._copying[chunk.key]
        if chunk.key.startswith(state_of.COPY):
            self._on_end(name)
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
        except CdcError as error:
            if key.startswith(state_of.COPY):
                raise
            self._refuse(key, copy, str(error))

    def _next(self, key: str, copy: state_of.Copying) -> None:
        info = self._context.postgres.table(*split_name(copy.table))
        if not info.has_keys():
            raise CdcError(f"{copy.table} has no key, by which it could be copied in parts")
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
                chunk = self._read(connection, info, key, copy, snapshot)
            finally:
                cursor.execute("ROLLBACK")
            self._chunk = chunk
            # Its commit is in the WAL after those of all that the snapshot sees.
            content = chunk.window.token.decode()
            cursor.execute(
                "SELECT pg_logical_emit_message(true, %s, %s)", (MARK + self._context.options.slot, content)
            )

    def _read(
        self,
        connection: Connection,
        info: TableInfo,
        key: str,
        copy: state_of.Copying,
        snapshot: Snapshot,
    ) -> _Chunk:
        rows: list[Row] = []
        size = count = 0

        def take(line: bytes) -> None:
            nonlocal size, count
            count += 1
            # What is too much is read again with the next chunk.
            if not rows or size + len(line) <= _BYTES:
                size += len(line)
                rows.append(parse_line(line))
            else:
                size = _BYTES

        limit = self._limit
        copy_rows(connection, info, take, Part(limit=limit, after=copy.after, where=copy.where))
        self._limit = min(_ROWS, 2 * len(rows) + 1)
        is_last = count < limit and len(rows) == count
        table = shape_of(info.relation(), keys=info.keys, context=self._context)
        source = table.source(lsn=copy.lsn, commit_lsn=copy.lsn, xid=None, ts_us=_now_ms() * 1000)
        return _Chunk(
            key=key,
            window=Window(str(uuid.uuid4()).encode(), snapshot, (table.read(row, source) for row in rows)),
            table=table,
            count=len(rows),
            rest=None if is_last else msgspec.structs.replace(copy, after=info.key_of(rows[-1])),
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
