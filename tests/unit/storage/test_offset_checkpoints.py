"""A save of checkpoints: in steps, of what changed, and true although partitions come and go meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from app.storage.disk.files import Files
from app.storage.embedded import EmbeddedEngine
from app.storage.logs import offset_checkpoints
from app.storage.logs.log import DiskLog
from app.storage.recovery.checkpoint import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, write_offsets
from app.storage.topic_partition import TopicPartition
from app.work_budget import PARTITIONS_PER_TURN
from tests.support.batches import spec_of
from tests.support.engines import DATA, QUIET, append_synced, open_engine
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import SimulatedClock, simulated

NAMES = [TopicPartition("orders", number) for number in range(10 * PARTITIONS_PER_TURN)]
FIRST, LAST = NAMES[0], NAMES[-1]


async def opened(files: SimulatedFiles) -> EmbeddedEngine:
    clock = SimulatedClock()
    specs = [spec_of(name, clock=clock) for name in NAMES]
    return await open_engine(files, specs, clock=clock, options=QUIET)


async def turns_until_done(task: asyncio.Task[None]) -> int:
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


def points(files: SimulatedFiles) -> dict[tuple[str, int], int]:
    return read_offsets(files, DATA / RECOVERY_POINTS)


@simulated
async def test_a_save_of_all_partitions_leaves_turns_to_others() -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    await append_synced(engine, b"a", name=LAST)
    save = asyncio.create_task(engine._manager.checkpoints.checkpoint())
    assert await turns_until_done(save) >= len(NAMES) / PARTITIONS_PER_TURN
    assert points(files)[LAST] == 1
    await engine.close()


@simulated
async def test_a_deletion_of_records_looks_at_its_partition_only(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    await append_synced(engine, b"a", b"b", name=LAST)
    looked: list[TopicPartition] = []

    def look(log: DiskLog) -> int:
        looked.append(log.topic_partition)
        return log.recovery_point

    monkeypatch.setattr(DiskLog, "checkpoint_offset", property(look))
    assert await engine.delete_records(LAST, 1) == 1
    assert looked == [LAST]
    assert read_offsets(files, DATA / LOG_START_OFFSETS) == {LAST: 1}
    await engine.close()


@simulated
async def test_a_partition_that_is_deleted_during_a_save_is_in_no_file_afterwards() -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    await append_synced(engine, b"a", name=FIRST)
    save = asyncio.create_task(engine._manager.checkpoints.checkpoint())
    # The save has looked at the first partition, and waits for its next turn.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not save.done()
    await engine.drop([FIRST])
    await save
    assert FIRST not in points(files)
    assert LAST in points(files)
    await engine.close()


@simulated
async def test_a_partition_that_is_made_again_during_a_save_has_no_offsets_of_the_old_one() -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    engine = await opened(files)
    await append_synced(engine, b"a", b"b", name=FIRST)
    await engine.delete_records(FIRST, 2)
    save = asyncio.create_task(engine._manager.checkpoints.checkpoint())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not save.done()
    await engine.drop([FIRST])
    await engine.create([spec_of(FIRST, clock=clock)])
    await save
    assert points(files).get(FIRST, 0) == 0
    assert read_offsets(files, DATA / LOG_START_OFFSETS) == {}
    await engine.close()


@simulated
async def test_a_deletion_writes_no_offsets_of_other_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    engine = await opened(files)
    await append_synced(engine, b"a", b"b", name=FIRST)
    await engine.delete_records(FIRST, 2)
    await engine._manager.checkpoints.checkpoint()
    written: list[str] = []

    def write(files: Files, path: Path, offsets: Iterable[tuple[tuple[str, int], int]]) -> None:
        written.append(path.name)
        write_offsets(files, path, offsets)

    monkeypatch.setattr(offset_checkpoints, "write_offsets", write)
    await engine.drop([FIRST])
    assert written == []
    # They are not those of the next partition of that name.
    await engine.create([spec_of(FIRST, clock=clock)])
    assert written == [RECOVERY_POINTS, LOG_START_OFFSETS]
    assert FIRST not in points(files)
    assert read_offsets(files, DATA / LOG_START_OFFSETS) == {}
    # Nor do they stay.
    await engine.drop([LAST])
    await engine._manager.checkpoints.checkpoint()
    assert LAST not in points(files)
    await engine.close()
