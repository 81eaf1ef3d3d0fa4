"""Consumers give every record once and in order, and go on where they were after an outage."""

from __future__ import annotations

import asyncio
import itertools
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from stele import (
    AsyncClient,
    AsyncConsumer,
    Client,
    Consumer,
    DeserializationError,
    NewRecord,
    OffsetOutOfRangeError,
    SteleClientError,
    UnknownTopicError,
)
from stele.broker_process import BrokerProcess
from stele.errors import ClosedError
from stele.operations.fetch import FETCH_BYTES_MAX
from stele.serializers import json_deserializer

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"consumer-{next(_numbers)}"


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, stele_broker_session: BrokerProcess) -> str:
    return url_of(stele_broker_session, request.param)


def url_of(broker: BrokerProcess, transport: str) -> str:
    return broker.binary_url if transport == "tcp" else broker.http_url


def fill(url: str, topic: str, count: int, *, partitions: int = 1) -> None:
    with Client(url) as client:
        client.ensure_topic(topic, partitions=partitions)
        client.produce_many(
            topic,
            [NewRecord(str(i), partition=i % partitions, timestamp=1000 * i) for i in range(count)],
        )


async def values(url: str, topic: str, **settings: Any) -> list[int]:
    """What both kinds of consumer give, which must be the same."""
    async with (
        AsyncClient(url) as client,
        AsyncConsumer(client, topic, follow=False, **settings) as consumer,
    ):
        found = [int(record.value or b"") async for record in consumer]
    with Client(url) as client, Consumer(client, topic, follow=False, **settings) as blocking:
        assert sorted(int(record.value or b"") for record in blocking) == sorted(found)
    return found


async def test_all_there_is(url: str, topic: str) -> None:
    fill(url, topic, 1000)
    assert await values(url, topic) == list(range(1000))


async def test_all_partitions_each_in_order(url: str, topic: str) -> None:
    fill(url, topic, 1000, partitions=4)
    found = await values(url, topic)
    assert sorted(found) == list(range(1000))
    for partition in range(4):
        assert [n for n in found if n % 4 == partition] == list(range(partition, 1000, 4))


async def test_some_partitions(url: str, topic: str) -> None:
    fill(url, topic, 40, partitions=4)
    assert sorted(await values(url, topic, partitions=[1, 3])) == list(range(1, 40, 2))
    assert await values(url, topic, partitions=2) == list(range(2, 40, 4))


async def test_from_a_place(url: str, topic: str) -> None:
    fill(url, topic, 20)
    assert await values(url, topic, start=17) == [17, 18, 19]
    assert await values(url, topic, start=datetime.fromtimestamp(18, UTC)) == [18, 19]
    assert await values(url, topic, start=datetime.fromtimestamp(99, UTC)) == []
    assert await values(url, topic, start="latest") == []
    assert await values(url, topic, start={0: 19}) == [19]


async def test_an_empty_topic_ends_at_once(url: str, topic: str) -> None:
    fill(url, topic, 0)
    assert await values(url, topic) == []


async def test_without_follow_the_end_is_where_it_was_at_the_start(url: str, topic: str) -> None:
    fill(url, topic, 5)
    async with AsyncClient(url) as client, AsyncConsumer(client, topic, follow=False) as consumer:
        await consumer.start()
        await client.produce(topic, b"5")
        assert [int(record.value or b"") async for record in consumer] == list(range(5))


async def test_many_fetches_follow_one_another(url: str, topic: str) -> None:
    fill(url, topic, 500)
    assert await values(url, topic, max_bytes=1000) == list(range(500))


async def test_a_partition_with_much_to_read_keeps_no_other_waiting(url: str, topic: str) -> None:
    value = b"x" * 900_000
    with Client(url) as client:
        client.ensure_topic(topic, partitions=2)
        client.produce_many(topic, [*[NewRecord(value, partition=0)] * 20, NewRecord(value, partition=1)])
    # As much of one partition as all of a fetch may have.
    settings: dict[str, Any] = {"follow": False, "max_bytes": FETCH_BYTES_MAX}
    async with AsyncClient(url) as client, AsyncConsumer[bytes](client, topic, **settings) as consumer:
        found = [record.partition async for record in consumer]
    with Client(url) as client, Consumer[bytes](client, topic, **settings) as blocking:
        also = [record.partition for record in blocking]
    for partitions in (found, also):
        assert len(partitions) == 21
        assert 1 in partitions[:12]


async def test_following_gives_records_as_they_come(url: str, topic: str) -> None:
    fill(url, topic, 1, partitions=2)
    async with AsyncClient(url) as client, AsyncConsumer(client, topic) as consumer:
        assert (await anext(consumer)).value == b"0"
        waiting = asyncio.create_task(anext(consumer))
        await client.produce(topic, b"live", partition=1)
        record = await asyncio.wait_for(waiting, 120)
        assert (record.partition, record.value) == (1, b"live")


