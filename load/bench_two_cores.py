"""Measure what a second core with a broker of its own adds.

Two brokers, each pinned to a core and with partitions of its own, are compared with one broker that may use both cores
(ADR-0050). Two clients drive them; each has connections and a partition of its own. They share the cores with the
brokers, and send prepared bytes.

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

from .bench_request_cost import HOST, answer_to, drive_in_turns, exchanges, prepare
from .harness import Benchmark, Rounds
from .kafka_frames import connect
from .process_usage import pinned, process_cpu_s
from .results import Measure, at_least
from .subjects import QUIET, THIS, environment_of

CLIENTS = 2
# What ADR-0050 asks of two cores.
GOAL = 1.6
# The requests of bench_request_cost that are sent, and on how many connections per client. With fewer the broker waits
# for requests now and then.
CONNECTIONS = {
    "Kafka Produce, 100 B, acks=1, 20 connections": 16,
    "Kafka Fetch of 16 KB, 5 connections": 8,
    "HTTP, JSON record, acks=1, 16 connections": 16,
}
# Connections are made meanwhile.
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


def drive(
    what: str, client: int, port: int, cores: frozenset[int], start_s: float, seconds: float
) -> tuple[int, float, float]:
    """Send requests from ``start_s`` on, a time of ``time.monotonic``, which all processes share.

    Return how many there were, and when the first began and the last ended.
    """
    os.sched_setaffinity(0, cores)
    (exchange,) = (exchange for exchange in exchanges(1, client) if exchange.what == what)
    answer_bytes = len(answer_to(exchange.request, port, exchange.listener))
    requests = 0
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(HOST, port)) for _ in range(CONNECTIONS[what])]
        time.sleep(max(0.0, start_s - time.monotonic()))
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + seconds:
            drive_in_turns(connections, exchange, len(connections), answer_bytes)
            requests += len(connections)
        return requests, begun_s, time.monotonic()


def measure(
    pools: Sequence[ProcessPoolExecutor], setup: Setup, what: str, seconds: float
) -> tuple[float, float]:
    """Return requests per second, and per CPU second of the brokers."""
    (exchange,) = (exchange for exchange in exchanges(1) if exchange.what == what)
    start_s = time.monotonic() + _PREPARE_S
    running = [
        pool.submit(
            drive,
            what,
            client,
            exchange.port(setup.brokers[client % len(setup.brokers)]),
            setup.client_cores[client],
            start_s,
            seconds,
        )
        for client, pool in enumerate(pools)
    ]
    time.sleep(max(0.0, start_s - time.monotonic()))
    before_s = _cpu_s(setup.brokers)
    requests, begun_s, ended_s = zip(*(future.result(seconds + 60) for future in running), strict=True)
    cpu_s = _cpu_s(setup.brokers) - before_s
    return sum(requests) / (max(ended_s) - min(begun_s)), sum(requests) / cpu_s


def _cpu_s(brokers: Sequence[BrokerProcess]) -> float:
    return sum(process_cpu_s(broker.pid) for broker in brokers)


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
        # A pool of its own for each client: all must run at once.
        pools = [
            stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            for _ in range(CLIENTS)
        ]
        two = Setup(brokers=brokers[1:], client_cores=[frozenset({core}) for core in cores])
        one = Setup(brokers=brokers[:1], client_cores=[frozenset(cores)] * CLIENTS)
        rounds = Rounds()
        for broker in brokers:
            for client in range(CLIENTS):
                prepare(broker, client)
        for what in CONNECTIONS:
            if options.only not in what:
                continue
            for number in range(options.rounds + 1):
                for setup in (two, one) if number % 2 else (one, two):
                    rate, of_cpu = measure(pools, setup, what, options.seconds)
                    # The first round is for warmth.
                    if number:
                        rounds.add(what, "rate", rate, is_stele=setup is two)
                        rounds.add(what, "cpu", of_cpu, is_stele=setup is two)
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
