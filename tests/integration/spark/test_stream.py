"""Streams through a real Spark: limits, Trigger.AvailableNow, what is added and what is lost while they run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stele import Client
from stele.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.long

Fill = Callable[..., None]
TIMEOUT_S = 240


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    return broker.binary_url if request.param == "tcp" else broker.http_url


def load(spark: SparkSession, url: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("stele").option("url", url).option("startingOffsets", "earliest")
    return reader.options(**{k: str(v) for k, v in options.items()}).load()


def drain(frame: DataFrame, home: Path) -> list[dict[str, Any]]:
    """Everything that is there into Parquet; the progress of each micro-batch that had rows."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(home / "checkpoint"))
    query = writer.option("path", str(home / "out")).trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S), "the query did not end"
    return [json.loads(p.json) for p in query.recentProgress if p["numInputRows"]]


def offsets(spark: SparkSession, home: Path) -> list[tuple[str, int, int]]:
    rows = spark.read.parquet(str(home / "out")).select("topic", "partition", "offset").collect()
    return sorted((row.topic, row.partition, row.offset) for row in rows)


def everything(topic: str, counts: list[int]) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


def failure(query: StreamingQuery) -> str:
    with pytest.raises(Exception) as caught:
        query.awaitTermination(TIMEOUT_S)
    return str(caught.value)


