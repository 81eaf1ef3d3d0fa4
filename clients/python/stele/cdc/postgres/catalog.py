"""The catalogs of PostgreSQL: setup checks, slots, publications, tables and types."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg2 import errors, sql

from ..decoding.column_types import TEXT, ColumnType, base_type
from ..decoding.notation import lsn_of, quoted_name, quoted_table, split_name
from ..decoding.pgoutput import COLUMNS_MAX, Column, Relation, Row
from ..decoding.values import ENCODERS, ArrayError, Encoder, array, text
from ..errors import CdcError, Interrupted
from ..options import CdcOptions
from ..records.debezium_types import CatalogType, ConnectType, Decimals, Times, connect_type
from .connection import Connection, connect, first_line, translated

_OLDEST = 120_000
# Of queries beside the stream, which waits for them.
LOCK_TIMEOUT_MS = 100
# The longest wait for a WAL sender to end.
_DROP_S = 20.0
# Bits for the transaction ids of a timeline.
_TIMELINE_SHIFT = 44
SERVER = "SELECT pg_postmaster_start_time(), pg_is_in_recovery()"
# Slots of synchronized_standby_slots, without which PostgreSQL sends no changes to a slot that can fail over.
_STANDBYS = (
    "(SELECT string_agg(n, ', ') FROM regexp_split_to_table(current_setting('synchronized_standby_slots'), '[ ,\"]+') n "
    "LEFT JOIN pg_replication_slots s ON s.slot_name = n WHERE n <> '' AND s.active_pid IS NULL)"
)
# What ``write_past`` writes at once, and at most.
_FILLER_BYTES = 8 * 1024 * 1024
_FILLER_BYTES_MAX = 1024 * 1024 * 1024
# Since then slots can outlive a failover.
FAILOVER_SINCE = 170_000
# The first key of the advisory lock; the second is the hash of the slot.
_LOCK_CLASS = 0x57E1E


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table: its published ``columns``, and the ``keys`` of its identity in order."""

    schema: str
    table: str
    is_partitioned: bool
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    row_filter: str | None

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    def has_keys(self) -> bool:
        """Return whether rows can be told apart, and put in order, by columns that are published."""
        return bool(self.keys) and {column.name for column in self.columns}.issuperset(self.keys)

    def key_of(self, row: Row) -> tuple[str, ...]:
        """Return the text of the key of a row."""
        names = [column.name for column in self.columns]
        data = [row[names.index(key)] for key in self.keys]
        return tuple(datum.decode() if isinstance(datum, bytes) else "" for datum in data)

    def relation(self) -> Relation:
        return Relation(0, self.schema, self.table, "d", self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotInfo:
    """``can_fail_over`` is None before PostgreSQL 17. It waits for ``standbys`` that are not connected."""

    confirmed_lsn: int
    wal_status: str | None
    lag_bytes: int
    retained_bytes: int | None
    can_fail_over: bool | None
    standbys: str | None

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost"


class Postgres:
    """The ordinary connection of a run, which holds the lock against a second run."""

    def __init__(self, options: CdcOptions) -> None:
        """Raises CdcError, Interrupted."""
        self._options = options
        self.connection: Connection = connect(options.dsn)
        self.server_version: int = self.connection.server_version
        self._encoders: dict[int, Encoder] = {}
        self._types: dict[int, CatalogType | None] = {}
        self._type_names: dict[tuple[int, int], str] = {}
        self._walsender: int | None = None
        if self.server_version < _OLDEST:
            self.close()
            raise CdcError(f"PostgreSQL {self.server_version // 10_000} is too old; 12 or newer is needed")
        ((is_standby,),) = self.rows("SELECT pg_is_in_recovery()")
        if is_standby:
            self.close()
            raise Interrupted(
                "PostgreSQL is a standby, which is not followed until it is promoted; if it stays one, write the primary "
                "into the DSN, or all hosts and target_session_attrs=read-write"
            )

    def close(self) -> None:
        self.connection.close()

    def follow(self, options: CdcOptions) -> None:
        """Take other options, with other tables."""
        self._options = options

    def rows(self, query: str | sql.Composable, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a query and return its rows. Raises CdcError, Interrupted."""
        with translated(), self.connection.cursor() as cursor:
            cursor.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def without_waiting(self) -> Generator[None]:
        """Let queries raise TableLockedError instead of waiting for a session that alters a table.

        From PostgreSQL 16 on, reading ``pg_publication_tables`` locks all tables of the publication.
        """
        self.rows(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
        try:
            yield
        finally:
            if not self.connection.closed:
                self.rows("SET lock_timeout = 0")

    # ── setup ──

    def take_lock(self) -> None:
        """Lock the slot against a second run until this connection closes.

        Raises:
            CdcError, Interrupted
        """
        ((is_taken,),) = self.rows(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", (_LOCK_CLASS, self._options.slot)
        )
        if not is_taken:
            raise Interrupted(
                f"slot {self._options.slot} is in use by another stele cdc; stop it, or choose another --slot"
            )

    def identity(self) -> tuple[str, str]:
        """Return the identifier of the cluster and the name of the database."""
        ((system, database),) = self.rows(
            "SELECT (SELECT system_identifier::text FROM pg_control_system()), current_database()"
        )
        return system, database

    def server(self) -> tuple[Any, ...]:
        """Return what tells this server from others with the same data."""
        return self.rows(SERVER)[0]

    def run_number(self) -> int:
        """Return a number larger than that of any earlier run: the timeline and a transaction id.

        The transaction writes, because after a crash PostgreSQL reuses the ids of
        transactions that wrote nothing. A standby that was promoted may reuse others, but its timeline is
        larger. The name of a file of the WAL begins with it.
        """
        ((number, file, _),) = self.rows(
            "SELECT txid_current(), pg_walfile_name(pg_current_wal_lsn()), "
            "pg_logical_emit_message(true, 'stele cdc', %s)",
            (self._options.slot,),
        )
        return number + ((int(file[:8], 16) - 1) << _TIMELINE_SHIFT)

    def current_lsn(self) -> int:
        """Return up to where WAL is written."""
        ((lsn,),) = self.rows("SELECT pg_current_wal_lsn()::text")
        return lsn_of(lsn)

    def write_past(self, lsn: int) -> int:
        """Write WAL until it is past ``lsn``; return where it is then.

        Raises:
            CdcError: that would be too much.
            Interrupted
        """
        while (missing := lsn - (current := self.current_lsn())) >= 0:
            if missing > _FILLER_BYTES_MAX:
                raise CdcError(
                    f"the topics of prefix {self._options.prefix} are {missing} bytes of WAL ahead of PostgreSQL; choose "
                    "another --prefix and --slot, which copies the tables as they are now"
                )
            self.rows(
                "SELECT pg_logical_emit_message(true, 'stele cdc', repeat(' ', %s))",
                (min(missing, _FILLER_BYTES) + 1,),
            )
        return current

    def check_settings(self) -> None:
        """Raise CdcError if wal_level is wrong or the role may not replicate."""
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
                f"{user} may not replicate; run as a superuser: ALTER ROLE {quoted_name(user)} REPLICATION"
            )

    def check_tables(self, names: Sequence[str] | None = None) -> None:
        """Raise CdcError for a table that is missing, unreadable or without an identity."""
        for name in self._options.tables if names is None else names:
            schema, table = split_name(name)
            rows = self.rows(
                "SELECT c.relkind, c.relreplident, EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid "
                "AND i.indisprimary), c.relpersistence, has_table_privilege(c.oid, 'SELECT'), row_security_active(c.oid) "
                "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = %s AND c.relname = %s",
                (schema, table),
            )
            if not rows:
                raise CdcError(f"there is no table {name}; name it as SCHEMA.TABLE, as shown by \\dt *.*")
            ((kind, identity, has_primary_key, persistence, may_read, is_filtered),) = rows
            if kind == "p":
                self._check_partitions(name, schema, table)
            if kind not in ("r", "p") or persistence != "p":
                raise CdcError(
                    f"{name} is not a table whose changes are logged (a view, or an unlogged table)"
                )
            if identity == "n" or (identity == "d" and not has_primary_key):
                raise CdcError(
                    f"rows of {name} have no identity, so PostgreSQL cannot publish updates and deletes; "
                    f"ALTER TABLE {quoted_table(schema, table)} ADD PRIMARY KEY (…), or REPLICA IDENTITY FULL"
                )
            if self._options.has_record_per_row:
                self._check_rows(name, schema, table)
            if self._options.snapshot == "never":
                continue
            if not may_read:
                raise CdcError(
                    f"{name} may not be read; GRANT SELECT ON {quoted_table(schema, table)} to the user of the DSN"
                )
            if is_filtered:
                ((user,),) = self.rows("SELECT current_user")
                raise CdcError(
                    f"{name} has row level security, and its policies would hide rows from the copy, but not from the "
                    f"changes; run as a superuser: ALTER ROLE {quoted_name(user)} BYPASSRLS"
                )

    def _check_rows(self, name: str, schema: str, table: str) -> None:
        """Raise CdcError for a table of which a record per row cannot be kept."""
        quoted = quoted_table(schema, table)
        if not self.keys(schema, table):
            raise CdcError(
                f"{name} has no primary key, which --compact and --value row need as the key of its records; "
                f"ALTER TABLE {quoted} ADD PRIMARY KEY (…)"
            )
        may_leave_out = self.rows(
            "SELECT 1 FROM pg_class c WHERE c.reltoastrelid <> 0 AND c.relreplident <> 'f' AND (c.oid = %s::regclass "
            "OR c.oid IN (SELECT relid FROM pg_partition_tree(%s::regclass)))",
            (quoted, quoted),
        )
        if may_leave_out:
            raise CdcError(
                f"rows of {name} may have large values, which PostgreSQL does not send with an update that does not "
                "change them, so --compact and --value row would lose them; ALTER TABLE "
                f"{quoted} REPLICA IDENTITY FULL (of a partitioned table: each partition)"
            )

    def _check_partitions(self, name: str, schema: str, table: str) -> None:
        """Raise CdcError for partitions that cannot be followed.

        PostgreSQL would reject updates of a published partition without an identity. Changes of
        foreign and unlogged partitions are not in the WAL, though their rows would be in the copy.
        """
        unlogged = self.rows(
            "SELECT c.relname FROM pg_partition_tree(%s::regclass) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf "
            "AND (c.relkind <> 'r' OR c.relpersistence <> 'p')",
            (quoted_table(schema, table),),
        )
        if unlogged:
            names = ", ".join(partition for (partition,) in unlogged)
            raise CdcError(
                f"changes of partitions of {name} are not logged ({names} are foreign tables, or unlogged); "
                "ALTER TABLE … SET LOGGED each of them, or follow the other partitions as tables of their own"
            )
        lacking = self.rows(
            "SELECT c.relname FROM pg_partition_tree(%s::regclass) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf "
            "AND (c.relreplident = 'n' OR c.relreplident = 'd' AND NOT EXISTS "
            "(SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))",
            (quoted_table(schema, table),),
        )
        if lacking:
            names = ", ".join(partition for (partition,) in lacking)
            raise CdcError(
                f"partitions of {name} have no identity ({names}), so PostgreSQL would reject updates of them; "
                f"ALTER TABLE … REPLICA IDENTITY FULL each of them, or give {name} a primary key"
            )

    def has_publication(self) -> bool:
        return bool(
            self.rows("SELECT 1 FROM pg_publication WHERE pubname = %s", (self._options.publication,))
        )

    def keep_alive_s(self) -> float:
        """Return the interval of keepalives in s, well below wal_sender_timeout."""
        ((timeout_ms,),) = self.rows(
            "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'"
        )
        return min(10.0, timeout_ms / 4000) if timeout_ms else 10.0

    def ensure_publication(self) -> None:
        """Create the publication if missing. Raise CdcError if it is incomplete."""
        name = self._options.publication
        wanted = [split_name(table) for table in self._options.tables]
        has_roots = self.server_version >= 130_000
        rows = self.rows(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, "  # noqa: S608
            f"{'pubviaroot' if has_roots else 'false'} FROM pg_publication WHERE pubname = %s",
            (name,),
        )
        if not rows:
            # ONLY, because tables that inherit from them may have no identity.
            tables = ", ".join(f"ONLY {quoted_table(*table)}" for table in wanted)
            roots = " WITH (publish_via_partition_root = true)" if has_roots else ""
            followed = f" FOR TABLE {tables}" if tables else ""
            statement = f"CREATE PUBLICATION {quoted_name(name)}{followed}{roots}"
            self._as_owner(statement, "the owner of the tables")
            return
        ((has_all, is_by_root),) = rows
        if not has_all:
            raise CdcError(
                f"publication {name} does not publish all changes; ALTER PUBLICATION {quoted_name(name)} "
                "SET (publish = 'insert, update, delete, truncate')"
            )
        published = set(
            self.rows("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (name,))
        )
        missing = [table for table in wanted if table not in published]
        if missing and has_roots and not is_by_root and self._partitioned(missing):
            raise CdcError(
                f"publication {name} publishes partitions instead of their tables; "
                f"ALTER PUBLICATION {quoted_name(name)} SET (publish_via_partition_root = true)"
            )
        if missing:
            names = ", ".join(quoted_table(*table) for table in missing)
            raise CdcError(
                f"publication {name} does not include {names}; ALTER PUBLICATION {quoted_name(name)} ADD TABLE {names}"
            )

    def drop_from_publication(self, schema: str, table: str) -> None:
        """Remove a table that the publication names. Raises CdcError, Interrupted."""
        named = self.rows(
            "SELECT 1 FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid "
            "WHERE p.pubname = %s AND r.prrelid = to_regclass(%s)",
            (self._options.publication, quoted_table(schema, table)),
        )
        if named:
            self.rows(
                sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(
                    sql.Identifier(self._options.publication), sql.Identifier(schema, table)
                )
            )

    def add_to_publication(self, schema: str, table: str) -> None:
        """Add a table unless it is published. Raises CdcError, Interrupted."""
        publication = self._options.publication
        published = self.rows(
            "SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s",
            (publication, schema, table),
        )
        if published or not self.has_publication():
            return
        statement = (
            f"ALTER PUBLICATION {quoted_name(publication)} ADD TABLE ONLY {quoted_table(schema, table)}"
        )
        self._as_owner(statement, "its owner, before the table is requested again,")

    def _as_owner(self, statement: str, owner: str) -> None:
        """Execute a statement that ``owner`` may execute. Raises CdcError, Interrupted."""
        with translated(), self.connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except errors.InsufficientPrivilege as error:
                raise CdcError(f"{first_line(error)}; let {owner} run: {statement}") from error

    def _partitioned(self, tables: Sequence[tuple[str, str]]) -> bool:
        return any(
            self.rows(
                "SELECT 1 FROM pg_class WHERE oid = %s::regclass AND relkind = 'p'", (quoted_table(*table),)
            )
            for table in tables
        )

    def slot(self) -> SlotInfo | None:
        """Return the slot; None if it does not exist.

        Raises:
            CdcError: the slot cannot be used.
            Interrupted: another process uses the slot.
        """
        name = self._options.slot
        status = "wal_status" if self.server_version >= 130_000 else "NULL"
        failover = f"failover, {_STANDBYS}" if self.server_version >= FAILOVER_SINCE else "NULL, NULL"
        rows = self.rows(
            f"SELECT plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, {status}, {failover}, "  # noqa: S608
            "pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, "
            "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint "
            "FROM pg_replication_slots WHERE slot_name = %s",
            (name,),
        )
        if not rows:
            return None
        ((plugin, is_here, pid, confirmed, wal_status, can_fail_over, standbys, lag, retained),) = rows
        if plugin != "pgoutput" or not is_here:
            raise CdcError(
                f"slot {name} belongs to another database or plugin ({plugin}); choose another --slot"
            )
        if pid is not None and pid != self._walsender:
            raise Interrupted(f"slot {name} is in use by process {pid} of PostgreSQL")
        return SlotInfo(
            confirmed_lsn=lsn_of(confirmed),
            wal_status=wal_status,
            lag_bytes=lag,
            retained_bytes=retained,
            can_fail_over=can_fail_over,
            standbys=standbys if can_fail_over else None,
        )

    def estimated_rows(self, schema: str, table: str) -> int:
        """Return how many rows the planner expects in a table. Raises CdcError, Interrupted."""
        return self.rows(
            "SELECT GREATEST(reltuples, 0)::bigint FROM pg_class WHERE oid = %s::regclass",
            (quoted_table(schema, table),),
        )[0][0]

    def drop_slot(self) -> None:
        """Drop the slot as soon as the WAL sender of this run has ended. Raises CdcError, Interrupted."""
        self.rows(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active_pid = %s",
            (self._options.slot, self._walsender or 0),
        )
        give_up_s = time.monotonic() + _DROP_S
        while True:
            try:
                self.rows("SELECT pg_drop_replication_slot(%s)", (self._options.slot,))
            except Interrupted:
                # It is still active.
                if time.monotonic() >= give_up_s:
                    raise
                time.sleep(0.1)
            else:
                return

    def streaming_by(self, pid: int) -> None:
        """Set the process id of the WAL sender of this run."""
        self._walsender = pid

    # ── tables and types ──

    def table(self, schema: str, table: str) -> TableInfo:
        """Describe a table. Raises CdcError if it does not exist."""
        columns = self.rows(
            "SELECT a.attname, a.atttypid::bigint, a.atttypmod FROM pg_attribute a "
            "WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped "
            # Since PostgreSQL 18 a publication may have generated columns; then they are in its list.
            "AND (a.attgenerated = '' OR %s) ORDER BY a.attnum",
            (quoted_table(schema, table), self.server_version >= 180_000),
        )
        ((kind,),) = self.rows(
            "SELECT relkind FROM pg_class WHERE oid = %s::regclass", (quoted_table(schema, table),)
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
        """Return the column list and row filter of the publication (PostgreSQL 15)."""
        if self.server_version < 150_000:
            return None, None
        rows = self.rows(
            "SELECT attnames::text[], rowfilter FROM pg_publication_tables "
            "WHERE pubname = %s AND schemaname = %s AND tablename = %s",
            (self._options.publication, schema, table),
        )
        return rows[0] if rows else (None, None)

    def keys(self, schema: str, table: str) -> tuple[str, ...]:
        """Return the columns of the identity: of its index, else of the primary key, else none."""
        rows = self.rows(
            "SELECT a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
            "CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place) "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND k.place <= i.indnkeyatts AND "
            "CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END ORDER BY k.place",
            (schema, table),
        )
        return tuple(name for (name,) in rows)

    def dimensions(self, schema: str, table: str) -> dict[str, int]:
        """Return the dimensions that columns of array types declare, where these are several."""
        return dict(
            self.rows(
                "SELECT attname, attndims FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attndims > 1",
                (quoted_table(schema, table),),
            )
        )

    def encoder(self, type_id: int) -> Encoder:
        """Return the JSON encoder of a type."""
        known = ENCODERS.get(type_id) or self._encoders.get(type_id)
        if known is not None:
            return known
        encoder: Encoder = text
        found = self._type(type_id)
        if found is not None:
            if found.kind == "d":
                encoder = self.encoder(found.base)
            elif found.category == "A" and found.element:
                encoder = _array_or_text(array(self.encoder(found.element), found.delimiter.encode()))
        self._encoders[type_id] = encoder
        return encoder

    def column_type(self, type_id: int, modifier: int = -1) -> ColumnType:
        """Return the type of a column for schemas; ``modifier`` is its ``atttypmod``."""
        known = base_type(type_id, modifier)
        if known is not None:
            return known
        found = self._type(type_id)
        if found is not None:
            if found.kind == "d":
                return self.column_type(found.base, found.base_modifier if modifier < 0 else modifier)
            if found.is_array:
                items = self.column_type(found.element, modifier)
                return ColumnType("array", items=items, delimiter=found.delimiter.encode())
        return TEXT

    def type_name(self, type_id: int, modifier: int) -> str:
        """Return a type as PostgreSQL writes it, ``numeric(10,2)``; ``???`` if it was dropped."""
        key = type_id, modifier
        if key not in self._type_names:
            ((name,),) = self.rows(
                "SELECT format_type(%s, %s)", (type_id, modifier if modifier >= 0 else None)
            )
            self._type_names[key] = name
        return self._type_names[key]

    def connect_type(self, column: Column, dimensions: int, decimals: Decimals, times: Times) -> ConnectType:
        """Return the type of a column in Debezium's form; ``dimensions`` are those that an array declares."""
        return connect_type(
            column.type_id,
            column.type_modifier,
            dimensions=dimensions,
            decimals=decimals,
            times=times,
            look_up=self._type,
        )

    def _type(self, type_id: int) -> CatalogType | None:
        """Return a row of pg_type; looked up once."""
        if type_id not in self._types:
            rows = self.rows(
                "SELECT t.typtype, t.typbasetype::bigint, t.typtypmod, t.typelem::bigint, t.typcategory, "
                "COALESCE(e.typdelim, ','), COALESCE(e.typarray = t.oid, false), t.typname, "
                "ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder) "
                "FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem WHERE t.oid = %s",
                (type_id,),
            )
            self._types[type_id] = CatalogType(*rows[0]) if rows else None
        return self._types[type_id]


def _array_or_text(encode: Encoder) -> Encoder:
    """Fall back to text for array types with another notation (int2vector)."""

    def either(value: bytes) -> bytes:
        try:
            return encode(value)
        except ArrayError:
            return text(value)

    return either
