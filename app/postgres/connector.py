"""One connection to PostgreSQL, with the settings of every session of a broker.

They bound how long a session can hold locks: a broker that is paused inside a transaction keeps its row locks for
``idle_in_transaction_session_timeout``, then the server ends the session. That time does not begin in the middle of a
pipeline. The name of a session therefore says which broker it belongs to, and other brokers end the sessions of a dead
one (``app.cluster.postgres.membership``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
from psycopg import conninfo

from .history import HistoryKeeper, ReplacedPrimary
from .migrations import migrate

Connection = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT_S = 5

_MARKER = "stele.session"
_SESSION = {
    "synchronous_commit": "on",
    "idle_in_transaction_session_timeout": "2s",
    "lock_timeout": "2s",
    "statement_timeout": "5s",
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    # PostgreSQL has no such setting of its own, so a session that knows it was given all of these.
    _MARKER: "1",
}
# ``application_name`` of the sessions of a broker, before its incarnation.
BROKER_SESSION = "stele "
_CONNECTION = {
    "application_name": "stele",
    "connect_timeout": _CONNECT_TIMEOUT_S,
    # With several hosts: the one that takes writes.
    "target_session_attrs": "read-write",
    # A peer that is gone is noticed within about ten seconds.
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class PostgresUnavailable(Exception):
    """The database cannot be reached, or ended a call with an error.

    The call may have had effect.
    """


def connection_string(dsn: str, schema: str, incarnation: UUID | None = None) -> str:
    """Return ``dsn`` with the settings of a session; those that it sets itself stay.

    ``incarnation`` is that of the broker that the session belongs to.

    Raises:
        ValueError: it is not a connection string.
    """
    unreadable = ValueError(
        "not a PostgreSQL connection string; write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with / @ : and "
        "% in the password as %2F %40 %3A and %25"
    )
    try:
        given = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # Its message may contain the password.
        raise unreadable from None
    ports = str(given.get("port") or "").split(",")
    if (
        not all(port.isdigit() or not port for port in ports)
        or "@" in f"{given.get('host')}{given.get('dbname')}"
    ):
        # A part of a password that was not escaped.
        raise unreadable
    settings = {**_SESSION, "search_path": f'"{schema}"'}
    options = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items())
    # The last one counts, so an operator's own options come last.
    name = {} if incarnation is None else {"application_name": f"{BROKER_SESSION}{incarnation}"}
    merged = {**_CONNECTION, **name, **given, "options": f"{options} {given.get('options') or ''}".strip()}
    return conninfo.make_conninfo("", **merged)


def _one_by_one(conninfo_all: str) -> list[str]:
    """Return a connection string for each server of one."""
    given = conninfo.conninfo_to_dict(conninfo_all)
    hosts, addresses, ports = (str(given.get(name) or "").split(",") for name in ("host", "hostaddr", "port"))
    count = max(len(hosts), len(addresses))

    def nth(values: list[str], number: int) -> str:
        return values[number] if len(values) > 1 else values[0]

    return [
        conninfo.make_conninfo(
            conninfo_all,
            **{
                name: nth(values, number)
                for name, values in (("host", hosts), ("hostaddr", addresses), ("port", ports))
                if values != [""]
            },
        )
        for number in range(count)
    ]


class SettingsNotInForce(psycopg.OperationalError):
    """A session lacks the settings that it was to have."""


class Connector:
    """Makes the connections of one broker.

    Raises ``ValueError`` if ``dsn`` is no connection string.
    """

    def __init__(self, dsn: str, *, schema: str = "stele", incarnation: UUID | None = None) -> None:
        self.history = HistoryKeeper(incarnation)
        self._schema = schema
        self._conninfo = connection_string(dsn, schema, incarnation)
        self._hosts = _one_by_one(self._conninfo)

    @property
    def has_several_hosts(self) -> bool:
        """Return whether the connection string names several servers."""
        return len(self._hosts) > 1

    def connect(self) -> Connection:
        """Return a connection in autocommit mode.

        Its settings are in force, and the history of its database is known.

        Raises ``psycopg.Error``, also as ``SettingsNotInForce`` and ``ReplacedPrimary``.
        """
        try:
            return self._connect(self._conninfo)
        except ReplacedPrimary:
            # It comes before the one that has replaced it.
            for host in self._hosts:
                with suppress(psycopg.OperationalError):
                    return self._connect(host)
            raise

    def _connect(self, server: str) -> Connection:
        connection = psycopg.connect(server, autocommit=True)
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def find_promoted(self) -> None:
        """Look for a server of the connection string that was promoted.

        If one has replaced the server that is known, its history becomes the known one, and connections to the other
        server are used no longer.
        """
        for host in self._hosts:
            with suppress(psycopg.Error), psycopg.connect(host, autocommit=True) as connection:
                if self.history.is_promoted(connection):
                    self._check(connection)

    def _check(self, connection: Connection) -> None:
        row = connection.execute(
            "SELECT current_setting('stele.session', true), to_regclass('history') IS NOT NULL"
        ).fetchone()
        assert row is not None
        marker, has_history = row
        if marker != _SESSION[_MARKER]:
            raise SettingsNotInForce(
                "the settings of the session are not in force: what is between the broker and PostgreSQL drops the"
                " startup parameter 'options'"
            )
        if has_history:
            self.history.settle(connection)

    def migrate(self, connection: Connection) -> int:
        """Bring the schema to the newest version and return that.

        Raises:
            SchemaMismatch: the database belongs to a newer release.
            psycopg.Error: the database refuses it.
        """
        version = migrate(connection, self._schema)
        self.history.settle(connection)
        return version
