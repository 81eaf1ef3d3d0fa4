"""Batches through a real Spark: what is read is what is stored, and what is written is what is read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import confluent_kafka
import pytest
from stele import Client, NewRecord, SchemaRegistry
from stele.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

NOW_MS = time.time_ns() // 1_000_000
Fill = Callable[..., None]


@pytest.fixture(params=["tcp", pytest.param("http", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    return broker.binary_url if request.param == "tcp" else broker.http_url


def load(spark: SparkSession, url: str, **options: object) -> DataFrame:
    return (
        spark.read.format("stele")
        .option("url", url)
        .options(**{k: str(v) for k, v in options.items()})
        .load()
    )


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


@pytest.mark.every(2)
@pytest.mark.parametrize("url", ["tcp", "http"], indirect=True)
def test_every_field_of_every_record_is_read(
    spark: SparkSession, url: str, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=2)
    client.produce_many(
        topic,
        [
            NewRecord(b"a", key=b"\xff", headers=[("h", b"1"), ("h", None)], partition=1, timestamp=NOW_MS),
            NewRecord(None, partition=1, timestamp=NOW_MS + 1),
            NewRecord(b"\x00\xfe", partition=0, timestamp=NOW_MS + 2),
        ],
    )
    rows = load(spark, url, subscribe=topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {
            "key": key,
            "value": value,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": datetime.fromtimestamp((NOW_MS + later) / 1000, UTC).replace(tzinfo=None),
            "timestampType": 0,
            "headers": headers,
        }
        for partition, offset, key, value, later, headers in [
            (0, 0, None, bytearray(b"\x00\xfe"), 2, None),
            (1, 0, bytearray(b"\xff"), bytearray(b"a"), 0, [{"key": "h", "value": bytearray(b"1")}, {"key": "h", "value": None}]),
            (1, 1, None, None, 1, None),
        ]
    ]  # fmt: skip


@pytest.mark.long
def test_topics_are_selected_by_name_by_pattern_and_by_partition(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill
) -> None:
    names = [f"{topic}-{end}" for end in ("a", "b", "other")]
    for number, name in enumerate(names):
        client.create_topic(name, partitions=2)
        fill(name, 3, partitions=2, first=10 * number)
    url = broker.binary_url
    assert load(spark, url, subscribe=f"{names[0]}, {names[1]}").count() == 12
    assert load(spark, url, subscribePattern=f"{topic}-[ab]").count() == 12
    assert load(spark, url, subscribePattern=f"{topic}-").count() == 0
    assigned = load(spark, url, assign=json.dumps({names[0]: [1], names[2]: [0, 1]}))
    assert {(row.topic, row.partition) for row in assigned.collect()} == {
        (names[0], 1),
        (names[2], 0),
        (names[2], 1),
    }


def test_offsets_bound_what_is_read(
    spark: SparkSession, url: str, client: Client, topic: str, fill: Fill
) -> None:
    client.create_topic(topic, partitions=2)
    fill(topic, 100, partitions=2)
    found = load(
        spark,
        url,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 90, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 5}}),
    )
    assert sorted((row.partition, row.offset) for row in found.collect()) == [
        *((0, offset) for offset in range(90, 100)),
        *((1, offset) for offset in range(5)),
    ]


@pytest.mark.long
def test_times_bound_what_is_read(spark: SparkSession, url: str, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    for partition in (0, 1):
        client.produce_many(
            topic, [NewRecord(b"%d" % i, partition=partition, timestamp=NOW_MS + i) for i in range(10)]
        )
    between = load(spark, url, subscribe=topic, startingTimestamp=NOW_MS + 3, endingTimestamp=NOW_MS + 6)
    assert values(between) == sorted([b"3", b"4", b"5"] * 2)
    each = load(
        spark,
        url,
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": NOW_MS + 8, "1": NOW_MS + 9}}),
    )
    assert values(each) == [b"8", b"9", b"9"]
    with pytest.raises(Exception, match=r"is as late as the options ask for.*Strategy=latest"):
        load(spark, url, subscribe=topic, startingTimestamp=NOW_MS + 99).count()
    late = load(
        spark,
        url,
        subscribe=topic,
        startingTimestamp=NOW_MS + 99,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert late.count() == 0


@pytest.mark.long
def test_ranges_are_split_among_tasks_and_nothing_is_read_twice(
    spark: SparkSession, url: str, client: Client, topic: str, fill: Fill
) -> None:
    client.create_topic(topic, partitions=2)
    fill(topic, 500, partitions=2)
    eight = load(spark, url, subscribe=topic, minPartitions=8)
    assert eight.rdd.getNumPartitions() == 8
    assert eight.select("partition", "offset").distinct().count() == eight.count() == 1000
    assert load(spark, url, subscribe=topic, maxRecordsPerPartition=100).rdd.getNumPartitions() == 10


@pytest.mark.long
def test_a_filter_on_one_use_of_a_frame_does_not_filter_another(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill
) -> None:
    client.create_topic(topic, partitions=1)
    fill(topic, 10)
    frame = load(spark, broker.binary_url, subscribe=topic)
    assert (frame.count(), frame.where("offset < 3").count(), frame.count()) == (10, 3, 10)


@pytest.mark.long
def test_a_schema_prunes_columns(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill
) -> None:
    client.create_topic(topic, partitions=1)
    fill(topic, 3)
    reader = spark.read.schema("offset LONG, value BINARY").format("stele").option("url", broker.binary_url)
    assert [tuple(row) for row in reader.option("subscribe", topic).load().collect()] == [
        (i, bytearray(b"v%d" % i)) for i in range(3)
    ]


@pytest.mark.long
@pytest.mark.one_broker("shared storage has no topics in memory")
def test_what_is_lost_fails_a_batch_or_is_left_out(
    spark: SparkSession, url: str, client: Client, topic: str, fill: Fill
) -> None:
    client.create_topic(topic, partitions=1, configs={"stele.storage": "memory", "stele.memory.records": 50})
    fill(topic, 200)
    asked = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 100}})}
    with pytest.raises(
        Exception, match=rf"50 records of {topic}-0 are lost.*offsets 100 to 149.*failOnDataLoss"
    ):
        load(spark, url, **asked).count()
    assert values(load(spark, url, **asked, failOnDataLoss="false")) == sorted(
        b"v%d" % i for i in range(150, 200)
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subcribe": "t"}, "did you mean subscribe"),
        ({"subscribe": "no-such-topic"}, "has no topic no-such-topic; create it before"),
        ({"assign": '{"no-such-topic": [0]}'}, "has no topic no-such-topic"),
    ],
)
def test_a_wrong_option_fails_with_advice(
    spark: SparkSession, broker: BrokerProcess, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        load(spark, broker.binary_url, **options).count()


def test_what_spark_writes_is_read_through_every_protocol(
    spark: SparkSession, url: str, broker: BrokerProcess, client: Client, topic: str
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    client.create_topic(topic, partitions=3)
    frame = spark.range(100).select(
        F.concat(F.lit("k"), F.col("id") % 7).alias("key"),
        F.concat(F.lit("v"), F.col("id")).alias("value"),
        F.array(F.struct(F.lit("h").alias("key"), F.lit(b"\xff").alias("value"))).alias("headers"),
        F.timestamp_millis(F.lit(NOW_MS) + F.col("id")).alias("timestamp"),
    )
    frame.write.format("stele").option("url", url).option("topic", topic).mode("append").save()
    with urlopen(f"{broker.http_url}/v1/topics/{topic}/partitions/0/records") as answer:
        first: dict[str, Any] = json.load(answer)["records"][0]
    assert first["headers"] == [{"key": "h", "value_b64": "/w=="}]
    assert first["timestamp"] == NOW_MS + int(first["value"].removeprefix("v"))
    records = [r for p in range(3) for r in client.fetch(topic, p, 0).records]
    assert sorted(r.value or b"" for r in records) == sorted(b"v%d" % i for i in range(100))
    by_key: dict[bytes | None, set[int]] = {}
    for record in records:
        by_key.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())
    # And as the client itself places keys.
    receipt = client.produce(topic, b"", key=b"k3")
    assert by_key[b"k3"] == {receipt.partition}


def test_what_a_kafka_client_writes_is_read_by_spark(
    spark: SparkSession, url: str, broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=2)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.kafka_bootstrap, "compression.type": "lz4"}
    )
    for i in range(50):
        producer.produce(
            topic, b"v%d" % i, b"k%d" % i, i % 2, timestamp=NOW_MS + i, headers=[("h", b"%d" % i)]
        )
    assert producer.flush(20) == 0
    rows = load(spark, url, subscribe=topic, includeHeaders="true").collect()
    assert sorted(
        (r.partition, r.offset, bytes(r.key), bytes(r.value), r.headers[0].key, bytes(r.headers[0].value))
        for r in rows
    ) == sorted((i % 2, i // 2, b"k%d" % i, b"v%d" % i, "h", b"%d" % i) for i in range(50))


@pytest.mark.long
@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_a_compressed_write_is_read(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, compression: str
) -> None:
    frame = spark.range(2000).selectExpr("concat('value', id) AS value")
    writer = frame.write.format("stele").option("url", broker.binary_url).option("topic", topic)
    writer.option("compression", compression).mode("append").save()
    assert load(spark, broker.binary_url, subscribe=topic).distinct().count() == 2000


@pytest.mark.long
def test_a_frame_that_was_read_goes_where_its_columns_say(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, fill: Fill
) -> None:
    client.create_topic(topic, partitions=2)
    client.create_topic(f"{topic}-copy", partitions=2)
    fill(topic, 20, partitions=2)
    copied = load(spark, broker.binary_url, subscribe=topic).selectExpr(
        "*", f"'{topic}-copy' AS new"
    ).drop("topic").withColumnRenamed("new", "topic")  # fmt: skip
    copied.write.format("stele").option("url", broker.binary_url).mode("append").save()
    for partition in (0, 1):
        old, new = (client.fetch(name, partition, 0).records for name in (topic, f"{topic}-copy"))
        assert [(r.key, r.value, r.timestamp) for r in new] == [(r.key, r.value, r.timestamp) for r in old]


def test_a_named_batch_write_that_is_run_again_adds_nothing(
    spark: SparkSession, url: str, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=2)
    frame = spark.range(1000).selectExpr("concat('k', id % 3) AS key", "concat('v', id) AS value")

    def write(version: int) -> None:
        writer = frame.write.format("stele").option("url", url).option("topic", topic).mode("append")
        writer.option("txnAppId", topic).option("txnVersion", str(version)).save()

    write(1)
    write(1)
    assert sum(client.list_offset(topic, p) or 0 for p in (0, 1)) == 1000
    write(2)
    assert sum(client.list_offset(topic, p) or 0 for p in (0, 1)) == 2000
    with pytest.raises(Exception, match=r"version 1 of producer .* is older than version 2"):
        write(1)


@pytest.mark.parametrize(
    ("select", "options", "words"),
    [
        ("id AS value", {}, "column value is bigint, and must be binary or string; cast it"),
        ("'a' AS value, id AS price", {}, "a record has no column 'price'"),
        ("'a' AS key", {}, "there is no column value"),
        ("'a' AS value", {"topic": None}, "say where to write"),
        ("'a' AS value, 9 AS partition", {}, "asks for .*-9, and .* has 1 partitions"),
        ("'a' AS value, CAST(NULL AS STRING) AS topic", {"topic": None}, "its column topic is null"),
        ("'a' AS value", {"acks": "0"}, "write all or 1"),
    ],
)
def test_what_can_not_be_written_is_refused_with_advice(
    spark: SparkSession,
    broker: BrokerProcess,
    topic: str,
    select: str,
    options: dict[str, str | None],
    words: str,
) -> None:
    given = {"url": broker.binary_url, "topic": topic, **options}
    writer = spark.range(3).selectExpr(*select.split(", ")).write.format("stele").mode("append")
    with pytest.raises(Exception, match=words):
        writer.options(**{name: value for name, value in given.items() if value is not None}).save()


def test_a_log_is_not_overwritten(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    writer = spark.range(3).selectExpr("'a' AS value").write.format("stele").mode("overwrite")
    with pytest.raises(Exception, match="a log cannot be overwritten"):
        writer.option("url", broker.binary_url).option("topic", topic).save()


def test_fields_of_a_schema_are_columns_and_columns_are_written_with_one(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str
) -> None:
    """The rest is in test_schemas.py."""
    frame = spark.sql("SELECT named_struct('id', 5L, 'price', 1.50) AS value")
    writer = frame.write.format("stele").mode("append").options(url=broker.binary_url, topic=topic)
    writer.options(**{"stele.encode": "value", "stele.encode.register": "true"}).save()
    with SchemaRegistry(broker.registry_url) as registry:
        newer = json.loads(registry.version(f"{topic}-value").schema.text)
        newer["fields"].append({"name": "note", "type": "string", "default": "none"})
        later = {"id": 6, "price": Decimal("2.25"), "note": "x"}
        client.produce(topic, registry.serializer(json.dumps(newer), topic)(later))
    read = load(spark, broker.binary_url, subscribe=topic, **{"stele.decode": "value"})
    assert [tuple(row) for row in read.select("value.*").orderBy("id").collect()] == [
        (5, Decimal("1.50"), "none"),
        (6, Decimal("2.25"), "x"),
    ]
