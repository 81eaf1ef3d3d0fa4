"""Measure what a second core with a broker of its own adds.

Two brokers, each pinned to a core and with partitions of its own, are compared with one broker that may use both cores
(ADR-0050). Two clients drive them; each has connections and a partition of its own. They share the cores with the
brokers, so they are as cheap as clients can be.

The rate says what the whole machine gains, clients included. Per CPU second of the brokers, clients and other work on
the machine change little: on a busy machine only that counts, because the scheduler gives two brokers two shares of
the cores. The two brokers share no metadata. Brokers of one cluster do, so these are upper bounds for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median

from stele.broker_process import BrokerProcess, run_broker

from .bench_request_cost import HOST, answer_to, http_produce
from .cheap_client import TIMEOUT_S, Drive, Kind, drive
from .harness import Benchmark, Rounds
from .kafka_frames import (
    batch_of,
    check_produce,
    connect,
    fetch_request,
    make_topic,
    produce_request,
    receive,
)
from .process_usage import pinned, process_cpu_s
from .results import Measure, at_least
from .subjects import QUIET, THIS, environment_of

CLIENTS = 2
# Per client. With fewer the broker waits for requests now and then.
CONNECTIONS = 8
HTTP_CONNECTIONS = 16
IN_FLIGHT = 5
# What ADR-0050 asks of two cores.
GOAL = 1.6
# Connections are made and the first answers checked meanwhile.
_PREPARE_S = 0.2
# A broker on one core of a busy machine takes long.
_START_TIMEOUT_S = 120.0
# Offsets of the HTTP topics keep one number of digits, so answers keep their size.
_FIRST_HTTP_OFFSET = 1_000_000
_PREFILL_RECORDS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One kind of request, for the topic of a client."""

    what: str
    kind: Kind
    topic: str
    request: Callable[[str], bytes]
    in_flight: int = 1
    connections: int = CONNECTIONS

    def port(self, broker: BrokerProcess) -> int:
        return broker.http_port if self.kind == "http" else broker.kafka_port

    def topic_of(self, client: int) -> str:
        return f"{self.topic}-{client}"


