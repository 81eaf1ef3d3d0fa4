"""``--decimals`` and ``--times`` write what Debezium does with the options that they stand for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from stele.testing import run_broker

from load.postgres_server import PostgresServer
from tests.conformance.clients import DEBEZIUM
from tests.conformance.programs import RecordProperty, home_of, jar_version, running
from tests.conformance.test_debezium import OURS, THEIRS, Both, rows_of, source_of
from tests.conformance.test_kafka_connect import Worker
from tests.support.cdc import running_cdc
from tests.support.postgres import postgres_bin

COLUMNS = {
    "d": ("date", "'2026-11-21'"),
    "t": ("time", "'23:59:59.123456'"),
    "t3": ("time(3)", "'23:59:59.5'"),
    "ts": ("timestamp", "'2026-11-21 10:00:00.123456'"),
    "old": ("timestamp", "'1969-12-31 23:59:59.999'"),
    "ts0": ("timestamp(0)", "'2026-11-21 10:00:00'"),
    "tz": ("timestamptz", "'2026-11-21 10:00:00.123456+02'"),
    "tiz": ("timetz", "'10:00:00.5+02'"),
    "iv": ("interval", "'1 day 2 hours'"),
    "ds": ("date[]", "'{2026-11-21,NULL}'"),
    "n": ("numeric(10,2)", "'-12.30'"),
    "any_n": ("numeric", "'1.500'"),
    "m": ("money", "'12.34'"),
    "ns": ("numeric(6,1)[]", "'{1.5,NULL}'"),
}


@pytest.mark.long
@pytest.mark.program("debezium")
@pytest.mark.parametrize("decimals", ["string", "double"])
def test_the_other_modes_are_those_of_debezium(
    tmp_path: Path, record_property: RecordProperty, decimals: str
) -> None:
    home = home_of(DEBEZIUM)
    record_property("version", jar_version(home, "debezium-connector-postgres"))
    with (
        PostgresServer(postgres_bin()) as pg,
        run_broker() as broker,
        closing(Worker(home, tmp_path, broker.kafka_bootstrap)) as worker,
        running(worker.program),
    ):
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
        values = ", ".join(value for _, value in COLUMNS.values())
        pg.run(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})")
        pg.run(f"INSERT INTO kinds VALUES (1, {values})")
        for name in (OURS, THEIRS):
            pg.run(f"CREATE PUBLICATION {name} FOR TABLE kinds")
        modes = {"decimal.handling.mode": decimals, "time.precision.mode": "connect"}
        worker.put("source", source_of(pg) | modes)
        how = (
            f"--tables kinds --prefix {OURS} --slot {OURS} --publication {OURS} --partitions 1 "
            f"--format debezium-schemas --decimals {decimals} --times connect"
        )
        with running_cdc(pg, broker.binary_url, tmp_path / "cdc.log", *how.split()) as cdc:
            both = Both(pg, broker, cdc, worker.program.need_running)
            worker.eventually(
                lambda: len(pg.run("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")) == 2,
                "both stream",
            )
            pg.run(f"INSERT INTO kinds VALUES (2, {values})")
            for prefix in (OURS, THEIRS):
                worker.eventually(
                    lambda prefix=prefix: len(both.changes(prefix, "kinds")) == 2, f"both are in {prefix}"
                )
            ours, theirs = both.changes(OURS, "kinds"), both.changes(THEIRS, "kinds")
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.after == other.after
            assert rows_of(mine.schema) == rows_of(other.schema)
