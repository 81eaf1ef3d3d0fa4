"""Measure the p99 of single produces beside what holds up a broker: large JSON values, and half-open TLS handshakes.

Clients write and read JSON values of 1 MiB meanwhile; or an attacker sends the first message of a handshake on each of
5,000 connections, and nothing more, and opens another whenever the broker closes one. The yardstick is the same broker
without that.

What is measured is the broker's loop, not how a kernel schedules four busy processes on two cores: the broker has a
core of its own, and on the other one the client that is measured comes before the loads.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from stele import Client
from stele.broker_process import BrokerLogin, run_broker

from .bench_tls import tls_of
from .decoded_reads import ask
from .harness import Benchmark, percentile
from .process_usage import first_on_its_core, raise_open_files, separate
from .results import Measure, at_most
from .subjects import THIS, environment_of, quiet_broker

VALUE_BYTES = 1024 * 1024
# New connections of the attacker per step, so that the backlog of the broker does not overflow.
PER_STEP = 50
# Room between two produces: they are single, not pipelined, and must not be the load themselves.
PAUSE_S = 0.001
_RECORDS = "/v1/topics/values/records?acks=1"


def p99_ms(client: Client, samples: int) -> float:
    """Return the 99th percentile of the milliseconds from a produce to its answer."""
    return percentile(single_produces_ms(client, samples), 0.99)


def single_produces_ms(client: Client, samples: int) -> list[float]:
    """Return the milliseconds from each produce to its answer."""
    taken: list[float] = []
    for _ in range(samples):
        start = time.perf_counter()
        client.simple_produce("probe", b"x" * 100)
        taken.append((time.perf_counter() - start) * 1000)
        time.sleep(PAUSE_S)
    return taken


# ── JSON values ──


def value_bodies() -> list[bytes]:
    """Return a request for each kind of value of 1 MiB.

    Bytes in base64, a string with an escape in every ten characters, an object with blanks.
    """
    noise = random.Random(0)
    items = [{"id": number, "name": f"n{number}", "parts": [1.5, None, True]} for number in range(20_000)]
    values: list[dict[str, object]] = [
        {"value_b64": base64.b64encode(noise.randbytes(VALUE_BYTES)).decode()},
        {"value": ('aé b"cd\n' * VALUE_BYTES)[:VALUE_BYTES]},
        {"value": items[: 20_000 * VALUE_BYTES // len(json.dumps(items))]},
    ]
    return [json.dumps({"records": [value]}, ensure_ascii=False).encode() for value in values]


def write_values(port: int) -> None:
    """Write JSON values of 1 MiB, one in a request."""
    for body in itertools.cycle(value_bodies()):
        ask(port, "POST", _RECORDS, body)


def read_values(port: int) -> None:
    """Read the same values of 1 MiB as JSON over and over."""
    for offset in itertools.cycle(range(3)):
        ask(port, "GET", f"/v1/topics/values/partitions/0/records?from={offset}&limit=1&as=json")


def fill(port: int) -> None:
    """Write the values that are read."""
    ask(
        port, "PUT", "/v1/topics/values", {"partitions": 1, "configs": {"max.message.bytes": 2 * VALUE_BYTES}}
    )
    for body in value_bodies():
        ask(port, "POST", _RECORDS, body)


# ── half-open handshakes ──


def hello() -> bytes:
    """Return the first message of a client."""
    outgoing = ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def attack(port: int, handshakes: int) -> None:
    """Keep handshakes half-open until the end of the process; print a line when all are."""
    raise_open_files()
    # An attacker elsewhere would not take the core of the client.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    first, selector = hello(), selectors.DefaultSelector()
    count, has_said = 0, False
    while True:
        for _ in range(min(PER_STEP, handshakes - count)):
            peer = socket.create_connection(("127.0.0.1", port))
            peer.sendall(first)
            peer.setblocking(False)
            selector.register(peer, selectors.EVENT_READ)
            count += 1
        if count == handshakes and not has_said:
            has_said = True
            print("half-open", flush=True)
        # The answers of the broker are read, so that a closed connection is noticed.
        for key, _ in selector.select(0.1 if count == handshakes else 0):
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            try:
                is_closed = not peer.recv(65536)
            except ConnectionError:
                is_closed = True
            if is_closed:
                selector.unregister(peer)
                peer.close()
                count -= 1


LOADS: dict[str, Callable[..., None]] = {"write": write_values, "read": read_values, "attack": attack}


@contextmanager
def load(kind: str, *arguments: int) -> Generator[subprocess.Popen[bytes]]:
    """One of ``LOADS`` in a process of its own, after which this one comes first."""
    command = [sys.executable, "-m", "load.bench_fairness", "--load", kind, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        with first_on_its_core():
            yield process
        if process.poll() is not None:
            raise RuntimeError("a load ended before the measurement did")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def measure_values(bench: Benchmark, rounds: int, samples: int) -> None:
    idle: list[float] = []
    busy: list[float] = []
    with quiet_broker() as broker, Client(broker.binary_url) as client:
        fill(broker.http_port)
        separate(broker.pid)
        p99_ms(client, samples)
        for _ in range(rounds):
            idle.append(p99_ms(client, samples))
            with load("write", broker.http_port), load("read", broker.http_port):
                # Discarded: the loads are starting.
                p99_ms(client, samples // 4)
                busy.append(p99_ms(client, samples))
    bench.row(
        "produces beside JSON values of 1 MiB",
        table="latency",
        baseline="an idle broker",
        measures={"p99": Measure(unit="ms", stele=busy, baseline=idle, goal=at_most(20))},
    )


def measure_handshakes(bench: Benchmark, rounds: int, samples: int, handshakes: int) -> None:
    raise_open_files()
    quiet: list[float] = []
    sides: dict[str, list[float]] = {"begin": [], "are held": []}
    login = BrokerLogin(user="bench", password="a password of this benchmark")
    with tempfile.TemporaryDirectory() as folder:
        arguments, environment = ("--log-level", "error"), environment_of(THIS)
        tls = tls_of(Path(folder))
        with run_broker(tls=tls, login=login, arguments=arguments, environment=environment) as broker:
            separate(broker.pid)
            with Client(broker.binary_url) as client:
                p99_ms(client, samples)
                for _ in range(rounds):
                    quiet.append(p99_ms(client, samples))
                    with load("attack", broker.binary_port, handshakes) as attacker:
                        sides["begin"].append(p99_ms(client, samples))
                        assert attacker.stdout is not None
                        assert attacker.stdout.readline() == b"half-open\n"
                        sides["are held"].append(p99_ms(client, samples))
    for what, values in sides.items():
        bench.row(
            f"p99 while {handshakes:,} half-open handshakes {what}",
            table="cost",
            baseline="without",
            is_span=True,
            value=Measure(unit="ms", stele=values, baseline=quiet, goal=at_most(3.0)),
        )


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.add("--samples", type=int, default=1000, quick=100, help="produces of a measurement")
    bench.add("--handshakes", type=int, default=5000, quick=500, help="half-open at once")
    bench.parser.add_argument("--only", choices=["values", "handshakes"])
    with bench.run() as options:
        if options.only != "handshakes":
            with_cores = os.sched_getaffinity(0)
            measure_values(bench, options.rounds, options.samples)
            os.sched_setaffinity(0, with_cores)
        if options.only != "values":
            measure_handshakes(bench, options.rounds, options.samples, options.handshakes)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        LOADS[sys.argv[2]](*map(int, sys.argv[3:]))
    else:
        main()
