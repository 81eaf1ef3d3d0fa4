"""Verification of a partition's files, also while they are written to."""

from __future__ import annotations

import shutil
from pathlib import Path

from app.storage.inspection.dump_and_verify import verify_partition
from app.storage.topic_config import TopicConfig
from tests.support.batches import spec_of
from tests.support.engines import ORDERS, append, open_engine
from tests.support.simulated_time import RealFilesInSimulatedTime, SimulatedClock, simulated

CONFIG = TopicConfig(segment_bytes=2_000, index_interval_bytes=1, retention_ms=-1)


async def written(path: Path) -> Path:
    """A partition of three segments; returns its directory."""
    clock = SimulatedClock()
    engine = await open_engine(
        RealFilesInSimulatedTime(), [spec_of(ORDERS, clock=clock, config=CONFIG)], clock=clock, path=path
    )
    for _ in range(30):
        append(engine, b"x" * 100)
    await engine.close()
    return path / "orders-0"


@simulated
async def test_whole_files_have_no_problems(tmp_path: Path) -> None:
    verified = verify_partition(await written(tmp_path / "data"))
    assert verified.problems == []
    assert (verified.segments, verified.records) == (3, 30)


@simulated
async def test_what_is_after_the_ends_is_left_out_of_the_indexes_too(tmp_path: Path) -> None:
    directory = await written(tmp_path / "data")
    first, second = sorted(directory.glob("*.log"))[:2]
    middle = first.stat().st_size // 2
    middle -= middle % (first.stat().st_size // 11)
    ends = {first: first.stat().st_size, second: middle}
    verified = verify_partition(directory, ends=ends)
    assert verified.problems == []
    assert verified.size_bytes == sum(ends.values())


@simulated
async def test_only_the_indexes_of_sealed_segments_are_checked(tmp_path: Path) -> None:
    directory = await written(tmp_path / "data")
    *_, before, active = sorted(directory.glob("*.log"))
    # As a crash leaves it: the index of an earlier shutdown.
    shutil.copy(before.with_suffix(".index"), active.with_suffix(".index"))
    logs = sorted(directory.glob("*.log"))
    ends = {log: log.stat().st_size for log in logs}
    assert verify_partition(directory, ends=ends, sealed=logs[:-1]).problems == []
    assert verify_partition(directory).problems != []


@simulated
async def test_an_index_entry_without_a_batch_is_a_problem(tmp_path: Path) -> None:
    directory = await written(tmp_path / "data")
    index = sorted(directory.glob("*.index"))[0]
    raw = bytearray(index.read_bytes())
    raw[11] += 1
    index.write_bytes(raw)
    (problem,) = verify_partition(directory).problems
    assert problem.startswith(f"{index}: offset ")
