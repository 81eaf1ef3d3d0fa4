"""Values with a schema through a real Spark: as columns, in batches and streams, and written from columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from stele import Client, Schema, SchemaRegistry
from stele.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.long]

TIMEOUT_S = 240


@pytest.fixture(scope="module")
def registry(broker: BrokerProcess) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(broker.registry_url) as connected:
        yield connected


@pytest.fixture
def load(spark: SparkSession, broker: BrokerProcess, topic: str) -> Callable[..., DataFrame]:
    def read(schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("stele").option("url", broker.binary_url).option("subscribe", topic)
        reader = reader.option("stele.decode", "value")
        for name, value in options.items():
            reader = reader.option(name.replace("_", "."), str(value))
        return (reader if schema is None else reader.schema(schema)).load()

    return read


def record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


LOGICAL = record(
    "Order",
    field("id", "long"),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    field("day", {"type": "int", "logicalType": "date"}),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    field("uid", {"type": "string", "logicalType": "uuid"}),
    field("data", "bytes"),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    field("tags", {"type": "array", "items": ["null", "string"]}),
    field("counts", {"type": "map", "values": "int"}),
    field(
        "inner", ["null", {"type": "record", "name": "Inner", "fields": [field("x", "double")]}], default=None
    ),
    field("either", ["null", "string", "boolean"], default=None),
)
ORDER = {
    "id": 1,
    "price": Decimal("-12.30"),
    "day": date(2026, 11, 30),
    "at": datetime(2026, 11, 30, 12, 0, 0, 123000, tzinfo=UTC),
    "local": datetime(2026, 11, 30, 12, 0, 0, 123456),
    "uid": UUID(int=5),
    "data": b"\x00\xff",
    "kind": "B",
    "tags": ["a", None],
    "counts": {"x": 1},
    "inner": {"x": 1.5},
    "either": True,
}


def test_fields_of_avro_are_columns_of_spark_types(
    client: Client, registry: SchemaRegistry, topic: str, load: Callable[..., DataFrame]
) -> None:
    serialize = registry.serializer(LOGICAL, topic)
    client.produce(topic, serialize(ORDER))
    client.produce(topic, None)
    frame = load()
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,price:decimal(10,2),day:date,at:timestamp,local:timestamp_ntz,uid:string,data:binary,"
        "kind:string,tags:array<string>,counts:map<string,int>,inner:struct<x:double>,"
        "either:struct<member0:string,member1:boolean>>"
    )
    first, tombstone = frame.select("value", "offset").orderBy("offset").collect()
    assert tombstone.value is None
    assert first.value.asDict(recursive=True) == {
        **ORDER,
        "at": datetime(2026, 11, 30, 12, 0, 0, 123000),
        "uid": str(ORDER["uid"]),
        "either": {"member0": None, "member1": True},
    }
    assert frame.where("value.price < 0").select("value.id").collect() == [(1,)]
    # A user's schema leaves fields out, which are not converted.
    few = load("offset LONG, value STRUCT<inner: STRUCT<x: DOUBLE>, id: BIGINT>")
    assert few.collect()[0].asDict(recursive=True) == {"offset": 0, "value": {"inner": {"x": 1.5}, "id": 1}}
    for wrong, said in (
        ("value STRUCT<nothing: INT>", "has a field 'nothing'"),
        ("value STRUCT<id: INT>", "has struct<id:int>, and the registered one makes struct<id:bigint>"),
    ):
        with pytest.raises(Exception, match=said):
            load(wrong).collect()


def test_a_query_keeps_the_schema_of_its_plan(
    spark: SparkSession,
    broker: BrokerProcess,
    client: Client,
    registry: SchemaRegistry,
    topic: str,
    load: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """What was written with an older or a newer schema becomes what the plan has, in streams, too."""
    old = record("R", field("a", "int"), field("gone", "string"))
    now = record("R", field("a", "long"), field("b", "string", default="none"))
    newer = record(
        "R", field("c", "string", default=""), field("b", "string", default="new"), field("a", "long")
    )
    client.create_topic(topic)
    client.produce(topic, registry.serializer(old, topic)({"a": 1, "gone": "x"}))
    client.produce(topic, registry.serializer(now, topic)({"a": 2, "b": "two"}))
    batch = load()
    stream = (
        spark.readStream.format("stele")
        .options(url=broker.binary_url, subscribe=topic, startingOffsets="earliest")
        .option("stele.decode", "value")
        .load()
    )
    seen: list[list[Any]] = []

    def take(frame: DataFrame, _: int) -> None:
        seen.append([tuple(row) for row in frame.select("offset", "value.*").orderBy("offset").collect()])
        if len(seen) == 1:
            client.produce(topic, registry.serializer(newer, topic)({"c": "c", "b": "three", "a": 3}))

    rows = [(0, 1, "none"), (1, 2, "two")]
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        while len(seen) < 2:
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen == [rows, [(2, 3, "three")]]
    assert batch.select("offset", "value.*").orderBy("offset").collect() == [*rows, (2, 3, "three")]
    # A new plan has the newest schema, or the version that it asks for.
    assert load().select("value.*").columns == ["c", "b", "a"]
    assert load(stele_schema_version=1, stele_decode_errors="null").select("value.*").columns == ["a", "gone"]


def test_what_cannot_be_decoded_fails_the_query_or_is_null(
    client: Client, registry: SchemaRegistry, topic: str, load: Callable[..., DataFrame]
) -> None:
    serialize = registry.serializer(record("R", field("a", "int")), topic)
    client.create_topic(topic)
    good = serialize({"a": 1})
    for value in (good, b"plain text", good[:5], b"\x00\xff\xff\xff\x00x", good):
        client.produce(topic, value)
    with pytest.raises(
        Exception, match=rf"the value of {topic}-0 at offset 1 cannot be decoded: .*names no schema"
    ):
        load().collect()
    nulls = load(stele_decode_errors="null").select("offset", "value.a").orderBy("offset").collect()
    assert nulls == [(0, 1), (1, None), (2, None), (3, None), (4, 1)]
    with pytest.raises(Exception, match=r"offset 2 cannot be decoded: .*the bytes end within it"):
        load(startingOffsets=json.dumps({topic: {"0": 2}})).collect()


def test_json_and_protobuf_are_columns_and_so_are_keys(
    spark: SparkSession, broker: BrokerProcess, client: Client, registry: SchemaRegistry, topic: str
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "s": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "any": {},
        },
        "$defs": {
            "Item": {
                "type": "object",
                "properties": {"f": {"type": "number"}, "next": {"$ref": "#/$defs/Item"}},
            }
        },
    }
    proto = 'syntax = "proto3"; package p; message Other { int32 x = 1; } message Key { int32 id = 1; repeated Other o = 2; }'
    value = registry.serializer(Schema(json.dumps(schema), "JSON"), topic)
    key = registry.serializer(Schema(proto, "PROTOBUF"), topic, key=True, message="p.Key")
    document = {"n": 2**53 + 1, "list": [{"f": 1, "next": {"f": 2.5}}], "any": {"a": [1]}}
    client.produce(topic, value(document), key=key({"id": 7, "o": [{"x": 1}]}))
    frame = (
        spark.read.format("stele")
        .options(url=broker.binary_url, subscribe=topic)
        .option("stele.decode", "key,value")
        .option("stele.schema.key.message", "p.Key")
        .load()
    )
    assert frame.select("key", "value").schema.simpleString() == (
        "struct<key:struct<id:int,o:array<struct<x:int>>>,"
        "value:struct<n:bigint,s:string,list:array<struct<f:double,next:string>>,any:string>>"
    )
    (row,) = frame.collect()
    assert row.key.asDict(recursive=True) == {"id": 7, "o": [{"x": 1}]}
    assert row.value.asDict(recursive=True) == {
        "n": 2**53 + 1,
        "s": None,
        "list": [{"f": 1.0, "next": '{"f":2.5}'}],
        "any": '{"a":[1]}',
    }
    # What was read is written with the same schemas.
    subjects = {"stele_schema_subject": f"{topic}-value", "stele_schema_key_subject": f"{topic}-key"}
    client.create_topic(f"{topic}-copy", partitions=1)
    write(
        frame.select("key", "value"),
        broker,
        f"{topic}-copy",
        stele_encode="key,value",
        stele_schema_key_message="p.Key",
        **subjects,
    )
    (copied,) = client.fetch(f"{topic}-copy", 0).records
    (read,) = client.fetch(topic, 0).records
    assert copied.key == read.key
    assert registry.deserializer().deserialize(copied.value) == document
    with pytest.raises(Exception, match=r"declares no message 'p\.None'.*stele\.schema\.key\.message"):
        write(frame, broker, topic, stele_encode="key,value", stele_schema_key_message="p.None", **subjects)


def write(frame: DataFrame, broker: BrokerProcess, topic: str, **options: object) -> None:
    writer = (
        frame.write.format("stele").mode("append").option("url", broker.binary_url).option("topic", topic)
    )
    for name, value in {"stele_encode": "value", **options}.items():
        writer = writer.option(name.replace("_", "."), str(value))
    writer.save()


def values_of(client: Client, topic: str, deserialize: Callable[[bytes | None], Any]) -> list[Any]:
    records = [r for p in range(client.partition_count(topic)) for r in client.fetch(topic, p).records]
    return [deserialize(record.value) for record in records]


def test_a_frame_that_was_read_is_written_with_the_same_schema(
    client: Client,
    broker: BrokerProcess,
    registry: SchemaRegistry,
    topic: str,
    load: Callable[..., DataFrame],
) -> None:
    schema = registry.serializer(LOGICAL, topic)
    others: list[dict[str, Any]] = [{**ORDER, "inner": None, "either": None}, {**ORDER, "either": "text"}]
    client.produce_many(topic, [schema(value) for value in (ORDER, *others)])
    copy = f"{topic}-copy"
    client.create_topic(copy, partitions=1)
    # Fields are matched by name, and every column of Spark may be null.
    frame = load().selectExpr("named_struct('uid', value.uid, 'id', value.id, 'price', value.price, 'day', value.day, "
        "'at', value.at, 'local', value.local, 'data', value.data, 'kind', value.kind, 'tags', value.tags, 'counts', "
        "value.counts, 'inner', value.inner, 'either', value.either) AS value", "key")  # fmt: skip
    write(frame, broker, copy, stele_schema_subject=f"{topic}-value")
    deserialize = registry.deserializer().deserialize
    assert values_of(client, copy, deserialize) == [ORDER, *others]
    # A version with a required field that rows lack, or without one that they have, writes nothing.
    registry.set_config(f"{topic}-value", compatibility="NONE")
    for changed, said in (
        (record("Order", field("id", "long")), "column value.uid is not in the schema, which has id"),
        (LOGICAL.replace('"name": "id"', '"name": "number"'), "column value.id is not in the schema"),
    ):
        registry.register(f"{topic}-value", Schema(changed))
        with pytest.raises(Exception, match=said):
            write(frame, broker, copy, stele_schema_subject=f"{topic}-value")
    # The first version still fits.
    write(frame.limit(1), broker, copy, stele_schema_subject=f"{topic}-value", stele_schema_version=1)
    assert len(values_of(client, copy, deserialize)) == 4


def test_a_schema_is_registered_from_the_column_if_that_is_asked_for(
    spark: SparkSession,
    broker: BrokerProcess,
    client: Client,
    registry: SchemaRegistry,
    topic: str,
    tmp_path: Path,
) -> None:
    frame = spark.range(3).selectExpr(
        "CAST(id AS STRING) AS key",
        "named_struct('id', id, 'inner', named_struct('x', 1.5D, 'list', array(named_struct('y', 'a'))), 'price', "
        "CAST(id AS DECIMAL(10,2)), 'day', DATE'2026-11-30', 'at', TIMESTAMP'2026-11-30 12:00:00', "
        "'map', map('k', null)) AS value",
    )
    with pytest.raises(
        Exception, match=rf"the registry has no subject {topic}-value.*stele.encode.register=true"
    ):
        write(frame, broker, topic)
    frame = frame.withColumn("value", frame.value.dropFields("map"))
    write(frame, broker, topic, stele_encode="key,value", stele_encode_register=True)
    assert registry.versions(f"{topic}-value") == [1]
    assert registry.version(f"{topic}-key").schema.text == '"string"'
    deserialize = registry.deserializer().deserialize
    found = sorted(values_of(client, topic, deserialize), key=lambda value: value["id"])
    assert [value["price"] for value in found] == [Decimal("0.00"), Decimal("1.00"), Decimal("2.00")]
    assert found[0]["inner"] == {"x": 1.5, "list": [{"y": "a"}]}
    assert (found[0]["day"], found[0]["at"]) == (date(2026, 11, 30), datetime(2026, 11, 30, 12, tzinfo=UTC))
    # A required field that is null in a row is an error of the row.
    nulls = spark.sql("SELECT named_struct('id', CAST(NULL AS BIGINT)) AS value")
    registry.register(f"{topic}-strict", Schema(record("R", field("id", "long"))))
    with pytest.raises(Exception, match=r"column value\.id: .*null"):
        write(nulls, broker, topic, stele_schema_subject=f"{topic}-strict")
    stream = (
        spark.readStream.format("stele")
        .options(url=broker.binary_url, subscribe=topic, startingOffsets="earliest")
        .option("stele.decode", "key,value")
        .load()
        .selectExpr("key", "struct(value.id + 1 AS id) AS value")
    )
    query = (
        stream.writeStream.format("stele")
        .options(url=broker.binary_url, topic=f"{topic}-copy", checkpointLocation=str(tmp_path))
        .options(**{"stele.encode": "key,value", "stele.encode.register": "true"})
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S), "the query did not end"
    copied = values_of(client, f"{topic}-copy", deserialize)
    assert sorted(value["id"] for value in copied) == [1, 2, 3]
    assert registry.versions(f"{topic}-copy-value") == [1]
