"""Measure shared storage beside a single broker and a replicated Apache Kafka.

All of them run on this machine.

``python -m load.bench_cluster`` takes a few minutes. All subjects get the same work from the same client, one after
the other, so their ratios say more than their rates; with several brokers on a machine of two cores, a second one
adds little. ``--full`` measures more records, all lingers and 10,000 partitions; ``--only`` names parts.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from uuid import UUID

import httpx
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from app.cluster.group_shards import SHARD_LEASES
from app.cluster.leaders import ranked
from app.cluster.membership import Member

from . import pausing
from .apache_kafka import KafkaStartError, KafkaUnavailable
from .bench_kafka_throughput import await_leaders, cpu_seconds
from .cluster_subjects import (
    DatabaseUse,
    SteleCluster,
    Subject,
    embedded_broker,
    kafka_cluster,
    stele_cluster,
)
from .measure import percentile
from .postgres_server import PostgresMissing
from .seaweedfs import SeaweedMissing

PARTS = ("throughput", "latency", "metadata", "failover", "restart", "pause", "partitions", "kafka")
_IN_DEFAULT = ("throughput", "latency", "metadata", "failover", "restart", "pause", "kafka")
_PARTITIONS = 6
_VALUE_BYTES = 1024
_TIMEOUT_S = 120.0
_LATENCY_PER_S = 100
_AT_ONCE = 500
_LOOK_S = 0.02
_CLIENT: dict[str, str | int] = {"log_level": "0", "topic.metadata.propagation.max.ms": 10_000}
# An object store may take longer than the library waits by default for a busy machine.
_PRODUCER: dict[str, str | int] = {"acks": "all", "message.timeout.ms": 120_000, "linger.ms": 5}
RECORDS_GOAL, INLINE_ACK_GOAL_MS, FAILOVER_GOAL_S, METADATA_GOAL = 50_000, 10.0, 10.0, 0.0005

_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured. ``setups``: brokers, store and linger."""

    records: int
    latency_s: float
    setups: tuple[tuple[int, str, int], ...]
    partitions: int


_QUICK = Scale(
    records=60_000,
    latency_s=5,
    setups=((1, "inline", 5), (3, "inline", 5), (1, "s3", 5), (1, "s3", 250), (3, "s3", 25)),
    partitions=2_000,
)
_FULL = Scale(
    records=300_000,
    latency_s=20,
    setups=(
        *((brokers, "inline", 5) for brokers in (1, 2, 3)),
        *((brokers, "s3", linger) for brokers in (1, 2, 3) for linger in (5, 25, 250)),
    ),
    partitions=10_000,
)


# ── work ──


def new_topic(subject: Subject, partitions: int = _PARTITIONS) -> str:
    """Create a topic and return its name."""
    admin = AdminClient({"bootstrap.servers": subject.bootstrap, **_CLIENT})
    topic = f"bench-{next(_numbers)}"
    wanted = NewTopic(topic, partitions, subject.replication_factor, config=subject.topic_configs)
    admin.create_topics([wanted])[topic].result(_TIMEOUT_S)
    return topic


