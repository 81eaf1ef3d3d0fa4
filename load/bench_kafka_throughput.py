"""Compare Stele's Kafka listener with Apache Kafka: same client, work and machine.

Both brokers are up, and only one of them has work at a time. The client is confluent-kafka with its defaults but
for what is written down here. ``acks=all`` means a sync before the answer with Stele, so Apache Kafka's topics of
those runs have ``flush.messages=1``: by default it answers from the page cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from stele.broker_process import BrokerProcess

from .apache_kafka import VERSION, ApacheKafka, KafkaUnavailable
from .kafka_frames import await_metadata
from .measure import Comparison, percentile
from .process_usage import cpu_seconds, resident_mb
from .server_start import free_ports

Acks = Literal["1", "all"]

SIZES_BYTES = (100, 1024)
PARTITIONS = (1, 6)
ACKS: tuple[Acks, ...] = ("1", "all")
PRODUCE_GOAL, CONSUME_GOAL, LATENCY_GOAL, CPU_GOAL, START_GOAL, MEMORY_GOAL = 1.0, 1.0, 1.0, 0.5, 0.2, 0.2
# Reading is so fast that one pass over a topic says little.
CONSUME_PASSES = 3
LATENCY_RECORDS_PER_S = 1000
# The first records meet connections, caches and code paths that are cold.
LATENCY_WARM_S = 0.5
TIMEOUT_S = 60.0
_PRODUCED_AT_ONCE = 1000
_CONSUMED_AT_ONCE = 10_000
# A metadata answer of a topic that has just been made may not know all its leaders yet.
_LEADER_PAUSE_S = 0.02
_CLIENT = {"log_level": "0", "topic.metadata.propagation.max.ms": 10_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of a run."""

    records: dict[int, int]
    rounds: int
    starts: int
    latency_s: float


FULL = Scale(records={100: 500_000, 1024: 150_000}, rounds=3, starts=5, latency_s=3.5)
QUICK = Scale(records={100: 100_000, 1024: 30_000}, rounds=1, starts=2, latency_s=2.0)


class Subject(Protocol):
    """A broker under measurement."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    # What makes acks=all a sync before the answer.
    @property
    def synced_configs(self) -> dict[str, str]: ...
    # What its clients need to reach it.
    @property
    def client(self) -> dict[str, str]: ...

    def start(self) -> float:
        """The seconds from the start of the process to its first answer to Metadata."""
        ...

    def stop(self) -> None: ...


class SteleSubject:
    name = "Stele"

    def __init__(self, directory: Path) -> None:
        self.synced_configs: dict[str, str] = {}
        self.client: dict[str, str] = {}
        self._broker = BrokerProcess(directory / "data", arguments=["--log-level", "warning"])

    @property
    def bootstrap(self) -> str:
        return self._broker.kafka_bootstrap

    @property
    def pid(self) -> int:
        return self._broker.pid

    def start(self) -> float:
        # Chosen in advance, as for Kafka, so that requests can begin before the ready line.
        (self._broker.kafka_port,) = free_ports(1, self._broker.host)
        begun = time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(self._broker.start)
            answers = await_metadata(self._broker.host, self._broker.kafka_port, timeout_s=TIMEOUT_S)
            seconds = time.perf_counter() - begun
            started.result()
        if not answers:
            raise RuntimeError("the Kafka listener of Stele does not answer Metadata")
        return seconds

    def stop(self) -> None:
        self._broker.stop()


class KafkaSubject:
    name = "Apache Kafka"

    def __init__(self, directory: Path) -> None:
        self.synced_configs = {"flush.messages": "1"}
        self.client: dict[str, str] = {}
        # Wait until deleted data is removed, so that this does not happen during the next measurement.
        self._kafka = ApacheKafka(directory, properties={"log.segment.delete.delay.ms": "0"})
        # Not a part of a start: it is done once in the life of a broker.
        self._kafka.prepare()

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def pid(self) -> int:
        return self._kafka.pid

    def start(self) -> float:
        return self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop()


@dataclass(frozen=True, slots=True)
class RunningSubject:
    """A broker that the caller starts and stops; ``client`` is what its clients need to reach it."""

    name: str
    bootstrap: str
    pid: int
    client: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def synced_configs(self) -> dict[str, str]:
        return {}

    def start(self) -> float:
        return 0.0

    def stop(self) -> None:
        pass


Maker = Callable[[Path], Subject]


# ── the work ──

_numbers = count()


@contextmanager
def new_topic(subject: Subject, *, partitions: int, acks: Acks) -> Generator[str]:
    """A topic of its own for a measurement, deleted afterwards."""
    admin = AdminClient({"bootstrap.servers": subject.bootstrap, **_CLIENT, **subject.client})
    topic = f"bench-{next(_numbers)}"
    configs = subject.synced_configs if acks == "all" else {}
    admin.create_topics([NewTopic(topic, partitions, 1, config=configs)])[topic].result(TIMEOUT_S)
    try:
        yield topic
    finally:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def await_leaders(client: Producer | Consumer, topic: str, partitions: int) -> None:
    """Also what connects the client, so that neither is in the measurement."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
            return
        time.sleep(_LEADER_PAUSE_S)
    raise TimeoutError(f"{topic} has no leaders")


