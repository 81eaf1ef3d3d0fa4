"""Measure consumers that read a topic from its start, as fast as they can, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from .. import kafka_frames as frames
from .costs import Costs, Point
from .peers import temporary_topic

SIZES = (1, 20, 100)
_BUFFER_BYTES = 1 << 20
_BATCH_BYTES, _BATCHES = 256 * 1024, 128
# Bytes that all readers together read in one measurement.
_READ_BYTES = 1024 * 1024 * 1024


async def readers(costs: Costs, sizes: Sequence[int] = SIZES) -> list[Point]:
    """Measure so many readers; a unit is 1 MiB."""
    host, port = costs.subject.address
    points: list[Point] = []
    async with temporary_topic(costs.subject) as topic:
        await asyncio.to_thread(_fill, host, port, topic)
        for size in sizes:
            work = partial(_read_all, host, port, topic, size)
            points.append(await costs.of("consumers that catch up", size, work))
    return points


def _fill(host: str, port: int, topic: str) -> None:
    batch = frames.batch_of(_BATCH_BYTES // 1024, 1024)
    with frames.connect(host, port) as connection:
        for _ in range(_BATCHES):
            connection.sendall(frames.produce_request(topic, batch, acks=1))
            frames.check_produce(frames.receive(connection))


async def _read_all(host: str, port: int, topic: str, readers: int) -> int:
    size = _READ_BYTES // readers
    return sum(await asyncio.gather(*(_read(host, port, topic, size) for _ in range(readers)))) // 1024**2


async def _read(host: str, port: int, topic: str, size: int) -> int:
    """Fetch from the start of the topic over and over, until ``size`` bytes have come; discard them."""
    reader, writer = await asyncio.open_connection(host, port, limit=_BUFFER_BYTES)
    request, received = frames.fetch_request(topic, 0, max_wait_ms=0), 0
    while received < size:
        writer.write(request)
        left = int.from_bytes(await reader.readexactly(4), "big")
        received += left
        while left:
            if not (part := await reader.read(min(left, _BUFFER_BYTES))):
                raise ConnectionError("the broker closed the connection")
            left -= len(part)
    writer.close()
    return received
