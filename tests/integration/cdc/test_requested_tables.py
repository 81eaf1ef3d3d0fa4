"""Tables are added and dropped while a connector runs: a copy beside the stream, nothing lost and nothing twice."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.cdc.errors import CdcError
from stele.cdc.options import CdcOptions
from stele.cdc.postgres.catalog import Postgres
from stele.cdc.requests import request

from load.postgres_server import PostgresServer
from tests.support.cdc import Replay, running_cdc
from tests.support.postgres_writers import Writer
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

REQUESTS = "__cdc_requests.pg.stele"


def ask(broker: BrokerProcess, action: str, *tables: str) -> None:
    with Client(broker.binary_url) as client:
        request(client, REQUESTS, "add" if action == "add" else "drop", tables)


class Load(Writer):
    """Changes rows of two tables, both in each transaction."""

    is_killed = False

    def __init__(self, pg: PostgresServer) -> None:
        super().__init__(pg.connect)
        self._random = random.Random(3)
        self._number = 1_000_000

    def transact(self, cursor: Any) -> None:
        for table in ("a", "b"):
            self._number += 1
            cursor.execute(f"INSERT INTO {table} VALUES (%s, 'new')", (self._number,))
            low = self._random.randrange(20_000)
            cursor.execute(f"UPDATE {table} SET v = v || 'x' WHERE id = %s", (low,))
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (self._random.randrange(20_000),))
            cursor.execute(
                f"UPDATE {table} SET id = %s WHERE id = %s", (self._number + 5_000_000, self._number - 20)
            )


@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        ("on", 0),
        pytest.param("on", 4, marks=pytest.mark.long),
        pytest.param("off", 4, marks=pytest.mark.long),
    ],
)
def test_a_table_is_copied_beside_the_stream_of_the_others(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, mode: str, kills: int
) -> None:
    for table in ("a", "b"):
        pg.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        pg.run(f"INSERT INTO {table} SELECT n, 'old' FROM generate_series(1, 20000) n")
    a = Replay(stele_broker.binary_url, "pg.public.a")
    b = Replay(stele_broker.binary_url, "pg.public.b", is_resumed=True)
    load = Load(pg)
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "a", "--transactions", mode) as cdc:
        cdc.await_streaming()
        load.start()
        try:
            ask(stele_broker, "add", "b")
            for number in range(kills):
                b.read_until(lambda number=number: len(b.records) > 3000 * number, check=cdc.check)
                cdc.kill()
                cdc.start()
            b.read_until(lambda: any(key > b"1000000" for key in b.rows), check=cdc.check)
            b.read_until(lambda: "copied public.b" in cdc.said, check=cdc.check)
        finally:
            load.end()
        cdc.await_confirmed()
        for replay in (a, b):
            replay.read_all()
            expected = {
                id_: {"id": id_, "v": v} for id_, v in pg.run(f"SELECT id, v FROM {replay.topic[-1]}")
            }
            assert replay.table() == expected
        assert cdc.stop() == 0


@pytest.mark.long
def test_only_its_owner_may_add_a_table_to_a_publication(pg: PostgresServer) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("CREATE PUBLICATION stele")
    pg.run("CREATE ROLE follower LOGIN REPLICATION")
    postgres = Postgres(CdcOptions(dsn=pg.dsn.replace("postgres@", "follower@"), tables=("t",)))
    try:
        with pytest.raises(CdcError, match='run: ALTER PUBLICATION "stele" ADD TABLE ONLY '):
            postgres.add_to_publication("public", "t")
    finally:
        postgres.close()
        pg.run("DROP ROLE follower")


def test_a_table_that_cannot_be_followed_stops_nothing_and_a_dropped_one_is_left(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for table in ("a", "b"):
        pg.run(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    pg.run("CREATE TABLE no_identity (v int)")
    a, b = (Replay(stele_broker.binary_url, f"pg.public.{name}") for name in "ab")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "a") as cdc:
        cdc.await_streaming()
        ask(stele_broker, "add", "nowhere", "no_identity", "b")
        pg.run("INSERT INTO b VALUES (1)")
        b.read_until(lambda: b"1" in b.rows, check=cdc.check)
        assert "public.nowhere was requested, and cannot be followed: there is no table" in cdc.said
        assert "public.no_identity was requested, and cannot be followed: rows" in cdc.said
        shown = run_stele("cdc", "tables", "--format", "json", "--url", stele_broker.binary_url).stdout
        copies = {one["table"]: one["copy"] for one in json.loads(shown)["tables"]}
        assert copies.pop("public.b") in ("begun", "done")
        assert copies == {
            "public.a": "done",
            "public.no_identity": "requested",
            "public.nowhere": "requested",
        }
        ask(stele_broker, "drop", "b", "nowhere", "no_identity")
        eventually(
            lambda: pg.run("SELECT tablename FROM pg_publication_tables WHERE pubname = 'stele'") == [("a",)],
            "b is not published",
        )
        pg.run("INSERT INTO b VALUES (2)")
        pg.run("INSERT INTO a VALUES (1)")
        a.read_until(lambda: b"1" in a.rows, check=cdc.check)
        cdc.await_confirmed()
        b.read_all()
        assert set(b.rows) == {b"1"}
        # It comes back with what it has by then, also over a restart.
        assert cdc.stop() == 0
        ask(stele_broker, "add", "b")
        cdc.start()
        pg.run("INSERT INTO b VALUES (3)")
        b.read_until(lambda: set(b.rows) == {b"1", b"2", b"3"}, check=cdc.check)
        assert cdc.stop() == 0
