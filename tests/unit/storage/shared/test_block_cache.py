"""The block cache loads each block once, within its bounds."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from app.storage.shared.store import block_cache
from app.storage.shared.store.block_cache import BlockCache, TooManyLoads
from app.tcp.begun_work import begin_now, go_on
from tests.support.simulated_time import simulated

BLOCK = 10


class Store:
    """Objects whose bytes follow from their keys; notes every load."""

    def __init__(self) -> None:
        self.loads: list[tuple[str, int, int]] = []
        self.running = 0
        self.running_max = 0
        self.error: Exception | None = None

    def content(self, key: str, size: int) -> bytes:
        return Random(key).randbytes(1000)[:size]

    async def load(self, key: str, start: int, end: int) -> bytes:
        self.loads.append((key, start, end))
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        await asyncio.sleep(1)
        self.running -= 1
        if self.error is not None:
            raise self.error
        return self.content(key, 1000)[start:end]


def cache_of(store: Store, *, bytes_max: int = 1000, loads_max: int = 4) -> BlockCache[str]:
    return BlockCache(store.load, bytes_max=bytes_max, loads_max=loads_max, block_bytes=BLOCK)


@simulated
async def test_any_part_of_an_object_is_read_as_it_is() -> None:
    store = Store()
    random = Random(3)
    cache = cache_of(store, bytes_max=60)
    for _ in range(300):
        size = random.choice((1, 9, 10, 11, 95, 100))
        start = random.randrange(size)
        length = random.randint(0, size - start)
        key = f"{size} {random.randrange(3)}"
        assert await cache.read(key, size, start, length) == store.content(key, 1000)[start : start + length]
        assert cache.size_bytes <= 60


@simulated
async def test_blocks_that_follow_each_other_are_loaded_together_and_once() -> None:
    store = Store()
    cache = cache_of(store)
    reads = [cache.read("a", 95, 5, 80), cache.read("a", 95, 30, 40), cache.read("a", 95, 90, 5)]
    whole = store.content("a", 1000)
    assert await asyncio.gather(*reads) == [whole[5:85], whole[30:70], whole[90:95]]
    # At most eight blocks with one request.
    assert store.loads == [("a", 0, 80), ("a", 80, 90), ("a", 90, 95)]
    assert await cache.read("a", 95, 0, 95) == whole[:95]
    assert len(store.loads) == 3


@simulated
async def test_what_was_written_is_not_loaded() -> None:
    store = Store()
    cache = cache_of(store)
    cache.put("a", store.content("a", 35))
    assert await cache.read("a", 35, 1, 34) == store.content("a", 35)[1:]
    assert store.loads == []
    cache.forget("a", 35)
    assert cache.size_bytes == 0


@simulated
async def test_a_reader_that_gives_up_takes_nothing_from_another() -> None:
    store = Store()
    cache = cache_of(store)
    first = asyncio.create_task(cache.read("a", 20, 0, 20))
    second = asyncio.create_task(cache.read("a", 20, 0, 20))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == store.content("a", 20)
    assert len(store.loads) == 1


@simulated
async def test_a_read_of_what_must_be_loaded_begins_without_a_task() -> None:
    store = Store()
    cache = cache_of(store)
    until_s = asyncio.get_running_loop().time() + 60
    work = cache.read("a", 20, 0, 20, until_s=until_s)
    # Not in this task: a listener begins reads in a callback of the event loop.
    began: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: began.set_result(begin_now(work)))
    awaited, result = await began
    assert result is None
    assert await go_on(work, awaited) == store.content("a", 20)


@simulated
async def test_a_reader_waits_no_longer_than_it_may() -> None:
    store = Store()
    cache = cache_of(store)
    with pytest.raises(TimeoutError):
        await cache.read("a", 20, 0, 20, until_s=asyncio.get_running_loop().time() + 0.5)
    assert await cache.read("a", 20, 0, 20) == store.content("a", 20)
    assert len(store.loads) == 1


@simulated
async def test_an_error_reaches_all_who_wait_and_is_not_remembered() -> None:
    store = Store()
    cache = cache_of(store)
    store.error = OSError("the store is away")
    reads = [cache.read("a", 20, 0, 20), cache.read("a", 20, 10, 5)]
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
    store.error = None
    assert await cache.read("a", 20, 0, 20) == store.content("a", 20)


@simulated
async def test_no_more_loads_run_than_allowed() -> None:
    store = Store()
    cache = cache_of(store, loads_max=2)
    await asyncio.gather(*(cache.read(str(number), 10, 0, 10) for number in range(7)))
    assert store.running_max == 2


class HangingStore(Store):
    """Answers nothing before ``answers`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def load(self, key: str, start: int, end: int) -> bytes:
        self.loads.append((key, start, end))
        await self.answers.wait()
        return self.content(key, 1000)[start:end]


@simulated
async def test_more_loads_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "LOADS_MAX", 6)
    store = HangingStore()
    cache = cache_of(store, loads_max=2)
    cache.put("cached", store.content("cached", 10))
    waiting = [asyncio.create_task(cache.read(str(number), 10, 0, 10)) for number in range(6)]
    await asyncio.sleep(0.1)
    assert (len(store.loads), cache.waiting) == (2, 4)
    for _ in range(100):
        with pytest.raises(TooManyLoads, match="6 reads of objects wait"):
            await cache.read("another", 10, 0, 10)
    assert (cache.counts.refused, cache.waiting) == (100, 4)
    # What needs no load of its own is read as ever.
    assert await cache.read("cached", 10, 0, 10) == store.content("cached", 10)
    also = asyncio.create_task(cache.read("5", 10, 0, 10))
    await asyncio.sleep(0.1)
    store.answers.set()
    for number, reading in enumerate([*waiting, also]):
        assert await reading == store.content(str(min(number, 5)), 10)
    assert await cache.read("another", 10, 0, 10) == store.content("another", 10)


@simulated
async def test_loads_ahead_leave_room_for_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "_LOADS_WITH_AHEAD_MAX", 3)
    store = HangingStore()
    cache = cache_of(store, loads_max=1)
    for number in range(100):
        cache.prefetch(str(number), 10, 0, 10)
    assert cache.waiting == 2
    reading = asyncio.create_task(cache.read("99", 10, 0, 10))
    await asyncio.sleep(0.1)
    assert cache.waiting == 3
    store.answers.set()
    assert await reading == store.content("99", 10)


@simulated
async def test_what_no_reader_waits_for_any_longer_is_not_loaded_after_an_outage() -> None:
    store = HangingStore()
    cache = cache_of(store, loads_max=1)
    until_s = asyncio.get_running_loop().time() + 20
    reads = [cache.read(str(number), 10, 0, 10, until_s=until_s) for number in range(50)]
    for key in ("ahead", "further ahead"):
        cache.prefetch(key, 10, 0, 10)
    late = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(result, TimeoutError) for result in late)
    patient = asyncio.create_task(cache.read("7", 10, 0, 10))
    new = asyncio.create_task(cache.read("new", 10, 0, 10))
    await asyncio.sleep(1)
    store.answers.set()
    assert await patient == store.content("7", 10)
    assert await new == store.content("new", 10)
    assert [key for key, _, _ in store.loads] == ["ahead", "7", "new"]
    # Nothing of it is remembered.
    assert await cache.read("8", 10, 0, 10) == store.content("8", 10)
    assert cache.waiting == 0


@simulated
async def test_reading_ahead_loads_what_comes_next_and_gives_way_to_readers() -> None:
    store = Store()
    cache = cache_of(store, loads_max=1)
    cache.read_ahead("a", 35, 10, 2)
    cache.read_ahead("a", 35, 35, 2)
    cache.read_ahead("b", 35, 0, 2)
    await asyncio.sleep(2)
    assert store.loads == [("a", 10, 30)]
    assert await cache.read("a", 35, 10, 20) == store.content("a", 30)[10:]
    assert len(store.loads) == 1


@simulated
async def test_closing_ends_the_loads() -> None:
    store = Store()
    cache = cache_of(store)
    reading = asyncio.create_task(cache.read("a", 10, 0, 10))
    await asyncio.sleep(0.5)
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await reading
