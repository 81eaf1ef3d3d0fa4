"""Spark reads tables of topics over the REST catalog while they are written, and the topic itself."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import Client
from stele.records import NewRecord
from stele.testing import BrokerProcess, run_broker

from tests.conformance.clients import SPARK
from tests.conformance.programs import RecordProperty, home_of
from tests.conformance.spark import job_command, spark_version
from tests.support.waiting import eventually

TOPIC = "orders.eu-1"
CONFIGS = {"stele.iceberg.mode": "key_value", "stele.iceberg.commit.interval.ms": "1000"}
PARTITIONS = 3


@contextmanager
def producing(broker: BrokerProcess) -> Iterator[None]:
    """Produce to all partitions all the time."""
    stopping = threading.Event()

    def produce() -> None:
        with Client(broker.binary_url) as client:
            while not stopping.wait(0.02):
                client.produce_many(
                    TOPIC,
                    [NewRecord(b"v" * 50, key=b"k%d" % n, partition=n % PARTITIONS) for n in range(30)],
                )

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def assert_whole(answer: dict[str, Any]) -> None:
    """Check that each snapshot has every offset before those in its summary exactly once."""
    for offsets, found in answer["snapshots"]:
        assert found == {number: [end, end, 0, end - 1] for number, end in offsets.items() if end}


@pytest.mark.one_broker("the tables of a cluster need a warehouse that all brokers have")
@pytest.mark.program(SPARK)
def test_spark_reads_each_offset_once_in_each_snapshot(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    record_property("version", spark_version())
    home = home_of(SPARK)
    with run_broker(tmp_path / "data") as broker, Client(broker.binary_url) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)
        command = job_command(home, "read_tables.py", broker.http_url, broker.kafka_bootstrap)
        with (
            (tmp_path / "spark.log").open("wb") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            ) as spark,
        ):
            assert spark.stdin is not None
            assert spark.stdout is not None

            def ask() -> dict[str, Any]:
                print(TOPIC, file=spark.stdin, flush=True)
                return json.loads(spark.stdout.readline())  # type: ignore[union-attr]

            def status() -> dict[str, Any]:
                return httpx.get(f"{broker.http_url}/v1/iceberg/{TOPIC}").raise_for_status().json()

            try:
                assert json.loads(spark.stdout.readline()) == ["stele"]
                with producing(broker):
                    eventually(lambda: status()["commits"] >= 5, "there are snapshots")
                    first = ask()
                topic = httpx.get(f"{broker.http_url}/v1/topics/{TOPIC}").raise_for_status().json()
                ends: list[int] = [each["high_watermark"] for each in topic["partitions"]]
                eventually(
                    lambda: status()["lag_records"] == 0 and status()["rows"] == sum(ends), "all is written"
                )
                last = ask()
            except BaseException:
                spark.kill()
                raise
            finally:
                spark.stdin.close()
        assert spark.returncode == 0, (tmp_path / "spark.log").read_text()[-6000:]
    for answer in (first, last):
        assert answer["tables"] == [TOPIC]
        assert_whole(answer)
        assert answer["unknown"] == 0
    # Snapshots of before are as they were.
    assert last["snapshots"][:3] == first["snapshots"][:3]
    assert last["snapshots"][-1][0] == {str(number): end for number, end in enumerate(ends)}
