"""Logs whose appends nobody waits for, and that are due together, are synced together."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from random import Random

import pytest

from app.errors import LogDirFailed
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.syncing.flush_schedule import FlushSchedule
from app.storage.topic_partition import TopicPartition
from tests.support.batches import spec_of
from tests.support.engines import QUIET, append, append_synced, open_engine, read_from
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import CountingThreads, SimulatedClock, simulated

CALL_S = 0.25
INTERVAL_S = 10.0
OPTIONS = EngineOptions(
    flush_interval_ms=int(INTERVAL_S * 1000),
    checkpoint_interval_ms=10**9,
    retention_interval_ms=10**9,
    cleaner=QUIET.cleaner,
)
NAMES = [TopicPartition("orders", number) for number in range(100)]


class CountingFiles(SimulatedFiles):
    def __init__(self) -> None:
        super().__init__()
        self.counting = CountingThreads(CALL_S)

    def threads(self, count: int) -> CountingThreads:
        return self.counting


async def _open(files: SimulatedFiles, names: list[TopicPartition] = NAMES) -> EmbeddedEngine:
    clock = SimulatedClock()
    engine = await open_engine(
        files, [spec_of(name, clock=clock) for name in names], clock=clock, options=OPTIONS
    )
    await asyncio.sleep(INTERVAL_S)
    return engine


def _unsynced(engine: EmbeddedEngine) -> list[TopicPartition]:
    return [name for name in NAMES if engine._logs.disk[name].is_dirty]


@simulated
async def test_many_logs_are_handed_to_few_threads_and_each_is_synced() -> None:
    files = CountingFiles()
    engine = await _open(files)
    files.counting.begun_s.clear()
    for name in NAMES:
        append(engine, b"x", name=name)
    assert _unsynced(engine) == NAMES
    await asyncio.sleep(INTERVAL_S - CALL_S)
    assert not files.counting.begun_s
    await asyncio.sleep(2 * CALL_S + 0.01)
    assert not _unsynced(engine)
    assert len(files.counting.begun_s) == OPTIONS.sync_threads
    after = files.power_cut(Random(1))
    await engine.close()
    clock = SimulatedClock()
    again = await open_engine(after, [spec_of(name, clock=clock) for name in NAMES], clock=clock)
    for name in NAMES:
        assert await read_from(again, 0, name=name) == [(0, b"x")]
    await again.close()


@simulated
async def test_an_append_that_waits_is_covered_by_a_round_of_its_own() -> None:
    files = CountingFiles()
    engine = await _open(files)
    for name in NAMES:
        append(engine, b"x", name=name)
    await asyncio.sleep(INTERVAL_S + CALL_S / 2)
    begun_s = asyncio.get_running_loop().time()
    ticket = await append_synced(engine, b"y", name=NAMES[3])
    assert ticket.last_offset == 1
    took_s = asyncio.get_running_loop().time() - begun_s
    assert CALL_S < took_s <= 2 * CALL_S, "the group that is under way, and then its own"
    assert not engine._logs.disk[NAMES[3]].is_dirty
    await engine.close()


@simulated
async def test_an_append_during_the_sync_of_its_group_is_synced_later() -> None:
    files = CountingFiles()
    engine = await _open(files)
    for name in NAMES:
        append(engine, b"x", name=name)
    await asyncio.sleep(INTERVAL_S + CALL_S / 2)
    append(engine, b"y", name=NAMES[5])
    await asyncio.sleep(CALL_S)
    assert _unsynced(engine) == [NAMES[5]]
    await asyncio.sleep(INTERVAL_S + CALL_S)
    assert not _unsynced(engine)
    await engine.close()


@simulated
async def test_a_log_that_is_due_while_a_round_is_under_way_has_another_round() -> None:
    files = CountingFiles()
    engine = await _open(files)
    append(engine, b"x", name=NAMES[0])
    await asyncio.sleep(INTERVAL_S - CALL_S / 2)
    waiting = asyncio.create_task(append_synced(engine, b"y", name=NAMES[0]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # Its timer has begun with the first one, so it ends while "y" is synced.
    append(engine, b"z", name=NAMES[0])
    await waiting
    await asyncio.sleep(2 * CALL_S)
    assert not _unsynced(engine)
    await engine.close()


@pytest.mark.usefixtures("without_logs")
@simulated
async def test_one_log_that_cannot_be_synced_fails_the_disk() -> None:
    files = CountingFiles()
    engine = await _open(files, NAMES[:10])
    for name in NAMES[:10]:
        append(engine, b"x", name=name)
    files.fail(Fault(errno=errno.EIO, call=4, kinds=["sync"]))
    await asyncio.sleep(INTERVAL_S + 2 * CALL_S)
    assert engine.failure is not None
    with pytest.raises(LogDirFailed):
        append(engine, b"y", name=NAMES[0])
    dirty = [name for name in NAMES[:10] if engine._logs.disk[name].is_dirty]
    assert dirty == [NAMES[3]]
    await engine.close()


@pytest.mark.usefixtures("without_logs")
@simulated
async def test_logs_for_which_no_thread_was_found_are_synced_later() -> None:
    files = CountingFiles()
    engine = await _open(files)
    for name in NAMES:
        append(engine, b"x", name=name)
    files.counting.refusals = 3
    await asyncio.sleep(INTERVAL_S + 1.5 * CALL_S)
    assert len(_unsynced(engine)) == 3 * 13
    ticket = await append_synced(engine, b"y", name=NAMES[0])
    assert ticket.last_offset == 1
    await asyncio.sleep(2)
    assert not _unsynced(engine)
    after = files.power_cut(Random(1))
    await engine.close()
    clock = SimulatedClock()
    again = await open_engine(after, [spec_of(name, clock=clock) for name in NAMES], clock=clock)
    assert [len(await read_from(again, 0, name=name)) for name in NAMES] == [2, *[1] * 99]
    await again.close()


@pytest.mark.usefixtures("without_logs")
@simulated
async def test_a_sync_for_which_no_thread_was_found_is_tried_again() -> None:
    files = CountingFiles()
    engine = await _open(files, NAMES[:1])
    files.counting.refusals = 1
    with pytest.raises(RuntimeError):
        await append_synced(engine, b"x", name=NAMES[0])
    assert engine._logs.disk[NAMES[0]].is_dirty
    await asyncio.sleep(2)
    assert not engine._logs.disk[NAMES[0]].is_dirty
    await engine.close()


@simulated
async def test_a_log_that_is_dropped_when_it_is_due_is_not_synced() -> None:
    files = CountingFiles()
    engine = await _open(files)
    for name in NAMES:
        append(engine, b"x", name=name)
    flusher = engine._flusher
    logs = [engine._logs.disk[name] for name in NAMES]
    flusher._begin_due(logs)
    await engine.drop([NAMES[50], NAMES[99]])
    assert not flusher._running.keys() & {logs[50], logs[99]}
    await asyncio.sleep(2 * INTERVAL_S)
    assert engine.failure is None
    await engine.close()


class Schedule:
    """A schedule of logs that are only names here."""

    def __init__(self) -> None:
        self.due: list[tuple[float, list[str]]] = []
        self._schedule = FlushSchedule[str](self._is_due)

    def _is_due(self, logs: Iterable[str]) -> None:
        self.due.append((asyncio.get_running_loop().time(), list(logs)))

    def add(self, name: str, delay_s: float) -> None:
        self._schedule.add(name, int(delay_s * 1000))

    def discard(self, name: str) -> None:
        self._schedule.discard(name)


@simulated
async def test_logs_of_one_delay_are_due_with_the_first_of_them() -> None:
    schedule = Schedule()
    schedule.add("a", 10)
    await asyncio.sleep(4)
    schedule.add("b", 10)
    schedule.add("a", 10)
    await asyncio.sleep(7)
    schedule.add("c", 10)
    await asyncio.sleep(20)
    assert schedule.due == [(10, ["a", "b"]), (21, ["c"])]


@simulated
async def test_a_log_is_due_at_the_earliest_time_that_was_asked_for() -> None:
    schedule = Schedule()
    schedule.add("a", 100)
    schedule.add("b", 100)
    schedule.add("a", 10)
    schedule.add("a", 50)
    await asyncio.sleep(95)
    # The batch of 100 s ends before this one would.
    schedule.add("b", 10)
    await asyncio.sleep(100)
    assert schedule.due == [(10, ["a"]), (100, ["b"])]


@simulated
async def test_a_log_that_is_forgotten_is_never_due() -> None:
    schedule = Schedule()
    schedule.add("a", 10)
    schedule.add("b", 10)
    schedule.discard("a")
    schedule.discard("unknown")
    await asyncio.sleep(20)
    assert schedule.due == [(10, ["b"])]
    schedule.add("a", 10)
    await asyncio.sleep(20)
    assert schedule.due[1:] == [(30, ["a"])]
