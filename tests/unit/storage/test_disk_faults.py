"""Every call to the file system fails once, in turn: no ack is false, and nothing acked is lost."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from stele.wire.messages import Durability

from app.errors import LogDirFailed, StorageError, StorageFull
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import AppendTicket, PartitionSpec
from app.storage.syncing import loop_syncs
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import DATA, append, append_synced, open_engine, read_from, segment_path
from tests.support.simulated_files import KINDS, Fault, SimulatedFiles
from tests.support.simulated_time import FOREVER_MS, SimulatedClock, before, run_simulated, simulated

pytestmark = pytest.mark.usefixtures("without_logs")

CONFIG = TopicConfig(segment_bytes=500, index_interval_bytes=100, retention_ms=-1, flush_ms=1 << 40)
OTHER = TopicPartition("orders", 1)
GONE = TopicPartition("gone", 0)
OPTIONS = EngineOptions(flush_interval_ms=10**9, checkpoint_interval_ms=1_000, retention_interval_ms=10**9)
ERRORS = [errno.EIO, errno.ENOSPC, errno.EROFS]
# Which of them a call meets in `make test`; the other calls of each are for `make long`.
TURNS = pytest.mark.parametrize(
    "turn", [0, *(pytest.param(turn, marks=pytest.mark.long) for turn in range(1, len(ERRORS)))]
)
# Reading and asking leave the state of the log known; all others may not.
WRITING = (
    "create",
    "make_dir",
    "rename",
    "remove",
    "remove_tree",
    "sync_dir",
    "write",
    "truncate",
    "allocate",
    "sync",
)


@dataclass
class Ledger:
    """What a client knows at the end of a run."""

    written: dict[TopicPartition, list[bytes]] = field(default_factory=dict[TopicPartition, list[bytes]])
    appended: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    synced: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    starts: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    errors: list[StorageError] = field(default_factory=list[StorageError])
    is_open: bool = False
    is_failed: bool = False

    async def attempt(self, work: Awaitable[object]) -> bool:
        try:
            await work
        except StorageError as error:
            self.errors.append(error)
            return False
        return True


class Run:
    """One broker's life on a disk that may fail; it goes on after each error, as clients do."""

    def __init__(self, files: SimulatedFiles, ledger: Ledger) -> None:
        self.files = files
        self.ledger = ledger
        self.clock = SimulatedClock()
        self.engine = EmbeddedEngine(files, DATA, clock=self.clock, options=OPTIONS)

    def spec(self, name: TopicPartition) -> PartitionSpec:
        return spec_of(name, clock=self.clock, config=CONFIG)

    async def live(self) -> None:
        engine, ledger = self.engine, self.ledger
        try:
            await engine.open()
        except OSError:
            await engine.close()
            return
        names = [ORDERS, OTHER]
        if not await ledger.attempt(engine.create([self.spec(name) for name in names])):
            await engine.close()
            return
        ledger.is_open = True
        await ledger.attempt(engine.start())
        for number in range(5):
            for name in names:
                self.append(name, sync=False)
                ticket = self.append(name, sync=True)
                if ticket is not None and ticket.future is None:
                    ledger.synced[name] = max(ledger.synced.get(name, 0), ticket.last_offset + 1)
                elif ticket is not None and ticket.future is not None:
                    await asyncio.wait((ticket.future,))
                    if ticket.future.exception() is None:
                        ledger.synced[name] = max(ledger.synced.get(name, 0), ticket.last_offset + 1)
            if number == 2:
                await ledger.attempt(self.delete(ORDERS, 3))
                await ledger.attempt(engine.enforce_retention())
                await asyncio.sleep(2)
                await ledger.attempt(self.make_and_drop())
            self.append(ORDERS, sync=False)
            end = ledger.appended.get(ORDERS, 0)
            if await ledger.attempt(engine.flush()):
                ledger.synced[ORDERS] = max(ledger.synced.get(ORDERS, 0), end)
            self.check_failure()
        failure = engine.failure
        await engine.close()
        ledger.is_failed = failure is not None

    async def delete(self, name: TopicPartition, offset: int) -> None:
        # From here on it may have happened; from its answer on it has.
        self.ledger.starts[name] = await self.engine.delete_records(name, offset)

    async def make_and_drop(self) -> None:
        await self.engine.create([self.spec(GONE)])
        append(self.engine, b"x", name=GONE)
        await self.engine.drop([GONE])

    def append(self, name: TopicPartition, *, sync: bool) -> AppendTicket | None:
        written = self.ledger.written.setdefault(name, [])
        value = b"%s %d " % (str(name).encode(), len(written)) + b"x" * 60
        try:
            ticket = append(self.engine, value, name=name, sync=sync)
        except StorageError as error:
            self.ledger.errors.append(error)
            return None
        assert ticket.base_offset == len(written), "an append that failed took no offset"
        written.append(value)
        self.ledger.appended[name] = len(written)
        return ticket

    def check_failure(self) -> None:
        """Once it failed, everything says so."""
        if self.engine.failure is None:
            return
        with pytest.raises(LogDirFailed) as refused:
            append(self.engine, b"never")
        assert refused.value.path == DATA / str(ORDERS)


