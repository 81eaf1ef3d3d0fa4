"""Producers store every record once and in order, through restarts and kills of the broker."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass

import msgspec
import pytest
from stele import (
    AsyncClient,
    AsyncProducer,
    BrokerUnavailableError,
    Client,
    Compression,
    Durability,
    ProduceError,
    Producer,
    Record,
    RecordTooLargeError,
    SteleClientError,
)
from stele.broker_process import BrokerProcess
from stele.consuming.consumer import Consumer
from stele.errors import ClosedError, SerializationError
from stele.partitioners import RoundRobinPartitioner
from stele.serializers import json_serializer
from stele.wire.partitioner import partition_for_key

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"producer-{next(_numbers)}"


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, stele_broker_session: BrokerProcess) -> str:
    return url_of(stele_broker_session, request.param)


def url_of(broker: BrokerProcess, transport: str) -> str:
    return broker.binary_url if transport == "tcp" else broker.http_url


def stored(url: str, topic: str) -> dict[int, list[Record[bytes]]]:
    """All records of the topic, by partition."""
    by_partition: dict[int, list[Record[bytes]]] = defaultdict(list)
    with Client(url) as client, Consumer(client, topic, follow=False) as consumer:
        for record in consumer:
            by_partition[record.partition].append(record)
    return by_partition


async def test_a_record_is_acked_where_it_is(url: str, topic: str) -> None:
    async with AsyncClient(url) as client, AsyncProducer(client, topic) as producer:
        first = await producer.send_and_wait(b"a", key="k", headers={"h": "1"}, timestamp=5)
        second = await producer.send_and_wait(None)
    assert (first.offset, second.offset, first.durability) == (0, 1, Durability.SYNCED)
    (records,) = stored(url, topic).values()
    assert [(r.key, r.value, r.headers) for r in records] == [(b"k", b"a", (("h", b"1"),)), (None, None, ())]
    assert records[0].timestamp == 5


def test_a_record_is_acked_where_it_is_for_threads_too(url: str, topic: str) -> None:
    with Client(url) as client, Producer(client, topic) as producer:
        assert producer.send_and_wait(b"a").offset == 0
        futures = [producer.send(str(i)) for i in range(100)]
        assert [future.result().offset for future in futures] == list(range(1, 101))
    assert sum(map(len, stored(url, topic).values())) == 101


async def test_keys_choose_partitions_as_murmur2_does_and_order_is_kept(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        await client.create_topic(topic, partitions=4)
        async with AsyncProducer(client, topic, batch_records_max=7) as producer:
            for number in range(1000):
                await producer.send(str(number), key=str(number % 13))
    count = 0
    for partition, records in stored(url, topic).items():
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers)
        assert {partition_for_key(record.key or b"", 4) for record in records} == {partition}
        count += len(numbers)
    assert count == 1000


async def test_partitioners_are_chosen_by_name_or_given(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        await client.create_topic(topic, partitions=3)
        async with AsyncProducer(client, topic, partitioner="fnv1a") as producer:
            receipt = await producer.send_and_wait(b"x", key=b"some key")
            assert receipt.partition == partition_for_key(b"some key", 3, hash_name="fnv1a")
        async with AsyncProducer(client, topic, partitioner=RoundRobinPartitioner()) as producer:
            assert [(await producer.send_and_wait(b"x")).partition for _ in range(4)] == [0, 1, 2, 0]
            assert (await producer.send_and_wait(b"x", partition=1)).partition == 1
        with pytest.raises(ValueError, match="murmur2, fnv1a, round_robin"):
            AsyncProducer(client, topic, partitioner="random")


async def test_records_sent_together_travel_together(url: str, topic: str) -> None:
    async with AsyncClient(url) as client, AsyncProducer(client, topic) as producer:
        receipts = await asyncio.gather(*(producer.send_and_wait(str(i)) for i in range(1000)))
        assert [receipt.offset for receipt in receipts] == list(range(1000))


async def test_batches_may_be_compressed(stele_broker_session: BrokerProcess, topic: str) -> None:
    url = stele_broker_session.binary_url
    for codec in Compression:
        async with (
            AsyncClient(url) as client,
            AsyncProducer(client, topic, compression=codec, linger_ms=5) as producer,
        ):
            for _ in range(10):
                await producer.send(b"x" * 500)
    (records,) = stored(url, topic).values()
    assert [record.value for record in records] == [b"x" * 500] * 50


@dataclass
class Order:
    customer: str
    amount: int


async def test_values_are_serialized_or_raise(url: str, topic: str) -> None:
    async with (
        AsyncClient(url) as client,
        AsyncProducer(client, topic, serializer=json_serializer) as producer,
    ):
        await producer.send_and_wait(Order("ann", 5))
        with pytest.raises(SerializationError):
            await producer.send_and_wait(object())
    (records,) = stored(url, topic).values()
    assert [msgspec.json.decode(record.value or b"") for record in records] == [
        {"customer": "ann", "amount": 5}
    ]


async def test_a_record_that_is_too_large_fails_alone(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        await client.create_topic(topic, configs={"max.message.bytes": 20_000})
        producer = AsyncProducer(client, topic, linger_ms=5)
        futures = [
            await producer.send(bytes([65 + i % 26]) * (50_000 if i == 37 else 1000)) for i in range(100)
        ]
        with pytest.raises(ProduceError) as caught:
            await producer.close()
        assert list(caught.value.errors) == [37]
        assert isinstance(futures[37].exception(), RecordTooLargeError)
    (records,) = stored(url, topic).values()
    assert [(r.value or b"")[:1] for r in records] == [bytes([65 + i % 26]) for i in range(100) if i != 37]


async def test_a_full_buffer_makes_callers_wait(url: str, topic: str) -> None:
    async with (
        AsyncClient(url) as client,
        AsyncProducer(client, topic, buffer_bytes_max=5000, batch_bytes_max=2000) as producer,
    ):
        most = 0
        for _ in range(200):
            await producer.send(b"x" * 500)
            most = max(most, producer.buffered_bytes)
        assert most <= 5000
        with pytest.raises(RecordTooLargeError, match="buffer_bytes_max"):
            await producer.send(bytes(6000))
    assert sum(map(len, stored(url, topic).values())) == 200


def test_a_full_buffer_makes_threads_wait(url: str, topic: str) -> None:
    with (
        Client(url) as client,
        Producer(client, topic, buffer_bytes_max=5000, batch_bytes_max=2000) as producer,
    ):

        def produce() -> None:
            for _ in range(50):
                producer.send(b"x" * 500)

        threads = [threading.Thread(target=produce) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(map(len, stored(url, topic).values())) == 200


async def test_a_cancelled_caller_does_not_affect_others(url: str, topic: str) -> None:
    async with AsyncClient(url) as client, AsyncProducer(client, topic) as producer:
        tasks = [asyncio.create_task(producer.send_and_wait(str(i))) for i in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert not any(isinstance(outcome, SteleClientError) for outcome in outcomes)
        assert (await producer.send_and_wait(b"last")).offset >= 25


async def test_acks_0_and_1(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        async with AsyncProducer(client, topic, acks=1) as producer:
            assert (await producer.send_and_wait(b"x")).durability is Durability.APPENDED
        async with AsyncProducer(client, topic, acks=0) as producer:
            assert (await producer.send_and_wait(b"x")).durability is Durability.NONE
        with pytest.raises(ValueError, match="idempotent"):
            AsyncProducer(client, topic, acks=0, idempotent=True)


async def test_a_closed_producer_raises(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        producer = AsyncProducer(client, topic)
        await producer.close()
        with pytest.raises(ClosedError):
            await producer.send_and_wait(b"x")
    with Client(url) as client:
        blocking = Producer(client, topic)
        blocking.close()
        with pytest.raises(ClosedError):
            blocking.send_and_wait(b"x")


# ── the broker goes away ──


@pytest.mark.parametrize("transport", ["tcp", "http"])
async def test_records_are_stored_once_and_in_order_through_kills(
    stele_broker: BrokerProcess, transport: str
) -> None:
    url, total = url_of(stele_broker, transport), 3000
    async with AsyncClient(url, connect_timeout_s=5) as client:
        await client.create_topic("t", partitions=3)
        producer = AsyncProducer(client, "t", batch_records_max=20, linger_ms=1)
        acked = 0

        def count(_: object) -> None:
            nonlocal acked
            acked += 1

        async def produce() -> None:
            for number in range(total):
                future = await producer.send(str(number), key=str(number % 7))
                future.add_done_callback(count)
                if number % 50 == 0:
                    await asyncio.sleep(0)

        producing = asyncio.create_task(produce())
        for threshold in (100, 800, 1800):
            while acked < threshold:  # noqa: ASYNC110 (a count, not an event)
                await asyncio.sleep(0.001)
            stele_broker.kill()
            await asyncio.to_thread(stele_broker.start)
        await producing
        await producer.close()
    numbers: list[int] = []
    for records in stored(url, "t").values():
        of_partition = [int(record.value or b"") for record in records]
        assert of_partition == sorted(of_partition)
        assert [record.offset for record in records] == list(range(len(records)))
        numbers += of_partition
    assert sorted(numbers) == list(range(total))


@pytest.mark.long
@pytest.mark.parametrize("transport", ["tcp", "http"])
def test_threads_store_once_and_in_order_through_kills(stele_broker: BrokerProcess, transport: str) -> None:
    url, total = url_of(stele_broker, transport), 2000
    with Client(url, connect_timeout_s=5) as client:
        client.create_topic("t", partitions=2)
        with Producer(client, "t", batch_records_max=20) as producer:
            for number in range(total):
                producer.send(str(number), key=str(number % 7))
                if number in (500, 1200):
                    stele_broker.kill()
                    stele_broker.start()
    numbers: list[int] = []
    for records in stored(url, "t").values():
        of_partition = [int(record.value or b"") for record in records]
        assert of_partition == sorted(of_partition)
        numbers += of_partition
    assert sorted(numbers) == list(range(total))


@pytest.mark.every(2)
@pytest.mark.parametrize("transport", ["tcp", "http"])
async def test_while_the_broker_is_down_a_record_fails_in_its_time_and_later_ones_succeed(
    stele_broker: BrokerProcess, transport: str
) -> None:
    url = url_of(stele_broker, transport)
    async with AsyncClient(url, connect_timeout_s=1) as client:
        async with AsyncProducer(client, "t", delivery_timeout_s=5) as producer:
            await producer.send_and_wait(b"before")
            stele_broker.kill()
            with pytest.raises(SteleClientError) as caught:
                await producer.send_and_wait(b"during")
            assert caught.value.retriable
            await asyncio.to_thread(stele_broker.start)
            await producer.send_and_wait(b"after")
        stele_broker.kill()
        producer = AsyncProducer(client, "t", delivery_timeout_s=0.3)
        await producer.send(b"never", partition=0)
        with pytest.raises(ProduceError) as failed:
            await producer.close()
        assert isinstance(failed.value.errors[0], BrokerUnavailableError)
        await asyncio.to_thread(stele_broker.start)
    (records,) = stored(url, "t").values()
    values = [record.value for record in records]
    assert values[0] == b"before"
    assert values[-1] == b"after"


async def test_closing_with_a_time_limit_gives_every_record_an_outcome(stele_broker: BrokerProcess) -> None:
    async with AsyncClient(stele_broker.binary_url) as client:
        producer = AsyncProducer(client, "t")
        await producer.send_and_wait(b"x")
        stele_broker.kill()
        futures = [await producer.send(b"y") for _ in range(3)]
        with pytest.raises(ProduceError):
            await producer.close(timeout_s=0.2)
        assert all(isinstance(future.exception(), SteleClientError) for future in futures)


def test_closing_with_a_time_limit_gives_every_record_an_outcome_for_threads_too(
    stele_broker: BrokerProcess,
) -> None:
    with Client(stele_broker.binary_url) as client:
        producer = Producer(client, "t")
        producer.send_and_wait(b"x")
        stele_broker.kill()
        futures = [producer.send(b"y") for _ in range(3)]
        with pytest.raises(ProduceError):
            producer.close(timeout_s=0.2)
        assert all(isinstance(future.exception(timeout=60), SteleClientError) for future in futures)


async def test_a_flush_with_a_time_limit_leaves_records_without_an_outcome_on_their_way(
    stele_broker: BrokerProcess,
) -> None:
    async with AsyncClient(stele_broker.binary_url) as client, AsyncProducer(client, "t") as producer:
        await producer.send_and_wait(b"x")
        stele_broker.kill()
        future = await producer.send(b"y")
        await producer.flush(timeout_s=0.1)
        assert not future.done()
        await asyncio.to_thread(stele_broker.start)
        await producer.flush()
        assert future.result().offset == 1


def test_a_flush_with_a_time_limit_does_so_for_threads_too(stele_broker: BrokerProcess) -> None:
    with Client(stele_broker.binary_url) as client, Producer(client, "t") as producer:
        producer.send_and_wait(b"x")
        stele_broker.kill()
        future = producer.send(b"y")
        producer.flush(timeout_s=0.1)
        assert not future.done()
        stele_broker.start()
        producer.flush()
        assert future.result(timeout=0).offset == 1
