"""Compare the cost of a request with that of Apache Kafka.

The clients send small batches. They are Kafka's own Java performance tools, with one record per request, with the
batches of their defaults and with a single request in flight, and librdkafka with a short linger. Both brokers are up,
and only one of them has work at a time. Where it says "synced", Apache Kafka's topics have ``flush.messages=1``,
because Stele syncs before it answers ``acks=all``; elsewhere Stele syncs and Apache Kafka does not.

Broker CPU is that of the whole run of the client by all its records, the warm-up included; for records consumed with
the Java tool it includes joining its group.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from . import kafka_performance
from .apache_kafka import VERSION, KafkaUnavailable
from .bench_kafka_throughput import (
    TIMEOUT_S,
    Acks,
    Figure,
    KafkaSubject,
    Results,
    SteleSubject,
    Subject,
    await_leaders,
    in_alternating_order,
    make_producer,
    new_topic,
    print_table,
    running,
    say,
    stored_in,
)
from .bench_kafka_throughput import consume as consume_with_librdkafka
from .kafka_performance import Produced
from .measure import percentile
from .process_usage import cpu_seconds

ROUNDS = 3
QUICK_SHARE = 0.25
RATE_GOAL, LATENCY_GOAL, CPU_GOAL = 1.0, 1.0, 0.6
# Of the records of a run of a Java tool: those that warm it up before it measures.
_WARM_SHARE = 0.2
_PRODUCED_AT_ONCE = 1000

Kind = Literal["single", "lone", "batches", "librdkafka"]
KINDS: tuple[Kind, ...] = ("single", "lone", "batches", "librdkafka")
ONE: Acks = "1"
ALL: Acks = "all"


class Client(Protocol):
    """The client that loads a broker."""

    def produce(self, subject: Subject, topic: str, work: Work) -> Produced: ...
    def consume(self, subject: Subject, topic: str, work: Work) -> float:
        """Return records per second."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The records that a client sends to one partition, and whether it reads them back."""

    name: str
    client: Client
    records: int
    size: int
    acks: Acks
    # Whether Apache Kafka syncs, too; Stele does with acks=all.
    is_synced_by_both: bool = True
    is_read: bool = False
    # What the CPU time is divided by; requests can be counted only if each has one record.
    per: Literal["request", "record"] = "record"


@dataclass(frozen=True, slots=True)
class JavaTools:
    """``ProducerPerformance`` and ``ConsumerPerformance``.

    ``properties`` are further ones of the producer.
    """

    properties: tuple[str, ...] = ()

    def produce(self, subject: Subject, topic: str, work: Work) -> Produced:
        return kafka_performance.produce(
            subject.bootstrap,
            topic,
            [f"acks={work.acks}", *self.properties],
            size=work.size,
            records=work.records,
            warm_records=int(work.records * _WARM_SHARE),
        )

    def consume(self, subject: Subject, topic: str, work: Work) -> float:
        return kafka_performance.consume(subject.bootstrap, topic, records=work.records)


