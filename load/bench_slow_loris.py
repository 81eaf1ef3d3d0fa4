"""Measure what 5,000 half-open TLS handshakes cost clients that have logged in.

An attacker sends the first message of a handshake on each of 5,000 connections, and
nothing more. Whenever the broker closes one, it opens another. What is compared is the
p99 of single produces over TLS, after a login, with the attack and without.

The broker has a core of its own, as in ``bench_fairness``; the attacker shares the other
one with the client, which comes first.
"""

from __future__ import annotations

import os
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from stele import Client
from stele.broker_process import BrokerLogin, BrokerProcess, BrokerTls, run_broker

from .certificates import write_certificate
from .measure import Comparison, percentile, report

HANDSHAKES = 5000
# New connections of the attacker per step, so that the backlog of the broker does not overflow.
PER_STEP = 50
SAMPLES = 1000
ROUNDS = 3
PAUSE_S = 0.001
GOAL = 3.0


def raise_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hello() -> bytes:
    """Return the first message of a client."""
    outgoing = ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake cannot end without a server")


def attack(port: int) -> None:
    """Keep ``HANDSHAKES`` handshakes half-open until the end of the process; print a line when all are."""
    raise_open_files()
    # An attacker elsewhere would not take the core of the client.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    first, selector = hello(), selectors.DefaultSelector()
    count, has_said = 0, False
    while True:
        for _ in range(min(PER_STEP, HANDSHAKES - count)):
            peer = socket.create_connection(("127.0.0.1", port))
            peer.sendall(first)
            peer.setblocking(False)
            selector.register(peer, selectors.EVENT_READ)
            count += 1
        if count == HANDSHAKES and not has_said:
            has_said = True
            print("half-open", flush=True)
        # The answers of the broker are read, so that a closed connection is noticed.
        for key, _ in selector.select(0.1 if count == HANDSHAKES else 0):
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


def latencies(client: Client) -> list[float]:
    """Milliseconds from each produce to its answer."""
    taken: list[float] = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        client.simple_produce("probe", b"x" * 100)
        taken.append((time.perf_counter() - start) * 1000)
        time.sleep(PAUSE_S)
    return taken


def under_attack(client: Client, broker: BrokerProcess) -> tuple[list[float], list[float]]:
    """Return latencies while handshakes begin, and while all are held and renewed."""
    command = [sys.executable, "-m", "load.bench_slow_loris", str(broker.binary_port)]
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        beginning = latencies(client)
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == b"half-open\n"
        return beginning, latencies(client)
    finally:
        attacker.kill()
        attacker.wait()
        if attacker.stdout is not None:
            attacker.stdout.close()


def p99(values: list[float]) -> float:
    return percentile(values, 0.99)


def main() -> None:
    raise_open_files()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        certificate, key_file = write_certificate(Path(folder), ec.generate_private_key(ec.SECP256R1()))
        tls = BrokerTls(certificate_file=certificate, key_file=key_file, ca_file=certificate)
        login = BrokerLogin(user="bench", password="a password of this benchmark")
        with run_broker(tls=tls, login=login, arguments=("--log-level", "error")) as broker:
            if len(cores) > 1:
                os.sched_setaffinity(broker.pid, cores[:1])
                os.sched_setaffinity(0, cores[1:])
            with Client(broker.binary_url) as client:
                latencies(client)
                beginning = Comparison(ours=[], yardstick=[])
                held = Comparison(ours=[], yardstick=[])
                for _ in range(ROUNDS):
                    quiet = p99(latencies(client))
                    at_first, later = under_attack(client, broker)
                    beginning.yardstick.append(quiet)
                    beginning.ours.append(p99(at_first))
                    held.yardstick.append(quiet)
                    held.ours.append(p99(later))
                    print(f"p99: {quiet:.1f} ms, {p99(at_first):.1f} ms, {p99(later):.1f} ms", flush=True)
    for what, comparison in (("while they begin", beginning), ("while they are held and renewed", held)):
        report(
            f"p99 of single produces after a login, {HANDSHAKES:,} half-open TLS handshakes, {what}",
            comparison,
            unit="ms",
            yardstick="the same without the handshakes",
            goal=GOAL,
            at_most=True,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        attack(int(sys.argv[1]))
    else:
        main()
