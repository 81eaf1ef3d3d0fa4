"""What is refused halfway, or meets another change at a wait, leaves the log as its clients know it."""

from __future__ import annotations

import asyncio
import errno
import threading
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from stele.wire import record_batch as rb

from app.clock import SystemClock
from app.errors import LogDirFailed, SteleError, StorageFull, UnknownTopic
from app.storage.cleaner import CleanerOptions
from app.storage.disk.files import RealFile, RealFiles
from app.storage.disk.kept_space import KEPT_SPACE
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import PartitionSpec
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import (
    DATA,
    QUIET,
    append,
    append_raw,
    append_synced,
    open_engine,
    read_batches,
    read_from,
)
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import SimulatedClock, run_simulated, simulated

pytestmark = pytest.mark.usefixtures("without_logs", "without_pauses")

OTHER = TopicPartition("other", 0)
TURNS = range(8)
SMALL = TopicConfig(segment_bytes=300, retention_ms=-1)
KEYED = TopicConfig(
    segment_bytes=300, retention_ms=-1, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01
)


async def opened(
    files: SimulatedFiles, *specs: PartitionSpec, options: EngineOptions = QUIET
) -> EmbeddedEngine:
    clock = SimulatedClock()
    return await open_engine(files, specs or [spec_of(ORDERS, clock=clock)], clock=clock, options=options)


def spec(
    name: TopicPartition = ORDERS, *, topic_id: int | None = None, config: TopicConfig | None = None
) -> PartitionSpec:
    """``topic_id`` None: that of ``spec_of``."""
    made = spec_of(name, clock=SimulatedClock(), config=config or TopicConfig())
    return made if topic_id is None else replace(made, topic_id=UUID(int=topic_id))


async def crashed(files: SimulatedFiles, *specs: PartitionSpec) -> EmbeddedEngine:
    return await opened(files.crash(Random(1)), *specs)


def append_keyed(engine: EmbeddedEngine, key: bytes, value: bytes) -> None:
    builder = rb.BatchBuilder()
    builder.append(timestamp_ms=1_000, key=key, value=value)
    append_raw(engine, builder.build())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class FullDisk(SimulatedFiles):
    """While ``is_full``, nothing can be written but into the space that is kept back, once that is free."""

    is_full = False

    def called(self, kind: str, path: Path) -> None:
        super().called(kind, path)
        if (
            self.is_full
            and kind in ("create", "write")
            and self._node(DATA / KEPT_SPACE) is not None
            and path.name != KEPT_SPACE
        ):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


# ── halfway ──


@simulated
async def test_a_segment_that_began_before_its_snapshot_was_refused_is_not_begun_again() -> None:
    files = SimulatedFiles()
    config = TopicConfig(retention_ms=1_000)
    engine = await opened(files, spec(config=config))
    await append_synced(engine, b"old")
    await asyncio.sleep(70)
    refused = files.fail(Fault(errno=errno.ENOSPC, kinds=("write",)))
    assert await engine.enforce_retention() == 1
    assert refused.hits
    ticket = await append_synced(engine, b"new")
    await engine.enforce_retention()
    after = await crashed(files, spec(config=config))
    assert await read_from(after, ticket.base_offset) == [(ticket.base_offset, b"new")]
    await after.close()
    await engine.close()


@pytest.mark.parametrize("turn", TURNS)
@simulated
async def test_a_sync_that_was_refused_while_its_topic_is_deleted_is_not_tried_again(turn: int) -> None:
    files = SimulatedFiles()
    engine = await opened(files, spec(config=SMALL), spec(OTHER))
    await append_synced(engine, b"x" * 200)
    # It begins a segment, so its sync opens the directory.
    ticket = append(engine, b"y" * 200, sync=True)
    files.fail(Fault(errno=errno.EMFILE, kinds=("open_dir",)))
    await turns(turn)
    await engine.drop([ORDERS])
    if ticket.future is not None:
        await asyncio.wait([ticket.future])
    await asyncio.sleep(10)
    assert engine.failure is None
    await append_synced(engine, b"goes on", name=OTHER)
    await engine.close()


