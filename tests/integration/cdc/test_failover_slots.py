"""Slots that outlive a failover (PostgreSQL 17 and newer): nothing lost and nothing twice, or a gap that is named."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stele.broker_process import BrokerProcess
from stele.cdc.decoding.notation import lsn_of

from load.postgres_server import PostgresServer
from tests.support.cdc import EXIT_CODE_OF_A_GAP, CdcProcess, Database, Replay, gap_in, gaps_of, running_cdc
from tests.support.postgres import drop_slot, programs_of
from tests.support.postgres_writers import Writer
from tests.support.waiting import eventually

NEWEST, OTHERS = 18, [17]
RELEASES = [NEWEST, *(pytest.param(release, marks=pytest.mark.long) for release in OTHERS)]
TABLES = ("--tables", "t,steps")
SETTINGS: dict[str, Any] = {"fsync": "off", "logical_decoding_work_mem": "64kB"}
_IS_SYNCED = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'stele' AND synced AND NOT temporary"


class Hosts:
    """A primary and a standby as a connector is told of both; ``primary`` is the one that serves."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary, self.standby = primary, standby
        self.dsn: str = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres?connect_timeout=5"

    def run(self, query: str, given: object = None) -> list[tuple[Any, ...]]:
        return self.primary.run(query, given)

    def connect(self) -> Any:
        return self.primary.connect()

    def await_replayed(self) -> None:
        ((end,),) = self.primary.run("SELECT pg_current_wal_flush_lsn()::text")
        eventually(
            lambda: self.standby.run("SELECT pg_last_wal_replay_lsn() >= %s", (end,)) == [(True,)],
            "the standby has replayed everything",
        )

    def await_synced(self) -> None:
        """Returns when the standby has the slot, and would keep it if it were promoted."""

        def is_synced() -> bool:
            # What lets the slot go on, and wakes the process that looks at it.
            self.primary.run("SELECT pg_log_standby_snapshot()")
            self.standby.run("SELECT pg_reload_conf()")
            return bool(self.standby.run(_IS_SYNCED))

        eventually(is_synced, "the standby has the slot")

    def fail_over(self) -> None:
        """The primary is gone for good, and the standby takes its place."""
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary


