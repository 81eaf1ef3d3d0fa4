"""A reader of committed records never sees half of a transaction of PostgreSQL, whichever process is killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from stele import Client
from stele.broker_process import BrokerProcess, run_broker
from stele.cdc.log_transaction import committed_position

from load.postgres_server import PostgresServer
from tests.support.cdc import CdcProcess, Replay, running_cdc
from tests.support.postgres import postgres_bin
from tests.support.postgres_writers import Pgbench
from tests.support.whole_transactions import TABLES, TOPICS, Transfers, WholeReader, create_tables, pgbench_of

pytestmark = pytest.mark.long

TABLE_NAMES = ",".join(f"public.{table}" for table in TABLES)


def kill_in_turn(
    tmp_path: Path, *, rounds: int, loads: int, records: int, seed: int, pgbench_clients: int = 0
) -> None:
    """Transfer from several connections while connector, broker and PostgreSQL are killed; every read must be whole."""
    chance = random.Random(seed)
    with (
        PostgresServer(postgres_bin(), logical_decoding_work_mem="64kB", fsync="on") as pg,
        run_broker() as broker,
    ):
        create_tables(pg)
        cdc = CdcProcess(
            pg, broker.binary_url, tmp_path / "cdc.log", "--tables", TABLE_NAMES, "--partitions", "2"
        )
        transfers: list[Transfers | Pgbench] = [Transfers(pg, seed + number) for number in range(loads)]
        if pgbench_clients:
            transfers.append(pgbench_of(pg, postgres_bin(), tmp_path, clients=pgbench_clients))
        reader = WholeReader(broker.binary_url)
        try:
            cdc.start()
            cdc.await_streaming()
            for load in transfers:
                load.start()
            for number in range(rounds):
                enough = reader.records + chance.choice((1, records // 10, records))
                reader.read_until(lambda enough=enough: reader.records >= enough)
                match number % 3:
                    case 0:
                        cdc.kill()
                        cdc.start()
                    case 1:
                        broker.kill()
                        broker.restart()
                    case _:
                        chance.choice((pg.kill, pg.stop_immediately))()
                        pg.start()
                cdc.check()
            for load in transfers:
                load.end()
            cdc.await_confirmed()
            expected = {number for (number,) in pg.run("SELECT DISTINCT number FROM transfer")}
            reader.read_until(lambda: reader.numbers >= expected, check=cdc.check)
            assert cdc.stop() == 0, cdc.said
            assert reader.numbers == expected
            ((rows,),) = pg.run(
                "SELECT (SELECT count(*) FROM payer) + (SELECT count(*) FROM payee) + (SELECT count(*) FROM transfer)"
            )
            assert reader.records == rows
        finally:
            for load in transfers:
                load.end()
            cdc.kill()
        assert reader.rounds > rounds


@pytest.mark.long
def test_no_reader_sees_half_a_transaction_through_kills_of_connector_broker_and_postgresql(
    tmp_path: Path,
) -> None:
    kill_in_turn(tmp_path, rounds=3, loads=2, records=1000, seed=7)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.torture)])
def test_long_no_reader_sees_half_a_transaction(tmp_path: Path, seed: int) -> None:
    kill_in_turn(tmp_path, rounds=9, loads=3, records=10_000, seed=100 * seed, pgbench_clients=4)


def count_of(pg: PostgresServer, table: str) -> int:
    ((count,),) = pg.run(f"SELECT count(*) FROM {table}")
    return count


def test_a_connector_keeps_its_mode_until_it_is_changed_and_no_change_is_lost_or_stored_twice(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    create_tables(pg)
    replay = Replay(stele_broker.binary_url, "pg.public.payer")
    inserted = 0

    def run_with(*arguments: str, ends_with_kill: bool) -> None:
        nonlocal inserted
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", TABLE_NAMES, *arguments) as cdc:
            cdc.await_streaming()
            for _ in range(20):
                pg.run("INSERT INTO payer (number, rows, amount) SELECT 1, 1, 1 FROM generate_series(1, 50)")
            inserted += 1000
            if not ends_with_kill:
                cdc.await_confirmed()
                assert cdc.stop() == 0, cdc.said
                return
            # Some of it is stored, and less is confirmed.
            replay.read_until(lambda: len(replay.records) >= inserted - 900, check=cdc.check)
            cdc.kill()

    with Client(stele_broker.binary_url) as client:
        run_with("--transactions", "off", ends_with_kill=True)
        run_with(ends_with_kill=True)
        assert "__cdc_positions.pg.stele" not in {topic.topic for topic in client.topics()}
        run_with("--transactions", "on", ends_with_kill=True)
        run_with(ends_with_kill=True)
        position = committed_position(client, "__cdc_positions.pg.stele")
        assert position is not None
        run_with("--transactions", "off", ends_with_kill=True)
        run_with(ends_with_kill=True)
        run_with("--transactions", "on", ends_with_kill=False)
        replay.read_until(lambda: len(replay.rows) == inserted)
        assert len(replay.records) == inserted == count_of(pg, "payer")
        newer = committed_position(client, "__cdc_positions.pg.stele")
        assert newer is not None
        assert newer > position


@pytest.mark.long
def test_a_transaction_that_never_ends_in_time_ends_the_connector_with_what_to_do(
    pg: PostgresServer, log: Path
) -> None:
    create_tables(pg)
    arguments = ("--tables", TABLE_NAMES, "--transaction-timeout", "0.3")
    with (
        run_broker(environment={"STELE_TRANSACTION_CHECK_INTERVAL_MS": "50"}) as broker,
        running_cdc(pg, broker.binary_url, log, *arguments) as cdc,
        Client(broker.binary_url) as client,
    ):
        cdc.await_streaming()
        pg.run("INSERT INTO payee (number, rows, amount) VALUES (1, 1, 1)")
        cdc.await_confirmed()
        pg.run("INSERT INTO payer (number, rows, amount) SELECT 1, 1, 1 FROM generate_series(1, 60000)")
        assert cdc.wait() == 1, cdc.said
        assert "tried 3 times" in cdc.said
        assert "raise --transaction-timeout, and STELE_TRANSACTION_MAX_TIMEOUT_MS" in cdc.said
        assert not client.fetch("pg.public.payer", 0, 0).records
        with running_cdc(pg, broker.binary_url, log, *arguments[:2], "--transaction-timeout", "60") as again:
            again.await_confirmed()
            assert again.stop() == 0, again.said


@pytest.mark.long
def test_a_connector_that_stops_within_a_large_transaction_leaves_nothing_of_it(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    create_tables(pg)
    reader = WholeReader(stele_broker.binary_url)
    arguments = ("--tables", TABLE_NAMES)
    with (
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
        Client(stele_broker.binary_url) as client,
    ):
        cdc.await_streaming()
        ends = "; ".join(
            f"INSERT INTO {table} (number, rows, amount) SELECT 1, 60000, 1 FROM generate_series(1, 60000)"
            for table in TABLES
        )
        pg.run(ends)
        # Its first records are in the log, and are not committed.
        while not any(
            client.list_offset(topic, 0, isolation="read_uncommitted")
            for topic in TOPICS
            if topic in {existing.topic for existing in client.topics()}
        ):
            cdc.check()
        assert cdc.stop() == 0, cdc.said
        committed = client.fetch(TOPICS[0], 0, 0).records
        cdc.start()
        reader.read_until(lambda: reader.records == 180_000, check=cdc.check)
        assert cdc.stop() == 0, cdc.said
    assert not committed, "the transaction was committed before the connector stopped; make it larger"
    assert reader.records == sum(count_of(pg, table) for table in TABLES)
