"""Compare throughput, latency and broker CPU of Stele's Kafka listener with Apache Kafka: same clients, work, machine.

The clients are Kafka's own Java performance tools, with one record per request or with the batches of their defaults,
and librdkafka with a short linger. Both brokers are up, and only one of them has work at a time. With acks=all Apache
Kafka's topics have ``flush.messages=1``, because Stele syncs before it answers; "Kafka without syncs" leaves that out.

Broker CPU is that of the whole run of the client by all its records, the warm-up included; for records consumed with
the Java tool it includes joining its group. ``--work latency`` sends 1,000 records per second to a consumer.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from confluent_kafka import OFFSET_BEGINNING

from .apache_kafka import run_tool
from .harness import Benchmark, Rounds, percentile
from .kafka_clients import (
    TIMEOUT_S,
    SteadyProducer,
    consume,
    make_consumer,
    make_producer,
    new_topic,
    random_text,
    stored_in,
)
from .results import Measure, at_least, at_most
from .subjects import KAFKA, Subject, in_alternating_order, stele_and_kafka

Kind = Literal["single", "batches", "librdkafka", "latency"]
KINDS: tuple[Kind, ...] = ("single", "batches", "librdkafka", "latency")
CONSUME_PASSES = 3
LATENCY_PER_S = 1000
# The first records meet connections, caches and code paths that are cold.
_LATENCY_WARM = 500
# Of the records of a run of a Java tool: those that warm it up before it measures.
_WARM_SHARE = 0.2
_PRODUCED_AT_ONCE = 1000
_TOOL_TIMEOUT_S = 300.0
_PRODUCER_TOOL = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER_TOOL = "org.apache.kafka.tools.ConsumerPerformance"
_PRODUCED = re.compile(
    r"^\d+ records sent, ([\d.]+) records/sec .* (\d+) ms 50th, .* (\d+) ms 99th, .*99\.9th\.$", re.MULTILINE
)
# The tools give whole milliseconds.
_BELOW_ONE_MS = 0.5


class Produced(NamedTuple):
    """Records per second, and milliseconds from ``send`` to the answer."""

    rate: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The records that a client sends to one partition; ``read_as`` is the row of reading them back."""

    name: str
    client: JavaTools | Librdkafka
    records: int
    size: int
    acks: str
    read_as: str = ""
    is_kafka_synced: bool = True
    has_latency: bool = False


@dataclass(frozen=True, slots=True)
class JavaTools:
    """``ProducerPerformance`` and ``ConsumerPerformance``; ``properties`` are further ones of the producer."""

    properties: tuple[str, ...] = ("enable.idempotence=false",)

    def produce(self, subject: Subject, topic: str, work: Work) -> Produced:
        printed = _printed_by(
            _PRODUCER_TOOL,
            *("--topic", topic, "--num-records", str(work.records), "--record-size", str(work.size)),
            *("--throughput", "-1", "--warmup-records", str(int(work.records * _WARM_SHARE))),
            # All of them after one option: a second one would replace the first.
            *(
                "--command-property",
                f"bootstrap.servers={subject.bootstrap}",
                f"acks={work.acks}",
                *self.properties,
            ),
        )
        # The last summary excludes the warm-up.
        rate, p50_ms, p99_ms = map(float, _PRODUCED.findall(printed)[-1])
        return Produced(rate, p50_ms or _BELOW_ONE_MS, p99_ms or _BELOW_ONE_MS)

    def consume(self, subject: Subject, topic: str, work: Work) -> float:
        printed = _printed_by(
            _CONSUMER_TOOL,
            *("--bootstrap-server", subject.bootstrap, "--topic", topic, "--num-records", str(work.records)),
        )
        for head, values in pairwise(printed.splitlines()):
            if head.startswith("start.time"):
                names = [name.strip() for name in head.split(",")]
                row = dict(zip(names, values.split(","), strict=True))
                if float(row["data.consumed.in.nMsg"]) >= work.records:
                    # Without the rebalance.
                    return float(row["fetch.nMsg.sec"])
        raise RuntimeError(f"{subject.name}: not all records were consumed:\n{printed}")