async def check(files: SimulatedFiles, promised: dict[TopicPartition, int], ledger: Ledger) -> None:
    """A start on a disk that is well again finds all that was promised, each at its offset."""
    run = Run(files, Ledger())
    await run.engine.open()
    await run.engine.create([run.spec(ORDERS), run.spec(OTHER)])
    for name in (ORDERS, OTHER):
        state = run.engine.state(name)
        written = ledger.written.get(name, [])
        assert promised.get(name, 0) <= state.log_end_offset <= len(written), name
        assert ledger.starts.get(name, 0) <= state.log_start_offset
        assert await read_from(run.engine, state.log_start_offset, name=name) == [
            (offset, written[offset]) for offset in range(state.log_start_offset, state.log_end_offset)
        ]
        run.ledger.written[name] = written[: state.log_end_offset]
        assert run.append(name, sync=False) is not None
    await run.engine.close()


async def fail_at(
    call: int, error: int, *, kinds: tuple[str, ...], prepare: bool
) -> tuple[Fault, Ledger, Run]:
    """A life in which one call fails; with ``prepare`` it is the second on this disk, after a crash."""
    files = SimulatedFiles()
    ledger = Ledger()
    if prepare:
        first = Run(files, ledger)
        await first.live()
        # Closed in order, so all is there; the mark of it is taken away.
        files.unlink(DATA / "clean-shutdown")
        ledger.synced = dict(ledger.appended)
        ledger.is_open = False
        assert not ledger.errors
    fault = files.fail(Fault(errno=error, call=call, kinds=kinds, written=13))
    run = Run(files, ledger)
    await run.live()
    files.heal()
    return fault, ledger, run


@pytest.mark.slow
@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(False, id="a new disk"),
        pytest.param(True, marks=pytest.mark.long, id="after a crash"),
    ],
)
@TURNS
def test_no_ack_is_false_whichever_call_fails(turn: int, prepare: bool) -> None:
    """In all turns, every call fails with one of the errors."""
    fail_in_turns(turn, prepare=prepare)


@pytest.mark.slow
@TURNS
def test_no_ack_is_false_if_the_loop_makes_the_syncs(turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_syncs, "PROBES", 1)
    fail_in_turns(turn, prepare=False)


@pytest.mark.long
@pytest.mark.slow
@TURNS
@pytest.mark.usefixtures("much_space_ahead")
def test_no_ack_is_false_in_space_that_was_allocated_ahead(turn: int) -> None:
    fail_in_turns(turn, prepare=True)


@pytest.mark.long
@pytest.mark.parametrize("prepare", [False, True], ids=["a new disk", "after a crash"])
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_no_ack_is_false_whichever_call_fails_in_whichever_way(error: int, prepare: bool) -> None:
    fail_calls(error, first=1, step=1, prepare=prepare)


def fail_in_turns(turn: int, *, prepare: bool) -> None:
    """Fail a third of the calls, each third of these with one of the errors."""
    step = len(ERRORS) * len(ERRORS)
    for number, error in enumerate(ERRORS):
        fail_calls(error, first=1 + turn * len(ERRORS) + number, step=step, prepare=prepare)


