"""Segments get space ahead of their records, which no reader, check or start takes for anything else."""

from __future__ import annotations

import errno
import io
import logging
import os
import threading
from pathlib import Path
from random import Random

import pytest
from stele.wire import record_batch as rb

from app.storage.disk.files import RealFiles
from app.storage.embedded import EmbeddedEngine
from app.storage.inspection.dump_and_verify import dump, verify_partition
from app.storage.segments.scan import CorruptRange, scan_batches
from app.storage.segments.space_ahead import (
    AHEAD_BYTES_MAX,
    AHEAD_BYTES_MIN,
    BLOCK_BYTES,
    SIZE_PER_AHEAD,
    SYNCS_PER_AHEAD,
    space_end,
)
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import DATA, append, append_synced, open_engine, read_from, segment_path
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import RealFilesInSimulatedTime, SimulatedClock, simulated

LOG = segment_path(0)
# The first size at which a segment gets space.
SIZE_MIN = AHEAD_BYTES_MIN * SIZE_PER_AHEAD

# ── the rule ──


def test_space_is_a_quarter_of_a_segment_in_whole_blocks() -> None:
    assert space_end(SIZE_MIN - 1, 0, 100) == 0
    assert space_end(SIZE_MIN, 0, 100) == SIZE_MIN + AHEAD_BYTES_MIN
    assert space_end(SIZE_MIN + 5000, 0, 100) == (SIZE_MIN + 5000) * 5 // 4 // BLOCK_BYTES * BLOCK_BYTES
    assert space_end(1 << 30, 0, 100) == (1 << 30) + AHEAD_BYTES_MAX


def test_there_is_more_when_it_is_nearly_used_up() -> None:
    size = 1 << 24
    assert space_end(size, size + BLOCK_BYTES + 1, 100) == 0
    assert space_end(size, size + BLOCK_BYTES, 100) == size + AHEAD_BYTES_MAX
    assert space_end(size, size + 20_000, 16_000) == size + AHEAD_BYTES_MAX


