"""Reads framed Avro by Spark's own from_avro, and writes what its to_avro makes: python from_avro.py JARS BOOTSTRAP TOPIC SCHEMA.

It prints the values as one line of JSON, in the order of their offsets. The copies go to TOPIC-copy, each after the
frame that it had.
"""

from __future__ import annotations

import sys

from spark_session import client_options, start_spark


def main() -> None:
    from pyspark.sql.avro.functions import from_avro, to_avro
    from pyspark.sql.functions import col, concat, expr, struct, to_json

    jars, bootstrap, topic, schema = sys.argv[1:]
    spark = start_spark(jars)
    source = spark.read.format("kafka").options(**client_options(bootstrap)).option("subscribe", topic).load()
    # The frame is what from_avro does not know.
    frame, payload = expr("substring(value, 1, 5)"), expr("substring(value, 6)")
    rows = source.select("offset", frame.alias("frame"), from_avro(payload, schema).alias("row"))
    shown = rows.orderBy("offset").select(to_json(struct(col("row"))).alias("json")).collect()
    print(f"[{','.join(row.json for row in shown)}]", flush=True)
    copies = rows.where("row IS NOT NULL").select(concat("frame", to_avro("row", schema)).alias("value"))
    copies.write.format("kafka").options(**client_options(bootstrap)).option("topic", f"{topic}-copy").save()
    spark.stop()


if __name__ == "__main__":
    main()
