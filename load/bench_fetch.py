"""Measure fetches of 1 MiB over TCP against ``socket.sendfile``.

Both read the same file.
"""

from __future__ import annotations

import socket
import struct
import time
from urllib.parse import urlsplit

from stele.wire import messages as m
from stele.wire.record_batch import BatchBuilder

from .broker_process import running_broker
from .measure import in_turn, report
from .yardsticks import yardstick_server

TOTAL_BYTES = 512 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
TOPIC = "bench"


def _read_exactly(connection: socket.socket, view: memoryview) -> None:
    got = 0
    while got < len(view):
        count = connection.recv_into(view[got:])
        if not count:
            raise ConnectionError("the server closed the connection")
        got += count


def fill(port: int) -> None:
    """256 MiB of batches of 16 KB."""
    builder = BatchBuilder()
    for _ in range(16):
        builder.append(timestamp_ms=1_700_000_000_000, value=b"x" * 1000)
    frame = m.ProduceBatchRequest(topic=TOPIC, partition=0, acks=1, batches=builder.build()).encode()
    answer = len(
        m.ProduceBatchResponse(
            partition=0,
            base_offset=0,
            last_offset=0,
            log_append_time_ms=-1,
            log_start_offset=0,
            durability=m.Durability.APPENDED,
        ).encode()
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        buffer = memoryview(bytearray(answer * 64))
        for _ in range(TOTAL_BYTES // 2 // len(frame) // 64):
            connection.sendall(frame * 64)
            _read_exactly(connection, buffer)
        connection.sendall(m.FlushRequest().encode())
        _read_exactly(connection, memoryview(bytearray(6)))


def fetch_rate(port: int) -> float:
    """Return MiB of batches per second: the next fetch is asked for while the last one arrives."""
    buffer = memoryview(bytearray(4 * CHUNK_BYTES))

    def request(offset: int) -> bytes:
        partition = m.FetchPartition(topic=TOPIC, partition=0, offset=offset, max_bytes=CHUNK_BYTES)
        return m.FetchRequest(partitions=[partition], max_bytes=CHUNK_BYTES).encode()

    records_per_fetch = 0
    total = offset = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        start = time.perf_counter()
        connection.sendall(request(0))
        while total < TOTAL_BYTES:
            _read_exactly(connection, buffer[:4])
            (length,) = struct.unpack_from(">I", buffer)
            _read_exactly(connection, buffer[4:length])
            # status and count, then one partition: topic, number, code, message, two offsets, length
            head = 10 + 4 + len(TOPIC) + 6 + 4 + 16
            (size,) = struct.unpack_from(">i", buffer, head)
            if size:
                last = _last_offset(buffer[head + 4 : head + 4 + size])
                records_per_fetch = last + 1 - offset
                offset = last + 1
            else:
                offset = 0
            assert records_per_fetch
            connection.sendall(request(offset))
            total += size
        return total / 1024 / 1024 / (time.perf_counter() - start)


def _last_offset(batches: memoryview) -> int:
    position = 0
    last = 0
    while position < len(batches):
        base, length = struct.unpack_from(">qi", batches, position)
        (delta,) = struct.unpack_from(">i", batches, position + 23)
        last = base + delta
        position += 12 + length
    return last


def sendfile_rate(port: int) -> float:
    """Return MiB of the file per second."""
    buffer = memoryview(bytearray(4 * CHUNK_BYTES))
    total = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        start = time.perf_counter()
        while total < TOTAL_BYTES:
            total += connection.recv_into(buffer)
        return total / 1024 / 1024 / (time.perf_counter() - start)


def main() -> None:
    with running_broker("--log-level", "warning") as broker:
        ours = urlsplit(broker.binary_url).port
        assert ours is not None
        fill(ours)
        segment = broker.data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
        with yardstick_server("sendfile", str(segment)) as port:
            comparison = in_turn(lambda: fetch_rate(ours), lambda: sendfile_rate(port))
    report(
        "fetch of 1 MiB over TCP, one request ahead of the answer at most, 16 KB batches, warm cache",
        comparison,
        unit="MiB/s",
        yardstick="bare socket.sendfile loop over the same segment",
        goal=0.5,
    )


if __name__ == "__main__":
    main()