def test_following_in_a_thread(url: str, topic: str) -> None:
    fill(url, topic, 1, partitions=2)
    found: list[bytes | None] = []
    with Client(url) as client, Consumer(client, topic) as consumer:

        def consume() -> None:
            found.extend(next(consumer).value for _ in range(3))

        thread = threading.Thread(target=consume)
        thread.start()
        client.produce(topic, b"a", partition=1)
        client.produce(topic, b"b", partition=0)
        thread.join(120)
    assert sorted(value or b"" for value in found) == [b"0", b"a", b"b"]


async def test_a_cancelled_wait_loses_nothing(url: str, topic: str) -> None:
    fill(url, topic, 1)
    async with AsyncClient(url) as client, AsyncConsumer(client, topic, wait_ms=300) as consumer:
        await anext(consumer)
        for number in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await anext(consumer)
            await client.produce(topic, str(number))
            assert (await anext(consumer)).value == str(number).encode()


async def test_polls_and_batches(url: str, topic: str) -> None:
    fill(url, topic, 100)
    async with AsyncClient(url) as client:
        async with AsyncConsumer(client, topic) as consumer:
            assert len(await consumer.poll(max_records=30)) == 30
            assert (consumer.position(0), consumer.lag(0), consumer.partitions) == (30, 70, [0])
            assert len(await consumer.poll(max_records=100)) == 70
            assert await consumer.poll(timeout_s=0.05) == []
        async with AsyncConsumer(client, topic, follow=False) as consumer:
            assert sum([len(batch) async for batch in consumer.batches(max_records=7)]) == 100
    with Client(url) as blocking, Consumer(blocking, topic) as consumer:
        assert len(consumer.poll(max_records=30)) == 30
        assert (consumer.position(0), consumer.lag(0)) == (30, 70)
        assert len(consumer.poll()) == 70
        assert consumer.poll(timeout_s=0.05) == []


async def test_seek_goes_anywhere_and_drops_what_was_fetched(url: str, topic: str) -> None:
    fill(url, topic, 10)
    async with AsyncClient(url) as client, AsyncConsumer(client, topic) as consumer:
        assert (await anext(consumer)).offset == 0
        await consumer.seek(0, 8)
        assert [(await anext(consumer)).offset for _ in range(2)] == [8, 9]
        await consumer.seek(0, 3)
        assert (await anext(consumer)).offset == 3
    with Client(url) as client, Consumer(client, topic) as blocking:
        next(blocking)
        blocking.seek(0, 8)
        assert [next(blocking).offset for _ in range(2)] == [8, 9]


