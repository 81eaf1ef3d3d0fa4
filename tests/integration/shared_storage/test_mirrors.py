"""Mirrors into a cluster: from a broker of its own, run by one broker of several, through kill -9 and pauses."""

from __future__ import annotations

import shutil
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

from load.pausing import paused
from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.mirrors import assert_equal, partition_of, read_raw
from tests.support.waiting import eventually

TIMEOUT_S = 60
PARTITIONS = 2


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


class Traffic:
    """Producers of the source: transactions of which each third is aborted, and plain records, until it is told to end."""

    def __init__(self, source: BrokerProcess, topic: str) -> None:
        self._bootstrap = source.kafka_bootstrap
        self._topic = topic
        self._ending = threading.Event()
        self.count = 0
        self.failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,)) for work in (self._plain, self._transactions)
        ]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failures.append(error)

    def _plain(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "compression.type": "lz4", "linger.ms": 5})
        while not self._ending.is_set():
            for partition in range(PARTITIONS):
                producer.produce(
                    self._topic, b"%d" % self.count, key=str(self.count % 9), partition=partition
                )
                self.count += 1
            producer.poll(0.002)
        assert producer.flush(TIMEOUT_S) == 0

    def _transactions(self) -> None:
        writer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": self._topic})
        writer.init_transactions(TIMEOUT_S)
        number = 0
        while not self._ending.is_set():
            writer.begin_transaction()
            outcome = b"aborted" if number % 3 == 0 else b"committed"
            for partition in range(PARTITIONS):
                writer.produce(self._topic, outcome, key=b"k%d" % number, partition=partition)
            writer.flush(TIMEOUT_S)
            if number % 3 == 0:
                writer.abort_transaction(TIMEOUT_S)
            else:
                writer.commit_transaction(TIMEOUT_S)
            number += 1

    @contextmanager
    def running(self) -> Generator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ending.set()
            for thread in self._threads:
                thread.join()
        assert not self.failures


def holder(brokers: Brokers, asked: int) -> int | None:
    lease = brokers.cluster(asked)["leases"].get("mirrors")
    return None if lease is None else lease["broker_id"]


def await_holder(brokers: Brokers, *, other_than: int | None = None) -> int:
    asked = next(iter(brokers.running()))
    eventually(lambda: holder(brokers, asked) not in (None, other_than), "a broker runs the mirrors")
    found = holder(brokers, asked)
    assert found is not None
    return found


def status(broker: BrokerProcess, name: str = "prod") -> dict[str, Any]:
    """Return what a broker says of a mirror; empty while none can say."""
    answer = httpx.get(f"{broker.http_url}/v1/mirrors/{name}")
    assert answer.status_code in (200, 503), answer.text
    return answer.json() if answer.status_code == 200 else {}


def await_level(broker: BrokerProcess, source: BrokerProcess, topic: str) -> None:
    ends = [read_raw(source.kafka_bootstrap, topic, number).end for number in range(PARTITIONS)]

    def is_level() -> bool:
        shown = status(broker)
        return all(partition_of(shown, topic, at).get("offset") == end for at, end in enumerate(ends))

    eventually(is_level, f"the copies end at {ends}: {status(broker)}")


def committed_values(bootstrap: str, topic: str) -> list[list[bytes]]:
    """Return what a consumer of committed records gets of each partition."""
    found: list[list[bytes]] = []
    for number in range(PARTITIONS):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0)])
        values: list[bytes] = []
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            values.append(message.value() or b"")
        consumer.close()
        found.append(values)
    return found


