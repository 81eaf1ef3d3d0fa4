"""Measure Spark's reads from Stele against the same rows from Parquet.

Records have 100 bytes; the broker's share of the CPU is included.

``--kafka-home DIR`` adds spark-sql-kafka over the Kafka listener, in a Spark of its own: what
``tests/conformance/drivers/spark-sql-kafka/install.sh`` has made, ``.conformance/spark-sql-kafka``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """The naive approach: pages of JSON over HTTP, a tuple for each record."""

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


class ArrowReader(JsonReader):
    """Pages of Arrow over HTTP: the broker decodes, the worker hands over what it got."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import httpx
        from stele.wire.arrow_types import pa

        path = f"{self._url}/v1/topics/{self._topic}/partitions/{partition.value}/records"
        accept = {"accept": "application/vnd.apache.arrow.stream"}
        offset = 0
        with httpx.Client() as client:
            while offset < self._ends[partition.value]:
                page = client.get(path, params={"from": offset, "limit": 100_000}, headers=accept)
                offset = int(page.headers["next-offset"])
                with pa.ipc.open_stream(page.content) as rows:
                    for batch in rows:
                        yield batch.select(["key", "value", "offset"])


class ArrowSource(JsonSource):
    @classmethod
    def name(cls) -> str:
        return "stele-arrow"

    def schema(self) -> str:
        return "key BINARY, value BINARY, offset LONG"

    def reader(self, schema: object) -> DataSourceReader:
        ends = [int(end) for end in self.options["ends"].split(",")]
        return ArrowReader(self.options["url"], self.options["topic"], ends)


KAFKA_READER = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
jars, servers = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    .config("spark.jars", ",".join(map(str, sorted(Path(jars).glob("*.jar")))))
    .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
print("version", spark.version, flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    frame = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", line.strip())
    frame.load().write.format("noop").mode("overwrite").save()
    print("seconds", time.perf_counter() - start, flush=True)
"""


class KafkaReader:
    """spark-sql-kafka, in a process with the Spark it was made for; it reads when it is given a topic."""

    def __init__(self, home: Path, bootstrap: str) -> None:
        command = [str(home / "venv" / "bin" / "python"), "-c", KAFKA_READER, str(home / "jars"), bootstrap]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self._said("version")

    def read(self, topic: str, records: int) -> float:
        """Return records per second."""
        assert self._process.stdin is not None
        print(topic, file=self._process.stdin, flush=True)
        return records / float(self._said("seconds"))

    def _said(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said, _, value = line.strip().partition(" ")
            if said == word:
                return value
        raise SystemExit("the Spark of spark-sql-kafka has ended; its output is above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


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


def make_session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(JsonSource)
    session.dataSource.register(ArrowSource)
    return session


def rate(frame: Callable[[], DataFrame], records: int) -> Callable[[], float]:
    """Return records per second into nowhere; the frame is planned again each time, as in a job."""

    def run() -> float:
        start = time.perf_counter()
        frame().write.format("noop").mode("overwrite").save()
        return records / (time.perf_counter() - start)

    return run


def compare_reads(
    spark: SparkSession, broker: BrokerProcess, home: Path, *, kafka: KafkaReader | None, rounds: int
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
        if kafka is not None:
            yardsticks[f"spark-sql-kafka over the Kafka listener, Spark {kafka.version}"] = (
                lambda kafka=kafka, topic=topic, records=records: kafka.read(topic, records)
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
        report(
            f"… {partitions} partitions, Arrow over HTTP, made by the broker; key, value and offset",
            in_turn(rate(partial(arrow_frame, spark, broker, topic, ends), records), tcp, rounds=rounds),
            unit="records/s",
            yardstick="batches over TCP, decoded in the workers, all columns",
            goal=0.5,
        )
        if partitions == PARTITIONS[-1]:
            json_rate(spark, broker, topic, ends)


def arrow_frame(spark: SparkSession, broker: BrokerProcess, topic: str, ends: list[int]) -> DataFrame:
    reader = spark.read.format("stele-arrow").option("url", broker.http_url).option("topic", topic)
    return reader.option("ends", ",".join(map(str, ends))).load()


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
        "--kafka-home", type=Path, help="a directory with a venv and the jars of spark-sql-kafka-0-10"
    )
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    try:
        require_spark()
    except SparkMissingError as error:
        print(f"left out: {error}")
        return
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch, running_broker() as broker:
        kafka = KafkaReader(given.kafka_home.resolve(), broker.kafka_bootstrap) if given.kafka_home else None
        spark = make_session()
        try:
            compare_reads(spark, broker, Path(scratch), kafka=kafka, rounds=given.rounds)
            trigger_overhead(spark, broker, Path(scratch))
        finally:
            spark.stop()
            if kafka is not None:
                kafka.close()


if __name__ == "__main__":
    main()
