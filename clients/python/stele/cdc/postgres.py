"""PostgreSQL as the connector needs it: connections, what must be set up, and what its catalogs know."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2 import errorcodes, errors, extensions, extras, sql

from .options import CdcOptions
from .pgoutput import COLUMNS_MAX, Column, Relation
from .values import ENCODERS, SESSION_SETTINGS, ArrayError, Encoder, array, text

# What PostgreSQL has no typed stubs for.
Connection = Any
# Streaming of open transactions came with protocol version 2.
_STREAMING_SINCE = 140_000
_OLDEST = 120_000
# Two keys of an advisory lock: that it is ours, and which slot.
_LOCK_CLASS = 0x57E1E
# First word of "the connection cannot get better by waiting", as PostgreSQL says it before there is a code.
_HOPELESS = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "must be superuser or replication role",
    "permission denied to start WAL sender",
    "invalid connection option",
    'missing "="',
    "no password supplied",
)


# Roles have such limits for people; a copy takes as long as it takes.
_NO_TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
_LIVE: weakref.WeakSet[Any] = weakref.WeakSet()


class CdcError(Exception):
    """It will not get better by waiting; the text says what to do."""


class Interrupted(Exception):
    """PostgreSQL is not there, or went away; to be tried again."""


def lsn_of(text_: str) -> int:
    """``16/B374D848`` as a number."""
    high, low = text_.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def describe_dsn(dsn: str) -> str:
    """Where it leads, without the password. Raises CdcError."""
    parts = _parse(dsn)
    host = parts.get("host") or os.environ.get("PGHOST") or "local socket"
    return f"{parts.get('dbname') or os.environ.get('PGDATABASE') or 'default database'} on {host}:{parts.get('port', 5432)}"


def _parse(dsn: str) -> dict[str, str]:
    unreadable = CdcError(
        "the DSN can not be read; write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with / @ : and % in the "
        "password as %2F %40 %3A and %25"
    )
    try:
        parts: dict[str, str] = extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # Its own words may hold the password.
        raise unreadable from None
    ports = str(parts.get("port", "5432")).split(",")
    if not all(port.isdigit() or not port for port in ports) or "@" in parts.get("host", "") + parts.get(
        "dbname", ""
    ):
        # A password that was not escaped has spilled over.
        raise unreadable
    return parts


@contextmanager
def translated() -> Generator[None]:
    """psycopg2's errors as ``Interrupted`` or ``CdcError``."""
    try:
        yield
    except (
        errors.InsufficientPrivilege,
        errors.UndefinedObject,
        errors.UndefinedTable,
        errors.FeatureNotSupported,
    ) as error:
        raise CdcError(_first_line(error)) from error
    except psycopg2.OperationalError as error:
        said = str(error)
        if any(hopeless in said for hopeless in _HOPELESS):
            raise CdcError(_first_line(error)) from error
        if error.pgcode == errorcodes.CONFIGURATION_LIMIT_EXCEEDED:
            raise Interrupted(
                f"{_first_line(error)}; raise max_replication_slots and max_wal_senders, or drop what is not used"
            ) from error
        raise Interrupted(_first_line(error)) from error
    except psycopg2.InterfaceError as error:
        raise Interrupted(_first_line(error)) from error
    except psycopg2.DatabaseError as error:
        # A server that was killed leaves errors of any class behind.
        if error.pgcode is None or error.pgcode.startswith(("08", "57P", "53", "55")):
            raise Interrupted(_first_line(error)) from error
        raise CdcError(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    if "no message from the libpq" in str(error):
        return "PostgreSQL has closed the connection"
    lines = str(error).strip().splitlines()
    return f"PostgreSQL: {lines[0]}" if lines else f"PostgreSQL: {type(error).__name__}"


def connect(dsn: str, *, replication: bool = False) -> Connection:
    """A connection whose values come as ``values`` expects them. Raises CdcError, Interrupted."""
    parts = _parse(dsn)
    with translated():
        connection = psycopg2.connect(
            dsn,
            connection_factory=extras.LogicalReplicationConnection if replication else None,
            application_name="stele cdc",
            connect_timeout=int(parts.get("connect_timeout", 10)),
            # A peer that is gone without a word is noticed within a minute.
            keepalives_idle=int(parts.get("keepalives_idle", 20)),
            keepalives_interval=int(parts.get("keepalives_interval", 10)),
            keepalives_count=int(parts.get("keepalives_count", 4)),
            # TCP's own keepalive does not run while data is not acknowledged.
            tcp_user_timeout=int(parts.get("tcp_user_timeout", 60_000)),
            client_encoding="UTF8",
        )
        _LIVE.add(connection)
        if not replication:
            connection.autocommit = True
        with connection.cursor() as cursor:
            # Not as options of the connection: PGTZ and its like would come after them.
            for name, value in SESSION_SETTINGS.items():
                cursor.execute(f"SET {name} = '{value}'")
            for name in (
                *_NO_TIMEOUTS,
                *(("idle_session_timeout",) if connection.server_version >= 140_000 else ()),
            ):
                cursor.execute(f"SET {name} = 0")
    return connection


def break_connections() -> None:
    """Make every call fail that waits for PostgreSQL now, in whatever thread: for who must end."""
    for connection in list(_LIVE):
        with suppress(psycopg2.Error, OSError):
            number: int = connection.fileno()
            with socket.socket(fileno=os.dup(number)) as copy:
                copy.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """``columns`` are those that are published, ``keys`` those of the identity, in its order."""

    schema: str
    table: str
    is_partitioned: bool
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    row_filter: str | None

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    def relation(self) -> Relation:
        return Relation(0, self.schema, self.table, "d", self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotInfo:
    confirmed_lsn: int
    wal_status: str | None
    lag_bytes: int


class Postgres:
    """The ordinary connection of a run; it holds the lock that keeps a second run away."""

    def __init__(self, options: CdcOptions) -> None:
        """Raises CdcError, Interrupted."""
        self._options = options
        self.connection = connect(options.dsn)
        self.server_version: int = self.connection.server_version
        self._encoders: dict[int, Encoder] = {}
        self._walsender: int | None = None
        if self.server_version < _OLDEST:
            self.close()
            raise CdcError(f"PostgreSQL {self.server_version // 10_000} is too old; 12 or newer is needed")

    def close(self) -> None:
        self.connection.close()

    def rows(self, query: str | sql.Composable, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Raises CdcError, Interrupted."""
        with translated(), self.connection.cursor() as cursor:
            cursor.execute(query, given)
            return cursor.fetchall() if cursor.description else []

    # ── before the first change ──

    def take_lock(self) -> None:
        """Keep a second run of this slot away, for as long as this connection lives. Raises CdcError, Interrupted."""
        ((is_taken,),) = self.rows(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", (_LOCK_CLASS, self._options.slot)
        )
        if not is_taken:
            raise Interrupted(
                f"slot {self._options.slot} is in use by another stele cdc; stop it, or choose another --slot"
            )

    def identity(self) -> tuple[str, str]:
        """What tells this database from all others: the cluster's identifier, and the database."""
        ((system, database),) = self.rows(
            "SELECT (SELECT system_identifier::text FROM pg_control_system()), current_database()"
        )
        return system, database

    def run_number(self) -> int:
        """Larger than any that was given before, whatever was killed: an id of a transaction.

        The transaction writes something, for the ids of those that do not are given again after a crash.
        """
        ((number, _),) = self.rows(
            "SELECT txid_current(), pg_logical_emit_message(true, 'stele cdc', %s)", (self._options.slot,)
        )
        return number

    def check_settings(self) -> None:
        """Raises CdcError if the server does not decode its log, or the user may not."""
        ((level,),) = self.rows("SELECT current_setting('wal_level')")
        if level != "logical":
            raise CdcError(
                f"wal_level of PostgreSQL is {level!r}; set wal_level = logical in postgresql.conf and restart it"
            )
        ((user, may),) = self.rows(
            "SELECT current_user, rolsuper OR rolreplication OR EXISTS (SELECT FROM pg_auth_members m "
            "JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid AND g.rolname LIKE '%%replication%%') "
            "FROM pg_roles r WHERE rolname = current_user"
        )
        if not may:
            raise CdcError(
                f"{user} may not replicate; run as a superuser: ALTER ROLE {_name(user)} REPLICATION"
            )

    def check_tables(self) -> None:
        """Raises CdcError for a table that is not there, or whose rows have no identity."""
        for name in self._options.tables:
            schema, table = split_name(name)
            found = self.rows(
                "SELECT c.relkind, c.relreplident, EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid "
                "AND i.indisprimary), c.relpersistence, has_table_privilege(c.oid, 'SELECT') "
                "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = %s AND c.relname = %s",
                (schema, table),
            )
            if not found:
                raise CdcError(f"there is no table {name}; name it as SCHEMA.TABLE, as it is in \\dt *.*")
            ((kind, identity, has_primary_key, persistence, may_read),) = found
            if kind == "p":
                self._check_partitions(name, schema, table)
            if kind not in ("r", "p") or persistence != "p":
                raise CdcError(
                    f"{name} is not a table whose changes are logged (a view, or an unlogged table)"
                )
            if identity == "n" or (identity == "d" and not has_primary_key):
                raise CdcError(
                    f"rows of {name} have no identity, so updates and deletes can not be told; "
                    f"ALTER TABLE {_quoted(schema, table)} ADD PRIMARY KEY (…), or REPLICA IDENTITY FULL"
                )
            if not may_read and self._options.snapshot != "never":
                raise CdcError(
                    f"{name} may not be read; GRANT SELECT ON {_quoted(schema, table)} to the user of the DSN"
                )

    def _check_partitions(self, name: str, schema: str, table: str) -> None:
        """PostgreSQL refuses the application's updates of a partition that is published and has no identity."""
        lacking = self.rows(
            "SELECT c.relname FROM pg_partition_tree(%s::regclass) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf "
            "AND (c.relreplident = 'n' OR c.relreplident = 'd' AND NOT EXISTS "
            "(SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))",
            (_quoted(schema, table),),
        )
        if lacking:
            names = ", ".join(partition for (partition,) in lacking)
            raise CdcError(
                f"partitions of {name} have no identity ({names}), so updates of them would be refused; "
                f"ALTER TABLE … REPLICA IDENTITY FULL each of them, or give {name} a primary key"
            )

    def table_ids(self) -> dict[str, int]:
        """OIDs of the tables that are followed and in the publication now."""
        wanted = {split_name(name) for name in self._options.tables}
        found = self.rows(
            "SELECT p.schemaname, p.tablename, c.oid::bigint FROM pg_publication_tables p "
            "JOIN pg_namespace n ON n.nspname = p.schemaname "
            "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename WHERE p.pubname = %s",
            (self._options.publication,),
        )
        return {f"{schema}.{table}": oid for schema, table, oid in found if (schema, table) in wanted}

    def has_publication(self) -> bool:
        return bool(
            self.rows("SELECT 1 FROM pg_publication WHERE pubname = %s", (self._options.publication,))
        )

    def keep_alive_s(self) -> float:
        """How often PostgreSQL must hear from a stream, with room to spare."""
        ((timeout_ms,),) = self.rows(
            "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'"
        )
        return min(10.0, timeout_ms / 4000) if timeout_ms else 10.0

    def ensure_publication(self) -> None:
        """Make the publication if there is none. Raises CdcError if the one there is lacks a table."""
        name = self._options.publication
        wanted = [split_name(table) for table in self._options.tables]
        has_roots = self.server_version >= 130_000
        found = self.rows(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, "  # noqa: S608
            f"{'pubviaroot' if has_roots else 'false'} FROM pg_publication WHERE pubname = %s",
            (name,),
        )
        if not found:
            # ONLY: tables that inherit from one of them are others, and may have no identity.
            tables = ", ".join(f"ONLY {_quoted(*table)}" for table in wanted)
            roots = " WITH (publish_via_partition_root = true)" if has_roots else ""
            statement = f"CREATE PUBLICATION {_name(name)} FOR TABLE {tables}{roots}"
            try:
                with self.connection.cursor() as cursor:
                    cursor.execute(statement)
            except errors.InsufficientPrivilege as error:
                raise CdcError(f"{_first_line(error)}; have somebody who may run it: {statement}") from error
            except psycopg2.Error:
                with translated():
                    raise
            return
        ((has_all, is_by_root),) = found
        if not has_all:
            raise CdcError(
                f"publication {name} leaves changes out; ALTER PUBLICATION {_name(name)} "
                "SET (publish = 'insert, update, delete, truncate')"
            )
        published = set(
            self.rows("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (name,))
        )
        missing = [table for table in wanted if table not in published]
        if missing and has_roots and not is_by_root and self._partitioned(missing):
            raise CdcError(
                f"publication {name} publishes partitions in the place of their tables; "
                f"ALTER PUBLICATION {_name(name)} SET (publish_via_partition_root = true)"
            )
        if missing:
            names = ", ".join(_quoted(*table) for table in missing)
            raise CdcError(
                f"publication {name} does not have {names}; ALTER PUBLICATION {_name(name)} ADD TABLE {names}"
            )

    def _partitioned(self, tables: Sequence[tuple[str, str]]) -> bool:
        return any(
            self.rows("SELECT 1 FROM pg_class WHERE oid = %s::regclass AND relkind = 'p'", (_quoted(*table),))
            for table in tables
        )

    def slot(self) -> SlotInfo | None:
        """The slot as it is. Raises CdcError if it can not be used, Interrupted if somebody uses it."""
        name = self._options.slot
        status = "wal_status" if self.server_version >= 130_000 else "NULL"
        found = self.rows(
            f"SELECT plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, {status}, "  # noqa: S608
            "pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint "
            "FROM pg_replication_slots WHERE slot_name = %s",
            (name,),
        )
        if not found:
            return None
        ((plugin, is_here, pid, confirmed, wal_status, lag),) = found
        if plugin != "pgoutput" or not is_here:
            raise CdcError(f"slot {name} is of another database or plugin ({plugin}); choose another --slot")
        if wal_status == "lost":
            raise CdcError(
                f"slot {name} is lost: PostgreSQL has removed WAL it needed (max_slot_wal_keep_size). Changes are "
                f"missing for good: SELECT pg_drop_replication_slot('{name}'), and run again with --snapshot again"
            )
        if pid is not None and pid != self._walsender:
            raise Interrupted(f"slot {name} is in use by process {pid} of PostgreSQL")
        return SlotInfo(confirmed_lsn=lsn_of(confirmed), wal_status=wal_status, lag_bytes=lag)

    def streaming_by(self, pid: int) -> None:
        """The process that serves this run's own stream."""
        self._walsender = pid

    # ── what the catalogs know ──

    def table(self, schema: str, table: str) -> TableInfo:
        """Raises CdcError if it is not there."""
        columns = self.rows(
            "SELECT a.attname, a.atttypid::bigint, a.atttypmod FROM pg_attribute a "
            "WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped "
            "AND a.attgenerated = '' ORDER BY a.attnum",
            (_quoted(schema, table),),
        )
        ((kind,),) = self.rows(
            "SELECT relkind FROM pg_class WHERE oid = %s::regclass", (_quoted(schema, table),)
        )
        published, row_filter = self._published(schema, table)
        keys = self.keys(schema, table)
        return TableInfo(
            schema=schema,
            table=table,
            is_partitioned=kind == "p",
            columns=tuple(
                Column(name, type_id, modifier, name in keys)
                for name, type_id, modifier in columns[:COLUMNS_MAX]
                if published is None or name in published
            ),
            keys=keys,
            row_filter=row_filter,
        )

    def _published(self, schema: str, table: str) -> tuple[list[str] | None, str | None]:
        """Columns and rows that the publication is limited to (PostgreSQL 15)."""
        if self.server_version < 150_000:
            return None, None
        found = self.rows(
            "SELECT attnames::text[], rowfilter FROM pg_publication_tables "
            "WHERE pubname = %s AND schemaname = %s AND tablename = %s",
            (self._options.publication, schema, table),
        )
        return found[0] if found else (None, None)

    def keys(self, schema: str, table: str) -> tuple[str, ...]:
        """Columns of the identity: of the index that was chosen, else of the primary key; none if there is neither."""
        found = self.rows(
            "SELECT a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
            "CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place) "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND k.place <= i.indnkeyatts AND "
            "CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END ORDER BY k.place",
            (schema, table),
        )
        return tuple(name for (name,) in found)

    def encoder(self, type_id: int) -> Encoder:
        """How values of a type become JSON; asked of pg_type once."""
        known = ENCODERS.get(type_id) or self._encoders.get(type_id)
        if known is not None:
            return known
        found = self.rows(
            "SELECT t.typtype, t.typbasetype::bigint, t.typelem::bigint, t.typcategory, "
            "COALESCE((SELECT e.typdelim FROM pg_type e WHERE e.oid = t.typelem), ',') "
            "FROM pg_type t WHERE t.oid = %s",
            (type_id,),
        )
        encoder: Encoder = text
        if found:
            ((kind, base, element, category, delimiter),) = found
            if kind == "d":
                encoder = self.encoder(base)
            elif category == "A" and element:
                encoder = _array_or_text(array(self.encoder(element), delimiter.encode()))
        self._encoders[type_id] = encoder
        return encoder


class Stream:
    """The replication connection: a slot made, a snapshot exported, changes read, a position confirmed."""

    def __init__(self, options: CdcOptions) -> None:
        """Raises CdcError, Interrupted."""
        self._options = options
        self._connection = connect(options.dsn, replication=True)
        self._cursor = self._connection.cursor()

    def close(self) -> None:
        self._connection.close()

    def create_slot(self, *, temporary: bool = False) -> tuple[int, str]:
        """Make the slot, or one that is gone with this connection; its LSN, and the name of its snapshot.

        The snapshot is to be taken up by another connection before this one is used again.
        """
        name = f"{self._options.slot[:40]}_snapshot_{os.getpid()}" if temporary else self._options.slot
        kind = "TEMPORARY " if temporary else ""
        with translated():
            self._cursor.execute(
                sql.SQL("CREATE_REPLICATION_SLOT {} " + kind + "LOGICAL pgoutput EXPORT_SNAPSHOT").format(
                    sql.Identifier(name)
                )
            )
            _, lsn, snapshot, _ = self._cursor.fetchone()
        return lsn_of(lsn), snapshot

    def start(self, server_version: int, *, keep_alive_s: float) -> None:
        """Ask for everything behind what was confirmed."""
        given = {"proto_version": "1", "publication_names": _name(self._options.publication)}
        if server_version >= _STREAMING_SINCE:
            given |= {"proto_version": "2", "streaming": "on"}
        with translated():
            # Feedback is sent by ``confirm``; psycopg2 sends it besides when PostgreSQL asks for it.
            self._cursor.start_replication(
                slot_name=self._options.slot,
                decode=False,
                start_lsn=0,
                options=given,
                status_interval=max(1, keep_alive_s),
            )

    @property
    def pid(self) -> int:
        return self._connection.get_backend_pid()

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> tuple[int, bytes] | None:
        """The next message and its LSN; None if none has come. Answers keepalives."""
        try:
            message = self._cursor.read_message()
        except psycopg2.Error:
            with translated():
                raise
        return None if message is None else (message.data_start, message.payload)

    @property
    def wal_end(self) -> int:
        """Up to where PostgreSQL has decoded and sent."""
        return self._cursor.wal_end

    def confirm(self, lsn: int) -> None:
        """Tell PostgreSQL that everything up to ``lsn`` is safe here, and its WAL no longer needed."""
        with translated():
            self._cursor.send_feedback(write_lsn=lsn, flush_lsn=lsn, apply_lsn=lsn, force=True)


@contextmanager
def snapshot_connection(dsn: str, snapshot: str) -> Generator[Connection]:
    """A connection that sees what ``snapshot`` sees."""
    connection = connect(dsn)
    try:
        with translated(), connection.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
        yield connection
    finally:
        connection.close()


def copy_rows(connection: Connection, table: TableInfo, write: Callable[[bytes], object]) -> None:
    """The rows of a table as lines of COPY's text format; ``write`` may raise, which ends it."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    source = sql.SQL("{}{}").format(
        sql.SQL("" if table.is_partitioned else "ONLY "), sql.Identifier(table.schema, table.table)
    )
    condition = sql.SQL(f" WHERE {table.row_filter}") if table.row_filter else sql.SQL("")
    query = sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT").format(columns, source, condition)
    with translated(), connection.cursor() as cursor:
        cursor.copy_expert(query, _Lines(write))


class _Lines:
    """What copy_expert writes to."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.write = write

    def read(self, _size: int = -1) -> bytes:
        raise OSError("this is written to")


def _array_or_text(encode: Encoder) -> Encoder:
    """Types that count as arrays and are written otherwise (int2vector) stay text."""

    def either(value: bytes) -> bytes:
        try:
            return encode(value)
        except ArrayError:
            return text(value)

    return either


def split_name(name: str) -> tuple[str, str]:
    """``schema.table``, or a table of ``public``."""
    schema, dot, table = name.partition(".")
    return (schema, table) if dot else ("public", name)


def _name(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _quoted(schema: str, table: str) -> str:
    return f"{_name(schema)}.{_name(table)}"