@pytest.mark.long
def test_a_broker_of_its_own_moves_into_a_cluster_although_brokers_are_killed(
    source: BrokerProcess, brokers: Brokers
) -> None:
    with Client(source.binary_url) as client:
        client.create_topic("orders", partitions=PARTITIONS)
    group = Consumer({"bootstrap.servers": source.kafka_bootstrap, "group.id": "readers"})
    traffic = Traffic(source, "orders")
    with traffic.running():
        body = {"from": source.kafka_bootstrap, "topics": "orders", "groups": "readers"}
        made = httpx.put(f"{brokers[1].http_url}/v1/mirrors/prod", json=body)
        assert made.status_code == 200, made.text
        first = await_holder(brokers)
        eventually(lambda: partition_of(status(brokers[first]), "orders").get("offset", 0) > 100, "it copies")
        # Every broker answers as the one that runs it, and only that one has metrics of it.
        for number in brokers.processes:
            assert status(brokers[number])["topics"]
            with brokers.http(number) as http:
                assert ("stele_mirror_state" in http.get("/metrics").text) == (number == first)
        brokers[first].kill()
        second = await_holder(brokers, other_than=first)
        offset = read_raw(brokers[second].kafka_bootstrap, "orders").end
        eventually(
            lambda: partition_of(status(brokers[second]), "orders").get("offset", 0) > offset, "it goes on"
        )
        # A broker that is stopped in order gives it to another one at once.
        brokers[first].start()
        assert brokers[second].stop() == 0
        third = await_holder(brokers, other_than=second)
    group.commit(
        offsets=[TopicPartition("orders", 0, 17), TopicPartition("orders", 1, 5)], asynchronous=False
    )
    group.close()
    await_level(brokers[third], source, "orders")
    brokers[second].start()
    for process in brokers.processes.values():
        for partition in range(PARTITIONS):
            assert_equal(source.kafka_bootstrap, process.kafka_bootstrap, "orders", partition)
    values = committed_values(source.kafka_bootstrap, "orders")
    assert committed_values(brokers[second].kafka_bootstrap, "orders") == values
    assert b"committed" in values[0]
    assert b"aborted" not in values[0]

    def committed() -> list[int | None]:
        answer = httpx.get(f"{brokers[second].http_url}/v1/groups/readers")
        known = {one["partition"]: one["committed"] for one in answer.json().get("partitions", ())}
        return [known.get(0), known.get(1)]

    eventually(lambda: committed() == [17, 5], "the offsets of the group are copied")
    promote_and_produce(source, brokers, third)


