"""Measure the table of a compacted topic by its number of keys, read over HTTP.

Every key is written several times, so that most records of the log belong to no row. The first read of a topic builds
the key indexes of its segments; later ones, after one more record each, merge them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial

from stele.broker_process import BrokerProcess
from stele.wire.record_batch import BatchBuilder

from .. import kafka_frames as frames
from ..decoded_reads import ask, http_request
from .costs import Costs, Point

SIZES = (10_000, 200_000, 2_000_000)
_VERSIONS = 3
_VALUE_BYTES = 80
_PER_BATCH = 1_000
# Requests under way while a topic is filled.
_PIPELINED = 8
_READ_BYTES = 1 << 20
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 26), "min.cleanable.dirty.ratio": "1"}
_AGAIN = {"records": [{"key": "key-00000000", "value": "again"}]}


async def keys(costs: Costs, sizes: Sequence[int] = SIZES) -> list[Point]:
    """Measure tables of so many keys; a unit is a row, or the first row with all that is done for it."""
    points: list[Point] = []
    broker = costs.broker
    for size in sizes:
        first, beside = names = [f"growth-{size}-keys-{number}" for number in range(2)]
        for topic in names:
            await asyncio.to_thread(_make, broker, topic, size)
        read = partial(read_table, broker, first, size)
        again = partial(read_table, broker, beside, size)
        points.append(await costs.of("the first table", size, read, again=again))
        points.append(await costs.of("a table", size, partial(read, is_changed=True)))
        points.append(await costs.of("the first row", size, partial(_first_row, broker, first)))
        for topic in names:
            await asyncio.to_thread(ask, broker.http_port, "DELETE", f"/v1/topics/{topic}")
    return points


def make_compacted(broker: BrokerProcess, topic: str) -> None:
    ask(broker.http_port, "PUT", f"/v1/topics/{topic}", {"partitions": 1, "configs": _CONFIGS})


def _make(broker: BrokerProcess, topic: str, size: int) -> None:
    make_compacted(broker, topic)
    _fill(broker, topic, size)
    # Key indexes are built of what is synced.
    ask(broker.http_port, "POST", f"/v1/topics/{topic}/flush")


def _fill(broker: BrokerProcess, topic: str, size: int) -> None:
    with frames.connect(broker.host, broker.kafka_port) as connection:
        under_way = 0
        for batch in _batches(size):
            connection.sendall(frames.produce_request(topic, batch, acks=1))
            under_way += 1
            if under_way == _PIPELINED:
                frames.check_produce(frames.receive(connection))
                under_way -= 1
        for _ in range(under_way):
            frames.check_produce(frames.receive(connection))


def _batches(size: int) -> Iterator[bytes]:
    """Yield each of ``size`` keys ``_VERSIONS`` times, all of them in each round."""
    now_ms = time.time_ns() // 1_000_000
    for version in range(_VERSIONS):
        for first in range(0, size, _PER_BATCH):
            builder = BatchBuilder()
            for number in range(first, min(first + _PER_BATCH, size)):
                value = b"%d-" % version + b"v" * _VALUE_BYTES
                builder.append(timestamp_ms=now_ms, key=b"key-%08d" % number, value=value)
            yield bytes(builder.build())


async def read_table(broker: BrokerProcess, topic: str, size: int, *, is_changed: bool = False) -> int:
    """Read a table of ``size`` rows, after one more record if ``is_changed``."""
    if is_changed:
        await _change(broker, topic)
    tail = b""
    reader, writer = await _begin(broker, topic)
    while part := await reader.read(_READ_BYTES):
        tail = (tail + part)[-4096:]
    writer.close()
    end = json.loads(tail[tail.rindex(b'{"end"') : tail.rindex(b"}}") + 2])["end"]
    if end["reason"] != "end" or end["records"] != size:
        raise RuntimeError(f"the table of {topic} with {size} keys ends with {end}")
    return size


async def _first_row(broker: BrokerProcess, topic: str) -> int:
    """Read up to the first row after one more record, and leave."""
    await _change(broker, topic)
    reader, writer = await _begin(broker, topic)
    await reader.readuntil(b'"offset":')
    writer.close()
    return 1


async def _change(broker: BrokerProcess, topic: str) -> None:
    await asyncio.to_thread(ask, broker.http_port, "POST", f"/v1/topics/{topic}/records", _AGAIN)


async def _begin(broker: BrokerProcess, topic: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(broker.host, broker.http_port, limit=_READ_BYTES)
    writer.write(http_request("GET", f"/v1/topics/{topic}/table"))
    return reader, writer