def make_producer(subject: Subject, acks: Acks, **settings: str | int) -> Producer:
    return Producer(
        {"bootstrap.servers": subject.bootstrap, "acks": acks, **_CLIENT, **subject.client, **settings}
    )


def make_consumer(subject: Subject, **settings: str | int) -> Consumer:
    # It joins no group; the client library wants a name all the same.
    group = {"group.id": "bench", "enable.auto.commit": "false"}
    return Consumer(
        {"bootstrap.servers": subject.bootstrap, **group, **_CLIENT, **subject.client, **settings}
    )


def produce(subject: Subject, topic: str, *, partitions: int, acks: Acks, size: int, records: int) -> float:
    """Produce and wait for the answers; return records per second.

    Raises:
        RuntimeError: not all of them are in the topic.
    """
    # Its queue has room for all: how fast Python fills it again must not decide.
    unbounded = {"queue.buffering.max.messages": 0, "queue.buffering.max.kbytes": 1_000_000}
    producer = make_producer(subject, acks, **unbounded)
    await_leaders(producer, topic, partitions)
    some: list[dict[str, object]] = [{"value": os.urandom(size // 2).hex().encode()}] * _PRODUCED_AT_ONCE
    begun = time.perf_counter()
    for _ in range(records // _PRODUCED_AT_ONCE):
        producer.produce_batch(topic, some)
    left = producer.flush(TIMEOUT_S)
    rate = records / (time.perf_counter() - begun)
    producer.close()
    stored = stored_in(subject, topic, partitions)
    if left or stored != records:
        raise RuntimeError(f"{subject.name}: {stored} of {records} records stored, {left} without an answer")
    return rate


def stored_in(subject: Subject, topic: str, partitions: int) -> int:
    consumer = make_consumer(subject)
    stored = 0
    for partition in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
        stored += high - low
    consumer.close()
    return stored


def consume(subject: Subject, topic: str, *, partitions: int, records: int) -> float:
    """Read all of a topic from the beginning, several times; return records per second."""
    seconds = sum(_seconds_to_consume(subject, topic, partitions, records) for _ in range(CONSUME_PASSES))
    return CONSUME_PASSES * records / seconds


def _seconds_to_consume(subject: Subject, topic: str, partitions: int, records: int) -> float:
    """With a consumer of its own: one that has come to the end has a fetch waiting there.

    Raises:
        RuntimeError: records are missing.
    """
    # A full queue would have the client pause for up to a second.
    consumer = make_consumer(
        subject, **{"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_000_000}
    )
    await_leaders(consumer, topic, partitions)
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    got = 0
    while got < records:
        # It waits for as many as it is asked for, or the whole time.
        messages = consumer.consume(min(_CONSUMED_AT_ONCE, records - got), TIMEOUT_S)
        if not messages or any(message.error() is not None for message in (messages[0], messages[-1])):
            raise RuntimeError(f"{subject.name}: {got} of {records} records arrived")
        got += len(messages)
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def latency_p99_ms(subject: Subject, acks: Acks, seconds: float) -> float:
    """From a producer's ``produce`` to the consumer's ``poll``, at a steady rate."""
    latencies_ms: list[float] = []
    with new_topic(subject, partitions=1, acks=acks) as topic:
        producer = make_producer(subject, acks, **{"linger.ms": 0})
        consumer = make_consumer(subject)
        await_leaders(producer, topic, 1)
        await_leaders(consumer, topic, 1)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        records = int((seconds + LATENCY_WARM_S) * LATENCY_RECORDS_PER_S)
        sending = threading.Thread(target=_produce_steadily, args=(producer, topic, records))
        sending.start()
        for number in range(records):
            message = consumer.poll(TIMEOUT_S)
            now_ns = time.perf_counter_ns()
            value = None if message is None or message.error() is not None else message.value()
            if value is None:
                raise RuntimeError(f"{subject.name}: {number} of {records} records arrived")
            if number >= LATENCY_WARM_S * LATENCY_RECORDS_PER_S:
                latencies_ms.append((now_ns - int(value)) / 1e6)
        sending.join()
        producer.flush(TIMEOUT_S)
        producer.close()
        consumer.close()
    return percentile(latencies_ms, 0.99)


def _produce_steadily(producer: Producer, topic: str, records: int) -> None:
    begun = time.perf_counter()
    for number in range(records):
        pause_s = begun + number / LATENCY_RECORDS_PER_S - time.perf_counter()
        if pause_s > 0:
            time.sleep(pause_s)
        producer.produce(topic, b"%0100d" % time.perf_counter_ns())
        producer.poll(0)


# ── rounds ──


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: what it is, and whether more of it is better."""

    what: str
    unit: str
    goal: float
    at_most: bool = False


@dataclass(slots=True)
class Results:
    """The values of each broker for each figure, round by round."""

    values: dict[Figure, dict[str, list[float]]] = field(default_factory=dict[Figure, dict[str, list[float]]])

    def add(self, figure: Figure, subject: Subject, value: float) -> None:
        self.values.setdefault(figure, {}).setdefault(subject.name, []).append(value)


@dataclass(slots=True)
class CpuMeter:
    """CPU seconds of a broker by the kind of work it had."""

    subject: Subject
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def during(self, work: str) -> Generator[None]:
        before = cpu_seconds(self.subject.pid)
        yield
        self.seconds[work] = self.seconds.get(work, 0.0) + cpu_seconds(self.subject.pid) - before


def throughput_round(subjects: list[Subject], scale: Scale, results: Results) -> None:
    """All produce and consume figures once, each for one broker after the other."""
    meters = [CpuMeter(subject) for subject in subjects]
    for size in SIZES_BYTES:
        for partitions in PARTITIONS:
            for acks in ACKS:
                for meter in meters:
                    _produce_and_consume(meter, size, partitions, acks, scale, results)
    for meter in meters:
        total = sum(meter.seconds.values())
        for work, seconds in [*meter.seconds.items(), ("all of it", total)]:
            results.add(Figure(f"broker CPU: {work}", "s", CPU_GOAL, at_most=True), meter.subject, seconds)


def _produce_and_consume(
    meter: CpuMeter, size: int, partitions: int, acks: Acks, scale: Scale, results: Results
) -> None:
    subject, records = meter.subject, scale.records[size]
    what = f"{size} B, {partitions} partition{'s' if partitions > 1 else ''}"
    with new_topic(subject, partitions=partitions, acks=acks) as topic:
        # What earlier work left to be written is not to be waited for in this one.
        os.sync()
        with meter.during(f"produce, acks={acks}"):
            rate = produce(subject, topic, partitions=partitions, acks=acks, size=size, records=records)
        results.add(Figure(f"produce {what}, acks={acks}", "records/s", PRODUCE_GOAL), subject, rate)
        if acks == "1":
            with meter.during("consume"):
                rate = consume(subject, topic, partitions=partitions, records=records)
            results.add(Figure(f"consume {what}", "records/s", CONSUME_GOAL), subject, rate)


def in_alternating_order(subjects: list[Subject], round_number: int) -> list[Subject]:
    """Alternate the order: the second broker meets the first one's caches and queues."""
    return subjects if round_number % 2 == 0 else subjects[::-1]


def measure_starts(makers: list[Maker], scale: Scale, results: Results, directory: Path) -> None:
    """Start each on an empty directory, again and again, with no other broker there."""
    # The first one is for the page cache.
    for number in range(scale.starts + 1):
        for kind, make in enumerate(makers):
            subject = make(directory / f"start-{kind}-{number}")
            try:
                seconds, memory_mb = subject.start(), resident_mb(subject.pid)
            finally:
                subject.stop()
            if number:
                results.add(
                    Figure("start to the first Metadata answer", "s", START_GOAL, at_most=True),
                    subject,
                    seconds,
                )
                results.add(
                    Figure("resident after the start", "MB", MEMORY_GOAL, at_most=True), subject, memory_mb
                )


@contextmanager
def running(makers: Sequence[Maker]) -> Generator[list[Subject]]:
    """Start the subjects, each in a directory of its own, which is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary, ExitStack() as stack:
        subjects: list[Subject] = []
        for number, make in enumerate(makers):
            subject = make(Path(temporary) / str(number))
            stack.callback(subject.stop)
            subject.start()
            subjects.append(subject)
        yield subjects


def measure_work(makers: list[Maker], scale: Scale, results: Results) -> None:
    with running(makers) as subjects:
        say("warming up")
        throughput_round(subjects, scale, Results())
        for number in range(scale.rounds):
            say(f"produce and consume, round {number + 1} of {scale.rounds}")
            throughput_round(in_alternating_order(subjects, number), scale, results)
        for number in range(scale.rounds):
            say(f"latency, round {number + 1} of {scale.rounds}")
            for acks in ACKS:
                what = f"p99 of produce to consume at {LATENCY_RECORDS_PER_S:,} records/s, acks={acks}"
                for subject in in_alternating_order(subjects, number):
                    figure = Figure(what, "ms", LATENCY_GOAL, at_most=True)
                    results.add(figure, subject, latency_p99_ms(subject, acks, scale.latency_s))
        for subject in subjects:
            memory_mb = resident_mb(subject.pid)
            results.add(
                Figure("resident after all that", "MB", MEMORY_GOAL, at_most=True), subject, memory_mb
            )


def say(progress: str) -> None:
    print(f"… {progress}", file=sys.stderr, flush=True)


# ── the table ──


def number_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def row_of(figure: Figure, by_name: dict[str, list[float]], names: list[str]) -> list[str]:
    cells = [f"{number_text(statistics.median(by_name[name]))} {figure.unit}" for name in names]
    sign = "≤" if figure.at_most else "≥"
    if len(names) < 2:
        return [figure.what, *cells]
    ours, yardstick = (by_name[name] for name in names)
    comparison = Comparison(ours=ours, yardstick=yardstick)
    ratio, ratios = comparison.ratio, comparison.ratios
    is_met = ratio <= figure.goal if figure.at_most else ratio >= figure.goal
    spread = f"{ratio:.2f} × ({min(ratios):.2f}–{max(ratios):.2f})"
    return [figure.what, *cells, spread, f"{sign} {figure.goal:g} ×", "met" if is_met else "NOT met"]


def print_table(results: Results, names: list[str]) -> None:
    head = ["what", *names]
    if len(names) == 2:
        head += ["ratio (rounds)", "goal", ""]
    rows = [head, *(row_of(figure, by_name, names) for figure, by_name in results.values.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    rows.insert(1, ["-" * width for width in widths])
    for row in rows:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Stele's Kafka listener beside Apache Kafka, in the same run."
    )
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    parser.add_argument("--only", choices=["stele", "kafka"], help="rates of one of them, without ratios")
    parser.add_argument("--rounds", type=int, help=f"instead of {FULL.rounds}")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    scale = replace(scale, rounds=options.rounds or scale.rounds)
    kinds: dict[str, type[SteleSubject | KafkaSubject]] = {"stele": SteleSubject, "kafka": KafkaSubject}
    chosen = [kind for name, kind in kinds.items() if options.only in (None, name)]
    results = Results()
    try:
        with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
            say("starts")
            measure_starts([*chosen], scale, results, Path(temporary))
        measure_work([*chosen], scale, results)
    except KafkaUnavailable as missing:
        # Not a failure of the benchmarks that need nothing but Python.
        print(f"not measured: {missing}")
        return
    count_text = ", ".join(f"{records:,} of {size} B" for size, records in scale.records.items())
    print(
        f"confluent-kafka as the client of {' and '.join(kind.name for kind in chosen)} (Kafka {VERSION}):"
        f" records {count_text}; medians of {scale.rounds} rounds in turn, {scale.starts} starts"
    )
    print_table(results, [kind.name for kind in chosen])


if __name__ == "__main__":
    main()
