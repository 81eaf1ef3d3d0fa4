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
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median

from stele.broker_process import BrokerProcess, run_broker

from .bench_request_cost import HOST, answer_to, exchanges, prepare
from .cheap_client import TIMEOUT_S, Drive, Kind, drive
from .harness import Benchmark, Rounds
from .process_usage import pinned, process_cpu_s
from .results import Measure, at_least
from .subjects import QUIET, THIS, environment_of

CLIENTS = 2
# Per client. With fewer the broker waits for requests now and then.
CONNECTIONS = {"produce": 8, "fetch": 8, "http": 16}
# What ADR-0050 asks of two cores.
GOAL = 1.6
# The requests of bench_request_cost that are sent.
KINDS: dict[str, Kind] = {
    "Kafka Produce, 100 B, acks=1, 5 in flight": "produce",
    "Kafka Fetch of 16 KB, one at a time": "fetch",
    "HTTP, JSON record, acks=1, 16 connections": "http",
}
# Connections are made and the first answers checked meanwhile.
_PREPARE_S = 0.2
# A broker on one core of a busy machine takes long.
_START_TIMEOUT_S = 120.0


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

    def run(self, setup: Setup, what: str, seconds: float) -> Sample:
        """Drive the brokers of ``setup``.

        Raises:
            ConnectionError, ErrorAnswered: see ``cheap_client.drive``.
        """
        start_s = time.monotonic() + _PREPARE_S
        running = [
            pool.submit(drive, _drive_of(setup, what, client, start_s, seconds))
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


def _drive_of(setup: Setup, what: str, client: int, start_s: float, seconds: float) -> Drive:
    (exchange,) = (exchange for exchange in exchanges(1, client) if exchange.what == what)
    port = exchange.port(setup.brokers[client % len(setup.brokers)])
    return Drive(
        kind=KINDS[what],
        host=HOST,
        port=port,
        request=exchange.request,
        answer_bytes=len(answer_to(exchange.request, port, exchange.listener)),
        connections=CONNECTIONS[KINDS[what]],
        in_flight=exchange.in_flight,
        cores=setup.client_cores[client],
        start_s=start_s,
        seconds=seconds,
    )


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
        for broker in brokers:
            for client in range(CLIENTS):
                prepare(broker, client)
        for what in KINDS:
            if options.only not in what:
                continue
            for number in range(options.rounds + 1):
                for setup in (two, one) if number % 2 else (one, two):
                    sample = clients.run(setup, what, options.seconds)
                    # The first round is for warmth.
                    if number:
                        rounds.add(what, "rate", sample.rate, is_stele=setup is two)
                        rounds.add(what, "cpu", sample.rate_of_cpu, is_stele=setup is two)
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