@contextmanager
def hosts(release: int) -> Generator[Hosts]:
    """As docs/cdc.md says: the standby has a slot of the primary, which sends no change that the standby lacks."""
    programs = programs_of(release)
    with PostgresServer(programs, **SETTINGS) as primary:
        primary.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        primary.run("CREATE TABLE steps (id int PRIMARY KEY, n int)")
        primary.run("INSERT INTO steps VALUES (1, 0)")
        primary.run("SELECT pg_create_physical_replication_slot('standby', true)")
        with PostgresServer(
            programs,
            primary=primary.dsn,
            primary_slot_name="standby",
            hot_standby_feedback="on",
            sync_replication_slots="on",
            **SETTINGS,
        ) as standby:
            primary.run("ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
            primary.run("SELECT pg_reload_conf()")
            yield Hosts(primary, standby)


class Steps(Writer):
    """Transactions that count in ``steps``, each by one, and add rows; the server may fail over under it."""

    def transact(self, cursor: Any) -> None:
        cursor.execute("UPDATE steps SET n = n + 1 RETURNING n")
        ((n,),) = cursor.fetchall()
        # Some are so large that they are streamed before they commit.
        count = 1500 if n % 100 == 0 else 2
        cursor.execute(
            "INSERT INTO t SELECT %s + g, repeat('x', 50) FROM generate_series(1, %s) g", (n * 2000, count)
        )
        cursor.execute("DELETE FROM t WHERE id = %s", (n * 2000 + 1,))


def check_steps(database: Database, steps: Replay, rows: Replay, cdc: CdcProcess) -> None:
    """Returns when the topics have all transactions: each once, and whole."""
    ((last,),) = database.run("SELECT n FROM steps")
    steps.read_until(lambda: steps.table()[1]["n"] == last, check=cdc.check)
    expected = {id_: {"id": id_, "v": v} for id_, v in database.run("SELECT id, v FROM t")}
    rows.read_until(lambda: rows.table() == expected, check=cdc.check)
    counted = [json.loads(record.value or b"")["after"]["n"] for record in steps.records]
    assert counted == list(range(counted[0], last + 1))


@pytest.mark.parametrize("release", RELEASES)
def test_a_failover_under_load_loses_nothing_and_repeats_nothing(
    stele_broker: BrokerProcess, log: Path, release: int
) -> None:
    with hosts(release) as pg:
        steps, rows = (Replay(stele_broker.binary_url, f"pg.public.{table}") for table in ("steps", "t"))
        load = Steps(pg.connect)
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
            cdc.await_streaming()
            load.start()
            try:
                steps.read_until(lambda: len(steps.records) > 50, check=cdc.check)
                pg.await_synced()
                enough = len(steps.records) + 50
                steps.read_until(lambda: len(steps.records) > enough, check=cdc.check)
                pg.fail_over()
                enough = len(steps.records) + 150
                steps.read_until(lambda: len(steps.records) > enough, check=cdc.check)
            finally:
                load.end()
            check_steps(pg, steps, rows, cdc)
            assert cdc.stop() == 0, cdc.said
        assert not gaps_of(stele_broker.binary_url)


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, *OTHERS])
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_failover_while_nothing_is_published_is_no_gap(
    stele_broker: BrokerProcess, log: Path, release: int, is_stopped: bool
) -> None:
    """The slot is ahead of the last change that is stored, whose LSN is all that the topics tell."""
    with hosts(release) as pg:
        steps = Replay(stele_broker.binary_url, "pg.public.steps")
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
            cdc.await_streaming()
            pg.run("CREATE TABLE other AS SELECT generate_series(1, 10000) n")
            cdc.await_confirmed()
            pg.await_synced()
            if is_stopped:
                cdc.stop()
            pg.await_replayed()
            pg.fail_over()
            if is_stopped:
                cdc.start()
            pg.run("UPDATE steps SET n = 1")
            steps.read_until(lambda: len(steps.records) == 2, check=cdc.check)
        assert not gaps_of(stele_broker.binary_url)


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, *OTHERS])
def test_a_slot_without_failover_gets_it(stele_broker: BrokerProcess, log: Path, release: int) -> None:
    """One that an earlier release has created, also while something else holds it for a moment."""
    with PostgresServer(programs_of(release), fsync="off") as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY)")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            cdc.await_streaming()
            assert pg.run("SELECT failover FROM pg_replication_slots") == [(True,)]
        drop_slot(pg, "stele")
        pg.run("SELECT pg_create_logical_replication_slot('stele', 'pgoutput')")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--accept-gap", "any") as cdc:
            eventually(
                lambda: pg.run("SELECT failover FROM pg_replication_slots") == [(True,)],
                "the slot can fail over",
            )
            cdc.await_streaming()


