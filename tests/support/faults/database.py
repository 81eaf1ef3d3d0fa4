"""The PostgreSQL of a run: one server, or a primary and a standby that take turns.

Brokers reach the primary by way of their links, as through a proxy that follows the failover. The standby copies the
primary through a link of its own. Which of two kinds a failover has is decided before it: with a synchronous standby
nothing that was acknowledged may be lost; an asynchronous one is cut off first, and lacks what came after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import psycopg2

from load.postgres_server import PostgresServer
from tests.support.postgres import postgres_bin, programs_for_standbys

from .ledger import Place
from .links import Cut, Link, LinkLoop

# On a busy machine, for what takes less than a second.
_PATIENCE_S = 120.0
_LOOK_S = 0.02
_SETTINGS: Any = {
    "wal_level": "replica",
    "max_connections": "200",
    "log_min_messages": "fatal",
    # A standby that was away for a restart of the primary goes on where it was.
    "wal_keep_size": "256MB",
    "wal_retrieve_retry_interval": "200ms",
}
_ENDS = """
    SELECT t.name, l.part, l.next_offset FROM stele.logs l JOIN stele.topics t USING (topic_id)
    WHERE l.deleted_at IS NULL
"""


class Database:
    """Within a ``with``. ``links`` are those of the brokers; they lead to the primary."""

    def __init__(self, loop: LinkLoop, links: Sequence[Link], *, has_standby: bool) -> None:
        self._loop = loop
        self._links = links
        self._has_standby = has_standby
        self._stack = ExitStack()
        self._standby: PostgresServer | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            programs = programs_for_standbys() if self._has_standby else postgres_bin()
            self.primary = stack.enter_context(PostgresServer(programs, **_SETTINGS))
            self._replication = Link(self._loop, "replication", ("127.0.0.1", self.primary.port))
            self._lead()
            if self._has_standby:
                self._standby = stack.enter_context(
                    PostgresServer(programs, primary=self._replicated, **_SETTINGS)
                )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def has_standby(self) -> bool:
        """Return whether a failover is possible."""
        return self._standby is not None

    @property
    def standby(self) -> PostgresServer:
        assert self._standby is not None
        return self._standby

    @property
    def _replicated(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._replication.port}/postgres"

    def _lead(self) -> None:
        for link in (*self._links, self._replication):
            link.target = ("127.0.0.1", self.primary.port)

    def run(self, query: str, given: object = None) -> list[tuple[Any, ...]]:
        """Run one statement on the primary."""
        return self.primary.run(query, given)

    @property
    def history(self) -> int:
        """Return the epoch of the history that the primary is in; 0 before the first."""
        rows = self.run("SELECT epoch FROM stele.history")
        return rows[0][0] if rows else 0

    # ── a failover, step by step ──

    def wait_for_standby(self) -> None:
        """Let commits wait for the standby from now on, until it is promoted."""
        self.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        self.run("SELECT pg_reload_conf()")
        _await(
            lambda: bool(self.run("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")),
            "the standby is synchronous",
        )

    def await_standby(self) -> None:
        """Return when the standby has everything until now."""
        ((position,),) = self.run("SELECT pg_current_wal_lsn()")
        _await(
            lambda: (
                self.standby.run("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (position,)) == [(True,)]
            ),
            "the standby has everything",
        )

    def cut_off(self, how: Cut) -> None:
        """Let nothing more get to the standby."""
        self._replication.cut(how)

    def kill_primary(self) -> None:
        self.primary.kill()

    def promote(self) -> Mapping[Place, int]:
        """Make the standby the primary, and lead the brokers to it; return the ends of the logs that it has."""
        standby = self.standby
        self._replication.cut(Cut.RESET)
        # The copy of the configuration of its primary would let it wait for a standby that there is not yet.
        standby.run("ALTER SYSTEM SET synchronous_standby_names = ''")
        standby.run("SELECT pg_reload_conf()")
        standby.promote()
        _await(lambda: standby.run("SELECT pg_is_in_recovery()") == [(False,)], "the standby is the primary")
        # No broker reaches it yet.
        ends = {(name, part): end for name, part, end in standby.run(_ENDS)}
        self.primary, self._standby = standby, self.primary
        self._lead()
        for link in self._links:
            link.drop()
        return ends

    def rebuild(self) -> None:
        """Make the former primary, which is dead, a standby of the new one."""
        self._replication.mend()
        self.standby.follow(self._replicated)
        self.standby.start()

    def await_history(self, after: int) -> int:
        """Wait until a broker has noticed the failover; return the epoch of the new history."""
        _await(lambda: self.history > after, "the brokers have noticed that the database failed over")
        return self.history

    # ── other faults ──

    def stop_immediately(self) -> None:
        self.primary.stop_immediately()

    def start(self) -> None:
        self.primary.start()


def _await(is_so: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if is_so():
                return
        except psycopg2.OperationalError:
            # Another fault ended this session, too.
            pass
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"not within {_PATIENCE_S:g} s: {what}")
        time.sleep(_LOOK_S)
