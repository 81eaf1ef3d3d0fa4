"""What waits for an append goes on in portions, so that other requests have their turns in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.broker.reading.tail_subscriptions import TailSubscriptions
from app.storage.topic_partition import TopicPartition
from app.storage.waiters import WAKEUPS_PER_TURN, Waiters
from app.work_budget import _PIECES_PER_STEP

WAITING = 5 * WAKEUPS_PER_TURN + 3
LONG_MS = 3_600_000
NAME = TopicPartition("orders", 0)


class Waiting:
    """Many that wait for one partition, and who of them has gone on."""

    def __init__(self) -> None:
        self.waiters = Waiters()
        self.tails = TailSubscriptions(self.waiters.turns)
        self.ended: list[int] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, wait: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def one(number: int) -> None:
            await wait()
            self.ended.append(number)

        self._tasks += [asyncio.create_task(one(number)) for number in range(WAITING)]
        await asyncio.sleep(0)

    async def portions(self) -> list[int]:
        """Let the loop turn until all have gone on; return how many did in each turn."""
        counted: list[int] = []
        while len(self.ended) < WAITING:
            before = len(self.ended)
            await asyncio.sleep(0)
            counted.append(len(self.ended) - before)
        await asyncio.gather(*self._tasks)
        return counted

    async def poll(self) -> None:
        await self.waiters.wait([NAME], min_bytes=1, timeout_ms=LONG_MS)

    async def watch(self) -> None:
        watch = self.waiters.watch()
        watch.add(NAME)
        await watch.wait(min_bytes=1, timeout_ms=LONG_MS)
        watch.close()

    async def tail(self) -> None:
        with self.tails.subscribe(NAME.topic, NAME.partition) as subscription:
            await subscription.wait(LONG_MS / 1000)

    async def short_poll(self) -> None:
        await self.waiters.wait([NAME], min_bytes=1, timeout_ms=1)


@pytest.mark.parametrize("way", ["poll", "watch", "tail"])
async def test_an_append_ends_a_bounded_number_of_waits_in_a_turn(way: str) -> None:
    waiting = Waiting()
    await waiting.begin(getattr(waiting, way))
    waiting.waiters.appended(NAME, 100)
    waiting.tails.readable(*NAME)
    counted = await waiting.portions()
    assert max(counted) == WAKEUPS_PER_TURN
    assert waiting.ended == sorted(waiting.ended), "in the order in which they came"


async def test_the_watch_of_many_partitions_ends_in_portions() -> None:
    waiters = Waiters()
    watch = waiters.watch()
    names = [TopicPartition("orders", number) for number in range(2 * _PIECES_PER_STEP + 1)]
    for name in names:
        watch.add(name)
    watch.close()
    left = [len(waiters.waited())]
    for name in names:
        waiters.appended(name, 100)
    await watch.wait(min_bytes=1, timeout_ms=LONG_MS)
    for _ in range(2):
        await asyncio.sleep(0)
        left.append(len(waiters.waited()))
    assert left == [len(names) - _PIECES_PER_STEP, 1, 0]
    assert not watch.take()


async def test_polls_and_tails_share_the_turns() -> None:
    waiting = Waiting()
    await waiting.begin(waiting.poll)
    await waiting.begin(waiting.tail)
    waiting.waiters.appended(NAME, 100)
    waiting.tails.readable(*NAME)
    while len(waiting.ended) < 2 * WAITING:
        before = len(waiting.ended)
        await asyncio.sleep(0)
        assert len(waiting.ended) - before <= WAKEUPS_PER_TURN
    await waiting.portions()


async def test_waits_whose_time_is_over_at_once_end_in_portions_too() -> None:
    waiting = Waiting()
    await waiting.begin(waiting.short_poll)
    assert max(await waiting.portions()) <= WAKEUPS_PER_TURN


async def test_further_appends_do_not_wake_twice() -> None:
    waiting = Waiting()
    await waiting.begin(waiting.poll)
    for _ in range(3):
        waiting.waiters.appended(NAME, 100)
    assert sum(await waiting.portions()) == WAITING


async def test_a_wait_that_is_given_up_takes_no_turn_of_the_others() -> None:
    waiting = Waiting()
    given_up = [asyncio.create_task(waiting.poll()) for _ in range(WAITING)]
    await waiting.begin(waiting.poll)
    waiting.waiters.appended(NAME, 100)
    for task in given_up:
        task.cancel()
    assert sum(await waiting.portions()) == WAITING
