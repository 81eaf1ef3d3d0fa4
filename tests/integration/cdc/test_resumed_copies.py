"""An interrupted copy goes on where it was, beside the stream, and meets the changes exactly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from stele import Client
from stele.testing import BrokerProcess
from stele.wire.cdc_requests import Request, topic_of

from load.postgres_server import PostgresServer
from tests.support.cdc import Replay, running_cdc
from tests.support.waiting import Pauses

pytestmark = pytest.mark.long

ROWS = 40_000
PAD = "x" * 300
# Keys whose order is not that of their text in Python.
TABLES = {
    "numbers": ("n bigint PRIMARY KEY, v int, pad text", "g - 20000"),
    "names": ("n text PRIMARY KEY, v int, pad text", "md5(g::text)"),
    "pairs": ("a int, n text, v int, pad text, PRIMARY KEY (a, n)", "g / 7, 'x' || g"),
}


def fill(pg: PostgresServer, table: str) -> None:
    columns, key = TABLES[table]
    pg.run(f"CREATE TABLE {table} ({columns})")
    pg.run(f"INSERT INTO {table} SELECT {key}, g, '{PAD}' FROM generate_series(1, {ROWS}) g")


def change(pg: PostgresServer, table: str, number: int) -> None:
    """Change rows everywhere in the table: of those that were copied, and of those that were not."""
    pg.run(f"UPDATE {table} SET v = v + 1 WHERE v % 977 = {number % 977}")
    pg.run(f"DELETE FROM {table} WHERE v % 1009 = {number % 1009}")


@pytest.mark.long
@pytest.mark.parametrize("table", TABLES)
def test_a_copy_that_is_killed_goes_on(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, table: str
) -> None:
    fill(pg, table)
    replay = Replay(stele_broker.binary_url, f"pg.public.{table}", is_resumed=True)

    with running_cdc(pg, stele_broker.binary_url, log, "--tables", table) as cdc:
        for number in range(4):
            enough = len(replay.records) + 1
            replay.read_until(lambda enough=enough: len(replay.records) >= enough, check=cdc.check)
            cdc.kill()
            change(pg, table, number)
            cdc.start()
            change(pg, table, 100 + number)
        pg.run(f"UPDATE {table} SET v = -1 WHERE v = (SELECT max(v) FROM {table})")
        pauses = Pauses()
        while f"copied public.{table}: " not in cdc.said:
            cdc.check()
            pauses.pause()
        cdc.await_confirmed()
        assert cdc.stop() == 0, cdc.said

    replay.read_all()
    expected = dict(pg.run(f"SELECT n, v FROM {table}"))
    assert {n: row["v"] for n, row in replay.table("n").items()} == expected
    # None of the copies began again.
    assert not [record for record in replay.records if dict(record.headers)["operation"] == b"t"]
    assert "are copied beside the stream" in cdc.said


def test_a_table_is_copied_again_on_demand_while_it_changes(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    pg.run("INSERT INTO t SELECT g, g FROM generate_series(1, 300) g")
    url = stele_broker.binary_url
    replay = Replay(url, "pg.public.t", is_resumed=True)

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "stele.cli", "cdc", "copy", "--url", url, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with running_cdc(pg, url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.records) == 300, check=cdc.check)
        replay.forget_reads()
        pg.run("UPDATE t SET v = -v WHERE id <= 10")
        assert ask("public.t", "--where", "id <= 20").returncode == 0
        pg.run("UPDATE t SET v = v - 1 WHERE id <= 5")
        replay.read_until(lambda: len(replay.records) == 300 + 10 + 20 + 5, check=cdc.check)
        # What is wrong with a condition is said, and the connector goes on.
        assert ask("t", "--where", "no_column = 1").returncode == 0
        pauses = Pauses()
        while "no_column" not in cdc.said:
            cdc.check()
            pauses.pause()
        # The whole table is looked through in parts, however few rows are chosen; one that sleeps is stopped.
        hostile = "true)) TO PROGRAM 'id"
        refused = ask("t", "--where", hostile)
        assert refused.returncode == 2
        assert "parentheses of the condition do not match" in refused.stderr
        # The connector does not rely on who wrote the request.
        with Client(url) as client:
            client.produce(topic_of("pg", "stele"), msgspec.json.encode(Request("copy", "public.t", hostile)))
        assert ask("t", "--where", "pg_sleep(60) IS NULL").returncode == 0
        for said in ("parentheses of the condition do not match", "takes more than"):
            while said not in cdc.said:
                cdc.check()
                pauses.pause()
        assert ask("public.other").returncode == 0
        while "public.other that was asked for cannot be made: it is not followed" not in cdc.said:
            cdc.check()
            pauses.pause()
        cdc.kill()
        replay.forget_reads()
        # A connector that does not run copies when it is started.
        assert ask("t").returncode == 0
        cdc.start()
        replay.read_until(lambda: len(replay.records) == 335 + 300, check=cdc.check)
        cdc.await_confirmed()
        assert cdc.stop() == 0, cdc.said

    replay.read_all()
    assert len(replay.records) == 635
    assert {n: row["v"] for n, row in replay.table().items()} == dict(pg.run("SELECT id, v FROM t"))
