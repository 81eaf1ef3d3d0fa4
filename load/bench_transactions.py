"""Compare transactions of Stele's Kafka listener with Apache Kafka: same client, work and machine.

A transaction is begun, its records are produced and spread over the partitions, and it is committed; the next
begins after that. Measured are transactions per second of one producer, and of several at once, because the ends
of several share their syncs in Stele. Apache Kafka answers a commit from the page cache, Stele syncs it first, so
Kafka's topics have ``flush.messages=1``; its ``__transaction_state`` is not synced by that.

``--only shared`` compares a broker whose records are in PostgreSQL with one that has its own disk.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from statistics import median

from confluent_kafka import Producer

from .harness import Benchmark, Rounds, in_turn
from .kafka_clients import TIMEOUT_S, make_producer, new_topic
from .results import Measure, at_least
from .subjects import (
    Subject,
    in_alternating_order,
    quiet_broker,
    stele_and_kafka,
    stele_cluster,
    stele_subject,
)

PRODUCERS = 8
RECORD_BYTES = 100
# Records, partitions and producers.
KINDS = (*((records, partitions, 1) for partitions in (1, 6) for records in (1, 10, 100)), (10, 6, PRODUCERS))
# Two round trips to PostgreSQL and its sync, in place of one sync of files.
SHARED_GOAL = at_least(0.2)
_numbers = count()


def transact(producer: Producer, topic: str, *, partitions: int, records: int) -> None:
    value = b"x" * RECORD_BYTES
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, value, partition=number % partitions)
    producer.commit_transaction(TIMEOUT_S)


def transactions_per_s(
    subject: Subject, *, records: int, partitions: int, producers: int, seconds: float
) -> float:
    """Return transactions per second of ``producers`` at once; each has a transactional id of its own."""
    with new_topic(subject, partitions=partitions, is_synced=True) as topic:
        clients: list[Producer] = []
        for _ in range(producers):
            client = make_producer(
                subject,
                topic,
                partitions,
                acks="all",
                transactional_id=f"bench-{next(_numbers)}",
                linger_ms=0,
                # Not longer than that of the transaction.
                message_timeout_ms=60_000,
            )
            client.init_transactions(TIMEOUT_S)
            transact(client, topic, partitions=partitions, records=records)
            clients.append(client)
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


def measure_kafka(bench: Benchmark, rounds: int, seconds: float) -> None:
    found = Rounds()
    with stele_and_kafka() as subjects:
        # The first of all meet code and connections that are cold.
        for number in range(rounds + 1):
            bench.say(f"round {number} of {rounds}")
            for records, partitions, producers in KINDS if number else KINDS[-1:]:
                what = f"transactions, records: {records}, partitions: {partitions}, producers: {producers}"
                for subject in in_alternating_order(subjects, number):
                    rate = transactions_per_s(
                        subject, records=records, partitions=partitions, producers=producers, seconds=seconds
                    )
                    if number:
                        found.add(what, "rate", rate, is_stele=subject.is_stele)
    ratios: list[float] = []
    for what in found.values:
        value = found.measure(what, "rate", "/s", at_least(1.0))
        ratios.append(median(value.ratios))
        bench.row(what, baseline="Kafka", value=value)
    bench.row("transactions/s", table="work", baseline="Kafka", is_span=True, value=Measure(ratio=ratios))


def measure_shared(bench: Benchmark, rounds: int, seconds: float) -> None:
    with stele_cluster(brokers=1, store="inline", linger_ms=5) as shared, quiet_broker() as alone:
        subjects = shared, stele_subject(alone)
        ratios: list[float] = []
        for producers in (1, PRODUCERS):
            ours, yardstick = (
                partial(
                    transactions_per_s,
                    subject,
                    records=10,
                    partitions=6,
                    producers=producers,
                    seconds=seconds,
                )
                for subject in subjects
            )
            ratios += in_turn(ours, yardstick, rounds=rounds, unit="/s").ratios
    bench.row(
        "transactions/s, shared storage",
        table="work",
        baseline="its own disk",
        value=Measure(ratio=ratios, goal=SHARED_GOAL),
    )


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.parser.add_argument("--only", choices=["kafka", "shared"], help="the yardstick to compare with")
    bench.add("--seconds", type=float, default=2.0, quick=0.3, help="of each rate (default: 2)")
    with bench.run() as options:
        if options.only != "kafka":
            measure_shared(bench, options.rounds, options.seconds)
        if options.only != "shared":
            measure_kafka(bench, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