def traffics() -> list[Traffic]:
    batch = batch_of(1, 100)
    return [
        Traffic(
            what=f"Kafka Produce, a record of 100 B, acks=1, {IN_FLIGHT} in flight",
            kind="produce",
            topic="bench-produce",
            request=lambda topic: produce_request(topic, batch, acks=1),
            in_flight=IN_FLIGHT,
        ),
        Traffic(
            what="Kafka Fetch of 16 KB, one at a time",
            kind="fetch",
            topic="bench-fetch",
            request=lambda topic: fetch_request(topic, 0, max_wait_ms=0),
        ),
        Traffic(
            what="HTTP, a JSON record, acks=1, one at a time",
            kind="http",
            topic="bench-http",
            request=lambda topic: http_produce(topic, "1"),
            connections=HTTP_CONNECTIONS,
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Brokers, and the cores of the clients that drive them.

    Client ``i`` runs on ``client_cores[i]`` and talks to broker ``i`` modulo their number.
    """

    brokers: Sequence[BrokerProcess]
    client_cores: Sequence[frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run: requests, seconds and CPU seconds of the brokers."""

    requests: int
    seconds: float
    broker_s: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def rate_of_cpu(self) -> float:
        """Requests per CPU second of the brokers."""
        return self.requests / self.broker_s


class Clients:
    """The client processes."""

    def __init__(self, stack: ExitStack) -> None:
        # A pool of its own for each: all must run at once.
        self._pools = [
            stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            for _ in range(CLIENTS)
        ]

    def run(self, setup: Setup, traffic: Traffic, seconds: float) -> Sample:
        """Drive the brokers of ``setup``.

        Raises:
            ConnectionError, ErrorAnswered: see ``cheap_client.drive``.
        """
        start_s = time.monotonic() + _PREPARE_S
        running = [
            pool.submit(drive, _drive_of(setup, traffic, client, start_s, seconds))
            for client, pool in enumerate(self._pools)
        ]
        time.sleep(max(0.0, start_s - time.monotonic()))
        broker_s = _cpu_s(setup.brokers)
        driven = [future.result(seconds + 2 * TIMEOUT_S) for future in running]
        return Sample(
            requests=sum(client.requests for client in driven),
            seconds=max(client.ended_s for client in driven) - min(client.started_s for client in driven),
            broker_s=_cpu_s(setup.brokers) - broker_s,
        )


def _cpu_s(brokers: Sequence[BrokerProcess]) -> float:
    return sum(process_cpu_s(broker.pid) for broker in brokers)


def _drive_of(setup: Setup, traffic: Traffic, client: int, start_s: float, seconds: float) -> Drive:
    port = traffic.port(setup.brokers[client % len(setup.brokers)])
    request = traffic.request(traffic.topic_of(client))
    return Drive(
        kind=traffic.kind,
        host=HOST,
        port=port,
        request=request,
        answer_bytes=len(answer_to(request, port, "http" if traffic.kind == "http" else "kafka")),
        connections=traffic.connections,
        in_flight=traffic.in_flight,
        cores=setup.client_cores[client],
        start_s=start_s,
        seconds=seconds,
    )


def prepare(broker: BrokerProcess, traffic: Traffic) -> None:
    """Make the topics of the clients.

    Fetches find records in them, and offsets over HTTP begin after a million.
    """
    for client in range(CLIENTS):
        topic = traffic.topic_of(client)
        make_topic(HOST, broker.kafka_port, topic)
        if traffic.kind == "fetch":
            batches = [batch_of(16, 1_000)]
        elif traffic.kind == "http":
            batches = [batch_of(_PREFILL_RECORDS, 1)] * (_FIRST_HTTP_OFFSET // _PREFILL_RECORDS)
        else:
            batches = []
        with connect(HOST, broker.kafka_port) as connection:
            for batch in batches:
                connection.sendall(produce_request(topic, batch, acks=1))
                check_produce(receive(connection))


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=7)
    bench.add("--seconds", type=float, default=1.0, quick=0.2, help="length of a run (default: 1)")
    bench.parser.add_argument("--only", default="", help="requests whose names contain this text")
    with bench.run() as options, ExitStack() as stack:
        cores = sorted(os.sched_getaffinity(0))[:CLIENTS]
        if len(cores) < CLIENTS:
            raise SystemExit("this needs two cores")
        brokers: list[BrokerProcess] = []
        for allowed in (cores, *([core] for core in cores)):
            with pinned(frozenset(allowed)):
                broker = run_broker(
                    arguments=QUIET, environment=environment_of(THIS), start_timeout_s=_START_TIMEOUT_S
                )
                brokers.append(stack.enter_context(broker))
        clients = Clients(stack)
        two = Setup(brokers=brokers[1:], client_cores=[frozenset({core}) for core in cores])
        one = Setup(brokers=brokers[:1], client_cores=[frozenset(cores)] * CLIENTS)
        rounds = Rounds()
        for traffic in traffics():
            if options.only not in traffic.what:
                continue
            for broker in brokers:
                prepare(broker, traffic)
            for number in range(options.rounds + 1):
                for setup in (two, one) if number % 2 else (one, two):
                    sample = clients.run(setup, traffic, options.seconds)
                    # The first round is for warmth.
                    if number:
                        rounds.add(traffic.what, "rate", sample.rate, is_stele=setup is two)
                        rounds.add(traffic.what, "cpu", sample.rate_of_cpu, is_stele=setup is two)
        ratios: list[float] = []
        baseline = "one on both"
        for what in rounds.values:
            rate = rounds.measure(what, "rate", "/s", at_least(GOAL))
            ratios.append(median(rate.ratios))
            cpu = rounds.measure(what, "cpu", "per CPU second")
            bench.row(what, baseline=baseline, measures={"rate": rate, "cpu": cpu})
        value = Measure(ratio=ratios)
        what = "two brokers, a core each: requests/s"
        bench.row(what, table="cost", baseline=baseline, is_span=True, value=value)


if __name__ == "__main__":
    main()
