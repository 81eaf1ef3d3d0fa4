"""Tables of brokers with shared storage: the catalog is in their PostgreSQL, and one of them writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from stele.client import Client
from stele.iceberg.options import WriterOptions
from stele.iceberg.tables import open_catalog
from stele.records import NewRecord

from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.iceberg_tables import files_of, rows_of
from tests.support.postgres import postgres_bin
from tests.support.s3_servers import seaweedfs, use_test_credentials, versitygw
from tests.support.waiting import eventually

TOPIC, PARTITIONS = "orders", 2
TABLE = {"stele.iceberg.mode": "key_value", "stele.iceberg.commit.interval.ms": "100"}
PER_PARTITION = 50

pytestmark = [pytest.mark.long, pytest.mark.slow]


def states(brokers: Brokers) -> dict[int, Any]:
    return {
        number: httpx.get(f"{broker.http_url}/v1/iceberg").raise_for_status().json()
        for number, broker in brokers.running().items()
    }


def writers(brokers: Brokers, rows: int) -> list[int]:
    """Return the brokers whose process has written so many rows."""
    return [
        number
        for number, state in states(brokers).items()
        if state["state"] == "running" and state["topics"] and state["topics"][0]["rows"] == rows
    ]


def produce(brokers: Brokers) -> None:
    with Client(next(iter(brokers.running().values())).binary_url) as client:
        client.produce_many(
            TOPIC,
            [NewRecord(b"v", partition=n % PARTITIONS) for n in range(PARTITIONS * PER_PARTITION)],
        )


def assert_whole(table: Table, rows: int) -> None:
    """Check that each snapshot has every offset before those in its summary once, and the newest so many rows."""
    for snapshot in table.snapshots():
        assert snapshot.summary is not None
        offsets: dict[str, int] = json.loads(snapshot.summary["stele.offsets"] or "")
        expected = sorted((int(number), n) for number, end in offsets.items() for n in range(end))
        assert rows_of(table, snapshot.snapshot_id) == expected
    assert len(rows_of(table)) == rows


def write_and_kill(brokers: Brokers, kills: int) -> int:
    """Produce, and kill the broker whose process writes, some times; return how many rows there are."""
    with Client(next(iter(brokers.running().values())).binary_url) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS, configs=TABLE)
    rows = 0
    for number in range(kills + 1):
        produce(brokers)
        rows += PARTITIONS * PER_PARTITION
        eventually(lambda rows=rows: len(writers(brokers, rows)) == 1, "one broker writes")
        (writer,) = writers(brokers, rows)
        assert {one["state"] for each, one in states(brokers).items() if each != writer} <= {"standby"}
        if number < kills:
            # While its process has something to write.
            produce(brokers)
            rows += PARTITIONS * PER_PARTITION
            brokers[writer].kill()
    return rows


def test_one_broker_of_a_cluster_writes_and_another_takes_over(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    with (
        PostgresServer(postgres_bin()) as postgres,
        run_brokers(tmp_path, postgres.dsn, 2, environment={"STELE_ICEBERG_WAREHOUSE": lake}) as brokers,
    ):
        rows = write_and_kill(brokers, 1)
        catalog = open_catalog(WriterOptions(broker="", catalog=postgres.dsn, warehouse=lake))
        assert_whole(catalog.load_table(("stele", TOPIC)), rows)
        catalog.engine.dispose()


@pytest.mark.parametrize("server", [seaweedfs, versitygw])
def test_tables_of_a_cluster_in_a_bucket_are_read_at_any_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Callable[[], AbstractContextManager[str]]
) -> None:
    use_test_credentials(monkeypatch)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with server() as url, PostgresServer(postgres_bin()) as postgres:
        bucket, _, options = url.partition("?")
        environment = {
            "STELE_OBJECT_STORE": url,
            "STELE_ICEBERG_WAREHOUSE": f"{bucket}/lake?{options}",
        }
        with run_brokers(tmp_path, postgres.dsn, 3, environment=environment) as brokers:
            rows = write_and_kill(brokers, 2)
            brokers[next(number for number in brokers.processes if number not in brokers.running())].start()
            for broker in brokers.running().values():
                # The catalog says where the bucket is; credentials are those of the environment.
                catalog = load_catalog("stele", type="rest", uri=f"{broker.http_url}/iceberg")
                table = catalog.load_table(("stele", TOPIC))
                assert_whole(table, rows)
                assert all(name.startswith(f"{bucket}/lake/stele/{TOPIC}-") for name in files_of(table))
