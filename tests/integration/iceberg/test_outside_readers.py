"""Outside programs read a table while records come, its files are rewritten, and its writer is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from stele.client import Client
from stele.iceberg.upkeep import UpkeepOptions, compact
from stele.records import NewRecord
from stele.testing import BrokerProcess, run_broker

from tests.support.iceberg_tables import rows_of
from tests.support.waiting import eventually

TOPIC, PARTITIONS = "orders", 2
CONFIGS = {"stele.iceberg.mode": "key_value", "stele.iceberg.commit.interval.ms": "100"}
KILLS = 3


@contextmanager
def in_threads(*works: Any) -> Iterator[None]:
    """Call each again and again until the end; an error of one is raised then."""
    stopping, errors = threading.Event(), list[BaseException]()

    def repeat(work: Any) -> None:
        try:
            while not stopping.wait(0.02):
                work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def _places_by_duckdb(table: Table, snapshot_id: int) -> list[tuple[int, int]]:
    duckdb: Any = pytest.importorskip("duckdb")
    files = [task.file.file_path for task in table.scan(snapshot_id=snapshot_id).plan_files()]
    found = duckdb.execute(
        'SELECT partition, "offset" FROM read_parquet($files) ORDER BY ALL', {"files": files}
    )
    return found.fetchall()


def test_each_offset_is_in_each_snapshot_once_for_every_reader(tmp_path: Path) -> None:
    with run_broker(tmp_path / "data") as broker, Client(broker.binary_url) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)
        rest = load_catalog("stele", type="rest", uri=f"{broker.http_url}/iceberg")
        compactions: list[int] = []

        def produce() -> None:
            client.produce_many(TOPIC, [NewRecord(b"v", partition=n % PARTITIONS) for n in range(20)])

        def rewrite() -> None:
            # As another process would: it meets the commits of the writer, and loses or wins as a whole.
            table = files.load_table(("stele", TOPIC))
            compactions.append(compact(table, UpkeepOptions())[0])

        produce()
        eventually(lambda: rest.table_exists(("stele", TOPIC)), "there is a table")
        files = SqlCatalog("stele", uri=f"sqlite:///{tmp_path}/data/iceberg/catalog.sqlite")
        with in_threads(produce, rewrite):
            for _ in range(KILLS):
                _kill_writer(broker)
                before = len(rest.load_table(("stele", TOPIC)).snapshots())
                eventually(
                    lambda before=before: len(rest.load_table(("stele", TOPIC)).snapshots()) > before + 3,
                    "it goes on",
                )
            eventually(lambda: sum(compactions) > 0, "files were rewritten")
        topic = httpx.get(f"{broker.http_url}/v1/topics/{TOPIC}").raise_for_status().json()
        ends = {str(each["partition"]): each["high_watermark"] for each in topic["partitions"]}
        eventually(lambda: _offsets(rest.load_table(("stele", TOPIC))) == ends, "all is written")

        table = rest.load_table(("stele", TOPIC))
        snapshots = table.snapshots()
        assert len(snapshots) > KILLS * 3
        # All snapshots would take long: each is read as a whole.
        for snapshot in [*snapshots[:: max(1, len(snapshots) // 10)], snapshots[-1]]:
            assert snapshot.summary is not None
            offsets = json.loads(snapshot.summary["stele.offsets"] or "{}")
            expected = sorted((int(number), n) for number, end in offsets.items() for n in range(end))
            assert rows_of(table, snapshot.snapshot_id) == expected
            assert _places_by_duckdb(table, snapshot.snapshot_id) == expected
        frame: Any = cast("Any", table.scan()).to_pandas()
        assert len(frame) == sum(ends.values()) == len(frame.drop_duplicates(["partition", "offset"]))
        files.engine.dispose()


def _offsets(table: Table) -> dict[str, int]:
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        raise NoSuchTableError
    return json.loads(snapshot.summary["stele.offsets"] or "{}")


def _kill_writer(broker: BrokerProcess) -> None:
    def find() -> list[str]:
        command = ["pgrep", "-P", str(broker.pid), "-f", "iceberg run"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()

    eventually(find, "the writer runs")
    for pid in find():
        os.kill(int(pid), signal.SIGKILL)
