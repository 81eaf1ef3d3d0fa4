"""Brokers, versions of changes and leases in PostgreSQL (ADR-0046).

A look is one query by primary keys of small tables. Heartbeats are not synced: when PostgreSQL loses some,
brokers register again. Leases are, because an epoch that is given twice fences no one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from ...errors import StorageUnavailable
from ...postgres.connector import BROKER_SESSION, Connection, PostgresUnavailable
from ...postgres.history import SECONDS
from ...postgres.session import PostgresSession
from ..membership import ClusterState, Displaced, Lease, Member, MemberEndpoint
from .database import read_versions

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# The caller tries again soon; waiting here would delay heartbeats.
_RETRY_S = 0.5
_MS = "interval '1 millisecond'"

_MEMBERS = """
    SELECT broker_id, incarnation, rack, endpoints, (extract(epoch FROM started_at) * 1000)::bigint,
        (extract(epoch FROM session_timeout) * 1000)::int, shows_epochs
    FROM brokers WHERE seen > now() - session_timeout ORDER BY broker_id
"""
_LEASES = """
    SELECT name, broker_id, incarnation, epoch, (extract(epoch FROM expires - now()) * 1000)::bigint
    FROM leases WHERE expires > now() AND EXISTS (
        SELECT FROM brokers WHERE incarnation = leases.incarnation AND seen > now() - session_timeout
    )
"""
_REGISTER = f"""
    INSERT INTO brokers (broker_id, incarnation, rack, endpoints, session_timeout, shows_epochs)
    VALUES (%s, %s, %s, %s, %s * {_MS}, true)
    ON CONFLICT (broker_id) DO UPDATE SET incarnation = EXCLUDED.incarnation, rack = EXCLUDED.rack,
        endpoints = EXCLUDED.endpoints, session_timeout = EXCLUDED.session_timeout, started_at = now(), seen = now(),
        report = NULL, beats = 0, shows_epochs = true
    WHERE brokers.seen <= now() - brokers.session_timeout OR brokers.incarnation IN (EXCLUDED.incarnation, %s)
"""
# A broker that counted as dead joins again: to the others it is a newcomer. ``report`` stays if it is null.
_HEARTBEAT = """
    UPDATE brokers SET seen = now(), report = coalesce(%s, report), beats = beats + 1,
        started_at = CASE WHEN seen <= now() - session_timeout THEN now() ELSE started_at END
    WHERE broker_id = %s AND incarnation = %s
    RETURNING started_at = now(), beats
"""
_ARE_OTHERS = "SELECT FROM brokers WHERE incarnation <> %s AND seen > now() - session_timeout LIMIT 1"
_HISTORY = "SELECT epoch, leader_epoch, members FROM history"
# Not beyond the seconds by which another history would begin (``history``): then with one of the next heartbeats.
_RAISE_LEADER_EPOCH = f"""
    UPDATE history SET leader_epoch = leader_epoch + 1, members = %s
    WHERE members = %s AND leader_epoch + 1 < {SECONDS}
"""
_ACQUIRE = f"""
    INSERT INTO leases (name, broker_id, incarnation, epoch, expires) VALUES (%s, %s, %s, 1, now() + %s * {_MS})
    ON CONFLICT (name) DO UPDATE SET broker_id = EXCLUDED.broker_id, incarnation = EXCLUDED.incarnation,
        epoch = leases.epoch + CASE WHEN leases.incarnation = EXCLUDED.incarnation THEN 0 ELSE 1 END,
        expires = EXCLUDED.expires
    WHERE leases.incarnation = EXCLUDED.incarnation OR leases.expires <= now() OR NOT EXISTS (
        SELECT FROM brokers WHERE incarnation = leases.incarnation AND seen > now() - session_timeout
    )
    RETURNING epoch
"""

_RENEW = f"""
    UPDATE leases SET expires = now() + %s * {_MS} WHERE name = ANY(%s) AND incarnation = %s RETURNING name, epoch
"""
# A broker that was paused in the middle of a pipeline keeps row locks until it goes on, whatever its session
# says about idle transactions. Then it settles a commit of unknown outcome as after any broken connection.
_END_STUCK = f"""
    SELECT pg_terminate_backend(a.pid)
    FROM brokers b JOIN pg_stat_activity a ON a.application_name = '{BROKER_SESSION}' || b.incarnation
    WHERE b.seen <= now() - b.session_timeout AND a.xact_start < clock_timestamp() - interval '2 seconds'
        AND a.datname = current_database() AND a.usename = current_user
