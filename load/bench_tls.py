"""Measure what produce, fetch and connections cost over TLS, beside plaintext.

Rates are per second of CPU time of the broker's event loop: the client's TLS and other
work on the machine do not count.
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

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from stele.broker_process import BrokerProcess, BrokerTls, run_broker
from stele.wire import messages as m
from stele.wire.record_batch import BatchBuilder

from .certificates import write_certificate
from .measure import in_turn, report

RECORDS = 100_000
CHUNK = 256
IN_FLIGHT_CHUNKS = 8
ANSWER_BYTES = 14
SINGLE_CALLS = 2_000
FETCH_BYTES = 1024 * 1024
FETCHED_BYTES = 128 * 1024 * 1024
HANDSHAKES = 200
TOPIC = "bench"

Connect = Callable[[], socket.socket]
# What is measured, how, its unit, and the least ratio.
Measure = tuple[str, Callable[[Connect], float], str, float]


def connector(port: int, context: ssl.SSLContext | None) -> Connect:
    def connect() -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return connection
        return context.wrap_socket(connection, server_hostname="127.0.0.1")

    return connect


def read_exactly(connection: socket.socket, view: memoryview) -> None:
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the broker closed the connection")
        view = view[count:]


def produce(connect: Connect) -> float:
    """Produce pipelined over one connection; return the number of confirmed records."""
    chunk = m.ProduceRequest(topic=TOPIC, data=b"x" * 100).encode() * CHUNK
    chunks = RECORDS // CHUNK
    answer = bytearray(1024 * 1024)
    with connect() as connection:
        sent = received = 0
        while received < chunks * CHUNK * ANSWER_BYTES:
            while sent < chunks and sent - received // (CHUNK * ANSWER_BYTES) < IN_FLIGHT_CHUNKS:
                connection.sendall(chunk)
                sent += 1
            got = connection.recv_into(answer)
            if not got:
                raise ConnectionError("the broker closed the connection")
            received += got
    return chunks * CHUNK


def call(connect: Connect) -> float:
    """Produce one record at a time; return the number of calls."""
    frame = m.ProduceRequest(topic=TOPIC, data=b"x" * 100).encode()
    answer = memoryview(bytearray(ANSWER_BYTES))
    with connect() as connection:
        for _ in range(SINGLE_CALLS):
            connection.sendall(frame)
            read_exactly(connection, answer)
    return SINGLE_CALLS


def fill(connect: Connect) -> None:
    """Write 4 MiB of batches of 16 KB."""
    builder = BatchBuilder()
    for _ in range(16):
        # Now: retention would delete older records while the benchmark runs.
        builder.append(timestamp_ms=time.time_ns() // 1_000_000, value=b"x" * 1000)
    frame = m.ProduceBatchRequest(topic="big", partition=0, acks=1, batches=builder.build()).encode()
    head = memoryview(bytearray(4))
    with connect() as connection:
        for _ in range(4 * FETCH_BYTES // len(frame)):
            connection.sendall(frame)
            read_exactly(connection, head)
            read_exactly(connection, memoryview(bytearray(struct.unpack(">I", head)[0] - 4)))


def fetch(connect: Connect) -> float:
    """Fetch 1 MiB at a time, the next requested while the last one arrives; return MiB."""
    partition = m.FetchPartition(topic="big", partition=0, offset=0, max_bytes=FETCH_BYTES)
    request = m.FetchRequest(partitions=[partition], max_bytes=FETCH_BYTES).encode()
    buffer = memoryview(bytearray(4 * FETCH_BYTES))
    total = 0
    with connect() as connection:
        connection.sendall(request)
        while total < FETCHED_BYTES:
            read_exactly(connection, buffer[:4])
            (length,) = struct.unpack_from(">I", buffer)
            assert length > FETCH_BYTES // 2, "the response has fewer records than there are"
            connection.sendall(request)
            read_exactly(connection, buffer[4:length])
            total += length
    return total / 1024 / 1024


def connect_once(connect: Connect) -> float:
    """Open connections that end with the answer to their first request; return their number."""
    frame = m.ProduceRequest(topic=TOPIC, data=b"x").encode()
    answer = memoryview(bytearray(ANSWER_BYTES))
    for _ in range(HANDSHAKES):
        with connect() as connection:
            connection.sendall(frame)
            read_exactly(connection, answer)
    return HANDSHAKES


def per_cpu_second(measure: Callable[[Connect], float], connect: Connect, broker: BrokerProcess) -> float:
    """Return what ``measure`` did per second of CPU time of the broker's main thread."""

    def used_s() -> float:
        return int(Path(f"/proc/{broker.pid}/schedstat").read_text().split()[0]) / 1e9

    before_s = used_s()
    done = measure(connect)
    return done / (used_s() - before_s)


def compare(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, measures: Sequence[Measure]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        certificate, key_file = write_certificate(Path(folder), key)
        tls = BrokerTls(certificate_file=certificate, key_file=key_file, ca_file=certificate)
        arguments = ("--log-level", "warning")
        with run_broker(tls=tls, arguments=arguments) as over_tls, run_broker(arguments=arguments) as plain:
            context = ssl.create_default_context(cafile=str(certificate))
            ours, yardstick = connector(over_tls.binary_port, context), connector(plain.binary_port, None)
            for connect in (ours, yardstick):
                fill(connect)
                connect_once(connect)
            for what, measure, unit, goal in measures:
                report(
                    what,
                    in_turn(
                        partial(per_cpu_second, measure, ours, over_tls),
                        partial(per_cpu_second, measure, yardstick, plain),
                        rounds=3,
                    ),
                    unit=f"{unit} per CPU second",
                    yardstick="the same in plaintext",
                    goal=goal,
                )


def main() -> None:
    compare(
        ec.generate_private_key(ec.SECP256R1()),
        [
            ("PRODUCE over TLS, pipelined, 100 bytes, appended", produce, "records", 0.7),
            ("PRODUCE over TLS, one at a time, 100 bytes, appended", call, "calls", 0.5),
            ("fetch of 1 MiB over TLS, warm cache", fetch, "MiB", 0.2),
            ("connections with one produce each, ECDSA P-256", connect_once, "connections", 0.1),
        ],
    )
    compare(
        rsa.generate_private_key(65537, 2048),
        [("connections with one produce each, RSA 2048", connect_once, "connections", 0.05)],
    )


if __name__ == "__main__":
    main()
