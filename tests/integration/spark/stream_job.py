"""A streaming query in a process of its own, for a test to kill: python stream_job.py URL SOURCE SINK CHECKPOINT plain|shuffled TRANSACTIONAL."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def main() -> None:
    url, source, sink, checkpoint, kind, transactional = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.readStream.format("stele").option("url", url).option("subscribe", source)
    frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2000").load()
    frame = frame.select("key", "value")
    if kind == "shuffled":
        # Rows come to each task from several others, in whatever order they arrive.
        frame = frame.repartition(3, "value")
    writer = frame.writeStream.format("stele").option("url", url).option("topic", sink)
    writer = writer.option("transactional", transactional)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
