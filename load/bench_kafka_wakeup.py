"""Measure the time from a produce to the response of a waiting Fetch.

One consumer is parked in a Fetch (``max_wait_ms`` 5,000, ``min_bytes`` 1), then one record is produced, again and
again, with nothing but sockets; measured is from before the produce is sent to when the fetch's answer is there.
Beside it, in turn: a relay that does nothing but hand bytes of that size from one socket to another, and Apache
Kafka if Java is there.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import statistics
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from stele.wire.record_batch import build_values

from . import kafka_frames as frames
from .apache_kafka import VERSION, KafkaUnavailable, apache_kafka
from .broker_process import running_broker
from .measure import Comparison, percentile
from .yardsticks import yardstick_server

TOPIC = "wakeup"
VALUE_BYTES = 100
MAX_WAIT_MS = 5000
# Between fetch and produce, so that the fetch is parked when the record comes: a hundred times what that takes.
PARK_S = 0.005
TIMEOUT_S = 30.0
# Apache Kafka is faster after its compilers have seen the work some thousand times.
WARM_SAMPLES = 1000
KAFKA_GOAL = 1.0


@dataclass(slots=True)
class Samples:
    """Microseconds from the produce on: until the fetch was answered, until the produce was."""

    fetch_us: list[float] = field(default_factory=list[float])
    produce_us: list[float] = field(default_factory=list[float])


Measure = Callable[[int], Samples]


class ParkedConsumer:
    """A connection that waits for records and one that sends them."""

    def __init__(self, host: str, port: int, topic: str = TOPIC, *, acks: int = 1) -> None:
        frames.make_topic(host, port, topic)
        self._topic = topic
        self._acks = acks
        self._consumer = frames.connect(host, port)
        self._producer = frames.connect(host, port)
        self._waiting = select.poll()
        for connection in (self._consumer, self._producer):
            self._waiting.register(connection, select.POLLIN)
        self._offset = 0

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()

    def measure(self, count: int) -> Samples:
        samples = Samples()
        for _ in range(count):
            self._wake(samples)
        return samples

    def _wake(self, samples: Samples) -> None:
        batch = bytes(build_values([b"x" * VALUE_BYTES], int(time.time() * 1000)))
        produce = frames.produce_request(self._topic, batch, acks=self._acks)
        self._consumer.sendall(frames.fetch_request(self._topic, self._offset, max_wait_ms=MAX_WAIT_MS))
        time.sleep(PARK_S)
        if self._waiting.poll(0):
            raise RuntimeError("the fetch was answered before there was a record")
        times_us: dict[int, float] = {}
        answers: dict[int, bytes] = {}
        begun = time.perf_counter()
        self._producer.sendall(produce)
        while len(answers) < 2:
            for connection in self._readable():
                answers[connection.fileno()] = frames.receive(connection)
                times_us[connection.fileno()] = (time.perf_counter() - begun) * 1e6
        if not frames.check_fetch(answers[self._consumer.fileno()]):
            raise RuntimeError("the fetch was answered without a record")
        self._offset = frames.check_produce(answers[self._producer.fileno()]) + 1
        samples.fetch_us.append(times_us[self._consumer.fileno()])
        samples.produce_us.append(times_us[self._producer.fileno()])

    def _readable(self) -> list[socket.socket]:
        ready = {fd for fd, _ in self._waiting.poll(TIMEOUT_S * 1000)}
        if not ready:
            raise TimeoutError(f"no answer in {TIMEOUT_S:g} s")
        return [connection for connection in (self._consumer, self._producer) if connection.fileno() in ready]


@contextmanager
def parked_consumer(host: str, port: int) -> Generator[Measure]:
    consumer = ParkedConsumer(host, port)
    try:
        yield consumer.measure
    finally:
        consumer.close()


@contextmanager
def relay() -> Generator[Measure]:
    """The least that can be: as many bytes as a produce has, in at one socket and out at the other."""
    payload = frames.produce_request(TOPIC, bytes(build_values([b"x" * VALUE_BYTES], 0)), acks=1)
    with yardstick_server("relay") as port, ExitStack() as stack:
        receiver, sender = (stack.enter_context(frames.connect("127.0.0.1", port)) for _ in range(2))

        def measure(count: int) -> Samples:
            samples = Samples()
            for _ in range(count):
                time.sleep(PARK_S)
                begun = time.perf_counter()
                sender.sendall(payload)
                got = 0
                while got < len(payload):
                    got += len(receiver.recv(len(payload) - got))
                samples.fetch_us.append((time.perf_counter() - begun) * 1e6)
            return samples

        yield measure


@contextmanager
def stele() -> Generator[Measure]:
    with (
        running_broker("--log-level", "warning") as broker,
        parked_consumer(broker.host, broker.kafka_port) as measure,
    ):
        yield measure


@contextmanager
def kafka() -> Generator[Measure]:
    with apache_kafka() as broker, parked_consumer(broker.host, broker.port) as measure:
        yield measure


def print_results(rounds: dict[str, list[Samples]]) -> None:
    print(f"{'':<14}{'median':>10}{'p99':>10}   produce answered, median")
    for name, samples in rounds.items():
        median = statistics.median(statistics.median(one.fetch_us) for one in samples)
        p99 = statistics.median(percentile(one.fetch_us, 0.99) for one in samples)
        answered = [statistics.median(one.produce_us) for one in samples if one.produce_us]
        produce = f"{statistics.median(answered):>13,.0f} µs" if answered else ""
        print(f"{name:<14}{median:>7,.0f} µs{p99:>7,.0f} µs{produce}")
    ours = rounds.get("Stele")
    if ours is None:
        return
    for name, samples in rounds.items():
        if name == "Stele":
            continue
        for what, share in (("median", 0.5), ("p99", 0.99)):
            comparison = Comparison(
                ours=[percentile(one.fetch_us, share) for one in ours],
                yardstick=[percentile(one.fetch_us, share) for one in samples],
            )
            ratio, ratios = comparison.ratio, comparison.ratios
            goal = ""
            if name != "relay":
                goal = f"; goal ≤ {KAFKA_GOAL:g} x: {'met' if ratio <= KAFKA_GOAL else 'NOT met'}"
            print(
                f"{what:>6} of Stele / {name:<13}{ratio:>6.2f} x  (rounds {min(ratios):.2f} to {max(ratios):.2f}{goal})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The wake-up of a parked Fetch, beside a relay and Apache Kafka."
    )
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    parser.add_argument("--only", choices=["stele", "kafka"], help="one of them, beside the relay")
    options = parser.parse_args()
    count, round_count = (150, 2) if options.quick else (600, 5)
    with ExitStack() as stack:
        measures: dict[str, Measure] = {}
        if options.only != "kafka":
            measures["Stele"] = stack.enter_context(stele())
        measures["relay"] = stack.enter_context(relay())
        if options.only != "stele":
            try:
                measures[f"Kafka {VERSION}"] = stack.enter_context(kafka())
            except KafkaUnavailable as missing:
                print(f"without Apache Kafka: {missing}")
        rounds: dict[str, list[Samples]] = {name: [] for name in measures}
        for measure in measures.values():
            measure(WARM_SAMPLES // (4 if options.quick else 1))
        for number in range(round_count):
            print(f"… round {number + 1} of {round_count}", file=sys.stderr, flush=True)
            for name, measure in measures.items():
                rounds[name].append(measure(count))
    print(
        f"wake-up of a parked fetch by a produce of {VALUE_BYTES} B with acks=1, {count} times in each of"
        f" {round_count} rounds in turn, {os.cpu_count()} cores"
    )
    print_results(rounds)


if __name__ == "__main__":
    main()