def fail_calls(error: int, *, first: int, step: int, prepare: bool) -> None:
    """Live once for each call from the first on; it fails in that life."""
    kinds = KINDS if error == errno.EIO else WRITING

    async def main() -> int:
        for call in range(first, 10_000, step):
            fault, ledger, run = await fail_at(call, error, kinds=kinds, prepare=prepare)
            if not fault.hits:
                return call - step
            promised = ledger.synced
            await check(run.files.power_cut(Random(call)), promised, ledger)
            await check(
                run.files.crash(Random(call)), ledger.appended if not ledger.is_failed else promised, ledger
            )
        raise AssertionError("the scenario has no end")

    assert run_simulated(main) > 250


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_the_first_failed_sync_of_a_log_stops_it_for_good(error: int) -> None:
    @simulated
    async def main(call: int) -> None:
        files = SimulatedFiles()
        clock = SimulatedClock()
        engine = await open_engine(files, [spec_of(ORDERS, clock=clock)], clock=clock)
        await append_synced(engine, b"before")
        append(engine, b"appended")
        files.fail(Fault(errno=error, call=call, kinds=("sync",)))
        for number in range(call - 1):
            await append_synced(engine, b"%d" % number)
        tickets = [append(engine, b"lost", sync=True) for _ in range(3)]
        futures = [ticket.future for ticket in tickets if ticket.future is not None]
        await asyncio.wait(futures)
        assert all(isinstance(future.exception(), LogDirFailed) for future in futures)
        # The disk is well again, and would say so. It is not asked.
        syncs = files.counts["sync"]
        for refused in (lambda: append(engine, b"x"), lambda: append(engine, b"x", sync=True)):
            with pytest.raises(LogDirFailed):
                refused()
        with pytest.raises(LogDirFailed):
            await engine.flush()
        last_offset = engine.state(ORDERS).log_end_offset - 1
        last = AppendTicket(base_offset=last_offset, last_offset=last_offset, durability=Durability.APPENDED)
        engine.sync(ORDERS, last)
        assert last.future is not None
        with pytest.raises(LogDirFailed):
            await last.future
        await engine.close()
        assert files.counts["sync"] == syncs
        assert DATA / "clean-shutdown" not in files.paths()
        # What was written before is still served until then, and what was promised is there after it.
        engine = await open_engine(files.power_cut(Random(0)), [spec_of(ORDERS, clock=clock)], clock=clock)
        assert (await read_from(engine, 0))[0] == (0, b"before")
        assert engine.state(ORDERS).log_end_offset >= 1 + (call - 1) + (call > 1)
        await engine.close()

    for call in (1, 2, 3):
        main(call)


@simulated
async def test_a_full_disk_leaves_no_torn_batch_and_the_broker_goes_on_when_there_is_space() -> None:
    for written in (0, 1, 40, 70):
        files = SimulatedFiles()
        clock = SimulatedClock()
        engine = await open_engine(files, [spec_of(ORDERS, clock=clock)], clock=clock)
        await append_synced(engine, b"before")
        size = len(files.content(segment_path(0)))
        files.fail(Fault(errno=errno.ENOSPC, kinds=("write",), times=5, written=written))
        for _ in range(5):
            with pytest.raises(StorageFull):
                append(engine, b"too much")
            assert len(files.content(segment_path(0))) == size
        assert engine.failure is None
        assert engine.state(ORDERS).log_end_offset == 1
        assert (await append_synced(engine, b"space again")).base_offset == 1
        assert await read_from(engine, 0) == [(0, b"before"), (1, b"space again")]
        await engine.close()


