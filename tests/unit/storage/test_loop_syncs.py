"""The loop makes a sync itself if a thread would only cost time, in simulated time."""

from __future__ import annotations

import asyncio
import errno

import pytest
from stele.wire.messages import Durability

from app.errors import LogDirFailed
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import AppendTicket
from app.storage.logs.log import DiskLog
from app.storage.syncing.loop_syncs import (
    APPENDS_MAX,
    BYTES_MAX,
    PAUSE_FACTOR,
    PROBES,
    QUICK_S,
    SYNCS_PER_PROBE,
    LoopSyncs,
)
from app.storage.topic_config import TopicConfig, Visibility
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import QUIET, append, append_synced, open_engine, read_from
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import CountingThreads, SimulatedClock, SimulatedLoop, simulated

OTHER = TopicPartition("orders", 1)
HAND_OVER_S = 0.000_1
SYNC_S = QUICK_S / 2


class TimedDisk(SimulatedFiles):
    """A disk whose syncs of logs take time, wherever they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.counting = CountingThreads(HAND_OVER_S)
        self.sync_s = SYNC_S
        self.forgets = self._take_time

    def threads(self, count: int) -> CountingThreads:
        return self.counting

    def _take_time(self, kind: str, path: object) -> bool:
        loop = asyncio.get_running_loop()
        if kind == "sync" and str(path).endswith(".log") and isinstance(loop, SimulatedLoop):
            loop.hold(self.sync_s)
        return False


async def opened(
    files: SimulatedFiles, config: TopicConfig | None = None, options: EngineOptions = QUIET
) -> EmbeddedEngine:
    clock = SimulatedClock()
    config = config or TopicConfig(retention_ms=-1)
    specs = [spec_of(name, clock=clock, config=config) for name in (ORDERS, OTHER)]
    return await open_engine(files, specs, clock=clock, options=options)


async def at_once(engine: EmbeddedEngine, appends: int) -> None:
    await asyncio.gather(*(append_synced(engine, b"x") for _ in range(appends)))


async def proven(appends: int = 1, config: TopicConfig | None = None) -> tuple[TimedDisk, EmbeddedEngine]:
    """Open an engine whose threads have made as many rounds as it takes."""
    files = TimedDisk()
    engine = await opened(files, config)
    for _ in range(PROBES):
        await at_once(engine, appends)
    return files, engine


async def handed_over(files: TimedDisk, engine: EmbeddedEngine, rounds: int, appends: int = 1) -> int:
    """Return how many rounds of ``rounds`` threads have made."""
    before = len(files.counting.begun_s)
    for _ in range(rounds):
        await at_once(engine, appends)
    return len(files.counting.begun_s) - before


# ── the rule ──


def lone(now_s: float = 0.0) -> LoopSyncs:
    syncs = LoopSyncs()
    for _ in range(PROBES):
        assert not syncs.may_sync(now_s)
        syncs.probed(now_s, SYNC_S, has_company=False)
    return syncs


def test_the_loop_makes_syncs_after_so_many_rounds_that_left_nobody_out() -> None:
    syncs = lone()
    for _ in range(SYNCS_PER_PROBE):
        assert syncs.may_sync(0.0)
        syncs.synced(0.0, SYNC_S)
    assert not syncs.may_sync(0.0), "a thread has to look whether others come"
    syncs.probed(0.0, SYNC_S, has_company=False)
    assert syncs.may_sync(0.0)


def test_others_end_it() -> None:
    syncs = lone()
    syncs.probed(0.0, SYNC_S, has_company=True)
    for _ in range(PROBES):
        assert not syncs.may_sync(0.0)
        syncs.probed(0.0, SYNC_S, has_company=False)
    assert syncs.may_sync(0.0)


def test_a_sync_that_is_not_quick_leaves_the_next_ones_to_threads_for_a_hundred_times_as_long() -> None:
    syncs = lone()
    syncs.synced(10.0, 2.0)
    syncs.took(11.0, 0.001)
    assert not syncs.may_sync(10.0 + PAUSE_FACTOR * 2.0 - 0.1)
    assert syncs.may_sync(10.0 + PAUSE_FACTOR * 2.0)


# ── the engine ──


@simulated
async def test_a_producer_that_waits_for_each_answer_needs_no_thread() -> None:
    files = TimedDisk()
    engine = await opened(files)
    assert await handed_over(files, engine, PROBES) == PROBES
    syncs = files.counts["sync"]
    for _ in range(SYNCS_PER_PROBE):
        ticket = append(engine, b"x", sync=True)
        assert ticket.future is None
        assert ticket.durability is Durability.SYNCED
        state = engine.state(ORDERS)
        assert state.recovery_point == state.high_watermark == ticket.last_offset + 1
    assert files.counts["sync"] == syncs + SYNCS_PER_PROBE
    assert await handed_over(files, engine, 1) == 1
    assert await handed_over(files, engine, SYNCS_PER_PROBE) == 0
    await engine.close()


@simulated
async def test_requests_in_flight_need_no_thread_if_all_are_there() -> None:
    files, engine = await proven(3)
    assert await handed_over(files, engine, SYNCS_PER_PROBE, 3) == 0
    assert await handed_over(files, engine, 1, 3) == 1
    await engine.close()


@simulated
async def test_more_requests_in_flight_go_to_threads_because_the_loop_can_read_others_meanwhile() -> None:
    files, engine = await proven(APPENDS_MAX + 1)
    assert await handed_over(files, engine, 10, APPENDS_MAX + 1) == 10
    await engine.close()


@pytest.mark.parametrize("is_awaited", [True, False])
def test_an_append_during_a_round_leaves_the_next_rounds_to_threads(is_awaited: bool) -> None:
    @simulated
    async def run() -> None:
        files, engine = await proven()
        for _ in range(SYNCS_PER_PROBE):
            await append_synced(engine, b"x")
        waiting = asyncio.create_task(append_synced(engine, b"x"))
        await asyncio.sleep(HAND_OVER_S / 2)
        ticket = append(engine, b"y", name=OTHER, sync=is_awaited)
        if ticket.future is not None:
            await ticket.future
        await waiting
        # The round of the other log, if it has one, is the first without company.
        assert await handed_over(files, engine, PROBES) == PROBES - is_awaited
        await engine.close()

    run()


@simulated
async def test_an_append_beside_the_round_of_another_log_goes_to_a_thread() -> None:
    _, engine = await proven()
    large = append(engine, bytes(BYTES_MAX + 1), sync=True)
    ticket = append(engine, b"y", name=OTHER, sync=True)
    assert large.future is not None
    assert ticket.future is not None
    await asyncio.gather(large.future, ticket.future)
    await engine.close()


@simulated
async def test_a_slow_disk_is_left_to_threads() -> None:
    files = TimedDisk()
    files.sync_s = 2 * QUICK_S
    engine = await opened(files)
    assert await handed_over(files, engine, 3 * PROBES) == 3 * PROBES
    await engine.close()


@simulated
async def test_a_disk_that_pauses_holds_the_loop_once_and_is_left_to_threads_for_a_while() -> None:
    files, engine = await proven()
    loop = asyncio.get_running_loop()
    files.sync_s = 3.0
    begun_s = loop.time()
    assert append(engine, b"x", sync=True).future is None
    assert loop.time() - begun_s == pytest.approx(3.0)
    files.sync_s = SYNC_S
    assert await handed_over(files, engine, 2 * PROBES) == 2 * PROBES
    await asyncio.sleep(PAUSE_FACTOR * 3.0)
    assert await handed_over(files, engine, 10) == 0
    await engine.close()


@simulated
async def test_large_appends_go_to_threads() -> None:
    _, engine = await proven()
    assert append(engine, bytes(BYTES_MAX + 1), sync=True).future is not None
    await engine.close()


@simulated
async def test_a_segment_that_is_sealed_goes_to_a_thread() -> None:
    _, engine = await proven(config=TopicConfig(retention_ms=-1, segment_bytes=4096))
    tickets: list[AppendTicket] = []
    for _ in range(SYNCS_PER_PROBE):
        tickets.append(ticket := append(engine, b"x" * 200, sync=True))
        if ticket.future is not None:
            await ticket.future
    rolled = [ticket for ticket in tickets if ticket.future is not None]
    assert 2 <= len(rolled) <= 10
    assert await read_from(engine, tickets[0].base_offset) == [
        (ticket.base_offset, b"x" * 200) for ticket in tickets
    ]
    await engine.close()


@simulated
async def test_a_topic_that_syncs_each_record_needs_no_thread_with_acks_1_either() -> None:
    files = TimedDisk()
    engine = await opened(files, TopicConfig(retention_ms=-1, flush_messages=1))
    for _ in range(PROBES):
        ticket = append(engine, b"x")
        assert ticket.future is not None
        await ticket.future
    ticket = append(engine, b"x")
    assert ticket.future is None
    assert ticket.durability is Durability.SYNCED
    await engine.close()


@pytest.mark.parametrize("visibility", ["synced", "appended"])
def test_a_long_poll_is_woken(visibility: Visibility) -> None:
    @simulated
    async def run() -> None:
        _, engine = await proven(config=TopicConfig(retention_ms=-1, visibility=visibility))
        waiting = asyncio.create_task(engine.wait({ORDERS: PROBES}, 1, 3_600_000))
        await asyncio.sleep(0)
        begun_s = asyncio.get_running_loop().time()
        assert append(engine, b"x", sync=True).future is None
        await waiting
        assert asyncio.get_running_loop().time() - begun_s < 1
        await engine.close()

    run()


# ── errors ──


@pytest.mark.usefixtures("without_logs")
@simulated
async def test_a_sync_that_fails_acknowledges_nothing_and_stops_the_log() -> None:
    files, engine = await proven()
    files.fail(Fault(errno=errno.EIO, kinds=("sync",)))
    ticket = append(engine, b"x", sync=True)
    assert ticket.future is not None
    with pytest.raises(LogDirFailed):
        await ticket.future
    assert engine.state(ORDERS).high_watermark == PROBES
    with pytest.raises(LogDirFailed):
        append(engine, b"y", sync=True)
    await engine.close()


@pytest.mark.usefixtures("without_logs")
@simulated
async def test_so_does_one_of_requests_in_flight() -> None:
    files, engine = await proven(2)
    files.fail(Fault(errno=errno.EIO, kinds=("sync",)))
    results = await asyncio.gather(
        *(append_synced(engine, b"x") for _ in range(2)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [LogDirFailed, LogDirFailed]
    assert engine.state(ORDERS).high_watermark == 2 * PROBES
    await engine.close()


@pytest.mark.usefixtures("without_logs")
@simulated
async def test_a_sync_that_cannot_begin_is_tried_again_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    _, engine = await proven()

    def refuse(_log: DiskLog) -> None:
        monkeypatch.undo()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(DiskLog, "flush_work", refuse)
    ticket = append(engine, b"x", sync=True)
    assert ticket.future is not None
    await ticket.future
    assert engine.state(ORDERS).recovery_point == PROBES + 1
    await engine.close()
