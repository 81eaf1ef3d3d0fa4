"""Measure the CPU time of the whole broker process per request; system calls and threads are included.

The yardstick is a bare uvloop server that answers as many bytes to as many bytes, and does nothing else. With
``--against`` it is the broker of another source tree or commit, with ``--with`` a broker without access rules or
quotas. Both run at the same time and are measured in turn, so other work on the machine changes the figures, but
hardly the ratios. The requests per second are those of a client in Python that needs a core of its own.

On a virtual machine, requests that find the broker asleep cost more, because its core has halted: with ``--awake``
the cores do not.
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal

import httpx
from stele.broker_process import BrokerProcess, run_broker
from stele.wire import messages as m

from app.security.acl import Acl, Operation, PatternType, ResourceType
from app.security.acl_text import document_of
from app.security.offline import add_acls

from .harness import Benchmark, in_turn
from .kafka_frames import batch_of, connect, fetch_request, make_topic, produce_request, receive
from .process_usage import awake_cores, process_cpu_s
from .results import Goal, Measure, at_least, at_most
from .subjects import QUIET, THIS, environment_of, quiet_broker, source_tree
from .yardsticks import yardstick_process

IN_FLIGHT = 5
# A read of the broker then brings parts of several requests.
LARGE_IN_FLIGHT = 40
CONNECTIONS, HTTP_CONNECTIONS, CONSUMERS = 20, 16, 5
HOST = "127.0.0.1"
LONE = "Kafka Produce, 100 B, acks=all, one at a time"
# In microseconds of CPU time.
_GOAL, _SYNCED_GOAL, _HTTP_GOAL = (at_most(goal_us, "stele") for goal_us in (50, 120, 100))
# Rules of others, as a broker with many users has; quotas that are never reached.
_OTHER_RULES = 1_000
_NEVER = {"producer_byte_rate": 1e13, "consumer_byte_rate": 1e13}
_ADDED = {
    "rules": f"{_OTHER_RULES + 1:,} access rules add to CPU time",
    "quotas": "quotas not exceeded add to CPU time",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One kind of request: what is sent, to which listener, how often, and how many are in flight."""

    what: str
    request: bytes
    requests: int
    listener: Literal["kafka", "binary", "http"] = "kafka"
    goal: Goal | None = _GOAL
    connections: int = 1
    in_flight: int = 1
    per_s: Goal | None = None

    def port(self, broker: BrokerProcess) -> int:
        return {"kafka": broker.kafka_port, "binary": broker.binary_port, "http": broker.http_port}[
            self.listener
        ]


