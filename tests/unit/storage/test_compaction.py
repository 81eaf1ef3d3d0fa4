"""Compaction through the engine: what is cleaned and when, and what excludes what."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest
from stele.wire import record_batch as rb

from app.errors import CorruptLog, LogDirFailed
from app.storage.cleaner import CleanerOptions
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import LogState, PartitionCompaction
from app.storage.segments.partition_files import HOLES_UNTIL
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, spec_of
from tests.support.compaction import Keyed, Stored, batch, records_of
from tests.support.engines import DATA, QUIET, open_engine, read_batches, segment_path
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import SimulatedClock, simulated

COMPACT = TopicConfig(
    cleanup_policy="compact",
    segment_bytes=1024,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
)
DAY_MS = 86_400_000
# Passes run when a test asks for them.
WHEN_ASKED = replace(QUIET, cleaner=CleanerOptions(interval_ms=10**12))
CLEAN = PartitionCompaction(dirty_ratio=0.0, cleaner="idle")
HOLES_PATH = DATA / str(ORDERS) / HOLES_UNTIL


class Partition:
    """A partition with few keys, on a simulated disk."""

    def __init__(self, config: TopicConfig = COMPACT) -> None:
        self.files = SimulatedFiles()
        self.clock = SimulatedClock()
        self.config = config
        self.engine: EmbeddedEngine

    async def open(self, options: EngineOptions = WHEN_ASKED) -> EmbeddedEngine:
        spec = spec_of(ORDERS, clock=self.clock, config=self.config.enforced())
        self.engine = await open_engine(self.files, [spec], clock=self.clock, options=options)
        return self.engine

    async def put(self, *records: tuple[bytes, bytes | None]) -> None:
        """Append and sync a batch."""
        keyed = [Keyed(key, value, self.clock.now_ms()) for key, value in records]
        raw = bytearray(batch(keyed))
        ticket = self.engine.append(ORDERS, raw, rb.check_produced(raw), sync=True)
        if ticket.future is not None:
            await ticket.future

    async def fill(self, batches: int = 30, *, value: bytes = b"v" * 60) -> None:
        """Append batches of three records, with five keys in turn."""
        for number in range(batches):
            await self.put(*((b"k%d" % ((number + i) % 5), value) for i in range(3)))

    async def records(self) -> list[Stored]:
        stored: list[Stored] = []
        offset = self.state.log_start_offset
        while offset < self.state.log_end_offset:
            raw = await read_batches(self.engine, offset)
            stored += [record for record in records_of(raw) if record.offset >= offset]
            *_, header = rb.iter_headers(raw)
            offset = header.next_offset
        return stored

    @property
    def state(self) -> LogState:
        return self.engine.state(ORDERS)

    def logs(self) -> list[str]:
        return [path.name for path in self.files.paths() if path.suffix == ".log"]


@simulated
async def test_a_pass_is_counted_and_leaves_nothing_dirty() -> None:
    partition = Partition()
    engine = await partition.open()
    await partition.fill()
    assert engine.partition_compaction(ORDERS) == PartitionCompaction(dirty_ratio=1.0, cleaner="due")
    assert await engine.compact() == 1
    counts = engine.compaction
    assert (counts.passes, counts.failures) == (1, 0)
    assert 0 < counts.bytes_written < counts.bytes_read
    assert 0 < counts.records_kept < counts.records_read
    assert counts.last_pass_ms == partition.clock.now_ms()
    assert engine.partition_compaction(ORDERS) == CLEAN
    assert await engine.compact() == 0, "nothing is due"
    await engine.close()


@simulated
async def test_the_state_of_the_cleaner_is_that_of_the_partition() -> None:
    partition = Partition()
    engine = await partition.open()
    assert state_of(engine) == "idle"
    await partition.fill()
    assert state_of(engine) == "due"
    running = asyncio.create_task(engine.compact())
    while state_of(engine) == "due":  # noqa: ASYNC110 (a pass has no event for its start)
        await asyncio.sleep(0)
    assert state_of(engine) == "running"
    assert await running == 1
    assert state_of(engine) == "idle"
    engine.configure(ORDERS, replace(COMPACT, min_cleanable_dirty_ratio=0.9))
    await partition.fill(4)
    assert state_of(engine) == "idle", "below the ratio"
    await engine.close()


@simulated
async def test_a_cleaner_that_is_disabled_says_so() -> None:
    partition = Partition()
    engine = await partition.open(replace(QUIET, cleaner=CleanerOptions(is_enabled=False)))
    await partition.fill()
    assert engine.partition_compaction(ORDERS) == PartitionCompaction(dirty_ratio=1.0, cleaner="off")
    await engine.close()


def state_of(engine: EmbeddedEngine) -> str | None:
    found = engine.partition_compaction(ORDERS)
    return found and found.cleaner


@simulated
async def test_a_topic_without_the_policy_is_never_touched() -> None:
    partition = Partition(replace(COMPACT, cleanup_policy="delete"))
    engine = await partition.open()
    await partition.fill()
    before = {path: bytes(partition.files.content(path)) for path in partition.files.paths()}
    assert await engine.compact() == 0
    assert {path: bytes(partition.files.content(path)) for path in partition.files.paths()} == before
    assert engine.partition_compaction(ORDERS) is None
    await engine.close()


@simulated
async def test_records_younger_than_the_lag_stay() -> None:
    partition = Partition(replace(COMPACT, min_compaction_lag_ms=60_000))
    engine = await partition.open()
    await partition.fill()
    assert await engine.compact() == 0
    await asyncio.sleep(61)
    assert await engine.compact() == 1
    await engine.close()


@simulated
async def test_a_small_dirty_part_waits_until_it_is_too_old() -> None:
    partition = Partition(
        replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000, segment_bytes=2048)
    )
    engine = await partition.open()
    await partition.fill()
    assert await engine.compact() == 0
    assert state_of(engine) == "idle"
    await asyncio.sleep(61)
    assert state_of(engine) == "due", "seen without another look at the files"
    await partition.put((b"k0", b"new"))
    assert await engine.compact() == 1
    assert len(partition.logs()) > 1, "the active segment rolled at the lag"
    assert engine.partition_compaction(ORDERS) == CLEAN
    await engine.close()


@simulated
async def test_compaction_alone_ignores_retention_but_not_deleted_records() -> None:
    partition = Partition(replace(COMPACT, retention_ms=1, retention_bytes=1))
    engine = await partition.open()
    await partition.fill()
    await asyncio.sleep(3 * DAY_MS / 1000)
    assert await engine.enforce_retention() == 0
    await engine.compact()
    before = await partition.records()
    start = partition.state.log_end_offset - 4
    await engine.delete_records(ORDERS, start)
    await engine.enforce_retention()
    assert await partition.records() == [record for record in before if record.offset >= start]
    await engine.compact()
    assert partition.state.log_start_offset == start
    await engine.close()


@simulated
async def test_both_policies_together_delete_what_is_too_old() -> None:
    partition = Partition(replace(COMPACT, cleanup_policy="compact,delete", retention_ms=DAY_MS))
    engine = await partition.open()
    await partition.fill()
    assert await engine.compact() == 1
    assert await engine.enforce_retention() == 0
    await asyncio.sleep(3 * DAY_MS / 1000)
    assert await engine.enforce_retention() > 0
    assert await partition.records() == []
    await engine.close()


@simulated
async def test_a_tombstone_goes_in_a_later_pass_after_its_time() -> None:
    partition = Partition()
    engine = await partition.open()
    await partition.put((b"gone", b"value"))
    await partition.put((b"gone", None))
    await partition.fill()
    await engine.compact()
    assert [r.value for r in await partition.records() if r.key == b"gone"] == [None]
    await asyncio.sleep(DAY_MS / 1000 - 10)
    await partition.fill()
    await engine.compact()
    assert [r.value for r in await partition.records() if r.key == b"gone"] == [None]
    await asyncio.sleep(60)
    await partition.fill()
    await engine.compact()
    assert not [r for r in await partition.records() if r.key == b"gone"]
    await engine.close()


@simulated
async def test_old_files_go_after_their_delay() -> None:
    partition = Partition()
    engine = await partition.open()
    await partition.fill()
    await engine.compact()
    assert [path for path in partition.files.paths() if path.suffix == ".deleted"]
    await asyncio.sleep(61)
    await engine.compact()
    assert not [path for path in partition.files.paths() if path.suffix == ".deleted"]
    await engine.close()


@pytest.mark.parametrize("ends_by", ["drop", "policy", "close"])
@simulated
async def test_a_pass_ends_when_the_topic_is_gone_or_not_compacted(ends_by: str) -> None:
    partition = Partition()
    engine = await partition.open()
    await partition.fill()
    running = asyncio.create_task(engine.compact())
    await asyncio.sleep(0)
    match ends_by:
        case "drop":
            await engine.drop([ORDERS])
            assert not [path for path in partition.files.paths() if path.parent.name == str(ORDERS)]
        case "policy":
            engine.configure(ORDERS, replace(COMPACT, cleanup_policy="delete"))
        case _:
            pass
    await engine.close()
    assert await running in (0, 1)
    assert engine.failure is None
    assert engine.compaction.failures == 0


@simulated
async def test_a_full_disk_fails_the_pass_and_nothing_else() -> None:
    partition = Partition()
    engine = await partition.open()
    await partition.fill()
    before = await partition.records()
    fault = partition.files.fail(Fault(errno=errno.ENOSPC, kinds=("create",), times=10**6))
    assert await engine.compact() == 0
    assert fault.hits
    partition.files.heal()
    assert engine.compaction.failures == 1
    assert state_of(engine) == "failed"
    assert engine.failure is None
    assert await partition.records() == before
    assert await engine.compact() == 0, "not again at once"
    await asyncio.sleep(601)
    assert await engine.compact() == 1
    assert state_of(engine) == "idle"
    await engine.close()


@simulated
async def test_a_failed_rename_stops_the_directory_and_a_start_repairs_it() -> None:
    partition = Partition()
    engine = await partition.open()
    await partition.fill()
    before = {record.key: record for record in await partition.records()}
    partition.files.fail(Fault(errno=errno.EIO, kinds=("rename",), call=6))
    with pytest.raises(LogDirFailed):
        await engine.compact()
    assert engine.failure is not None
    await engine.close()
    partition.files.heal()
    engine = await partition.open()
    assert {record.key: record for record in await partition.records()} == before
    await engine.close()


async def _compacted() -> Partition:
    partition = Partition()
    engine = await partition.open()
    await partition.fill()
    await engine.compact()
    await engine.close()
    return partition


@simulated
async def test_a_hole_where_nothing_was_compacted_is_a_loss() -> None:
    partition = await _compacted()
    partition.files.unlink(HOLES_PATH)
    partition.files.unlink(DATA / "cleaner-offset-checkpoint")
    engine = await partition.open()
    with pytest.raises(CorruptLog):
        await partition.records()
    await engine.close()


@simulated
async def test_the_checkpoint_replaces_a_lost_file_of_holes() -> None:
    partition = await _compacted()
    partition.files.unlink(HOLES_PATH)
    engine = await partition.open()
    assert len(await partition.records()) < partition.state.log_end_offset
    await engine.close()


@simulated
async def test_a_corrupt_file_of_holes_reports_no_loss() -> None:
    partition = await _compacted()
    partition.files.damage(HOLES_PATH, b"0\nx\n")
    engine = await partition.open()
    assert len(await partition.records()) < partition.state.log_end_offset
    await engine.close()


@simulated
async def test_a_compacted_segment_that_lost_its_end_is_corrupt() -> None:
    partition = await _compacted()
    path = segment_path(0)
    log = bytes(partition.files.content(path))
    *_, last = rb.iter_headers(log)
    partition.files.damage(path, log[: last.position])
    engine = await partition.open()
    with pytest.raises(CorruptLog):
        await partition.records()
    await engine.close()
