"""Live tails over a broker in this process: reads, heartbeats, resumption."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from stele.wire import record_batch as rb

from app.api.records import tail_streams
from app.api.records.event_ids import parse_event_id
from app.api.records.form import RecordForm
from app.api.records.tail_streams import Shown, events
from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import Fetched, PartitionFetch
from app.broker.topics import Topic
from app.composition import open_broker
from app.query.filters import make_filter
from app.query.tail_reads import TailReads
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine
from app.storage.topic_partition import TopicPartition

PARTITIONS = 3000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    opened = await open_broker(Settings(data_dir=tmp_path))
    yield opened
    await opened.close()


async def make(broker: Broker, *, partitions: int = PARTITIONS) -> None:
    await broker.create_topic("orders", partitions=partitions, configs={"stele.storage": "memory"})


def produce(broker: Broker, partition: int, *values: bytes) -> None:
    broker.produce("orders", partition, rb.build_values(values, 1000), acks=Acks.LEADER)


def tail(broker: Broker, positions: dict[int, int], **conditions: Any) -> AsyncGenerator[bytes]:
    shown = Shown(make_filter(**conditions), RecordForm(), 0, TailReads(broker), broker.decoded.reader())
    return events(broker, broker.topic("orders"), positions, only=None, shown=shown)


def ends(broker: Broker) -> dict[int, int]:
    count = broker.topic("orders").partitions
    return {partition: broker.log_state("orders", partition).high_watermark for partition in range(count)}


class Received:
    """The state of a client: values with their positions, and the last id that was sent."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.records: list[tuple[int, int]] = []
        self.last_id = ""
        self.size = 0

    def take(self, block: bytes) -> None:
        self.size += len(block)
        for line in block.decode().splitlines():
            if line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("data: "):
                record = json.loads(line[6:])
                self.records.append((record["partition"], record["offset"]))

    def resumed(self) -> dict[int, int]:
        """Positions of who comes again with the last id."""
        seen = parse_event_id(self.last_id, self._topic)
        return {partition: seen.get(partition, -1) + 1 for partition in range(PARTITIONS)}


async def test_a_tail_reads_only_the_partitions_that_were_appended_to(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(broker)
    fetched_partitions: list[int] = []
    fetch = broker.fetch

    async def noted(requests: Sequence[PartitionFetch], **options: Any) -> list[Fetched]:
        fetched_partitions.extend(request.partition for request in requests)
        return await fetch(requests, **options)

    monkeypatch.setattr(broker, "fetch", noted)
    produce(broker, 7, b"before")
    received = Received(broker.topic("orders"))
    async with aclosing(tail(broker, dict.fromkeys(range(PARTITIONS), 0))) as stream:
        async for block in stream:
            received.take(block)
            if len(received.records) == 1:
                produce(broker, 2999, b"a")
                produce(broker, 5, b"b")
            elif len(received.records) == 3:
                break
    assert sorted(received.records) == [(5, 0), (7, 0), (2999, 0)]
    assert sorted(fetched_partitions) == [5, 7, 2999]


async def test_partitions_of_a_tail_are_followed_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that shares its logs with other brokers looks at those more often."""
    given: list[Callable[[], Iterable[TopicPartition]]] = []
    observe = EmbeddedEngine.observe_appends

    def noted(
        engine: EmbeddedEngine,
        observer: Callable[[TopicPartition], None],
        followed: Callable[[], Iterable[TopicPartition]] = tuple,
    ) -> None:
        given.append(followed)
        observe(engine, observer, followed)

    monkeypatch.setattr(EmbeddedEngine, "observe_appends", noted)
    broker = await open_broker(Settings(data_dir=tmp_path))
    await make(broker, partitions=3)
    await broker.create_topic("other")
    (followed,) = given
    assert list(followed()) == []
    async with aclosing(tail(broker, dict.fromkeys(range(3), 0))) as stream:
        produce(broker, 1, b"a")
        while b"data: " not in await anext(stream):
            pass
        assert list(followed()) == [TopicPartition("orders", number) for number in range(3)]
    assert list(followed()) == []
    with broker.subscribe_tail("orders", 2):
        assert list(followed()) == [TopicPartition("orders", 2)]
    await broker.close()


async def test_a_tail_of_many_partitions_sends_more_of_records_than_of_ids(broker: Broker) -> None:
    await make(broker)
    for partition in range(PARTITIONS):
        produce(broker, partition, b"old")
    received = Received(broker.topic("orders"))
    async with aclosing(tail(broker, ends(broker))) as stream:
        received.take(await anext(stream))
        first = received.size
        for number in range(100):
            produce(broker, number, b"v" * 1000)
            while len(received.records) <= number:
                received.take(await anext(stream))
    assert received.records == [(number, 1) for number in range(100)]
    # An id of each would be 20 kB.
    assert received.size - first < 400_000


async def test_a_resumed_tail_of_many_partitions_misses_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(broker)
    for partition in range(PARTITIONS):
        produce(broker, partition, b"old")
    received = Received(broker.topic("orders"))
    async with aclosing(tail(broker, ends(broker))) as stream:
        # Lost before the first record: the id of the beginning holds.
        received.take(await anext(stream))
    produce(broker, 1, b"meanwhile")
    produced = {(1, 1)}
    for turn in range(3):
        async with aclosing(tail(broker, received.resumed())) as stream:
            for number in range(10):
                produce(broker, number * 100, b"v")
                produced.add((number * 100, turn + 1))
            while produced - set(received.records):
                received.take(await anext(stream))
            if turn == 1:
                # No more records come: the id of what was sent follows by itself.
                monkeypatch.setattr(tail_streams, "_ID_S", 0.0)
                was = received.last_id
                while received.last_id == was:
                    received.take(await anext(stream))
                assert received.resumed() == ends(broker)
                monkeypatch.undo()
    assert set(received.records) == produced


async def test_partitions_that_are_added_are_followed_from_their_beginning(broker: Broker) -> None:
    await make(broker, partitions=1)
    received = Received(broker.topic("orders"))
    async with aclosing(tail(broker, {0: 0})) as stream:
        received.take(await anext(stream))
        await broker.alter_topic("orders", partitions=3)
        produce(broker, 2, b"a")
        produce(broker, 0, b"b")
        while len(received.records) < 2:
            received.take(await anext(stream))
    assert sorted(received.records) == [(0, 0), (2, 0)]


async def test_a_tail_without_matches_on_a_busy_topic_sends_keepalives(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_streams, "HEARTBEAT_S", 0.0)
    await make(broker, partitions=1)
    async with aclosing(tail(broker, {0: 0}, value=["zz"])) as stream:
        assert await anext(stream) == b": stele\n\n"
        for _ in range(3):
            produce(broker, 0, b"v")
            block = await anext(stream)
            assert re.fullmatch(rb"(id: 0:\d+@[0-9a-f]{8}\n)?: nothing new\n\n", block)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_tail_ends_with_its_topic_and_reports_the_error(broker: Broker, is_busy: bool) -> None:
    await make(broker, partitions=1)
    stream = tail(broker, {0: 0})
    await anext(stream)
    if is_busy:
        produce(broker, 0, b"v")
        await anext(stream)
    last = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    await broker.delete_topic("orders")
    assert b"event: error" in await last
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