def http_produce(topic: str, acks: str) -> bytes:
    """Return a produce of one small JSON record."""
    body = b'{"records": [{"value": {"order": 4711, "amount": 12.5, "note": "' + b"x" * 40 + b'"}}]}'
    head = (
        f"POST /v1/topics/{topic}/records?acks={acks} HTTP/1.1\r\nHost: {HOST}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def exchanges(scale: float, client: int = 0) -> list[Exchange]:
    """Return what is measured; ``scale`` multiplies the requests of a round, and each client has its own topics."""

    def exchange(what: str, request: bytes, requests: int, **more: object) -> Exchange:
        return Exchange(what=what, request=request, requests=max(100, int(requests * scale)), **more)  # type: ignore[arg-type]

    produce, record = "Kafka Produce", "100 B"
    small, kb10 = batch_of(1, 100), batch_of(1, 10_000)
    topic, http_topic, fetch_topic, binary_topic = topics_of(client)
    fast, synced = produce_request(topic, small, acks=1), produce_request(topic, small, acks=-1)
    of_10_kb = produce_request(topic, kb10, acks=1)
    of_16_kb = produce_request(topic, batch_of(16, 1_000), acks=1)
    of_100_kb = produce_request(topic, batch_of(100, 1_000), acks=1)
    fetch = fetch_request(fetch_topic, 0, max_wait_ms=0)
    binary = m.ProduceRequest(topic=binary_topic, data=b"x" * 100).encode()
    http = partial(exchange, listener="http", connections=HTTP_CONNECTIONS)
    many = {"connections": CONNECTIONS}
    flying = {"in_flight": IN_FLIGHT}
    return [
        exchange(
            f"{produce}, {record}, acks=1, 5 in flight", fast, 8000, **flying, per_s=at_least(20_000, "stele")
        ),
        exchange(f"{produce}, {record}, acks=1, one at a time", fast, 5000),
        exchange(
            f"{produce}, {record}, acks=1, 20 connections",
            fast,
            8000,
            **many,
            per_s=at_least(25_000, "stele"),
        ),
        exchange(f"{produce}, 10 KB, acks=1, 5 in flight", of_10_kb, 4000, **flying),
        exchange(f"{produce}, batch of 16 KB, acks=1, 5 in flight", of_16_kb, 4000, **flying),
        exchange(
            f"{produce}, batch of 100 KB, acks=1, 40 in flight",
            of_100_kb,
            2000,
            in_flight=LARGE_IN_FLIGHT,
            goal=None,
        ),
        exchange(LONE, synced, 2000, goal=_SYNCED_GOAL),
        exchange(f"{produce}, {record}, acks=all, 5 in flight", synced, 4000, **flying, goal=_SYNCED_GOAL),
        exchange("Kafka Fetch of 16 KB, one at a time", fetch, 5000),
        exchange("Kafka Fetch of 16 KB, 5 connections", fetch, 5000, connections=CONSUMERS),
        exchange(f"binary PRODUCE, {record}, acks=1, one at a time", binary, 5000, listener="binary"),
        exchange(
            f"binary PRODUCE, {record}, acks=1, 20 connections", binary, 8000, listener="binary", **many
        ),
        http(
            "HTTP, JSON record, acks=1, 16 connections", http_produce(http_topic, "1"), 3000, goal=_HTTP_GOAL
        ),
        http("HTTP, JSON record, acks=all, 16 connections", http_produce(http_topic, "all"), 2000, goal=None),
    ]


def answer_to(request: bytes, port: int, listener: str) -> bytes:
    """Send one request and return the whole answer."""
    with connect(HOST, port) as connection:
        connection.sendall(request)
        answer = b""
        if listener != "http":
            # The length of a frame of the Kafka protocol does not count itself.
            own = 4 if listener == "kafka" else 0
            while len(answer) < 4 or len(answer) < own + struct.unpack_from(">i", answer)[0]:
                answer += connection.recv(65536)
            return answer
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65536)
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 20"):
            raise ConnectionError(f"refused: {answer!r}")
        lines = (line.lower().partition(b":") for line in head.split(b"\r\n"))
        length = next(int(value) for name, _, value in lines if name == b"content-length")
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body


