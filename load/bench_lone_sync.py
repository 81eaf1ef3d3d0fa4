"""Measure a lone producer that waits for each acks=all answer.

Each request is followed by one to the other broker (``--against``) and by the yardstick: a write and an ``fdatasync``
of as many bytes in this process, and a round trip to a bare uvloop server. So all sides have the same disk, caches as
cold, and the same other work beside them; slices of hundreds of requests in turn differ by a factor of three on a busy
machine. The CPU time of the yardstick is that of its server and of the write and the sync.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .bench_request_cost import HOST, LONE, Exchange, answer_to, exchanges, prepare
from .harness import Benchmark
from .kafka_frames import connect
from .process_usage import process_cpu_s
from .results import Measure, at_most
from .subjects import environment_of, quiet_broker, source_tree
from .yardsticks import yardstick_process

# Of a batch with one record of 100 B in the log.
_BATCH_BYTES = 170
_BARE = "write, `fdatasync`, bare round trip"


@dataclass(slots=True)
class Side:
    """A server and what its requests took.

    The yardstick writes to ``file`` and syncs it before each request, which has taken ``sync_cpu_s`` of CPU time.
    """

    connection: socket.socket
    pid: int
    file: int | None = None
    sync_cpu_s: float = 0.0
    cpu_us: list[float] = field(default_factory=list[float])
    p50_ms: list[float] = field(default_factory=list[float])

    def request(self, request: bytes, answer_bytes: int) -> float:
        """Return how long one request took, in ms."""
        start = time.perf_counter()
        if self.file is not None:
            before_s = time.thread_time()
            os.write(self.file, bytes(_BATCH_BYTES))
            os.fdatasync(self.file)
            self.sync_cpu_s += time.thread_time() - before_s
        self.connection.sendall(request)
        missing = answer_bytes
        while missing > 0:
            got = len(self.connection.recv(missing))
            if not got:
                raise ConnectionError("the server closed the connection")
            missing -= got
        return (time.perf_counter() - start) * 1e3

    def used_cpu_s(self) -> float:
        return process_cpu_s(self.pid) + self.sync_cpu_s


def lone_exchange() -> Exchange:
    """Return the request of ``bench_request_cost`` that is measured here."""
    (exchange,) = (each for each in exchanges(1) if each.what == LONE)
    return exchange


def run_round(sides: list[Side], request: bytes, answer_bytes: int, requests: int) -> None:
    before_s = [side.used_cpu_s() for side in sides]
    took: list[list[float]] = [[] for _ in sides]
    for _ in range(requests):
        for side, times in zip(sides, took, strict=True):
            times.append(side.request(request, answer_bytes))
    for side, times, cpu_s in zip(sides, took, before_s, strict=True):
        side.cpu_us.append((side.used_cpu_s() - cpu_s) / requests * 1e6)
        side.p50_ms.append(median(times))


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=9)
    bench.parser.add_argument("--against", metavar="TREE", help="a source tree or a commit, measured, too")
    bench.add("--requests", type=int, default=100, quick=20, help="per round and side")
    with bench.run() as options, ExitStack() as stack:
        exchange = lone_exchange()
        environments: list[dict[str, str]] = [{}]
        if options.against is not None:
            environments.append(environment_of(stack.enter_context(source_tree(options.against))))
        sides: list[Side] = []
        answer = b""
        for environment in environments:
            broker = stack.enter_context(quiet_broker(environment=environment))
            prepare(broker)
            answer = answer_to(exchange.request, broker.kafka_port, exchange.listener)
            sides.append(Side(stack.enter_context(connect(HOST, broker.kafka_port)), broker.pid))
        port, pid = stack.enter_context(yardstick_process(len(exchange.request), answer))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-")))
        file = stack.enter_context((directory / "log").open("wb", buffering=0)).fileno()
        sides.append(Side(stack.enter_context(connect(HOST, port)), pid, file))
        # The first round is for warmth.
        for _ in range(options.rounds + 1):
            run_round(sides, exchange.request, len(answer), options.requests)
        this, *others, bare = sides
        for baseline, side in [*((str(options.against), other) for other in others), (_BARE, bare)]:
            of_round, of_cpu = (at_most(1.3), at_most(120, "stele")) if side is bare else (None, at_most(1.0))
            p50 = Measure(unit="ms", stele=this.p50_ms[1:], baseline=side.p50_ms[1:], goal=of_round)
            cpu = Measure(unit="µs", stele=this.cpu_us[1:], baseline=side.cpu_us[1:], goal=of_cpu)
            bench.row(
                "one record at a time, acks=all",
                table="latency" if side is bare else "",
                baseline=baseline,
                is_span=True,
                measures={"p50": p50, "cpu": cpu},
            )


if __name__ == "__main__":
    main()
