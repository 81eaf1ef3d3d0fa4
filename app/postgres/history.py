"""Detects that PostgreSQL has lost commits, after a failover or a restore (ADR-0071).

A standby that is promoted may lack the last commits of its primary, and a restored database lacks all since its
backup. Brokers have seen these commits, clients have read what they stored, and the database gives the same offsets
and ids out again. So each connection looks first whether the database is still the one that the broker knows: the same
cluster of PostgreSQL on the same timeline, with at least as many heartbeats as the broker has sent. If not, it begins
another history before anything else is done with that connection. A server on an earlier timeline than the known one is
a primary that was replaced: the broker refuses it. Brokers compare the epoch of the history with each
answer.

Epochs are leader epochs of Kafka, and never repeat, whatever a restored database remembers: they are at least the
seconds since 2025, and none is in force before its second. A database that has forgotten some of them so begins with a
greater one.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg

logger = logging.getLogger(__name__)

Connection = psycopg.Connection[tuple[Any, ...]]

# Ids that the database has given out and forgotten are skipped. No lost part has given out that many.
_SKIPPED_IDS = 1 << 32
_SKIPPED_LEASE_EPOCHS = 1_000

# The timeline is the beginning of the name of a WAL file: that of the control file is up to a checkpoint late.
_SERVER = """
    SELECT (SELECT system_identifier FROM pg_control_system()) || '/'
        || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
"""
# For services that do not let a role call these functions: each start of a server begins another history.
_SERVER_START = "SELECT extract(epoch FROM pg_postmaster_start_time())::text"
_READ = """
    SELECT id, epoch, server, (SELECT beats FROM brokers WHERE incarnation = %s)
    FROM history
"""
_LOCK = "SELECT id, epoch, server, leader_epoch FROM history FOR UPDATE"
_TIME = "extract(epoch FROM clock_timestamp() - timestamptz '2025-01-01 00:00:00+00')"
SECONDS = f"floor({_TIME})::int"
_INSERT = f"""
    INSERT INTO history (id, epoch, leader_epoch, server) VALUES (%s, {SECONDS}, {SECONDS}, %s)
    ON CONFLICT (is_one) DO NOTHING
"""  # noqa: S608 - a constant from above
_BEGIN = f"""
    UPDATE history SET (id, epoch, leader_epoch, server, members) =
        (SELECT %s, n.epoch, n.epoch, %s, '' FROM (SELECT greatest(leader_epoch + 1, %s, {SECONDS} + %s) AS epoch) AS n)
    RETURNING epoch
"""  # noqa: S608 - a constant from above
_AWAIT_SECOND = f"SELECT pg_sleep(greatest(0, %s - {_TIME}))"
_SKIP = (
    "SELECT setval(pg_get_serial_sequence('logs', 'log_id'),"
    " nextval(pg_get_serial_sequence('logs', 'log_id')) + %s)",
    "UPDATE numbers SET value = (value::bigint + %s)::text WHERE name = 'next_producer_id'",
)
# Of an open transaction a part may be lost. A negative timeout says so: it is overdue, and no broker commits it. Rows are
# locked in the order of all others that lock them.
_DOUBT_TRANSACTIONS = """
    UPDATE transactional_ids SET timeout_ms = -timeout_ms WHERE transactional_id IN (
        SELECT transactional_id FROM transactional_ids WHERE state = 'Ongoing' AND timeout_ms > 0
        ORDER BY producer_id FOR UPDATE)
