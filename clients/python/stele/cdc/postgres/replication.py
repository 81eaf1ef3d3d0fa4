"""The replication connection: slots, the change stream, and copies at a snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2 import sql

from ..decoding.notation import lsn_of, quoted_name, quoted_table
from ..decoding.runs import ROW_BYTES_MAX, ROWS_MAX, Run
from ..errors import Interrupted
from ..options import CdcOptions
from .catalog import FAILOVER_SINCE, SERVER, TableInfo
from .connection import Connection, connect, translated
from .timelines import Timelines

# Streaming of open transactions (protocol version 2) and messages came with the same release.
_STREAMING_SINCE = 140_000
# The files of a table and of its partitions as of the snapshot, which differ from those of now. ALTER TABLE writes
# new ones with the rows as its own, so that an older snapshot sees none of them.
_REWRITTEN = (
    "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relfilenode <> 0 AND c.relfilenode <> pg_relation_filenode(c.oid) "
    "AND (c.oid = %s::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree(%s::regclass))) ORDER BY 1"
)


class Stream:
    """Creates a slot, reads its changes, and confirms positions."""

    def __init__(self, options: CdcOptions) -> None:
        """Raises CdcError, Interrupted."""
        self._options = options
        self._connection = connect(options.dsn, replication=True)
        self._cursor = self._connection.cursor()

    def close(self) -> None:
        self._connection.close()

    def check_server(self, server: tuple[Any, ...]) -> None:
        """Raise Interrupted if this connection does not lead to ``server``: the DSN may name several."""
        with translated():
            self._cursor.execute(SERVER)
            if self._cursor.fetchone() != server:
                raise Interrupted("PostgreSQL fails over: two connections lead to different servers")

    def timelines(self) -> Timelines:
        """Return the history of the server, which grows with each promotion."""
        with translated():
            self._cursor.execute("IDENTIFY_SYSTEM")
            _, current, *_ = self._cursor.fetchone()
            if current == 1:
                return Timelines(1, {})
            self._cursor.execute(sql.SQL("TIMELINE_HISTORY {}").format(sql.Literal(current)))
            _, content = self._cursor.fetchone()
        return Timelines.parse(current, content if isinstance(content, str) else bytes(content).decode())

    def let_fail_over(self) -> None:
        """Let standbys have the slot, from PostgreSQL 17 on. Raises CdcError, Interrupted."""
        with translated():
            self._cursor.execute(
                sql.SQL("ALTER_REPLICATION_SLOT {} (FAILOVER true)").format(
                    sql.Identifier(self._options.slot)
                )
            )

    def create_slot(self, *, temporary: bool = False) -> tuple[int, str]:
        """Create the slot; return its LSN and the name of its snapshot.

        ``temporary``: create one that disappears with this connection instead. Another
        connection must import the snapshot before this one is used again.
        """
        name = f"{self._options.slot[:40]}_snapshot_{os.getpid()}" if temporary else self._options.slot
        kind, how = "TEMPORARY " if temporary else "", "EXPORT_SNAPSHOT"
        if not temporary and self._connection.server_version >= FAILOVER_SINCE:
            how = "(SNAPSHOT 'export', FAILOVER true)"
        with translated():
            self._cursor.execute(
                sql.SQL(f"CREATE_REPLICATION_SLOT {{}} {kind}LOGICAL pgoutput {how}").format(
                    sql.Identifier(name)
                )
            )
            _, lsn, snapshot, _ = self._cursor.fetchone()
        return lsn_of(lsn), snapshot

    def start(self, server_version: int, *, keep_alive_s: float, is_streaming: bool = True) -> None:
        """Start to read after the confirmed position; ``is_streaming``: also what is not committed yet."""
        plugin_options = {"proto_version": "1", "publication_names": quoted_name(self._options.publication)}
        if server_version >= _STREAMING_SINCE:
            plugin_options["proto_version"] = "2"
            if is_streaming:
                plugin_options["streaming"] = "on"
            if self._options.has_messages:
                plugin_options["messages"] = "true"
        with translated():
            # ``confirm`` sends feedback; psycopg2 also sends it when PostgreSQL asks for it.
            self._cursor.start_replication(
                slot_name=self._options.slot,
                decode=False,
                start_lsn=0,
                options=plugin_options,
                status_interval=max(1, keep_alive_s),
            )

    @property
    def pid(self) -> int:
        return self._connection.get_backend_pid()

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self, run: Run, confirmed_lsn: int) -> tuple[int, bytes] | None:
        """Return the LSN and payload of the next message; None if none is available.

        Messages before it that continue ``run`` are added to it. Answers keepalives. For those between the messages,
        the begin of their transaction has been looked at (``Feedback.may_confirm_too_much``): its LSN is no larger, and
        one up to ``confirmed_lsn`` continues no run.
        """
        read_message = self._cursor.read_message
        head, lsns, payloads, ends, begins = run.head, run.lsns, run.payloads, run.ends, run.begins
        size = len(head or b"")
        try:
            # As ``Run.goes_on``, without a call for each.
            while (message := read_message()) is not None:
                payload: bytes = message.payload
                if payload[:size] == head and len(payload) <= ROW_BYTES_MAX and len(lsns) < ROWS_MAX:
                    lsns.append(message.data_start)
                    payloads.append(payload)
                elif head is None:
                    return message.data_start, payload
                elif payload[:1] == b"C" and len(ends) == len(begins):
                    ends.append(len(lsns))
                    run.commit = payload
                elif (
                    payload[:1] == b"B"
                    and len(begins) < len(ends) < ROWS_MAX
                    and message.data_start > confirmed_lsn
                ):
                    begins.append(payload)
                else:
                    return message.data_start, payload
        except psycopg2.Error:
            with translated():
                raise
        return None

    @property
    def wal_end(self) -> int:
        """The LSN up to which PostgreSQL has decoded and sent."""
        return self._cursor.wal_end

    def confirm(self, lsn: int) -> None:
        """Confirm that changes up to ``lsn`` are stored and their WAL is no longer needed."""
        with translated():
            self._cursor.send_feedback(write_lsn=lsn, flush_lsn=lsn, apply_lsn=lsn, force=True)


@contextmanager
def snapshot_connection(dsn: str, snapshot: str) -> Generator[Connection]:
    """Open a connection in a read-only transaction at ``snapshot``."""
    connection = connect(dsn)
    try:
        with translated(), connection.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
        yield connection
    finally:
        connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows in the order of their keys: those after a key, up to and with a key, that ``where`` chooses.

    At most ``limit``, None for all.
    """

    limit: int | None = None
    after: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    where: str = ""