@simulated
async def test_a_partition_that_cannot_be_removed_because_a_sync_failed_stops_the_log() -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    files.fail(Fault(errno=errno.ENOSPC, kinds=("create",)))
    files.fail(Fault(errno=errno.EIO, kinds=("sync_dir",)))
    with pytest.raises(SteleError):
        await engine.create([spec(OTHER)])
    assert isinstance(engine.failure, LogDirFailed)
    await engine.close()


@pytest.mark.parametrize("step", range(1, 9))
@simulated
async def test_a_topic_is_deleted_although_its_compaction_waits_for_space(step: int) -> None:
    files = SimulatedFiles()
    engine = await opened(files, spec(config=KEYED))
    for number in range(12):
        append_keyed(engine, b"k%d" % (number % 2), b"%d" % number + b"x" * 90)
    await engine.flush()
    refused = files.fail(Fault(errno=errno.ENOSPC, kinds=("rename",), call=step, times=1 << 30))
    compacting = asyncio.ensure_future(engine.compact())
    await asyncio.wait((compacting,), timeout=10)
    assert refused.hits
    dropping = asyncio.ensure_future(engine.drop([ORDERS]))
    await asyncio.wait((dropping, compacting), timeout=10)
    assert dropping.done()
    assert compacting.done()
    assert engine.failure is None
    files.heal()
    await engine.enforce_retention()
    assert not [path for path in files.paths() if str(ORDERS) in str(path) or "deleted" in str(path)]
    await engine.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
@simulated
async def test_compaction_goes_on_after_its_look_at_segments_was_refused(number: int) -> None:
    files = SimulatedFiles()
    config = replace(KEYED, max_compaction_lag_ms=1_000)
    engine = await opened(
        files, spec(config=config), options=replace(QUIET, cleaner=CleanerOptions(interval_ms=1_000))
    )
    for count in range(12):
        append_keyed(engine, b"k%d" % (count % 2), b"%d" % count + b"x" * 90)
    await engine.flush()
    refused = files.fail(Fault(errno=number, kinds=("open", "read")))
    await asyncio.sleep(10)
    assert refused.hits
    assert engine.compaction.passes > 0
    await engine.close()


@simulated
async def test_files_that_a_deletion_has_left_go_although_the_name_is_in_use_again() -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    await append_synced(engine, b"old")
    files.fail(Fault(errno=errno.ENOMEM, kinds=("remove_tree",)))
    assert not await engine.drop([ORDERS])
    again = spec(topic_id=77)
    await engine.create([again])
    await append_synced(engine, b"new")
    await engine.enforce_retention()
    assert not [path for path in files.paths() if ".deleted" in str(path)]
    assert await read_from(engine, 0) == [(0, b"new")]
    await engine.close()


@simulated
async def test_a_log_that_begins_in_its_active_segment_is_compacted_and_kept() -> None:
    files = SimulatedFiles()
    engine = await opened(files, spec(config=KEYED))
    for number in range(12):
        append_keyed(engine, b"k%d" % (number % 2), b"%d" % number + b"x" * 90)
    await engine.flush()
    await engine.delete_records(ORDERS, 12)
    await engine.compact()
    await engine.enforce_retention()
    append_keyed(engine, b"k", b"new")
    await engine.flush()
    after = await crashed(files, spec(config=KEYED))
    for one in (engine, after):
        assert one.state(ORDERS).log_start_offset == 12
        assert await read_from(one, 12) == [(12, b"new")]
        await one.close()


# ── what is kept back ──


@simulated
async def test_work_that_frees_space_has_what_is_kept_back_while_others_append() -> None:
    files = FullDisk()
    engine = await opened(files)
    for number in range(10):
        await append_synced(engine, b"%d" % number)
    files.is_full = True
    done = asyncio.Event()

    async def produce() -> None:
        while not done.is_set():
            with suppress(StorageFull):
                append(engine, b"x")
            await asyncio.sleep(0)

    producing = asyncio.ensure_future(produce())
    assert await engine.delete_records(ORDERS, 5) == 5
    done.set()
    await producing
    after = await crashed(files)
    assert after.state(ORDERS).log_start_offset == 5
    await after.close()
    files.is_full = False
    await engine.close()


