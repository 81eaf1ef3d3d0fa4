"""Measure what a second core with a broker of its own adds.

Two brokers, each pinned to a core and with partitions of its own, are compared with one broker that may use both
cores, and with one broker that has a single core (ADR-0050). Two clients drive them; each has connections and a
partition of its own. They share the cores with the brokers, so they are as cheap as clients can be, and their CPU time
is reported.

Three ratios are printed:

- the throughput of two brokers to one broker on both cores: what the whole machine gains, clients included;
- the same per CPU second of the brokers, which clients and other work on the machine change little;
- the ceiling: what the throughput would gain if the clients cost nothing, computed from the CPU time per request. The
  one broker is bound to one core by its event loop, so the ceiling is two times the ratio per CPU second.

On a busy machine the throughput says little: the scheduler gives two brokers two shares of the cores. The ratio per
CPU second still counts. The columns ``idle`` and ``other`` are the parts of both cores that nothing used, and that
other processes used.

The two brokers share no metadata. Brokers of one cluster do, so these are upper bounds for them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from stele.broker_process import BrokerProcess, run_broker

from .bench_request_cost import HOST, answer_to, batch_of, http_produce
from .cheap_client import TIMEOUT_S, Drive, Kind, drive
from .kafka_frames import check_produce, connect, fetch_request, make_topic, produce_request, receive
from .process_usage import process_cpu_s

CLIENTS = 2
# Per client. With fewer the broker waits for requests now and then.
CONNECTIONS = 8
HTTP_CONNECTIONS = 16
IN_FLIGHT = 5
# What ADR-0050 asks of two cores.
GOAL = 1.6
BOTH, TWO, ONE = "one broker, both cores", "two brokers, a core each", "one broker, one core"
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

    name: str
    brokers: Sequence[BrokerProcess]
    client_cores: Sequence[frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run: requests, seconds and CPU seconds.

    ``idle_s`` and ``busy_s`` are those of both cores.
    """

    requests: int
    seconds: float
    broker_s: float
    client_s: float
    idle_s: float
    busy_s: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def rate_of_cpu(self) -> float:
        """Requests per CPU second of the brokers."""
        return self.requests / self.broker_s

    @property
    def broker_us(self) -> float:
        return self.broker_s / self.requests * 1e6

    @property
    def client_us(self) -> float:
        return self.client_s / self.requests * 1e6

    @property
    def broker_cores(self) -> float:
        return self.broker_s / self.seconds

    @property
    def client_share(self) -> float:
        """The clients' part of the CPU time of brokers and clients."""
        return self.client_s / (self.broker_s + self.client_s)

    @property
    def idle_share(self) -> float:
        """The part of both cores that nothing used."""
        return self.idle_s / (self.idle_s + self.busy_s)

    @property
    def other_share(self) -> float:
        """The part of both cores that other processes and the kernel used."""
        return max(0.0, self.busy_s - self.broker_s - self.client_s) / (self.idle_s + self.busy_s)


def ratios(ours: Sequence[Sample], baseline: Sequence[Sample], of: Callable[[Sample], float]) -> list[float]:
    """Return the ratio of each round."""
    return [of(a) / of(b) for a, b in zip(ours, baseline, strict=True)]


def core_times_s(cores: frozenset[int]) -> tuple[float, float]:
    """Return the seconds in which ``cores`` were idle and busy since boot."""
    idle = total = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            # User, nice, system, idle, iowait, irq, softirq and steal; guests are in user and nice.
            ticks = [int(field) for field in fields[:8]]
            idle += ticks[3] + ticks[4]
            total += sum(ticks)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return idle * tick_s, (total - idle) * tick_s


