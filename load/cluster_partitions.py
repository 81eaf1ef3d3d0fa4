"""Measure what very many partitions cost brokers with shared storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from .bench_kafka_throughput import await_leaders
from .cluster_subjects import SteleCluster, stele_cluster
from .cluster_work import CLIENT, PRODUCER, TIMEOUT_S, new_topic
from .kafka_frames import connect, metadata_request, receive
from .process_usage import cpu_seconds, resident_mb

BROKERS = 3
_ROUNDS = 4
_IDLE_S = 15.0
# Until consumers and upkeep have settled.
_SETTLE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """CPU time, transactions, rows and WAL of brokers and PostgreSQL so far."""

    broker_s: float
    postgres_s: float
    transactions: int
    rows: int
    wal_bytes: int


def measure_many_partitions(partitions: int) -> None:
    """Measure what a topic with very many partitions costs.

    Brokers create it, restart, idle, take records for each partition, and idle with a consumer of all.
    """
    with stele_cluster(brokers=BROKERS, store="inline", linger_ms=250) as cluster:
        empty = _metadata_bytes(cluster)
        print(f"{cluster.name}, {partitions:,} partitions")
        _print_idle(cluster, "without a topic")
        begun = time.perf_counter()
        topic = new_topic(cluster, partitions)
        created_s = time.perf_counter() - begun
        begun = time.perf_counter()
        for broker in cluster.brokers:
            _await_partitions(broker.kafka_port, topic, partitions)
        known_s = time.perf_counter() - begun
        print(
            f"  created in {created_s:.1f} s; all brokers know them {known_s:.1f} s later;"
            f" {(_metadata_bytes(cluster) - empty) / partitions:,.0f} bytes in PostgreSQL per partition"
        )
        _print_answer(cluster, topic, partitions)
        _print_idle(cluster, "nothing written, no client")
        _print_start(cluster, topic, partitions)
        _produce(cluster, topic, partitions)
        print(
            f"  {(_metadata_bytes(cluster) - empty) / partitions:,.0f} bytes in PostgreSQL per partition,"
            f" records included"
        )
        _print_idle(cluster, "written to, no client")
        with _consumer_of_all(cluster, topic, partitions):
            _print_idle(cluster, "a consumer waits for all partitions")
        _print_start(cluster, topic, partitions)


def _use(cluster: SteleCluster) -> _Use:
    ((transactions, rows, wal_bytes),) = cluster.postgres.run(
        "SELECT xact_commit, tup_returned, pg_current_wal_insert_lsn() - '0/0'"
        " FROM pg_stat_database WHERE datname = current_database()"
    )
    return _Use(
        broker_s=cluster.broker_cpu_s(),
        postgres_s=cpu_seconds(cluster.postgres.pid),
        transactions=transactions,
        rows=rows,
        wal_bytes=int(wal_bytes),
    )


def _print_idle(cluster: SteleCluster, what: str) -> None:
    time.sleep(_SETTLE_S)
    begun, before = time.perf_counter(), _use(cluster)
    time.sleep(_IDLE_S)
    after, seconds = _use(cluster), time.perf_counter() - begun
    print(
        f"  idle, {what}: {100 * (after.broker_s - before.broker_s) / seconds / BROKERS:.1f} % of a core per"
        f" broker; PostgreSQL {100 * (after.postgres_s - before.postgres_s) / seconds:.1f} % of a core,"
        f" {(after.transactions - before.transactions) / seconds:,.0f} transactions/s,"
        f" {(after.rows - before.rows) / seconds:,.0f} rows/s,"
        f" {(after.wal_bytes - before.wal_bytes) / seconds / 1024:,.0f} KiB WAL/s",
        flush=True,
    )


def _metadata_bytes(cluster: SteleCluster) -> int:
    ((size,),) = cluster.postgres.run(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = 'stele' AND relkind = 'r'"
    )
    return int(size)


def _metadata_answer(port: int, topic: str) -> bytes:
    with connect("127.0.0.1", port, timeout_s=TIMEOUT_S) as connection:
        connection.sendall(metadata_request([topic]))
        return receive(connection)


def _await_partitions(port: int, topic: str, partitions: int) -> bytes:
    """Return the first answer that has all partitions."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            answer = _metadata_answer(port, topic)
        except OSError:
            answer = b""
        # A partition has its error, number, leader, and its lists of replicas, which are never empty.
        if len(answer) > partitions * 18:
            return answer
        time.sleep(0.02)
    raise TimeoutError(f"the broker at port {port} does not show {partitions} partitions")


def _print_answer(cluster: SteleCluster, topic: str, partitions: int) -> None:
    broker = cluster.brokers[0]
    cpu_s = cpu_seconds(broker.pid)
    begun = time.perf_counter()
    tries = 10
    size = 0
    for _ in range(tries):
        size = len(_await_partitions(broker.kafka_port, topic, partitions))
    seconds = time.perf_counter() - begun
    print(
        f"  Metadata: {size:,} bytes, {1000 * seconds / tries:.0f} ms,"
        f" {1000 * (cpu_seconds(broker.pid) - cpu_s) / tries:.0f} ms of broker CPU;"
        f" {resident_mb(broker.pid):.0f} MB resident",
        flush=True,
    )


def _print_start(cluster: SteleCluster, topic: str, partitions: int) -> None:
    broker = cluster.brokers[-1]
    begun = time.perf_counter()
    broker.stop()
    stopped_s = time.perf_counter() - begun
    begun = time.perf_counter()
    broker.start()
    ready_s = time.perf_counter() - begun
    _await_partitions(broker.kafka_port, topic, partitions)
    print(
        f"  a broker stops in {stopped_s:.1f} s, starts in {ready_s:.1f} s, and answers for all partitions"
        f" {time.perf_counter() - begun:.1f} s after its start, with {cpu_seconds(broker.pid):.1f} s of CPU",
        flush=True,
    )


def _produce(cluster: SteleCluster, topic: str, partitions: int) -> None:
    """Produce one record to each partition, again and again."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            **CLIENT,
            **PRODUCER,
            "queue.buffering.max.messages": 0,
        }
    )
    await_leaders(producer, topic, partitions)
    before, used, begun = cluster.database(), _use(cluster), time.perf_counter()
    for _ in range(_ROUNDS):
        for partition in range(partitions):
            producer.produce(topic, b"x" * 100, partition=partition)
        if producer.flush(TIMEOUT_S):
            raise RuntimeError("not all records were acknowledged")
    seconds, after, used_after = time.perf_counter() - begun, cluster.database(), _use(cluster)
    producer.close()
    runs = after.runs - before.runs
    print(
        f"  {_ROUNDS} records each: {_ROUNDS * partitions / seconds:,.0f} records/s, {runs / seconds:,.0f} runs/s,"
        f" {1000 * (used_after.postgres_s - used.postgres_s) / runs:.2f} ms PostgreSQL CPU per run,"
        f" {1000 * (used_after.broker_s - used.broker_s) / runs:.2f} ms broker CPU per run,"
        f" {(used_after.wal_bytes - used.wal_bytes) / runs:,.0f} bytes WAL per run",
        flush=True,
    )


@contextmanager
def _consumer_of_all(cluster: SteleCluster, topic: str, partitions: int) -> Generator[None]:
    """Let a consumer wait for new records in all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": "false",
            **CLIENT,
        }
    )
    await_leaders(consumer, topic, partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_END) for partition in range(partitions)])
    is_over = threading.Event()

    def wait() -> None:
        while not is_over.is_set():
            consumer.consume(1000, 0.5)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        consumer.close()
