"""Measure the CPU time of the whole broker process per request, system calls and threads are included.

``python -m load.bench_request_cost`` prints microseconds per request beside a yardstick: a bare uvloop server that
answers as many bytes to as many bytes, and does nothing else. With ``--against TREE`` the yardstick is the broker of
another source tree. Both run at the same time and are measured in turn, so other work on the machine changes the
figures, but hardly the ratios. The requests per second are those of a client in Python that needs a core of its own.

On a virtual machine, requests that find the broker asleep cost more, because its core has halted: with ``--awake``
the cores do not.
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from stele.broker_process import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire.record_batch import build_values

from .awake_cores import awake_cores
from .compare_brokers import THIS, environment_of
from .kafka_frames import connect, fetch_request, make_topic, produce_request, receive
from .measure import Comparison, in_turn, report
from .process_usage import process_cpu_s
from .yardsticks import yardstick_process

TOPIC = "bench"
HTTP_TOPIC = "bench-http"
IN_FLIGHT = 5
# A read of the broker then brings parts of several requests.
LARGE_IN_FLIGHT = 40
CONNECTIONS = 20
HTTP_CONNECTIONS = 16
CONSUMERS = 5
HOST = "127.0.0.1"
# In microseconds of CPU time.
_GOAL_US, _SYNCED_GOAL_US, _HTTP_GOAL_US = 50.0, 120.0, 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One kind of request: what is sent, to which listener, how often, and how many are in flight."""

    what: str
    port: Callable[[BrokerProcess], int]
    request: bytes
    requests: int
    goal_us: float | None = None
    connections: int = 1
    in_flight: int = 1
    is_http: bool = False
    goal_per_s: int | None = None
    # Bytes of the length of a frame that it does not count itself.
    uncounted_bytes: int = 4


