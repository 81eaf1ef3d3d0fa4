"""Reads tables of topics over the REST catalog: python read_tables.py JARS URL BOOTSTRAP; then a topic per line of stdin.

Answers each line with one of JSON: of the first snapshots and the newest one the offsets and the places of the rows; and
how many rows a batch read of the topic by Spark's own Kafka connector does not find.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from spark_session import start_spark


def places(rows: Any) -> dict[str, Any]:
    """Return per partition the number of rows, of different offsets, and the bounds of the offsets."""
    from pyspark.sql import functions as f

    counted: list[Any] = (
        rows.groupBy("partition")
        .agg(f.count("*"), f.count_distinct("offset"), f.min("offset"), f.max("offset"))
        .collect()
    )
    return {str(row[0]): list(row)[1:] for row in counted}


def main() -> None:
    jars, url, bootstrap = sys.argv[1:]
    catalog = {
        "spark.sql.catalog.stele": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.stele.type": "rest",
        "spark.sql.catalog.stele.uri": f"{url}/iceberg",
        "spark.sql.catalog.stele.cache-enabled": "false",
    }
    spark = start_spark(jars, **catalog)
    print(json.dumps([row.namespace for row in spark.sql("SHOW NAMESPACES IN stele").collect()]), flush=True)
    for line in sys.stdin:
        topic = line.strip()
        name = f"stele.stele.`{topic}`"
        snapshots: list[Any] = spark.sql(
            f"SELECT snapshot_id, summary FROM {name}.snapshots ORDER BY committed_at"
        ).collect()
        # Some of them, and the newest one: each is a query.
        read = [
            [
                json.loads(row.summary["stele.offsets"]),
                places(spark.read.option("snapshot-id", row.snapshot_id).table(name)),
            ]
            for row in [*snapshots[:3], snapshots[-1]]
        ]
        batch = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .load()
        )
        columns = ["partition", "offset", "key", "value", "timestamp"]
        of_table, of_topic = (rows.select(*columns) for rows in (spark.table(name), batch))
        answer = {
            "tables": [row.tableName for row in spark.sql("SHOW TABLES IN stele.stele").collect()],
            "snapshots": read,
            # Of the newest snapshot: rows that the topic does not have.
            "unknown": of_table.exceptAll(of_topic).count(),
        }
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
