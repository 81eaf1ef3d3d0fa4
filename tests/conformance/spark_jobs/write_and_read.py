"""Writes and reads a topic with Spark's own Kafka connector: python write_and_read.py JARS BOOTSTRAP TOPIC COUNT CHECKPOINT.

Prints what it has read as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from spark_session import client_options, start_spark


def headers(row: Any) -> list[list[str]]:
    found: list[Any] = row.headers or []
    return [[header.key, bytes(header.value).decode()] for header in found]


def main() -> None:
    jars, bootstrap, topic, count, checkpoint = sys.argv[1:]
    options = client_options(bootstrap)
    from pyspark.sql import functions as f

    spark = start_spark(jars)

    def reader(source: Any) -> Any:
        source = source.format("kafka").options(**options).option("subscribe", topic)
        return source.option("startingOffsets", "earliest").option("includeHeaders", "true")

    rows = spark.range(int(count)).select(
        f.concat(f.lit("k"), f.col("id") % 7).alias("key"),
        f.concat(f.lit("v"), "id").alias("value"),
        f.array(f.struct(f.lit("h").alias("key"), f.lit(b"1").alias("value"))).alias("headers"),
    )
    writer = rows.write.format("kafka").options(**options)
    writer.option("topic", topic).option("includeHeaders", "true").save()

    batch = reader(spark.read).load()
    copied = (
        reader(spark.readStream)
        .option("maxOffsetsPerTrigger", str(int(count) // 3))
        .load()
        .select("key", f.concat(f.lit("copy of "), f.col("value").cast("string")).alias("value"))
        .writeStream.format("kafka")
        .options(**options)
        .option("topic", f"{topic}-copy")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    copied.awaitTermination()
    read: list[Any] = [
        [row.partition, row.offset, bytes(row.key).decode(), bytes(row.value).decode(),
         row.timestamp.timestamp() * 1000, headers(row)]
        for row in batch.orderBy("partition", "offset").collect()
    ]  # fmt: skip
    print(json.dumps({"read": read, "micro_batches": len(copied.recentProgress)}))
    spark.stop()


if __name__ == "__main__":
    main()
