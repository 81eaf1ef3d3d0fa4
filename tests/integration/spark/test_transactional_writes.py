"""Transactional writes of a real Spark: several topics at once, writes that fail, and streams in both modes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long

PARTITIONS = 2
TIMEOUT_S = 900


def contents(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(PARTITIONS):
        end, offset = client.list_offset(topic, partition) or 0, 0
        while offset < end:
            page = client.fetch(topic, partition, offset)
            found += [record.value or b"" for record in page.records]
            offset = page.next_offset
    return sorted(found)


def test_a_transactional_batch_write_is_whole_in_all_topics_or_leaves_nothing(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str
) -> None:
    topics = [f"{topic}.{number}" for number in range(2)]
    for name in topics:
        client.create_topic(name, partitions=PARTITIONS)

    def write(version: int, value: str) -> None:
        frame = spark.range(0, 1000, 1, 3).selectExpr(
            f"concat('{topic}.', id % 2) AS topic", f"CAST({value} AS STRING) AS value"
        )
        writer = frame.write.format("stele").option("url", broker.binary_url).mode("append")
        writer = writer.option("txnAppId", topic).option("txnVersion", str(version))
        writer.option("transactional", "true").save()

    with pytest.raises(Exception, match="one row too many"):
        write(1, "if(id = 990, raise_error('one row too many'), id)")
    assert [contents(client, name) for name in topics] == [[], []]
    # With other rows than the attempt that failed, and again, with other rows than those that are committed.
    for value in ("id", "id", "id + 5000"):
        write(1, value)
        for number, name in enumerate(topics):
            assert contents(client, name) == sorted(b"%d" % n for n in range(number, 1000, 2))
    with pytest.raises(Exception, match="set another txnAppId"):
        write(0, "id")
    # What the refused write had stored is aborted, so it holds nobody back.
    client.produce(topics[0], b"after", partition=0)
    assert b"after" in contents(client, topics[0])


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_a_micro_batch_that_is_written_to_two_topics_is_whole_in_both(
    spark: SparkSession,
    broker: BrokerProcess,
    client: Client,
    topic: str,
    tmp_path: Path,
    transactional: str,
) -> None:
    """One txnAppId and the number of the micro-batch, as docs/spark.md says, and one topic per write."""
    topics = [f"{topic}.{number}" for number in range(2)]
    for name in (topic, *topics):
        client.create_topic(name, partitions=PARTITIONS)
    client.produce_many(topic, [NewRecord(b"%d" % n, partition=n % PARTITIONS) for n in range(100)])

    def divide(frame: DataFrame, batch_id: int) -> None:
        # The second time repeats the first one.
        for _ in range(2):
            for number, name in enumerate(topics):
                half = frame.where(f"CAST(CAST(value AS STRING) AS INT) % 2 = {number}").select("value")
                writer = half.write.format("stele").option("url", broker.binary_url).mode("append")
                writer = writer.option("topic", name).option("transactional", transactional)
                writer.option("txnAppId", topic).option("txnVersion", batch_id).save()

    reader = spark.readStream.format("stele").option("url", broker.binary_url).option("subscribe", topic)
    frame = reader.option("startingOffsets", "earliest").load()
    writer = frame.writeStream.foreachBatch(divide).option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)
    for number, name in enumerate(topics):
        assert contents(client, name) == sorted(b"%d" % n for n in range(number, 100, 2))


def test_a_stream_goes_on_when_transactions_are_turned_on_and_off(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=PARTITIONS)
    client.create_topic(f"{topic}-out", partitions=PARTITIONS)
    written: list[bytes] = []
    for run, transactional in enumerate(("false", "true", "true", "false")):
        values = [b"%d" % (1000 + 100 * run + number) for number in range(100)]
        client.produce_many(
            topic, [NewRecord(value, partition=n % PARTITIONS) for n, value in enumerate(values)]
        )
        written += values
        reader = spark.readStream.format("stele").option("url", broker.binary_url).option("subscribe", topic)
        frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "60").load()
        writer = frame.select("value").writeStream.format("stele").option("url", broker.binary_url)
        writer = writer.option("topic", f"{topic}-out").option("transactional", transactional)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
        assert contents(client, f"{topic}-out") == written
