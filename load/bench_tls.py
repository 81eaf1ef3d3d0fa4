"""Measure what produce, fetch and connections cost over TLS, beside plaintext.

Rates are per second of CPU time of the broker's event loop: the client's TLS and other work on the machine do not
count.
"""

from __future__ import annotations

import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trustme
from stele.broker_process import BrokerProcess, BrokerTls
from stele.wire import messages as m
from stele.wire.record_batch import build_values

from .harness import Benchmark, in_turn
from .kafka_frames import connect as connected
from .results import at_least
from .subjects import quiet_broker

ANSWER_BYTES = 14
FETCH_BYTES = 1024 * 1024
TOPIC = "bench"

Connect = Callable[[], socket.socket]
# What is measured, how, and the least ratio.
Work = tuple[str, Callable[[Connect], float], float]


def tls_of(folder: Path, key_type: trustme.KeyType = trustme.KeyType.ECDSA) -> BrokerTls:
    """Write a certificate for brokers on this machine, its key and its CA."""
    authority = trustme.CA(key_type=key_type)
    issued = authority.issue_cert("127.0.0.1", "localhost", key_type=key_type)
    certificate, key, ca = (folder / name for name in ("server.pem", "server.key", "ca.pem"))
    certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(ca))
    return BrokerTls(certificate_file=certificate, key_file=key, ca_file=ca)


def connector(port: int, context: ssl.SSLContext | None) -> Connect:
    def connect() -> socket.socket:
        connection = connected("127.0.0.1", port)
        return connection if context is None else context.wrap_socket(connection, server_hostname="127.0.0.1")

    return connect


def read_exactly(connection: socket.socket, view: memoryview) -> None:
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the broker closed the connection")
        view = view[count:]


def call(connect: Connect, calls: int) -> float:
    """Produce one record at a time; return the number of calls."""
    frame = m.ProduceRequest(topic=TOPIC, data=b"x" * 100).encode()
    answer = memoryview(bytearray(ANSWER_BYTES))
    with connect() as connection:
        for _ in range(calls):
            connection.sendall(frame)
            read_exactly(connection, answer)
    return calls


def fill(connect: Connect) -> None:
    """Write 4 MiB of batches of 16 KB."""
    # Of now: retention would delete older records while the benchmark runs.
    batch = build_values([b"x" * 1000] * 16, time.time_ns() // 1_000_000)
    frame = m.ProduceBatchRequest(topic="big", partition=0, acks=1, batches=batch).encode()
    head = memoryview(bytearray(4))
    with connect() as connection:
        for _ in range(4 * FETCH_BYTES // len(frame)):
            connection.sendall(frame)
            read_exactly(connection, head)
            read_exactly(connection, memoryview(bytearray(struct.unpack(">I", head)[0] - 4)))


def fetch(connect: Connect, mebibytes: int) -> float:
    """Fetch 1 MiB at a time, the next requested while the last one arrives; return MiB."""
    partition = m.FetchPartition(topic="big", partition=0, offset=0, max_bytes=FETCH_BYTES)
    request = m.FetchRequest(partitions=[partition], max_bytes=FETCH_BYTES).encode()
    buffer = memoryview(bytearray(4 * FETCH_BYTES))
    total = 0
    with connect() as connection:
        connection.sendall(request)
        while total < mebibytes * FETCH_BYTES:
            read_exactly(connection, buffer[:4])
            (length,) = struct.unpack_from(">I", buffer)
            assert length > FETCH_BYTES // 2, "the response has fewer records than there are"
            connection.sendall(request)
            read_exactly(connection, buffer[4:length])
            total += length
    return total / FETCH_BYTES


def connect_once(connect: Connect, connections: int) -> float:
    """Open connections that end with the answer to their first request; return their number."""
    for _ in range(connections):
        call(connect, 1)
    return connections


def per_cpu_second(work: Callable[[Connect], float], connect: Connect, broker: BrokerProcess) -> float:
    """Return what ``work`` did per second of CPU time of the broker's main thread."""

    def used_s() -> float:
        return int(Path(f"/proc/{broker.pid}/schedstat").read_text().split()[0]) / 1e9

    before_s = used_s()
    done = work(connect)
    return done / (used_s() - before_s)


def compare(bench: Benchmark, key_type: trustme.KeyType, works: Sequence[Work]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tls = tls_of(Path(folder), key_type)
        with quiet_broker(tls=tls) as over_tls, quiet_broker() as plain:
            context = ssl.create_default_context(cafile=str(tls.ca_file))
            ours, yardstick = connector(over_tls.binary_port, context), connector(plain.binary_port, None)
            for connect in (ours, yardstick):
                fill(connect)
                call(connect, 1)
            for what, work, goal in works:
                value = in_turn(
                    partial(per_cpu_second, work, ours, over_tls),
                    partial(per_cpu_second, work, yardstick, plain),
                    rounds=bench.options.rounds,
                    unit="/s",
                    goal=at_least(goal),
                )
                bench.row(f"TLS, {what}", table="cost", baseline="plaintext", value=value)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.add("--scale", type=float, default=1.0, quick=0.1, help="more or less work per round")
    with bench.run() as options:
        calls, connections, mebibytes = (int(count * options.scale) for count in (2_000, 200, 128))
        opened = partial(connect_once, connections=connections)
        compare(
            bench,
            trustme.KeyType.ECDSA,
            [
                ("requests one at a time", partial(call, calls=calls), 0.5),
                ("fetches of 1 MiB", partial(fetch, mebibytes=mebibytes), 0.2),
                ("new connections, ECDSA", opened, 0.1),
            ],
        )
        compare(bench, trustme.KeyType.RSA, [("new connections, RSA", opened, 0.05)])


if __name__ == "__main__":
    main()
