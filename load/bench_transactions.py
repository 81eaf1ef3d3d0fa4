"""Compare transactions of Stele's Kafka listener with Apache Kafka: same client, work and machine.

A transaction is begun, its records are produced and spread over the partitions, and it is committed; the next
begins after that. Measured are transactions per second of one producer, and of several at once, because the ends
of several share their syncs in Stele. Apache Kafka answers a commit from the page cache, Stele syncs it first, so
Kafka's topics have ``flush.messages=1`` as in ``bench_kafka_throughput``; its ``__transaction_state`` is not
synced by that. The same transactions as single HTTP requests have the Kafka listener as their yardstick.

Readers: the rate of read_committed, beside read_uncommitted on the same topic, where all transactions are
committed and where one in ten is aborted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import httpx
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from stele.testing import run_broker

from .apache_kafka import VERSION, KafkaUnavailable
from .bench_kafka_throughput import (
    TIMEOUT_S,
    Figure,
    KafkaSubject,
    Results,
    RunningSubject,
    SteleSubject,
    Subject,
    await_leaders,
    in_alternating_order,
    make_consumer,
    make_producer,
    new_topic,
    print_table,
    running,
    say,
)
from .broker_process import running_broker
from .measure import Comparison, in_turn, report
from .postgres_server import PostgresServer, find_bin

RECORDS = (1, 10, 100)
PARTITIONS = (1, 6)
RECORD_BYTES = 100
GOAL = 1.0
# Two round trips to PostgreSQL and its sync, in place of one sync of files.
SHARED_GOAL = 0.2
HTTP_GOAL = 0.5
PRODUCERS = 8
FILLED_AT_ONCE = 1000
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of a run; ``seconds`` for each rate, ``read_records`` in the topic of the readers."""

    rounds: int
    seconds: float
    read_records: int


FULL = Scale(rounds=3, seconds=2.0, read_records=300_000)
QUICK = Scale(rounds=1, seconds=0.5, read_records=50_000)


# ── one producer, and several ──


