"""What is missing in PostgreSQL is reported with the statement that fixes it; gaps are reported until a new copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess

from load.postgres_server import PostgresServer, packaged_bin
from tests.support.cdc import EXIT_CODE_OF_A_GAP, Replay, running_cdc
from tests.support.postgres import drop_slot, postgres_bin
from tests.support.waiting import Pauses

# ── what is wrong is said, with what to do ──


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("setup", "arguments", "said"),
    [
        ("", ("--tables", "public.nowhere"), "there is no table public.nowhere"),
        ("CREATE TABLE t (v int)", ("--tables", "t"), "ADD PRIMARY KEY"),
        ("CREATE VIEW t AS SELECT 1", ("--tables", "t"), "not a table whose changes are logged"),
        (
            "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE PUBLICATION stele FOR TABLE u",
            ("--tables", "t,u"),
            'ALTER PUBLICATION "stele" ADD TABLE "public"."t"',
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY); SELECT pg_create_logical_replication_slot('stele', 'test_decoding')",
            ("--tables", "t"),
            "another --slot",
        ),
        ("", ("--tables", "t", "--slot", "Bad-Slot"), "lower case letters"),
        ("", (), "--tables public.orders"),
    ],
)
def test_what_is_not_set_up_ends_it_with_what_to_do(
    pg: PostgresServer,
    stele_broker: BrokerProcess,
    log: Path,
    setup: str,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    for statement in filter(None, setup.split("; ")):
        pg.run(statement)
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        assert cdc.wait() in (1, 2)
        assert said in cdc.said
        assert "Traceback" not in cdc.said


def test_a_role_without_replication_gets_an_error_with_the_statement_to_run(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("DROP ROLE IF EXISTS reader")
    pg.run("CREATE ROLE reader LOGIN PASSWORD 'secret-word'")
    monkeypatch.setenv("PGPASSWORD", "secret-word")
    dsn = pg.dsn.replace("postgres@", "reader@")
    with running_cdc(pg, stele_broker.binary_url, log, "--dsn", dsn, "--tables", "t") as cdc:
        assert cdc.wait() == 1
        assert 'ALTER ROLE "reader" REPLICATION' in cdc.said
        assert "secret-word" not in cdc.said


def test_a_server_without_logical_wal_level_gets_an_error(stele_broker: BrokerProcess, log: Path) -> None:
    with PostgresServer(postgres_bin(), wal_level="replica") as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY)")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            assert cdc.wait() == 1
            assert "set wal_level = logical in postgresql.conf" in cdc.said


def test_a_slot_has_one_connector_and_the_next_one_waits_for_it(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, tmp_path: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as first:
        pg.run("INSERT INTO t VALUES (1)")
        replay.read_until(lambda: len(replay.rows) == 1, check=first.check)
        with running_cdc(pg, stele_broker.binary_url, tmp_path / "second.log", "--tables", "t") as second:
            pauses = Pauses()
            while "in use by another stele cdc" not in second.said:
                second.check()
                pauses.pause()
            first.kill()
            pg.run("INSERT INTO t VALUES (2)")
            replay.read_until(lambda: len(replay.rows) == 2, check=second.check)


def test_a_dropped_slot_is_reported_as_a_gap_until_the_tables_are_copied_again(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("INSERT INTO t VALUES (1), (2)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 2, check=cdc.check)
        cdc.stop()
        drop_slot(pg, "stele")
        pg.run("DELETE FROM t WHERE id = 1")
        cdc.start()
        assert cdc.wait() == EXIT_CODE_OF_A_GAP
        assert "--snapshot again" in cdc.said
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--snapshot", "again") as cdc:
        pg.run("INSERT INTO t VALUES (3)")
        replay.read_until(lambda: b"3" in replay.rows, check=cdc.check)
    assert set(replay.table()) == {2, 3}


@pytest.mark.long
def test_a_row_that_no_record_can_hold_ends_it_with_the_way_around(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        pg.run("INSERT INTO t VALUES (1, repeat('x', 17000000))")
        assert cdc.wait() == 1
        assert "publish the table without its large column" in cdc.said
    pg.run("ALTER PUBLICATION stele SET TABLE t (id)")
    drop_slot(pg, "stele")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--snapshot", "again") as cdc:
        pg.run("INSERT INTO t VALUES (2, repeat('x', 17000000))")
        replay.read_until(lambda: set(replay.rows) == {b"1", b"2"}, check=cdc.check)


def test_a_table_that_is_added_later_is_copied_while_the_others_go_on(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE a (id int PRIMARY KEY)")
    pg.run("CREATE TABLE b (id int PRIMARY KEY)")
    pg.run("INSERT INTO b SELECT generate_series(1, 10)")
    pg.run("CREATE PUBLICATION stele FOR TABLE a, b")
    a, b = (Replay(stele_broker.binary_url, f"pg.public.{name}") for name in "ab")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "a") as cdc:
        cdc.await_streaming()
        pg.run("INSERT INTO a VALUES (1)")
        a.read_until(lambda: len(a.rows) == 1, check=cdc.check)
        cdc.stop()
    # Both are behind the slot; the second is in the copy of b as well, and must not come twice.
    pg.run("INSERT INTO a VALUES (2)")
    pg.run("INSERT INTO b VALUES (11)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "a,b") as cdc:
        pg.run("INSERT INTO b VALUES (12)")
        a.read_until(lambda: len(a.rows) == 2, check=cdc.check)
        b.read_until(lambda: len(b.rows) == 12, check=cdc.check)
    assert [dict(r.headers)["operation"] for r in b.records].count(b"r") >= 11
    assert len(b.records) == 12


@pytest.mark.long
def test_an_older_and_a_newer_postgresql_speak_to_it_too(stele_broker: BrokerProcess, log: Path) -> None:
    other = packaged_bin()
    if other is None or other == postgres_bin():
        pytest.skip("a second PostgreSQL comes with: pip install pgserver")
    with PostgresServer(other, logical_decoding_work_mem="64kB") as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        pg.run("INSERT INTO t VALUES (0, 'copied')")
        replay = Replay(stele_broker.binary_url, "pg.public.t")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
            pg.run("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 3000) n")
            replay.read_until(lambda: len(replay.rows) == 3001, check=cdc.check)
            assert cdc.stop() == 0