def batch_of(values: int, size: int) -> bytes:
    return bytes(build_values([b"x" * size] * values, time.time_ns() // 1_000_000))


def http_produce(topic: str, acks: str) -> bytes:
    """Return a produce of one small JSON record."""
    body = b'{"records": [{"value": {"order": 4711, "amount": 12.5, "note": "' + b"x" * 40 + b'"}}]}'
    head = (
        f"POST /v1/topics/{topic}/records?acks={acks} HTTP/1.1\r\nHost: {HOST}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _kafka(broker: BrokerProcess) -> int:
    return broker.kafka_port


def _binary(broker: BrokerProcess) -> int:
    return broker.binary_port


def exchanges(scale: float) -> list[Exchange]:
    """Return what is measured; ``scale`` multiplies the number of requests of a round."""

    def count(requests: int) -> int:
        return max(100, int(requests * scale))

    small, kb10 = batch_of(1, 100), batch_of(1, 10_000)
    kb16, kb100 = batch_of(16, 1_000), batch_of(100, 1_000)
    fetch = fetch_request("bench-fetch", 0, max_wait_ms=0)
    binary_produce = m.ProduceRequest(topic="bench-binary", data=b"x" * 100).encode()
    return [
        Exchange(
            what=f"Kafka Produce, a record of 100 B, acks=1, {IN_FLIGHT} in flight",
            goal_us=_GOAL_US,
            port=_kafka,
            request=produce_request(TOPIC, small, acks=1),
            requests=count(8000),
            in_flight=IN_FLIGHT,
            goal_per_s=20_000,
        ),
        Exchange(
            what="Kafka Produce, a record of 100 B, acks=1, one at a time",
            goal_us=_GOAL_US,
            port=_kafka,
            request=produce_request(TOPIC, small, acks=1),
            requests=count(5000),
        ),
        Exchange(
            what=f"Kafka Produce, a record of 100 B, acks=1, {CONNECTIONS} connections",
            goal_us=_GOAL_US,
            port=_kafka,
            request=produce_request(TOPIC, small, acks=1),
            requests=count(8000),
            connections=CONNECTIONS,
            goal_per_s=25_000,
        ),
        Exchange(
            what=f"Kafka Produce, a record of 10 KB, acks=1, {IN_FLIGHT} in flight",
            goal_us=_GOAL_US,
            port=_kafka,
            request=produce_request(TOPIC, kb10, acks=1),
            requests=count(4000),
            in_flight=IN_FLIGHT,
        ),
        Exchange(
            what=f"Kafka Produce, a batch of 16 KB, acks=1, {IN_FLIGHT} in flight",
            goal_us=_GOAL_US,
            port=_kafka,
            request=produce_request(TOPIC, kb16, acks=1),
            requests=count(4000),
            in_flight=IN_FLIGHT,
        ),
        Exchange(
            what=f"Kafka Produce, a batch of 100 KB, acks=1, {LARGE_IN_FLIGHT} in flight",
            port=_kafka,
            request=produce_request(TOPIC, kb100, acks=1),
            requests=count(2000),
            in_flight=LARGE_IN_FLIGHT,
        ),
        Exchange(
            what="Kafka Produce, a record of 100 B, acks=all, one producer that waits",
            goal_us=_SYNCED_GOAL_US,
            port=_kafka,
            request=produce_request(TOPIC, small, acks=-1),
            requests=count(2000),
        ),
        Exchange(
            what=f"Kafka Produce, a record of 100 B, acks=all, {IN_FLIGHT} in flight",
            goal_us=_SYNCED_GOAL_US,
            port=_kafka,
            request=produce_request(TOPIC, small, acks=-1),
            requests=count(4000),
            in_flight=IN_FLIGHT,
        ),
        Exchange(
            what="Kafka Fetch of 16 KB, one at a time",
            goal_us=_GOAL_US,
            port=_kafka,
            request=fetch,
            requests=count(5000),
        ),
        Exchange(
            what=f"Kafka Fetch of 16 KB, {CONSUMERS} connections",
            goal_us=_GOAL_US,
            port=_kafka,
            request=fetch,
            requests=count(5000),
            connections=CONSUMERS,
        ),
        Exchange(
            what="binary PRODUCE, a record of 100 B, acks=1, one at a time",
            goal_us=_GOAL_US,
            port=_binary,
            request=binary_produce,
            requests=count(5000),
            uncounted_bytes=0,
        ),
        Exchange(
            what=f"binary PRODUCE, a record of 100 B, acks=1, {CONNECTIONS} connections",
            goal_us=_GOAL_US,
            port=_binary,
            request=binary_produce,
            requests=count(8000),
            connections=CONNECTIONS,
            uncounted_bytes=0,
        ),
        Exchange(
            what=f"HTTP, a JSON record, acks=1, {HTTP_CONNECTIONS} connections",
            goal_us=_HTTP_GOAL_US,
            port=lambda broker: broker.http_port,
            request=http_produce(HTTP_TOPIC, "1"),
            requests=count(3000),
            connections=HTTP_CONNECTIONS,
            is_http=True,
        ),
        Exchange(
            what=f"HTTP, a JSON record, acks=all, {HTTP_CONNECTIONS} connections",
            port=lambda broker: broker.http_port,
            request=http_produce(HTTP_TOPIC, "all"),
            requests=count(2000),
            connections=HTTP_CONNECTIONS,
            is_http=True,
        ),
    ]


def answer_of(exchange: Exchange, port: int) -> bytes:
    """Send the request of ``exchange`` and return the whole answer."""
    return answer_to(
        exchange.request, port, is_http=exchange.is_http, uncounted_bytes=exchange.uncounted_bytes
    )


def answer_to(request: bytes, port: int, *, is_http: bool, uncounted_bytes: int = 4) -> bytes:
    """Send one request and return the whole answer."""
    with connect(HOST, port) as connection:
        connection.sendall(request)
        answer = b""
        if not is_http:
            while len(answer) < 4 or len(answer) < uncounted_bytes + struct.unpack_from(">i", answer)[0]:
                answer += connection.recv(65536)
            return answer
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65536)
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 20"):
            raise ConnectionError(f"refused: {answer!r}")
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
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


def _drive_in_turns(
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
    """Return microseconds of CPU time of process ``pid`` per request.

    The requests per second are added to ``rates``.
    """
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(HOST, port)) for _ in range(exchange.connections)]
        # The size of an answer grows with the digits of the offset in JSON.
        answer_bytes = len(answer_of(exchange, port))
        _drive_in_turns(connections, exchange, len(connections), answer_bytes)
        before_s, begun_s = process_cpu_s(pid), time.perf_counter()
        requests = exchange.requests // len(connections) * len(connections)
        if exchange.in_flight == 1:
            _drive_in_turns(connections, exchange, requests, answer_bytes)
        else:
            _drive(connections[0], exchange, requests, answer_bytes)
        rates.append(requests / (time.perf_counter() - begun_s))
        return (process_cpu_s(pid) - before_s) / requests * 1e6


def prepare(broker: BrokerProcess) -> None:
    """Make the topics, and fill that of the fetches with one batch of 16 KB."""
    for topic in (TOPIC, HTTP_TOPIC, "bench-fetch", "bench-binary"):
        make_topic(HOST, broker.kafka_port, topic)
    with connect(HOST, broker.kafka_port) as connection:
        connection.sendall(produce_request("bench-fetch", batch_of(16, 1_000), acks=1))
        receive(connection)
    # Offsets of the HTTP topic keep one number of digits for the whole run.
    with connect(HOST, broker.kafka_port) as connection:
        # No larger requests than those that are measured, or the broker's allocator would adapt itself to them.
        for _ in range(100):
            connection.sendall(produce_request(HTTP_TOPIC, batch_of(1_000, 1), acks=1))
            receive(connection)


def report_us(exchange: Exchange, comparison: Comparison) -> None:
    """Print one figure: the cost of both sides, and whether ours is within the goal in µs."""
    ours, yardstick = (median(side) for side in (comparison.ours, comparison.yardstick))
    goal = exchange.goal_us
    verdict = "" if goal is None else f"  (goal ≤ {goal:g}: {'met' if ours <= goal else 'NOT met'})"
    ratios = comparison.ratios
    print(exchange.what)
    print(f"  Stele      {ours:>10.1f} µs of CPU{verdict}")
    print(f"  yardstick  {yardstick:>10.1f} µs of CPU  (a bare uvloop server)")
    print(
        f"  ratio      {comparison.ratio:>10.2f} x  (rounds {min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def report_rates(exchange: Exchange, ours: list[float], yardstick: list[float]) -> None:
    """Print the medians of the requests per second."""
    rate = median(ours)
    goal = exchange.goal_per_s
    verdict = "" if goal is None else f" (goal ≥ {goal:,}: {'met' if rate >= goal else 'NOT met'})"
    print(f"  {rate:,.0f} requests/s{verdict}, the yardstick {median(yardstick):,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="another source tree, whose broker is the yardstick")
    parser.add_argument("--rounds", type=int, default=7, help="runs per side and figure (default: 7)")
    parser.add_argument("--only", default="", help="figures whose names contain this text")
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer requests per round")
    parser.add_argument(
        "--awake", action="store_true", help="keep the cores from halting (Linux); not for acks=all"
    )
    options = parser.parse_args()
    chosen = [exchange for exchange in exchanges(options.scale) if options.only in exchange.what]
    with ExitStack() as stack:
        if options.awake:
            stack.enter_context(awake_cores())
        answer_file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-"))) / "answer"
        trees = [THIS] if options.against is None else [THIS, options.against.resolve()]
        brokers = [
            stack.enter_context(
                run_broker(arguments=("--log-level", "warning"), environment=environment_of(tree))
            )
            for tree in trees
        ]
        for broker in brokers:
            prepare(broker)
        for exchange in chosen:
            this = brokers[0]
            rates: list[float] = []
            their_rates: list[float] = []
            ours = partial(cost_us, exchange, exchange.port(this), this.pid, rates)
            with ExitStack() as yardsticks:
                if options.against is None:
                    answer_file.write_bytes(answer_of(exchange, exchange.port(this)))
                    port, pid = yardsticks.enter_context(
                        yardstick_process("answers", str(len(exchange.request)), str(answer_file))
                    )
                    theirs = partial(cost_us, exchange, port, pid, their_rates)
                else:
                    other = brokers[1]
                    theirs = partial(cost_us, exchange, exchange.port(other), other.pid, their_rates)
                comparison = in_turn(ours, theirs, rounds=options.rounds)
            if options.against is None:
                report_us(exchange, comparison)
            else:
                report(
                    exchange.what,
                    comparison,
                    unit="µs of CPU",
                    yardstick=str(options.against),
                    goal=1.0,
                    at_most=True,
                )
            report_rates(exchange, rates, their_rates)


if __name__ == "__main__":
    main()