"""
# A lease is valid only in the history that it was given in.
_SKIP_LEASES = "UPDATE leases SET epoch = epoch + %s, expires = least(expires, now())"


class ReplacedPrimary(psycopg.OperationalError):
    """A server that a standby has replaced still takes writes."""


class History(NamedTuple):
    """One history of the database. ``epoch`` rises with each of them."""

    id: UUID
    epoch: int


class HistoryKeeper:
    """One broker's view of the history. Its methods may be called from any thread.

    ``incarnation`` is that of the broker.
    """

    def __init__(self, incarnation: UUID | None) -> None:
        self._incarnation = incarnation
        self._lock = threading.Lock()
        self._known: History | None = None
        self._leader_epoch = 0
        self._beats = 0
        # The server of the history that is known.
        self._server = ""

    @property
    def known(self) -> History | None:
        """Return the newest history that a connection has seen."""
        return self._known

    def saw_leader_epoch(self, epoch: int) -> None:
        """Note a leader epoch that clients may have seen: the next history is above."""
        self._leader_epoch = max(self._leader_epoch, epoch)

    def registered(self) -> None:
        """Note that the database counts the heartbeats of this broker from 0 again."""
        self._beats = 0

    def beaten(self, connection: Connection, beats: int) -> None:
        """Begin another history if the database has forgotten heartbeats.

        Within the transaction of the one that made it ``beats``. Raises ``psycopg.Error``.
        """
        if beats <= self._beats:
            self.begin(connection, "it has forgotten heartbeats of this broker")

    def counted(self, beats: int) -> None:
        """Note the heartbeats that are committed: only these does every connection see."""
        self._beats = beats

    def settle(self, connection: Connection) -> None:
        """Look whether the database is the one that is known.

        It must be done before all other work with the connection. Raises ``psycopg.Error``, also as
        ``ReplacedPrimary``.
        """
        server = server_of(connection)
        if self._is_later(self._server, server):
            raise ReplacedPrimary(
                f"this PostgreSQL was replaced: a promotion has begun timeline {_timeline(self._server)}, and this"
                f" server still takes writes on timeline {_timeline(server)}. Stop it; if it was restored on purpose,"
                " restart all brokers"
            )
        # Before the query: a heartbeat of another connection may come between.
        counted = self._beats
        row = connection.execute(_READ, (self._incarnation,)).fetchone()
        if row is None:
            connection.execute(_INSERT, (uuid4(), server))
            row = connection.execute(_READ, (self._incarnation,)).fetchone()
            assert row is not None
        history, beats = History(row[0], row[1]), row[3]
        known = self._known
        if row[2] != server:
            self._begin(connection, server, history, f"PostgreSQL was {row[2]} and is {server}")
        elif known is not None and history.epoch < known.epoch:
            self._begin(connection, server, history, f"it is back at history {history.epoch}")
        elif history == known and (beats or 0) < counted:
            self._begin(connection, server, history, "it has forgotten heartbeats of this broker")
        else:
            self._note(history, server)

    def is_promoted(self, connection: Connection) -> bool:
        """Return whether this server has replaced the one that is known.

        Raises ``psycopg.Error``.
        """
        return self._is_later(server_of(connection), self._server)

    @staticmethod
    def _is_later(server: str, other: str) -> bool:
        """Return whether ``server`` is the other one on a later timeline.

        Not known of a start of a server (``_SERVER_START``).
        """
        (system, slash, timeline), (other_system, _, other_timeline) = (
            server.partition("/"),
            other.partition("/"),
        )
        return bool(slash) and system == other_system and int(timeline, 16) > int(other_timeline, 16)

    def begin(self, connection: Connection, reason: str, *, may_lack_commits: bool = True) -> None:
        """Begin another history, within the caller's transaction if there is one.

        Raises ``psycopg.Error``.
        """
        row = connection.execute(_READ, (self._incarnation,)).fetchone()
        if row is not None:
            seen = History(row[0], row[1])
            self._begin(connection, server_of(connection), seen, reason, may_lack_commits=may_lack_commits)

    def _begin(
        self,
        connection: Connection,
        server: str,
        seen: History,
        reason: str,
        *,
        may_lack_commits: bool = True,
    ) -> None:
        with connection.transaction():
            # A standby may be missing for long, and a history that is lost is followed by another one.
            connection.execute("SET LOCAL synchronous_commit = local")
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("SET LOCAL lock_timeout = 0")
            row = connection.execute(_LOCK).fetchone()
            assert row is not None
            history = History(row[0], row[1])
            if history == seen or row[2] != server:
                least = max(self._leader_epoch, 0 if self._known is None else self._known.epoch) + 1
                new = uuid4()
                # The one before may have begun in this second, and be forgotten. Not if no broker ran since.
                ahead = 1 if may_lack_commits else 0
                begun = connection.execute(_BEGIN, (new, server, least, ahead)).fetchone()
                assert begun is not None
                connection.execute(_AWAIT_SECOND, begun)
                history = History(new, begun[0])
                for statement in _SKIP:
                    connection.execute(statement, (_SKIPPED_IDS,))
                connection.execute(_SKIP_LEASES, (_SKIPPED_LEASE_EPOCHS,))
                if may_lack_commits:
                    connection.execute(_DOUBT_TRANSACTIONS)
                logger.warning("the database begins history %d: %s", history.epoch, reason)
        self._beats = 0
        self._note(history, server)

    def _note(self, history: History, server: str) -> None:
        with self._lock:
            if self._known is None or history.epoch >= self._known.epoch:
                self._known, self._server = history, server


def _timeline(server: str) -> int:
    return int(server.partition("/")[2], 16)


def server_of(connection: Connection) -> str:
    """Return which PostgreSQL this is, and on which timeline."""
    try:
        row = connection.execute(_SERVER).fetchone()
    except (
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.UndefinedFunction,
        psycopg.errors.FeatureNotSupported,
    ):
        row = connection.execute(_SERVER_START).fetchone()
    assert row is not None
    return str(row[0])
