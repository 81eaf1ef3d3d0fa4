"""Mirrors out of a cluster, and towards one: run by one broker of several, through kill -9 of the broker that runs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from stele import Client
from stele.broker_process import BrokerProcess, run_broker

from load.postgres_server import PostgresServer
from tests.integration.shared_storage.test_mirrors import (
    PARTITIONS,
    TIMEOUT_S,
    await_holder,
    committed_values,
    status,
)
from tests.support.brokers import Brokers, run_brokers
from tests.support.mirrors import partition_of, read_raw
from tests.support.waiting import eventually

pytestmark = pytest.mark.long
# So many groups that no broker of three coordinates all of them.
GROUPS = 12


@pytest.fixture
def source(tmp_path: Path) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path / "source") as broker:
        yield broker


@pytest.fixture
def brokers(own_server: PostgresServer, tmp_path: Path) -> Iterator[Brokers]:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    environment = {"STELE_OBJECT_STORE": f"file://{bucket}", "STELE_SHARED_LINGER_MS": "20"}
    with run_brokers(tmp_path, own_server.dsn, 3, environment=environment) as brokers:
        yield brokers


@contextmanager
def traffic(bootstrap: str, topic: str) -> Generator[Callable[[], int]]:
    """Produce until the end; yield what returns the number of records so far."""
    ending, count = threading.Event(), 0
    options: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    producer = Producer(options)

    def produce() -> None:
        nonlocal count
        while not ending.is_set():
            producer.produce(topic, b"%d" % count, key=str(count % 9), partition=count % PARTITIONS)
            count += 1
            producer.poll(0.005)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield lambda: count
    finally:
        ending.set()
        thread.join()
    assert producer.flush(TIMEOUT_S) == 0


def await_of(broker: BrokerProcess, holds: Callable[[], bool], what: str) -> None:
    """Wait, and show what the mirror says if it takes too long."""
    try:
        eventually(holds, what)
    except pytest.fail.Exception:
        pytest.fail(f"{what}: {status(broker)}")


def make(url: str, topic: str) -> None:
    with Client(url) as client:
        client.create_topic(topic, partitions=PARTITIONS)


def end_of(bootstrap: str, topic: str) -> int:
    return sum(read_raw(bootstrap, topic, number).end for number in range(PARTITIONS))


def await_copied(broker: BrokerProcess, source: str, topic: str) -> None:
    ends = [read_raw(source, topic, number).end for number in range(PARTITIONS)]
    await_of(
        broker,
        lambda: all(
            partition_of(status(broker), topic, number).get("offset") == end
            for number, end in enumerate(ends)
        ),
        "all is copied",
    )


def commit(bootstrap: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition("orders", 0)], TIMEOUT_S)
    consumer.close()
    return found.offset


def test_a_cluster_copies_to_another_one_although_the_broker_that_runs_the_mirror_is_killed(
    source: BrokerProcess, brokers: Brokers
) -> None:
    """Records and the groups of all brokers; ``source`` is the target here."""
    target = source.kafka_bootstrap
    make(brokers[1].binary_url, "orders")
    with traffic(brokers.kafka_bootstrap, "orders") as count:
        eventually(lambda: count() > 100, "records are written")
        body = {"to": target, "topics": "orders", "groups": "readers-.*"}
        httpx.put(f"{brokers[1].http_url}/v1/mirrors/prod", json=body).raise_for_status()
        runs = await_holder(brokers)
        for _ in range(2):
            await_of(brokers[runs], lambda: end_of_copy(target) > 100, "it copies")
            brokers[runs].kill()
            before, killed = end_of_copy(target), runs
            runs = await_holder(brokers, other_than=killed)
            await_of(
                brokers[runs], lambda before=before: end_of_copy(target) > before, "another broker goes on"
            )
            brokers[killed].start()
    brokers.settle()
    for number in range(GROUPS):
        commit(brokers.kafka_bootstrap, f"readers-{number}", 10 + number)
    assert len({brokers.coordinator(f"readers-{number}") for number in range(GROUPS)}) > 1
    await_copied(brokers[runs], brokers.kafka_bootstrap, "orders")
    assert committed_values(target, "orders") == committed_values(brokers.kafka_bootstrap, "orders")
    assert end_of(target, "orders") == count()
    for number in range(GROUPS):
        eventually(
            lambda number=number: committed(target, f"readers-{number}") == 10 + number,
            f"the offset of group {number} is copied",
        )


def end_of_copy(bootstrap: str) -> int:
    """Return how many records are there; 0 while there is no topic."""
    try:
        return end_of(bootstrap, "orders")
    except (KeyError, ValueError):
        return 0


@pytest.mark.parametrize("offsets", ["equal", "translate"])
def test_a_cluster_is_copied_to_although_its_brokers_are_killed(
    source: BrokerProcess, brokers: Brokers, offsets: str
) -> None:
    make(source.binary_url, "orders")
    with traffic(source.kafka_bootstrap, "orders") as count:
        body = {"to": brokers.kafka_bootstrap, "topics": "orders", "groups": "readers-.*", "offsets": offsets}
        httpx.put(f"{source.http_url}/v1/mirrors/prod", json=body).raise_for_status()
        for number in brokers.processes:
            written = count()
            eventually(
                lambda written=written: (
                    partition_of(status(source), "orders").get("offset", 0) > written // PARTITIONS
                ),
                "it copies",
            )
            brokers[number].kill()
            written = count()
            eventually(lambda written=written: count() > written + 50, "more is written meanwhile")
            brokers[number].start()
    for number in range(GROUPS):
        commit(source.kafka_bootstrap, f"readers-{number}", 10 + number)
    await_copied(source, source.kafka_bootstrap, "orders")
    there = brokers.kafka_bootstrap
    values = committed_values(there, "orders")
    assert values == committed_values(source.kafka_bootstrap, "orders")
    for number in range(GROUPS):
        eventually(
            lambda number=number: committed(there, f"readers-{number}") >= 0, f"group {number} is copied"
        )
    if offsets == "equal":
        assert end_of(there, "orders") == count()
        assert [committed(there, f"readers-{number}") for number in range(3)] == [10, 11, 12]
