"""Writes and reads a topic with Spark's own Kafka connector: python job.py BOOTSTRAP TOPIC COUNT CHECKPOINT JARS LOGIN.

LOGIN is a JSON object with properties of Kafka's clients. Prints what it has read as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def headers(row: Any) -> list[list[str]]:
    found: list[Any] = row.headers or []
    return [[header.key, bytes(header.value).decode()] for header in found]


def main() -> None:
    bootstrap, topic, count, checkpoint, jars, login = sys.argv[1:]
    clients = {"bootstrap.servers": bootstrap, **json.loads(login)}
    options = {f"kafka.{name}": value for name, value in clients.items()}
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    spark: Any = (
        builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in Path(jars).glob("*.jar")))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

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
