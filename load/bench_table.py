"""Measure reads by key and table snapshots against reading the whole log.

The topic is compacted.

A partition has 1,000,000 records of 100,000 keys, none of them compacted yet: the table is
a tenth of the log. The yardsticks read the log from its start, as a client without these
reads must: until the last record of the key, or to the end.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from random import Random

import httpx
from stele.broker_process import run_broker
from stele.wire.record_batch import BatchBuilder

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import PartitionFetch, records_in_turns
from app.composition import open_broker
from app.settings import Settings

from .measure import Comparison, report

TOPIC = "bench"
RECORDS, KEYS = 1_000_000, 100_000
VALUE = b"x" * 100
BATCH = 500
LOOKUPS, ROUNDS = 2_000, 5
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(32 << 20)}
PIECE_BYTES = 1 << 20


def key_of(number: int) -> bytes:
    return b"key-%d" % number


async def fill(broker: Broker) -> dict[bytes, int]:
    """Write the records; return the last offset of each key."""
    await broker.create_topic(TOPIC, partitions=1, configs=CONFIGS)
    random, last = Random(1), dict[bytes, int]()
    for start in range(0, RECORDS, BATCH):
        builder = BatchBuilder()
        for offset in range(start, start + BATCH):
            key = key_of(random.randrange(KEYS))
            builder.append(timestamp_ms=1_700_000_000_000 + offset, key=key, value=VALUE)
            last[key] = offset
        await broker.produce_room()
        await broker.produce(TOPIC, 0, builder.build(), acks=Acks.LEADER).wait(60_000)
    await broker.flush()
    return last


async def in_process(directory: Path) -> dict[bytes, int]:
    """Print look-ups per second in the process of the broker."""
    broker = await open_broker(Settings(data_dir=directory, log_cleaner_enable=False))
    last = await fill(broker)
    began_s = time.perf_counter()
    assert await broker.newest_record(TOPIC, b"never", broker.decoded.reader()) is None
    print(f"first look-up, which builds the key indexes of {RECORDS:,} records")
    print(f"  Stele      {time.perf_counter() - began_s:>14,.1f} s")
    random = Random(2)
    ours: list[float] = []
    yardstick: list[float] = []
    for _ in range(ROUNDS):
        keys = random.choices(list(last), k=LOOKUPS)
        began_s = time.perf_counter()
        for key in keys:
            found = await broker.newest_record(TOPIC, key, broker.decoded.reader())
            assert found is not None
            assert found.record.offset == last[key]
        ours.append(LOOKUPS / (time.perf_counter() - began_s))
        began_s = time.perf_counter()
        await scan_for(broker, keys[0], last[keys[0]])
        yardstick.append(1 / (time.perf_counter() - began_s))
    report(
        "look-up of a key, in process, one at a time",
        Comparison(ours=ours, yardstick=yardstick),
        unit="look-ups/s",
        yardstick="the log is decoded from its start to the last record of the key",
        goal=100,
    )
    await broker.close()
    return last


async def scan_for(broker: Broker, key: bytes, last_offset: int) -> None:
    offset, newest = 0, -1
    while offset <= last_offset:
        request = PartitionFetch(topic=TOPIC, partition=0, offset=offset, max_bytes=PIECE_BYTES)
        (fetched,) = await broker.fetch([request], max_bytes=PIECE_BYTES)
        async for records in records_in_turns(fetched, offset, broker.decoded.reader()):
            for record in records:
                if record.key == key:
                    newest = record.offset
            offset = records[-1].offset + 1
    assert newest == last_offset


def over_http(url: str, last: dict[bytes, int]) -> None:
    """Print look-ups per second, and time and bytes of a table, over one connection."""
    with httpx.Client(base_url=url, timeout=300) as http:
        random = Random(3)
        ours: list[float] = []
        yardstick: list[float] = []
        http.get(f"/v1/topics/{TOPIC}/keys/key-1").raise_for_status()
        for _ in range(ROUNDS):
            keys = random.choices(list(last), k=LOOKUPS // 4)
            began_s = time.perf_counter()
            for key in keys:
                answer = http.get(
                    f"/v1/topics/{TOPIC}/keys/{key.decode()}", headers={"accept": "application/octet-stream"}
                )
                assert answer.content == VALUE
            ours.append(len(keys) / (time.perf_counter() - began_s))
            began_s = time.perf_counter()
            read_log(http, last[keys[0]] + 1, "application/octet-stream")
            yardstick.append(1 / (time.perf_counter() - began_s))
        report(
            "look-up of a key over HTTP, one at a time",
            Comparison(ours=ours, yardstick=yardstick),
            unit="look-ups/s",
            yardstick="the batches are read over HTTP up to the key's last record, and not decoded",
            goal=10,
        )
        times: list[float] = []
        log_times: list[float] = []
        size = log_size = 0
        for _ in range(ROUNDS):
            began_s = time.perf_counter()
            size = 0
            with http.stream("GET", f"/v1/topics/{TOPIC}/table") as stream:
                for part in stream.iter_raw():
                    size += len(part)
            times.append(time.perf_counter() - began_s)
            began_s = time.perf_counter()
            log_size = read_log(http, RECORDS, "application/x-ndjson")
            log_times.append(time.perf_counter() - began_s)
        report(
            f"table of {len(last):,} keys as NDJSON",
            Comparison(ours=times, yardstick=log_times),
            unit="s",
            yardstick=f"the whole log of {RECORDS:,} records as NDJSON",
            goal=0.5,
            at_most=True,
        )
        print(f"  bytes      {size:>14,} of {log_size:,}: {size / log_size:.2f} x")


def read_log(http: httpx.Client, end: int, media_type: str) -> int:
    """Read the partition from its start to ``end``; return the bytes that came."""
    offset = size = 0
    while offset < end:
        path = f"/v1/topics/{TOPIC}/partitions/0/records?from={offset}&limit=1000000"
        with http.stream("GET", path, headers={"accept": media_type}) as stream:
            for part in stream.iter_raw():
                size += len(part)
            offset = int(stream.headers["next-offset"])
    return size


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "data"
        last = asyncio.run(in_process(directory))
        with run_broker(directory, environment={"STELE_LOG_CLEANER_ENABLE": "false"}) as broker:
            over_http(broker.http_url, last)


if __name__ == "__main__":
    main()
