"""A large batch is written in slices ahead of its append, which writes its header."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.errors import OutOfOrderSequence
from app.storage.embedded import EmbeddedEngine
from app.storage.segments import segment
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import append, open_engine, read_from, segment_path
from tests.support.simulated_files import Fault, SimulatedFile, SimulatedFiles
from tests.support.simulated_time import SimulatedClock, simulated

SLICE = 1000
VALUE = bytes(range(256)) * 40
# A copy of another log: whole batches that a start must not take for those of this one.
INNER = [bytearray(batch_of([b"inner"])) for _ in range(50)]
for number, inner in enumerate(INNER):
    rb.assign_offsets(inner, 0, number, 1)
COPY = b"".join(INNER) * 3


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_SLICE_BYTES", SLICE)


class Log:
    def __init__(self, engine: EmbeddedEngine, files: SimulatedFiles) -> None:
        self.engine = engine
        self.files = files
        # The bytes of each write to the log since it was opened, and the turn of the loop in which it was made.
        self.writes: list[int] = []

    async def write_ahead(self, value: bytes, producer_id: int = -1) -> memoryview:
        batch = memoryview(batch_of([value], producer_id=producer_id))
        await self.engine.write_ahead(ORDERS, batch, rb.read_header(batch))
        return batch

    def append(self, batch: memoryview) -> int:
        return self.engine.append(ORDERS, batch, rb.check_produced(batch), sync=False).base_offset


@asynccontextmanager
async def opened(monkeypatch: pytest.MonkeyPatch, files: SimulatedFiles | None = None) -> AsyncGenerator[Log]:
    clock = SimulatedClock()
    files = files or SimulatedFiles()
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock)], clock=clock)
    log = Log(engine, files)
    write = SimulatedFile.write_at

    def counted(self: SimulatedFile, position: int, buffers: list[bytes]) -> None:
        log.writes.append(sum(map(len, buffers)))
        write(self, position, buffers)

    monkeypatch.setattr(SimulatedFile, "write_at", counted)
    try:
        yield log
    finally:
        monkeypatch.setattr(SimulatedFile, "write_at", write)
        await engine.close()


@simulated
async def test_it_is_written_in_slices_and_its_append_writes_the_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(monkeypatch) as log:
        append(log.engine, b"first")
        log.writes.clear()
        batch = await log.write_ahead(VALUE)
        assert max(log.writes) == SLICE
        assert log.engine.state(ORDERS).log_end_offset == 1, "it is there with its append"
        log.writes.clear()
        assert log.append(batch) == 1
        assert log.writes == [rb.HEADER_BYTES]
        append(log.engine, b"last")
        assert await read_from(log.engine, 0) == [(0, b"first"), (1, VALUE), (2, b"last")]


@simulated
async def test_other_work_goes_on_between_the_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch) as log:
        seen: list[int] = []
        writing = asyncio.create_task(log.write_ahead(VALUE))
        while not writing.done():
            await asyncio.sleep(0)
            seen.append(len(log.writes))
        assert max(after - before for before, after in pairwise(seen)) <= 2


async def _appended(log: Log) -> None:
    append(log.engine, b"other")


async def _marker(log: Log) -> None:
    batch = marker_batch(
        EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=0),
        producer_id=9,
        producer_epoch=0,
        timestamp_ms=0,
    )
    log.engine.append(ORDERS, batch, [rb.read_header(batch)], sync=False)


async def _rolled(log: Log) -> None:
    log.engine._logs.disk[ORDERS].roll()


@pytest.mark.parametrize("change", [_appended, _marker, _rolled])
@pytest.mark.parametrize("turns", [1, 3, 1000])
@simulated
async def test_the_end_of_the_log_may_move_meanwhile(
    change: Callable[[Log], Awaitable[None]], turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(monkeypatch) as log:
        append(log.engine, b"first")
        writing = asyncio.create_task(log.write_ahead(VALUE))
        for _ in range(turns):
            await asyncio.sleep(0)
        await change(log)
        batch = await writing
        log.append(batch)
        append(log.engine, b"last")
        values = [value for _, value in await read_from(log.engine, 0)]
        ours = [b"first", VALUE, b"last"]
        assert [value for value in values if value in ours] == ours
        left = log.files.crash(Random(0))
        end = log.engine.state(ORDERS).log_end_offset
    async with opened(monkeypatch, left) as log:
        assert log.engine.state(ORDERS).log_end_offset == end, "the file has nothing else between its batches"
        assert [value for _, value in await read_from(log.engine, 0)] == values


@pytest.mark.parametrize("value", [VALUE, COPY], ids=["a value", "a copy of batches"])
@pytest.mark.parametrize("turns", [1, 4, 1000])
@pytest.mark.parametrize("cut", [SimulatedFiles.crash, SimulatedFiles.power_cut])
@simulated
async def test_without_its_append_a_start_finds_nothing_of_it(
    cut: Callable[[SimulatedFiles, Random], SimulatedFiles],
    turns: int,
    value: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(monkeypatch) as log:
        ticket = append(log.engine, b"first", sync=True)
        assert ticket.future is not None
        await ticket.future
        writing = asyncio.create_task(log.write_ahead(value))
        for _ in range(turns):
            await asyncio.sleep(0)
        left = [cut(log.files, Random(seed)) for seed in range(5)]
        await writing
    for files in left:
        async with opened(monkeypatch, files) as log:
            assert await read_from(log.engine, 0) == [(0, b"first")]
            append(log.engine, b"next")
            assert await read_from(log.engine, 0) == [(0, b"first"), (1, b"next")]


@simulated
async def test_what_is_not_appended_after_all_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch) as log:
        append(log.engine, b"first")
        size = len(log.files.content(segment_path(0)))
        await log.write_ahead(VALUE)
        assert len(log.files.content(segment_path(0))) > size
        append(log.engine, b"")
        assert len(log.files.content(segment_path(0))) == log.engine.state(ORDERS).size_bytes


@simulated
async def test_nor_does_a_shorter_one_after_it_leave_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch) as log:
        append(log.engine, b"first")
        await log.write_ahead(VALUE)
        log.append(await log.write_ahead(VALUE[: 2 * SLICE]))
        assert len(log.files.content(segment_path(0))) == log.engine.state(ORDERS).size_bytes


@simulated
async def test_what_its_producer_may_not_append_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch) as log:
        batch = await log.write_ahead(VALUE, producer_id=7)
        assert log.append(batch) == 0
        log.writes.clear()
        repeat = await log.write_ahead(VALUE, producer_id=7)
        gap = memoryview(batch_of([VALUE], producer_id=7, base_sequence=5))
        await log.engine.write_ahead(ORDERS, gap, rb.read_header(gap))
        assert log.writes == []
        assert log.append(repeat) == 0
        with pytest.raises(OutOfOrderSequence):
            log.append(gap)


@pytest.mark.parametrize("first", [b"first", VALUE * 10], ids=["without indexes", "with indexes"])
@simulated
async def test_a_shutdown_cuts_off_what_was_not_appended(
    first: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(monkeypatch) as log:
        append(log.engine, first, at_ms=SimulatedClock().now_ms())
    async with opened(monkeypatch, log.files) as log:
        # Another partition may have found the disk full meanwhile, for example.
        await log.write_ahead(VALUE)
    async with opened(monkeypatch, log.files) as log:
        append(log.engine, b"last")
        assert await read_from(log.engine, 0) == [(0, first), (1, b"last")]
    assert [record.message for record in caplog.records if "log" in record.message] == []


@simulated
async def test_an_error_meanwhile_is_left_to_the_append(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch) as log:
        append(log.engine, b"first")
        log.files.fail(Fault(errno=errno.EIO, kinds=["write"], call=3))
        batch = await log.write_ahead(VALUE)
        assert log.append(batch) == 1
        assert await read_from(log.engine, 0) == [(0, b"first"), (1, VALUE)]
