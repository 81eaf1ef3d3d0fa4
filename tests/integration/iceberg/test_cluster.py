"""Tables of brokers with shared storage: the catalog is in their PostgreSQL, and one of them writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.client import Client
from stele.iceberg.options import WriterOptions
from stele.iceberg.tables import open_catalog

from load.postgres_server import PostgresServer
from tests.support.brokers import run_brokers
from tests.support.iceberg import rows_of
from tests.support.postgres import postgres_bin
from tests.support.waiting import eventually

TABLE = {"stele.iceberg.mode": "key_value", "stele.iceberg.commit.interval.ms": "100"}


@pytest.mark.long
@pytest.mark.slow
def test_one_broker_of_a_cluster_writes_and_another_takes_over(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    with (
        PostgresServer(postgres_bin()) as postgres,
        run_brokers(tmp_path, postgres.dsn, 2, environment={"STELE_ICEBERG_WAREHOUSE": lake}) as brokers,
    ):
        running = brokers.running()

        def states() -> dict[int, Any]:
            return {
                number: httpx.get(f"{broker.http_url}/v1/iceberg").raise_for_status().json()
                for number, broker in running.items()
            }

        with Client(next(iter(running.values())).binary_url) as client:
            client.create_topic("orders", partitions=2, configs=TABLE)
            client.produce("orders", b"a", partition=0)

        def writers(rows: int) -> list[int]:
            return [
                number
                for number, state in states().items()
                if state["state"] == "running" and state["topics"] and state["topics"][0]["rows"] == rows
            ]

        eventually(lambda: len(writers(1)) == 1, "one broker writes")
        (first,) = writers(1)
        assert {state["state"] for number, state in states().items() if number != first} == {"standby"}
        running.pop(first).kill()
        (other,) = running.values()
        with Client(other.binary_url) as client:
            client.produce("orders", b"b", partition=1)
        eventually(lambda: bool(writers(2)), "the other one goes on")
        catalog = open_catalog(WriterOptions(broker="", catalog=postgres.dsn, warehouse=lake))
        rows = rows_of(catalog.load_table(("stele", "orders")))
        catalog.engine.dispose()
        assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
            (0, 0, b"a"),
            (1, 0, b"b"),
        ]
