"""Measure pipelined PRODUCE frames (ADR-0009) against a server that parses them.

Records have 100 bytes; the yardstick stores nothing.
"""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

from stele.wire.messages import ProduceRequest

from .broker_process import running_broker
from .measure import in_turn, report
from .yardsticks import yardstick_server

RECORDS = 400_000
CHUNK = 256
# Produces in flight: enough that neither side waits for the other's turn.
IN_FLIGHT_CHUNKS = 8
ANSWER_BYTES = 14


def produce_rate(port: int) -> float:
    """Return confirmed records per second over one connection."""
    chunk = ProduceRequest(topic="bench", data=b"x" * 100).encode() * CHUNK
    chunks = RECORDS // CHUNK
    answer = bytearray(1024 * 1024)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        start = time.perf_counter()
        sent = received = 0
        while received < chunks * CHUNK * ANSWER_BYTES:
            while sent < chunks and sent - received // (CHUNK * ANSWER_BYTES) < IN_FLIGHT_CHUNKS:
                connection.sendall(chunk)
                sent += 1
            got = connection.recv_into(answer)
            if not got:
                raise ConnectionError("the server closed the connection")
            received += got
        return chunks * CHUNK / (time.perf_counter() - start)


def main() -> None:
    with running_broker("--log-level", "warning") as broker, yardstick_server("frames") as port:
        ours = urlsplit(broker.binary_url).port
        assert ours is not None
        comparison = in_turn(lambda: produce_rate(ours), lambda: produce_rate(port))
    report(
        "binary PRODUCE, pipelined, 100 bytes, acks=1 (appended: page cache, synced every 100 ms)",
        comparison,
        unit="records/s",
        yardstick="parses and answers the same frames, stores nothing",
        goal=0.4,
    )


if __name__ == "__main__":
    main()