@simulated
async def test_space_is_kept_back_once_the_limit_that_prevented_it_is_gone() -> None:
    files = SimulatedFiles()
    engine = await opened(files, options=replace(QUIET, checkpoint_interval_ms=1_000))
    refused = files.fail(Fault(errno=errno.EMFILE, kinds=("create",)))
    await use_kept_space(engine)
    assert refused.hits
    append(engine, b"x")
    await asyncio.sleep(10)
    assert DATA / KEPT_SPACE in files.paths()
    await engine.close()


async def use_kept_space(engine: EmbeddedEngine) -> None:
    async def work() -> None:
        raise StorageFull(DATA, "nothing is enough")

    with suppress(StorageFull):
        await engine.with_kept_space(work)


class ProbedTwice(SimulatedFiles):
    """Another health check removes the file that a health check has written."""

    def remove(self, path: Path) -> None:
        if path.suffix == ".probe" and self._node(path) is not None:
            self.unlink(path)
        super().remove(path)


@simulated
async def test_two_health_checks_at_once_stop_nothing() -> None:
    files = ProbedTwice()
    engine = await opened(files)
    files.fail(Fault(errno=errno.ENOSPC, kinds=("write",)))
    with pytest.raises(StorageFull):
        append(engine, b"x")
    await engine.check_writable()
    assert engine.failure is None
    await engine.close()


REFUSALS: dict[str, Callable[[EmbeddedEngine], Awaitable[object]]] = {
    "an append": lambda engine: append_synced(engine, b"x"),
    "a health check": lambda engine: engine.check_writable(),
}


