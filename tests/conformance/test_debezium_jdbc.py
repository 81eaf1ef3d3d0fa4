"""Debezium's JDBC sink reads the envelope of ``stele cdc``: the second database ends equal to the first."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from stele.testing import run_broker

from load.postgres_server import PostgresServer
from tests.conformance.clients import DEBEZIUM_JDBC
from tests.conformance.programs import RecordProperty, home_of, jar_version, running
from tests.conformance.test_kafka_connect import Worker
from tests.support.cdc import running_cdc
from tests.support.postgres import postgres_bin

SINK = "io.debezium.connector.jdbc.JdbcSinkConnector"
CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
# Declared as the sink itself declares them, except for what it has no type for.
COLUMNS = {
    "b": ("boolean", "true"),
    "s": ("smallint", "-3"),
    "i": ("int", "n"),
    "l": ("bigint", "9223372036854775807"),
    "r": ("real", "1.5"),
    "f": ("double precision", "0.1"),
    "d": ("numeric(10,2)", "n + 0.25"),
    # The sink makes it a double precision.
    "z": ("numeric", "n + 0.5"),
    "t": ("text", "'text ☃ ' || n"),
    "by": ("bytea", "'\\x00ff10'"),
    "u": ("uuid", "'0b5f0e06-7f5c-4d0c-9c39-1f6b3a9c2a11'"),
    "da": ("date", "'2026-11-21'"),
    "ts": ("timestamp", "'2026-11-21 10:00:00.123456'"),
    "t3": ("timestamp(3)", "'2026-11-21 10:00:00.123'"),
    "tz": ("timestamptz", "'2026-11-21 10:00:00.123456+02'"),
    "ti": ("time", "'23:59:59.5'"),
    "j": ("jsonb", """'{"a": [1, null]}'"""),
    "ar": ("int[]", "'{1,2}'"),
    "ta": ("text[]", "ARRAY['a', 'b']"),
}
TABLES = ("kinds", "moved", "emptied", "altered")


def contents(dsn: str, table: str) -> list[tuple[Any, ...]] | None:
    """Return the rows of a table by column; None if there is no such table."""
    connection: Any = psycopg2.connect(dsn)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
        if not cursor.fetchone()[0]:
            return None
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attname",
            (table,),
        )
        names = [name for (name,) in cursor.fetchall()]
        cursor.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY id")
        found: list[tuple[Any, ...]] = cursor.fetchall()
        rows = [tuple(_plain(value) for value in row) for row in found]
        return [tuple(names), *rows]


def _plain(value: Any) -> Any:
    return value.tobytes() if hasattr(value, "tobytes") else value


@pytest.mark.program("debezium-jdbc")
def test_the_sink_makes_a_second_database_that_is_equal(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    home = home_of(DEBEZIUM_JDBC)
    record_property("version", jar_version(home, "debezium-connector-jdbc"))
    with (
        PostgresServer(postgres_bin()) as pg,
        run_broker() as broker,
        closing(Worker(home, tmp_path, broker.kafka_bootstrap)) as worker,
        running(worker.program),
    ):
        pg.run("CREATE DATABASE copy")
        copy_dsn = pg.dsn.removesuffix("/postgres") + "/copy"
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
        values = ", ".join(value for _, value in COLUMNS.values())
        pg.run(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})")
        pg.run(f"INSERT INTO kinds SELECT n, {values} FROM generate_series(1, 50) n")
        pg.run("INSERT INTO kinds (id) VALUES (51)")
        pg.run("CREATE TABLE moved (id int PRIMARY KEY, body text)")
        pg.run("ALTER TABLE moved REPLICA IDENTITY FULL")
        pg.run("ALTER TABLE moved ALTER body SET STORAGE EXTERNAL")
        pg.run("CREATE TABLE emptied (id int PRIMARY KEY, v text)")
        pg.run("INSERT INTO emptied SELECT n, 'x' FROM generate_series(1, 20) n")
        pg.run("CREATE TABLE altered (id int PRIMARY KEY, v text)")
        pg.run("INSERT INTO altered VALUES (1, 'a')")
        worker.put(
            "sink",
            {
                "connector.class": SINK,
                "tasks.max": "1",
                "topics": ",".join(f"pg.public.{table}" for table in TABLES),
                "key.converter": CONVERTER,
                "value.converter": CONVERTER,
                "connection.url": f"jdbc:postgresql://127.0.0.1:{pg.port}/copy",
                "connection.username": "postgres",
                "connection.password": "none",
                "collection.name.format": "${source.table}",
                "insert.mode": "upsert",
                "primary.key.mode": "record_key",
                "delete.enabled": "true",
                "truncate.enabled": "true",
                "schema.evolution": "basic",
                "consumer.override.auto.offset.reset": "earliest",
                "consumer.override.metadata.max.age.ms": "1000",
            },
        )
        # The sink empties the whole table for a truncate, which must not come after rows of other partitions.
        arguments = (
            "--tables", ",".join(TABLES), "--format", "debezium-schemas", "--partitions", "1",
        )  # fmt: skip
        with running_cdc(pg, broker.binary_url, tmp_path / "cdc.log", *arguments) as cdc:
            cdc.await_streaming()
            pg.run(f"INSERT INTO kinds SELECT n, {values} FROM generate_series(100, 150) n")
            pg.run("UPDATE kinds SET i = NULL, t = 'updated', d = -0.01 WHERE id % 3 = 0")
            pg.run("DELETE FROM kinds WHERE id % 5 = 0")
            pg.run("INSERT INTO moved SELECT n, repeat('x', 20000) FROM generate_series(1, 10) n")
            pg.run("UPDATE moved SET id = id + 100 WHERE id > 5")
            pg.run("TRUNCATE emptied")
            pg.run("INSERT INTO emptied VALUES (21, 'after')")
            pg.run("ALTER TABLE altered ADD COLUMN w numeric(6,2)")
            pg.run("INSERT INTO altered VALUES (2, 'b', 2.5)")
            cdc.await_confirmed()
            assert cdc.stop() == 0
        for table in TABLES:
            expected = contents(pg.dsn, table)

            def is_equal(table: str = table, expected: Any = expected) -> bool:
                return contents(copy_dsn, table) == expected

            worker.eventually(is_equal, f"{table} is equal")
