"""Connections to PostgreSQL, and translation of their errors."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2
from psycopg2 import errorcodes, errors, extensions, extras

from ..decoding.values import SESSION_SETTINGS
from ..errors import CdcError, Interrupted, QueryTimedOutError, TableLockedError

# psycopg2 has no type stubs.
Connection = Any
# Connection errors that a retry cannot fix. They come without an error code.
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

# Limits that a role may have for interactive use, and the version that introduced them; a copy must not be interrupted.
_NO_TIMEOUTS = {
    "statement_timeout": 0,
    "lock_timeout": 0,
    "idle_in_transaction_session_timeout": 0,
    "idle_session_timeout": 140_000,
    "transaction_timeout": 170_000,
}
_LIVE: weakref.WeakSet[Any] = weakref.WeakSet()


def describe_dsn(dsn: str) -> str:
    """Return database, host and port of a DSN, without the password. Raises CdcError."""
    parts = _parse(dsn)
    host = parts.get("host") or os.environ.get("PGHOST") or "local socket"
    return f"{parts.get('dbname') or os.environ.get('PGDATABASE') or 'default database'} on {host}:{parts.get('port', 5432)}"


def has_password(dsn: str) -> bool:
    """Return whether a DSN holds a password, including that of a private key.

    Raises CdcError.
    """
    return not _parse(dsn).keys().isdisjoint(("password", "sslpassword"))


def _parse(dsn: str) -> dict[str, str]:
    unreadable = CdcError(
        "the DSN is invalid; write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with / @ : and % in the "
        "password as %2F %40 %3A and %25"
    )
    try:
        parts: dict[str, str] = extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # Its message may contain the password.
        raise unreadable from None
    ports = str(parts.get("port", "5432")).split(",")
    if not all(port.isdigit() or not port for port in ports) or "@" in parts.get("host", "") + parts.get(
        "dbname", ""
    ):
        # A part of a password that was not escaped.
        raise unreadable
    return parts


@contextmanager
def translated() -> Generator[None]:
    """Raise psycopg2's errors as ``Interrupted`` or ``CdcError``."""
    try:
        yield
    except (
        errors.InsufficientPrivilege,
        errors.UndefinedObject,
        errors.UndefinedTable,
        errors.FeatureNotSupported,
    ) as error:
        raise CdcError(first_line(error)) from error
    except errors.LockNotAvailable as error:
        raise TableLockedError(first_line(error)) from error
    except errors.QueryCanceled as error:
        raise QueryTimedOutError(first_line(error)) from error
    except psycopg2.OperationalError as error:
        message = str(error)
        if any(hopeless in message for hopeless in _HOPELESS):
            raise CdcError(first_line(error)) from error
        if error.pgcode == errorcodes.CONFIGURATION_LIMIT_EXCEEDED:
            raise Interrupted(
                f"{first_line(error)}; raise max_replication_slots and max_wal_senders, or drop unused slots"
            ) from error
        raise Interrupted(first_line(error)) from error
    except psycopg2.InterfaceError as error:
        raise Interrupted(first_line(error)) from error
    except psycopg2.DatabaseError as error:
        # A server that was killed can cause errors of any class.
        if error.pgcode is None or error.pgcode.startswith(("08", "57P", "53", "55")):
            raise Interrupted(first_line(error)) from error
        raise CdcError(first_line(error)) from error


def first_line(error: Exception) -> str:
    """Return the message of a psycopg2 error in one line."""
    if "no message from the libpq" in str(error):
        return "PostgreSQL has closed the connection"
    lines = str(error).strip().splitlines()
    return f"PostgreSQL: {lines[0]}" if lines else f"PostgreSQL: {type(error).__name__}"


def connect(dsn: str, *, replication: bool = False) -> Connection:
    """Connect with the session settings that ``values`` needs.

    Raises:
        CdcError, Interrupted
    """
    parts = _parse(dsn)
    if "," in parts.get("host", ""):
        # A standby is not followed, and the next host may be the primary.
        parts.setdefault("target_session_attrs", "read-write")
    with translated():
        connection = psycopg2.connect(
            dsn,
            target_session_attrs=parts.get("target_session_attrs"),
            connection_factory=extras.LogicalReplicationConnection if replication else None,
            application_name="stele cdc",
            connect_timeout=int(parts.get("connect_timeout", 10)),
            # A peer that disappears is noticed within a minute.
            keepalives_idle=int(parts.get("keepalives_idle", 20)),
            keepalives_interval=int(parts.get("keepalives_interval", 10)),
            keepalives_count=int(parts.get("keepalives_count", 4)),
            # TCP keepalive does not run while sent data is unacknowledged.
            tcp_user_timeout=int(parts.get("tcp_user_timeout", 60_000)),
            client_encoding="UTF8",
        )
        _LIVE.add(connection)
        if not replication:
            connection.autocommit = True
        with connection.cursor() as cursor:
            # Not as options of the connection, which PGTZ and the like would override.
            for name, value in SESSION_SETTINGS.items():
                cursor.execute(f"SET {name} = '{value}'")
            for name, since in _NO_TIMEOUTS.items():
                if connection.server_version >= since:
                    cursor.execute(f"SET {name} = 0")
    return connection


def break_connections() -> None:
    """Shut down all connections, so that calls to PostgreSQL fail in all threads."""
    for connection in list(_LIVE):
        with suppress(psycopg2.Error, OSError):
            number: int = connection.fileno()
            with socket.socket(fileno=os.dup(number)) as copy:
                copy.shutdown(socket.SHUT_RDWR)
