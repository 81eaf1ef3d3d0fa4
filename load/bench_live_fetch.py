"""Measure CPU time of the broker for a Fetch that waits for its record.

This is what a consumer at the end of a log sends: it waits, a record is appended, and it returns the record. System
calls and threads are included; what the produce costs is measured alone and subtracted. ``--against TREE`` measures
the broker of another source tree in turn.
"""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from stele.broker_process import BrokerProcess, run_broker
from stele.wire.record_batch import build_values

from . import kafka_frames as frames
from .bench_fetch_sessions import TOPIC, fetch_request, read_fetch
from .bench_request_cost import HOST
from .compare_brokers import THIS, environment_of
from .measure import in_turn, report
from .process_usage import process_cpu_s

GOAL_US = 50.0
SEVERAL = 6
OTHER_TOPIC = "other"
_WAIT_MS = 30_000


class LiveConsumer:
    """Reads all ``partitions`` of the topic, of which the first gets records."""

    def __init__(self, port: int, *, partitions: int, has_session: bool) -> None:
        self._consumer = frames.connect(HOST, port)
        self._producer = frames.connect(HOST, port)
        self._session, self._epoch = 0, 0 if has_session else -1
        self._offsets = dict.fromkeys(range(partitions), 0)
        self._changed = dict(self._offsets)
        batch = bytes(build_values([b"x" * 100], time.time_ns() // 1_000_000))
        self._produce = frames.produce_request(TOPIC, batch, acks=1)
        self._produce_elsewhere = frames.produce_request(OTHER_TOPIC, batch, acks=1)
        self._fetch()
        while self._changed:
            self._fetch()

    def _send(self, max_wait_ms: int) -> None:
        named = self._offsets if self._epoch < 0 else self._changed
        self._consumer.sendall(
            fetch_request(named, session=self._session, epoch=self._epoch, max_wait_ms=max_wait_ms)
        )

    def _receive(self) -> None:
        session, ends = read_fetch(frames.receive(self._consumer))
        if self._epoch >= 0:
            self._session, self._epoch = session, self._epoch + 1
        self._changed = {index: end for index, end in ends.items() if end != self._offsets[index]}
        self._offsets |= self._changed

    def _fetch(self) -> None:
        self._send(0)
        self._receive()

    def round(self) -> None:
        self._send(_WAIT_MS)
        _ask(self._producer, self._produce)
        self._receive()

    def append_elsewhere(self) -> None:
        _ask(self._producer, self._produce_elsewhere)


def _ask(connection: socket.socket, request: bytes) -> None:
    connection.sendall(request)
    frames.check_produce(frames.receive(connection))


def measured_us(pid: int, rounds: int, work: Callable[[], None]) -> float:
    begun_s = process_cpu_s(pid)
    for _ in range(rounds):
        work()
    return (process_cpu_s(pid) - begun_s) / rounds * 1e6


def cost_us(consumer: LiveConsumer, pid: int, requests: int) -> float:
    """Return microseconds of CPU time of process ``pid`` per Fetch."""
    return measured_us(pid, requests, consumer.round) - measured_us(pid, requests, consumer.append_elsewhere)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, default=THIS, help="another source tree (default: this one)")
    parser.add_argument("--rounds", type=int, default=7, help="runs per side and figure (default: 7)")
    parser.add_argument("--requests", type=int, default=1000, help="requests per run (default: 1000)")
    options = parser.parse_args()
    with ExitStack() as stack:
        brokers: list[BrokerProcess] = []
        for tree in (THIS, options.against.resolve()):
            arguments = ("--log-level", "warning", "--set", f"num_partitions={SEVERAL}")
            brokers.append(
                stack.enter_context(run_broker(arguments=arguments, environment=environment_of(tree)))
            )
            for topic in (TOPIC, OTHER_TOPIC):
                frames.make_topic(HOST, brokers[-1].kafka_port, topic)
        for has_session in (False, True):
            for partitions in (1, SEVERAL):
                ours, theirs = (
                    partial(
                        cost_us,
                        LiveConsumer(broker.kafka_port, partitions=partitions, has_session=has_session),
                        broker.pid,
                        options.requests,
                    )
                    for broker in brokers
                )
                session = "in a session" if has_session else "without a session"
                comparison = in_turn(ours, theirs, rounds=options.rounds)
                report(
                    f"Kafka Fetch that waits for a record, partitions: {partitions}, {session}"
                    f" (goal ≤ {GOAL_US:g} µs)",
                    comparison,
                    unit="µs of CPU",
                    yardstick=str(options.against),
                    goal=1.0,
                    at_most=True,
                )


if __name__ == "__main__":
    main()
