"""Copies a topic with a login from the environment alone: python login_job.py URL SOURCE SINK CHECKPOINT."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def main() -> None:
    url, source, sink, checkpoint = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.readStream.format("stele").option("url", url).option("subscribe", source)
    frame = frame.option("startingOffsets", "earliest").load().select("key", "value")
    writer = frame.writeStream.format("stele").option("url", url).option("topic", sink)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
