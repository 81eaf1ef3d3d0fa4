"""One log behind all listeners: what a Kafka client writes is read over HTTP and the binary protocol, and the reverse."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, cast

import httpx
import pytest
from stele import AsyncClient, NewRecord
from stele.testing import BrokerProcess

from tests.conformance.clients import Client, by_murmur2
from tests.conformance.driver import Driver, Headers, Record
from tests.conformance.support import MakeTopic, all_kinds, now_ms

pytestmark = pytest.mark.capability("other listeners")

Seen = tuple[int, int | None, bytes | None, bytes | None, Headers]


def seen(record: Record) -> Seen:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def _bytes(told: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_b64" in told:
        return base64.b64decode(told[f"{name}_b64"])
    text = told[name]
    return None if text is None else cast("str", text).encode()


def read_over_http(stele: BrokerProcess, topic: str) -> list[Seen]:
    answer = httpx.get(f"{stele.http_url}/v1/topics/{topic}/partitions/0/records", params={"from": 0})
    answer.raise_for_status()
    return [
        (
            told["offset"],
            told["timestamp"],
            _bytes(told, "key"),
            _bytes(told, "value"),
            tuple((header["key"], _bytes(header, "value")) for header in told["headers"]),
        )
        for told in answer.json()["records"]
    ]


async def read_over_binary(stele: BrokerProcess, topic: str) -> list[Seen]:
    async with AsyncClient(stele.binary_url) as client:
        fetched = await client.fetch(topic, 0, 0)
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in fetched.records]


def _json(record: Record) -> dict[str, Any]:
    def b64(data: bytes) -> str:
        return base64.b64encode(data).decode()

    told: dict[str, Any] = {"partition": 0, "timestamp": record.timestamp}
    told |= {"value": None} if record.value is None else {"value_b64": b64(record.value)}
    told |= {} if record.key is None else {"key_b64": b64(record.key)}
    told["headers"] = [
        {"key": name} | ({"value": None} if content is None else {"value_b64": b64(content)})
        for name, content in record.headers
    ]
    return told


async def test_what_it_writes_is_read_through_the_other_protocols(
    stele: BrokerProcess, driver: Driver, topic: str
) -> None:
    records = all_kinds(driver)
    await asyncio.to_thread(driver.produce, topic, records)
    read = await asyncio.to_thread(driver.fetch, topic, count=len(records))

    over_http = await asyncio.to_thread(read_over_http, stele, topic)

    assert over_http == [seen(record) for record in read]
    assert over_http == await read_over_binary(stele, topic)
    assert [entry[2:] for entry in over_http] == [record.content for record in records]
    if driver.offers("setting timestamps"):
        assert [entry[1] for entry in over_http] == [record.timestamp for record in records]


async def test_what_is_written_through_the_other_protocols_it_reads(
    stele: BrokerProcess, driver: Driver, topic: str
) -> None:
    stamp = now_ms() - 60_000
    records = [
        Record(key=r.key, value=r.value, headers=r.headers, timestamp=stamp + n)
        for n, r in enumerate(all_kinds(driver))
    ]
    async with httpx.AsyncClient(base_url=stele.http_url) as http:
        answer = await http.post(
            f"/v1/topics/{topic}/records", json={"records": [_json(record) for record in records]}
        )
        answer.raise_for_status()
    async with AsyncClient(stele.binary_url) as client:
        await client.produce_many(
            topic,
            [
                NewRecord(r.value, key=r.key, headers=r.headers, partition=0, timestamp=r.timestamp)
                for r in records
            ],
        )

    read = await asyncio.to_thread(driver.fetch, topic, count=2 * len(records))

    expected = [(n, r.timestamp, *r.content) for n, r in enumerate([*records, *records])]
    assert [seen(record) for record in read] == expected


async def test_a_key_goes_to_the_same_partition_through_all_protocols(
    stele: BrokerProcess, driver: Driver, client: Client, make_topic: MakeTopic
) -> None:
    if client.partitioner is not by_murmur2:
        pytest.skip(f"{client.name} places keys by another hash than Kafka's own client and Stele")
    topic = make_topic(partitions=6)
    keys = [f"N{n}" for n in range(40)]
    told = await asyncio.to_thread(driver.produce_keyed, topic, [key.encode() for key in keys])

    async with httpx.AsyncClient(base_url=stele.http_url) as http:
        answer = await http.post(
            f"/v1/topics/{topic}/records", json={"records": [{"key": key, "value": ""} for key in keys]}
        )

    assert [result["partition"] for result in answer.json()["records"]] == told
