"""One aggregate of the flights, by a batch read of their topic and from its Iceberg table."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from pyiceberg.catalog import load_catalog
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess

from tests.console.conftest import flights
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.long,
    pytest.mark.one_broker("the tables of a cluster need a warehouse that all brokers have"),
]
FLIGHTS = 20_000
CONFIGS = {
    "stele.iceberg.mode": "key_value",
    "stele.iceberg.commit.interval.ms": "1000",
    # They are of 2013.
    "retention.ms": "-1",
}


def test_a_topic_and_its_table_have_the_same_delays(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str
) -> None:
    from pyspark.sql import functions as f

    client.create_topic(topic, partitions=3, configs=CONFIGS)
    client.produce_many(
        topic,
        [
            NewRecord(flight.value, key=flight.key, timestamp=flight.timestamp_ms)
            for flight in flights(FLIGHTS)
        ],
    )

    def rows() -> int:
        return httpx.get(f"{broker.http_url}/v1/iceberg/{topic}").raise_for_status().json()["rows"]

    eventually(lambda: rows() == FLIGHTS, "all flights are in the table")

    batch: Any = spark.read.format("stele").option("url", broker.binary_url).option("subscribe", topic).load()
    flight = f.from_json(f.col("value").cast("string"), "origin STRING, dep_delay DOUBLE")
    by_topic = {
        row[0]: (row[1], row[2])
        for row in batch.select(flight.alias("flight"))
        .groupBy("flight.origin")
        .agg(f.count("*"), f.sum("flight.dep_delay"))
        .collect()
    }

    table = load_catalog("stele", type="rest", uri=f"{broker.http_url}/iceberg").load_table(("stele", topic))
    counts, delays = Counter[str](), Counter[str]()
    for value in cast("Any", table.scan(selected_fields=("value",))).to_arrow()["value"].to_pylist():
        fields = json.loads(value)
        counts[fields["origin"]] += 1
        delays[fields["origin"]] += fields["dep_delay"] or 0
    assert by_topic == {origin: (counts[origin], delays[origin]) for origin in counts}

    duckdb: Any = pytest.importorskip("duckdb")
    files = [task.file.file_path for task in table.scan().plan_files()]
    answer = duckdb.execute(
        "SELECT f->>'origin', count(*), sum((f->>'dep_delay')::DOUBLE) "
        "FROM (SELECT decode(value)::JSON AS f FROM read_parquet($files)) GROUP BY 1",
        {"files": files},
    ).fetchall()
    assert by_topic == {origin: (count, total) for origin, count, total in answer}