def copy_rows(
    connection: Connection, table: TableInfo, write: Callable[[bytes], object], part: Part | None = None
) -> None:
    """Pass the rows of a table, or a part of them, to ``write`` as lines of COPY's text format.

    If ``write`` raises, the copy ends.

    Raises:
        CdcError
        Interrupted: the connection broke, or the table was rewritten after the snapshot.
    """
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    chosen = _chosen(table, part or Part())
    order = sql.SQL("") if part is None else _ordered(table, part.limit)
    query = sql.SQL("COPY (SELECT {} FROM {}{}{}) TO STDOUT").format(columns, _source(table), chosen, order)
    with translated(), connection.cursor() as cursor:
        cursor.copy_expert(query, _Lines(write))
        # The copy holds a lock against rewrites until the transaction ends, so only an earlier one is found.
        cursor.execute(_REWRITTEN, (quoted_table(table.schema, table.table),) * 2)
        rewritten = [name for (name,) in cursor.fetchall()]
    if rewritten:
        raise Interrupted(
            f"{', '.join(rewritten)} was rewritten (ALTER TABLE, TRUNCATE, CLUSTER, VACUUM FULL) after the snapshot for "
            f"the copy of {table.name}, in which it may seem empty; the table is copied again"
        )


def last_key(connection: Connection, table: TableInfo, after: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return the key of the ``count``th row after a key; empty if there are fewer.

    All rows count, so a part up to there takes no longer because few of its rows are chosen.

    Raises CdcError, Interrupted.
    """
    keys = _keys(table)
    inner = sql.SQL("SELECT {} FROM {}{}{} OFFSET {}").format(
        keys,
        _source(table),
        _where([_compared(table, ">", after)] if after else []),
        _ordered(table, 1),
        sql.Literal(count - 1),
    )
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(key)) for key in table.keys)
    with translated(), connection.cursor() as cursor:
        cursor.execute(sql.SQL("SELECT {} FROM ({}) AS k").format(texts, inner))
        return cursor.fetchone() or ()


def _source(table: TableInfo) -> sql.Composable:
    return sql.SQL("{}{}").format(
        sql.SQL("" if table.is_partitioned else "ONLY "), sql.Identifier(table.schema, table.table)
    )


def _keys(table: TableInfo) -> sql.Composable:
    return sql.SQL(", ").join(sql.Identifier(key) for key in table.keys)


def _ordered(table: TableInfo, limit: int | None) -> sql.Composable:
    return sql.SQL(" ORDER BY {} LIMIT {}").format(_keys(table), sql.Literal(limit))


def _compared(table: TableInfo, operator: str, key: tuple[str, ...]) -> sql.Composable:
    # Literals without a type have that of their column.
    literals = sql.SQL(", ").join(sql.Literal(text) for text in key)
    return sql.SQL(f"ROW({{}}) {operator} ROW({{}})").format(_keys(table), literals)


def _chosen(table: TableInfo, part: Part) -> sql.Composable:
    conditions: list[sql.Composable] = [
        sql.SQL(f"({text})") for text in (table.row_filter, part.where) if text
    ]
    for operator, key in ((">", part.after), ("<=", part.until)):
        if key:
            conditions.append(_compared(table, operator, key))
    return _where(conditions)


def _where(conditions: list[sql.Composable]) -> sql.Composable:
    return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("")


class _Lines:
    """A file object for copy_expert to write to."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.write = write

    def read(self, _size: int = -1) -> bytes:
        raise OSError("the file is write-only")