@dataclass(frozen=True, slots=True)
class Librdkafka:
    """Confluent-kafka.

    Its producer is used as ``rdkafka_performance`` does: its queue is always full. A batch has up to ``batch_records``, and waits up to ``linger_ms`` for them.
    """

    linger_ms: int
    batch_records: int = 10_000

    def produce(self, subject: Subject, topic: str, work: Work) -> Produced:
        settings = {"linger.ms": self.linger_ms, "batch.num.messages": self.batch_records}
        producer = make_producer(subject, work.acks, **settings)
        await_leaders(producer, topic, 1)
        value = os.urandom(work.size // 2).hex().encode()
        some: list[dict[str, object]] = [{"value": value}] * (_PRODUCED_AT_ONCE - 1)
        latencies_ms: list[float] = []

        def answered(error: object, message: object) -> None:
            if error is not None:
                raise RuntimeError(f"{subject.name}: a record was refused: {error}")
            latencies_ms.append((time.perf_counter() - sent_at.pop(0)) * 1000)

        sent_at: list[float] = []
        begun = time.perf_counter()
        left = work.records
        while left:
            # One of each thousand is timed: a callback for each would take the client longer than all else.
            try:
                producer.produce(topic, value, on_delivery=answered)
            except BufferError:
                producer.poll(0.01)
                continue
            sent_at.append(time.perf_counter())
            left -= 1 + producer.produce_batch(topic, some[: left - 1])
            producer.poll(0)
        unanswered = producer.flush(TIMEOUT_S)
        rate = work.records / (time.perf_counter() - begun)
        producer.close()
        if unanswered:
            raise RuntimeError(f"{subject.name}: {unanswered} records without an answer")
        return Produced(rate, percentile(latencies_ms, 0.5), percentile(latencies_ms, 0.99))

    def consume(self, subject: Subject, topic: str, work: Work) -> float:
        return consume_with_librdkafka(subject, topic, partitions=1, records=work.records)


def works(kind: Kind) -> list[Work]:
    """Return the work of a kind, in the order of the table."""
    if kind == "single":
        # A batch is full with its first record, and a request holds one batch per partition.
        client = JavaTools(
            (
                *("batch.size=1", "linger.ms=0", "enable.idempotence=false"),
                "max.in.flight.requests.per.connection=5",
            )
        )
        return [
            Work(
                name=f"a record of {size:,} B per request, 5 in flight, {acks_text(acks)}",
                client=client,
                # A sync per request takes so long that a quarter of them is enough.
                records=count if acks == "1" else count // 4,
                size=size,
                acks=acks,
                is_read=acks == "1",
                per="request",
            )
            for size, count in {100: 30_000, 1024: 30_000, 10_240: 15_000}.items()
            for acks in (ONE, ALL)
        ]
    if kind == "lone":
        client = JavaTools(
            (
                *("batch.size=1", "linger.ms=0", "enable.idempotence=false"),
                "max.in.flight.requests.per.connection=1",
            )
        )
        counts: dict[Acks, int] = {"1": 15_000, "all": 5000}
        return [
            Work(
                name=f"a record of 100 B per request, one in flight, {acks_text(acks)}",
                client=client,
                records=count,
                size=100,
                acks=acks,
                per="request",
            )
            for acks, count in counts.items()
        ]
    if kind == "batches":
        plain = JavaTools(("enable.idempotence=false",))
        by_size = {100: 500_000, 1024: 150_000, 10_240: 20_000}
        return [
            *(
                Work(
                    name=f"records of {size:,} B in Java's batches, {acks_text(acks)}",
                    client=plain,
                    records=count,
                    size=size,
                    acks=acks,
                    is_read=acks == "1",
                )
                for size, count in by_size.items()
                for acks in (ONE, ALL)
            ),
            Work(
                name=f"records of 1,024 B in Java's batches, idempotent, {acks_text('all')}",
                client=JavaTools(),
                records=by_size[1024],
                size=1024,
                acks="all",
            ),
        ]
    clients = {
        "linger 1 s": Librdkafka(1000),
        "linger 5 ms": Librdkafka(5),
        "linger 5 ms, batches of 100": Librdkafka(5, 100),
    }
    return [
        Work(
            name=f"records of {size:,} B, librdkafka, {name}, {acks_text(ALL) if is_synced_by_both else 'acks=all'}",
            client=client,
            records=count,
            size=size,
            acks=ALL,
            is_synced_by_both=is_synced_by_both,
            is_read=not is_synced_by_both,
        )
        for name, client in clients.items()
        for size, count in {100: 500_000, 1024: 150_000}.items()
        for is_synced_by_both in (False, True)
    ]


def acks_text(acks: Acks) -> str:
    return "acks=1" if acks == "1" else "acks=all, synced"


def measure_round(subjects: Sequence[Subject], chosen: Sequence[Work], results: Results) -> None:
    """Measure each figure once, for one broker after the other."""
    for work in chosen:
        for subject in subjects:
            _measure(subject, work, results)


def _measure(subject: Subject, work: Work, results: Results) -> None:
    def add(what: str, unit: str, value: float, *, goal: float, at_most: bool = False) -> None:
        results.add(Figure(f"{work.name}: {what}", unit, goal, at_most=at_most), subject, value)

    with new_topic(subject, partitions=1, acks=work.acks if work.is_synced_by_both else "1") as topic:
        # Earlier writes must not be waited for in this measurement.
        os.sync()
        before = cpu_seconds(subject.pid)
        produced = work.client.produce(subject, topic, work)
        used_s = cpu_seconds(subject.pid) - before
        stored = stored_in(subject, topic, 1)
        if stored != work.records:
            raise RuntimeError(f"{subject.name}: {stored} of {work.records} records stored")
        add("produce", f"{work.per}s/s", produced.rate, goal=RATE_GOAL)
        add("p50", "ms", produced.p50_ms, goal=LATENCY_GOAL, at_most=True)
        add("p99", "ms", produced.p99_ms, goal=LATENCY_GOAL, at_most=True)
        add(f"broker CPU per {work.per}", "µs", used_s / work.records * 1e6, goal=CPU_GOAL, at_most=True)
        if work.is_read:
            before = cpu_seconds(subject.pid)
            rate = work.client.consume(subject, topic, work)
            used_s = cpu_seconds(subject.pid) - before
            add("consume", "records/s", rate, goal=RATE_GOAL)
            add("broker CPU of consume", "ms", used_s * 1000, goal=CPU_GOAL, at_most=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The cost of a request beside Apache Kafka, under its Java performance tools and librdkafka."
    )
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    parser.add_argument("--only", choices=["stele", "kafka"], help="figures of one of them, without ratios")
    parser.add_argument(
        "--work",
        choices=KINDS,
        action="append",
        help="single: a record per request; lone: one request in flight; batches: Java's defaults;"
        " librdkafka: a short linger (can be repeated; default: all)",
    )
    parser.add_argument("--rounds", type=int, help=f"instead of {ROUNDS}")
    options = parser.parse_args()
    rounds: int = options.rounds or (1 if options.quick else ROUNDS)
    chosen = [work for kind in options.work or KINDS for work in works(kind)]
    if options.quick:
        chosen = [replace(work, records=int(work.records * QUICK_SHARE)) for work in chosen]
    kinds: dict[str, type[SteleSubject | KafkaSubject]] = {"stele": SteleSubject, "kafka": KafkaSubject}
    measured = [kind for name, kind in kinds.items() if options.only in (None, name)]
    results = Results()
    try:
        with running(measured) as subjects:
            say("warming up")
            measure_round(subjects, chosen, Results())
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                measure_round(in_alternating_order(subjects, number), chosen, results)
    except KafkaUnavailable as missing:
        print(f"not measured: {missing}")
        return
    print(
        f"Java client {VERSION} and librdkafka, one partition; medians of {rounds} rounds in turn,"
        f" {os.cpu_count()} cores"
    )
    print_table(results, [kind.name for kind in measured])


if __name__ == "__main__":
    main()
