"""MirrorMaker copies topics, configurations and committed offsets to Stele, from Apache Kafka and from Stele."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as untyped_admin

from load.mirror_maker import MAIN, write_properties
from tests.conformance.clients import MIRROR_MAKER
from tests.conformance.programs import JAVA, Program, RecordProperty, home_of, jar_version, running
from tests.support.apache_kafka import start_kafka
from tests.support.brokers import run_broker_or_cluster
from tests.support.waiting import eventually

# It exports nothing by name.
admin: Any = untyped_admin
TOPIC = "orders"
GROUP = "billing"
RECORDS = 500


@contextmanager
def source_at(path: Path, kind: str) -> Generator[str]:
    """Return the address of a broker of this kind."""
    if kind == "Stele":
        with run_broker_or_cluster(path) as broker:
            yield broker.kafka_bootstrap
        return
    kafka = start_kafka(path)
    try:
        yield kafka.bootstrap
    finally:
        kafka.stop()


def mirror_maker(home: Path, directory: Path, source: str, target: str) -> Program:
    """Return MirrorMaker in dedicated mode, which keeps the names of topics and looks for changes every second."""
    intervals = (
        "refresh.topics",
        "refresh.groups",
        "sync.topic.configs",
        "sync.group.offsets",
        "emit.checkpoints",
    )
    others = {
        "groups": GROUP,
        "sync.group.offsets.enabled": "true",
        # An offset is translated by the newest sync at or before it.
        "offset.lag.max": "0",
        "consumer.auto.offset.reset": "earliest",
        "scheduled.rebalance.max.delay.ms": "0",
        **{f"{name}.interval.seconds": "1" for name in intervals},
    }
    configuration = directory / "mirror-maker.properties"
    write_properties(configuration, source, target, TOPIC, others)
    command = [*JAVA, "-Dlog4j2.level=WARN", "-cp", f"{home / 'lib'}/*", MAIN, str(configuration)]
    return Program(command, directory / "mirror-maker.log")


def retention_of(client: Any) -> str | None:
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, TOPIC)
    try:
        return client.describe_configs([resource])[resource].result()["retention.ms"].value
    except KafkaException:
        # It is not there yet.
        return None


def set_retention(client: Any, milliseconds: int) -> None:
    entry = admin.ConfigEntry(
        "retention.ms", str(milliseconds), incremental_operation=admin.AlterConfigOpType.SET
    )
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result()


def read(bootstrap: str, count: int) -> list[tuple[int, bytes | None, bytes | None, tuple[int, int]]]:
    """Return so many records of both partitions: partition, key, value, timestamp, in order of the partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(2)])
    found: list[tuple[int, bytes | None, bytes | None, tuple[int, int]]] = []

    def has_all() -> bool:
        for message in consumer.consume(count, 0.5):
            if message.error() is None:
                found.append((message.partition() or 0, message.key(), message.value(), message.timestamp()))
        return len(found) >= count

    eventually(has_all, f"{count} records are at {bootstrap}")
    consumer.close()
    return sorted(found, key=lambda record: record[0])


@pytest.mark.program("mirror-maker")
@pytest.mark.parametrize("kind", ["Apache Kafka", "Stele"])
def test_topics_configurations_and_offsets_come_over(
    tmp_path: Path, kind: str, record_property: RecordProperty
) -> None:
    home = home_of(MIRROR_MAKER)
    record_property("version", jar_version(home, "connect-mirror"))
    with (
        source_at(tmp_path / "source", kind) as source,
        run_broker_or_cluster(tmp_path / "target") as broker,
    ):
        target = broker.kafka_bootstrap
        program = mirror_maker(home, tmp_path, source, target)
        there, here = (
            admin.AdminClient({"bootstrap.servers": source}),
            admin.AdminClient({"bootstrap.servers": target}),
        )
        there.create_topics([admin.NewTopic(TOPIC, 2, 1, config={"retention.ms": "86400001"})])[
            TOPIC
        ].result()
        producer = Producer({"bootstrap.servers": source})
        with running(program):

            def produce() -> None:
                for number in range(RECORDS):
                    producer.produce(TOPIC, f"value {number}", str(number), partition=number % 2)
                assert producer.flush(60) == 0

            produce()
            assert read(target, RECORDS) == read(source, RECORDS)
            eventually(lambda: retention_of(here) == "86400001", "the configuration is there")
            # At the end: MirrorMaker translates no offset before its first sync, and others downwards.
            consumer = Consumer({"bootstrap.servers": source, "group.id": GROUP, "enable.auto.commit": False})
            positions = [TopicPartition(TOPIC, partition, RECORDS // 2) for partition in range(2)]
            consumer.commit(offsets=positions, asynchronous=False)
            consumer.close()
            reader = Consumer({"bootstrap.servers": target, "group.id": GROUP, "enable.auto.commit": False})
            wanted = [TopicPartition(TOPIC, partition) for partition in range(2)]

            def has_come() -> bool:
                program.need_running()
                offsets = [one.offset for one in reader.committed(wanted, timeout=30)]
                return all(0 < offset <= RECORDS // 2 for offset in offsets)

            eventually(has_come, "the committed offsets are translated")
            reader.close()
            set_retention(there, 86_400_002)
            eventually(lambda: retention_of(here) == "86400002", "the changed configuration is there")
            program.kill()
            produce()
            program.start()
            copied = read(target, 2 * RECORDS)
            # It may copy again what it had not noted, and leaves nothing out.
            assert {record[2] for record in copied} == {
                f"value {number}".encode() for number in range(RECORDS)
            }
