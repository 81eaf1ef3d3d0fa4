"""One batch and one stream through the data source on any master: python masters_job.py MASTER URL TOPIC CHECKPOINT.

MASTER is what ``SparkSession.builder.master`` takes, or ``connect``: then a Spark Connect server is started here.
Prints two counts: what was read as a batch, and the micro-batches of the stream.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def main() -> None:
    master, url, topic, checkpoint = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = (
        builder.config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
    )
    spark: Any = (builder.remote("local[2]") if master == "connect" else builder.master(master)).getOrCreate()
    source = spark.read.format("stele").option("url", url).option("subscribe", topic)
    rows = source.load().select("key", "value", "partition")
    # Through a shuffle, so that more than one executor has a part in it.
    read = rows.groupBy("partition").count().collect()
    rows.select("key", "value").write.format("stele").mode("append").option("url", url).option(
        "topic", f"{topic}-batch"
    ).save()
    stream = spark.readStream.format("stele").option("url", url).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "400").load()
    query = (
        stream.select("key", "value")
        .writeStream.format("stele")
        .option("url", url)
        .option("topic", f"{topic}-stream")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("read", sum(row["count"] for row in read), "in", len(query.recentProgress), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
