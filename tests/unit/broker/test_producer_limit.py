"""How many producers the partitions of a broker remember."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from stele.wire import record_batch as rb

from app.broker.producing.producer_state import ProducerStates
from app.broker.producing.producers import Producers
from app.errors import OutOfOrderSequence
from app.settings import Settings
from app.storage.topic_partition import TopicPartition
from tests.support.batches import batch_of
from tests.support.simulated_time import simulated

MAX = 1000
PARTITIONS = [TopicPartition("orders", number) for number in range(4)]


class Clock:
    """Moves by a second with each write."""

    def __init__(self) -> None:
        self.time_ms = 10**12
        self.step_ms = 1000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


class Broker:
    """The producers of a broker with ``PARTITIONS``; each writes once, a second after the one before."""

    def __init__(self) -> None:
        self.clock = Clock()
        settings = Settings(producer_states_max=MAX)
        self.producers = Producers(catalog=cast("Any", None), clock=self.clock, settings=settings)
        self.states = [self.producers.add_partition(partition) for partition in PARTITIONS]
        self.written = 0

    def write(self, count: int, *, is_transactional: bool = False) -> None:
        for producer_id in range(self.written, self.written + count):
            batch = batch_of([b"x"], producer_id=producer_id, is_transactional=is_transactional)
            header = rb.read_header(batch)
            header.base_offset = producer_id
            self.states_of(producer_id).apply(header)
            self.clock.time_ms += self.clock.step_ms
        self.written += count

    def states_of(self, producer_id: int) -> ProducerStates:
        return self.states[producer_id % len(self.states)]

    def remembers(self, producer_id: int) -> bool:
        return self.states_of(producer_id).view(producer_id) is not None


async def test_up_to_the_limit_all_are_remembered() -> None:
    broker = Broker()
    broker.write(MAX)
    await broker.producers.keep_limit()
    assert broker.producers.count == MAX
    assert broker.producers.forgotten == 0


async def test_beyond_it_those_idle_for_longest_are_forgotten_but_none_with_an_open_transaction() -> None:
    broker = Broker()
    broker.write(5, is_transactional=True)
    broker.write(MAX)
    await broker.producers.keep_limit()
    assert MAX * 0.9 <= broker.producers.count <= MAX * 0.9 + 5
    forgotten = [number for number in range(broker.written) if not broker.remembers(number)]
    assert broker.producers.forgotten == len(forgotten) >= MAX * 0.1
    assert forgotten == list(range(5, 5 + len(forgotten))), "the oldest, but those with an open transaction"


async def test_a_producer_that_was_forgotten_goes_on_as_one_that_expired() -> None:
    broker = Broker()
    broker.write(MAX + 1)
    await broker.producers.keep_limit()

    def check(producer_id: int, sequence: int) -> None:
        batch = batch_of([b"y"], producer_id=producer_id, base_sequence=sequence)
        broker.states_of(producer_id).check(rb.read_header(batch))

    check(0, 17)
    with pytest.raises(OutOfOrderSequence):
        check(MAX, 17)


async def test_producers_of_this_second_are_not_forgotten() -> None:
    broker = Broker()
    broker.clock.step_ms = 0
    broker.write(2 * MAX)
    await broker.producers.keep_limit()
    assert broker.producers.count == 2 * MAX


def test_many_producers_of_a_partition_are_visited_in_steps() -> None:
    broker = Broker()
    broker.states = broker.states[:1]
    broker.write(4 * MAX)
    (states,) = broker.states
    assert sum(1 for _ in states.expire(-(10**9))) >= 8
    assert sum(1 for _ in states.expire(10**18)) >= 8
    assert len(states) == 0


@simulated
async def test_the_limit_is_kept_soon_after_many_have_come() -> None:
    broker = Broker()
    upkeep = asyncio.create_task(broker.producers._keep_limit())
    broker.write(MAX)
    await asyncio.sleep(60)
    assert broker.producers.count == MAX
    broker.write(MAX // 20)
    await asyncio.sleep(60)
    assert broker.producers.forgotten == 0, "few have come since, so they are not counted"
    broker.write(MAX // 20)
    await asyncio.sleep(20)
    assert broker.producers.forgotten > 0
    assert broker.producers.count <= MAX
    upkeep.cancel()