@simulated
async def test_a_full_disk_that_has_room_for_records_but_not_for_indexes_still_syncs() -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock, config=CONFIG)], clock=clock)
    files.fail(Fault(errno=errno.ENOSPC, kinds=("create",), times=1 << 30))
    values: list[bytes] = []

    async def fill() -> None:
        while True:
            value = b"%d" % len(values) + b"x" * 50
            await append_synced(engine, value)
            values.append(value)

    with pytest.raises(StorageFull):
        # When a new segment is needed.
        await fill()
    assert engine.failure is None
    files.heal()
    # The segment can be rolled, but its indexes cannot be written: the sync is what is promised.
    files.fail(Fault(errno=errno.ENOSPC, kinds=("rename",), times=1 << 30))
    for number in range(2):
        with pytest.raises(StorageFull):
            append(engine, b"the snapshot has no room, the segment has")
        value = b"again %d" % number + b"x" * 400
        await append_synced(engine, value)
        values.append(value)
    assert engine.failure is None
    files.heal()
    left = files.power_cut(Random(0))
    await engine.flush()
    await engine.close()
    for disk in (files, left):
        engine = await open_engine(disk, [spec_of(ORDERS, clock=clock, config=CONFIG)], clock=clock)
        assert await read_from(engine, 0) == list(enumerate(values))
        await engine.close()


@simulated
async def test_retention_makes_room_on_a_disk_that_is_full() -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    config = TopicConfig(segment_bytes=300, retention_bytes=600, retention_ms=-1)
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock, config=config)], clock=clock)
    for number in range(20):
        await append_synced(engine, b"%d" % number + b"x" * 60)
    fault = files.fail(Fault(errno=errno.ENOSPC, kinds=("create",), times=1))
    assert await engine.enforce_retention() > 0
    assert fault.hits == 1
    assert engine.failure is None
    start = engine.state(ORDERS).log_start_offset
    assert start > 0
    assert segment_path(0) not in files.paths()
    await engine.close()
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock, config=config)], clock=clock)
    assert engine.state(ORDERS).log_start_offset == start
    await engine.close()


@simulated
async def test_a_torn_write_that_cannot_be_undone_stops_the_log() -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock)], clock=clock)
    await append_synced(engine, b"before")
    files.fail(Fault(errno=errno.ENOSPC, kinds=("write",), written=30))
    files.fail(Fault(errno=errno.EIO, kinds=("truncate",)))
    with pytest.raises(LogDirFailed):
        append(engine, b"torn")
    with pytest.raises(LogDirFailed):
        append(engine, b"after")
    await engine.close()
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock)], clock=clock)
    assert await read_from(engine, 0) == [(0, b"before")]
    await engine.close()


@simulated
async def test_a_failure_of_one_partition_stops_all_of_the_directory() -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    specs = [spec_of(name, clock=clock) for name in (ORDERS, OTHER)]
    engine = await open_engine(files, specs, clock=clock)
    other = append(engine, b"waits", name=OTHER, sync=True)
    files.fail(Fault(errno=errno.EIO, kinds=("sync",)))
    failed = append(engine, b"x", sync=True)
    waiting = [future for future in (other.future, failed.future) if future is not None]
    await asyncio.wait(waiting)
    assert any(isinstance(future.exception(), LogDirFailed) for future in waiting)
    for name in (ORDERS, OTHER):
        with pytest.raises(LogDirFailed) as refused:
            append(engine, b"y", name=name)
        assert "Input/output error" in str(refused.value)
        assert str(refused.value).count("stopped") == 1
    await engine.close()


@simulated
async def test_a_long_poll_ends_when_the_log_stops() -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock)], clock=clock)
    waiting = asyncio.create_task(engine.wait({ORDERS: 0}, 1 << 20, FOREVER_MS))
    await asyncio.sleep(0)
    files.fail(Fault(errno=errno.EIO, kinds=("write",)))
    with pytest.raises(LogDirFailed):
        append(engine, b"x")
    await before(1, waiting)
    await engine.close()


READS: list[Callable[[EmbeddedEngine], Awaitable[object]]] = [
    lambda engine: read_from(engine, 0),
    lambda engine: engine.offset_for_time(ORDERS, 1_000),
]


@pytest.mark.parametrize("read", READS)
@simulated
async def test_a_read_error_is_an_error_of_that_read_alone(
    read: Callable[[EmbeddedEngine], Awaitable[object]],
) -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock, config=CONFIG)], clock=clock)
    for number in range(10):
        await append_synced(engine, b"%d" % number + b"x" * 60)
    files.fail(Fault(errno=errno.EIO, kinds=("read",)))
    with pytest.raises(StorageError):
        await read(engine)
    assert engine.failure is None
    assert await read(engine)
    assert (await append_synced(engine, b"goes on")).base_offset == 10
    await engine.close()