@pytest.mark.parametrize("refused", REFUSALS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@simulated
async def test_a_refusal_that_is_repeated_keeps_nothing_of_those_before(number: int, refused: str) -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    files.fail(Fault(errno=number, kinds=("write", "allocate"), times=1 << 30))
    await use_kept_space(engine)
    lengths: list[int] = []
    for _ in range(3):
        try:
            await REFUSALS[refused](engine)
        except SteleError as error:
            lengths.append(len(list(traceback.walk_tb(error.__traceback__))))
    assert len(set(lengths[1:])) <= 1, lengths
    files.heal()
    await engine.close()


# ── another change at a wait ──


@pytest.mark.parametrize("turn", TURNS)
def test_purges_of_one_partition_at_the_same_time_all_last(turn: int) -> None:
    async def main() -> None:
        files = SimulatedFiles()
        engine = await opened(files, spec(), spec(OTHER))
        for number in range(10):
            await append_synced(engine, b"%d" % number)
        first = asyncio.ensure_future(engine.delete_records(ORDERS, 3))
        await turns(turn % 4)
        dropping = asyncio.ensure_future(engine.drop([OTHER]))
        await turns(turn // 2)
        assert await engine.delete_records(ORDERS, 8) == 8
        after = await crashed(files, spec())
        assert after.state(ORDERS).log_start_offset == 8
        await after.close()
        await asyncio.gather(first, dropping)
        await engine.close()

    for seed in range(6):
        run_simulated(main, Random(seed))


@pytest.mark.parametrize("turn", TURNS)
@simulated
async def test_a_purge_that_meets_a_deletion_deletes_nothing_of_the_next_topic_of_the_name(turn: int) -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    for number in range(10):
        await append_synced(engine, b"%d" % number)
    purging = asyncio.ensure_future(engine.delete_records(ORDERS, 8))
    await turns(turn)
    await engine.drop([ORDERS])
    again = spec(topic_id=77)
    await engine.create([again])
    await append_synced(engine, b"new")
    with suppress(UnknownTopic):
        await purging
    assert engine.state(ORDERS).log_start_offset == 0
    after = await crashed(files, again)
    assert await read_from(after, 0) == [(0, b"new")]
    await after.close()
    await engine.close()


@simulated
async def test_a_deletion_whose_checkpoint_was_refused_leaves_nothing_to_the_next_topic_of_the_name() -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    for number in range(10):
        await append_synced(engine, b"%d" % number)
    await engine.delete_records(ORDERS, 4)
    files.fail(Fault(errno=errno.ENOSPC, kinds=("create", "write"), times=1 << 30))
    await engine.drop([ORDERS])
    files.heal()
    again = spec(topic_id=77)
    await engine.create([again])
    await append_synced(engine, b"new")
    after = await crashed(files, again)
    assert await read_from(after, 0) == [(0, b"new")]
    await after.close()
    await engine.close()


class MakingSlowly(RealFiles):
    """Between the making of a directory and its first file, other threads have time to remove it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.is_full = True
        self.has_made: Callable[[], object] = lambda: None
        self.is_removed = threading.Event()

    def open(self, path: Path, *, create: bool = False) -> RealFile:
        if self.is_full and create and path.parent == self.directory:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return super().open(path, create=create)

    def make_dir(self, path: Path) -> None:
        super().make_dir(path)
        if path == self.directory and not self.is_full:
            self.has_made()
            # As long as another thread might take.
            self.is_removed.wait(0.5)

    def rename(self, source: Path, target: Path) -> None:
        if self.is_full and source == self.directory:
            raise OSError(errno.ENOSPC, "No space left on device", str(source))
        super().rename(source, target)
        if source == self.directory:
            self.is_removed.set()


async def test_what_a_refused_creation_has_left_is_not_removed_beside_another_creation(
    tmp_path: Path,
) -> None:
    files = MakingSlowly(tmp_path / str(OTHER))
    engine = EmbeddedEngine(files, tmp_path, clock=SystemClock(), options=QUIET)
    await engine.open()
    await engine.start()
    with pytest.raises(StorageFull):
        await engine.create([spec(OTHER)])
    files.is_full = False
    retaining: list[asyncio.Task[int]] = []
    loop = asyncio.get_running_loop()
    files.has_made = lambda: loop.call_soon_threadsafe(
        lambda: retaining.append(asyncio.create_task(engine.enforce_retention()))
    )
    await engine.create([spec(OTHER, topic_id=77)])
    await append_synced(engine, b"new", name=OTHER)
    await asyncio.gather(*retaining)
    assert retaining
    assert await read_from(engine, 0, name=OTHER) == [(0, b"new")]
    assert (tmp_path / str(OTHER) / "partition.metadata").exists()
    await engine.close()


READS: dict[str, Callable[[EmbeddedEngine], Awaitable[object]]] = {
    "read": lambda engine: read_batches(engine, 0, max_bytes=1),
    "offset_for_time": lambda engine: engine.offset_for_time(ORDERS, 1_000),
    "max_timestamp": lambda engine: engine.max_timestamp(ORDERS),
    "newest_offset": lambda engine: engine.newest_offset(ORDERS, b"k1"),
    "newest_offsets": lambda engine: engine.newest_offsets(ORDERS, 12),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("turn", TURNS)
def test_a_read_whose_topic_is_deleted_meanwhile_is_one_of_an_unknown_topic(turn: int, read: str) -> None:
    async def main() -> None:
        files = SimulatedFiles()
        engine = await opened(files, spec(config=KEYED))
        for number in range(12):
            append_keyed(engine, b"k%d" % (number % 2), b"%d" % number + b"x" * 90)
        await engine.flush()
        await engine.close()
        # Nothing is open, and the disk must be waited for.
        engine = await opened(files, spec(config=KEYED))
        files.is_cold = lambda: True
        reading = asyncio.ensure_future(READS[read](engine))
        await turns(turn)
        await engine.drop([ORDERS])
        with suppress(UnknownTopic):
            await reading
        await engine.close()

    for seed in range(6):
        run_simulated(main, Random(seed))


# ── the next start ──


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", range(1, 40, 3))
@simulated
async def test_a_start_after_a_crash_that_was_refused_does_not_count_as_a_clean_shutdown(
    call: int, number: int
) -> None:
    first = SimulatedFiles()
    engine = await opened(first)
    await append_synced(engine, b"x")
    files = first.crash(Random(1))
    await engine.close()
    refused = EmbeddedEngine(files, DATA, clock=SimulatedClock(), options=QUIET)
    fault = files.fail(Fault(errno=number, call=call, times=1 << 30))
    with suppress(SteleError, OSError):
        await refused.open()
        await refused.create([spec()])
        await refused.start()
    files.heal()
    is_started = refused._housekeeping.has_started
    await refused.close()
    third = EmbeddedEngine(files, DATA, clock=SimulatedClock(), options=QUIET)
    assert fault.hits or is_started
    assert is_started or not (await third.open()).was_clean
    await third.close()
