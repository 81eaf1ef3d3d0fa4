"""How many appends share a sync, and how long they wait for each other, in simulated time."""

from __future__ import annotations

import asyncio
import errno

import pytest

from app.errors import StorageLimitReached
from app.storage.disk.files import RealFiles
from app.storage.embedded import EmbeddedEngine
from app.storage.logs.flush_work import FlushWork
from app.storage.logs.log import DiskLog
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import append, append_synced, open_engine
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import SimulatedClock, SlowThreads, simulated

SYNC_S = 0.000_5
# From an answer to the next request of the same producer, and from each to the one after it.
TURN_S, APART_S = 0.000_1, 0.000_05


class SlowDisk(SimulatedFiles):
    def threads(self, count: int) -> SlowThreads:
        return SlowThreads(SYNC_S)


async def opened(files: SlowDisk) -> EmbeddedEngine:
    clock = SimulatedClock()
    return await open_engine(
        files, [spec_of(ORDERS, clock=clock, config=TopicConfig(retention_ms=-1))], clock=clock
    )


async def pipeline(engine: EmbeddedEngine, appends: int, in_flight: int) -> None:
    """Be a producer whose answers come together, and whose next requests leave one after the other."""
    answered = asyncio.Semaphore(in_flight)
    left: list[asyncio.Future[None]] = []
    for number in range(appends):
        if answered.locked():
            await answered.acquire()
            await asyncio.sleep(TURN_S)
        else:
            await answered.acquire()
            await asyncio.sleep(APART_S)
        future = append(engine, b"%d" % number, sync=True).future
        assert future is not None
        future.add_done_callback(lambda _: answered.release())
        left.append(future)
    await asyncio.gather(*left)


async def seconds_of(engine: EmbeddedEngine, *values: bytes) -> float:
    """Return how long it takes until appends of one moment are synced."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await asyncio.gather(*(append_synced(engine, value) for value in values))
    return loop.time() - begun_s


@simulated
async def test_requests_in_flight_share_a_sync_although_they_come_one_after_the_other() -> None:
    files = SlowDisk()
    engine = await opened(files)
    before = files.counts["sync"]
    await pipeline(engine, appends=500, in_flight=5)
    assert 100 <= files.counts["sync"] - before <= 105
    await engine.close()


@simulated
async def test_a_producer_that_waits_for_each_answer_waits_for_nobody_else() -> None:
    engine = await opened(SlowDisk())
    for _ in range(5):
        assert await seconds_of(engine, b"x") == pytest.approx(SYNC_S)
    await engine.close()


@simulated
async def test_what_does_not_come_is_awaited_once_for_as_long_as_a_sync_takes() -> None:
    engine = await opened(SlowDisk())
    assert await seconds_of(engine, b"a", b"b", b"c") == pytest.approx(SYNC_S)
    assert await seconds_of(engine, b"d") == pytest.approx(2 * SYNC_S)
    assert await seconds_of(engine, b"e") == pytest.approx(SYNC_S)
    await engine.close()


@simulated
async def test_a_round_begins_with_the_last_append_that_is_awaited() -> None:
    engine = await opened(SlowDisk())
    await seconds_of(engine, b"a", b"b", b"c")
    first = asyncio.ensure_future(seconds_of(engine, b"d", b"e"))
    await asyncio.sleep(SYNC_S / 2)
    assert await seconds_of(engine, b"f") == pytest.approx(SYNC_S)
    assert await first == pytest.approx(1.5 * SYNC_S)
    await engine.close()


@simulated
async def test_nothing_is_awaited_long_after_the_last_round() -> None:
    engine = await opened(SlowDisk())
    await seconds_of(engine, b"a", b"b", b"c")
    await asyncio.sleep(5 * SYNC_S)
    assert await seconds_of(engine, b"d") == pytest.approx(SYNC_S)
    await engine.close()


@simulated
async def test_a_close_does_not_wait_for_appends_that_cannot_come() -> None:
    engine = await opened(SlowDisk())
    await seconds_of(engine, b"a", b"b", b"c")
    ticket = append(engine, b"d", sync=True)
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(engine.close())
    assert ticket.future is not None
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await ticket.future
    assert loop.time() - begun_s == pytest.approx(SYNC_S)
    await closing


@simulated
async def test_a_failed_sync_ends_the_wait_of_a_round_that_has_not_begun() -> None:
    files = SlowDisk()
    engine = await opened(files)
    await seconds_of(engine, b"a", b"b", b"c")
    files.fail(Fault(errno=errno.EIO, kinds=("sync",)))
    results = await asyncio.gather(
        *(append_synced(engine, b"x") for _ in range(3)),
        return_exceptions=True,
    )
    assert all(isinstance(result, Exception) for result in results)
    assert engine.failure is not None
    await engine.close()


@simulated
async def test_a_round_that_cannot_begin_fails_its_waiting_appends_and_stops_no_other_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = TopicPartition("orders", 1)
    clock = SimulatedClock()
    specs = [spec_of(name, clock=clock, config=TopicConfig(retention_ms=-1)) for name in (ORDERS, other)]
    engine = await open_engine(SlowDisk(), specs, clock=clock)
    for name in (ORDERS, other):
        await asyncio.gather(*(append_synced(engine, b"x", name=name) for _ in range(3)))
    flush_work = DiskLog.flush_work

    def work_of(log: DiskLog) -> FlushWork:
        if log.topic_partition == ORDERS:
            raise OSError(errno.EMFILE, "Too many open files")
        return flush_work(log)

    with monkeypatch.context() as broken:
        broken.setattr(DiskLog, "flush_work", work_of)
        results = await asyncio.gather(
            *(append_synced(engine, b"y", name=name) for name in (ORDERS, other)), return_exceptions=True
        )
    assert isinstance(results[0], StorageLimitReached)
    assert not isinstance(results[1], BaseException)
    for name in (ORDERS, other):
        await append_synced(engine, b"z", name=name)
        assert engine.state(name).recovery_point == 5
    await engine.close()


async def test_the_timer_of_a_real_disk_calls_back_once_per_start() -> None:
    threads = RealFiles().threads(1)
    fired: list[int] = []
    is_fired = asyncio.Event()

    def fire() -> None:
        fired.append(1)
        is_fired.set()

    timer = threads.timer(fire)
    timer.start(3_600)
    timer.stop()
    timer.start(0)
    await is_fired.wait()
    is_fired.clear()
    timer.start(0.000_1)
    await is_fired.wait()
    assert len(fired) == 2
    threads.shutdown()
