"""Limits of requests that are settings: what is beyond one is refused, and told of the limit."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stele.wire import messages as m
from stele.wire.partitioner import partition_for_key

from tests.support.binary_peer import Peer
from tests.support.late_engine import LateEngine
from tests.support.listeners import listeners

NDJSON = {"content-type": "application/x-ndjson"}
LIMIT = 1024
MIB = 1 << 20


async def test_a_body_may_have_as_many_bytes_as_the_setting_says(tmp_path: Path) -> None:
    async with listeners(tmp_path, request_body_bytes_max=LIMIT) as at:
        for size, status in ((LIMIT // 2, 200), (LIMIT, 413)):
            body = {"records": [{"value": "x" * size}]}
            answer = await at.http.post("/v1/topics/orders/records?partition=0", json=body)
            assert answer.status_code == status, answer.text
        assert answer.json()["limit"] == LIMIT
        # A stream has no end that it must keep to.
        line = b'{"value": "%s"}\n' % (b"x" * (LIMIT // 2))
        answer = await at.http.post("/v1/topics/orders/records", content=4 * line, headers=NDJSON)
        assert answer.status_code == 200
        assert at.broker.log_state("orders", 0).high_watermark == 5


async def test_a_line_of_ndjson_may_have_as_many_bytes_as_the_setting_says(tmp_path: Path) -> None:
    async with listeners(tmp_path, ndjson_line_bytes_max=LIMIT) as at:
        for size, status in ((LIMIT // 2, 200), (LIMIT, 413)):
            line = b'{"value": "%s"}\n' % (b"x" * size)
            answer = await at.http.post("/v1/topics/orders/records", content=line, headers=NDJSON)
            assert answer.status_code == status, answer.text
        assert f"a line is longer than {LIMIT} bytes" in answer.text


async def test_a_frame_may_have_as_many_bytes_as_the_setting_says(tmp_path: Path) -> None:
    async with listeners(tmp_path, frame_bytes_max=LIMIT) as at:

        def ask() -> tuple[bytes, bytes]:
            with Peer(at) as peer:
                peer.send(m.ProduceRequest(topic="orders", data=b"x" * (LIMIT // 2)).encode())
                fits = peer.frame()
                peer.send(m.ProduceRequest(topic="orders", data=b"x" * LIMIT).encode())
                return fits, peer.rest()

        fits, beyond = await asyncio.to_thread(ask)
        assert fits[4] == m.MessageType.PRODUCE_RESPONSE
        assert f"{LIMIT} bytes; the connection is closed".encode() in beyond


async def test_a_produce_waits_for_its_sync_as_long_as_the_setting_says(tmp_path: Path) -> None:
    async with listeners(tmp_path, LateEngine, request_timeout_ms=100) as at:
        assert isinstance(at.engine, LateEngine)
        await at.broker.create_topic("orders")
        at.engine.may_commit.clear()
        answer = await at.http.post("/v1/topics/orders/records", json={"records": [{"value": "x"}]})
        assert (answer.status_code, answer.json()["retriable"]) == (504, True)
        assert "within 100 ms" in answer.json()["detail"]
        at.engine.may_commit.set()


async def test_the_broker_places_keys_with_the_hash_of_the_setting(tmp_path: Path) -> None:
    keys = [f"key-{number}" for number in range(20)]
    async with listeners(tmp_path, partitioner="fnv1a") as at:
        await at.broker.create_topic("orders", partitions=8)
        body = {"records": [{"key": key, "value": "x"} for key in keys]}
        answer = await at.http.post("/v1/topics/orders/records", json=body)
        assert answer.status_code == 200, answer.text
        placed = [record["partition"] for record in answer.json()["records"]]
        assert placed == [partition_for_key(key.encode(), 8, hash_name="fnv1a") for key in keys]


async def test_as_many_partitions_are_made_without_a_number_as_the_setting_says(tmp_path: Path) -> None:
    async with listeners(tmp_path, num_partitions=5) as at:
        await at.http.post("/v1/topics/orders/records", json={"records": [{"value": "x"}]})
        assert at.broker.topic("orders").partitions == 5


async def test_unpacked_batches_may_take_as_much_memory_as_the_setting_says(tmp_path: Path) -> None:
    async with listeners(tmp_path, decoded_bytes_max=200 * MIB) as at:
        await at.broker.create_topic("orders", configs={"compression.type": "zstd"})
        body = {"records": [{"value": "x" * 1_000_000}]}
        answer = await at.http.post("/v1/topics/orders/records", json=body)
        assert answer.status_code == 200, answer.text
        # More than other brokers allow, so that nothing else would be let in there.
        await at.broker.decoded.acquire(128 * MIB, "a search")
        answer = await at.http.get("/v1/topics/orders/partitions/0/records?from=0")
        assert [len(record["value"]) for record in answer.json()["records"]] == [1_000_000]