@contextmanager
def pinned(cores: frozenset[int]) -> Generator[None]:
    """Have processes and threads that are started meanwhile inherit ``cores``."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Clients:
    """The client processes."""

    def __init__(self, stack: ExitStack, cores: frozenset[int]) -> None:
        self._cores = cores
        # A pool of its own for each: all must run at once.
        self._pools = [
            stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            for _ in range(CLIENTS)
        ]

    def run(self, setup: Setup, traffic: Traffic, seconds: float) -> Sample:
        """Drive the brokers of ``setup`` with as many clients as it has cores for.

        Raises:
            ConnectionError, ErrorAnswered: see ``cheap_client.drive``.
        """
        start_s = time.monotonic() + _PREPARE_S
        running = [
            pool.submit(drive, _drive_of(setup, traffic, client, start_s, seconds))
            for client, pool in zip(range(len(setup.client_cores)), self._pools, strict=False)
        ]
        time.sleep(max(0.0, start_s - time.monotonic()))
        broker_s, (idle_s, busy_s) = _cpu_s(setup.brokers), core_times_s(self._cores)
        driven = [future.result(seconds + 2 * TIMEOUT_S) for future in running]
        idle_until_s, busy_until_s = core_times_s(self._cores)
        return Sample(
            requests=sum(client.requests for client in driven),
            seconds=max(client.ended_s for client in driven) - min(client.started_s for client in driven),
            broker_s=_cpu_s(setup.brokers) - broker_s,
            client_s=sum(client.cpu_s for client in driven),
            idle_s=idle_until_s - idle_s,
            busy_s=busy_until_s - busy_s,
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
        answer_bytes=len(answer_to(request, port, is_http=traffic.kind == "http")),
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


_COLUMNS: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("requests/s", ",.0f", lambda run: run.rate),
    ("broker µs", ".1f", lambda run: run.broker_us),
    ("client µs", ".1f", lambda run: run.client_us),
    ("broker cores", ".2f", lambda run: run.broker_cores),
    ("clients", ".0%", lambda run: run.client_share),
    ("idle", ".0%", lambda run: run.idle_share),
    ("other", ".0%", lambda run: run.other_share),
)


def report(what: str, samples: Mapping[str, Sequence[Sample]]) -> None:
    """Print the medians of each setup, and the ratios of its rounds."""
    print(what)
    print(f"  {'':<26}" + "".join(f"{title:>14}" for title, _, _ in _COLUMNS))
    for name, runs in samples.items():
        values = (format(median(of(run) for run in runs), style) for _, style, of in _COLUMNS)
        print(f"  {name:<26}" + "".join(f"{value:>14}" for value in values))
    for baseline in (BOTH, ONE):
        print(f"  {TWO} : {baseline}")
        rate = ratios(samples[TWO], samples[baseline], lambda run: run.rate)
        per_cpu = ratios(samples[TWO], samples[baseline], lambda run: run.rate_of_cpu)
        is_met = "met" if median(rate) >= GOAL else "NOT met"
        _print_ratio("throughput", rate, f"; goal ≥ {GOAL:g} x: {is_met}" if baseline == BOTH else "")
        _print_ratio("per CPU second of the brokers", per_cpu)
        if baseline == BOTH:
            _print_ratio("ceiling, clients at no cost", [CLIENTS * ratio for ratio in per_cpu])


def _print_ratio(what: str, values: Sequence[float], goal: str = "") -> None:
    print(
        f"    {what:<30}{median(values):>6.2f} x  (rounds {min(values):.2f} to {max(values):.2f}{goal})",
        flush=True,
    )


def setups_of(cores: Sequence[int], brokers: Sequence[BrokerProcess]) -> list[Setup]:
    """Return what is compared.

    The first of ``brokers`` may use all ``cores``; each of the others is pinned to one.
    """
    every, each = frozenset(cores), [frozenset({core}) for core in cores]
    return [
        Setup(name=BOTH, brokers=brokers[:1], client_cores=[every] * CLIENTS),
        Setup(name=TWO, brokers=brokers[1:], client_cores=each),
        Setup(name=ONE, brokers=brokers[1:2], client_cores=each[:1]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="runs per setup and kind of request (default: 7)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a run (default: 1)")
    parser.add_argument("--only", default="", help="requests whose names contain this text")
    options = parser.parse_args()
    chosen = [traffic for traffic in traffics() if options.only in traffic.what]
    cores = sorted(os.sched_getaffinity(0))[:CLIENTS]
    if len(cores) < CLIENTS:
        print("not measured: this needs two cores")
        return
    with ExitStack() as stack:
        brokers: list[BrokerProcess] = []
        for allowed in (cores, *([core] for core in cores)):
            with pinned(frozenset(allowed)):
                brokers.append(
                    stack.enter_context(
                        run_broker(arguments=("--log-level", "warning"), start_timeout_s=_START_TIMEOUT_S)
                    )
                )
        clients = Clients(stack, frozenset(cores))
        setups = setups_of(cores, brokers)
        load = os.getloadavg()[0]
        print(f"cores {cores}, load average {load:.1f} at the start, medians of {options.rounds} rounds")
        for traffic in chosen:
            for broker in brokers:
                prepare(broker, traffic)
            samples: dict[str, list[Sample]] = {setup.name: [] for setup in setups}
            for number in range(options.rounds + 1):
                turn = number % len(setups)
                for setup in (*setups[turn:], *setups[:turn]):
                    sample = clients.run(setup, traffic, options.seconds)
                    # The first round is for warmth.
                    if number:
                        samples[setup.name].append(sample)
            report(traffic.what, samples)
        print(f"load average {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
