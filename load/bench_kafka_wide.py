"""Compare what a consumer of many partitions costs the broker with what it costs Apache Kafka.

The consumer is librdkafka, which names all its partitions in each Fetch, or Java's, which has a fetch session. Records
of 100 B arrive at a steady rate while it reads; with ``--per-s 20``, nearly all partitions are idle. Both brokers are
up, and only one of them has work at a time. The figure is broker CPU per second, produce included.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager

from confluent_kafka import OFFSET_END

from .apache_kafka import java, libs
from .harness import Benchmark, Rounds
from .kafka_clients import TIMEOUT_S, SteadyProducer, make_consumer, new_topic
from .results import at_most
from .subjects import Subject, in_alternating_order, stele_and_kafka

# Before the measurement begins: connections, sessions, code paths.
WARM_S = 3.0
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
def librdkafka_consumer(subject: Subject, topic: str, partitions: int) -> Generator[Arrivals]:
    """A consumer of all partitions, which names all of them in each Fetch."""
    consumer = make_consumer(subject, topic, partitions, OFFSET_END)
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


CONSUMERS = {"librdkafka": librdkafka_consumer, "Java": java_consumer}


def measure_round(
    subjects: Sequence[Subject], partitions: int, per_s: int, seconds: float, rounds: Rounds
) -> None:
    """Measure each figure once, for one broker after the other."""
    for consumer_name, consumer in CONSUMERS.items():
        what = f"{partitions:,} partitions, {per_s:,} records/s, {consumer_name}: CPU time"
        for subject in subjects:
            with ExitStack() as stack:
                topic = stack.enter_context(new_topic(subject, partitions=partitions))
                producer = SteadyProducer(subject, topic, partitions=partitions, per_s=per_s, acks="1")
                stack.callback(producer.end)
                arrivals = stack.enter_context(consumer(subject, topic, partitions))
                if not arrivals.first.wait(TIMEOUT_S):
                    raise RuntimeError(f"{subject.name}: no record reached the consumer")
                used_ms, arrived_per_s = _used_and_arrived(subject, arrivals, seconds)
            rounds.add(what, "cpu", used_ms, is_stele=subject.is_stele)
            # Less work must not look like less cost.
            rounds.add(what, "arrived", 100 * arrived_per_s / per_s, is_stele=subject.is_stele)


def _used_and_arrived(subject: Subject, arrivals: Arrivals, seconds: float) -> tuple[float, float]:
    """Return milliseconds of CPU and records, each per second."""
    time.sleep(WARM_S)
    got, before_s, begun_s = arrivals.count, subject.cpu_s(), time.perf_counter()
    time.sleep(seconds)
    used_s, elapsed_s = subject.cpu_s() - before_s, time.perf_counter() - begun_s
    return used_s / elapsed_s * 1000, (arrivals.count - got) / elapsed_s


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=2)
    bench.parser.add_argument(
        "--only", choices=["stele", "kafka"], help="figures of one of them, without ratios"
    )
    bench.add("--partitions", type=int, default=1000, quick=100, help="default: 1000")
    bench.add("--per-s", type=int, default=2000, quick=200, help="records per second in all (default: 2000)")
    bench.add("--seconds", type=float, default=8.0, quick=1.0, help="of each measurement (default: 8)")
    with bench.run() as options, stele_and_kafka(options.only) as subjects:
        rounds = Rounds()
        # The first round is for warmth.
        for number in range(options.rounds + 1):
            bench.say(f"round {number} of {options.rounds}")
            seconds, into = (options.seconds, rounds) if number else (0.5, Rounds())
            ordered = in_alternating_order(subjects, number)
            measure_round(ordered, options.partitions, options.per_s, seconds, into)
        for what in rounds.values:
            bench.row(
                what,
                table="cost",
                baseline="Kafka",
                value=rounds.measure(what, "cpu", "ms", at_most(0.6)),
                measures={"arrived": rounds.measure(what, "arrived", "%")},
            )


if __name__ == "__main__":
    main()
