"""Mirrors of Apache Kafka: every batch byte for byte, through kills of mirror, source and broker."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from stele.broker_process import BrokerProcess, run_broker
from stele.records import TopicPartition as Name
from stele.wire.record_batch import iter_headers

from load.apache_kafka import ApacheKafka
from tests.support.apache_kafka import start_kafka
from tests.support.brokers import run_broker_or_cluster
from tests.support.mirrors import assert_equal, partition_of, read_raw, run_mirror
from tests.support.waiting import eventually

_numbers = itertools.count()
TIMEOUT_S = 60
COORDINATOR_LOAD_IN_PROGRESS = 14


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    kafka = start_kafka(tmp_path_factory.mktemp("kafka"))
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("target")) as broker:
        yield broker


@pytest.fixture
def admin(kafka: ApacheKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def done(futures: Any) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def make(admin: AdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    done(admin.create_topics([NewTopic(topic, partitions, 1, config=named)]))


def produce(kafka: ApacheKafka, topic: str, count: int, *, partition: int = 0, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, **options})
    for number in range(count):
        producer.produce(topic, b"v" * 100, key=str(number % 7), partition=partition)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def test_batches_of_every_kind_are_copied_byte_for_byte(
    kafka: ApacheKafka, broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    """All codecs, idempotence, transactions that were committed, aborted and are open, tombstones, headers."""
    make(admin, topic, 2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for is_idempotent in (False, True):
            options: dict[str, Any] = {"compression.type": codec, "enable.idempotence": is_idempotent}
            produce(kafka, topic, 50, **options)
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    writer.init_transactions(TIMEOUT_S)
    for number in range(6):
        writer.begin_transaction()
        for partition in range(2):
            writer.produce(
                topic, None if number else b"x", key=b"k", partition=partition, headers=[("h", b"v")]
            )
        writer.flush(TIMEOUT_S)
        if number == 5:
            break
        if number % 2:
            writer.abort_transaction(TIMEOUT_S)
        else:
            writer.commit_transaction(TIMEOUT_S)
    with run_mirror(broker, kafka.bootstrap, topic) as mirror:
        mirror.await_level({Name(topic, 0): 1, Name(topic, 1): 1})
        copied = assert_equal(kafka.bootstrap, broker.kafka_bootstrap, topic)
        assert {header.compression for header in iter_headers(copied.batches)} == {0, 1, 2, 3, 4}
        assert any(header.is_control for header in iter_headers(copied.batches))
        # The open transaction is copied, too, and its end follows.
        end = assert_equal(kafka.bootstrap, broker.kafka_bootstrap, topic, 1).end
        writer.commit_transaction(TIMEOUT_S)
        mirror.await_level({Name(topic, 1): end + 1})
        assert_equal(kafka.bootstrap, broker.kafka_bootstrap, topic, 1)


@pytest.mark.long
def test_log_starts_follow_those_of_the_source(
    kafka: ApacheKafka, broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make(admin, topic)
    produce(kafka, topic, 100)

    def delete(before: int) -> None:
        done(admin.delete_records([TopicPartition(topic, 0, before)]))

    delete(30)
    with run_mirror(broker, kafka.bootstrap, topic) as mirror:
        mirror.await_level({Name(topic, 0): 100})
        assert read_raw(broker.kafka_bootstrap, topic).start == 30
        delete(60)
        produce(kafka, topic, 10)
        mirror.await_level({Name(topic, 0): 110})
        eventually(lambda: read_raw(broker.kafka_bootstrap, topic).start == 60, "the copy begins at 60")
    # The source deletes what the copy does not have yet: the copy goes on after it.
    produce(kafka, topic, 100)
    delete(150)
    with run_mirror(broker, kafka.bootstrap, topic) as mirror:
        mirror.await_level({Name(topic, 0): 210})
        assert_equal(kafka.bootstrap, broker.kafka_bootstrap, topic)


@pytest.mark.long
def test_partitions_and_configurations_follow(
    kafka: ApacheKafka, broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make(
        admin,
        topic,
        retention_ms="86400000",
        cleanup_policy="delete",
        follower_replication_throttled_replicas="*",
    )
    produce(kafka, topic, 10)
    with run_mirror(broker, kafka.bootstrap, topic) as mirror:
        mirror.await_level({Name(topic, 0): 10})
        document = httpx.get(f"{broker.http_url}/v1/topics/{topic}").json()
        assert document["configs"]["retention.ms"] == "86400000"
        assert document["configs"]["stele.mirror"] == "test"
        done(admin.create_partitions([NewPartitions(topic, 3)]))
        produce(kafka, topic, 10, partition=2)
        mirror.await_level({Name(topic, 2): 10})
        assert_equal(kafka.bootstrap, broker.kafka_bootstrap, topic, 2)


@pytest.mark.long
def test_committed_offsets_follow_while_the_group_has_no_members_here(
    kafka: ApacheKafka, broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make(admin, topic, 2)
    produce(kafka, topic, 50)
    produce(kafka, topic, 50, partition=1)
    group = f"group-of-{topic}"

    def commit(*offsets: int) -> None:
        options = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer(options)
        positions = [
            TopicPartition(topic, number, offset, f"at {offset}") for number, offset in enumerate(offsets)
        ]

        def is_committed() -> bool:
            try:
                consumer.commit(offsets=positions, asynchronous=False)
            except KafkaException as error:
                # The first commit of all makes the topic of the offsets.
                if error.args[0].code() != COORDINATOR_LOAD_IN_PROGRESS:
                    raise
                return False
            return True

        eventually(is_committed, "the offsets are committed")
        consumer.close()

    def committed() -> list[int | None]:
        answer = httpx.get(f"{broker.http_url}/v1/groups/{group}")
        found = {one["partition"]: one["committed"] for one in answer.json().get("partitions", ())}
        return [found.get(0), found.get(1)]

    def metadata() -> set[str]:
        answer = httpx.get(f"{broker.http_url}/v1/groups/{group}")
        # confluent-kafka appends a zero.
        return {one["metadata"].rstrip("\0") for one in answer.json()["partitions"]}

    commit(7, 50)
    with run_mirror(broker, kafka.bootstrap, topic, groups="group-of-.*") as mirror:
        eventually(lambda: committed() == [7, 50], "the offsets are 7 and 50")
        assert metadata() == {"at 7", "at 50"}
        commit(9, 3)
        eventually(lambda: committed() == [9, 3], "the offsets are 9 and 3")
        # A member here: what it commits is its own, and the mirror says so.
        options = {
            "bootstrap.servers": broker.kafka_bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
        member = Consumer(options)
        member.subscribe([topic])
        eventually(lambda: bool(member.poll(0.1) or member.assignment()), "the member has its partitions")
        commit(20, 20)
        mirror.await_status(lambda status: any(group in text for text in status["not_copied"]))
        assert committed() != [20, 20]
        member.close()
        eventually(lambda: committed() == [20, 20], "the offsets are 20 and 20")


@pytest.mark.long
def test_another_topic_of_the_same_name_stops_that_topic_alone(
    kafka: ApacheKafka, broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    other = f"{topic}-other"
    make(admin, topic)
    make(admin, other)
    produce(kafka, topic, 20)
    with run_mirror(broker, kafka.bootstrap, f"{topic}.*") as mirror:
        mirror.await_level({Name(topic, 0): 20})
    before = read_raw(broker.kafka_bootstrap, topic).batches
    done(admin.delete_topics([topic]))
    eventually(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic is gone")
    make(admin, topic)
    produce(kafka, topic, 30)
    with run_mirror(broker, kafka.bootstrap, f"{topic}.*") as mirror:
        status = mirror.await_status(lambda status: partition_of(status, topic).get("state") == "recreated")
        assert "made another one of that name" in status["last_error"]
        assert (status["state"], status["stopped"]) == ("failed", 1)
        produce(kafka, other, 5)
        mirror.await_status(lambda status: partition_of(status, other).get("offset") == 5)
    assert read_raw(broker.kafka_bootstrap, topic).batches == before


@pytest.mark.long
def test_a_topic_that_exists_here_is_left_alone(
    kafka: ApacheKafka, broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make(admin, topic)
    httpx.put(f"{broker.http_url}/v1/topics/{topic}", json={"partitions": 1}).raise_for_status()
    with run_mirror(broker, kafka.bootstrap, topic) as mirror:
        status = mirror.await_status(lambda status: status["state"] == "failed")
        assert "exists here and is no copy" in status["last_error"]


@pytest.mark.long
def test_nothing_is_lost_or_copied_twice_when_mirror_and_broker_are_killed(
    kafka: ApacheKafka, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    make(admin, topic, 3)
    with run_broker(tmp_path / "target") as broker:
        for turn in range(4):
            with run_mirror(broker, kafka.bootstrap, topic) as mirror:
                for partition in range(3):
                    produce(kafka, topic, 500, partition=partition, **{"compression.type": "lz4"})
                mirror.await_status(lambda status: partition_of(status, topic).get("offset", 0) > 0)
                if turn % 2:
                    broker.kill()
                    broker.start()
                    mirror.await_level({Name(topic, 0): (turn + 1) * 500})
                else:
                    mirror.kill()
        with run_mirror(broker, kafka.bootstrap, topic) as mirror:
            mirror.await_level({Name(topic, number): 2000 for number in range(3)})
            for partition in range(3):
                assert_equal(kafka.bootstrap, broker.kafka_bootstrap, topic, partition)


@pytest.mark.long
def test_a_source_that_was_set_back_stops_the_copy(tmp_path: Path) -> None:
    """As after an unclean election: the directory of an earlier state, and other records since."""
    kafka = start_kafka(tmp_path / "kafka")
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        make(admin, "lost")
        make(admin, "sound")
        produce(kafka, "lost", 100)
        produce(kafka, "sound", 100)
        kafka.stop()
        (directory,) = (path for path in (tmp_path / "kafka").iterdir() if path.is_dir())
        shutil.copytree(directory, tmp_path / "earlier")
        kafka.start()
        produce(kafka, "lost", 50)
        with run_broker(tmp_path / "target") as broker:
            with run_mirror(broker, kafka.bootstrap, "lost|sound") as mirror:
                mirror.await_level({Name("lost", 0): 150, Name("sound", 0): 100})
                kafka.kill()
                mirror.await_status(
                    lambda status: status["state"] == "failed" and "reached" in status["last_error"]
                )
                shutil.rmtree(directory)
                shutil.copytree(tmp_path / "earlier", directory)
                kafka.start()
                produce(kafka, "lost", 80)
                produce(kafka, "sound", 10)
                status = mirror.await_status(
                    lambda status: partition_of(status, "lost").get("state") == "diverged"
                )
                # By its end or by its epoch, whichever shows first.
                assert "150" in partition_of(status, "lost")["error"]
                mirror.await_status(lambda status: partition_of(status, "sound").get("offset") == 110)
            # The next run finds it as well, and writes nothing.
            with run_mirror(broker, kafka.bootstrap, "lost|sound") as mirror:
                mirror.await_status(lambda status: partition_of(status, "lost").get("state") == "diverged")
            assert read_raw(broker.kafka_bootstrap, "lost").end == 150
    finally:
        kafka.stop()


@pytest.mark.long
def test_a_source_that_is_killed_is_copied_again_when_it_is_back(
    kafka: ApacheKafka, broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make(admin, topic)
    produce(kafka, topic, 10)
    with run_mirror(broker, kafka.bootstrap, topic) as mirror:
        mirror.await_level({Name(topic, 0): 10})
        kafka.kill()
        status = mirror.await_status(lambda status: status["state"] == "failed")
        assert status["last_error"]
        kafka.start()
        produce(kafka, topic, 10)
        mirror.await_level({Name(topic, 0): 20})
        assert_equal(kafka.bootstrap, broker.kafka_bootstrap, topic)


@pytest.mark.long
def test_what_the_source_has_changed_of_a_configuration_is_changed_here(
    kafka: ApacheKafka, broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make(admin, topic)
    produce(kafka, topic, 1)
    entry = ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    done(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
        )
    )
    with run_mirror(broker, kafka.bootstrap, topic) as mirror:
        mirror.await_level({Name(topic, 0): 1})
        document = httpx.get(f"{broker.http_url}/v1/topics/{topic}").json()
        assert document["configs"]["max.message.bytes"] == "2000000"
