"""Three brokers are restarted one after the other under load; no client sees an error that it does not retry itself."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from stele import Client
from stele import Producer as SteleProducer
from stele.config import Endpoint

from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.waiting import eventually

PARTITIONS = 6
# Between two restarts each client gets so many records through.
RECORDS = 200
TOPICS = ("kafka", "http", "binary")

pytestmark = pytest.mark.long


class Load:
    """A client in a thread of its own, which sends numbered records until it is told to stop."""

    def __init__(self, name: str, run: Callable[[Load], None]) -> None:
        self.name = name
        self.acknowledged: list[int] = []
        self.failure: BaseException | None = None
        self.is_over = threading.Event()
        self._run = run
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._run(self)
        except BaseException as error:  # noqa: BLE001 (for the thread that checks)
            self.failure = error

    def check(self) -> None:
        if self.failure is not None:
            raise AssertionError(f"the {self.name} client failed") from self.failure

    def end(self) -> None:
        self.is_over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        self.check()


def kafka_load(bootstrap: str) -> Callable[[Load], None]:
    def run(load: Load) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

        def delivered(number: int) -> Callable[[KafkaError | None, Message], None]:
            def note(error: KafkaError | None, _: Message) -> None:
                if error is not None:
                    raise AssertionError(f"record {number} was not delivered: {error}")
                load.acknowledged.append(number)

            return note

        number = 0
        while not load.is_over.is_set():
            producer.produce(
                "kafka", str(number), partition=number % PARTITIONS, on_delivery=delivered(number)
            )
            number += 1
            producer.poll(0.002)
        assert producer.flush(60) == 0

    return run


def client_load(url: str, topic: str) -> Callable[[Load], None]:
    """The producer of the client library, which numbers its batches and retries them."""

    def run(load: Load) -> None:
        number = 0
        with Client(url) as client, SteleProducer(client, topic) as producer:
            while not load.is_over.is_set():
                waiting = [
                    (sent, producer.send(str(sent).encode(), partition=sent % PARTITIONS))
                    for sent in range(number, number + 20)
                ]
                producer.flush()
                for sent, future in waiting:
                    future.result()
                    load.acknowledged.append(sent)
                number += len(waiting)

    return run


def group_load(bootstrap: str, seen: Counter[str]) -> Callable[[Load], None]:
    """A member of a consumer group, which commits as its library does by default."""

    def run(load: Load) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "followers",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.subscribe(["kafka"])
        try:
            while not load.is_over.is_set():
                message = consumer.poll(0.2)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                seen[(message.value() or b"").decode()] += 1
        finally:
            consumer.close()

    return run


def several(brokers: Brokers, kind: str) -> str:
    urls = [
        process.http_url if kind == "http" else process.binary_url for process in brokers.processes.values()
    ]
    endpoints = [Endpoint.parse(url) for url in urls]
    scheme = "http" if kind == "http" else "stele"
    return f"{scheme}://{','.join(f'{one.host}:{one.port}' for one in endpoints)}"


def stored(url: str, topic: str) -> Counter[int]:
    found: Counter[int] = Counter()
    with Client(url) as client:
        for partition in range(PARTITIONS):
            records = client.fetch(topic, partition).records
            while records:
                found.update(int(record.value or b"-1") for record in records)
                records = client.fetch(topic, partition, records[-1].offset + 1).records
    return found


def test_no_error_reaches_a_client_while_the_brokers_are_restarted(
    server: PostgresServer, tmp_path: Path
) -> None:
    with run_brokers(tmp_path, server.dsn) as brokers:
        http, binary = several(brokers, "http"), several(brokers, "binary")
        with Client(http) as client:
            for topic in TOPICS:
                client.create_topic(topic, partitions=PARTITIONS)
        seen: Counter[str] = Counter()
        producers = [
            Load("kafka", kafka_load(brokers.kafka_bootstrap)),
            Load("http", client_load(http, "http")),
            Load("binary", client_load(binary, "binary")),
        ]
        follower = Load("group", group_load(brokers.kafka_bootstrap, seen))

        def get_through() -> None:
            """Wait until each client has got records through with the brokers as they are now."""
            before = [len(load.acknowledged) for load in producers]
            seen_before = len(seen)

            def has_each() -> bool:
                for load in (*producers, follower):
                    load.check()
                counts = [len(load.acknowledged) for load in producers]
                is_through = all(now >= then + RECORDS for now, then in zip(counts, before, strict=True))
                return is_through and len(seen) > seen_before

            eventually(has_each, "every client gets records through")

        get_through()
        for number in (1, 2, 3):
            brokers[number].restart()
            get_through()
        for load in producers:
            load.end()
        eventually(
            lambda: {str(one) for one in producers[0].acknowledged} <= seen.keys(),
            "the group has read every record",
        )
        follower.end()
        for load in producers:
            found = stored(http, load.name)
            assert set(load.acknowledged) <= found.keys(), f"{load.name}: an acknowledged record is missing"
            twice = [one for one, count in found.items() if count > 1]
            assert not twice, f"{load.name}: stored twice: {twice[:5]}"
