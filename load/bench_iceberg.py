"""Measure how fast a topic becomes an Iceberg table, and the CPU time per million records, beside Spark.

The yardstick is a streaming query of Spark that reads the same topic from the same broker by the source ``stele`` and
writes Parquet. Values have 100 bytes, and differ as keys do. Both have started before, and neither counts the broker's CPU time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from stele.client import Client
from stele.operations.topics import TopicId
from stele.spark.java import require_spark

from .harness import Benchmark, Rounds
from .kafka_clients import make_topic, produce, random_text
from .process_usage import cpu_seconds
from .results import at_least, at_most
from .subjects import quiet_broker, stele_subject

RECORD_BYTES = 100
BATCH_BYTES = 16_384
PARTITIONS = 4
DISTINCT = 100_000
TABLES = """
import sys, threading, time
from stele.client import Client
from stele.iceberg.options import WriterOptions
from stele.iceberg.reading import TopicReader
from stele.iceberg.tables import Tables, open_catalog
from stele.iceberg.topic import TopicSpec, TopicWriter
from stele.columns.values import ValueDecoder
url, directory, partitions = sys.argv[1:]
options = WriterOptions(broker=url, catalog=f"{directory}/catalog.sqlite", warehouse=f"{directory}/warehouse")
tables = Tables(open_catalog(options), options.warehouse_url)
reader = TopicReader(Client(url))
print("ready", flush=True)
for line in sys.stdin:
    topic, topic_id = line.split()
    spec = TopicSpec(
        topic=topic, topic_id=topic_id, mode="key_value", commit_interval_ms=60_000, partitions=int(partitions)
    )
    writer = TopicWriter(spec, tables, ValueDecoder(None))
    while writer.turn(reader, threading.Event()):
        pass
    print("rows", writer.status.rows, flush=True)
"""
SPARK = """
import sys
from pyspark.sql import SparkSession
url, directory, partitions = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
print("ready", flush=True)
for number, line in enumerate(sys.stdin):
    topic, _ = line.split()
    frame = spark.readStream.format("stele").option("url", url).option("subscribe", topic)
    frame = frame.option("startingOffsets", "earliest").load()
    writing = frame.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint-{number}")
    writing.option("path", f"{directory}/rows-{number}").trigger(availableNow=True).start().awaitTermination()
    print("rows", spark.read.parquet(f"{directory}/rows-{number}").count(), flush=True)
"""


class Writer:
    """A program that writes the rows of a topic when it gets its name."""

    def __init__(self, program: str, url: str, directory: Path) -> None:
        directory.mkdir()
        command = [sys.executable, "-c", program, url, str(directory), str(PARTITIONS)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._line("ready")

    def write(self, topic: str, topic_id: str, records: int) -> tuple[float, float]:
        """Return records per second, and seconds of CPU time per million records."""
        assert self._process.stdin is not None
        begun_s, cpu_s = time.perf_counter(), cpu_seconds(self._process.pid)
        print(topic, topic_id, file=self._process.stdin, flush=True)
        rows = int(self._line("rows"))
        spent_s, cpu_s = time.perf_counter() - begun_s, cpu_seconds(self._process.pid) - cpu_s
        if rows != records:
            raise SystemExit(f"{rows} rows were written of {records} records")
        return records / spent_s, cpu_s * 1_000_000 / records

    def _line(self, first: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, value = line.strip().partition(" ")
            if word == first:
                return value
        raise SystemExit("the program has ended; its output is above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.add("--records", type=int, default=3_000_000, quick=50_000, help="default: 3,000,000")
    with bench.run() as options, ExitStack() as stack:
        require_spark()
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-iceberg-")))
        broker = stack.enter_context(quiet_broker())
        subject = stele_subject(broker)
        writers = [
            (is_stele, Writer(program, broker.binary_url, home / name))
            for is_stele, name, program in ((True, "tables", TABLES), (False, "spark", SPARK))
        ]
        for _, writer in writers:
            stack.callback(writer.close)
        client = stack.enter_context(Client(broker.binary_url))
        # More than the dictionary of a Parquet file takes.
        contents: list[dict[str, object]] = [
            {"key": b"key-%d" % number, "value": random_text(RECORD_BYTES)} for number in range(DISTINCT)
        ]
        rounds = Rounds()
        what = "a topic as an Iceberg table"
        # The first round is for warmth.
        for number in range(options.rounds + 1):
            topic = make_topic(subject, partitions=PARTITIONS)
            produce(
                subject,
                topic,
                partitions=PARTITIONS,
                records=options.records,
                size=RECORD_BYTES,
                contents=contents,
                batch_size=BATCH_BYTES,
            )
            topic_id = str(client.call(TopicId(topic=topic)))
            for is_stele, writer in writers if number % 2 else reversed(writers):
                rate, cpu_s = writer.write(topic, topic_id, options.records)
                if number:
                    rounds.add(what, "rate", rate, is_stele=is_stele)
                    rounds.add(what, "CPU", cpu_s, is_stele=is_stele)
            client.delete_topic(topic)
        bench.row(
            what,
            baseline="Spark's stream of the same topic into Parquet",
            measures={
                "rate": rounds.measure(what, "rate", "/s", at_least(2)),
                "CPU": rounds.measure(what, "CPU", "s per million", at_most(0.5)),
            },
        )


if __name__ == "__main__":
    main()
