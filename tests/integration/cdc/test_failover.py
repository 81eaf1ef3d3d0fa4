"""A failover of PostgreSQL loses no change unnoticed, and a standby is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.cdc import EXIT_CODE_OF_A_GAP, TIMEOUT_S, CdcProcess, Replay, running_cdc
from tests.support.postgres import programs_for_standbys
from tests.support.waiting import Pauses

pytestmark = pytest.mark.long

TABLES = ("--tables", "t,quiet")


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with PostgresServer(programs_for_standbys()) as primary:
        for table in ("t", "quiet"):
            primary.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        yield primary


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with PostgresServer(programs_for_standbys(), primary=primary.dsn) as standby:
        yield standby


def _await_replayed(primary: PostgresServer, standby: PostgresServer) -> None:
    ((end,),) = primary.run("SELECT pg_current_wal_flush_lsn()::text")
    give_up_s = time.monotonic() + TIMEOUT_S
    pauses = Pauses()
    while standby.run("SELECT pg_last_wal_replay_lsn() < %s", (end,)) != [(False,)]:
        assert time.monotonic() < give_up_s, standby.log
        pauses.pause()


def _await_followed(pg: PostgresServer, replay: Replay, cdc: CdcProcess) -> None:
    """Returns when a row that was inserted after the slot was created is in the topic."""
    cdc.await_confirmed()
    pg.run("INSERT INTO t VALUES (0, 'before')")
    replay.read_until(lambda: b"0" in replay.rows, check=cdc.check)


def _await_said(cdc: CdcProcess, text: str) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    pauses = Pauses()
    while text not in cdc.said:
        cdc.check()
        assert time.monotonic() < give_up_s, cdc.said
        pauses.pause()


@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_server_that_lacks_stored_changes_is_refused(
    primary: PostgresServer,
    standby: PostgresServer,
    stele_broker: BrokerProcess,
    log: Path,
    tmp_path: Path,
    mode: str,
) -> None:
    """Its LSNs stand for other changes: those up to the stored position would be taken for repetitions."""
    arguments = (*TABLES, "--transactions", mode)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(primary, stele_broker.binary_url, log, *arguments) as cdc:
        _await_followed(primary, replay, cdc)
        _await_replayed(primary, standby)
        standby.stop()
        primary.run("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 1000) n")
        replay.read_until(lambda: len(replay.rows) == 1001, check=cdc.check)
    _fail_over(primary, standby)
    with running_cdc(standby, stele_broker.binary_url, tmp_path / "gap.log", *arguments) as cdc:
        assert cdc.wait() == EXIT_CODE_OF_A_GAP
        assert "failed over to a server that lacks those from" in cdc.said
    for number in (1, 2):
        # The copy takes back what the server lacks. The second run finds what the first one has noted.
        again = ("--snapshot", "again") if number == 1 else ()
        said = tmp_path / f"{number}.log"
        with running_cdc(standby, stele_broker.binary_url, said, *arguments, *again) as cdc:
            cdc.await_streaming()
            standby.run("INSERT INTO t VALUES (%s, 'of now')", (number,))
            replay.read_until(lambda number=number: len(replay.rows) == 1 + number, check=cdc.check)


@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_server_that_has_all_stored_changes_is_followed_from_a_new_copy_on(
    primary: PostgresServer,
    standby: PostgresServer,
    stele_broker: BrokerProcess,
    log: Path,
    tmp_path: Path,
    mode: str,
) -> None:
    arguments = (*TABLES, "--transactions", mode)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(primary, stele_broker.binary_url, log, *arguments) as cdc:
        _await_followed(primary, replay, cdc)
    _await_replayed(primary, standby)
    primary.stop_immediately()
    standby.promote()
    standby.run("INSERT INTO t VALUES (2, 'between')")
    # As a tool does that keeps a slot of this name on the primary.
    standby.run("SELECT pg_create_logical_replication_slot('stele', 'pgoutput')")
    with running_cdc(standby, stele_broker.binary_url, tmp_path / "gap.log", *arguments) as cdc:
        assert cdc.wait() == EXIT_CODE_OF_A_GAP
        assert "run once with --snapshot again" in cdc.said
    for number in (3, 4):
        # Rows 0 and 2 are in the copy. The second run finds what the first one has noted.
        again = () if number == 4 else ("--snapshot", "again")
        said = tmp_path / f"{number}.log"
        with running_cdc(standby, stele_broker.binary_url, said, *arguments, *again) as cdc:
            cdc.await_streaming()
            standby.run("INSERT INTO t VALUES (%s, 'after')", (number,))
            replay.read_until(lambda number=number: len(replay.rows) == number, check=cdc.check)


def _fail_over(primary: PostgresServer, standby: PostgresServer) -> None:
    primary.stop_immediately()
    standby.start()
    standby.promote()


def test_a_standby_is_followed_once_it_is_promoted(
    primary: PostgresServer, standby: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    _await_replayed(primary, standby)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(standby, stele_broker.binary_url, log, *TABLES) as cdc:
        _await_said(cdc, "PostgreSQL is a standby")
        standby.promote()
        cdc.await_streaming()
        standby.run("INSERT INTO t VALUES (1, 'first')")
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
