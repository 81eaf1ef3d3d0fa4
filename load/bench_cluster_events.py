"""Measure what clients of a cluster notice of failures and restarts, and what idle partitions and metadata cost.

- ``failover``: a producer and a group of one reader for each protocol, with the defaults of their libraries, see three
  brokers being killed one after the other: whatever broker a client talked to, and whatever broker coordinated its
  group, was among them.
- ``restart``: three brokers restart one after the other, as in an upgrade.
- ``pause``: a broker is paused until another has its groups, and gets them back.
- ``partitions``: three brokers have a topic with very many partitions, and nothing to do.
- ``merging``: a slow partition leaves the most rows per byte; merging must make up for it.

A request that fails ends the benchmark with an error.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from uuid import UUID

import httpx
from confluent_kafka import Consumer, KafkaError, Message, Producer
from stele import Client, RecordMetadata, SteleClientError
from stele import Producer as SteleProducer

from app.cluster.group_shards import SHARD_LEASES
from app.cluster.leaders import ranked
from app.cluster.membership import Member

from .harness import Benchmark
from .kafka_clients import CLIENT, TIMEOUT_S, SteadyProducer, make_topic, produce
from .pausing import paused
from .process_usage import cpu_seconds
from .results import Measure, at_most
from .subjects import SteleCluster, stele_cluster

PARTS = ("failover", "restart", "pause", "partitions", "merging")
PARTITIONS = 6
BROKERS = 3
RECORDS_PER_S, RESTART_PER_S = 50, 100
# Until the others know that a broker is dead, have its leases, and all clients are at work again.
_BETWEEN_KILLS_S = 15.0
_POLL_S = 0.5
_LOOK_S = 0.02
# Until upkeep has settled.
_SETTLE_S = 5.0
_CLIENTS_GOAL, _METADATA_GOAL = at_most(10, "stele"), at_most(0.05, "stele")


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
        """End the producer, and the reader when it has read all that was acknowledged.

        Raises:
            RuntimeError: a client has got an error.
        """
        self._is_over.set()
        self._threads[0].join(TIMEOUT_S)
        _await(lambda: self.acked_s.keys() <= self.read_s.keys(), f"{self.name}: all records")
        self._is_read.set()
        self._threads[1].join(TIMEOUT_S)
        if self.failures:
            raise RuntimeError(f"{self.name}: {len(self.failures)} errors, the first: {self.failures[0]}")

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
        super().__init__("confluent-kafka")
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
        super().__init__(f"the Python client over {name}")
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
        group_id = f"failover-{self._url.partition(':')[0]}"
        try:
            with Client(self._url) as client, client.group(group_id, self._topic, wait_s=_POLL_S) as group:
                while not self._is_read.is_set():
                    batch = group.poll()
                    if batch is not None:
                        with batch:
                            for record in batch:
                                self._seen(record.value)
        except SteleClientError as error:
            self.failures.append(str(error))


def measure_failover(bench: Benchmark) -> None:
    """Kill three brokers one after the other; each is back before the next is killed."""
    with stele_cluster(brokers=BROKERS, store="inline", linger_ms=5) as cluster:
        http_urls = ",".join(broker.http_url for broker in cluster.members)
        binary_url = "stele://" + ",".join(
            f"{broker.host}:{broker.binary_port}" for broker in cluster.members
        )
        kafka, *others = traffics = [
            KafkaTraffic(cluster.bootstrap, make_topic(cluster, partitions=PARTITIONS)),
            SteleTraffic("HTTP", http_urls, make_topic(cluster, partitions=PARTITIONS)),
            SteleTraffic("TCP", binary_url, make_topic(cluster, partitions=PARTITIONS)),
        ]
        for traffic in traffics:
            traffic.start()
        time.sleep(_BETWEEN_KILLS_S / 3)
        killed_s = time.perf_counter()
        for broker in cluster.members:
            broker.kill()
            time.sleep(_BETWEEN_KILLS_S)
            broker.start()
            time.sleep(_BETWEEN_KILLS_S / 3)
        for traffic in traffics:
            traffic.end()
    event = "kill -9 of each broker"
    slowest = {
        "ack, confluent-kafka": [kafka.slowest_s(kafka.acked_s, killed_s)],
        "ack, Python client": [max(each.slowest_s(each.acked_s, killed_s) for each in others)],
        "time to a group's consumer": [max(each.slowest_s(each.read_s, killed_s) for each in traffics)],
    }
    for what, seconds in slowest.items():
        value = Measure(unit="s", stele=seconds, goal=_CLIENTS_GOAL)
        bench.row(f"{event}: longest {what}", table="events", value=value)


def measure_restart(bench: Benchmark) -> None:
    with stele_cluster(brokers=BROKERS, store="inline", linger_ms=5) as cluster:
        topic = make_topic(cluster, partitions=PARTITIONS)
        producer = SteadyProducer(cluster, topic, partitions=PARTITIONS, per_s=RESTART_PER_S)
        time.sleep(_SETTLE_S)
        begun_s = time.perf_counter()
        for broker in cluster.members:
            broker.restart()
            time.sleep(3)
        producer.end()
        slowest_s = max(producer.latencies_ms(begun_s)) / 1000
    bench.row(
        "rolling restart: longest ack",
        table="events",
        value=Measure(unit="s", stele=[slowest_s], goal=_CLIENTS_GOAL),
    )


def measure_pause(bench: Benchmark) -> None:
    with stele_cluster(brokers=2, store="inline", linger_ms=5) as cluster:
        first, second = cluster.members

        def shards(broker_id: int) -> int:
            leases = httpx.get(f"{first.http_url}/v1/cluster", timeout=TIMEOUT_S).json()["leases"]
            return sum(
                lease["broker_id"] == broker_id for name, lease in leases.items() if name in SHARD_LEASES
            )

        def wait_for(own: int) -> float:
            begun_s = time.perf_counter()
            _await(
                lambda: (shards(2), shards(1)) == (own, len(SHARD_LEASES) - own), f"{own} shards of groups"
            )
            return time.perf_counter() - begun_s

        # The broker that joins gets its share.
        own = sum(ranked(name.encode(), _members(2))[0].broker_id == 2 for name in SHARD_LEASES)
        wait_for(own)
        with paused(second.pid):
            wait_for(0)
        back_s = wait_for(own)
    bench.row(
        "paused broker: has its groups back after",
        table="events",
        value=Measure(unit="s", stele=[back_s], goal=_CLIENTS_GOAL),
    )


def _members(brokers: int) -> list[Member]:
    return [
        Member(broker_id=number, incarnation=UUID(int=number), rack=None, endpoints={})
        for number in range(1, brokers + 1)
    ]


def measure_partitions(bench: Benchmark, partitions: int, seconds: float) -> None:
    with stele_cluster(brokers=BROKERS, store="inline", linger_ms=250) as cluster:
        make_topic(cluster, partitions=partitions)
        time.sleep(_SETTLE_S)
        shares = _idle_shares(cluster, seconds)
    for what, share in shares.items():
        bench.row(
            f"{partitions:,} idle partitions: core used by {what}",
            table="events",
            value=Measure(unit="%", stele=[share]),
        )


def _idle_shares(cluster: SteleCluster, seconds: float) -> dict[str, float]:
    begun_s, brokers_s, postgres_s = time.perf_counter(), cluster.cpu_s(), cpu_seconds(cluster.postgres.pid)
    time.sleep(seconds)
    elapsed_s = time.perf_counter() - begun_s
    return {
        "a broker": 100 * (cluster.cpu_s() - brokers_s) / elapsed_s / BROKERS,
        "PostgreSQL": 100 * (cpu_seconds(cluster.postgres.pid) - postgres_s) / elapsed_s,
    }


def measure_merging(bench: Benchmark, records: int, seconds: float) -> None:
    with stele_cluster(brokers=1, store="seaweedfs", linger_ms=25) as cluster:
        topic = make_topic(cluster, partitions=PARTITIONS)
        produce(cluster, topic, partitions=PARTITIONS, records=records, size=1024, acks="all")
        producer = SteadyProducer(cluster, topic, partitions=PARTITIONS, per_s=RESTART_PER_S)
        time.sleep(seconds)
        producer.end()
        before, megabytes = cluster.metadata_share(), cluster.database().log_bytes / 1e6
        cluster.merge()
        after = cluster.metadata_share()
    bench.row(
        "metadata after merging, of the bytes",
        table="events",
        baseline=f"before, {megabytes:.0f} MB",
        value=Measure(unit="%", stele=[100 * after], baseline=[100 * before], goal=_METADATA_GOAL),
    )


def _await(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end_s:
            raise RuntimeError(f"not within {TIMEOUT_S:g} s: {what}")
        time.sleep(_LOOK_S)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=1)
    bench.parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be repeated")
    bench.add("--partitions", type=int, default=10_000, quick=500, help="that are idle (default: 10,000)")
    bench.add("--seconds", type=float, default=15.0, quick=3.0, help="of the idle time (default: 15)")
    with bench.run() as options:
        measures: dict[str, Callable[[], None]] = {
            "failover": lambda: measure_failover(bench),
            "restart": lambda: measure_restart(bench),
            "pause": lambda: measure_pause(bench),
            "partitions": lambda: measure_partitions(bench, options.partitions, options.seconds),
            "merging": lambda: measure_merging(bench, 30_000, options.seconds / 3),
        }
        for part in options.only or PARTS:
            bench.say(part)
            measures[part]()


if __name__ == "__main__":
    main()
