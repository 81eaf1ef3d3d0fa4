"""The single calls of the client mean the same over both transports, and for both kinds of client."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from stele import (
    AsyncClient,
    Client,
    Compression,
    Durability,
    InvalidRequestError,
    NewRecord,
    OffsetOutOfRangeError,
    ProduceError,
    RecordTooLargeError,
    SteleClientError,
    TopicExistsError,
    UnknownTopicError,
)
from stele.broker_process import BrokerProcess
from stele.errors import UnsupportedOperationError
from stele.wire.partitioner import partition_for_key

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A name nobody else uses, for the broker is shared."""
    return f"calls-{next(_numbers)}"


class InThreads:
    """The blocking client behind the methods of the asyncio one, so that one test serves both."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, stele_broker_session: BrokerProcess) -> str:
    broker = stele_broker_session
    return broker.binary_url if request.param == "tcp" else broker.http_url


@pytest.fixture(params=["asyncio", "blocking"])
async def client(request: pytest.FixtureRequest, url: str) -> AsyncGenerator[AsyncClient]:
    if request.param == "asyncio":
        async with AsyncClient(url) as opened:
            yield opened
    else:
        with Client(url) as blocking:
            yield cast("AsyncClient", InThreads(blocking))


async def test_a_record_comes_back_as_it_went_in(client: AsyncClient, topic: str) -> None:
    headers = (("trace", b"\x00\xff"), ("trace", None), ("größe", "10 €".encode()))
    receipt = await client.produce(topic, b"\x00\xffvalue", key="ключ", headers=headers, timestamp=123_456)
    assert (receipt.topic, receipt.partition, receipt.offset) == (topic, 0, 0)
    assert receipt.timestamp == 123_456
    assert receipt.durability is Durability.SYNCED

    fetched = await client.fetch(topic)
    (record,) = fetched.records
    assert (record.topic, record.partition, record.offset, record.timestamp) == (topic, 0, 0, 123_456)
    assert (record.key, record.value, record.headers) == ("ключ".encode(), b"\x00\xffvalue", headers)
    assert (fetched.next_offset, fetched.high_watermark, fetched.log_start_offset) == (1, 1, 0)


@pytest.mark.parametrize("value", [None, b"", "", b"null", b'"text"', b'{"a": 1}', bytes(range(256))])
async def test_any_value_survives(client: AsyncClient, topic: str, value: bytes | str | None) -> None:
    await client.produce(topic, value, key=b"")
    (record,) = (await client.fetch(topic)).records
    assert record.value == (value.encode() if isinstance(value, str) else value)
    assert record.key == b""


@pytest.mark.parametrize(
    ("acks", "durability"),
    [("all", Durability.SYNCED), (1, Durability.APPENDED), (0, Durability.NONE)],
)
async def test_the_receipt_reports_the_durability_of_a_record(
    client: AsyncClient, topic: str, acks: Any, durability: Durability
) -> None:
    receipt = await client.produce(topic, b"x", acks=acks)
    assert receipt.durability is durability


async def test_many_records_come_back_in_the_order_given(client: AsyncClient, topic: str) -> None:
    await client.create_topic(topic, partitions=3)
    records = [NewRecord(str(i), key=f"key {i % 10}") for i in range(500)]
    receipts = await client.produce_many(topic, records)
    for record, receipt in zip(records, receipts, strict=True):
        assert receipt.partition == partition_for_key(str(record.key).encode(), 3)
    by_place = {
        (record.partition, record.offset): record.value
        for partition in range(3)
        for record in (await client.fetch(topic, partition)).records
    }
    assert [by_place[r.partition, r.offset] for r in receipts] == [str(i).encode() for i in range(500)]


async def test_records_that_name_a_partition_go_there(client: AsyncClient, topic: str) -> None:
    await client.create_topic(topic, partitions=3)
    receipts = await client.produce_many(topic, [NewRecord(b"x", partition=p, key="k") for p in (2, 0, 1)])
    assert [receipt.partition for receipt in receipts] == [2, 0, 1]
    assert (await client.produce(topic, b"y", partition=2)).partition == 2


async def test_more_than_a_batch_holds_is_several_batches(client: AsyncClient, topic: str) -> None:
    receipts = await client.produce_many(topic, [bytes(300_000)] * 8)
    assert [receipt.offset for receipt in receipts] == list(range(8))


async def test_nothing_is_nothing(client: AsyncClient, topic: str) -> None:
    assert await client.produce_many(topic, []) == []


async def test_a_record_that_is_too_large_raises_and_the_others_are_stored(
    client: AsyncClient, topic: str
) -> None:
    await client.create_topic(topic, configs={"max.message.bytes": 100_000})
    with pytest.raises(RecordTooLargeError):
        await client.produce(topic, bytes(200_000))
    with pytest.raises(ProduceError) as caught:
        await client.produce_many(topic, [NewRecord(b"a"), NewRecord(bytes(1_000_000)), NewRecord(b"b")])
    assert isinstance(caught.value.errors[1], RecordTooLargeError)
    assert not caught.value.retriable
    stored = [r for r in caught.value.results if r is not None]
    assert len(stored) == len((await client.fetch(topic)).records) == 3 - len(caught.value.errors)


async def test_compressed_batches_are_read_as_they_were_given(client: AsyncClient, topic: str) -> None:
    for codec in Compression:
        await client.produce_many(topic, [b"x" * 1000] * 3, compression=codec)
    records = (await client.fetch(topic)).records
    assert [record.value for record in records] == [b"x" * 1000] * 15


async def test_a_fetch_begins_in_the_middle_of_a_batch(client: AsyncClient, topic: str) -> None:
    await client.produce_many(topic, [str(i) for i in range(10)])
    fetched = await client.fetch(topic, offset=6)
    assert [record.offset for record in fetched.records] == [6, 7, 8, 9]
    limited = await client.fetch(topic, offset=6, max_records=2)
    assert [record.offset for record in limited.records] == [6, 7]
    assert limited.next_offset == 8


async def test_a_fetch_at_the_end_is_empty(client: AsyncClient, topic: str) -> None:
    await client.produce(topic, b"x")
    fetched = await client.fetch(topic, offset=1)
    assert (fetched.records, fetched.next_offset) == ([], 1)


async def test_a_fetch_waits_for_the_next_record(client: AsyncClient, topic: str) -> None:
    await client.produce(topic, b"first")
    waiting = asyncio.create_task(client.fetch(topic, offset=1, wait_ms=20_000))
    # Calls go past a long poll, whichever of the two is first on its way.
    await client.produce(topic, b"second")
    assert [record.value for record in (await waiting).records] == [b"second"]


async def test_an_offset_out_of_range_raises_with_the_valid_range(client: AsyncClient, topic: str) -> None:
    await client.produce(topic, b"x")
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await client.fetch(topic, offset=7)
    assert (caught.value.log_start_offset, caught.value.high_watermark) == (0, 1)
    assert not caught.value.retriable


async def test_offsets_are_found_by_name_and_by_time(client: AsyncClient, topic: str) -> None:
    await client.produce_many(topic, [NewRecord("a", timestamp=1000), NewRecord("b", timestamp=2000)])
    assert await client.list_offset(topic, at="earliest") == 0
    assert await client.list_offset(topic, at="latest") == 2
    assert await client.list_offset(topic) == 2
    assert await client.list_offset(topic, at=1500) == 1
    assert await client.list_offset(topic, at=datetime.fromtimestamp(1, UTC)) == 0
    assert await client.list_offset(topic, at=2001) is None


async def test_topics_are_created_described_altered_listed_and_deleted(
    client: AsyncClient, topic: str
) -> None:
    created = await client.create_topic(topic, partitions=2, configs={"retention.ms": 60_000})
    assert (created.topic, created.partitions) == (topic, 2)
    assert created.configs["retention.ms"] == "60000"
    with pytest.raises(TopicExistsError):
        await client.create_topic(topic, partitions=2, configs={"retention.ms": 60_000})
    with pytest.raises(TopicExistsError):
        await client.create_topic(topic, partitions=5)
    assert (await client.ensure_topic(topic, partitions=9)).partitions == 2

    altered = await client.alter_topic(topic, partitions=4, configs={"retention.bytes": 10**9})
    assert altered.partitions == 4
    described = await client.describe_topic(topic)
    assert (described.configs["retention.ms"], described.configs["retention.bytes"]) == (
        "60000",
        "1000000000",
    )
    reset = await client.alter_topic(topic, configs={"retention.ms": None})
    assert reset.configs["retention.ms"] != "60000"

    assert {t.topic: t.partitions for t in await client.topics()}[topic] == 4
    await client.delete_topic(topic)
    assert topic not in {t.topic for t in await client.topics()}
    with pytest.raises(UnknownTopicError):
        await client.delete_topic(topic)


async def test_what_cannot_be_is_an_invalid_request(client: AsyncClient, topic: str) -> None:
    with pytest.raises(InvalidRequestError):
        await client.create_topic("no/slashes", partitions=1)
    with pytest.raises(InvalidRequestError):
        await client.create_topic(topic, partitions=0)
    with pytest.raises(InvalidRequestError):
        await client.create_topic(topic, configs={"no.such.thing": 1})


async def test_only_a_produce_creates_a_topic(client: AsyncClient, topic: str) -> None:
    for call in (
        client.fetch(topic),
        client.list_offset(topic),
        client.describe_topic(topic),
        client.alter_topic(topic, partitions=2),
        client.flush(topic),
        client.partition_count(topic),
    ):
        with pytest.raises(UnknownTopicError):
            await call
    assert (await client.produce(topic, b"x", key="k")).offset == 0
    assert await client.partition_count(topic) == 1


async def test_an_unknown_partition_is_an_unknown_topic_error(client: AsyncClient, topic: str) -> None:
    await client.create_topic(topic)
    with pytest.raises(UnknownTopicError):
        await client.produce(topic, b"x", partition=1)
    with pytest.raises(UnknownTopicError):
        await client.fetch(topic, 1)


async def test_flush_ping_and_metadata(client: AsyncClient, topic: str) -> None:
    await client.produce(topic, b"x", acks=1)
    await client.flush(topic)
    await client.flush()
    await client.ping()
    metadata = await client.metadata()
    assert metadata.cluster_id
    assert metadata.brokers[0].host == "127.0.0.1"


async def test_simple_messages_are_those_of_the_binary_protocol(
    client: AsyncClient, url: str, topic: str
) -> None:
    if url.startswith("http"):
        with pytest.raises(UnsupportedOperationError, match="stele://"):
            await client.simple_produce(topic, b"x")
        return
    assert await client.simple_produce_many(topic, [b"a", b"b", b"c"]) == [0, 1, 2]
    assert await client.simple_produce(topic, b"d") == 3
    assert await client.simple_consume(topic, 1, 2) == ([(1, b"b"), (2, b"c")], 3)
    with pytest.raises(SteleClientError, match="out of range"):
        await client.simple_consume(topic, 99, 1)


async def test_a_closed_client_raises(url: str) -> None:
    client = AsyncClient(url)
    await client.ping()
    await client.close()
    with pytest.raises(SteleClientError, match="is closed"):
        await client.ping()
    blocking = Client(url)
    blocking.ping()
    blocking.close()
    with pytest.raises(SteleClientError, match="is closed"):
        blocking.ping()
