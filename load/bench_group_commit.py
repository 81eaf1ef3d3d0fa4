"""Measure acks=all with 64 concurrent producers against one fdatasync per record."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop
from stele.wire import messages as m
from stele.wire.record_batch import BatchBuilder, build_values

from .broker_process import running_broker
from .measure import in_turn, report

PRODUCERS = 64
SECONDS = 3.0
_ANSWER_BYTES = len(
    m.ProduceBatchResponse(
        partition=0,
        base_offset=0,
        last_offset=0,
        log_append_time_ms=-1,
        log_start_offset=0,
        durability=m.Durability.SYNCED,
    ).encode()
)


def frame_of(records: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(timestamp_ms=1_700_000_000_000, value=b"x" * 100)
    return m.ProduceBatchRequest(
        topic="bench", partition=0, acks=m.ACKS_ALL, batches=builder.build()
    ).encode()


class _Producer(asyncio.Protocol):
    """Sends its next batch when the last one is confirmed."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._received = 0
        self.confirmed = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received == _ANSWER_BYTES:
            # type, status, … and the last byte is the receipt
            if data[-1] != m.Durability.SYNCED:
                raise RuntimeError(f"not synced: {data!r}")
            self.confirmed += 1
            self._received = 0
            assert self.transport is not None
            self.transport.write(self._frame)


async def _produce(port: int, frame: bytes) -> int:
    loop = asyncio.get_running_loop()
    producers: list[_Producer] = []
    for _ in range(PRODUCERS):
        _, producer = await loop.create_connection(lambda: _Producer(frame), "127.0.0.1", port)
        producers.append(producer)
    before = sum(producer.confirmed for producer in producers)
    await asyncio.sleep(SECONDS)
    confirmed = sum(producer.confirmed for producer in producers) - before
    for producer in producers:
        assert producer.transport is not None
        producer.transport.abort()
    return confirmed


def synced_rate(port: int, records: int) -> float:
    """Return records per second confirmed as synced."""
    return uvloop.run(_produce(port, frame_of(records))) * records / SECONDS


def one_by_one_rate(directory: Path) -> float:
    """Return records per second when each is a batch that is synced on its own."""
    batch = build_values([b"x" * 100], 1_700_000_000_000)
    path = directory / "one-by-one.log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        os.write(fd, batch)
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    return count / SECONDS


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
        directory = Path(temporary)
        with running_broker("--log-level", "warning", data_dir=directory / "data") as broker:
            port = urlsplit(broker.binary_url).port
            assert port is not None
            for records in (1, 100):
                comparison = in_turn(
                    lambda records=records: synced_rate(port, records),
                    lambda: one_by_one_rate(directory),
                    rounds=3,
                )
                report(
                    f"acks=all (synced), {PRODUCERS} producers, each waits for its batch of {records} x 100 bytes",
                    comparison,
                    unit="records/s",
                    yardstick="one writer, one fdatasync for each record, same file system",
                    goal=20,
                )


if __name__ == "__main__":
    main()
