"""One aggregate of the flights, by a batch read of their topic, from its Iceberg table, and by SQL."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from pyiceberg.catalog import load_catalog
from stele import Client, NewRecord, Schema, SchemaRegistry
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

    # SQL over the topic: from the table, then from the log after it as well.
    text = "select value->>'$.origin', count(*), sum((value->>'$.dep_delay')::double) from {} group by all"
    assert by_topic == _asked(broker, text.format(f'"{topic}"'))

    # The same flights as values with a schema, the second half of them in the log alone.
    document = {
        "type": "object",
        "properties": {"origin": {"type": "string"}, "dep_delay": {"type": ["number", "null"]}},
    }
    typed = f"{topic}-typed"
    slow = {**CONFIGS, "stele.iceberg.mode": "value_schema", "stele.iceberg.commit.interval.ms": "3600000"}
    client.create_topic(typed, partitions=3, configs={**slow, "stele.iceberg.commit.interval.ms": "1000"})
    with SchemaRegistry(broker.registry_url) as registry:
        encode = registry.serializer(Schema(json.dumps(document), "JSON"), typed, form="json")
        records = [
            NewRecord(encode(json.loads(flight.value)), key=flight.key, timestamp=flight.timestamp_ms)
            for flight in flights(FLIGHTS)
        ]
    half = FLIGHTS // 2
    client.produce_many(typed, records[:half])
    status = f"{broker.http_url}/v1/iceberg/{typed}"
    eventually(
        lambda: httpx.get(status).raise_for_status().json()["rows"] == half, "half of them are written"
    )
    client.alter_topic(typed, configs=slow)
    client.produce_many(typed, records[half:])
    columns = f'select origin, count(*), sum(dep_delay) from "{typed}" group by all'
    assert by_topic == _asked(broker, columns)
    decoded: Any = (
        spark.read.format("stele")
        .option("url", broker.binary_url)
        .option("subscribe", typed)
        .option("stele.decode", "value")
        .load()
    )
    assert by_topic == {
        row[0]: (row[1], row[2])
        for row in decoded.groupBy("value.origin").agg(f.count("*"), f.sum("value.dep_delay")).collect()
    }


def _asked(broker: BrokerProcess, sql: str) -> dict[str, tuple[int, float]]:
    answer = httpx.post(f"{broker.http_url}/v1/sql", json={"sql": sql}, timeout=600).raise_for_status().json()
    return {origin: (count, total) for origin, count, total in answer["rows"]}