def _drive(connection: socket.socket, exchange: Exchange, requests: int, answer_bytes: int) -> None:
    """Keep ``in_flight`` requests under way on one connection."""
    buffer = bytearray(1 << 20)
    sent = min(exchange.in_flight, requests)
    for _ in range(sent):
        connection.sendall(exchange.request)
    received = 0
    while received < requests * answer_bytes:
        got = connection.recv_into(buffer)
        if not got:
            raise ConnectionError("the server closed the connection")
        done, received = received // answer_bytes, received + got
        for _ in range(min(received // answer_bytes - done, requests - sent)):
            connection.sendall(exchange.request)
            sent += 1


def drive_in_turns(
    connections: list[socket.socket], exchange: Exchange, requests: int, answer_bytes: int
) -> None:
    """Send one request on every connection, read all answers, and begin again."""
    buffer = bytearray(1 << 16)
    for _ in range(requests // len(connections)):
        for connection in connections:
            connection.sendall(exchange.request)
        for connection in connections:
            missing = answer_bytes
            while missing > 0:
                got = connection.recv_into(buffer)
                if not got:
                    raise ConnectionError("the server closed the connection")
                missing -= got


def cost_us(exchange: Exchange, port: int, pid: int, rates: list[float]) -> float:
    """Return microseconds of CPU time of process ``pid`` per request; add the requests per second to ``rates``."""
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(HOST, port)) for _ in range(exchange.connections)]
        # The size of an answer grows with the digits of the offset in JSON.
        answer_bytes = len(answer_to(exchange.request, port, exchange.listener))
        drive_in_turns(connections, exchange, len(connections), answer_bytes)
        before_s, begun_s = process_cpu_s(pid), time.perf_counter()
        requests = exchange.requests // len(connections) * len(connections)
        if exchange.in_flight == 1:
            drive_in_turns(connections, exchange, requests, answer_bytes)
        else:
            _drive(connections[0], exchange, requests, answer_bytes)
        rates.append(requests / (time.perf_counter() - begun_s))
        return (process_cpu_s(pid) - before_s) / requests * 1e6


def topics_of(client: int) -> tuple[str, str, str, str]:
    """Return the topics of produces, of HTTP, of fetches and of the binary protocol."""
    return f"bench-{client}", f"bench-http-{client}", f"bench-fetch-{client}", f"bench-binary-{client}"


def prepare(broker: BrokerProcess, client: int = 0) -> None:
    """Make the topics of a client, and fill that of the fetches with one batch of 16 KB."""
    topics = _, http_topic, fetch_topic, _ = topics_of(client)
    for topic in topics:
        make_topic(HOST, broker.kafka_port, topic)
    with connect(HOST, broker.kafka_port) as connection:
        connection.sendall(produce_request(fetch_topic, batch_of(16, 1_000), acks=1))
        receive(connection)
        # Offsets of the HTTP topic keep one number of digits for the whole run. No larger requests than those that are
        # measured, or the broker's allocator would adapt itself to them.
        for _ in range(100):
            connection.sendall(produce_request(http_topic, batch_of(1_000, 1), acks=1))
            receive(connection)


@contextmanager
def _burdened(burden: str) -> Generator[BrokerProcess]:
    """Run a broker that looks at access rules, or at quotas, with each request."""
    with tempfile.TemporaryDirectory(prefix="stele-") as folder, ExitStack() as stack:
        data_dir, environment = Path(folder) / "data", environment_of(THIS)
        if burden == "rules":
            names = [(f"team-{number}-", f"User:team-{number}") for number in range(_OTHER_RULES)]
            prefixed = [_rule(name, principal, PatternType.PREFIXED) for name, principal in names]
            acls = [*prefixed, _rule("*", "User:ANONYMOUS", PatternType.LITERAL)]
            add_acls(data_dir, [document_of(acl) for acl in acls])
            environment["STELE_AUTHORIZATION"] = "acls"
        broker = stack.enter_context(run_broker(data_dir, arguments=QUIET, environment=environment))
        if burden == "quotas":
            change = {"entity": {"user": "ANONYMOUS"}, "values": _NEVER}
            httpx.patch(f"{broker.http_url}/v1/quotas", json=change).raise_for_status()
        yield broker


def _rule(name: str, principal: str, pattern: PatternType) -> Acl:
    return Acl(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        operation=Operation.ALL,
    )


def measure(
    bench: Benchmark, options: argparse.Namespace, this: BrokerProcess, other: BrokerProcess | None
) -> None:
    """Measure all requests with ``this``, beside ``other`` or a bare server."""
    added: list[float] = []
    for exchange in exchanges(options.scale):
        # How long a sync takes differs by more than what a check costs.
        if options.only not in exchange.what or (options.burden and "acks=all" in exchange.what):
            continue
        rates: tuple[list[float], list[float]] = ([], [])
        with ExitStack() as stack:
            if other is None:
                answer = answer_to(exchange.request, exchange.port(this), exchange.listener)
                port, pid = stack.enter_context(yardstick_process(len(exchange.request), answer))
            else:
                port, pid = exchange.port(other), other.pid
            cost = in_turn(
                partial(cost_us, exchange, exchange.port(this), this.pid, rates[0]),
                partial(cost_us, exchange, port, pid, rates[1]),
                rounds=options.rounds,
                unit="µs",
                goal=exchange.goal if other is None else at_most(1.0),
            )
        added.append((median(cost.ratios) - 1) * 100)
        per_s = Measure(unit="/s", stele=rates[0][1:], baseline=rates[1][1:], goal=exchange.per_s)
        bench.row(
            exchange.what,
            table="" if other else "requests",
            baseline="a bare uvloop server"
            if other is None
            else options.against or "the same broker without them",
            measures={"awake" if options.awake else "cpu": cost, "rate": per_s},
        )
    if options.burden and added:
        row = Measure(unit="%", stele=added)
        bench.row(_ADDED[options.burden], table="cost", baseline="without", is_span=True, value=row)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=7)
    parser = bench.parser
    parser.add_argument(
        "--against", metavar="TREE", help="a source tree or a commit, whose broker is the yardstick"
    )
    parser.add_argument("--with", dest="burden", choices=list(_ADDED), help="what these add to a request")
    parser.add_argument("--only", default="", help="figures whose names contain this text")
    bench.add("--scale", type=float, default=1.0, quick=0.05, help="more or fewer requests per round")
    parser.add_argument(
        "--awake", action="store_true", help="keep the cores from halting (Linux); not for acks=all"
    )
    with bench.run() as options, ExitStack() as stack:
        if options.awake:
            stack.enter_context(awake_cores())
        this = stack.enter_context(_burdened(options.burden) if options.burden else quiet_broker())
        other = None
        if options.against is not None:
            tree = stack.enter_context(source_tree(options.against))
            other = stack.enter_context(quiet_broker(environment=environment_of(tree)))
        elif options.burden:
            other = stack.enter_context(quiet_broker())
        for broker in filter(None, (this, other)):
            prepare(broker)
        measure(bench, options, this, other)


if __name__ == "__main__":
    main()