def test_large_appends_get_none_because_it_would_not_last() -> None:
    assert space_end(1 << 30, 0, AHEAD_BYTES_MAX // SYNCS_PER_AHEAD) != 0
    assert space_end(1 << 30, 0, AHEAD_BYTES_MAX // SYNCS_PER_AHEAD + 1) == 0


# ── a disk ──


def test_bytes_that_are_there_stay_and_others_are_zeros(tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "log", create=True)
    file.write_at(0, [b"x" * 100])
    file.allocate(50, BLOCK_BYTES)
    assert file.read_at(0, 2 * BLOCK_BYTES) == b"x" * 100 + bytes(BLOCK_BYTES - 100)
    file.allocate(0, 10)
    assert file.size() == BLOCK_BYTES
    file.close()


def test_bytes_that_are_written_meanwhile_stay(tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "log", create=True)
    end = threading.Event()

    def allocate() -> None:
        position = 0
        while not end.is_set():
            position += BLOCK_BYTES
            file.allocate(position, position + 16 * BLOCK_BYTES)

    thread = threading.Thread(target=allocate)
    thread.start()
    for number in range(2_000):
        file.write_at(number * 100, [b"%0100d" % number])
    end.set()
    thread.join()
    assert file.read_at(0, 200_000) == b"".join(b"%0100d" % number for number in range(2_000))
    file.close()


def test_a_file_system_without_the_call_says_so(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    file = RealFiles().open(tmp_path / "log", create=True)
    os.dup2(writing, file._fd)
    with pytest.raises(OSError, match="fallocate") as refused:
        file.allocate(0, BLOCK_BYTES)
    assert refused.value.errno == errno.ESPIPE
    file.close()
    os.close(reading)
    os.close(writing)


# ── a log ──


async def opened(
    files: SimulatedFiles | RealFiles, path: Path = DATA, config: TopicConfig | None = None
) -> EmbeddedEngine:
    clock = SimulatedClock()
    spec = spec_of(ORDERS, clock=clock, config=config or TopicConfig(retention_ms=-1))
    return await open_engine(files, [spec], clock=clock, path=path)


async def filled(engine: EmbeddedEngine) -> int:
    """Append enough for space ahead; return how many records there are."""
    append(engine, bytes(SIZE_MIN))
    await engine.flush()
    await append_synced(engine, b"small")
    return 2


@simulated
async def test_small_appends_do_not_change_the_size_of_the_file() -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    await filled(engine)
    size = len(files.content(LOG))
    assert size > engine.state(ORDERS).size_bytes
    allocated = files.counts["allocate"]
    for _ in range(20):
        await append_synced(engine, b"small")
        assert len(files.content(LOG)) == size
    assert files.counts["allocate"] == allocated
    assert len(await read_from(engine, 1)) == 21
    await engine.close()
    assert len(files.content(LOG)) < size


@simulated
async def test_space_that_a_sync_gives_after_a_tail_was_cut_off_is_cut_off_too() -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    append(engine, bytes(SIZE_MIN))
    await engine.flush()
    append(engine, b"small")
    log = engine._logs.disk[ORDERS]
    work = log.flush_work()
    assert work.space is not None
    batch = memoryview(batch_of([bytes(1000)]))
    await engine.write_ahead(ORDERS, batch, rb.read_header(batch))
    append(engine, b"other")
    work.run()
    log.flushed(work)
    log.roll()
    await engine.flush()
    assert len(files.content(LOG)) == log.segments[0].size
    await engine.close()


def test_a_real_file_ends_with_its_records_after_a_shutdown(tmp_path: Path) -> None:
    @simulated
    async def run() -> None:
        engine = await opened(RealFilesInSimulatedTime(), tmp_path)
        records = await filled(engine)
        size_bytes = engine.state(ORDERS).size_bytes
        log = tmp_path / str(ORDERS) / LOG.name
        assert log.stat().st_size > size_bytes
        shown = io.StringIO()
        dump(log, show_hex=False, out=shown)
        assert "CORRUPT" not in shown.getvalue()
        assert f"SPACE position: {size_bytes} to {log.stat().st_size}" in shown.getvalue()
        assert verify_partition(log.parent).problems == []
        await engine.close()
        assert log.stat().st_size == size_bytes
        engine = await opened(RealFilesInSimulatedTime(), tmp_path)
        assert engine.state(ORDERS).log_end_offset == records
        await engine.close()

    run()


@simulated
async def test_a_sealed_segment_ends_with_its_records() -> None:
    files = SimulatedFiles()
    engine = await opened(files, config=TopicConfig(retention_ms=-1, segment_bytes=2 * SIZE_MIN))
    records = await filled(engine)
    size_bytes = engine.state(ORDERS).size_bytes
    append(engine, bytes(SIZE_MIN))
    await engine.flush()
    assert len(files.content(LOG)) == size_bytes
    left = files.power_cut(Random(1))
    await engine.close()
    again = await opened(left)
    assert again.state(ORDERS).log_end_offset == records + 1
    await again.close()


@pytest.mark.parametrize("how", ["killed", "without power"])
def test_a_start_cuts_the_space_and_says_nothing_of_it(how: str, caplog: pytest.LogCaptureFixture) -> None:
    @simulated
    async def run() -> None:
        files = SimulatedFiles()
        engine = await opened(files)
        records = await filled(engine)
        left = files.crash(Random(0)) if how == "killed" else files.power_cut(Random(0))
        size_bytes = engine.state(ORDERS).size_bytes
        await engine.close()
        assert len(left.content(LOG)) > size_bytes
        with caplog.at_level(logging.WARNING):
            again = await opened(left)
        assert not [record for record in caplog.records if str(LOG) in record.getMessage()]
        assert again.state(ORDERS).log_end_offset == records
        assert len(left.content(LOG)) == size_bytes
        assert (await append_synced(again, b"after")).base_offset == records
        await again.close()

    run()


@simulated
async def test_a_killed_broker_leaves_space_in_a_segment_that_was_just_left() -> None:
    files = SimulatedFiles()
    engine = await opened(files, config=TopicConfig(retention_ms=-1, segment_bytes=2 * SIZE_MIN))
    records = await filled(engine)
    append(engine, bytes(SIZE_MIN))
    left = files.crash(Random(0))
    await engine.close()
    again = await opened(left)
    assert again.state(ORDERS).log_end_offset == records + 1
    assert [offset for offset, _ in await read_from(again, 0)] == [0, 1, 2]
    await again.close()


def test_synced_records_that_became_zeros_are_lost_and_their_offsets_are_not_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @simulated
    async def run() -> None:
        files = SimulatedFiles()
        engine = await opened(files)
        records = await filled(engine)
        await engine.close()
        files.unlink(DATA / "clean-shutdown")
        content = files.content(LOG)
        files.damage(LOG, bytes(content[:SIZE_MIN]) + bytes(len(content) - SIZE_MIN))
        left = files.crash(Random(0))
        with caplog.at_level(logging.ERROR):
            again = await opened(left)
        assert "synced records from offset 1 on may be lost" in caplog.text
        assert (await append_synced(again, b"after")).base_offset >= records
        await again.close()

    run()


@simulated
async def test_a_file_system_that_refuses_space_is_asked_once_per_log() -> None:
    files = SimulatedFiles()
    engine = await opened(files)
    refused = files.fail(Fault(errno=errno.EOPNOTSUPP, kinds=("allocate",), times=1000))
    await filled(engine)
    for _ in range(20):
        await append_synced(engine, b"small")
    assert refused.hits == 1
    await engine.close()
    assert engine.failure is None


def test_what_looks_like_a_batch_in_a_torn_one_with_space_behind_it_is_none() -> None:
    first, inside = batch_of([b"first"]), batch_of([b"inside"])
    rb.assign_offsets(inside, 0, 7, 1)
    torn = batch_of([bytes(20) + inside + b"y" * 200])
    rb.assign_offsets(torn, 0, 1, 1)
    content = bytes(first + torn[:-150]) + bytes(16 * 1024)
    header, corrupt = scan_batches(_Content(content), expected_offset=0)
    assert isinstance(corrupt, CorruptRange)
    assert (header.next_offset, corrupt.position, corrupt.end_position) == (1, len(first), len(content))
    assert not corrupt.is_blank


@pytest.mark.parametrize("length", [-(2**31), -60, 0])
def test_a_corrupt_length_is_no_torn_batch(length: int) -> None:
    batches = batch_of([b"first"]), batch_of([b"second"]), batch_of([b"third"])
    for offset, batch in enumerate(batches):
        rb.assign_offsets(batch, 0, offset, 1)
    batches[1][8:12] = length.to_bytes(4, "big", signed=True)
    # With its own CRC, the next batch would be found by that.
    batches[1][-2] ^= 1
    scanned = list(scan_batches(_Content(b"".join(batches) + bytes(5000)), expected_offset=0))
    assert [one.next_offset for one in scanned] == [1, 2, 3, 3]
    assert [isinstance(one, CorruptRange) and one.is_blank for one in scanned] == [False, False, False, True]


class _Content:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def size(self) -> int:
        return len(self._content)

    def read_at(self, position: int, size: int) -> bytes:
        assert position >= 0, "a file has no such position"
        return self._content[position : position + size]


def test_zeros_before_the_end_that_is_checked_are_corrupt(tmp_path: Path) -> None:
    log = tmp_path / LOG.name
    batch = batch_of([b"first"])
    log.write_bytes(batch + bytes(1000))
    assert verify_partition(tmp_path).problems == []
    (problem,) = verify_partition(tmp_path, ends={log: len(batch) + 1000}, sealed=()).problems
    assert f"corrupt from byte {len(batch)}" in problem
