"""What a queue over HTTP gives out when some of its records cannot be read, or not be handled."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c
import httpx
import pytest
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.broker.producing.produce import Acks
from app.broker.reading.decoded_bytes import UNCOUNTED_BYTES
from app.storage.topic_partition import TopicPartition
from tests.support.engines import segment_path
from tests.support.served_bench import serving
from tests.support.simulated_files import Fault
from tests.support.simulated_time import simulated
from tests.support.transactions import TransactionBench


def damage_header(bench: TransactionBench, name: TopicPartition, batch: int = 0) -> None:
    change(bench, name, batch, 16, 0xFF)


def damage_record(bench: TransactionBench, name: TopicPartition, batch: int = 0) -> None:
    change(bench, name, batch, rb.HEADER_BYTES + 2, 0xFF)


def change(bench: TransactionBench, name: TopicPartition, batch: int, at: int, bits: int) -> None:
    content = bench.files.content(segment_path(0, name=name))
    starts = [header.position for header in rb.iter_headers(content)]
    content[starts[batch] + at] ^= bits


async def produce(bench: TransactionBench, partition: int, *values: bytes) -> None:
    for value in values:
        batch = rb.build_values([value], bench.clock.now_ms())
        await bench.broker.produce("orders", partition, batch, acks=Acks.ALL).wait(1000)


async def poll(http: httpx.AsyncClient) -> httpx.Response:
    return await http.post("/v1/groups/g/share/poll", json={"topics": ["orders"], "from": "earliest"})


def told(answer: httpx.Response) -> list[tuple[int, str, int]]:
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()["records"]
    return [(one["partition"], one["value"], one["deliveries"]) for one in records]


@pytest.mark.parametrize("damage", [damage_header, damage_record])
@pytest.mark.parametrize("damaged", [0, 1])
@simulated
async def test_a_damaged_partition_does_not_use_up_the_deliveries_of_others(
    tmp_path: Path, damage: Callable[[TransactionBench, TopicPartition], None], damaged: int
) -> None:
    async with serving(tmp_path) as (bench, _, http):
        sound = 1 - damaged
        await produce(bench, 0, b"in 0")
        await produce(bench, 1, b"in 1")
        damage(bench, TopicPartition("orders", damaged))
        answer = await poll(http)
        assert told(answer) == [(sound, f"in {sound}", 1)]
        settled = await http.post("/v1/groups/g/share/ack", json={"lock": answer.json()["lock"]})
        assert settled.json() == {"records": 1}
        # When nothing else is left, the damage is reported.
        for _ in range(2):
            failed = await poll(http)
            assert (failed.status_code, failed.json()["type"]) == (500, "/problems/corrupt-log"), failed.text


@simulated
async def test_the_records_before_a_damaged_batch_are_given_out(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, _, http):
        await produce(bench, 0, b"a", b"b", b"c")
        damage_record(bench, TopicPartition("orders", 0), 1)
        assert told(await poll(http)) == [(0, "a", 1)]


@simulated
async def test_a_record_that_no_client_can_read_does_not_hide_those_beside_it(tmp_path: Path) -> None:
    """A producer may send what is no record under a right checksum."""
    async with serving(tmp_path) as (bench, _, http):
        batch = rb.build_values([b"unreadable"], bench.clock.now_ms())
        batch[rb.HEADER_BYTES] = 0x7F
        struct.pack_into(">I", batch, 17, crc32c.crc32c(memoryview(batch)[rb.CRC_START :]))
        await bench.broker.produce("orders", 0, batch, acks=Acks.ALL).wait(1000)
        await produce(bench, 1, b"sound")
        assert told(await poll(http)) == [(1, "sound", 1)]


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("share/poll", {}),
        ("share/poll", {"lock": "mine"}),
        ("poll", {}),
        ("poll", {"poll_id": "mine"}),
    ],
)
@simulated
async def test_a_poll_that_finds_no_memory_delivers_nothing(
    tmp_path: Path, path: str, more: dict[str, str]
) -> None:
    async with serving(tmp_path) as (bench, _, http):
        builder = rb.BatchBuilder(compression=Compression.GZIP)
        builder.append(timestamp_ms=bench.clock.now_ms(), value=b"v" * (UNCOUNTED_BYTES + 1))
        await bench.broker.produce("orders", 0, builder.build(), acks=Acks.ALL).wait(1000)
        decoded = bench.broker.decoded
        await decoded.acquire(decoded.bytes_max, "what another client reads")
        body = {"topics": ["orders"], "from": "earliest"} | more
        full = await http.post(f"/v1/groups/g/{path}", json=body)
        assert (full.status_code, full.json()["type"]) == (503, "/problems/read-memory-full"), full.text
        decoded.release(decoded.bytes_max)
        answer = (await http.post(f"/v1/groups/g/{path}", json=body)).json()
        delivered = answer["records"] if path == "share/poll" else answer["partitions"]
        assert [one["deliveries"] for one in delivered] == [1]


@simulated
async def test_letters_can_be_redriven_after_any_number_of_failures(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, _, http):
        await bench.broker.create_topic("dlq.g", partitions=1)
        topic = {"errors.deadletterqueue.topic.name": "dlq.g"}
        assert (await http.patch("/v1/groups/g/configs", json={"configs": topic})).status_code == 200
        origin = {"topic": "orders", "partition": "0", "offset": "0", "group": "g"}
        headers = [{"key": f"__dlq.errors.{name}", "value": value} for name, value in origin.items()]
        letter = {"value": "again", "headers": headers}
        assert (await http.post("/v1/topics/dlq.g/records", json={"records": [letter]})).status_code == 200
        for _ in range(10):
            bench.files.fail(Fault(kinds=("write",), call=1, errno=28, times=1))
            assert (await http.post("/v1/groups/g/share/redrive", json={})).status_code == 507
            bench.files.heal()
        redriven = await http.post("/v1/groups/g/share/redrive", json={})
        assert redriven.json()["redriven"] == 1, redriven.text
        assert told(await poll(http)) == [(0, "again", 1)]
