"""Reads a topic with transactions by Spark's own Kafka source: python read_committed.py JARS BOOTSTRAP TOPIC CHECKPOINT.

It reads as a batch and as a stream of small micro-batches, waits for a line on its standard input, and reads both
again. After each reading it prints what it has read as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from spark_session import client_options, start_spark


def main() -> None:
    jars, bootstrap, topic, checkpoint = sys.argv[1:]

    spark = start_spark(jars)

    def reader(source: Any) -> Any:
        options = source.format("kafka").options(**client_options(bootstrap))
        # An offset without a record, such as that of a marker, is no loss of data.
        options = options.option("subscribe", topic).option("failOnDataLoss", "true")
        return options.option("startingOffsets", "earliest").option("kafka.isolation.level", "read_committed")

    for _ in range(2):
        batch: list[Any] = reader(spark.read).load().select("value").collect()
        streamed: list[str] = []

        def take(frame: Any, _: int, streamed: list[str] = streamed) -> None:
            streamed += [bytes(row.value).decode() for row in frame.select("value").collect()]

        query = (
            # Some micro-batches are nothing but markers and aborted records.
            reader(spark.readStream).option("maxOffsetsPerTrigger", "40").load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )  # fmt: skip
        query.awaitTermination()
        progress = [json.loads(report.json)["sources"][0] for report in query.recentProgress]
        print(
            json.dumps(
                {
                    "batch": [bytes(row.value).decode() for row in batch],
                    "stream": streamed,
                    "rows": [source["numInputRows"] for source in progress],
                    "end": progress[-1]["endOffset"] if progress else None,
                }
            ),
            flush=True,
        )
        sys.stdin.readline()
    spark.stop()


if __name__ == "__main__":
    main()
