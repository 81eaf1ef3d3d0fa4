"""Count the records of a topic by key with Spark."""

import os
import sys

from pyspark.sql import SparkSession

# Spark looks for data sources in this Python.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
url = os.environ.get("STELE_URL", "stele://127.0.0.1:9009")
spark = SparkSession.builder.master("local[2]").appName("stele").getOrCreate()
records = spark.read.format("stele").option("url", url).option("subscribe", "measurements").load()
counts = records.selectExpr("CAST(key AS STRING) AS key").groupBy("key").count()
for row in counts.orderBy("key").collect():
    print(row["key"], row["count"], flush=True)
spark.stop()
