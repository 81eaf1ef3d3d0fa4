"""Measure the p99 of single binary produces during large uploads and reads.

Other clients upload 200 MB of NDJSON and read 50,000 records as JSON meanwhile, or
write and read JSON values of 1 MiB.

What is measured is the broker's loop, not how a kernel schedules four busy
processes on two cores: the broker has a core of its own, and on the other one
the prober comes before the loads.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from stele.wire.messages import ProduceRequest

from .bench_http_ndjson import body_of
from .broker_process import running_broker
from .measure import Comparison, percentile, report

UPLOAD_BYTES = 200 * 1000 * 1000
READ_RECORDS = 50_000
VALUE_BYTES = 1024 * 1024
SAMPLES = 2000
ROUNDS = 3
# Room between two produces: they are single, not pipelined, and must not be the load themselves.
PAUSE_S = 0.001


def produce_latencies(port: int, samples: int) -> list[float]:
    """Milliseconds from each produce to its answer."""
    frame = ProduceRequest(topic="probe", data=b"x" * 100).encode()
    latencies: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(samples):
            start = time.perf_counter()
            connection.sendall(frame)
            got = 0
            while got < 14:
                got += len(connection.recv(14 - got))
            latencies.append((time.perf_counter() - start) * 1000)
            time.sleep(PAUSE_S)
    return latencies


def upload(port: int) -> None:
    """One upload of 200 MB, streamed, its results read."""
    block = body_of(10_000)
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def blocks() -> object:
        sent = 0
        while sent < UPLOAD_BYTES:
            yield block
            sent += len(block)

    headers = {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"}
    connection.request("POST", "/v1/topics/upload/records?acks=1", blocks(), headers, encode_chunked=True)  # type: ignore[arg-type]
    answer = connection.getresponse()
    while answer.read(1024 * 1024):
        pass


def read_json(port: int) -> None:
    """One read of 50,000 records as one JSON document."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(
        "GET", f"/v1/topics/read/partitions/0/records?from=0&limit={READ_RECORDS}&max_bytes=100000000"
    )
    answer = connection.getresponse()
    while answer.read(1024 * 1024):
        pass


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
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json"}
    for body in itertools.cycle(value_bodies()):
        _answer(connection, "POST", "/v1/topics/values/records?acks=1", body, headers)


def read_values(port: int) -> None:
    """Read the same values of 1 MiB as JSON over and over."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for offset in itertools.cycle(range(3)):
        path = f"/v1/topics/values/partitions/0/records?from={offset}&limit=1&as=json"
        _answer(connection, "GET", path)


def fill(port: int) -> None:
    """Write the records and the values that are read."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    ndjson, plain = ({"Content-Type": f"application/{kind}"} for kind in ("x-ndjson", "json"))
    _answer(connection, "POST", "/v1/topics/read/records?acks=1", body_of(READ_RECORDS), ndjson)
    topic = {"partitions": 1, "configs": {"max.message.bytes": 2 * VALUE_BYTES}}
    _answer(connection, "PUT", "/v1/topics/values", json.dumps(topic).encode(), plain)
    for body in value_bodies():
        _answer(connection, "POST", "/v1/topics/values/records?acks=1", body, plain)


def _answer(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> None:
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {content[:500]!r}")


def _load(kind: str, port: int) -> subprocess.Popen[bytes]:
    """An uploader or a reader that goes on until it is killed."""
    return subprocess.Popen([sys.executable, "-m", "load.bench_fairness", kind, str(port)])


def separate(broker_pid: int) -> str:
    """Give the broker a core and the clients another, this process first; says what could be done."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return "one core for all"
    for thread in Path(f"/proc/{broker_pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cores[0]})
    os.sched_setaffinity(0, set(cores[1:]))
    return "the broker on a core of its own"


def come_first() -> str:
    """Let this process run before the loads that it has started."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return "prober not before the loads (needs root)"
    return "the prober before the loads"


class Prober:
    """Measures beside loads, in turn with none."""

    def __init__(self, http_port: int, port: int) -> None:
        self._http_port, self._port = http_port, port
        self.how = ""

    def compare(self, *kinds: str) -> Comparison:
        """Return the p99 of each round, in ms: beside loads of these kinds, and alone."""
        busy: list[float] = []
        idle: list[float] = []
        for _ in range(ROUNDS):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            idle.append(percentile(produce_latencies(self._port, SAMPLES), 0.99))
            loads = [_load(kind, self._http_port) for kind in kinds]
            self.how = come_first()
            try:
                # Discarded: the loads are starting.
                produce_latencies(self._port, 500)
                busy.append(percentile(produce_latencies(self._port, SAMPLES), 0.99))
                if any(load.poll() is not None for load in loads):
                    raise RuntimeError("a load ended before the measurement did")
            finally:
                for load in loads:
                    load.kill()
                    load.wait()
        return Comparison(ours=busy, yardstick=idle)


LOADS = {"upload": upload, "read": read_json, "write-values": write_values, "read-values": read_values}


def main() -> None:
    if len(sys.argv) == 3:
        work = LOADS[sys.argv[1]]
        while True:
            work(int(sys.argv[2]))
    with running_broker("--log-level", "warning") as broker:
        http_port, port = urlsplit(broker.http_url).port, urlsplit(broker.binary_url).port
        assert http_port is not None
        assert port is not None
        fill(http_port)
        print(separate(broker.pid), end=", ")
        produce_latencies(port, 500)
        prober = Prober(http_port, port)
        streams = prober.compare("upload", "read")
        values = prober.compare("write-values", "read-values")
        print(prober.how)
    report(
        f"p99 of single binary produces during a {UPLOAD_BYTES // 1_000_000} MB NDJSON upload and JSON reads of"
        f" {READ_RECORDS:,} records",
        streams,
        unit="ms",
        yardstick="the same, idle",
        goal=3,
        at_most=True,
    )
    report(
        "p99 of single binary produces while one client writes and one reads JSON values of 1 MiB",
        values,
        unit="ms",
        yardstick="the same, idle",
        # About 5 ms, for an idle p99 of 0.25 ms.
        goal=20,
        at_most=True,
    )


if __name__ == "__main__":
    main()
