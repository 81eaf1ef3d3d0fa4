"""Topics with one record per row: compacted, with the row as the value, or both."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerProcess, run_broker
from stele.serializers import json_deserializer, str_deserializer

from load.postgres_server import PostgresServer
from tests.support.cdc import TIMEOUT_S, CdcProcess, running_cdc
from tests.support.documents import ROOT, blocks
from tests.support.variants import long_but
from tests.support.waiting import eventually

TOPIC = "pg.public.t"
MIRROR = ("--tables", "t", "--compact", "--value", "row")


def _mirror(client: Client, topic: str = TOPIC) -> dict[str, Any]:
    with client.table(topic, key=str_deserializer, value=json_deserializer, follow=False) as table:
        return dict(table)


def _rows(pg: PostgresServer) -> dict[str, Any]:
    rows: list[tuple[str, dict[str, Any]]] = pg.run("SELECT id::text, to_json(t) FROM t")
    return dict(rows)


def _await_equal(pg: PostgresServer, client: Client, cdc: CdcProcess) -> None:
    cdc.await_streaming()
    cdc.await_confirmed()
    assert _mirror(client) == _rows(pg)


@pytest.mark.every(2)
@pytest.mark.parametrize("policy", [("--compact",), ()], ids=["compacted", "all changes"])
def test_the_newest_record_of_each_key_is_the_row(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, policy: tuple[str, ...]
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, n int, at timestamptz)")
    pg.run("INSERT INTO t SELECT n, n FROM generate_series(1, 20) n")
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--value", "row", *policy) as cdc,
    ):
        cdc.await_streaming()
        for statement in (
            "INSERT INTO t VALUES (21, NULL, NULL)",
            "UPDATE t SET n = n + 1 WHERE id < 10",
            "UPDATE t SET id = 100 WHERE id = 5",
            "DELETE FROM t WHERE id = 6",
        ):
            pg.run(statement)
        cdc.await_confirmed()
        newest: dict[bytes | None, bytes | None] = {}
        for partition in range(client.partition_count(TOPIC)):
            for record in client.fetch(TOPIC, partition, max_records=1000).records:
                newest[record.key] = record.value
        assert newest[b"5"] is None
        assert newest[b"6"] is None
        found = {
            key.decode(): json.loads(v) for key, v in newest.items() if key is not None and v is not None
        }
        assert found == _rows(pg)
        policies = client.describe_topic(TOPIC).configs["cleanup.policy"]
        assert policies == ("compact" if policy else "delete")


@pytest.mark.long
def test_a_truncate_removes_all_rows_in_its_transaction_also_those_of_before_in_it(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    pg.run("INSERT INTO t SELECT n, 0 FROM generate_series(1, 50) n")
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, *MIRROR) as cdc,
    ):
        cdc.await_streaming()
        with pg.connect() as connection, connection.cursor() as cursor:
            # Large enough to be streamed before it commits.
            cursor.execute("INSERT INTO t SELECT n, 1 FROM generate_series(51, 5000) n")
            cursor.execute("TRUNCATE t")
            cursor.execute("INSERT INTO t SELECT n, 2 FROM generate_series(4990, 5010) n")
        _await_equal(pg, client, cdc)
        assert len(_mirror(client)) == 21
        pg.run("TRUNCATE t")
        _await_equal(pg, client, cdc)
        assert _mirror(client) == {}


@pytest.mark.long
def test_truncates_are_whole_whenever_the_connector_is_killed(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, *MIRROR) as cdc,
    ):
        cdc.await_streaming()
        for turn in range(4):
            pg.run("TRUNCATE t")
            pg.run("INSERT INTO t SELECT n, %s FROM generate_series(1, 3000) n", (turn,))
            pg.run("TRUNCATE t")
            pg.run("INSERT INTO t SELECT n, %s FROM generate_series(2900, 3100) n", (turn,))
            cdc.kill()
            cdc.start()
        _await_equal(pg, client, cdc)


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        ("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, n int)", "ALTER PUBLICATION stele ADD TABLE t"),
        ("DELETE FROM t", "ALTER PUBLICATION stele DROP TABLE t", "ALTER PUBLICATION stele ADD TABLE t"),
    ],
    ids=["created again", "published again"],
)
def test_a_repeated_copy_removes_the_rows_that_are_gone(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, change: tuple[str, ...]
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    pg.run("INSERT INTO t SELECT n, n FROM generate_series(1, 10) n")
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, *MIRROR) as cdc,
    ):
        cdc.await_streaming()
        assert len(_mirror(client)) == 10
        cdc.stop()
        for statement in (*change, "INSERT INTO t VALUES (3, 33), (30, 30)"):
            pg.run(statement)
        cdc.start()
        _await_equal(pg, client, cdc)


@pytest.mark.long
def test_another_key_of_a_table_is_the_key_of_a_new_copy(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, other int NOT NULL)")
    pg.run("INSERT INTO t VALUES (1, 101), (2, 102)")
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, *MIRROR) as cdc,
    ):
        cdc.await_streaming()
        pg.run("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (other)")
        pg.run("UPDATE t SET id = 7 WHERE id = 1")
        assert cdc.wait() == 1
        assert "the key of public.t was (id) and is (other)" in cdc.said
        cdc.start()
        cdc.await_streaming()
        assert _mirror(client) == {"101": {"id": 7, "other": 101}, "102": {"id": 2, "other": 102}}


def test_a_compacted_topic_of_envelopes_has_one_per_row(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    pg.run("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--compact") as cdc,
    ):
        cdc.await_streaming()
        pg.run("UPDATE t SET n = 20 WHERE id = 2")
        pg.run("DELETE FROM t WHERE id = 3")
        cdc.await_confirmed()
        assert {key: value["after"] for key, value in _mirror(client).items()} == _rows(pg)
        pg.run("TRUNCATE t")
        cdc.await_confirmed()
        assert _mirror(client) == {}


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("CREATE TABLE t (id int)", "ADD PRIMARY KEY"),
        ("CREATE TABLE t (id int); ALTER TABLE t REPLICA IDENTITY FULL", "t has no primary key"),
        ("CREATE TABLE t (id int PRIMARY KEY, doc text)", 'ALTER TABLE "public"."t" REPLICA IDENTITY FULL'),
        (
            "CREATE TABLE t (id int PRIMARY KEY, doc text) PARTITION BY RANGE (id); "
            "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (9)",
            "REPLICA IDENTITY FULL",
        ),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    long_but(
        [pytest.param(("--compact",), id="compact"), pytest.param(("--value", "row"), id="row")], "compact"
    ),
)
def test_a_table_of_which_no_record_per_row_can_be_kept_is_refused(
    pg: PostgresServer,
    stele_broker: BrokerProcess,
    log: Path,
    table: str,
    said: str,
    arguments: tuple[str, ...],
) -> None:
    for statement in table.split("; "):
        pg.run(statement)
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", *arguments) as cdc:
        assert cdc.wait() == 1
        assert said in cdc.said


def test_large_values_that_an_update_does_not_touch_are_in_the_row(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, doc text, n int)")
    pg.run("ALTER TABLE t ALTER doc SET STORAGE EXTERNAL, REPLICA IDENTITY FULL")
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, *MIRROR) as cdc,
    ):
        cdc.await_streaming()
        pg.run("INSERT INTO t VALUES (1, repeat('x', 5000), 0)")
        pg.run("UPDATE t SET n = 1")
        _await_equal(pg, client, cdc)


@pytest.mark.every(2)
@pytest.mark.parametrize("update", ["UPDATE t SET n = 2", "UPDATE t SET id = 2"], ids=["value", "key"])
@pytest.mark.parametrize(
    "arguments",
    long_but(
        [pytest.param(a, id=" ".join(a)) for a in (("--compact",), ("--value", "row"), MIRROR[2:])],
        " ".join(MIRROR[2:]),
    ),
)
def test_an_update_that_would_tear_a_row_ends_the_connector(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, arguments: tuple[str, ...], update: str
) -> None:
    """The identity may change after the check at the start."""
    pg.run("CREATE TABLE t (id int PRIMARY KEY, doc text, n int)")
    pg.run("ALTER TABLE t ALTER doc SET STORAGE EXTERNAL, REPLICA IDENTITY FULL")
    pg.run("INSERT INTO t VALUES (1, repeat('x', 5000), 0)")
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", *arguments) as cdc,
    ):
        cdc.await_streaming()
        pg.run("ALTER TABLE t REPLICA IDENTITY DEFAULT")
        pg.run(update)
        assert cdc.wait() == 1
        assert "REPLICA IDENTITY FULL, and run once with --snapshot again" in cdc.said
        values = [
            json.loads(record.value)
            for partition in range(client.partition_count(TOPIC))
            for record in client.fetch(TOPIC, partition).records
            if record.value is not None
        ]
        assert [len(value.get("after", value)["doc"]) for value in values] == [5000]


def test_a_topic_that_is_not_compacted_is_refused_with_the_command_to_run(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("INSERT INTO t VALUES (1)")
    with Client(stele_broker.binary_url) as client:
        client.create_topic(TOPIC, partitions=1)
        with running_cdc(pg, stele_broker.binary_url, log, *MIRROR) as cdc:
            assert cdc.wait() == 1
            assert f"stele topics alter {TOPIC} --config cleanup.policy=compact" in cdc.said
            client.alter_topic(TOPIC, configs={"cleanup.policy": "compact"})
            cdc.start()
            cdc.await_streaming()
            assert _mirror(client) == {"1": {"id": 1}}


@pytest.mark.long
def test_the_values_of_a_connector_stay_what_they_were(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    for first, second in (("envelope", "row"), ("row", "envelope")):
        names = ("--prefix", first, "--slot", first, "--tables", "t")
        with running_cdc(pg, stele_broker.binary_url, log, *names, "--value", first) as cdc:
            cdc.await_streaming()
            assert cdc.stop() == 0
        with running_cdc(pg, stele_broker.binary_url, log, *names, "--value", second) as cdc:
            assert cdc.wait() == 1
            assert f"go on with --value {first}" in cdc.said


@pytest.mark.long
def test_the_connector_of_the_broker_has_the_same_settings(pg: PostgresServer) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    pg.run("INSERT INTO t VALUES (1, 1)")
    given = {"DSN": pg.dsn, "TABLES": "t", "COMPACT": "true", "VALUE": "row"}
    environment = {f"STELE_CDC_{name}": value for name, value in given.items()}
    with run_broker(environment=environment) as broker, Client(broker.binary_url) as client:

        def is_streaming() -> bool:
            (connector,) = httpx.get(f"{broker.http_url}/v1/cdc").json()["connectors"]
            return connector["state"] == "streaming"

        eventually(is_streaming, "the connector is streaming")
        assert _mirror(client) == {"1": {"id": 1, "n": 1}}


@pytest.mark.long
def test_the_section_of_the_page_works_as_printed(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    page = ROOT / "docs/cdc.md"
    text = page.read_text()
    start = text[: text.index("## A table that mirrors a table")].count("\n")
    shell, python = [block for block in blocks(page) if block.place.line > start][:2]
    command = re.search(r"^stele cdc (.*)$", shell.text, re.MULTILINE)
    assert command is not None
    pg.run("CREATE TABLE customers (id int PRIMARY KEY, city text)")
    pg.run("ALTER TABLE customers REPLICA IDENTITY FULL")
    pg.run("INSERT INTO customers VALUES (7, 'Paris')")
    with running_cdc(pg, stele_broker.binary_url, log, *command[1].split()) as cdc:
        cdc.await_streaming()
        program = python.text.replace("stele://127.0.0.1:9009", stele_broker.binary_url)
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env=os.environ,
        )
        assert (done.stdout, done.stderr) == ("Paris\n", "")