def produce(subject: Subject, topic: str, records: int) -> float:
    """Produce records of 1 KB and wait for the answers; return the seconds."""
    producer = Producer(
        {
            "bootstrap.servers": subject.bootstrap,
            **_CLIENT,
            **_PRODUCER,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 1_000_000,
            "batch.size": 1_000_000,
        }
    )
    await_leaders(producer, topic, _PARTITIONS)
    some: list[dict[str, object]] = [{"value": os.urandom(_VALUE_BYTES // 2).hex().encode()}] * _AT_ONCE
    begun = time.perf_counter()
    for _ in range(records // _AT_ONCE):
        producer.produce_batch(topic, some)
    left = producer.flush(_TIMEOUT_S)
    seconds = time.perf_counter() - begun
    producer.close()
    if left:
        raise RuntimeError(f"{subject.name}: {left} of {records} records were not acknowledged")
    return seconds


def consume(subject: Subject, topic: str, records: int) -> float:
    """Read a topic from its start; return the seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": subject.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": "false",
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            **_CLIENT,
        }
    )
    await_leaders(consumer, topic, _PARTITIONS)
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(_PARTITIONS)])
    got = 0
    while got < records:
        messages = consumer.consume(min(10_000, records - got), _TIMEOUT_S)
        if not messages or any(message.error() is not None for message in (messages[0], messages[-1])):
            raise RuntimeError(f"{subject.name}: {got} of {records} records arrived")
        got += len(messages)
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


class SteadyProducer:
    """Sends small records at a steady rate, and notes each acknowledgement's delay.

    It is a thread.
    """

    def __init__(self, subject: Subject, topic: str) -> None:
        # When each record was acknowledged, and after how many ms.
        self.acks: list[tuple[float, float]] = []
        self.failed = 0
        self._topic = topic
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": subject.bootstrap,
                **_CLIENT,
                **_PRODUCER,
                "linger.ms": 0,
                "enable.idempotence": True,
            }
        )
        await_leaders(self._producer, topic, _PARTITIONS)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        begun = time.perf_counter()
        for number in count():
            if self._is_over.is_set():
                break
            while (pause_s := begun + number / _LATENCY_PER_S - time.perf_counter()) > 0:
                self._producer.poll(pause_s)
            self._send(number)
        self._producer.flush(_TIMEOUT_S)

    def _send(self, number: int) -> None:
        sent = time.perf_counter()

        def delivered(error: KafkaError | None, message: Message) -> None:
            del message
            now = time.perf_counter()
            if error is None:
                self.acks.append((now, (now - sent) * 1000))
            else:
                self.failed += 1

        self._producer.produce(self._topic, b"x" * 100, partition=number % _PARTITIONS, on_delivery=delivered)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.close()

    def latencies_ms(self, since: float = 0.0) -> list[float]:
        return [latency for at, latency in self.acks if at >= since]


# ── parts ──


def measure_throughput(subject: Subject, scale: Scale) -> None:
    topic = new_topic(subject)
    produce(subject, topic, 2_000)
    megabytes = scale.records * _VALUE_BYTES / 1e6
    before = subject.database() if isinstance(subject, SteleCluster) else None
    topic = new_topic(subject)
    cpu_s = _cpu_s(subject)
    seconds_in = produce(subject, topic, scale.records)
    used_s = {what: seconds - cpu_s[what] for what, seconds in _cpu_s(subject).items()}
    cpu_in_s = used_s["brokers"]
    after = subject.database() if isinstance(subject, SteleCluster) else None
    seconds_out = consume(subject, topic, scale.records)
    rate = scale.records / seconds_in
    print(
        f"{subject.name}\n"
        f"  in   {megabytes / seconds_in:8.1f} MB/s  {rate:9,.0f} records/s of 1 KB,"
        f" {scale.records / cpu_in_s:9,.0f} per second of broker CPU\n"
        f"  CPU of in: {', '.join(f'{what} {seconds:.2f} s' for what, seconds in used_s.items())},"
        f" {100 * sum(used_s.values()) / seconds_in / (os.cpu_count() or 1):.0f} % of the machine\n"
        f"  out  {megabytes / seconds_out:8.1f} MB/s",
        flush=True,
    )
    if before is not None and after is not None:
        _print_database(before, after, megabytes)
    if subject.name.startswith("1 × s3"):
        _print_goal("records/s through S3", rate, RECORDS_GOAL)


def _cpu_s(subject: Subject) -> dict[str, float]:
    """Return the CPU time so far of all that takes part.

    The store is what is none of the others.
    """
    own = os.times()
    client = own.user + own.system
    brokers = subject.broker_cpu_s()
    database = cpu_seconds(subject.postgres.pid) if isinstance(subject, SteleCluster) else 0.0
    return {
        "client": client,
        "brokers": brokers,
        "PostgreSQL": database,
        "store": cpu_seconds(os.getpid()) - client - brokers - database,
    }


def _print_database(before: DatabaseUse, after: DatabaseUse, megabytes: float) -> None:
    gigabytes = megabytes / 1000
    print(
        f"  PostgreSQL per GB: {(after.cpu_s - before.cpu_s) / gigabytes:.1f} s CPU,"
        f" {(after.wal_bytes - before.wal_bytes) / 1e6 / gigabytes:,.1f} MB WAL,"
        f" {(after.objects - before.objects) / gigabytes:,.0f} objects,"
        f" {(after.runs - before.runs) / gigabytes:,.0f} rows",
        flush=True,
    )


def measure_latency(subject: Subject, scale: Scale) -> None:
    producer = SteadyProducer(subject, new_topic(subject))
    time.sleep(1)
    warm = time.perf_counter()
    time.sleep(scale.latency_s)
    producer.end()
    latencies_ms = producer.latencies_ms(warm)
    p50, p99 = percentile(latencies_ms, 0.5), percentile(latencies_ms, 0.99)
    print(
        f"{subject.name}\n  ack at {_LATENCY_PER_S} records/s: p50 {p50:.1f} ms, p99 {p99:.1f} ms,"
        f" {producer.failed} failed",
        flush=True,
    )
    if "inline" in subject.name:
        _print_goal("ms to an ack at p50", p50, INLINE_ACK_GOAL_MS, at_most=True)


def measure_metadata(scale: Scale) -> None:
    """A slow partition leaves the most rows per byte; merging must make up for it."""
    with stele_cluster(brokers=1, store="s3", linger_ms=25) as cluster:
        topic = new_topic(cluster)
        produce(cluster, topic, scale.records // 2)
        producer = SteadyProducer(cluster, topic)
        time.sleep(scale.latency_s)
        producer.end()
        before, size_before = cluster.database(), cluster.metadata_bytes()
        cluster.merge()
        after, size_after = cluster.database(), cluster.metadata_bytes()
        gigabytes = before.log_bytes / 1e9
        print(f"{cluster.name}, {before.log_bytes / 1e6:,.0f} MB of records")
        for what, use, size in (("before", before, size_before), ("after", after, size_after)):
            print(
                f"  {what} merging: {use.objects:,} objects ({use.objects / gigabytes:,.0f} per GB),"
                f" {use.runs:,} rows ({use.runs / gigabytes:,.0f} per GB),"
                f" {size / 1024:,.0f} KiB of metadata, {100 * size / use.log_bytes:.4f} % of the bytes",
                flush=True,
            )
        _print_goal("of the bytes are metadata", size_after / after.log_bytes, METADATA_GOAL, at_most=True)


def measure_failover(scale: Scale) -> None:
    """Kill the broker that a producer sends to, and wait for all partitions."""
    with stele_cluster(brokers=3, store="inline", linger_ms=5) as cluster:
        topic = new_topic(cluster)
        producer = SteadyProducer(cluster, topic)
        time.sleep(scale.latency_s / 2)
        killed = time.perf_counter()
        cluster.brokers[1].kill()
        time.sleep(15)
        producer.end()
        gap_s = max(latency for at, latency in producer.acks if at >= killed) / 1000
        print(
            f"{cluster.name}\n  after kill -9 of one broker the slowest record took {gap_s:.1f} s,"
            f" {producer.failed} failed"
        )
        _print_goal("s until every partition goes on", gap_s, FAILOVER_GOAL_S, at_most=True)


def measure_restart(scale: Scale) -> None:
    """Restart three brokers one after the other, as an upgrade does."""
    with stele_cluster(brokers=3, store="inline", linger_ms=5) as cluster:
        producer = SteadyProducer(cluster, new_topic(cluster))
        time.sleep(scale.latency_s / 2)
        begun = time.perf_counter()
        quiet_ms = producer.latencies_ms()
        for broker in cluster.brokers:
            broker.restart()
            time.sleep(3)
        ended = time.perf_counter()
        producer.end()
        during_ms = [latency for at, latency in producer.acks if begun <= at <= ended]
        print(
            f"{cluster.name}, restarted one after the other within {ended - begun:.0f} s\n"
            f"  ack before: p50 {percentile(quiet_ms, 0.5):.1f} ms, p99 {percentile(quiet_ms, 0.99):.1f} ms\n"
            f"  ack during: p50 {percentile(during_ms, 0.5):.1f} ms, p99 {percentile(during_ms, 0.99):.1f} ms,"
            f" slowest {max(during_ms):.0f} ms, {producer.failed} failed",
            flush=True,
        )


def measure_pause(scale: Scale) -> None:
    """Pause a broker until another has its groups, and wait until they are back."""
    del scale
    with stele_cluster(brokers=2, store="inline", linger_ms=5) as cluster:
        first, paused = cluster.brokers

        def shards(broker_id: int) -> int:
            leases = httpx.get(f"{first.http_url}/v1/cluster", timeout=_TIMEOUT_S).json()["leases"]
            return sum(
                lease["broker_id"] == broker_id for name, lease in leases.items() if name in SHARD_LEASES
            )

        def wait_for(own: int, others: int) -> float:
            begun = time.perf_counter()
            while (shards(2), shards(1)) != (own, others):
                time.sleep(_LOOK_S)
            return time.perf_counter() - begun

        # The broker that joins gets its share.
        own = sum(ranked(name.encode(), _members(2))[0].broker_id == 2 for name in SHARD_LEASES)
        wait_for(own, len(SHARD_LEASES) - own)
        with pausing.paused(paused.pid):
            taken_s = wait_for(0, len(SHARD_LEASES))
        back_s = wait_for(own, len(SHARD_LEASES) - own)
        print(
            f"{cluster.name}, one paused\n  the other coordinates its {own} shards of groups"
            f" after {taken_s:.1f} s; after the pause they are back in {back_s:.1f} s",
            flush=True,
        )


def _members(brokers: int) -> list[Member]:
    return [
        Member(broker_id=number, incarnation=UUID(int=number), rack=None, endpoints={})
        for number in range(1, brokers + 1)
    ]


def measure_partitions(scale: Scale) -> None:
    """One record to each of many partitions, again and again."""
    with stele_cluster(brokers=1, store="inline", linger_ms=250) as cluster:
        begun = time.perf_counter()
        topic = new_topic(cluster, scale.partitions)
        created_s = time.perf_counter() - begun
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                **_CLIENT,
                **_PRODUCER,
                "queue.buffering.max.messages": 0,
            }
        )
        await_leaders(producer, topic, scale.partitions)
        before, begun = cluster.database(), time.perf_counter()
        cpu_s = cluster.broker_cpu_s()
        rounds = 4
        for _ in range(rounds):
            for partition in range(scale.partitions):
                producer.produce(topic, b"x" * 100, partition=partition)
            if producer.flush(_TIMEOUT_S):
                raise RuntimeError("not all records were acknowledged")
        seconds, after = time.perf_counter() - begun, cluster.database()
        producer.close()
        runs = after.runs - before.runs
        print(
            f"{cluster.name}, {scale.partitions:,} partitions, created in {created_s:.1f} s\n"
            f"  {rounds} records each: {runs / seconds:,.0f} runs/s,"
            f" {1000 * (after.cpu_s - before.cpu_s) / runs:.2f} ms PostgreSQL CPU per run,"
            f" {1000 * (cluster.broker_cpu_s() - cpu_s) / runs:.2f} ms broker CPU per run",
            flush=True,
        )


def _print_goal(what: str, value: float, goal: float, *, at_most: bool = False) -> None:
    is_met = value <= goal if at_most else value >= goal
    print(
        f"  goal: {'at most' if at_most else 'at least'} {goal:,g} {what}: {value:,.6g},"
        f" {'met' if is_met else 'NOT met'}",
        flush=True,
    )


def _measure_stele(scale: Scale, measure: Sequence[Callable[[Subject, Scale], None]]) -> None:
    for brokers, store, linger_ms in scale.setups:
        with stele_cluster(brokers=brokers, store=store, linger_ms=linger_ms) as cluster:
            for one in measure:
                one(cluster, scale)
    with embedded_broker() as single:
        for one in measure:
            one(single, scale)


def _measure_kafka(scale: Scale, heap: str) -> None:
    try:
        with kafka_cluster(3, heap) as nodes:
            for is_flushing in (True, False):
                subject = nodes.flushing(is_flushing)
                measure_throughput(subject, scale)
                measure_latency(subject, scale)
    except (KafkaUnavailable, KafkaStartError) as error:
        print(f"Apache Kafka is not measured: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="more records, all lingers, 10,000 partitions")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be repeated")
    parser.add_argument("--records", type=int, help="records of 1 KB per measurement")
    parser.add_argument("--heap", default="512m", help="of each node of Apache Kafka (default: 512m)")
    options = parser.parse_args()
    scale = _FULL if options.full else _QUICK
    if options.records:
        scale = Scale(
            records=options.records,
            latency_s=scale.latency_s,
            setups=scale.setups,
            partitions=scale.partitions,
        )
    parts = options.only or (PARTS if options.full else _IN_DEFAULT)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    measures = [
        measure
        for part, measure in (("throughput", measure_throughput), ("latency", measure_latency))
        if part in parts
    ]
    if measures:
        _measure_stele(scale, measures)
    for part, measure in (
        ("metadata", measure_metadata),
        ("failover", measure_failover),
        ("restart", measure_restart),
        ("pause", measure_pause),
        ("partitions", measure_partitions),
    ):
        if part in parts:
            measure(scale)
    if "kafka" in parts:
        _measure_kafka(scale, options.heap)


if __name__ == "__main__":
    try:
        main()
    except (PostgresMissing, SeaweedMissing) as missing:
        raise SystemExit(str(missing)) from None
