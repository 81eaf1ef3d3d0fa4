"""Measure Spark's reads from Stele against spark-sql-kafka, and against the same rows from Parquet.

Records have 100 bytes; the broker's share of the CPU is included. ``--kafka-home DIR`` is what
``tests/conformance/drivers/spark-sql-kafka/install.sh`` has made, ``.conformance/spark-sql-kafka``: it reads over the
Kafka listener of the same broker, in a Spark of its own. Without it, only Parquet is the yardstick.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from stele.spark.java import require_spark

from .harness import Benchmark, in_turn
from .kafka_clients import make_topic, produce
from .results import Measure, at_least
from .subjects import quiet_broker, stele_subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_BYTES = 100
# What a busy producer's batch holds.
BATCH_BYTES = 16_384
PARTITIONS = (1, 4, 8)
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

    def read(self, topic: str, records: int) -> float:
        """Return records per second."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(topic, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            word, _, value = line.strip().partition(" ")
            if word == "seconds":
                return records / float(value)
        raise SystemExit("the Spark of spark-sql-kafka has ended; its output is above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def make_session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def rate(frame: Callable[[], DataFrame], records: int) -> float:
    """Return records per second into nowhere; the frame is planned again each time, as in a job."""
    start = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return records / (time.perf_counter() - start)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=2)
    bench.parser.add_argument("--kafka-home", type=Path, help="a venv and the jars of spark-sql-kafka-0-10")
    bench.add("--records", type=int, default=2_000_000, quick=50_000, help="default: 2,000,000")
    with bench.run() as options, ExitStack() as stack:
        require_spark()
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        broker = stack.enter_context(quiet_broker())
        subject, kafka = stele_subject(broker), None
        if options.kafka_home is not None:
            kafka = KafkaReader(options.kafka_home.resolve(), broker.kafka_bootstrap)
            stack.callback(kafka.close)
        spark = make_session()
        stack.callback(spark.stop)
        ratios: list[float] = []
        for partitions in PARTITIONS:
            topic, records = make_topic(subject, partitions=partitions), options.records
            produce(
                subject,
                topic,
                partitions=partitions,
                records=records,
                size=RECORD_BYTES,
                batch_size=BATCH_BYTES,
            )

            def stele(topic: str = topic) -> DataFrame:
                url = broker.binary_url
                return spark.read.format("stele").option("url", url).option("subscribe", topic).load()

            parquet = str(home / topic)
            stele().write.parquet(parquet)
            ours = partial(rate, stele, records)
            what = f"records/s read by Spark, partitions: {partitions}"
            value = in_turn(
                ours,
                partial(rate, partial(spark.read.parquet, parquet), records),
                rounds=options.rounds,
                unit="/s",
                goal=at_least(0.1),
            )
            bench.row(what, baseline="Spark's own Parquet reader, the same rows", value=value)
            if kafka is not None:
                theirs = partial(kafka.read, topic, records)
                value = in_turn(ours, theirs, rounds=options.rounds, unit="/s", goal=at_least(1.0))
                bench.row(what, baseline="spark-sql-kafka", value=value)
                ratios.append(median(value.ratios))
        if ratios:
            value = Measure(ratio=ratios)
            bench.row(
                "records/s read by Spark", table="work", baseline="spark-sql-kafka", is_span=True, value=value
            )


if __name__ == "__main__":
    main()
