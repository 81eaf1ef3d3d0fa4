"""How many threads open the logs of a data directory after a crash."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest

from app.errors import LogDirFailed
from app.storage.embedded import EmbeddedEngine
from app.storage.topic_partition import TopicPartition
from tests.support.batches import spec_of
from tests.support.engines import QUIET, append_synced, open_engine
from tests.support.simulated_files import Fault, SimulatedFiles, SimulatedManySyncs
from tests.support.simulated_time import SimulatedClock, SlowThreads, simulated

_T = TypeVar("_T")

# A thread opens 64 in one go.
NAMES = [TopicPartition("orders", number) for number in range(6 * 64)]


class CountingThreads(SlowThreads):
    """Counts the calls that open logs at the same time, each of which takes ``call_s``."""

    def __init__(self, call_s: float) -> None:
        super().__init__(call_s)
        self.now = self.most = 0

    def run(self, work: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        future = super().run(work, *arguments)
        if getattr(work, "__name__", "") == "_load_logs":
            self.now += 1
            self.most = max(self.most, self.now)
            future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: object) -> None:
        self.now -= 1


class Disk(SimulatedFiles):
    def __init__(self) -> None:
        super().__init__()
        self.counting = CountingThreads(0.0)

    def threads(self, count: int) -> CountingThreads:
        return self.counting


async def opened(files: SimulatedFiles) -> EmbeddedEngine:
    clock = SimulatedClock()
    return await open_engine(
        files, [spec_of(name, clock=clock) for name in NAMES], clock=clock, options=QUIET
    )


async def killed(*, call_s: float) -> Disk:
    """Return the disk of an engine that was killed, with a record in each partition."""
    files = Disk()
    engine = await opened(files)
    await asyncio.gather(*(append_synced(engine, b"record", name=name) for name in NAMES))
    left = files.crash(Random(1))
    assert isinstance(left, Disk)
    left.counting = CountingThreads(call_s)
    return left


@pytest.mark.parametrize(("call_s", "threads"), [(0.001, 1), (1.0, 4)])
@simulated
async def test_only_logs_that_take_long_are_opened_side_by_side(call_s: float, threads: int) -> None:
    files = await killed(call_s=call_s)
    engine = await opened(files)
    assert files.counting.most == threads
    assert all(engine.state(name).log_end_offset == 1 for name in NAMES)
    await engine.close()


@simulated
async def test_topics_that_are_created_later_do_not_wait_for_what_the_last_run_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[SimulatedManySyncs] = []

    def begin(syncs: SimulatedManySyncs) -> None:
        begun.append(syncs)

    monkeypatch.setattr(SimulatedManySyncs, "begin", begin)
    files = await killed(call_s=0.001)
    assert not begun, "a new directory has nothing of a last run"
    engine = await opened(files)
    assert len(begun) == 1
    await engine.create([spec_of(TopicPartition("payments", 0), clock=SimulatedClock())])
    assert len(begun) == 1
    await engine.close()


@pytest.mark.parametrize("call_s", [0.001, 1.0])
@simulated
async def test_a_log_that_cannot_be_read_leaves_no_other_open(call_s: float) -> None:
    files = await killed(call_s=call_s)
    files.fail(Fault(errno=errno.EIO, kinds=("read",), call=3 * 64))
    with pytest.raises(LogDirFailed):
        await opened(files)
    assert not files.handles