def promote_and_produce(source: BrokerProcess, brokers: Brokers, runs_at: int) -> None:
    """Promote by way of another broker than the one that runs the mirror; then each takes records."""
    others = [number for number in brokers.processes if number != runs_at]
    refused = httpx.post(
        f"{brokers[others[0]].http_url}/v1/topics/orders/records", json={"records": [{"value": "x"}]}
    )
    assert refused.status_code == 409, refused.text
    end = read_raw(source.kafka_bootstrap, "orders").end
    promoted = httpx.post(
        f"{brokers[others[0]].http_url}/v1/mirrors/prod/promote", json={}, timeout=TIMEOUT_S
    )
    assert promoted.status_code == 200, promoted.text
    assert promoted.json()["promoted"] == [{"topic": "orders", "aborted_transactions": []}]
    for at, number in enumerate(brokers.processes):
        producer = Producer(
            {"bootstrap.servers": brokers[number].kafka_bootstrap, "transactional.id": "here"}
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", b"new", partition=0)
        producer.commit_transaction(TIMEOUT_S)
        # The record and its marker follow the copy.
        assert read_raw(brokers[number].kafka_bootstrap, "orders").end == end + 2 * (at + 1)
        # There is none any more, whichever broker is asked.
        assert httpx.get(f"{brokers[number].http_url}/v1/mirrors").json() == {"mirrors": []}
    assert committed_values(brokers[runs_at].kafka_bootstrap, "orders")[0][-3:] == [b"new"] * 3
    consumer = Consumer({"bootstrap.servers": brokers[runs_at].kafka_bootstrap, "group.id": "readers"})
    consumer.subscribe(["orders"])
    first: dict[int | None, int | None] = {}
    while len(first) < PARTITIONS:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        first.setdefault(message.partition(), message.offset())
    consumer.close()
    assert all((offset or 0) >= (17, 5)[number or 0] for number, offset in first.items())


@pytest.mark.long
def test_a_paused_broker_and_its_successor_copy_nothing_twice(
    source: BrokerProcess, brokers: Brokers
) -> None:
    """The process of the paused broker goes on for a while beside that of the next one."""
    with Client(source.binary_url) as client:
        client.create_topic("orders", partitions=PARTITIONS)
    with Traffic(source, "orders").running():
        body = {"from": source.kafka_bootstrap, "topics": "orders"}
        httpx.put(f"{brokers[2].http_url}/v1/mirrors/prod", json=body).raise_for_status()
        first = await_holder(brokers)
        other = next(number for number in brokers.processes if number != first)
        eventually(lambda: partition_of(status(brokers[other]), "orders").get("offset", 0) > 100, "it copies")
        for _ in range(2):
            before = holder(brokers, other) or first
            if before == other:
                break
            with paused(brokers[before].pid):
                eventually(
                    lambda before=before: holder(brokers, other) not in (None, before),
                    "another broker runs it",
                )
                offset = read_raw(brokers[other].kafka_bootstrap, "orders").end
                eventually(
                    lambda offset=offset: read_raw(brokers[other].kafka_bootstrap, "orders").end > offset,
                    "it goes on",
                )
    eventually(lambda: bool(status(brokers[other])), "a broker answers")
    await_level(brokers[other], source, "orders")
    for process in brokers.processes.values():
        for partition in range(PARTITIONS):
            assert_equal(source.kafka_bootstrap, process.kafka_bootstrap, "orders", partition)


@pytest.mark.long
def test_a_copy_that_has_diverged_is_deleted_and_copied_again(
    source: BrokerProcess, brokers: Brokers, tmp_path: Path
) -> None:
    """It cannot be cut back; what was committed here comes from the source again."""

    def put(topic: str, word: str) -> None:
        with Client(source.binary_url) as client:
            client.ensure_topic(topic, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": source.kafka_bootstrap})
        for number in range(100):
            producer.produce(topic, f"{word} {number}", partition=number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0

    put("orders", "first")
    put("sound", "first")
    group = Consumer({"bootstrap.servers": source.kafka_bootstrap, "group.id": "readers"})
    group.commit(offsets=[TopicPartition("orders", 0, 17)], asynchronous=False)
    group.close()
    source.stop()
    shutil.copytree(source.data_dir, tmp_path / "earlier")
    source.start()
    put("orders", "lost")
    body = {"from": source.kafka_bootstrap, "topics": ".*", "groups": "readers"}
    httpx.put(f"{brokers[1].http_url}/v1/mirrors/prod", json=body).raise_for_status()
    runs = await_holder(brokers)
    await_level(brokers[runs], source, "orders")
    source.kill()
    shutil.rmtree(source.data_dir)
    shutil.copytree(tmp_path / "earlier", source.data_dir)
    source.start()
    put("orders", "other")
    put("orders", "more")
    eventually(lambda: status(brokers[runs]).get("stopped") == PARTITIONS, "it has diverged")
    advice = partition_of(status(brokers[runs]), "orders")["error"]
    assert "delete the topic to copy it again" in advice
    assert "truncate" not in advice
    # Whichever broker is asked.
    for process in brokers.processes.values():
        refused = httpx.post(f"{process.http_url}/v1/mirrors/prod/truncate", json={}, timeout=TIMEOUT_S)
        assert refused.status_code == 400, refused.text
        assert refused.json()["detail"].endswith("copies them again: orders")
    httpx.delete(f"{brokers[2].http_url}/v1/topics/orders").raise_for_status()
    eventually(lambda: status(brokers[runs]).get("state") == "level", "it is copied again")
    for process in brokers.processes.values():
        for partition in range(PARTITIONS):
            for topic in ("orders", "sound"):
                assert_equal(source.kafka_bootstrap, process.kafka_bootstrap, topic, partition)

    def committed() -> list[int]:
        answer = httpx.get(f"{brokers[runs].http_url}/v1/groups/readers").json()
        return [one["committed"] for one in answer.get("partitions", ()) if one["partition"] == 0]

    eventually(lambda: committed() == [17], "the offset of the group is there again")
    assert httpx.post(f"{brokers[1].http_url}/v1/mirrors/prod/truncate", json={}).json() == {"truncated": []}