"""


class PostgresMembership:
    """Implements ``Membership``. The session is the caller's, who closes it."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def _run(self, what: str, work: Callable[[Connection], _T]) -> _T:
        try:
            return self._session.run(work, retry_s=_RETRY_S)
        except PostgresUnavailable as error:
            raise StorageUnavailable(what, str(error)) from error

    def register(self, member: Member, *, previous: UUID | None = None) -> bool:
        endpoints = json.dumps(member.endpoints)

        def work(connection: Connection) -> bool:
            given = (
                *(member.broker_id, member.incarnation, member.rack, endpoints, member.session_timeout_ms),
                previous,
            )
            if connection.execute(_REGISTER, given).rowcount != 1:
                return False
            history = self._session.connector.history
            history.registered()
            if connection.execute(_ARE_OTHERS, (member.incarnation,)).fetchone() is None:
                # While no broker ran, the database may have gone back without a trace. Transactions stay open: that
                # is far less likely than a producer that waits for the brokers to come back.
                history.begin(connection, "its first broker starts", may_lack_commits=False)
            return True

        return self._run("the registration of the broker", work)

    def heartbeat(self, member: Member, report: str | None = None) -> None:
        history = self._session.connector.history

        def work(connection: Connection) -> int | None:
            connection.execute("SET LOCAL synchronous_commit = off")
            given = (report, member.broker_id, member.incarnation)
            updated = connection.execute(_HEARTBEAT, given).fetchone()
            if updated is not None:
                history.beaten(connection, updated[1])
            if updated is not None and updated[0]:
                logger.warning("this broker counted as dead, and has joined the cluster again")
            if connection.execute(_END_STUCK).fetchone() is not None:
                logger.warning("the transaction that a dead broker had left open was ended")
            return None if updated is None else int(updated[1])

        beats = self._run("a heartbeat", work)
        if beats is not None:
            history.counted(beats)
        elif not self.register(member):
            raise Displaced(
                f"another broker has registered with the id {member.broker_id}; give each broker an id of its own"
            )

    def look(self) -> ClusterState:
        def work(connection: Connection) -> ClusterState:
            begun_s = time.perf_counter()
            with connection.pipeline():
                members, leases = connection.execute(_MEMBERS), connection.execute(_LEASES)
                history = connection.execute(_HISTORY)
                versions = read_versions(connection)
                # The queries above share one round trip.
                self._session.traffic.measured(time.perf_counter() - begun_s)
                state = ClusterState(
                    members=tuple(
                        Member(
                            broker_id=broker_id,
                            incarnation=incarnation,
                            rack=rack,
                            endpoints={
                                listener: MemberEndpoint(host, port)
                                for listener, (host, port) in json.loads(endpoints).items()
                            },
                            started_at_ms=started_at_ms,
                            session_timeout_ms=session_timeout_ms,
                            shows_epochs=shows_epochs,
                        )
                        for (
                            *(broker_id, incarnation, rack, endpoints),
                            started_at_ms,
                            session_timeout_ms,
                            shows_epochs,
                        ) in members.fetchall()
                    ),
                    versions={kind.value: version for kind, version in versions.items()},
                    leases={
                        name: Lease(
                            broker_id=broker_id,
                            incarnation=incarnation,
                            epoch=epoch,
                            expires_in_ms=expires_in_ms,
                        )
                        for name, broker_id, incarnation, epoch, expires_in_ms in leases.fetchall()
                    },
                )
                found = history.fetchone()
            return self._with_epochs(connection, state, found)

        return self._run("looking at the cluster", work)

    def _with_epochs(
        self, connection: Connection, state: ClusterState, found: tuple[int, int, str] | None
    ) -> ClusterState:
        """Return the state with the leader epoch for its members.

        It rises if they are others than before: librdkafka 2.4 to 2.7 follows a change of leaders only if the epoch rises.
        """
        members = " ".join(f"{member.broker_id}:{member.incarnation}" for member in state.members)
        if found is not None and found[2] != members:
            connection.execute("SET LOCAL synchronous_commit = off")
            connection.execute(_RAISE_LEADER_EPOCH, (members, found[2]))
            # Unless another broker was first.
            found = connection.execute(_HISTORY).fetchone()
        if found is None:
            return state
        history, leader_epoch, _ = found
        self._session.connector.history.saw_leader_epoch(leader_epoch)
        shows_epochs = all(member.shows_epochs for member in state.members)
        return replace(state, history=history, leader_epoch=leader_epoch if shows_epochs else -1)

    def leave(self, member: Member) -> None:
        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE leases SET expires = now() WHERE incarnation = %s", (member.incarnation,)
            )
            connection.execute(
                "DELETE FROM brokers WHERE broker_id = %s AND incarnation = %s",
                (member.broker_id, member.incarnation),
            )

        self._run("leaving the cluster", work)

    def acquire(self, name: str, member: Member) -> int | None:
        def work(connection: Connection) -> int | None:
            given = (name, member.broker_id, member.incarnation, member.lease_ms)
            # Waits for the last write of its holder, which locks the key of the row; a renewal need not.
            connection.execute(
                "SELECT FROM leases WHERE name = %s AND incarnation <> %s FOR UPDATE",
                (name, member.incarnation),
            )
            row = connection.execute(_ACQUIRE, given).fetchone()
            return None if row is None else int(row[0])

        return self._run(f"taking the lease {name}", work)

    def renew(self, names: Sequence[str], member: Member) -> Mapping[str, int]:
        def work(connection: Connection) -> dict[str, int]:
            rows = connection.execute(_RENEW, (member.lease_ms, list(names), member.incarnation)).fetchall()
            return {str(name): int(epoch) for name, epoch in rows}

        return self._run("renewing leases", work)

    def release(self, name: str, member: Member) -> None:
        self._run(
            f"giving back the lease {name}",
            lambda connection: connection.execute(
                "UPDATE leases SET expires = now() WHERE name = %s AND incarnation = %s",
                (name, member.incarnation),
            ),
        )

    def close(self) -> None:
        self._session.close()
