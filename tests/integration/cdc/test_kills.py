"""Kill -9 of broker, connector and PostgreSQL in turn: the topics still give the tables back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from stele.broker_process import run_broker

from load.postgres_server import PostgresServer
from tests.support.cdc import CdcProcess, Replay
from tests.support.postgres import postgres_bin
from tests.support.postgres_writers import Writer

# ── kill -9 of everything, in turn ──

TABLES = ("accounts", "orders", "notes")


class Load(Writer):
    """Transactions over three tables."""

    def __init__(self, pg: PostgresServer, seed: int) -> None:
        super().__init__(pg.connect)
        self._random = random.Random(seed)
        self.transactions = 0

    def transact(self, cursor: Any) -> None:
        for _ in range(self._random.choice((1, 1, 3, 10))):
            self._change(cursor)
        if self._random.random() < 0.01:
            cursor.execute(
                "INSERT INTO orders SELECT nextval('ids'), n, repeat('b', 100) FROM generate_series(1, 1500) n"
            )
        if self._random.random() < 0.1:
            cursor.connection.rollback()
        self.transactions += 1

    def _change(self, cursor: Any) -> None:
        table = self._random.choice(TABLES)
        match self._random.randrange(10):
            case 0 | 1 | 2:
                cursor.execute(
                    f"INSERT INTO {table} VALUES (nextval('ids'), %s, 'new')", (self._random.random() * 100,)
                )
            case 3:
                cursor.execute(f"DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table})")
            case 4:
                cursor.execute(
                    f"UPDATE {table} SET id = nextval('ids') WHERE id = (SELECT max(id) FROM {table})"
                )
            case _:
                cursor.execute(
                    f"UPDATE {table} SET n = n + 1, v = v || 'x' WHERE id = "
                    f"(SELECT id FROM {table} ORDER BY id OFFSET %s LIMIT 1)",
                    (self._random.randrange(50),),
                )


def run_the_gauntlet(tmp_path: Path, *, rows: int, rounds: int, seed: int) -> None:
    """Load, copy and stream while broker, connector and PostgreSQL are killed in turn; then the topics are the tables."""
    chance = random.Random(seed)
    with (
        PostgresServer(postgres_bin(), logical_decoding_work_mem="64kB", fsync="on") as pg,
        run_broker() as broker,
    ):
        pg.run("CREATE SEQUENCE ids START 1000000")
        for table in TABLES:
            pg.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, n int, v text)")
            pg.run(f"INSERT INTO {table} SELECT g, g, 'old' FROM generate_series(1, {rows}) g")
        load = Load(pg, seed)
        load.start()
        cdc = CdcProcess(
            pg, broker.binary_url, tmp_path / "cdc.log", "--tables", ",".join(f"public.{t}" for t in TABLES)
        )
        replays = {
            table: Replay(broker.binary_url, f"pg.public.{table}", is_resumed=True) for table in TABLES
        }
        try:
            cdc.start()
            for number in range(rounds):
                # Now in the copy, now in the stream: until some more records have come.
                replay = replays[TABLES[number % 3]]
                enough = len(replay.records) + chance.choice((1, 200, 2000))
                if number % 3 == 0 or len(replays[TABLES[-1]].records) > 0:
                    replay.read_until(lambda replay=replay, enough=enough: len(replay.records) >= enough)
                match number % 3:
                    case 0:
                        cdc.kill()
                        cdc.start()
                    case 1:
                        broker.kill()
                        broker.restart()
                    case _:
                        pg.kill()
                        pg.start()
                cdc.check()
            load.end()
            for table in TABLES:
                pg.run(f"INSERT INTO {table} VALUES (-1, 0, 'the last')")
            for replay in replays.values():
                replay.read_until(lambda replay=replay: b"-1" in replay.rows, check=cdc.check)
            # A copy that held the last row may not be at its end.
            cdc.await_confirmed()
            assert cdc.stop() == 0, cdc.said
            for table, replay in replays.items():
                expected = {
                    id_: {"id": id_, "n": n, "v": v} for id_, n, v in pg.run(f"SELECT id, n, v FROM {table}")
                }
                replay.read_until(lambda replay=replay, expected=expected: replay.table() == expected)
                assert replay.table() == expected
        finally:
            load.end()
            cdc.kill()
        assert load.transactions > 100


@pytest.mark.long
def test_topics_give_the_tables_back_through_kills_of_broker_connector_and_postgresql(tmp_path: Path) -> None:
    run_the_gauntlet(tmp_path, rows=20_000, rounds=9, seed=1)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(20))
def test_torture_topics_give_the_tables_back(tmp_path: Path, seed: int) -> None:
    run_the_gauntlet(tmp_path, rows=50_000, rounds=30, seed=100 + seed)
