"""Connections to PostgreSQL: settings, errors that say whether to try again, and how to break them."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2
from psycopg2 import errorcodes, errors, extensions, extras

from .errors import CdcError, Interrupted
from .values import SESSION_SETTINGS

# What PostgreSQL has no typed stubs for.
Connection = Any
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
        raise CdcError(first_line(error)) from error
    except psycopg2.OperationalError as error:
        said = str(error)
        if any(hopeless in said for hopeless in _HOPELESS):
            raise CdcError(first_line(error)) from error
        if error.pgcode == errorcodes.CONFIGURATION_LIMIT_EXCEEDED:
            raise Interrupted(
                f"{first_line(error)}; raise max_replication_slots and max_wal_senders, or drop what is not used"
            ) from error
        raise Interrupted(first_line(error)) from error
    except psycopg2.InterfaceError as error:
        raise Interrupted(first_line(error)) from error
    except psycopg2.DatabaseError as error:
        # A server that was killed leaves errors of any class behind.
        if error.pgcode is None or error.pgcode.startswith(("08", "57P", "53", "55")):
            raise Interrupted(first_line(error)) from error
        raise CdcError(first_line(error)) from error


def first_line(error: Exception) -> str:
    """What psycopg2 says of an error, in one line."""
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
