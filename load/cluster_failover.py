"""Measure how long clients of a cluster wait when brokers are killed.

A producer and a group of one reader for each protocol, with the defaults of their libraries, see one broker after the
other die: whatever broker a client talked to, and whatever broker coordinated its group, was among them.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from itertools import count

from confluent_kafka import Consumer, KafkaError, Message, Producer
from stele import Client, RecordMetadata, SteleClientError
from stele import Producer as SteleProducer

from .cluster_comparison import print_goal
from .cluster_subjects import SteleCluster, stele_cluster
from .cluster_work import CLIENT, PARTITIONS, TIMEOUT_S, new_topic

GOAL_S = 10.0
RECORDS_PER_S = 50
# Until the others know that a broker is dead, have its leases, and all clients are at work again.
_BETWEEN_KILLS_S = 15.0
_POLL_S = 0.5
_LOOK_S = 0.02
_SHOWN_ERRORS = 5


class Traffic(ABC):
    """Steady traffic of one kind of client: when each record was sent, acknowledged and first read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent_s: list[float] = []
        self.acked_s: dict[int, float] = {}
        self.read_s: dict[int, float] = {}
        self.failures: list[str] = []
        self._is_over = threading.Event()
        self._is_read = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._produce, self._read)]

    def start(self) -> None:
        """Start both clients, and return when the first record has been read."""
        for thread in self._threads:
            thread.start()
        _await(lambda: bool(self.read_s), f"{self.name}: the first record")

    def end(self) -> None:
        """End the producer, and the reader when it has read all that was acknowledged."""
        self._is_over.set()
        self._threads[0].join(TIMEOUT_S)
        _await(lambda: self.acked_s.keys() <= self.read_s.keys(), f"{self.name}: all records")
        self._is_read.set()
        self._threads[1].join(TIMEOUT_S)

    def slowest_s(self, ends_s: dict[int, float], since_s: float) -> float:
        """Return the longest time from sending to one of ``ends_s`` since ``since_s``."""
        return max(end_s - self.sent_s[number] for number, end_s in ends_s.items() if end_s >= since_s)

    def _produce(self) -> None:
        begun_s = time.perf_counter()
        with self._producer() as send:
            for number in count():
                due_s = begun_s + number / RECORDS_PER_S
                if self._is_over.wait(max(0.0, due_s - time.perf_counter())):
                    break
                self.sent_s.append(time.perf_counter())
                send(number)

    def _acked(self, number: int, error: object | None) -> None:
        if error is None:
            self.acked_s[number] = time.perf_counter()
        else:
            self.failures.append(str(error))

    def _seen(self, value: bytes | None) -> None:
        self.read_s.setdefault(int(value or b""), time.perf_counter())

    @abstractmethod
    def _producer(self) -> AbstractContextManager[Callable[[int], None]]:
        """Return what sends a record by its number; on leaving, each is acknowledged or has failed."""

    @abstractmethod
    def _read(self) -> None: ...


class KafkaTraffic(Traffic):
    """confluent-kafka (librdkafka)."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__("Kafka")
        self._servers: dict[str, str | int] = {"bootstrap.servers": bootstrap, **CLIENT}
        self._topic = topic

    @contextmanager
    def _producer(self) -> Generator[Callable[[int], None]]:
        producer = Producer({**self._servers, "acks": "all"})

        def send(number: int) -> None:
            def delivered(error: KafkaError | None, _: Message) -> None:
                self._acked(number, error)

            producer.produce(
                self._topic, str(number).encode(), partition=number % PARTITIONS, on_delivery=delivered
            )
            producer.poll(0)

        yield send
        producer.flush(TIMEOUT_S)

    def _read(self) -> None:
        consumer = Consumer({**self._servers, "group.id": "failover-kafka", "auto.offset.reset": "earliest"})
        consumer.subscribe([self._topic])
        while not self._is_read.is_set():
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._seen(message.value())
        consumer.close()


class SteleTraffic(Traffic):
    """The client library, over HTTP or the binary protocol."""

    def __init__(self, name: str, url: str, topic: str) -> None:
        super().__init__(name)
        self._url, self._topic = url, topic

    @contextmanager
    def _producer(self) -> Generator[Callable[[int], None]]:
        with Client(self._url) as client, SteleProducer(client, self._topic) as producer:

            def send(number: int) -> None:
                def done(acked: Future[RecordMetadata]) -> None:
                    self._acked(number, acked.exception())

                producer.send(str(number), partition=number % PARTITIONS).add_done_callback(done)

            yield send

    def _read(self) -> None:
        with Client(self._url) as client:
            while not self._is_read.is_set():
                try:
                    self._read_until_error(client)
                except SteleClientError as error:
                    # As an application does whose reader is in a loop.
                    self.failures.append(str(error))

    def _read_until_error(self, client: Client) -> None:
        with client.group(f"failover-{self.name}", self._topic, wait_s=_POLL_S) as group:
            while not self._is_read.is_set():
                batch = group.poll()
                if batch is not None:
                    with batch:
                        for record in batch:
                            self._seen(record.value)


def measure_failover() -> None:
    """Kill three brokers one after the other; each is back before the next is killed."""
    with stele_cluster(brokers=3, store="inline", linger_ms=5) as cluster:
        traffics: list[Traffic] = [
            KafkaTraffic(cluster.bootstrap, new_topic(cluster)),
            SteleTraffic("HTTP", ",".join(broker.http_url for broker in cluster.brokers), new_topic(cluster)),
            SteleTraffic("binary", _stele_url(cluster), new_topic(cluster)),
        ]
        for traffic in traffics:
            traffic.start()
        time.sleep(_BETWEEN_KILLS_S / 3)
        killed_s = time.perf_counter()
        for broker in cluster.brokers:
            broker.kill()
            time.sleep(_BETWEEN_KILLS_S)
            broker.start()
            time.sleep(_BETWEEN_KILLS_S / 3)
        print(f"{cluster.name}, kill -9 of one after the other")
        for traffic in traffics:
            traffic.end()
            acked_s = traffic.slowest_s(traffic.acked_s, killed_s)
            read_s = traffic.slowest_s(traffic.read_s, killed_s)
            print(
                f"  {traffic.name:6}  {len(traffic.sent_s):,} records, {len(traffic.failures)} errors; from sending"
                f" to the acknowledgement at most {acked_s:.1f} s, to the reader of a group {read_s:.1f} s"
            )
            for failure in sorted(set(traffic.failures))[:_SHOWN_ERRORS]:
                print(f"          {failure}")
            print_goal("s until the clients go on", max(acked_s, read_s), GOAL_S, at_most=True)


def _stele_url(cluster: SteleCluster) -> str:
    hosts = (broker.binary_url.removeprefix("stele://") for broker in cluster.brokers)
    return f"stele://{','.join(hosts)}"


def _await(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end_s:
            raise RuntimeError(f"not within {TIMEOUT_S:g} s: {what}")
        time.sleep(_LOOK_S)
