"""Measure the memory of a broker while clients read large compressed values.

For every kind of decoded read: the resident memory at its highest while 50 clients read values of 60 MiB out of zstd
batches of 2 KB, beside that of the same broker while as many clients read values of 1 KB. A bystander produces and
reads small records meanwhile; the second figure is its longest wait. The clients read everything; with ``--stalled``
they read nothing of the body.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, field

from stele.broker_process import BrokerProcess
from stele.wire.compression import Compression
from stele.wire.record_batch import BatchBuilder

from .harness import Benchmark
from .kafka_frames import connect, produce_request, receive
from .process_usage import PeakMemory
from .results import Measure
from .subjects import quiet_broker

TOPIC, BYSTANDERS_TOPIC = "packed", "small"
MIB = 1024 * 1024
_SEND_BYTES = 256 * 1024


def packed_batch(size: int, *, key: bytes = b"k") -> bytes:
    """Return a batch of one record whose value is ``size`` bytes of text, in zstd."""
    builder = BatchBuilder(compression=Compression.ZSTD)
    builder.append(timestamp_ms=time.time_ns() // 1_000_000, key=key, value=b"x" * size)
    return bytes(builder.build())


@dataclass(frozen=True, slots=True)
class Way:
    """One kind of decoded read: a request, for the client of a number."""

    what: str
    path: str
    accept: str = "application/json"
    body: dict[str, object] | None = None

    def request(self, topic: str, number: int) -> bytes:
        path = self.path.format(topic=topic, number=number)
        content = b"" if self.body is None else json.dumps({"topics": [topic], **self.body}).encode()
        head = (
            f"{'GET' if self.body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {self.accept}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + content


_RECORDS = "/v1/topics/{topic}/partitions/0/records"
_NDJSON, _SSE = "application/x-ndjson", "text/event-stream"
WAYS = (
    Way("a page as JSON", f"{_RECORDS}?limit=2"),
    Way("a page as NDJSON", f"{_RECORDS}?limit=2", _NDJSON),
    Way("a page as Arrow", f"{_RECORDS}?limit=2", "application/vnd.apache.arrow.stream"),
    Way("a single record", _RECORDS + "/1"),
    Way("the value of a record", _RECORDS + "/1?part=value", "*/*"),
    Way("a search", "/v1/topics/{topic}/search?limit=2"),
    Way("an export as NDJSON", "/v1/topics/{topic}/search?format=ndjson&limit=2"),
    Way("an export as CSV", "/v1/topics/{topic}/search?format=csv&limit=2"),
    Way("a lookup by key", "/v1/topics/{topic}/keys/k"),
    Way("a table as NDJSON", "/v1/topics/{topic}/table", _NDJSON),
    Way("a table as events", "/v1/topics/{topic}/table", _SSE),
    Way("a live tail as events", f"{_RECORDS}?from=earliest", _SSE),
    Way("a live tail as NDJSON", "/v1/topics/{topic}/records?from=earliest", _NDJSON),
    Way("a poll with a lease", "/v1/groups/lease-{number}/poll", body={"max_records": 2}),
    Way(
        "a poll of a share group",
        "/v1/groups/share-{number}/share/poll",
        body={"max_records": 2, "from": "earliest"},
    ),
)


def prepare(broker: BrokerProcess, size: int) -> str:
    """Create a compacted topic with two values of ``size`` bytes, and return its name."""
    topic = f"{TOPIC}-{size}"
    ask(broker, "PUT", f"/v1/topics/{topic}", {"partitions": 1, "configs": {"cleanup.policy": "compact"}})
    with connect(broker.host, broker.kafka_port) as connection:
        for key in (b"other", b"k"):
            connection.sendall(produce_request(topic, packed_batch(size, key=key), acks=-1))
            receive(connection)
    return topic


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> bytes:
    """Send a request on a connection of its own, and return the whole answer."""
    content = b"" if body is None else json.dumps(body).encode()
    with socket.create_connection((broker.host, broker.http_port), timeout=120) as connection:
        connection.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
            + content
        )
        answer = bytearray()
        while part := connection.recv(_SEND_BYTES):
            answer += part
    return bytes(answer)


@dataclass(slots=True)
class Bystander:
    """Produces and reads small records until it is stopped."""

    broker: BrokerProcess
    answered: int = 0
    longest_s: float = 0.0
    failures: list[bytes] = field(default_factory=list[bytes])

    def once(self) -> None:
        began_s = time.perf_counter()
        record = {"records": [{"value": "v"}]}
        written = ask(self.broker, "POST", f"/v1/topics/{BYSTANDERS_TOPIC}/records", record)
        read = ask(self.broker, "GET", f"/v1/topics/{BYSTANDERS_TOPIC}/partitions/0/records?limit=10")
        self.longest_s = max(self.longest_s, time.perf_counter() - began_s)
        if b" 200 " in written[:15] and b" 200 " in read[:15]:
            self.answered += 2
        else:
            self.failures.append(written[:200] + read[:200])


def read_all(
    broker: BrokerProcess, request: bytes, stop: threading.Event, *, size: int, stalled: bool
) -> int:
    """Read an answer, or nothing of it, and return how many bytes came."""
    received = 0
    with socket.create_connection((broker.host, broker.http_port), timeout=300) as connection:
        connection.sendall(request)
        if stalled:
            stop.wait()
            return 0
        try:
            while received < size and (part := connection.recv(_SEND_BYTES)):
                received += len(part)
        except ConnectionError:
            pass
    return received


def measure(
    broker: BrokerProcess, way: Way, topic: str, *, clients: int, size: int, stalled: bool
) -> tuple[float, Bystander]:
    """Return the peak memory of one kind, and what became of the bystander."""
    memory, bystander, stop = PeakMemory(broker.pid), Bystander(broker), threading.Event()
    memory.reset()
    threads = [
        threading.Thread(
            target=read_all,
            args=(broker, way.request(topic, number), stop),
            kwargs={"size": size, "stalled": stalled},
            daemon=True,
        )
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    rounds = 0
    while any(thread.is_alive() for thread in threads) and (not stalled or rounds < 20):
        bystander.once()
        rounds += 1
    stop.set()
    for thread in threads:
        thread.join()
    return memory.mib, bystander


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=1)
    bench.add("--clients", type=int, default=50, quick=5, help="default: 50")
    bench.add("--value-mib", type=int, default=60, quick=8, help="size of the large values (default: 60)")
    bench.parser.add_argument("--stalled", action="store_true", help="the clients read nothing of the body")
    bench.parser.add_argument("--only", default="", help="ways whose name contains this")
    with bench.run() as options, quiet_broker() as broker:
        ask(broker, "PUT", f"/v1/topics/{BYSTANDERS_TOPIC}", {"partitions": 1})
        sizes = 1024, options.value_mib * MIB
        topics = [prepare(broker, size) for size in sizes]
        for way in WAYS:
            if options.only not in way.what:
                continue
            # No more are served at once.
            clients = (
                min(options.clients, 8) if way.what.split()[1] in ("search", "table") else options.clients
            )
            peaks_mib: list[float] = []
            longest_s: list[float] = []
            for size, topic in zip(sizes, topics, strict=True):
                peak_mib, bystander = measure(
                    broker, way, topic, clients=clients, size=size, stalled=options.stalled
                )
                if bystander.failures:
                    raise RuntimeError(f"{way.what}: a bystander got {bystander.failures[0]!r}")
                peaks_mib.append(peak_mib)
                longest_s.append(bystander.longest_s)
            small, large = peaks_mib
            bench.row(
                f"{way.what}, {clients} clients",
                baseline="values of 1 KB",
                measures={
                    "peak": Measure(unit="MiB", stele=[large], baseline=[small]),
                    "bystander": Measure(unit="s", stele=longest_s[1:], baseline=longest_s[:1]),
                },
            )


if __name__ == "__main__":
    main()
