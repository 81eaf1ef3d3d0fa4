"""Corrupt files: the error names the file, no wrong record is served, and valid ones stay readable.

The cases follow the table of ``app.storage.recovery.unclean_start`` and ADR-0007.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from stele.wire import record_batch as rb

from app.errors import CorruptLog, OffsetOutOfRange
from app.storage.embedded import EmbeddedEngine
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import (
    DATA,
    QUIET,
    append_raw,
    append_synced,
    open_engine,
    read_batches,
    read_from,
    read_one,
    records_of,
    segment_path,
)
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import SimulatedClock, run_simulated, simulated

pytestmark = pytest.mark.usefixtures("without_logs")

TORTURE = bool(os.environ.get("STELE_TORTURE"))
LOG_START = DATA / "log-start-offset-checkpoint"
RECOVERY_POINT = DATA / "recovery-point-offset-checkpoint"
START_RECORD = DATA / "start-record"
EPOCHS = DATA / str(ORDERS) / "leader-epoch-checkpoint"
METADATA = DATA / str(ORDERS) / "partition.metadata"

BATCHES = 12
RECORDS = 3
VALUE_BYTES = 120
CHECKPOINT_S = QUIET.checkpoint_interval_ms / 1000 + 1


def value(offset: int) -> bytes:
    return b"%d:" % offset + bytes([offset % 251]) * VALUE_BYTES


def values(base_offset: int, count: int = RECORDS) -> list[bytes]:
    return [value(offset) for offset in range(base_offset, base_offset + count)]


def records(start: int, end: int) -> list[tuple[int, bytes | None]]:
    return [(offset, value(offset)) for offset in range(start, end)]


async def start(files: SimulatedFiles, *, segment_bytes: int = 1 << 20) -> EmbeddedEngine:
    clock = SimulatedClock()
    config = TopicConfig(index_interval_bytes=400, retention_ms=-1, segment_bytes=segment_bytes)
    return await open_engine(files, [spec_of(ORDERS, clock=clock, config=config)], clock=clock)


def produce(engine: EmbeddedEngine, batches: int = BATCHES, records: int = RECORDS) -> None:
    for _ in range(batches):
        base_offset = engine.state(ORDERS).log_end_offset
        append_raw(engine, batch_of(values(base_offset, records), timestamp_ms=1_000 + base_offset))


async def closed(batches: int = BATCHES, *, segment_bytes: int = 1 << 20) -> SimulatedFiles:
    """A disk after a shutdown in order."""
    files = SimulatedFiles()
    engine = await start(files, segment_bytes=segment_bytes)
    produce(engine, batches)
    await engine.close()
    return files


async def killed(
    *, checkpointed: bool, batches: int = BATCHES, segment_bytes: int = 1 << 20
) -> SimulatedFiles:
    """A disk after the process died; all is synced, and a checkpoint says so or does not."""
    files = SimulatedFiles()
    engine = await start(files, segment_bytes=segment_bytes)
    produce(engine, batches)
    await engine.flush()
    if checkpointed:
        await asyncio.sleep(CHECKPOINT_S)
    left = files.crash(Random(0))
    await engine.close()
    return left


def positions_of(files: SimulatedFiles, path: Path) -> list[int]:
    return [header.position for header in rb.iter_headers(bytes(files.content(path)))]


def flip(files: SimulatedFiles, path: Path, byte: int, bit: int = 0) -> None:
    content = bytearray(files.content(path))
    content[byte] ^= 1 << bit
    files.damage(path, bytes(content))


def power_off(files: SimulatedFiles) -> SimulatedFiles:
    """The machine goes down with everything synced."""
    return files.power_cut(Random(0))


# ── a damaged batch in the middle ──


@pytest.mark.parametrize(
    "how", ["same boot", "same boot, after the checkpoint", "other boot, before the point"]
)
@simulated
async def test_corruption_in_the_middle_is_kept_and_everything_after_it_served(how: str) -> None:
    files = await killed(checkpointed=how.endswith("point"))
    if how.startswith("other"):
        files = power_off(files)
    at = positions_of(files, segment_path(0))[4]
    flip(files, segment_path(0), at + 80)

    engine = await start(files)
    assert engine.state(ORDERS).log_end_offset == BATCHES * RECORDS
    assert await read_from(engine, 15) == records(15, 36)
    for offset in (12, 13, 14):
        with pytest.raises(CorruptLog) as error:
            await read_one(engine, offset)
        assert error.value.path == segment_path(0)
        assert error.value.position == at
        assert (error.value.offset, error.value.next_offset) == (12, 15)
    # A fetch that comes to the damage ends before it.
    assert records_of(await read_batches(engine, 0), 0) == records(0, 12)
    assert (await append_synced(engine, b"more")).base_offset == 36
    await engine.close()


@simulated
async def test_corruption_after_the_recovery_point_is_cut_after_a_power_cut_and_set_aside() -> None:
    files = power_off(await killed(checkpointed=False))
    content = bytes(files.content(segment_path(0)))
    at = positions_of(files, segment_path(0))[4]
    flip(files, segment_path(0), at + 80)

    engine = await start(files)
    assert engine.state(ORDERS).log_end_offset == 12
    assert await read_from(engine, 0) == records(0, 12)
    (cut,) = [path for path in files.paths() if path.suffix == ".cut"]
    assert len(files.content(cut)) == len(content) - at
    assert (await append_synced(engine, b"more")).base_offset == 12
    await engine.close()


@simulated
async def test_corruption_across_segments_leaves_the_later_segments_readable() -> None:
    files = await killed(checkpointed=True, segment_bytes=1500)
    bases = [int(path.stem) for path in files.paths() if path.suffix == ".log"]
    assert len(bases) > 3
    first, second, third = bases[1:4]
    # The end of one and the beginning of the next.
    flip(files, segment_path(first), positions_of(files, segment_path(first))[-1] + 70)
    flip(files, segment_path(second), 70)

    engine = await start(files, segment_bytes=1500)
    assert engine.state(ORDERS).log_end_offset == 36
    assert await read_one(engine, first) == records(first, first + RECORDS)
    with pytest.raises(rb.CorruptBatchError):
        # Before the recovery point nothing is read at the start: the reader finds it.
        await read_one(engine, second - 1)
    assert await read_from(engine, third) == records(third, 36)
    await engine.close()


@simulated
async def test_a_batch_after_a_corrupt_one_in_a_sealed_segment_is_found_whatever_the_corrupt_one_says() -> (
    None
):
    clean = await closed(segment_bytes=1 << 20)
    at = positions_of(clean, segment_path(0))
    for field in range(61):
        files = clean.crash(Random(0))
        flip(files, segment_path(0), at[5] + field, bit=6)
        engine = await start(files)
        for base_offset in range(0, 36, RECORDS):
            if base_offset != 15:
                assert await read_one(engine, base_offset) == records(base_offset, base_offset + RECORDS)
        await engine.close()


@simulated
async def test_a_last_batch_corrupted_after_a_clean_shutdown_keeps_its_offsets() -> None:
    for batches in (1, 2, BATCHES):
        files = await closed(batches)
        end = batches * RECORDS
        at = positions_of(files, segment_path(0))[-1]
        for byte in (at, at + 8, at + 16, at + 25):
            broken = files.crash(Random(0))
            flip(broken, segment_path(0), byte)
            engine = await start(broken)
            # Their records cannot be read; no other records get their offsets.
            assert engine.state(ORDERS).log_end_offset == end
            ticket = await append_synced(engine, b"more")
            assert ticket.base_offset == end
            assert await read_from(engine, end) == [(end, b"more")]
            for base_offset in range(0, end - RECORDS, RECORDS):
                assert await read_one(engine, base_offset) == records(base_offset, base_offset + RECORDS)
            with pytest.raises((CorruptLog, rb.CorruptBatchError)):
                await read_one(engine, end - 1)
            await engine.close()


# ── every bit ──


def flipped_bits(content: bytes, sample: int) -> Iterator[tuple[int, int]]:
    """``sample`` bits of the content, of a larger sample the first; all of them in ``make torture``."""
    if TORTURE:
        yield from ((byte, bit) for byte in range(len(content)) for bit in range(8))
    else:
        random = Random(len(content))
        for _ in range(sample):
            yield random.randrange(len(content)), random.randrange(8)


async def check_all_but(engine: EmbeddedEngine, damaged_offset: int, end: int, at: int) -> None:
    """Every batch but the damaged one is served as it was; that one as it was, or with an error that names it."""
    around = range(damaged_offset - 3 * RECORDS, damaged_offset + 4 * RECORDS, RECORDS)
    # All of them are too many for every bit.
    for base_offset in around if TORTURE else range(0, end, RECORDS):
        if not 0 <= base_offset < end:
            continue
        expected = records(base_offset, base_offset + RECORDS)
        if base_offset != damaged_offset:
            assert await read_one(engine, base_offset) == expected
            continue
        actual, error = await outcome(engine, base_offset)
        if error is None:
            assert actual == expected
        elif isinstance(error, CorruptLog):
            assert (error.path, error.position) == (segment_path(0), at)
        # Else the file was not examined at the start, and the reader's CRC check met it.


async def outcome(
    engine: EmbeddedEngine, offset: int
) -> tuple[list[tuple[int, bytes | None]], CorruptLog | rb.CorruptBatchError | None]:
    try:
        return await read_one(engine, offset), None
    except (CorruptLog, rb.CorruptBatchError) as error:
        return [], error


@pytest.mark.slow
@pytest.mark.parametrize("sample", [100, pytest.param(1_500, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", ["clean", "same boot", "other boot"])
def test_no_flipped_bit_of_a_segment_makes_wrong_records(how: str, sample: int) -> None:
    batches = 120 if TORTURE else 24

    async def main() -> None:
        left = await (
            closed(batches) if how == "clean" else killed(checkpointed=how == "other boot", batches=batches)
        )
        if how == "other boot":
            left = power_off(left)
        content = bytes(left.content(segment_path(0)))
        positions = positions_of(left, segment_path(0))
        end = batches * RECORDS
        for byte, bit in flipped_bits(content, sample):
            files = left.crash(Random(0))
            flip(files, segment_path(0), byte, bit)
            number = max(index for index, position in enumerate(positions) if position <= byte)
            engine = await start(files)
            state = engine.state(ORDERS)
            is_last = number == len(positions) - 1
            if is_last and how == "same boot":
                # The torn tail: nobody knows that it was synced.
                assert state.log_end_offset in (end, end - RECORDS), (byte, bit)
            else:
                assert state.log_end_offset == end, (byte, bit)
            await check_all_but(engine, number * RECORDS, min(end, state.log_end_offset), positions[number])
            await engine.close()

    run_simulated(main)


# ── files that are missing, short or of garbage ──


@simulated
async def test_a_missing_segment_is_an_error_that_says_where_to_continue() -> None:
    for how in ("clean", "crash"):
        files = await (
            closed(segment_bytes=1500) if how == "clean" else killed(checkpointed=True, segment_bytes=1500)
        )
        bases = [int(path.stem) for path in files.paths() if path.suffix == ".log"]
        files.unlink(segment_path(bases[2]))

        engine = await start(files, segment_bytes=1500)
        assert engine.state(ORDERS).log_end_offset == 36
        assert await read_one(engine, bases[1]) == records(bases[1], bases[1] + RECORDS)
        with pytest.raises(CorruptLog) as error:
            await read_one(engine, bases[2])
        assert error.value.next_offset == bases[3]
        # The valid batches before and after it are still readable after a reader has met the corrupt one.
        assert await read_one(engine, bases[2] - 1) == [(bases[2] - 1, value(bases[2] - 1))]
        assert await read_from(engine, bases[3]) == records(bases[3], 36)
        await engine.close()


@simulated
async def test_offsets_are_not_assigned_again_when_all_segments_are_missing() -> None:
    files = await closed()
    files.unlink(segment_path(0))
    engine = await start(files)
    assert engine.state(ORDERS).log_start_offset == engine.state(ORDERS).log_end_offset == 36
    with pytest.raises(OffsetOutOfRange):
        await read_one(engine, 3)
    assert (await append_synced(engine, b"more")).base_offset == 36
    await engine.close()


@simulated
async def test_a_truncated_sealed_segment_serves_what_it_has() -> None:
    for how in ("clean", "crash"):
        left = await (
            closed(segment_bytes=1500) if how == "clean" else killed(checkpointed=True, segment_bytes=1500)
        )
        bases = [int(path.stem) for path in left.paths() if path.suffix == ".log"]
        content = bytes(left.content(segment_path(bases[1])))
        positions = positions_of(left, segment_path(bases[1]))
        for size in (0, 10, positions[1], positions[1] + 30, len(content) - 1):
            files = left.crash(Random(0))
            files.damage(segment_path(bases[1]), content[:size])
            whole = sum(1 for position in positions[1:] if position <= size)
            engine = await start(files, segment_bytes=1500)
            lost = bases[1] + whole * RECORDS
            for base_offset in range(bases[1], lost, RECORDS):
                assert await read_one(engine, base_offset) == records(base_offset, base_offset + RECORDS)
            with pytest.raises(CorruptLog) as error:
                await read_one(engine, lost)
            assert error.value.path == segment_path(bases[1])
            assert error.value.next_offset == bases[2]
            for base_offset in range(bases[1], lost, RECORDS):
                assert await read_one(engine, base_offset) == records(base_offset, base_offset + RECORDS)
            assert await read_from(engine, bases[2]) == records(bases[2], 36)
            await engine.close()


def gone(files: SimulatedFiles, path: Path) -> None:
    files.unlink(path)


def empty(files: SimulatedFiles, path: Path) -> None:
    files.damage(path, b"")


def half(files: SimulatedFiles, path: Path) -> None:
    files.damage(path, bytes(files.content(path))[: len(files.content(path)) // 2])


def noise(files: SimulatedFiles, path: Path) -> None:
    files.damage(path, Random(1).randbytes(len(files.content(path)) or 24))


def ascending_noise(files: SimulatedFiles, path: Path) -> None:
    """Entries in order that lead nowhere."""
    size = 8 if path.suffix == ".index" else 12
    entries = len(files.content(path)) // size
    files.damage(path, b"".join(bytes(size - 2) + bytes([number, 7]) for number in range(entries)))


def shifted(files: SimulatedFiles, path: Path) -> None:
    """The entries of other batches: each lies in the log, and none is right."""
    content = bytearray(files.content(path))
    width, first = (8, 4) if path.suffix == ".index" else (12, 8)
    for at in range(0, len(content), width):
        number = int.from_bytes(content[at : at + first], "big")
        content[at : at + first] = max(0, number - 2).to_bytes(first, "big")
    files.damage(path, bytes(content))


CORRUPTIONS = [gone, empty, half, noise, ascending_noise, shifted]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", CORRUPTIONS)
@pytest.mark.parametrize("how", ["clean", "crash"])
@simulated
async def test_indexes_are_hints(
    how: str, damage: Callable[[SimulatedFiles, Path], None], suffix: str
) -> None:
    left = await (
        closed(segment_bytes=3000) if how == "clean" else killed(checkpointed=True, segment_bytes=3000)
    )
    for path in [path for path in left.paths() if path.suffix == suffix]:
        files = left.crash(Random(0))
        damage(files, path)
        engine = await start(files, segment_bytes=3000)
        first = engine.state(ORDERS).log_start_offset
        for base_offset in range(first - first % RECORDS, 36, RECORDS):
            offset = max(first, base_offset + 1)
            assert await read_one(engine, offset) == records(offset, base_offset + RECORDS)
            actual = await engine.offset_for_time(ORDERS, 1_000 + base_offset)
            assert actual == (max(first, base_offset), 1_000 + base_offset, 0)
        assert await engine.offset_for_time(ORDERS, 5_000) == (-1, -1, engine.state(ORDERS).leader_epoch)
        assert await read_from(engine, first, max_bytes=700) == records(first, 36)
        await engine.close()


@pytest.mark.parametrize("path", [LOG_START, RECOVERY_POINT, START_RECORD, EPOCHS, METADATA])
@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\xfe", b"0\n1\norders 0 x\n", b"0\n1\norders 0\n", b"0\n1\norders 0 -5\n"]
)
@pytest.mark.parametrize("how", ["clean", "crash", "power cut"])
@simulated
async def test_garbage_in_a_small_file_loses_no_record(how: str, content: bytes, path: Path) -> None:
    files = await (closed() if how == "clean" else killed(checkpointed=False))
    if how == "power cut":
        files = power_off(files)
    if path in files.paths():
        files.damage(path, content)
    else:
        files.create_file(path, content)
    engine = await start(files)
    state = engine.state(ORDERS)
    assert (state.log_start_offset, state.log_end_offset) == (0, 36)
    assert await read_from(engine, 0) == records(0, 36)
    if how != "clean":
        assert state.leader_epoch >= 1, "it goes up after a crash whatever is lost"
    assert (await append_synced(engine, b"more")).base_offset == 36
    await engine.close()


@pytest.mark.parametrize("path", [LOG_START, RECOVERY_POINT, START_RECORD, EPOCHS, METADATA])
@simulated
async def test_a_missing_small_file_loses_no_record(path: Path) -> None:
    files = await closed()
    # Log start offsets have a file only once one has moved.
    if path != LOG_START:
        files.unlink(path)
    assert path not in files.paths()
    engine = await start(files)
    assert await read_from(engine, 0) == records(0, 36)
    await engine.close()


@simulated
async def test_a_flipped_character_in_the_topic_id_does_not_make_it_another_topic() -> None:
    files = await closed()
    flip(files, METADATA, len(files.content(METADATA)) - 5)
    engine = await start(files)
    assert await read_from(engine, 0) == records(0, 36)
    await engine.close()


@simulated
async def test_a_corrupt_epoch_file_does_not_lower_the_leader_epoch() -> None:
    files = SimulatedFiles()
    for _ in range(3):
        engine = await start(files)
        await append_synced(engine, b"x")
        left = files.crash(Random(0))
        await engine.close()
        files = left
    files.damage(START_RECORD, b"{")
    engine = await start(files)
    assert engine.state(ORDERS).leader_epoch == 3
    await engine.close()


@simulated
async def test_foreign_files_are_left_alone() -> None:
    files = await closed()
    for name in ("notes.log", "1.log", "x.producers", "readme.txt"):
        files.create_file(DATA / str(ORDERS) / name, b"hello")
    engine = await start(files)
    assert await read_from(engine, 0) == records(0, 36)
    await engine.close()
    assert DATA / str(ORDERS) / "notes.log" in files.paths()
