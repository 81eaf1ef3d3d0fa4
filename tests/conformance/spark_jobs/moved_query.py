"""Runs streams with Spark's own Kafka source that move from broker to broker: python moved_query.py JARS.

Each line of the standard input is a JSON object, and answered by a line of JSON:

    {"start": BOOTSTRAP, "topic": TOPIC, "checkpoint": DIRECTORY, "output": DIRECTORY}   until the next stop
    {"stop": true}

A micro-batch is one file of the output, named by its number: the list of its values as JSON. A query that fails, because
its broker was killed, starts again from its checkpoint.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from spark_session import client_options, start_spark


class Moved:
    """One query, which is started until it is to stop."""

    def __init__(self, spark: Any, command: dict[str, str]) -> None:
        self._spark = spark
        self._command = command
        self._lock = threading.Lock()
        self._is_over = False
        self._query: Any = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_over:
                    return
                self._query = self._start()
            try:
                self._query.awaitTermination()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next start shows whether it stays
                print(f"the query failed: {str(error)[:2000]}", file=sys.stderr, flush=True)

    def _start(self) -> Any:
        output = Path(self._command["output"])
        output.mkdir(exist_ok=True)

        def write(frame: Any, number: int) -> None:
            values = [bytes(row.value).decode() for row in frame.select("value").collect()]
            partial = output / f"{number}.partial"
            partial.write_text(json.dumps(values))
            partial.rename(output / f"{number}.json")

        options = {
            # A broker that was killed shows soon.
            "kafka.request.timeout.ms": "10000",
            "kafka.default.api.timeout.ms": "15000",
            "kafka.isolation.level": "read_committed",
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": "500",
        }
        source = self._spark.readStream.format("kafka").options(**client_options(self._command["start"]))
        return (
            source.options(**options).option("subscribe", self._command["topic"]).load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", self._command["checkpoint"])
            .trigger(processingTime="300 milliseconds")
            .start()
        )  # fmt: skip

    def stop(self) -> None:
        with self._lock:
            self._is_over = True
            self._query.stop()
        self._thread.join()


def main() -> None:
    spark = start_spark(sys.argv[1])
    moved: Moved | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if "start" in command:
            moved = Moved(spark, command)
        elif moved is not None:
            moved.stop()
        print(json.dumps({"done": True}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
