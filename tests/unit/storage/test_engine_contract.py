"""The contract of ``app.storage.engine.LogEngine``, tested with each engine.

Time is simulated: waiting for hours takes none, and nothing depends on speed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import pytest
from stele.wire import record_batch as rb
from stele.wire.messages import Durability

from app.clock import SystemClock
from app.errors import DataDirLocked, OffsetOutOfRange, UnknownTopic
from app.storage.disk.files import Files
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import AppendTicket, LogEngine, PartitionRead, PartitionSpec
from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import StoreKind
from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, batch_of, batch_of_times, spec_of
from tests.support.engines import (
    DATA,
    QUIET,
    append,
    append_raw,
    append_synced,
    fetch_of,
    open_engine,
    read_batches,
    read_from,
    read_one,
    segment_path,
)
from tests.support.late_engine import LateEngine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import (
    FOREVER_MS,
    START_MS,
    RealFilesInSimulatedTime,
    SimulatedClock,
    before,
    simulated,
)
from tests.support.storage_faults import ModelStore

OTHER = TopicPartition("orders", 1)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
YEAR_MS = 365 * 24 * HOUR_MS


@dataclass
class World:
    """A place to put an engine, and the configuration that makes it the kind under test."""

    kind: str
    clock: SimulatedClock

    def spec(self, name: TopicPartition = ORDERS, config: TopicConfig | None = None) -> PartitionSpec:
        config = config or TopicConfig(retention_ms=-1)
        return spec_of(
            name,
            clock=self.clock,
            config=replace(config, storage="memory" if self.kind == "memory" else "disk"),
        )

    async def open(self, *specs: PartitionSpec, options: EngineOptions = QUIET) -> LogEngine:
        raise NotImplementedError


@dataclass
class LocalWorld(World):
    """An embedded engine, which keeps what it has on this machine."""

    files: Files
    path: Path

    async def open(
        self,
        *specs: PartitionSpec,
        options: EngineOptions = QUIET,
        engine_class: type[EmbeddedEngine] = EmbeddedEngine,
    ) -> EmbeddedEngine:
        return await open_engine(
            self.files,
            specs or [self.spec()],
            clock=self.clock,
            options=options,
            path=self.path,
            engine_class=engine_class,
        )


@dataclass
class SharedWorld(World):
    """A shared engine over models of the metadata and of the object store."""

    meta: ModelMeta
    store: ModelStore

    def spec(self, name: TopicPartition = ORDERS, config: TopicConfig | None = None) -> PartitionSpec:
        # A topic is dropped as a whole, so tests that drop one partition need topics of their own.
        return replace(super().spec(name, config), topic_id=UUID(int=1 + name.partition))

    async def open(self, *specs: PartitionSpec, options: EngineOptions = QUIET) -> SharedEngine:
        engine = SharedEngine(
            self.meta,
            {StoreKind.OBJECTS: self.store},
            incarnation=uuid4(),
            clock=self.clock,
            options=SharedOptions(
                linger_ms=10,
                poll_interval_ms=500,
                upkeep=UpkeepOptions(retention_interval_ms=options.retention_interval_ms),
            ),
        )
        await engine.open()
        await engine.create(specs or [self.spec()])
        await engine.start()
        return engine


def local_world(kind: str, tmp_path: Path) -> LocalWorld:
    if kind == "real disk":
        return LocalWorld(kind, SimulatedClock(), RealFilesInSimulatedTime(), tmp_path / "data")
    return LocalWorld(kind, SimulatedClock(), SimulatedFiles(), DATA)


@pytest.fixture(params=["simulated disk", "real disk", "memory", "shared"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "shared":
        # The clock of the metadata is not that of the broker.
        return SharedWorld("shared", SimulatedClock(), ModelMeta(SimulatedClock().now_ms), ModelStore())
    return local_world(request.param, tmp_path)


@pytest.fixture(params=["simulated disk", "real disk", "memory"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> LocalWorld:
    """For what an engine with files or rings does in its own way."""
    return local_world(request.param, tmp_path)


@pytest.fixture
def disk() -> LocalWorld:
    """For what only a disk can show."""
    return LocalWorld("simulated disk", SimulatedClock(), SimulatedFiles(), DATA)


def simulated_files(world: LocalWorld) -> SimulatedFiles:
    assert isinstance(world.files, SimulatedFiles)
    return world.files


async def stored(ticket: AppendTicket) -> AppendTicket:
    """Wait until an append has its offsets, and readers see it."""
    if ticket.future is not None and not ticket.is_placed:
        await ticket.future
    return ticket


# ── append and read ──


@pytest.mark.parametrize("engine_class", [EmbeddedEngine, LateEngine], ids=["placed at once", "placed later"])
@simulated
async def test_a_ticket_has_its_offsets_when_it_is_done_in_the_order_of_the_appends(
    local: LocalWorld, engine_class: type[EmbeddedEngine]
) -> None:
    engine = await local.open(engine_class=engine_class)
    tickets: list[AppendTicket] = []
    for values in ([b"a", b"b"], [b"c"], [b"d"]):
        batches = batch_of(values)
        tickets.append(engine.append(ORDERS, batches, rb.check_produced(batches), sync=True))
    assert [ticket.is_placed for ticket in tickets] == [engine_class is EmbeddedEngine] * 3
    for ticket in tickets:
        if ticket.future is not None:
            await ticket.future
        assert ticket.done
        assert ticket.is_placed
    assert [(ticket.base_offset, ticket.last_offset) for ticket in tickets] == [(0, 1), (2, 2), (3, 3)]
    assert [offset for offset, _ in await read_from(engine, 0)] == [0, 1, 2, 3]
    await engine.close()


@simulated
async def test_a_read_answers_each_request_in_its_place(world: World) -> None:
    engine: LogEngine = await world.open(world.spec(), world.spec(OTHER))
    assert await engine.read([], 1000) == []
    batches = batch_of([b"x"])
    await stored(engine.append(OTHER, batches, rb.check_produced(batches), sync=False))
    requests = [fetch_of(OTHER, 0, 1000), fetch_of(ORDERS, 0, 1000), fetch_of(OTHER, 1, 1000)]
    reads = await engine.read(requests, 1000)
    assert [(read.topic, read.partition) for read in reads] == [r.topic_partition for r in requests]
    assert [len(read.batches) for read in reads] == [len(batches), 0, 0]
    assert [(read.log_start_offset, read.high_watermark) for read in reads] == [(0, 1), (0, 0), (0, 1)]
    assert all(read.error is None for read in reads)
    await engine.close()


@simulated
async def test_only_batches_in_a_file_have_an_origin(local: LocalWorld) -> None:
    engine: LogEngine = await local.open()
    batch_bytes = len(batch_of([b"x"]))
    for _ in range(2):
        batches = batch_of([b"x"])
        engine.append(ORDERS, batches, rb.check_produced(batches), sync=False)
    (read,) = await engine.read([fetch_of(ORDERS, 1, 1000)], 1000)
    if local.kind == "memory":
        assert read.origin is None
    else:
        assert read.origin is not None
        assert read.origin.path.name == segment_path(0).name
        assert read.origin.position == batch_bytes
    await engine.close()


@simulated
async def test_an_engine_with_files_shows_them_and_none_of_a_partition_in_memory(local: LocalWorld) -> None:
    engine: LogEngine = await local.open()
    views = engine.disk_views
    assert views is not None
    expected = 0 if local.kind == "memory" else 1
    assert views.segment_count(ORDERS) == len(await views.segments(ORDERS)) == expected
    if local.kind != "simulated disk":
        # A check reads files as ``stele verify`` does, which knows the real disk only.
        checked = await views.verify(ORDERS, lambda: False)
        assert checked is not None
        assert (checked.segments, checked.problems) == (expected, [])
    await engine.close()


@simulated
async def test_an_engine_that_was_opened_can_be_closed_at_any_point(disk: LocalWorld) -> None:
    has_mark = False
    for steps in (0, 1, 2, 3, 1, 2, 3):
        engine: LogEngine = EmbeddedEngine(disk.files, DATA, clock=disk.clock, options=QUIET)
        if steps > 0:
            start = await engine.open()
            # One that has not opened everything leaves the mark of a clean shutdown only if it found it.
            assert start.was_clean is has_mark
        if steps > 1:
            await engine.create([disk.spec()])
        if steps > 2:
            await engine.start()
            has_mark = True
        await engine.close()


@simulated
async def test_what_is_appended_is_read_at_its_offset(world: World) -> None:
    engine = await world.open()
    first = await stored(append(engine, b"a", b"b"))
    second = await stored(append(engine, b"c"))
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    assert first.log_start_offset == 0
    assert first.log_append_time_ms == rb.NO_TIMESTAMP
    for offset in range(4):
        assert await read_from(engine, offset) == [(0, b"a"), (1, b"b"), (2, b"c")][offset:]
    await engine.close()


@simulated
async def test_several_batches_in_one_append_follow_each_other(world: World) -> None:
    engine = await world.open()
    ticket = await stored(append_raw(engine, batch_of([b"a", b"b"]) + batch_of([b"c"]) + batch_of([b"d"])))
    assert (ticket.base_offset, ticket.last_offset) == (0, 3)
    assert await read_from(engine, 0, max_bytes=1) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    await engine.close()


@simulated
async def test_batches_come_out_as_they_went_in_with_offset_and_leader_epoch_set(world: World) -> None:
    engine = await world.open()
    await stored(append(engine, b"before"))
    sent = batch_of([b"x" * 100, b"y"])
    await stored(append_raw(engine, bytearray(sent)))
    raw = await read_batches(engine, 1)
    assert raw[16:] == sent[16:]
    header = rb.check_batch(raw)
    assert (header.base_offset, header.partition_leader_epoch) == (1, engine.state(ORDERS).leader_epoch)
    await engine.close()


@simulated
async def test_the_receipt_says_what_is_true(local: LocalWorld) -> None:
    engine = await local.open()
    appended = append(engine, b"a")
    synced = append(engine, b"b", sync=True)
    if local.kind == "memory":
        assert (appended.durability, synced.durability) == (Durability.NONE, Durability.NONE)
        assert appended.done
        assert synced.done
        engine.sync(ORDERS, appended)
        assert (appended.done, appended.durability) == (True, Durability.NONE)
    else:
        assert (appended.durability, synced.durability) == (Durability.APPENDED, Durability.SYNCED)
        assert appended.done
        assert not synced.done
        assert synced.future is not None
        await synced.future
        assert synced.done
        assert engine.state(ORDERS).recovery_point == 2
        engine.sync(ORDERS, appended)
        assert (appended.done, appended.durability) == (True, Durability.SYNCED)
    await engine.close()


@simulated
async def test_an_offset_outside_the_log_is_out_of_range(world: World) -> None:
    engine = await world.open()
    await stored(append(engine, b"a", b"b", b"c"))
    await engine.delete_records(ORDERS, 2)
    for offset in (-1, 0, 1, 4, 1 << 40):
        with pytest.raises(OffsetOutOfRange) as error:
            await read_batches(engine, offset)
        assert (error.value.offset, error.value.log_start_offset, error.value.log_end_offset) == (
            offset,
            2,
            3,
        )
        assert error.value.is_gone == (offset in (0, 1))
    assert await read_batches(engine, 3) == b""
    await engine.close()


@simulated
async def test_a_fetch_gives_whole_batches_within_its_bytes_but_at_least_one(world: World) -> None:
    engine = await world.open(world.spec(config=TopicConfig(index_interval_bytes=100, retention_ms=-1)))
    for number in range(30):
        await stored(append(engine, b"%02d" % number))
    size = len(await read_batches(engine, 0, max_bytes=1))
    for batches in range(1, 32):
        for extra in (0, size - 1):
            max_bytes = batches * size + extra
            raw = await read_batches(engine, 0, max_bytes=max_bytes)
            assert len(raw) % size == 0
            assert len(raw) <= max_bytes
            # An engine may leave out as much as lies between two index entries.
            assert len(raw) >= min(30 * size, max_bytes - 100 - 2 * size)
    raw = await read_batches(engine, 25, max_bytes=4 * size)
    assert [header.base_offset for header in rb.iter_headers(raw)][:2] == [25, 26]
    await engine.close()


@simulated
async def test_a_fetch_of_many_partitions_shares_its_bytes(world: World) -> None:
    engine = await world.open(world.spec(), world.spec(OTHER))
    for name in (ORDERS, OTHER):
        for _ in range(3):
            await stored(append(engine, b"x" * 100, name=name))
    size = len(await read_batches(engine, 0, max_bytes=1))

    async def read(max_bytes: int, *offsets: tuple[TopicPartition, int]) -> list[PartitionRead]:
        return await engine.read([fetch_of(name, at, 1 << 20) for name, at in offsets], max_bytes)

    assert [len(r.batches) for r in await read(1 << 20, (ORDERS, 0), (OTHER, 0))] == [3 * size, 3 * size]
    assert [len(r.batches) for r in await read(4 * size, (ORDERS, 0), (OTHER, 0))] == [3 * size, size]
    # The first with data gets a batch, however small the limit; nobody else does.
    assert [len(r.batches) for r in await read(1, (ORDERS, 3), (OTHER, 0))] == [0, size]
    assert [len(r.batches) for r in await read(1, (ORDERS, 0), (OTHER, 0))] == [size, 0]
    assert [r.high_watermark for r in await read(1, (ORDERS, 0), (OTHER, 9))] == [3, 3]
    await engine.close()


@simulated
async def test_only_the_first_partition_with_data_exceeds_a_limit_and_by_one_batch_alone(
    world: World,
) -> None:
    names = [TopicPartition("orders", partition) for partition in range(4)]
    config = TopicConfig(index_interval_bytes=0, retention_ms=-1)
    engine = await world.open(*(world.spec(name, config) for name in names))
    sizes: list[list[int]] = []
    # The first partition is empty; the batches of the others have sizes of their own.
    for partition, lengths in enumerate([[], [500, 100], [300, 700, 50], [90, 90]]):
        sizes.append([len(batch_of([b"x" * length])) for length in lengths])
        for length in lengths:
            await stored(append(engine, b"x" * length, name=names[partition]))
    boundaries = {1, 1 << 20}
    for batches in itertools.product(*([sum(s[:n]) for n in range(len(s) + 1)] for s in sizes)):
        boundaries |= {sum(batches) - 1, sum(batches), sum(batches) + 1}
    partition_limits = {1, 1 << 20} | {sum(s[:n]) + d for s in sizes for n in (1, 2, 3) for d in (-1, 0, 1)}
    for partition_max in sorted(partition_limits):
        requests = [fetch_of(name, 0, partition_max) for name in names]
        for max_bytes in sorted(boundaries):
            reads = await engine.read(requests, max_bytes)
            assert [len(read.batches) for read in reads] == _sizes_fetched(sizes, partition_max, max_bytes)
            assert all(read.error is None for read in reads)
    await engine.close()


def _sizes_fetched(sizes: list[list[int]], partition_max: int, max_bytes: int) -> list[int]:
    """KIP-74, written down once more: what each partition brings, given the sizes of its batches."""
    fetched: list[int] = []
    for batches in sizes:
        left = min(partition_max, max_bytes - sum(fetched))
        fitting = max(
            (sum(batches[:n]) for n in range(len(batches) + 1) if sum(batches[:n]) <= left), default=0
        )
        fetched.append(batches[0] if batches and not fitting and not any(fetched) else fitting)
    return fetched


@simulated
async def test_an_offset_out_of_range_is_told_where_no_bytes_are_left(world: World) -> None:
    engine = await world.open(world.spec(), world.spec(OTHER))
    await stored(append(engine, b"x" * 100))
    there, out_of_range = await engine.read([fetch_of(ORDERS, 0, 1), fetch_of(OTHER, 9, 1)], 1)
    assert len(there.batches) > 1
    assert isinstance(out_of_range.error, OffsetOutOfRange)
    await engine.close()


@simulated
async def test_a_fetch_of_a_partition_that_is_gone_says_so_in_its_place(world: World) -> None:
    engine = await world.open(world.spec(), world.spec(OTHER))
    await stored(append(engine, b"a"))
    await engine.drop([OTHER])
    gone, there = await engine.read([fetch_of(name, 0, 100) for name in (OTHER, ORDERS)], 1000)
    assert isinstance(gone.error, UnknownTopic)
    assert there.error is None
    assert there.batches
    await engine.close()


# ── waiting ──


@simulated
async def test_a_long_poll_is_woken_by_the_append_and_not_before(world: World) -> None:
    engine = await world.open()
    await stored(append(engine, b"old"))
    waiting = asyncio.create_task(engine.wait({ORDERS: 1}, 1, FOREVER_MS))
    await asyncio.sleep(3600)
    assert not waiting.done()
    await stored(append(engine, b"new"))
    await before(1, waiting)
    await engine.close()


@simulated
async def test_a_long_poll_waits_for_enough_bytes_of_all_its_partitions(world: World) -> None:
    engine = await world.open(world.spec(), world.spec(OTHER))
    size = len(batch_of([b"x"]))
    waiting = asyncio.create_task(engine.wait({ORDERS: 0, OTHER: 0}, 3 * size, FOREVER_MS))
    await asyncio.sleep(1)
    for name in (ORDERS, OTHER):
        await stored(append(engine, b"x", name=name))
        await asyncio.sleep(1)
        assert not waiting.done()
    await stored(append(engine, b"x", name=OTHER))
    await before(1, waiting)
    await engine.close()


@simulated
async def test_a_long_poll_ends_in_time_and_at_once_if_there_is_something(world: World) -> None:
    engine = await world.open()
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await engine.wait({ORDERS: 0}, 1, 5_000)
    assert loop.time() == pytest.approx(begun_s + 5)
    await stored(append(engine, b"x"))
    await before(1, engine.wait({ORDERS: 0}, 1 << 30, FOREVER_MS))
    await before(1, engine.wait({TopicPartition("nowhere", 0): 0}, 1, FOREVER_MS))
    await engine.close()


@simulated
async def test_a_drop_ends_the_waits_for_it(world: World) -> None:
    engine = await world.open()
    waiting = asyncio.create_task(engine.wait({ORDERS: 0}, 1, FOREVER_MS))
    synced = await stored(append(engine, b"x", sync=True))
    waiting = asyncio.create_task(engine.wait({ORDERS: 1}, 1, FOREVER_MS))
    await asyncio.sleep(0)
    await engine.drop([ORDERS])
    await before(1, waiting)
    assert synced.done
    assert synced.future is None or synced.future.exception() is None
    await engine.close()


@simulated
async def test_wake_all_and_close_end_every_wait(world: World) -> None:
    engine = await world.open(world.spec(), world.spec(OTHER))
    waiting = [asyncio.create_task(engine.wait({name: 0}, 1, FOREVER_MS)) for name in (ORDERS, OTHER)]
    await asyncio.sleep(0)
    engine.wake_all()
    await before(1, *waiting)
    waiting = [asyncio.create_task(engine.wait({name: 0}, 1, FOREVER_MS)) for name in (ORDERS, OTHER)]
    await asyncio.sleep(0)
    await engine.close()
    await before(1, *waiting)


# ── offsets by time and epoch ──


@simulated
async def test_the_offset_for_a_time_is_that_of_the_first_record_at_or_after_it(world: World) -> None:
    config = TopicConfig(segment_bytes=400, index_interval_bytes=0, retention_ms=-1)
    engine = await world.open(world.spec(config=config))
    random = Random(5)
    times: list[int] = []
    for _ in range(60):
        # Out of order, as producers' clocks are.
        batch = [1_000 + len(times) * 10 + random.randint(-200, 200) for _ in range(random.randint(1, 3))]
        times += batch
        await stored(append_raw(engine, batch_of_times(batch)))
    epoch = engine.state(ORDERS).leader_epoch

    async def check(start: int) -> None:
        for time_ms in (0, *sorted(times), *(time + 1 for time in times), max(times) + 1):
            expected = next(
                ((at, time, epoch) for at, time in enumerate(times) if time >= time_ms and at >= start), None
            )
            assert await engine.offset_for_time(ORDERS, time_ms) == (expected or (-1, -1, epoch))

    await check(0)
    await engine.delete_records(ORDERS, 47)
    await check(47)
    await engine.close()


@simulated
async def test_the_end_of_an_epoch_is_where_the_next_one_began(disk: LocalWorld) -> None:
    files = simulated_files(disk)
    for records in (2, 3, 4):
        engine = await open_engine(files, [disk.spec()], clock=disk.clock)
        for number in range(records):
            append(engine, b"%d" % number)
        left = files.crash(Random(0))
        await engine.close()
        files = left
    engine = await open_engine(files, [disk.spec()], clock=disk.clock)
    epoch = engine.state(ORDERS).leader_epoch
    assert epoch == 3
    assert [engine.epoch_end_offset(ORDERS, wanted) for wanted in (0, 1, 2, 3, 9)] == [
        (0, 2),
        (1, 5),
        (2, 9),
        (2, 9),
        (2, 9),
    ]
    await engine.close()


@simulated
async def test_a_memory_partition_has_one_epoch_in_a_run(local: LocalWorld) -> None:
    engine = await local.open()
    assert engine.epoch_end_offset(ORDERS, 5) == (5, 0)
    append(engine, b"a", b"b")
    assert engine.epoch_end_offset(ORDERS, 5) == (engine.state(ORDERS).leader_epoch, 2)
    await engine.close()


# ── deletion ──


@simulated
async def test_deleted_records_are_gone_and_the_others_stay(world: World) -> None:
    engine = await world.open()
    await stored(append(engine, b"a", b"b", b"c"))
    await stored(append(engine, b"d"))
    assert await engine.delete_records(ORDERS, 1) == 1
    # The batch is whole; the reader skips what is deleted.
    assert await read_from(engine, 1) == [(1, b"b"), (2, b"c"), (3, b"d")]
    assert await engine.delete_records(ORDERS, 0) == 1
    assert await engine.delete_records(ORDERS, 99) == 4
    state = engine.state(ORDERS)
    assert (state.log_start_offset, state.log_end_offset) == (4, 4)
    assert (await stored(append(engine, b"e"))).base_offset == 4
    assert await read_from(engine, 4) == [(4, b"e")]
    await engine.close()


@simulated
async def test_deleted_records_stay_deleted_after_a_power_cut_that_comes_at_once(disk: LocalWorld) -> None:
    engine = await disk.open()
    await append_synced(engine, b"a", b"b", b"c")
    await engine.delete_records(ORDERS, 2)
    for seed in range(30):
        left = simulated_files(disk).power_cut(Random(seed))
        other = await open_engine(left, [disk.spec()], clock=disk.clock)
        assert other.state(ORDERS).log_start_offset == 2
        assert await read_from(other, 2) == [(2, b"c")]
        await other.close()
    await engine.close()


@simulated
async def test_partitions_whose_records_are_deleted_at_once_share_what_makes_it_last(
    disk: LocalWorld,
) -> None:
    files = simulated_files(disk)
    names = [TopicPartition("orders", number) for number in range(100)]
    engine = await disk.open(*map(disk.spec, names))
    for name in names:
        append(engine, b"a", b"b", name=name)
    await engine.flush()
    before = files.counts["sync"] + files.counts["sync_dir"]
    assert await asyncio.gather(*(engine.delete_records(name, 1) for name in names)) == [1] * 100
    # The epochs of each partition are saved with the first checkpoint.
    assert files.counts["sync"] + files.counts["sync_dir"] - before < 2 * len(names) + 10
    before = files.counts["sync"] + files.counts["sync_dir"]
    assert await asyncio.gather(*(engine.delete_records(name, 2) for name in names)) == [2] * 100
    assert files.counts["sync"] + files.counts["sync_dir"] - before < 10
    left = files.power_cut(Random(0))
    other = await open_engine(left, list(map(disk.spec, names)), clock=disk.clock)
    assert [other.state(name).log_start_offset for name in names] == [2] * 100
    await other.close()
    await engine.close()


@simulated
async def test_retention_by_size_deletes_the_oldest(world: World) -> None:
    size = len(batch_of([b"x" * 100]))
    config = TopicConfig(segment_bytes=2 * size, retention_bytes=5 * size, retention_ms=-1)
    engine = await world.open(world.spec(config=config))
    for _ in range(12):
        await append_synced(engine, b"x" * 100)
    await engine.enforce_retention()
    state = engine.state(ORDERS)
    # Whole segments go on disk, whole batches in memory; what is kept is at least the limit less one of them.
    assert 5 * size <= state.size_bytes <= 6 * size
    assert state.log_start_offset == 12 - state.size_bytes // size
    assert len(await read_from(engine, state.log_start_offset)) == 12 - state.log_start_offset
    assert await engine.enforce_retention() == 0
    await engine.close()


@simulated
async def test_retention_by_time_deletes_what_is_older_and_nothing_else(world: World) -> None:
    config = TopicConfig(segment_bytes=100, retention_ms=10 * MINUTE_MS + MINUTE_MS // 2)
    engine = await world.open(world.spec(config=config))
    for _ in range(20):
        await append_synced_now(world, engine)
        await asyncio.sleep(60)
    await engine.enforce_retention()
    state = engine.state(ORDERS)
    # Twenty minutes passed; those of the last ten are there.
    assert state.log_start_offset == 10
    assert len(await read_from(engine, 10)) == 10
    await asyncio.sleep(20 * 60)
    await engine.enforce_retention()
    state = engine.state(ORDERS)
    assert (state.log_start_offset, state.log_end_offset, state.size_bytes) == (20, 20, 0)
    assert (await append_synced_now(world, engine)) == 20
    await engine.close()


async def append_synced_now(world: World, engine: LogEngine) -> int:
    ticket = await stored(append(engine, b"x" * 100, sync=True, at_ms=world.clock.now_ms()))
    if ticket.future is not None:
        await ticket.future
    return ticket.base_offset


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 10 * YEAR_MS, -10 * YEAR_MS])
@simulated
async def test_a_jump_of_the_clock_changes_no_offset_and_deletes_nothing_early(
    world: World, jump_ms: int
) -> None:
    config = TopicConfig(segment_bytes=100, retention_ms=HOUR_MS // 2)
    engine = await world.open(world.spec(config=config))
    for number in range(3):
        assert await append_synced_now(world, engine) == number
    world.clock.jump_ms = jump_ms
    for number in range(3, 6):
        assert await append_synced_now(world, engine) == number
    await engine.enforce_retention()
    assert engine.state(ORDERS).log_start_offset == 0
    assert [offset for offset, _ in await read_from(engine, 0)] == list(range(6))
    world.clock.jump_ms = 0
    await engine.enforce_retention()
    assert [offset for offset, _ in await read_from(engine, 0)] == list(range(6))
    await engine.close()


@simulated
async def test_retention_runs_by_itself(world: World) -> None:
    config = TopicConfig(segment_bytes=100, retention_ms=HOUR_MS)
    engine = await world.open(world.spec(config=config), options=replace(QUIET, retention_interval_ms=60_000))
    for _ in range(3):
        await append_synced_now(world, engine)
    await asyncio.sleep(2 * 3600)
    assert engine.state(ORDERS).log_start_offset == 3
    await engine.close()


@simulated
async def test_a_changed_configuration_is_in_effect_at_once(world: World) -> None:
    engine = await world.open()
    for _ in range(3):
        await append_synced(engine, b"x" * 100)
    config = replace(world.spec().config, segment_bytes=100, retention_bytes=0)
    engine.configure(ORDERS, config)
    await append_synced(engine, b"y")
    await engine.enforce_retention()
    # A shared engine has no active segment, which would stay.
    assert engine.state(ORDERS).log_start_offset == (4 if world.kind == "shared" else 3)
    await engine.close()


@simulated
async def test_a_dropped_partition_comes_back_empty_under_its_name(world: World) -> None:
    for topic_id in range(1, 4):
        engine = await world.open(replace(world.spec(), topic_id=UUID(int=topic_id << 64)))
        state = engine.state(ORDERS)
        assert (state.log_start_offset, state.log_end_offset) == (0, 0)
        await append_synced(engine, b"a", b"b", b"c")
        await engine.delete_records(ORDERS, 2)
        await engine.drop([ORDERS])
        await engine.create([replace(world.spec(), topic_id=UUID(int=topic_id << 64 | 5 << 32))])
        assert engine.state(ORDERS).log_end_offset == 0
        assert (await append_synced(engine, b"new")).base_offset == 0
        assert await read_from(engine, 0) == [(0, b"new")]
        await engine.close()


@simulated
async def test_a_topic_that_was_deleted_while_the_broker_was_down_does_not_come_back(
    disk: LocalWorld,
) -> None:
    engine = await disk.open()
    await append_synced(engine, b"old", b"old", b"old")
    await engine.delete_records(ORDERS, 2)
    await engine.close()
    other = replace(disk.spec(), topic_id=UUID(int=1 << 100))
    for _ in range(2):
        engine = await disk.open(other)
        if engine.state(ORDERS).log_end_offset == 0:
            assert engine.state(ORDERS).log_start_offset == 0
            await append_synced(engine, b"new")
        assert await read_from(engine, 0) == [(0, b"new")]
        left = simulated_files(disk).crash(Random(0))
        await engine.close()
        disk.files = left


# ── configuration of appends ──


@simulated
async def test_log_append_time_stamps_every_record_with_the_brokers_clock(world: World) -> None:
    config = TopicConfig(message_timestamp_type="LogAppendTime", retention_ms=-1)
    engine = await world.open(world.spec(config=config))
    await asyncio.sleep(60)
    now_ms = world.clock.now_ms()
    assert now_ms > START_MS
    ticket = await stored(append_raw(engine, batch_of_times([5, 6, 7]) + batch_of_times([1])))
    assert ticket.log_append_time_ms == now_ms
    raw = await read_batches(engine, 0)
    headers = list(rb.iter_headers(raw))
    assert all(header.is_log_append_time and header.max_timestamp == now_ms for header in headers)
    for header in headers:
        rb.check_batch(raw, header.position)
        assert {record.timestamp for record in rb.decode_records(raw, header)} == {now_ms}
    assert await engine.offset_for_time(ORDERS, now_ms) == (0, now_ms, engine.state(ORDERS).leader_epoch)
    await engine.close()


@simulated
async def test_flush_messages_makes_appends_synced_without_being_asked(disk: LocalWorld) -> None:
    engine = await disk.open(disk.spec(config=TopicConfig(flush_messages=1, retention_ms=-1)))
    ticket = append(engine, b"x")
    assert ticket.durability is Durability.SYNCED
    assert ticket.future is not None
    await ticket.future
    assert engine.state(ORDERS).recovery_point == 1
    engine.configure(ORDERS, TopicConfig(flush_messages=3, retention_ms=-1))
    assert append(engine, b"x").durability is Durability.APPENDED
    assert append(engine, b"x").durability is Durability.APPENDED
    assert append(engine, b"x").durability is Durability.SYNCED
    await engine.close()


@pytest.mark.parametrize("flush_ms", [-1, 50])
@simulated
async def test_what_nobody_waits_for_is_synced_in_the_background(disk: LocalWorld, flush_ms: int) -> None:
    config = TopicConfig(flush_ms=flush_ms, retention_ms=-1)
    engine = await disk.open(disk.spec(config=config), options=replace(QUIET, flush_interval_ms=100))
    append(engine, b"x")
    await asyncio.sleep(0.04)
    assert engine.state(ORDERS).recovery_point == 0
    await asyncio.sleep(0.1)
    assert engine.state(ORDERS).recovery_point == 1
    syncs = simulated_files(disk).counts["sync"]
    await asyncio.sleep(10)
    assert simulated_files(disk).counts["sync"] == syncs, "and an idle log is left alone"
    await engine.close()


@simulated
async def test_much_that_nobody_waits_for_is_not_left_to_one_big_sync(disk: LocalWorld) -> None:
    engine = await disk.open(options=replace(QUIET, flush_bytes=1000))
    assert append(engine, b"x" * 600).durability is Durability.APPENDED
    await asyncio.sleep(1)
    assert engine.state(ORDERS).recovery_point == 0
    assert append(engine, b"x" * 600).durability is Durability.APPENDED
    await asyncio.sleep(1)
    assert engine.state(ORDERS).recovery_point == 2
    append(engine, b"x" * 600)
    await asyncio.sleep(1)
    assert engine.state(ORDERS).recovery_point == 2, "the count began anew"
    engine.configure(ORDERS, TopicConfig(flush_ms=60_000, retention_ms=-1))
    append(engine, b"x" * 6000)
    await asyncio.sleep(30)
    assert engine.state(ORDERS).recovery_point == 2, "a topic's own flush.ms is what counts"
    await asyncio.sleep(31)
    assert engine.state(ORDERS).recovery_point == 4
    await engine.close()


@simulated
async def test_flush_syncs_what_was_appended_before_it(disk: LocalWorld) -> None:
    engine = await disk.open(disk.spec(), disk.spec(OTHER))
    append(engine, b"x")
    append(engine, b"y", name=OTHER)
    await engine.flush([OTHER])
    assert (engine.state(ORDERS).recovery_point, engine.state(OTHER).recovery_point) == (0, 1)
    await engine.flush()
    assert engine.state(ORDERS).recovery_point == 1
    syncs = simulated_files(disk).counts["sync"]
    await engine.flush()
    assert simulated_files(disk).counts["sync"] == syncs, "there is nothing to sync"
    await engine.close()


# ── segments ──


@simulated
async def test_segments_roll_by_size_and_a_read_goes_across_them(local: LocalWorld) -> None:
    size = len(batch_of([b"00"]))
    config = TopicConfig(segment_bytes=3 * size, retention_ms=-1)
    engine = await local.open(local.spec(config=config))
    for number in range(10):
        append(engine, b"%02d" % number)
    if local.kind != "memory":
        assert engine.disk_views.segment_count(ORDERS) == 4
    expected = [(number, b"%02d" % number) for number in range(10)]
    for offset in range(10):
        for max_bytes in (1, 2 * size, 1 << 20):
            assert await read_from(engine, offset, max_bytes=max_bytes) == expected[offset:]
    await engine.flush()
    assert await read_from(engine, 0) == expected
    await engine.close()


@simulated
async def test_segments_roll_by_age(disk: LocalWorld) -> None:
    engine = await disk.open(disk.spec(config=TopicConfig(segment_ms=HOUR_MS, retention_ms=-1)))
    await append_synced_now(disk, engine)
    await asyncio.sleep(3590)
    await append_synced_now(disk, engine)
    assert engine.disk_views.segment_count(ORDERS) == 1
    await asyncio.sleep(10)
    await append_synced_now(disk, engine)
    assert engine.disk_views.segment_count(ORDERS) == 2
    assert len(await read_from(engine, 0)) == 3
    await engine.close()


@simulated
async def test_a_sealed_segment_gives_its_file_back(disk: LocalWorld) -> None:
    files = simulated_files(disk)
    engine = await disk.open(
        disk.spec(config=TopicConfig(segment_bytes=100, retention_ms=-1)),
        options=replace(QUIET, open_segments_max=5),
    )
    for _ in range(100):
        await append_synced(engine, b"x" * 100)
    assert engine.disk_views.segment_count(ORDERS) == 100
    assert len(files.handles) <= 2
    assert len(await read_from(engine, 0)) == 100
    assert len(files.handles) <= 7
    await engine.close()
    assert not files.handles


# ── closing and opening ──


@simulated
async def test_what_was_closed_is_as_it_was_when_it_is_opened(disk: LocalWorld) -> None:
    config = TopicConfig(segment_bytes=700, index_interval_bytes=100, retention_ms=-1)
    engine = await disk.open(disk.spec(config=config))
    for number in range(20):
        append(engine, b"%d" % number + b"x" * 50)
    await engine.delete_records(ORDERS, 3)
    before = engine.state(ORDERS)
    content = await read_from(engine, 3)
    await engine.close()
    engine = await disk.open(disk.spec(config=config))
    after = engine.state(ORDERS)
    assert after == replace(before, recovery_point=20)
    assert await read_from(engine, 3) == content
    await engine.close()


@simulated
async def test_after_a_clean_shutdown_the_log_is_not_read(disk: LocalWorld) -> None:
    files = simulated_files(disk)
    config = TopicConfig(segment_bytes=200_000, retention_ms=-1)
    engine = await disk.open(disk.spec(config=config))
    for _ in range(500):
        append(engine, b"x" * 1000)
    await engine.close()
    logs = [path for path in files.paths() if path.suffix == ".log"]
    assert sum(len(files.content(path)) for path in logs) > 500_000
    files.bytes_read = Counter()
    engine = await disk.open(disk.spec(config=config))
    read = {path: files.bytes_read[path] for path in logs}
    *sealed, active = logs
    assert all(read[path] <= 2 * rb.HEADER_BYTES for path in sealed)
    assert read[active] < 16 * 1024
    assert engine.state(ORDERS).log_end_offset == 500
    assert sum(files.bytes_read.values()) < 64 * 1024
    await engine.close()


@simulated
async def test_a_clean_shutdown_keeps_the_leader_epoch_and_a_crash_raises_it(disk: LocalWorld) -> None:
    epochs: list[int] = []
    for is_clean in (True, False, False, True, True):
        engine = await disk.open()
        epochs.append(engine.state(ORDERS).leader_epoch)
        left = simulated_files(disk).crash(Random(0))
        await engine.close()
        if not is_clean:
            disk.files = left
    assert epochs == [0, 0, 1, 2, 2]


@simulated
async def test_a_memory_partition_is_empty_after_a_restart(local: LocalWorld) -> None:
    engine = await local.open()
    append(engine, b"x")
    await engine.close()
    engine = await local.open()
    assert engine.state(ORDERS).log_end_offset == (0 if local.kind == "memory" else 1)
    await engine.close()


@simulated
async def test_a_shutdown_waits_for_a_checkpoint_that_nobody_waits_for(disk: LocalWorld) -> None:
    engine = await disk.open()
    append(engine, b"a", b"b")
    asked = asyncio.create_task(engine.delete_records(ORDERS, 1))
    await asyncio.sleep(0)
    asked.cancel()
    await engine.close()
    assert asked.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    engine = await disk.open()
    assert engine.state(ORDERS).log_start_offset == 1
    await engine.close()


@simulated
async def test_a_shutdown_costs_the_partitions_that_were_written_to(disk: LocalWorld) -> None:
    files = simulated_files(disk)
    names = [TopicPartition("orders", number) for number in range(100)]
    written = names[:3]

    async def close(engine: EmbeddedEngine) -> int:
        before = files.counts["sync"] + files.counts["sync_dir"]
        await engine.close()
        return files.counts["sync"] + files.counts["sync_dir"] - before

    engine = await disk.open(*map(disk.spec, names))
    assert await close(engine) < 20, "nothing was ever written"
    for is_written in (True, False, True):
        engine = await disk.open(*map(disk.spec, names))
        if is_written:
            for name in written:
                append(engine, b"x", name=name)
        assert await close(engine) < (50 if is_written else 20)
    engine = await disk.open(*map(disk.spec, names))
    assert [engine.state(name).log_end_offset for name in names] == [2] * 3 + [0] * 97
    assert engine.state(ORDERS).leader_epoch == 0, "each of them was a clean shutdown"
    await engine.close()


@simulated
async def test_a_small_active_segment_needs_no_indexes_and_a_large_one_has_them(disk: LocalWorld) -> None:
    files = simulated_files(disk)
    spec = disk.spec(config=TopicConfig(segment_ms=1 << 60, retention_ms=-1))
    indexes = {segment_path(0, suffix) for suffix in (".index", ".timeindex")}
    present = [set[Path]()]
    for _ in range(4):
        engine = await disk.open(spec)
        for _ in range(25):
            append(engine, b"x" * 1000)
        await engine.close()
        present.append(indexes & set(files.paths()))
    assert present == [set(), set(), set(), indexes, indexes]
    engine = await disk.open(spec)
    assert engine.state(ORDERS).log_end_offset == 100
    await engine.close()


@simulated
async def test_a_large_first_batch_is_no_sign_of_damage(
    disk: LocalWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        engine = await disk.open()
        append(engine, b"x" * 200_000)
        await engine.close()
    engine = await disk.open()
    assert engine.state(ORDERS).log_end_offset == 3
    await engine.close()
    assert caplog.messages == []


@simulated
async def test_a_shutdown_leaves_again_what_was_damaged(disk: LocalWorld) -> None:
    files = simulated_files(disk)
    engine = await disk.open()
    append(engine, b"x")
    await engine.close()
    whole = {path: files.content(path) for path in files.paths() if path.parent.name == "orders-0"}
    for path in whole:
        if path.suffix in (".index", ".timeindex", ".producers"):
            files.unlink(path)
            await (await disk.open()).close()
            assert {path: files.content(path) for path in whole} == whole


@simulated
async def test_an_append_that_waits_for_its_sync_is_answered_by_the_close(disk: LocalWorld) -> None:
    engine = await disk.open()
    tickets = [append(engine, b"x", sync=True) for _ in range(3)]
    await engine.close()
    assert all(ticket.future is not None and ticket.future.exception() is None for ticket in tickets)


@simulated
async def test_a_second_engine_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    clock = SimulatedClock()
    spec = spec_of(ORDERS, clock=clock)
    engine = await open_engine(RealFilesInSimulatedTime(), [spec], clock=clock, path=tmp_path / "data")
    second = EmbeddedEngine(RealFilesInSimulatedTime(), tmp_path / "data", clock=clock, options=QUIET)
    with pytest.raises(DataDirLocked) as error:
        await second.open()
    assert error.value.path == tmp_path / "data"
    assert "process" in str(error.value)
    await second.close()
    assert await read_from(engine, 0) == []
    await append_synced(engine, b"the first is not disturbed")
    await engine.close()
    engine = await open_engine(
        RealFilesInSimulatedTime(), [spec_of(ORDERS, clock=clock)], clock=clock, path=tmp_path / "data"
    )
    assert (await read_from(engine, 0))[0][0] == 0
    await engine.close()


# ── the ring ──


@simulated
async def test_a_ring_forgets_the_oldest_and_says_so(disk: LocalWorld) -> None:
    memory = replace(disk, kind="memory")
    engine = await memory.open(memory.spec(config=TopicConfig(memory_records=10)))
    for number in range(25):
        append(engine, b"%d" % number)
    state = engine.state(ORDERS)
    assert (state.log_start_offset, state.log_end_offset) == (15, 25)
    with pytest.raises(OffsetOutOfRange) as error:
        await read_one(engine, 14)
    assert error.value.is_gone
    assert await read_from(engine, 15) == [(number, b"%d" % number) for number in range(15, 25)]
    await engine.close()


@simulated
async def test_a_ring_is_bounded_in_bytes_but_keeps_the_newest_batch(disk: LocalWorld) -> None:
    memory = replace(disk, kind="memory")
    engine = await memory.open(memory.spec(config=TopicConfig(retention_bytes=1000)))
    for _ in range(20):
        append(engine, b"x" * 300)
    assert engine.state(ORDERS).size_bytes <= 1000
    append(engine, b"x" * 5000)
    state = engine.state(ORDERS)
    assert (state.log_start_offset, state.log_end_offset) == (20, 21)
    assert len(await read_from(engine, 20)) == 1
    await engine.close()


@simulated
async def test_a_batch_that_is_half_forgotten_is_served_whole(disk: LocalWorld) -> None:
    memory = replace(disk, kind="memory")
    engine = await memory.open(memory.spec(config=TopicConfig(memory_records=3)))
    append(engine, b"a", b"b", b"c", b"d", b"e")
    assert engine.state(ORDERS).log_start_offset == 2
    assert await read_from(engine, 2) == [(2, b"c"), (3, b"d"), (4, b"e")]
    await engine.close()


# ── group commit ──


@simulated
async def test_one_sync_serves_every_waiting_producer(disk: LocalWorld) -> None:
    files = simulated_files(disk)
    engine = await disk.open()
    await append_synced(engine, b"warm")
    seconds: list[float] = []
    engine.observe_syncs(seconds.append)
    before = files.counts["sync"]

    async def producer(number: int) -> None:
        for count in range(10):
            await append_synced(engine, b"%d %d" % (number, count))

    await asyncio.gather(*(producer(number) for number in range(64)))
    syncs = files.counts["sync"] - before
    assert engine.state(ORDERS).log_end_offset == 641
    assert 10 <= syncs <= 22, "640 appends"
    assert len(seconds) == syncs
    await engine.close()


@simulated
async def test_an_append_during_a_sync_waits_for_the_next_one(disk: LocalWorld) -> None:
    engine = await disk.open()
    first = append(engine, b"first", sync=True)
    for _ in range(2):
        # The round has begun, and its work has not run.
        await asyncio.sleep(0)
    second = append(engine, b"second", sync=True)
    assert first.future is not None
    assert second.future is not None
    assert first.future is not second.future
    await first.future
    assert not second.future.done()
    assert engine.state(ORDERS).recovery_point == 1
    await second.future
    assert engine.state(ORDERS).recovery_point == 2
    await engine.close()


async def test_real_threads_and_real_time_change_nothing(tmp_path: Path) -> None:
    files, clock = RealFilesInSimulatedTime(), SystemClock()
    names = [TopicPartition("orders", number) for number in range(4)]
    config = TopicConfig(segment_bytes=4000, index_interval_bytes=200)
    options = EngineOptions(flush_interval_ms=1, checkpoint_interval_ms=5, retention_interval_ms=5)
    written: dict[TopicPartition, list[bytes]] = {name: [] for name in names}

    async def start() -> EmbeddedEngine:
        engine = EmbeddedEngine(files, tmp_path / "data", clock=clock, options=options)
        await engine.open()
        await engine.create([spec_of(name, clock=clock, config=config) for name in names])
        await engine.start()
        return engine

    async def produce(engine: EmbeddedEngine, number: int) -> None:
        for count in range(20):
            name = names[(number + count) % len(names)]
            value = b"%d %d " % (number, count) + b"x" * 100
            ticket = append(engine, value, name=name, sync=count % 2 == 0, at_ms=clock.now_ms())
            written[name].append(value)
            if ticket.future is not None:
                await ticket.future
            # An append that waits for no sync may follow one that does.
            while (end := engine.state(name).high_watermark) <= ticket.base_offset:
                await engine.wait({name: end}, 1, FOREVER_MS)
            assert (await read_one(engine, ticket.base_offset, name=name)) == [(ticket.base_offset, value)]

    for _ in range(2):
        engine = await start()
        await asyncio.gather(*(produce(engine, number) for number in range(16)))
        await engine.close()
    engine = await start()
    for name in names:
        assert await read_from(engine, 0, name=name) == list(enumerate(written[name]))
        assert engine.disk_views.segment_count(name) > 1
    await engine.close()


# ── files below it ──


def test_segments_are_named_after_their_base_offset() -> None:
    assert segment_path(41_872).name == "00000000000000041872.log"
