"""Flink SQL reads and writes topics whose values have schemas of the broker's registry, in the format ``avro-confluent``, or Debezium's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from stele import Client, Consumer, SchemaRegistry
from stele.testing import BrokerProcess

from load.postgres_server import PostgresServer
from tests.conformance.clients import FLINK
from tests.conformance.programs import RecordProperty, home_of, jar_version
from tests.support.brokers import run_broker_or_cluster
from tests.support.cdc import running_cdc
from tests.support.confluent_serializers import AvroSerializer
from tests.support.postgres import postgres_bin

TIMEOUT_S = 240
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": "string"},
            {"name": "price", "type": "double"},
        ],
    }
)
COLUMNS = "id BIGINT NOT NULL, item STRING NOT NULL, price DOUBLE NOT NULL"


def table(broker: BrokerProcess, topic: str) -> str:
    return f"""
        CREATE TABLE {topic} ({COLUMNS}) WITH (
            'connector' = 'kafka',
            'topic' = '{topic}',
            'properties.bootstrap.servers' = '{broker.kafka_bootstrap}',
            'scan.startup.mode' = 'earliest-offset',
            'scan.bounded.mode' = 'latest-offset',
            'value.format' = 'avro-confluent',
            'value.avro-confluent.url' = '{broker.registry_url}')"""


def run_sql(home: Path, *statements: str, mode: str = "batch") -> list[str]:
    """Return what Flink prints."""
    done = subprocess.run(
        [
            *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            *("-cp", f"{home / 'classes'}:{home / 'lib'}/*", "stele.conformance.flink.Sql", mode),
        ],
        input="\n---\n".join(statements),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.split("\n")[:-1]


@pytest.mark.program("flink-sql")
def test_a_table_is_copied(tmp_path: Path, record_property: RecordProperty) -> None:
    home = home_of(FLINK)
    record_property("version", jar_version(home, "flink-sql-avro-confluent-registry"))
    orders: list[dict[str, Any]] = [
        {"id": number, "item": f"item {number}", "price": number / 2} for number in range(20)
    ]
    with run_broker_or_cluster(tmp_path / "brokers") as broker:
        with SchemaRegistryClient({"url": broker.registry_url}) as registry:
            serialize = AvroSerializer(registry, ORDER)
            producer = Producer({"bootstrap.servers": broker.kafka_bootstrap})
            for order in orders:
                context = SerializationContext("orders", MessageField.VALUE)
                producer.produce("orders", serialize(order, context))
            assert producer.flush(TIMEOUT_S) == 0
        statements = (
            table(broker, "orders"),
            table(broker, "copies"),
            "INSERT INTO copies SELECT id, UPPER(item), price * 2 FROM orders",
            "SELECT COUNT(*), SUM(price) FROM copies",
        )
        assert run_sql(home, *statements) == ["row +I[20, 190.0]"]
        with Client(broker.binary_url) as client, SchemaRegistry(broker.registry_url) as registry:
            assert registry.versions("copies-value") == [1]
            with Consumer(client, "copies", deserializer=registry.deserializer(), follow=False) as consumer:
                copies = [record.value for record in consumer]
    assert copies == [
        {**order, "item": order["item"].upper(), "price": order["price"] * 2} for order in orders
    ]


@pytest.mark.program("flink-sql")
def test_changes_of_postgresql_are_read_in_the_format_debezium_avro_confluent(tmp_path: Path) -> None:
    home = home_of(FLINK)
    with PostgresServer(postgres_bin()) as pg, run_broker_or_cluster(tmp_path / "brokers") as broker:
        pg.run("CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(10,2), day date)")
        # Flink needs the row before each update.
        pg.run("ALTER TABLE orders REPLICA IDENTITY FULL")
        pg.run("INSERT INTO orders VALUES (1, 'pen', 1.50, '2026-11-21'), (2, 'ink', NULL, NULL)")
        how = "--tables orders --partitions 1 --format debezium-avro --times connect"
        with running_cdc(pg, broker.binary_url, tmp_path / "cdc.log", *how.split()) as cdc:
            cdc.await_streaming()
            pg.run("UPDATE orders SET price = -2 WHERE id = 1")
            pg.run("DELETE FROM orders WHERE id = 2")
            pg.run("INSERT INTO orders VALUES (3, 'größe', 12, '1969-12-31')")
            cdc.await_confirmed()
            assert cdc.stop() == 0, cdc.said
        orders = f"""
            CREATE TABLE orders (id INT NOT NULL, item STRING, price DECIMAL(10, 2), `day` DATE) WITH (
                'connector' = 'kafka',
                'topic' = 'pg.public.orders',
                'properties.bootstrap.servers' = '{broker.kafka_bootstrap}',
                'scan.startup.mode' = 'earliest-offset',
                'scan.bounded.mode' = 'latest-offset',
                'value.format' = 'debezium-avro-confluent',
                'value.debezium-avro-confluent.url' = '{broker.registry_url}')"""
        rows = run_sql(home, orders, "SELECT * FROM orders", mode="streaming")
        with SchemaRegistry(broker.registry_url) as registry:
            assert registry.subjects() == ["pg.public.orders-key", "pg.public.orders-value"]
    assert rows == [
        "row +I[1, pen, 1.50, 2026-11-21]",
        "row +I[2, ink, null, null]",
        "row -U[1, pen, 1.50, 2026-11-21]",
        "row +U[1, pen, -2.00, 2026-11-21]",
        "row -D[2, ink, null, null]",
        "row +I[3, größe, 12.00, 1969-12-31]",
    ]
