"""Spark reads records of 100 bytes from Stele, the broker's part included, beside the same rows from Parquet.

``--kafka-jars DIR`` adds spark-sql-kafka over the Kafka door, where its jars are at hand.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from stele.broker_process import BrokerProcess
from stele.spark.java import SparkMissingError, require_spark
from stele.wire import messages as m
from stele.wire.record_batch import build_rows

from .broker_process import running_broker
from .measure import Comparison, in_turn, report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 2_000_000
RECORD_BYTES = 100
# About what a busy producer's batch holds: 16 KB.
BATCH_RECORDS = 150
PARTITIONS = (1, 4, 8)
TRIGGERS = 20
GOAL_RECORDS = 1_500_000


class JsonReader(DataSourceReader):
    """The naive way: pages of JSON over HTTP, a tuple for each record."""

    def __init__(self, url: str, topic: str, ends: list[int]) -> None:
        self._url, self._topic, self._ends = url, topic, ends

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(len(self._ends))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str | None, str, int]]:
        import httpx

        path = f"{self._url}/v1/topics/{self._topic}/partitions/{partition.value}/records"
        offset = 0
        with httpx.Client() as client:
            while offset < self._ends[partition.value]:
                page = client.get(path, params={"from": offset, "limit": 20_000}).json()
                yield from ((r["key"], r["value"], r["offset"]) for r in page["records"])
                offset = page["next_offset"]


class JsonSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "stele-json"

    def schema(self) -> str:
        return "key STRING, value STRING, offset LONG"

    def reader(self, schema: object) -> DataSourceReader:
        ends = [int(end) for end in self.options["ends"].split(",")]
        return JsonReader(self.options["url"], self.options["topic"], ends)


def fill(broker: BrokerProcess, topic: str, partitions: int) -> list[int]:
    """RECORDS records over the partitions; how many each has."""
    from stele import Client
    from stele.wire.framing import FrameReader

    value = b"x" * RECORD_BYTES
    now_ms = time.time_ns() // 1_000_000
    batch = build_rows([(now_ms, b"k%05d" % i, value, []) for i in range(BATCH_RECORDS)])
    each = -(-RECORDS // partitions // BATCH_RECORDS)
    with Client(broker.binary_url) as client:
        client.create_topic(topic, partitions=partitions)
        import socket

        with socket.create_connection((broker.host, broker.binary_port)) as connection:
            for partition in range(partitions):
                frame = m.ProduceBatchRequest(
                    topic=topic, partition=partition, acks=1, batches=batch
                ).encode()
                reader, answered = FrameReader(), 0
                for sent in range(each):
                    connection.sendall(frame)
                    while sent - answered > 64:
                        answered += len(list(reader.feed(connection.recv(65536))))
                while answered < each:
                    answered += len(list(reader.feed(connection.recv(65536))))
        client.flush(topic)
    return [each * BATCH_RECORDS] * partitions


def make_session(kafka_jars: Path | None) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if kafka_jars is not None:
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in sorted(kafka_jars.glob("*.jar"))))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(JsonSource)
    return session


def rate(frame: Callable[[], DataFrame], records: int) -> Callable[[], float]:
    """Records a second into nowhere; the frame is planned anew each time, as a job would."""

    def run() -> float:
        start = time.perf_counter()
        frame().write.format("noop").mode("overwrite").save()
        return records / (time.perf_counter() - start)

    return run


def compare_reads(
    spark: SparkSession, broker: BrokerProcess, home: Path, *, kafka: bool, rounds: int
) -> None:
    for partitions in PARTITIONS:
        topic = f"bench-{partitions}"
        ends = fill(broker, topic, partitions)
        records = sum(ends)

        def stele(url: str, topic: str = topic) -> DataFrame:
            return spark.read.format("stele").option("url", url).option("subscribe", topic).load()

        parquet = str(home / topic)
        stele(broker.binary_url).write.parquet(parquet)
        from_parquet = rate(lambda path=parquet: spark.read.parquet(path), records)
        tcp = rate(lambda: stele(broker.binary_url), records)
        yardsticks = {"Spark's own Parquet reader, the same rows, all columns": from_parquet}
        if kafka:
            yardsticks["spark-sql-kafka over the Kafka door"] = rate(
                lambda topic=topic: (
                    spark.read.format("kafka")
                    .option("kafka.bootstrap.servers", broker.kafka_bootstrap)
                    .option("subscribe", topic)
                    .load()
                ),
                records,
            )
        for yardstick, run in yardsticks.items():
            comparison = in_turn(tcp, run, rounds=rounds)
            report(
                f"Spark reads {records:,} records of {RECORD_BYTES} B, {partitions} partitions, over TCP",
                comparison,
                unit="records/s",
                yardstick=yardstick,
                goal=1.0 if "kafka" in yardstick else 0.1,
            )
            print_goal(comparison)
        http = in_turn(rate(lambda: stele(broker.http_url), records), tcp, rounds=rounds)
        report(
            f"… {partitions} partitions, transport=http (batches as they are)",
            http,
            unit="records/s",
            yardstick="the same over TCP",
            goal=0.5,
        )
        if partitions == PARTITIONS[-1]:
            json_rate(spark, broker, topic, ends)


def print_goal(comparison: Comparison) -> None:
    found = statistics.median(comparison.ours)
    print(
        f"  goal ≥ {GOAL_RECORDS:,} records/s: {'met' if found >= GOAL_RECORDS else 'NOT met'} ({found:,.0f})"
    )


def json_rate(spark: SparkSession, broker: BrokerProcess, topic: str, ends: list[int]) -> None:
    """Once, and a tenth of the records: it is what the other transports are there to avoid."""
    tenth = [end // 10 for end in ends]

    def frame() -> DataFrame:
        reader = spark.read.format("stele-json").option("url", broker.http_url).option("topic", topic)
        return reader.option("ends", ",".join(map(str, tenth))).load()

    run = rate(frame, sum(tenth))
    run()
    print(f"for comparison, JSON pages over HTTP made into tuples: {run():,.0f} records/s", flush=True)


def trigger_overhead(spark: SparkSession, broker: BrokerProcess, home: Path) -> None:
    """Micro-batches of one record: what a trigger costs before any record."""
    topic = f"bench-{PARTITIONS[0]}"

    def durations(name: str, frame: DataFrame) -> list[float]:
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(home / name))
        query = writer.start()
        try:
            while (query.lastProgress or {"batchId": 0})["batchId"] < TRIGGERS:
                time.sleep(0.05)
            found = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
        finally:
            query.stop()
        return found[2:]

    source = spark.readStream.format("stele").option("url", broker.binary_url).option("subscribe", topic)
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1")
    ours = durations("stele", source.load())
    rates = durations("rate", spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load())
    print(
        f"a micro-batch of one record: {statistics.median(ours):.0f} ms; "
        f"of Spark's own rate source: {statistics.median(rates):.0f} ms (medians of {len(ours)})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kafka-jars", type=Path, help="a directory with spark-sql-kafka-0-10 and what it needs"
    )
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    try:
        require_spark()
    except SparkMissingError as error:
        print(f"left out: {error}")
        return
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch, running_broker() as broker:
        spark = make_session(given.kafka_jars)
        try:
            compare_reads(
                spark, broker, Path(scratch), kafka=given.kafka_jars is not None, rounds=given.rounds
            )
            trigger_overhead(spark, broker, Path(scratch))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
