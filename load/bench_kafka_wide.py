"""Compare what a consumer of many partitions costs the broker and Apache Kafka.

The consumer is librdkafka, which names all its partitions in each Fetch, or Java's, which has a fetch session. Records
of 100 B arrive at a steady rate while it reads: a few of them, so that nearly all partitions are idle, or some for each
partition. Both brokers are up, and only one of them has work at a time. The figure is broker CPU per second, produce
included; "without a consumer" is produce alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from itertools import count

from confluent_kafka import OFFSET_END, Producer, TopicPartition

from .apache_kafka import VERSION, KafkaUnavailable, java, libs
from .bench_kafka_throughput import (
    TIMEOUT_S,
    Figure,
    KafkaSubject,
    Results,
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
from .process_usage import cpu_seconds

PARTITIONS = 1000
SECONDS = 10.0
ROUNDS = 3
CPU_GOAL = 0.6
# Records per second, in all: nearly all partitions idle, and some for each.
QUIET_RATE = 20
RATE_PER_PARTITION = 2
# Before the measurement begins: connections, sessions, code paths.
WARM_S = 3.0
_TURNS_PER_S = 100
_VALUE = b"x" * 100
_CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class Arrivals:
    """Counts records that a consumer has got."""

    def __init__(self) -> None:
        self.count = 0
        self.first = threading.Event()

    def add(self, records: int) -> None:
        self.count += records
        if self.count:
            self.first.set()


@contextmanager
def steady_producer(subject: Subject, topic: str, partitions: int, rate: int) -> Generator[None]:
    """Produce ``rate`` records per second until the end of the block.

    They go to all partitions in turn.

    Raises:
        RuntimeError: a record had no answer or was refused.
    """
    producer = make_producer(subject, "1")
    await_leaders(producer, topic, partitions)
    is_over = threading.Event()
    refused: list[object] = []

    def answered(error: object, message: object) -> None:
        if error is not None:
            refused.append(error)

    def run() -> None:
        begun, sent = time.perf_counter(), 0
        next_partition = count()
        while not is_over.wait(1 / _TURNS_PER_S):
            due = int((time.perf_counter() - begun) * rate)
            for _ in range(due - sent):
                partition = next(next_partition) % partitions
                producer.produce(topic, _VALUE, partition=partition, on_delivery=answered)
            sent = due
            producer.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        left = _close(producer)
    if left or refused:
        raise RuntimeError(f"{subject.name}: {left} records without an answer, refused: {refused[:1]}")


def _close(producer: Producer) -> int:
    left = producer.flush(TIMEOUT_S)
    producer.close()
    return left


@contextmanager
def librdkafka_consumer(subject: Subject, topic: str, partitions: int) -> Generator[Arrivals]:
    """A consumer of all partitions, which names all of them in each Fetch."""
    consumer = make_consumer(subject)
    await_leaders(consumer, topic, partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_END) for partition in range(partitions)])
    arrivals = Arrivals()
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            arrivals.add(len(consumer.consume(1000, 0.1)))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield arrivals
    finally:
        is_over.set()
        thread.join()
        consumer.close()


@contextmanager
def java_consumer(subject: Subject, topic: str, partitions: int) -> Generator[Arrivals]:
    """Kafka's console consumer, which has a fetch session."""
    command = [java(), "-cp", f"{libs()}/*", _CONSOLE_CONSUMER]
    command += ["--bootstrap-server", subject.bootstrap, "--topic", topic]
    arrivals = Arrivals()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        printed = process.stdout

        def run() -> None:
            for _ in printed:
                arrivals.add(1)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield arrivals
        finally:
            process.terminate()
            thread.join()


CONSUMERS = {
    "librdkafka's consumer": librdkafka_consumer,
    "Java's consumer": java_consumer,
}


def measure_round(
    subjects: list[Subject], partitions: int, seconds: float, results: Results, shares: dict[str, list[float]]
) -> None:
    """Measure each figure once, for one broker after the other.

    ``shares`` gets the part of the records that reached a consumer in time, by the name of the broker.
    """
    rates = {
        f"{QUIET_RATE} records/s in all": QUIET_RATE,
        f"{RATE_PER_PARTITION} records/s per partition": RATE_PER_PARTITION * partitions,
    }
    for rate_name, rate in rates.items():
        for consumer_name, consumer in {"without a consumer": None, **CONSUMERS}.items():
            what = f"{rate_name}, {consumer_name}"
            for subject in subjects:
                with ExitStack() as stack:
                    topic = stack.enter_context(new_topic(subject, partitions=partitions, acks="1"))
                    stack.enter_context(steady_producer(subject, topic, partitions, rate))
                    arrivals = Arrivals()
                    if consumer is not None:
                        arrivals = stack.enter_context(consumer(subject, topic, partitions))
                        if not arrivals.first.wait(TIMEOUT_S):
                            raise RuntimeError(f"{subject.name}: no record reached {consumer_name}")
                    used_ms, arrived = _used_and_arrived(subject, arrivals, seconds)
                results.add(Figure(what, "ms/s", CPU_GOAL, at_most=True), subject, used_ms)
                if consumer is not None:
                    # Less work must not look like less cost.
                    shares.setdefault(subject.name, []).append(arrived / rate)


def _used_and_arrived(subject: Subject, arrivals: Arrivals, seconds: float) -> tuple[float, float]:
    """Return milliseconds of CPU and records, each per second."""
    time.sleep(WARM_S)
    got, before, begun = arrivals.count, cpu_seconds(subject.pid), time.perf_counter()
    time.sleep(seconds)
    used_s, elapsed_s = cpu_seconds(subject.pid) - before, time.perf_counter() - begun
    return used_s / elapsed_s * 1000, (arrivals.count - got) / elapsed_s


def main() -> None:
    parser = argparse.ArgumentParser(description="What a consumer of many partitions costs the broker.")
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    parser.add_argument("--only", choices=["stele", "kafka"], help="figures of one of them, without ratios")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help=f"instead of {PARTITIONS}")
    parser.add_argument("--rounds", type=int, help=f"instead of {ROUNDS}")
    options = parser.parse_args()
    rounds: int = options.rounds or (1 if options.quick else ROUNDS)
    seconds = SECONDS / 4 if options.quick else SECONDS
    kinds: dict[str, type[SteleSubject | KafkaSubject]] = {"stele": SteleSubject, "kafka": KafkaSubject}
    measured = [kind for name, kind in kinds.items() if options.only in (None, name)]
    results, shares = Results(), dict[str, list[float]]()
    try:
        with running(measured) as subjects:
            say("warming up")
            measure_round(subjects, options.partitions, seconds / 4, Results(), {})
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                turn = in_alternating_order(subjects, number)
                measure_round(turn, options.partitions, seconds, results, shares)
    except KafkaUnavailable as missing:
        print(f"not measured: {missing}")
        return
    print(
        f"broker CPU, {options.partitions:,} partitions, Java client {VERSION} and librdkafka;"
        f" medians of {rounds} rounds in turn, {os.cpu_count()} cores"
    )
    print_table(results, [kind.name for kind in measured])
    for name, of_rounds in shares.items():
        print(f"{name}: of the records {min(of_rounds):.0%} to {max(of_rounds):.0%} arrived in time")


if __name__ == "__main__":
    main()