async def test_a_record_that_cannot_be_decoded_is_an_error_and_can_be_skipped(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        await client.produce_many(topic, [b"1", b"{", NewRecord(None), b"[2]"])
        consumer = AsyncConsumer(client, topic, deserializer=json_deserializer, follow=False)
        assert (await anext(consumer)).value == 1
        with pytest.raises(DeserializationError) as caught:
            await anext(consumer)
        assert (caught.value.record.offset, caught.value.record.value) == (1, b"{")
        assert [record.value async for record in consumer] == [None, [2]]
        await consumer.close()


async def test_a_batch_ends_before_a_poison_pill_and_the_next_call_raises(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        await client.produce_many(topic, [b"1", b"2", b"{", b"4"])
        async with AsyncConsumer(client, topic, deserializer=json_deserializer, follow=False) as consumer:
            assert [record.value for record in await consumer.poll(timeout_s=30)] == [1, 2]
            with pytest.raises(DeserializationError):
                await consumer.poll(timeout_s=30)
            assert consumer.position(0) == 3
            assert [record.value for record in await consumer.poll(timeout_s=30)] == [4]
    with (
        Client(url) as blocking_client,
        Consumer(blocking_client, topic, deserializer=json_deserializer, follow=False) as blocking,
    ):
        batches = blocking.batches()
        assert [record.value for record in next(batches)] == [1, 2]
        with pytest.raises(DeserializationError):
            next(batches)
        assert blocking.position(0) == 3
        assert [record.value for records in blocking.batches() for record in records] == [4]


async def test_an_offset_out_of_range_raises_or_resets(url: str, topic: str) -> None:
    fill(url, topic, 3)
    async with AsyncClient(url) as client:
        async with AsyncConsumer(client, topic, start=50) as consumer:
            with pytest.raises(OffsetOutOfRangeError):
                await anext(consumer)
            await consumer.seek(0, 2)
            assert (await anext(consumer)).offset == 2
        async with AsyncConsumer(client, topic, start=50, on_out_of_range="earliest") as consumer:
            assert (await anext(consumer)).offset == 0
        async with AsyncConsumer(client, topic, start=50, on_out_of_range="latest") as consumer:
            waiting = asyncio.create_task(anext(consumer))
            while not consumer.partitions or consumer.position(0) != 3:  # noqa: ASYNC110 (it tells no event)
                await asyncio.sleep(0.001)
            await client.produce(topic, b"new")
            assert (await waiting).offset == 3
    with Client(url) as client:
        with Consumer(client, topic, start=50) as blocking, pytest.raises(OffsetOutOfRangeError):
            next(blocking)
        with Consumer(client, topic, start=50, on_out_of_range="earliest") as blocking:
            assert next(blocking).offset == 0


async def test_a_missing_topic_raises(url: str, topic: str) -> None:
    async with AsyncClient(url) as client, AsyncConsumer(client, topic) as consumer:
        with pytest.raises(UnknownTopicError):
            await anext(consumer)
        await client.produce(topic, b"x")
        assert (await anext(consumer)).value == b"x"
    with Client(url) as client, Consumer(client, f"{topic}-x") as blocking, pytest.raises(UnknownTopicError):
        next(blocking)


async def test_a_closed_consumer_raises(url: str, topic: str) -> None:
    fill(url, topic, 1)
    async with AsyncClient(url) as client:
        consumer = AsyncConsumer(client, topic)
        await consumer.close()
        with pytest.raises(ClosedError):
            await anext(consumer)


async def test_a_consumer_that_is_closed_while_it_waits_raises(url: str, topic: str) -> None:
    fill(url, topic, 1)
    async with AsyncClient(url) as client:
        consumer = AsyncConsumer(client, topic)
        await anext(consumer)
        waiting = asyncio.ensure_future(anext(consumer))
        # It waits for the fetch that began ahead.
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClosedError):
            await waiting
    with Client(url) as client:
        blocking = Consumer(client, topic, wait_ms=10)
        next(blocking)
        waiting = asyncio.ensure_future(asyncio.to_thread(list, blocking))
        await asyncio.sleep(0)
        blocking.close()
        with pytest.raises(ClosedError):
            await waiting


async def test_a_poll_for_no_time_returns_what_is_there(url: str, topic: str) -> None:
    fill(url, topic, 3)
    with Client(url) as client, Consumer(client, topic) as blocking:
        assert [record.offset for record in blocking.poll(timeout_s=0)] == [0, 1, 2]
        assert blocking.poll(timeout_s=0) == []
    async with AsyncClient(url) as client, AsyncConsumer(client, topic) as consumer:
        assert [record.offset for record in await consumer.poll(timeout_s=60)] == [0, 1, 2]
        assert await consumer.poll(timeout_s=0) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"start": "newest"},
        {"start": -1},
        {"start": datetime(2026, 1, 1)},
        {"on_out_of_range": "ignore"},
        {"wait_ms": -1},
        {"max_bytes": 0},
    ],
)
def test_settings_without_sense_are_refused(settings: Any) -> None:
    with Client("stele://127.0.0.1:1") as client, pytest.raises(ValueError):
        Consumer(client, "t", **settings)


# ── the broker goes away ──


@pytest.mark.parametrize("transport", ["tcp", "http"])
async def test_a_consumer_continues_at_its_position_after_a_kill(
    stele_broker: BrokerProcess, transport: str
) -> None:
    url = url_of(stele_broker, transport)
    fill(url, "t", 300, partitions=2)
    async with (
        AsyncClient(url, connect_timeout_s=5) as client,
        AsyncConsumer(client, "t", max_bytes=1000) as consumer,
    ):
        found: list[int] = []
        async for record in consumer:
            found.append(int(record.value or b""))
            if len(found) in (50, 150):
                stele_broker.kill()
                await asyncio.to_thread(stele_broker.start)
            if len(found) == 300:
                break
        assert sorted(found) == list(range(300))
        # It waits for news when the broker goes away.
        waiting = asyncio.create_task(anext(consumer))
        await asyncio.sleep(0)
        stele_broker.kill()
        await asyncio.to_thread(stele_broker.start)
        await client.produce("t", b"news", partition=1)
        assert (await asyncio.wait_for(waiting, 120)).value == b"news"


@pytest.mark.parametrize("transport", ["tcp", "http"])
def test_a_consumer_in_a_thread_continues_at_its_position(
    stele_broker: BrokerProcess, transport: str
) -> None:
    url = url_of(stele_broker, transport)
    fill(url, "t", 300, partitions=2)
    found: list[int] = []
    with (
        Client(url, connect_timeout_s=5) as client,
        Consumer(client, "t", max_bytes=1000, follow=False) as consumer,
    ):
        for record in consumer:
            found.append(int(record.value or b""))
            if len(found) in (50, 150):
                stele_broker.kill()
                stele_broker.start()
    assert sorted(found) == list(range(300))


async def test_a_long_outage_raises_and_iteration_can_continue(stele_broker: BrokerProcess) -> None:
    fill(stele_broker.binary_url, "t", 2)
    async with (
        AsyncClient(stele_broker.binary_url, connect_timeout_s=5) as client,
        AsyncConsumer(client, "t", start=1, outage_timeout_s=0.2) as consumer,
    ):
        await anext(consumer)
        stele_broker.kill()
        with pytest.raises(SteleClientError) as caught:
            await anext(consumer)
        assert caught.value.retriable
        await asyncio.to_thread(stele_broker.start)
        await client.produce("t", b"after")
        assert (await anext(consumer)).value == b"after"
