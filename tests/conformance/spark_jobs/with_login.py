"""Runs what it is told with Spark's own Kafka connector: python with_login.py JARS BOOTSTRAP LOGIN.

LOGIN is a JSON object with properties of Kafka's clients. Each line of the standard input is a command, and answered by
a line of JSON with ``done``, or with the ``error`` of Spark:

    {"write": TOPIC, "values": [...]}                       as a batch
    {"read": TOPIC}                                         as a batch; done is the list of values
    {"copy": TOPIC, "to": TOPIC, "checkpoint": DIRECTORY}   as a stream, from now until the end of the input
"""

from __future__ import annotations

import json
import sys
from typing import Any

from spark_session import client_options, start_spark


def main() -> None:
    jars, bootstrap, login = sys.argv[1:]
    options = client_options(bootstrap, json.loads(login))
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    spark = start_spark(jars)

    def load(source: Any, topic: str) -> Any:
        source = source.format("kafka").options(**options).option("subscribe", topic)
        return source.option("startingOffsets", "earliest").load().select(f.col("value").cast("string"))

    def do(command: dict[str, Any]) -> Any:
        if topic := command.get("write"):
            rows = spark.createDataFrame([(value,) for value in command["values"]], "value string")
            rows.write.format("kafka").options(**options).option("topic", topic).save()
            return None
        if topic := command.get("read"):
            return [row.value for row in load(spark.read, topic).collect()]
        query = (
            load(spark.readStream, command["copy"])
            .writeStream.format("kafka")
            .options(**options)
            .option("topic", command["to"])
            .option("checkpointLocation", command["checkpoint"])
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        query.processAllAvailable()
        return None

    for line in sys.stdin:
        try:
            answer = {"done": do(json.loads(line))}
        except (PySparkException, Py4JJavaError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    for query in spark.streams.active:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