def test_available_now_drains_what_was_there_at_its_start_in_limited_batches(
    spark: SparkSession, url: str, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    fill(topic, 500, partitions=2)
    seen: list[int] = []

    def take(frame: DataFrame, _: int) -> None:
        # More comes with every micro-batch: a run that followed it would never end.
        fill(topic, 100, partitions=2, first=500 + 100 * len(seen))
        seen.append(frame.count())

    def run() -> None:
        seen.clear()
        writer = load(spark, url, subscribe=topic, maxOffsetsPerTrigger=300).writeStream.foreachBatch(take)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"

    run()
    assert seen == [300, 300, 300, 100]
    run()
    # What the first run put there: 4 times 100 in each of 2 partitions.
    assert seen == [300, 300, 200]


def test_partitions_and_topics_that_come_while_a_query_runs_are_read_from_their_first_record(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=1)
    fill(topic, 10)
    frame = load(spark, broker.binary_url, subscribePattern=f"{topic}.*")
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        assert offsets(spark, tmp_path) == everything(topic, [10])
        client.alter_topic(topic, partitions=3)
        fill(topic, 5, partitions=3)
        client.create_topic(f"{topic}-late", partitions=1)
        fill(f"{topic}-late", 7)
        query.processAllAvailable()
        assert offsets(spark, tmp_path) == everything(topic, [15, 5, 5]) + everything(f"{topic}-late", [7])
    finally:
        query.stop()


def test_progress_tells_where_the_query_is_and_where_the_log_ends(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    fill(topic, 50, partitions=2)
    first, second = drain(load(spark, broker.binary_url, subscribe=topic, maxOffsetsPerTrigger=60), tmp_path)
    (source,) = first["sources"]
    # The first end also has where the query began.
    assert source["endOffset"] == {topic: {"0": 30, "1": 30}, f":from:{topic}": {"0": 0, "1": 0}}
    assert source["latestOffset"] == {topic: {"0": 50, "1": 50}}
    assert second["sources"][0]["startOffset"] == source["endOffset"]


@pytest.mark.one_broker("shared storage has no topics in memory")
def test_records_of_the_first_micro_batch_that_are_gone_when_it_is_repeated_are_reported(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=1, configs={"stele.storage": "memory", "stele.memory.records": 10})
    fill(topic, 10)

    def fail(_: DataFrame, __: int) -> None:
        raise RuntimeError("the program ends within the first micro-batch")

    writer = load(spark, broker.binary_url, subscribe=topic).writeStream.foreachBatch(fail)
    assert "within the first" in failure(writer.option("checkpointLocation", str(tmp_path)).start())
    fill(topic, 5, first=10)

    def take(frame: DataFrame, _: int) -> None:
        frame.count()

    writer = load(spark, broker.binary_url, subscribe=topic).writeStream.foreachBatch(take)
    assert "offsets 0 to 4 are" in failure(writer.option("checkpointLocation", str(tmp_path)).start())


@pytest.mark.one_broker("shared storage has no topics in memory")
def test_retention_that_overtakes_a_query_fails_it_or_is_stepped_over(
    spark: SparkSession, url: str, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=1, configs={"stele.storage": "memory", "stele.memory.records": 50})
    fill(topic, 40)
    drain(load(spark, url, subscribe=topic), tmp_path)
    fill(topic, 100, first=40)

    def start(**options: object) -> StreamingQuery:
        writer = load(spark, url, subscribe=topic, **options).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()

    said = failure(start())
    assert f"50 records of {topic}-0 are lost to this query: offsets 40 to 89" in said
    assert "failOnDataLoss=false" in said
    query = start(failOnDataLoss="false")
    assert query.awaitTermination(TIMEOUT_S)
    found = [offset for _, _, offset in offsets(spark, tmp_path)]
    assert found == [*range(40), *range(90, 140)]


def test_a_topic_that_is_deleted_and_created_again_fails_the_query(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=1)
    fill(topic, 40)
    frame = load(spark, broker.binary_url, subscribe=topic)
    drain(frame, tmp_path)
    client.delete_topic(topic)
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert f"{topic}-0 no longer exists, but this query had read it up to offset 40" in failure(
        writer.start()
    )
    client.create_topic(topic, partitions=1)
    fill(topic, 10)
    assert f"{topic}-0 ends at offset 10 now, but this query had read it up to offset 40" in failure(
        writer.start()
    )


def test_a_wrong_option_of_a_stream_fails_with_advice(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    frame = load(spark, broker.binary_url, subscribe="t", maxOffsetPerTrigger=5)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="did you mean maxOffsetsPerTrigger"):
        writer.start().awaitTermination(TIMEOUT_S)


def test_a_stream_through_spark_arrives_once_and_in_order(
    spark: SparkSession, url: str, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    client.create_topic(f"{topic}-out", partitions=2)
    for run in range(2):
        fill(topic, 200, partitions=2, first=200 * run)
        copied = load(spark, url, subscribe=topic, maxOffsetsPerTrigger=150).select(
            "key", "value", "partition", "timestamp"
        )
        writer = copied.writeStream.format("stele").option("url", url).option("topic", f"{topic}-out")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
    for partition in (0, 1):
        old, new = (client.fetch(name, partition, 0).records for name in (topic, f"{topic}-out"))
        assert [(r.key, r.value, r.timestamp) for r in new] == [(r.key, r.value, r.timestamp) for r in old]
        assert len(new) == 400


def test_a_broker_that_is_killed_under_a_running_query_loses_and_doubles_nothing(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    client.create_topic(f"{topic}-out", partitions=2)
    fill(topic, 3000, partitions=2)
    frame = load(spark, broker.binary_url, subscribe=topic, maxOffsetsPerTrigger=500)
    writer = frame.select("key", "value").writeStream.format("stele").option("url", broker.binary_url)
    query = writer.option("topic", f"{topic}-out").option("checkpointLocation", str(tmp_path)).start()
    try:
        for kill in range(2):
            stored = 0
            while stored < 1000 * (kill + 1):
                assert query.isActive, query.exception()
                stored = sum(client.list_offset(f"{topic}-out", p) or 0 for p in (0, 1))
            broker.kill()
            broker.start()
        query.processAllAvailable()
    finally:
        query.stop()
    records = [r.value for p in (0, 1) for r in client.fetch(f"{topic}-out", p, 0).records]
    assert sorted(v or b"" for v in records) == sorted([b"v%d" % i for i in range(3000)] * 2)
