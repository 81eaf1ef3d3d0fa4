"""Measure a lone producer that waits for each acks=all answer.

Each request is followed by one to the other broker (``--against TREE``) and by the yardstick: a write and an
``fdatasync`` of as many bytes in this process, and a round trip to a bare uvloop server. So all sides have the same
disk, caches as cold, and the same other work beside them; slices of hundreds of requests in turn differ by a factor of
three on a busy machine. The CPU time of the yardstick is that of its server and of the write and the sync.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from stele.broker_process import run_broker

from .bench_request_cost import HOST, Exchange, answer_of, exchanges, prepare
from .compare_brokers import THIS, environment_of
from .kafka_frames import connect
from .measure import Comparison, report
from .process_usage import process_cpu_s
from .yardsticks import yardstick_process

# Of a batch with one record of 100 B in the log.
_BATCH_BYTES = 170


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
    switches: list[float] = field(default_factory=list[float])
    p50_us: list[float] = field(default_factory=list[float])

    def request(self, request: bytes, answer_bytes: int) -> float:
        """Return how long one request took, in µs."""
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
        return (time.perf_counter() - start) * 1e6

    def used_cpu_s(self) -> float:
        return process_cpu_s(self.pid) + self.sync_cpu_s


def lone_exchange() -> Exchange:
    """Return the request of ``bench_request_cost`` that is measured here."""
    (exchange,) = (each for each in exchanges(1) if each.what.endswith("acks=all, one producer that waits"))
    return exchange


def switches_of(pid: int) -> int:
    """Return the context switches of all threads of a process."""
    count = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        count += sum(
            int(line.split()[1]) for line in status.read_text().splitlines() if "ctxt_switches" in line
        )
    return count


def run_round(sides: list[Side], request: bytes, answer_bytes: int, requests: int) -> None:
    before = [(side.used_cpu_s(), switches_of(side.pid)) for side in sides]
    took: list[list[float]] = [[] for _ in sides]
    for _ in range(requests):
        for side, times in zip(sides, took, strict=True):
            times.append(side.request(request, answer_bytes))
    for side, times, (cpu_s, switches) in zip(sides, took, before, strict=True):
        side.cpu_us.append((side.used_cpu_s() - cpu_s) / requests * 1e6)
        side.switches.append((switches_of(side.pid) - switches) / requests)
        side.p50_us.append(median(times))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="another source tree, whose broker is measured, too")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=100, help="per round and side")
    options = parser.parse_args()
    exchange = lone_exchange()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-")))
        trees = [THIS] if options.against is None else [THIS, options.against.resolve()]
        sides: list[Side] = []
        answer = b""
        for tree in trees:
            broker = stack.enter_context(
                run_broker(arguments=("--log-level", "warning"), environment=environment_of(tree))
            )
            prepare(broker)
            answer = answer_of(exchange, broker.kafka_port)
            sides.append(Side(stack.enter_context(connect(HOST, broker.kafka_port)), broker.pid))
        (directory / "answer").write_bytes(answer)
        port, pid = stack.enter_context(
            yardstick_process("answers", str(len(exchange.request)), str(directory / "answer"))
        )
        file = stack.enter_context((directory / "log").open("wb", buffering=0)).fileno()
        bare = Side(stack.enter_context(connect(HOST, port)), pid, file)
        sides.append(bare)
        # Once for warmth.
        for number in range(options.rounds + 1):
            run_round(sides, exchange.request, len(answer), options.requests)
            if not number:
                for side in sides:
                    side.cpu_us.clear()
                    side.switches.clear()
                    side.p50_us.clear()
    this = sides[0]
    print(f"{exchange.what}: {median(this.switches):.1f} context switches")
    report(
        "  time to the answer, p50",
        Comparison(ours=this.p50_us, yardstick=bare.p50_us),
        unit="µs",
        yardstick="a write, an fdatasync and a bare round trip",
        goal=1.3,
        at_most=True,
    )
    if options.against is not None:
        other = sides[1]
        report(
            f"  CPU time of the broker ({median(other.switches):.1f} context switches in the other)",
            Comparison(ours=this.cpu_us, yardstick=other.cpu_us),
            unit="µs",
            yardstick=str(options.against),
            goal=1.0,
            at_most=True,
        )
    else:
        print(f"  CPU time of the broker  {median(this.cpu_us):.1f} µs (goal ≤ 120)")
        print(f"  of the yardstick        {median(bare.cpu_us):.1f} µs")


if __name__ == "__main__":
    main()