def transactional_producer(subject: Subject) -> Producer:
    producer = make_producer(
        subject, "all", **{"transactional.id": f"bench-{next(_numbers)}", "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def transact(producer: Producer, topic: str, *, partitions: int, records: int, commits: bool = True) -> None:
    value = b"x" * RECORD_BYTES
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, value, partition=number % partitions)
    if commits:
        producer.commit_transaction(TIMEOUT_S)
    else:
        # Otherwise the records that were not sent yet would be dropped.
        producer.flush(TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)


def transactions_per_s(
    subject: Subject, *, partitions: int, records: int, seconds: float, producers: int = 1
) -> float:
    """Transactions per second of ``producers`` at once.

    Each has a transactional id of its own.
    """
    with new_topic(subject, partitions=partitions, acks="all") as topic:
        clients = [transactional_producer(subject) for _ in range(producers)]
        for client in clients:
            await_leaders(client, topic, partitions)
            transact(client, topic, partitions=partitions, records=records)
        begin = threading.Barrier(producers)

        def run(client: Producer) -> float:
            begin.wait()
            begun = time.perf_counter()
            done = 0
            while (elapsed := time.perf_counter() - begun) < seconds:
                transact(client, topic, partitions=partitions, records=records)
                done += 1
            return done / elapsed

        with ThreadPoolExecutor(producers) as pool:
            rate = sum(pool.map(run, clients))
        for client in clients:
            client.close()
        return rate


def measure_transactions(subjects: list[Subject], scale: Scale, results: Results) -> None:
    # The first of all meet code and connections that are cold.
    for subject in subjects:
        transactions_per_s(subject, partitions=6, records=10, seconds=scale.seconds)
    for number in range(scale.rounds):
        say(f"transactions, round {number + 1} of {scale.rounds}")
        for partitions in PARTITIONS:
            for records in RECORDS:
                what = (
                    f"{records} record{'s' * (records > 1)}, {partitions} partition{'s' * (partitions > 1)}"
                )
                for subject in in_alternating_order(subjects, number):
                    rate = transactions_per_s(
                        subject, partitions=partitions, records=records, seconds=scale.seconds
                    )
                    results.add(Figure(what, "transactions/s", GOAL), subject, rate)
        what = f"10 records, 6 partitions, {PRODUCERS} producers"
        for subject in in_alternating_order(subjects, number):
            rate = transactions_per_s(
                subject, partitions=6, records=10, seconds=scale.seconds, producers=PRODUCERS
            )
            results.add(Figure(what, "transactions/s", GOAL), subject, rate)


# ── readers ──


def fill(subject: Subject, topic: str, records: int, *, aborted_in_ten: int) -> int:
    """Write transactions of ``FILLED_AT_ONCE`` records; return how many records are committed."""
    producer = transactional_producer(subject)
    committed = 0
    for number in range(records // FILLED_AT_ONCE):
        commits = number % 10 >= aborted_in_ten
        transact(producer, topic, partitions=1, records=FILLED_AT_ONCE, commits=commits)
        committed += FILLED_AT_ONCE * commits
    producer.close()
    return committed


def read_per_s(subject: Subject, topic: str, *, isolation: str, expected: int, stored: int) -> float:
    """Read ``expected`` records from the beginning.

    Return how many of all ``stored`` ones were passed per second.
    """
    consumer = make_consumer(
        subject,
        **{
            "isolation.level": isolation,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
        },
    )
    await_leaders(consumer, topic, 1)
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    got = 0
    while got < expected:
        messages = consumer.consume(min(10_000, expected - got), TIMEOUT_S)
        if not messages:
            raise RuntimeError(f"{subject.name}: {got} of {expected} records arrived")
        got += len(messages)
    seconds = time.perf_counter() - begun
    consumer.close()
    return stored / seconds


def measure_readers(subjects: list[Subject], scale: Scale) -> None:
    for subject in subjects:
        for aborted_in_ten in (0, 1):
            say(f"readers of {subject.name}, {aborted_in_ten} of 10 transactions aborted")
            with new_topic(subject, partitions=1, acks="1") as topic:
                committed = fill(subject, topic, scale.read_records, aborted_in_ten=aborted_in_ten)
                comparison = _isolation_levels(subject, topic, scale, committed)
            committed_rate, rate = (
                statistics.median(rates) for rates in (comparison.ours, comparison.yardstick)
            )
            ratios = comparison.ratios
            print(
                f"{subject.name}, {10 * aborted_in_ten} % of the transactions aborted: read_committed "
                f"{committed_rate:,.0f} records/s, read_uncommitted {rate:,.0f},"
                f" ratio {comparison.ratio:.2f} x (rounds {min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


def _isolation_levels(subject: Subject, topic: str, scale: Scale, committed: int) -> Comparison:
    def rate(isolation: str, expected: int) -> float:
        return read_per_s(subject, topic, isolation=isolation, expected=expected, stored=scale.read_records)

    return in_turn(
        lambda: rate("read_committed", committed),
        lambda: rate("read_uncommitted", scale.read_records),
        rounds=2 * scale.rounds - 1,
    )


# ── shared storage ──


def measure_shared(scale: Scale) -> None:
    """Compare transactions with shared storage (``inline``) with one broker's.

    PostgreSQL runs on the same machine, with fsync.
    """
    with (
        tempfile.TemporaryDirectory(prefix="stele-") as temporary,
        PostgresServer(find_bin(), wal_level="replica") as server,
        running_broker("--log-level", "warning") as alone,
        run_broker(
            Path(temporary) / "data",
            environment={"STELE_STORAGE": "shared", "STELE_POSTGRES_URL": server.dsn},
        ) as shared,
    ):
        subjects = [RunningSubject("Stele", one.kafka_bootstrap, one.pid) for one in (shared, alone)]
        for producers in (1, PRODUCERS):

            def rate(subject: Subject, count: int = producers) -> float:
                return transactions_per_s(
                    subject, partitions=6, records=10, seconds=scale.seconds, producers=count
                )

            for subject in subjects:
                rate(subject)
            report(
                f"shared storage: 10 records, 6 partitions, {producers} producer{'s' * (producers > 1)}",
                in_turn(partial(rate, subjects[0]), partial(rate, subjects[1]), rounds=scale.rounds),
                unit="transactions/s",
                yardstick="Stele on its own",
                goal=SHARED_GOAL,
            )


# ── HTTP ──


def measure_http(scale: Scale) -> None:
    """``POST /v1/transactions`` beside the same transactions of a Kafka client.

    Both use the same broker.
    """
    with running_broker("--log-level", "warning") as broker, httpx.Client(base_url=broker.http_url) as http:
        subject = RunningSubject("Stele", broker.kafka_bootstrap, broker.pid)
        for records in RECORDS:
            topic = f"http-{records}"
            http.put(f"/v1/topics/{topic}", json={"partitions": 6}).raise_for_status()
            report(
                f"HTTP: POST /v1/transactions with Idempotency-Key, {records} record{'s' * (records > 1)}, 6 partitions",
                _http_beside_kafka(http, subject, topic, records, scale),
                unit="transactions/s",
                yardstick="confluent-kafka on the same broker",
                goal=HTTP_GOAL,
            )


def _http_beside_kafka(
    http: httpx.Client, subject: Subject, topic: str, records: int, scale: Scale
) -> Comparison:
    record = {"topic": topic, "value": "x" * RECORD_BYTES}
    body = {"records": [{**record, "partition": number % 6} for number in range(records)]}

    def over_http() -> float:
        begun = time.perf_counter()
        done = 0
        while (elapsed := time.perf_counter() - begun) < scale.seconds:
            key = f"bench-{next(_numbers)}"
            http.post("/v1/transactions", json=body, headers={"Idempotency-Key": key}).raise_for_status()
            done += 1
        return done / elapsed

    return in_turn(
        over_http,
        lambda: transactions_per_s(subject, partitions=6, records=records, seconds=scale.seconds),
        rounds=scale.rounds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Transactions of Stele beside those of Apache Kafka.")
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    parser.add_argument(
        "--only",
        choices=["stele", "kafka", "shared"],
        help="rates of one of them, without ratios; shared: shared storage beside a broker on its own",
    )
    parser.add_argument("--rounds", type=int, help=f"instead of {FULL.rounds}")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    scale = replace(scale, rounds=options.rounds or scale.rounds)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if options.only in (None, "shared"):
        measure_shared(scale)
    if options.only == "shared":
        return
    if options.only != "kafka":
        measure_http(scale)
    kinds: dict[str, type[SteleSubject | KafkaSubject]] = {"stele": SteleSubject, "kafka": KafkaSubject}
    chosen = [kind for name, kind in kinds.items() if options.only in (None, name)]
    results = Results()
    try:
        with running(chosen) as subjects:
            measure_transactions(subjects, scale, results)
            measure_readers(subjects, scale)
    except KafkaUnavailable as missing:
        # Not a failure of the benchmarks that need nothing but Python.
        print(f"not measured: {missing}")
        return
    print(
        f"confluent-kafka as the client of {' and '.join(kind.name for kind in chosen)} (Kafka {VERSION}),"
        f" records of {RECORD_BYTES} B; medians of {scale.rounds} rounds in turn"
    )
    print_table(results, [kind.name for kind in chosen])
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
