"""A random history of a compacted topic through every protocol, with passes and kills: all readers build one table."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from stele import AsyncClient, AsyncProducer, Client, NewRecord
from stele.testing import BrokerProcess, run_broker

from app.storage.inspection.dump_and_verify import Verified, verify
from tests.support.compaction_passes import DEADLINE_S, write_until

from .test_compaction import CONFIGS, SETTINGS, TOPIC, await_clean, cleaned_until, records_of

Change = tuple[str, dict[str, Any] | None]
Table = dict[str, dict[str, Any]]
KEYS = 40
RECORDS = f"/v1/topics/{TOPIC}/partitions/0/records"


# ── writers ──


def encoded(changes: Iterable[Change]) -> list[tuple[bytes, bytes | None]]:
    return [(key.encode(), None if value is None else json.dumps(value).encode()) for key, value in changes]


def write_json(broker: BrokerProcess, changes: list[Change]) -> None:
    records = [{"key": key, "value": value} for key, value in changes]
    httpx.post(f"{broker.http_url}/v1/topics/{TOPIC}/records", json={"records": records}).raise_for_status()


def write_ndjson(broker: BrokerProcess, changes: list[Change]) -> None:
    lines = "".join(json.dumps({"key": key, "value": value}) + "\n" for key, value in changes)
    answer = httpx.post(
        f"{broker.http_url}/v1/topics/{TOPIC}/records",
        content=lines,
        headers={"content-type": "application/x-ndjson"},
    )
    assert answer.status_code in (200, 201), answer.text


def write_by_library(url: str, changes: list[Change]) -> None:
    with Client(url) as client:
        client.produce_many(TOPIC, [NewRecord(value=value, key=key) for key, value in encoded(changes)])


def write_binary(broker: BrokerProcess, changes: list[Change]) -> None:
    write_by_library(broker.binary_url, changes)


def write_http_library(broker: BrokerProcess, changes: list[Change]) -> None:
    write_by_library(broker.http_url, changes)


def write_producer(broker: BrokerProcess, changes: list[Change]) -> None:
    async def write() -> None:
        async with AsyncClient(broker.binary_url) as client, AsyncProducer(client, TOPIC) as producer:
            await asyncio.gather(*[(await producer.send(value, key=key)) for key, value in encoded(changes)])

    asyncio.run(write())


def write_kafka(broker: BrokerProcess, changes: list[Change]) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.kafka_bootstrap, "enable.idempotence": True, "compression.type": "lz4"}
    )
    for key, value in encoded(changes):
        producer.produce(TOPIC, key=key, value=value)
    assert producer.flush(DEADLINE_S) == 0


WRITERS: list[Callable[[BrokerProcess, list[Change]], None]] = [
    write_json,
    write_ndjson,
    write_binary,
    write_http_library,
    write_producer,
    write_kafka,
]


# ── readers: the changes in the order of their offsets ──


def read_kafka(broker: BrokerProcess) -> list[Change]:
    return [(key.decode(), _value(value)) for _, key, value in records_of(broker)]


def read_by_library(url: str) -> list[Change]:
    changes: list[Change] = []
    with Client(url) as client:
        offset, end = 0, client.list_offset(TOPIC)
        assert end is not None
        while offset < end:
            fetched = client.fetch(TOPIC, offset=offset)
            assert fetched.next_offset > offset
            offset = fetched.next_offset
            for record in fetched.records:
                assert record.key is not None
                changes.append((record.key.decode(), _value(record.value)))
    return changes


def read_binary(broker: BrokerProcess) -> list[Change]:
    return read_by_library(broker.binary_url)


def read_http_library(broker: BrokerProcess) -> list[Change]:
    return read_by_library(broker.http_url)


def read_json(broker: BrokerProcess) -> list[Change]:
    changes: list[Change] = []
    offset = 0
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        while True:
            params = {"from": offset, "limit": 1_000}
            page = http.get(RECORDS, params=params).raise_for_status().json()
            if not page["records"]:
                return changes
            changes += [
                (record["key"], None if record["value"] is None else json.loads(record["value"]))
                for record in page["records"]
            ]
            assert page["next_offset"] > offset
            offset = page["next_offset"]


def read_arrow(broker: BrokerProcess) -> list[Change]:
    changes: list[Change] = []
    offset = 0
    accept = {"accept": "application/vnd.apache.arrow.stream"}
    library: Any = pa
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        while True:
            answer = http.get(RECORDS, params={"from": offset}, headers=accept).raise_for_status()
            rows = library.ipc.open_stream(answer.content).read_all().to_pylist()
            if not rows:
                return changes
            changes += [(row["key"].decode(), _value(row["value"])) for row in rows]
            offset = rows[-1]["offset"] + 1


def _value(value: bytes | None) -> dict[str, Any] | None:
    return None if value is None else json.loads(value)


READERS: list[Callable[[BrokerProcess], list[Change]]] = [
    read_kafka,
    read_binary,
    read_http_library,
    read_json,
    read_arrow,
]


# ── the history ──


def apply(table: Table, changes: Iterable[Change]) -> Table:
    for key, value in changes:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def drawn(rng: random.Random, count: int) -> list[Change]:
    return [
        (
            f"user-{rng.randrange(KEYS)}",
            None if rng.random() < 0.2 else {"n": rng.randrange(10**9), "text": "é" * rng.randrange(30)},
        )
        for _ in range(count)
    ]


def write_until_cleaned(broker: BrokerProcess, data_dir: Path, table: Table, rng: random.Random) -> None:
    """Each writer in a random order, again and again, until another pass has ended."""

    def write_each() -> None:
        for write in rng.sample(WRITERS, len(WRITERS)):
            changes = drawn(rng, rng.randint(1, 60))
            write(broker, changes)
            apply(table, changes)

    before = cleaned_until(data_dir)
    write_until(lambda: cleaned_until(data_dir) > before, write_each)


def check_history(data_dir: Path, *, seed: int, rounds: int) -> None:
    rng = random.Random(seed)
    table: Table = {}
    with run_broker(data_dir, environment=SETTINGS) as broker:
        with Client(broker.binary_url) as client:
            client.create_topic(TOPIC, configs=CONFIGS)
        for number in range(rounds):
            write_until_cleaned(broker, data_dir, table, rng)
            # In the middle of a pass, or after the last of them.
            if number % 2:
                await_clean(broker, data_dir)
            broker.kill()
            broker.start()
            for read in READERS:
                assert apply({}, read(broker)) == table, f"seed {seed}, round {number}: {read.__name__}"
        await_clean(broker, data_dir)
        first, *others = [read(broker) for read in READERS]
        assert all(changes == first for changes in others), "all of them read the same records"
        assert apply({}, first) == table
        assert broker.stop() == 0
    reports: list[Verified] = []
    assert verify(data_dir, report=reports.append) == 0, [report.problems for report in reports]


@pytest.mark.long
def test_every_reader_builds_the_table_of_every_writer(tmp_path: Path) -> None:
    check_history(tmp_path, seed=1, rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_every_reader_builds_the_table_of_long_histories(tmp_path: Path, seed: int) -> None:
    check_history(tmp_path, seed=seed, rounds=8)