def _printed_by(tool: str, *arguments: str) -> str:
    done = run_tool(tool, *arguments, timeout_s=_TOOL_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{tool} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Librdkafka:
    """confluent-kafka, used as ``rdkafka_performance`` does: its queue is always full.

    A batch has up to ``batch_records``, and waits up to 5 ms for them.
    """

    batch_records: int = 10_000

    def produce(self, subject: Subject, topic: str, work: Work) -> Produced:
        producer = make_producer(
            subject, topic, acks=work.acks, linger_ms=5, batch_num_messages=self.batch_records
        )
        value = random_text(work.size)
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
        # Reading is so fast that one pass over a topic says little.
        rates = [consume(subject, topic, partitions=1, records=work.records) for _ in range(CONSUME_PASSES)]
        return CONSUME_PASSES / sum(1 / rate for rate in rates)


def works(kind: Kind) -> list[Work]:
    """Return the work of a kind, in the order of the table."""
    if kind == "single":
        # A batch is full with its first record, and a request holds one batch per partition.
        in_flight = "max.in.flight.requests.per.connection=5"
        client = JavaTools(("batch.size=1", "linger.ms=0", "enable.idempotence=false", in_flight))
        # A sync per request takes so long that a quarter of them is enough.
        return [
            Work(
                name=f"single records, {size:,} B, acks={acks}",
                client=client,
                records=count,
                size=size,
                acks=acks,
            )
            for size in (100, 1024)
            for acks, count in {"1": 30_000, "all": 7_500}.items()
        ]
    if kind == "batches":
        return [
            Work(
                name=f"Java's batches, {size:,} B, acks={acks}",
                client=JavaTools(),
                records=count,
                size=size,
                acks=acks,
                read_as=f"Java, {size:,} B" if acks == "1" else "",
            )
            for size, count in {100: 500_000, 1024: 150_000}.items()
            for acks in ("1", "all")
        ]
    if kind == "latency":
        return []
    synced = [
        Work(
            name=f"librdkafka, {size:,} B, acks=all",
            client=Librdkafka(),
            records=count,
            size=size,
            acks="all",
            has_latency=True,
        )
        for size, count in {100: 500_000, 1024: 150_000}.items()
    ]
    small = replace(
        synced[0],
        name="librdkafka, 100 B, batches of 100, acks=all",
        client=Librdkafka(100),
        has_latency=False,
    )
    unsynced = [
        replace(
            work,
            name=f"{work.name}, Kafka without syncs",
            is_kafka_synced=False,
            has_latency=False,
            read_as=f"librdkafka, {work.size:,} B",
        )
        for work in synced
    ]
    return [*synced, small, *unsynced]


def measure_round(subjects: Sequence[Subject], chosen: Sequence[Work], rounds: Rounds) -> None:
    """Measure each figure once, for one broker after the other."""
    for work in chosen:
        for subject in subjects:
            _measure(subject, work, rounds)


def _measure(subject: Subject, work: Work, rounds: Rounds) -> None:
    def add(what: str, measure: str, value: float) -> None:
        rounds.add(what, measure, value, is_stele=subject.is_stele)

    with new_topic(subject, is_synced=work.acks == "all" and work.is_kafka_synced) as topic:
        # Earlier writes must not be waited for in this measurement.
        os.sync()
        before_s = subject.cpu_s()
        produced = work.client.produce(subject, topic, work)
        add(work.name, "cpu", (subject.cpu_s() - before_s) / work.records * 1e6)
        stored = stored_in(subject, topic)
        if stored != work.records:
            raise RuntimeError(f"{subject.name}: {stored} of {work.records} records stored")
        add(work.name, "rate", produced.rate)
        add(work.name, "p50", produced.p50_ms)
        add(work.name, "p99", produced.p99_ms)
        if work.read_as:
            before_s = subject.cpu_s()
            add(work.read_as, "rate", work.client.consume(subject, topic, work))
            add(work.read_as, "cpu", (subject.cpu_s() - before_s) / work.records * 1e6)


def latency_names() -> dict[str, tuple[str, dict[str, str]]]:
    """Return acks and the configuration of the topic of Stele by the name of the row."""
    what = f"produce to consume, {LATENCY_PER_S:,} records/s, acks="
    return {
        f"{what}1": ("1", {}),
        f"{what}all": ("all", {}),
        f"{what}all, visible before the sync": ("all", {"stele.visibility": "appended"}),
    }


def latency_ms(subject: Subject, acks: str, seconds: float, configs: dict[str, str]) -> tuple[float, float]:
    """Return p50 and p99 from a producer's ``produce`` to the consumer's ``poll``, at a steady rate."""
    latencies_ms: list[float] = []
    configs = configs if subject.is_stele else {}
    with new_topic(subject, is_synced=acks == "all", configs=configs) as topic:
        consumer = make_consumer(subject, topic, 1, OFFSET_BEGINNING)
        producer = SteadyProducer(subject, topic, partitions=1, per_s=LATENCY_PER_S, acks=acks)
        for number in range(_LATENCY_WARM + int(seconds * LATENCY_PER_S)):
            message = consumer.poll(TIMEOUT_S)
            now_ns = time.perf_counter_ns()
            value = None if message is None or message.error() is not None else message.value()
            if value is None:
                raise RuntimeError(f"{subject.name}: only {number} records arrived")
            if number >= _LATENCY_WARM:
                latencies_ms.append((now_ns - int(value)) / 1e6)
        producer.end()
        consumer.close()
    return percentile(latencies_ms, 0.5), percentile(latencies_ms, 0.99)


def report(bench: Benchmark, chosen: Sequence[Work], rounds: Rounds) -> None:
    def measure(what: str, name: str) -> Measure:
        units = {"rate": "/s", "cpu": "µs", "p50": "ms", "p99": "ms"}
        goals = {"rate": at_least(1.0), "cpu": at_most(0.6), "p50": at_most(1.0), "p99": at_most(1.0)}
        return rounds.measure(what, name, units[name], goals[name])

    def row(what: str, table: str, *names: str) -> None:
        bench.row(what, table=table, baseline="Kafka", measures={name: measure(what, name) for name in names})

    for work in chosen:
        row(work.name, "produce", "rate", "cpu")
        if work.read_as:
            row(work.read_as, "consume", "rate", "cpu")
        if work.has_latency:
            measures = {name: measure(work.name, name) for name in ("p50", "p99")}
            bench.row(f"{work.name}, full queue", table="latency", baseline="Kafka", measures=measures)
    for what in latency_names():
        if what in rounds.values:
            row(what, "latency", "p50", "p99")
    memory = rounds.measure("memory", "mb", "MB", at_most(0.2))
    bench.row("memory after producing", table="memory", baseline="Kafka", value=memory)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=2)
    bench.parser.add_argument(
        "--only", choices=["stele", "kafka"], help="figures of one of them, without ratios"
    )
    bench.parser.add_argument(
        "--work",
        choices=KINDS,
        action="append",
        help="single: a record per request; batches: Java's defaults; librdkafka: a short linger; latency: to a"
        " consumer at a steady rate (can be repeated; default: all)",
    )
    bench.add("--share", type=float, default=1.0, quick=0.1, help="of the records of each work (default: 1)")
    with bench.run() as options, stele_and_kafka(options.only) as subjects:
        kinds: Sequence[Kind] = options.work or KINDS
        works_of_run = [work for kind in kinds for work in works(kind)]
        # Some of each kind, for the caches and the compiler of Java's virtual machine.
        warm = [replace(work, records=int(work.records * 0.2)) for work in works_of_run[::4]]
        chosen = [replace(work, records=int(work.records * options.share)) for work in works_of_run]
        bench.say("warming up")
        measure_round(subjects, warm, Rounds())
        rounds = Rounds()
        for number in range(options.rounds):
            bench.say(f"round {number + 1} of {options.rounds}")
            ordered = in_alternating_order(subjects, number)
            measure_round(ordered, chosen, rounds)
            for what, (acks, configs) in latency_names().items() if "latency" in kinds else ():
                for subject in ordered:
                    p50_ms, p99_ms = latency_ms(subject, acks, 2 * options.share, configs)
                    rounds.add(what, "p50", p50_ms, is_stele=subject.is_stele)
                    rounds.add(what, "p99", p99_ms, is_stele=subject.is_stele)
            for subject in subjects:
                rounds.add("memory", "mb", subject.memory_mb(), is_stele=subject.is_stele)
        if len(subjects) < 2:
            bench.say(
                f"without ratios to {KAFKA}" if options.only == "stele" else "figures of the yardstick alone"
            )
        report(bench, chosen, rounds)


if __name__ == "__main__":
    main()