@pytest.mark.long
def test_a_slot_that_cannot_fail_over_is_reported_and_followed(
    stele_broker: BrokerProcess, log: Path
) -> None:
    """PostgreSQL does not allow both two-phase commit and failover."""
    with PostgresServer(programs_of(17), fsync="off") as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY)")
        pg.run("SELECT pg_create_logical_replication_slot('stele', 'pgoutput', twophase => true)")
        replay = Replay(stele_broker.binary_url, "pg.public.t")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            cdc.await_streaming()
            pg.run("INSERT INTO t VALUES (1)")
            replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
            ((can_fail_over,),) = pg.run("SELECT failover FROM pg_replication_slots")
            assert can_fail_over or "will be gone after a failover" in cdc.said


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, *OTHERS])
def test_a_standby_without_the_slot_is_a_gap(
    stele_broker: BrokerProcess, log: Path, tmp_path: Path, release: int
) -> None:
    """It was promoted before it had the slot, which PostgreSQL then drops."""
    with hosts(release) as pg:
        steps = Replay(stele_broker.binary_url, "pg.public.steps")
        pg.standby.stop()
        pg.standby.configure(sync_replication_slots="off")
        pg.standby.start()
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
            cdc.await_streaming()
            pg.run("UPDATE steps SET n = 1")
            steps.read_until(lambda: len(steps.records) == 2, check=cdc.check)
            pg.await_replayed()
            pg.fail_over()
            pg.run("UPDATE steps SET n = 2")
            assert cdc.wait() == EXIT_CODE_OF_A_GAP, cdc.said
            begin, end = gap_in(cdc.said)
            assert lsn_of(begin) < lsn_of(end)
            assert "slot stele is gone" in cdc.said
        with running_cdc(
            pg, stele_broker.binary_url, tmp_path / "on.log", *TABLES, "--accept-gap", begin
        ) as cdc:
            cdc.await_streaming()
            pg.run("UPDATE steps SET n = 3")
            steps.read_until(lambda: steps.table()[1]["n"] == 3, check=cdc.check)
        (gap,) = gaps_of(stele_broker.binary_url)
        assert gap["from"] == begin
        assert lsn_of(gap["to"]) >= lsn_of(end)
        assert len(steps.records) == 3


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, *OTHERS])
@pytest.mark.parametrize("way", ["again", "accept"])
def test_a_standby_that_lacks_what_the_topics_have_is_a_gap(
    stele_broker: BrokerProcess, log: Path, tmp_path: Path, release: int, way: str
) -> None:
    """Nothing waits for it. Its LSNs stand for other changes, up to where the topics are."""
    with hosts(release) as pg:
        pg.run("ALTER SYSTEM RESET synchronized_standby_slots")
        pg.run("SELECT pg_reload_conf()")
        rows = Replay(stele_broker.binary_url, "pg.public.t")
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
            cdc.await_streaming()
            pg.run("INSERT INTO t VALUES (0, 'of both')")
            rows.read_until(lambda: len(rows.rows) == 1, check=cdc.check)
            pg.await_synced()
            pg.await_replayed()
            pg.standby.stop()
            pg.run("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 1000) n")
            rows.read_until(lambda: len(rows.rows) == 1001, check=cdc.check)
            cdc.kill()
        pg.primary.stop_immediately()
        pg.standby.start()
        pg.standby.promote()
        pg.primary, pg.standby = pg.standby, pg.primary
        # Where the topics have something else.
        pg.run("INSERT INTO t VALUES (1, 'of the new one')")
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
            assert cdc.wait() == EXIT_CODE_OF_A_GAP, cdc.said
            begin, _ = gap_in(cdc.said)
            assert "failed over to a server that lacks those from" in cdc.said
        arguments = (*TABLES, *(("--snapshot", "again") if way == "again" else ("--accept-gap", begin)))
        for number in (2000, 2001):
            # The second run finds what the first one has noted.
            with running_cdc(
                pg,
                stele_broker.binary_url,
                tmp_path / f"{number}.log",
                *(arguments if number == 2000 else TABLES),
            ) as cdc:
                cdc.await_streaming()
                pg.run("INSERT INTO t VALUES (%s, 'after')", (number,))
                rows.read_until(lambda number=number: b"%d" % number in rows.rows, check=cdc.check)
        table = {id_: {"id": id_, "v": v} for id_, v in pg.run("SELECT id, v FROM t")}
        if way == "again":
            assert rows.table() == table
            assert not gaps_of(stele_broker.binary_url)
        else:
            # The row between is missing, and those of the old primary stay.
            assert rows.table()[1]["v"] != "of the new one"
            assert len(rows.rows) == 1003
            (gap,) = gaps_of(stele_broker.binary_url)
            assert gap["from"] == begin


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, *OTHERS])
def test_a_second_failover_goes_back_to_the_first_server(
    stele_broker: BrokerProcess, log: Path, release: int
) -> None:
    """Which has its old slot yet: PostgreSQL does not replace it, until somebody drops it there."""
    with hosts(release) as pg:
        first, second = pg.primary, pg.standby
        steps, rows = (Replay(stele_broker.binary_url, f"pg.public.{table}") for table in ("steps", "t"))
        load = Steps(pg.connect)
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
            cdc.await_streaming()
            load.start()
            try:
                pg.await_synced()
                # A switchover: the old primary stops cleanly and lacks nothing, so it can follow the new one.
                first.stop()
                second.promote()
                pg.primary, pg.standby = second, first
                enough = len(steps.records) + 50
                steps.read_until(lambda: len(steps.records) > enough, check=cdc.check)
                second.run("SELECT pg_create_physical_replication_slot('standby', true)")
                first.rejoin(
                    second.dsn,
                    primary_slot_name="standby",
                    hot_standby_feedback="on",
                    sync_replication_slots="on",
                )
                first.start()
                eventually(lambda: "already exists on the standby" in first.log, "the old slot is in the way")
                first.run("SELECT pg_drop_replication_slot('stele')")
                pg.await_synced()
                second.run("ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
                second.run("SELECT pg_reload_conf()")
                enough = len(steps.records) + 50
                steps.read_until(lambda: len(steps.records) > enough, check=cdc.check)
                pg.fail_over()
                # Its own setting is there yet, too, and nothing uses the slot that it names.
                eventually(lambda: "missing or inactive: standby" in cdc.said, "the log names the slot")
                first.run("ALTER SYSTEM RESET synchronized_standby_slots")
                first.run("SELECT pg_reload_conf()")
                enough = len(steps.records) + 50
                steps.read_until(lambda: len(steps.records) > enough, check=cdc.check)
            finally:
                load.end()
            check_steps(pg, steps, rows, cdc)
        assert not gaps_of(stele_broker.binary_url)


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, *OTHERS])
def test_an_old_primary_that_comes_back_is_not_followed(
    stele_broker: BrokerProcess, log: Path, tmp_path: Path, release: int
) -> None:
    """Nothing has fenced it, and it stands first in the DSN."""
    with hosts(release) as pg:
        old = pg.primary
        steps = Replay(stele_broker.binary_url, "pg.public.steps")
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
            cdc.await_streaming()
            pg.await_synced()
            pg.fail_over()
            pg.run("UPDATE steps SET n = 1")
            steps.read_until(lambda: len(steps.records) == 2, check=cdc.check)
        old.start()
        old.run("UPDATE steps SET n = 100")
        with running_cdc(pg, stele_broker.binary_url, tmp_path / "old.log", *TABLES) as cdc:
            assert cdc.wait() == 1, cdc.said
            assert "an old primary that came back is not followed" in cdc.said
        old.stop()
        with running_cdc(pg, stele_broker.binary_url, tmp_path / "new.log", *TABLES) as cdc:
            cdc.await_streaming()
            pg.run("UPDATE steps SET n = 2")
            steps.read_until(lambda: len(steps.records) == 3, check=cdc.check)
        assert [json.loads(record.value or b"")["after"]["n"] for record in steps.records] == [0, 1, 2]


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, *OTHERS])
def test_a_standby_that_is_down_holds_the_stream_back_and_is_reported(
    stele_broker: BrokerProcess, log: Path, release: int
) -> None:
    with hosts(release) as pg:
        steps = Replay(stele_broker.binary_url, "pg.public.steps")
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
            cdc.await_streaming()
            pg.run("UPDATE steps SET n = 1")
            steps.read_until(lambda: len(steps.records) == 2, check=cdc.check)
            pg.standby.stop()
            pg.run("UPDATE steps SET n = 2")
            eventually(lambda: "missing or inactive: standby" in cdc.said, "the log names the slot")
            # A connector that is killed then leaves a WAL sender that waits; the next one gets the slot all the same.
            cdc.kill()
            cdc.start()
            eventually(
                lambda: cdc.said.count("missing or inactive: standby") == 2, "the next one says so, too"
            )
            steps.read_all()
            assert len(steps.records) == 2
            pg.standby.start()
            steps.read_until(lambda: len(steps.records) == 3, check=cdc.check)
            assert cdc.stop() == 0
