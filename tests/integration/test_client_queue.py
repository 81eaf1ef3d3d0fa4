"""``client.queue``: single records of a share group, for threads and for asyncio."""

from __future__ import annotations

import threading
from collections import Counter

import httpx
import pytest
from stele import AsyncClient, Client, GroupError, NewRecord
from stele.broker_process import BrokerProcess
from stele.errors import ClosedError, UnsupportedOperationError

PARTITIONS = 3


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = "q" + str(abs(hash(request.node.nodeid)))
    with Client(broker.http_url) as client:
        client.create_topic(name, partitions=PARTITIONS)
    return name


def fill(broker: BrokerProcess, topic: str, count: int, *, partition: int | None = None) -> None:
    """Values "0" to ``count`` - 1, in turn over the partitions."""
    with Client(broker.http_url) as client:
        client.produce_many(
            topic,
            [
                NewRecord(str(n), partition=n % PARTITIONS if partition is None else partition)
                for n in range(count)
            ],
        )


def lag(broker: BrokerProcess, group: str) -> int:
    described: dict[str, int] = httpx.get(f"{broker.http_url}/v1/groups/{group}").json()
    return described["lag"]


def test_each_record_is_handled_by_exactly_one_reader(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 200)
    handled: Counter[str] = Counter()
    lock = threading.Lock()

    def read() -> None:
        with (
            Client(broker.http_url) as client,
            client.queue(topic, topic, wait_s=0.2, max_records=7) as queue,
        ):
            while records := queue.poll():
                for record in records:
                    with record, lock:
                        handled[(record.value or b"").decode()] += 1

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert handled == Counter({str(number): 1 for number in range(200)})
    assert lag(broker, topic) == 0


def test_a_record_that_failed_comes_again_and_the_others_do_not(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 5, partition=0)
    seen: list[tuple[bytes | None, int]] = []
    with Client(broker.http_url) as client, client.queue(topic, topic, wait_s=0) as queue:
        for record in queue.poll():
            with pytest.raises(ValueError, match="bad") if record.value == b"2" else record:
                if record.value == b"2":
                    with record:
                        raise ValueError("bad")
        seen = [(record.value, record.deliveries) for record in queue.poll()]
    assert seen == [(b"2", 2)]


def test_records_that_were_not_handed_out_are_free_when_the_queue_is_closed(
    broker: BrokerProcess, topic: str
) -> None:
    fill(broker, topic, 5, partition=0)
    with Client(broker.http_url) as client:
        with client.queue(topic, topic) as queue:
            for record in queue:
                with record:
                    break
        with pytest.raises(ClosedError):
            queue.poll()
        with client.queue(topic, topic, wait_s=0) as queue:
            assert [(record.value, record.deliveries) for record in queue.poll()] == [
                (str(number).encode(), 2) for number in range(1, 5)
            ]


def test_records_can_be_rejected_renewed_and_released_one_by_one(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 3, partition=0)
    with Client(broker.http_url) as client, client.queue(topic, topic, wait_s=0) as queue:
        first, second, third = queue.poll()
        assert repr(first) == f"<{topic}-0 offset 0, delivery 1>"
        assert (first.topic, first.partition, first.offset, first.key, first.headers) == (
            topic,
            0,
            0,
            None,
            (),
        )
        assert first.timestamp > 0
        queue.renew(first, second, third)
        queue.reject(first)
        queue.release(second)
        with third:
            queue.release(third)
        assert [(record.offset, record.deliveries) for record in queue.poll()] == [(1, 2), (2, 2)]
        with pytest.raises(GroupError):
            queue.ack(second)


async def test_the_asyncio_queue_does_the_same(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 3, partition=0)
    handled: list[bytes | None] = []
    async with AsyncClient(broker.http_url) as client:
        async with client.queue(topic, topic, max_records=2) as queue:
            async for record in queue:
                async with record:
                    handled.append(record.value)
                if len(handled) == 3:
                    break
        assert handled == [b"0", b"1", b"2"]
        assert lag(broker, topic) == 0
        fill(broker, topic, 2, partition=1)
        async with client.queue(topic, topic, wait_s=0) as queue:
            (one, other) = await queue.poll()
            with pytest.raises(ValueError, match="bad"):
                async with one:
                    raise ValueError("bad")
            await queue.renew(other)
            await queue.reject(other)
            (again,) = await queue.poll()
            assert (again.value, again.deliveries) == (b"0", 2)
            await queue.ack(again)
        with pytest.raises(ClosedError):
            await queue.poll()


def test_it_works_over_http_only(broker: BrokerProcess, topic: str) -> None:
    with (
        Client(broker.binary_url) as client,
        client.queue(topic, topic) as queue,
        pytest.raises(UnsupportedOperationError, match="http://"),
    ):
        queue.poll()


@pytest.mark.parametrize("options", [{"max_records": 0}, {"wait_s": -1}, {"start": "middle"}])
def test_options_that_cannot_be(broker: BrokerProcess, options: dict[str, object]) -> None:
    with Client(broker.http_url) as client, pytest.raises(ValueError, match=next(iter(options))):
        client.queue("g", "t", **options)  # type: ignore[arg-type]


def test_a_queue_without_topics_is_a_mistake(broker: BrokerProcess) -> None:
    with Client(broker.http_url) as client, pytest.raises(ValueError, match="at least one topic"):
        client.queue("g")
