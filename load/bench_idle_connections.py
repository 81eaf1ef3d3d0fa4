"""Measure the broker's memory per idle connection, binary and Kafka protocol.

Another process opens thousands of connections, has one request answered over each, and keeps them open; measured
is by how much the resident memory of the server grew, divided by their number. The kernel's own memory for a
socket is not in it. Beside it, in the same run: a bare asyncio protocol on uvloop that answers and keeps nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import uvloop
from stele.wire.messages import MetadataRequest

from . import kafka_frames as frames
from .broker_process import running_broker
from .measure import Comparison, report

CONNECTIONS = 5000
ROUNDS = 3
GOAL = 2.5
_REQUESTS = {
    "bare": b"x",
    "binary": MetadataRequest(topics=()).encode(),
    "kafka": frames.metadata_request([]),
}


class _Bare(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def _serve_bare() -> None:
    server = await asyncio.get_running_loop().create_server(_Bare, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _open(kind: str, port: int, count: int) -> None:
    """Open connections, say so, and keep them until standard input ends."""
    held: list[socket.socket] = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(_REQUESTS[kind])
        if not connection.recv(65536):
            raise RuntimeError(f"refused after {len(held)} connections")
        held.append(connection)
    print("open", flush=True)
    sys.stdin.read()


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has no resident memory")


def kib_for_each(kind: str, port: int, pid: int, count: int) -> float:
    command = [sys.executable, "-m", "load.bench_idle_connections", "open", kind, str(port), str(count)]
    before = resident_kib(pid)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peers:
        assert peers.stdout is not None
        if peers.stdout.readline() != "open\n":
            raise RuntimeError(f"{count} connections could not be opened")
        grown = resident_kib(pid) - before
        peers.communicate()
    return grown / count


@contextmanager
def server(kind: str, count: int) -> Generator[tuple[int, int]]:
    """Port and process id of a fresh server: memory that was used once is used again before more is taken."""
    if kind != "bare":
        with running_broker("--log-level", "warning", "--set", f"connections_max={count + 10}") as broker:
            yield (
                broker.kafka_port if kind == "kafka" else int(broker.binary_url.rpartition(":")[2]),
                broker.pid,
            )
        return
    command = [sys.executable, "-m", "load.bench_idle_connections", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


def measure(kind: str, count: int) -> float:
    with server(kind, count) as (port, pid):
        # What the first connections load and allocate is no connection's own.
        kib_for_each(kind, port, pid, 20)
        return kib_for_each(kind, port, pid, count)


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.argv[1:2] == ["serve"]:
        uvloop.run(_serve_bare())
        return
    if sys.argv[1:2] == ["open"]:
        _open(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    rounds = [{kind: measure(kind, options.connections) for kind in _REQUESTS} for _ in range(options.rounds)]
    for kind in ("binary", "kafka"):
        report(
            f"memory of {options.connections:,} idle connections, {kind} protocol",
            Comparison(ours=[one[kind] for one in rounds], yardstick=[one["bare"] for one in rounds]),
            unit="KiB each",
            yardstick="a bare asyncio protocol on uvloop",
            goal=GOAL,
            at_most=True,
        )


if __name__ == "__main__":
    main()
