"""Recovery keeps exactly the batches before a write that a crash interrupted."""

from __future__ import annotations

import os
from random import Random

import pytest

from app.storage.embedded import EmbeddedEngine
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import append, open_engine, read_from, segment_path
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import SimulatedClock, run_simulated

BEFORE = [b"first", b"second", b"third"]
LAST_BYTES = 16 * 1024 if os.environ.get("STELE_TORTURE") else 512
FLIPPED_BYTES = 128

LOG = segment_path(0)
# The leader epoch is outside the CRC, and the records do not depend on it.
EPOCH_BYTES = range(12, 16)


async def open_orders(files: SimulatedFiles) -> EmbeddedEngine:
    clock = SimulatedClock()
    return await open_engine(files, [spec_of(ORDERS, clock=clock)], clock=clock)


def killed_after(last_value: bytes) -> tuple[SimulatedFiles, bytes, int]:
    """The disk that a killed broker left, the bytes of its log, and where the last batch begins."""

    async def main() -> tuple[SimulatedFiles, bytes, int]:
        files = SimulatedFiles()
        engine = await open_orders(files)
        for value in BEFORE:
            append(engine, value)
        start = engine.state(ORDERS).size_bytes
        append(engine, last_value)
        left = files.crash(Random(0))
        await engine.close()
        return left, bytes(left.content(LOG)), start

    return run_simulated(main)


async def check_recovered(files: SimulatedFiles, *, survives: bool = False) -> None:
    engine = await open_orders(files)
    expected = list(enumerate(BEFORE))
    state = engine.state(ORDERS)
    if survives and state.log_end_offset == len(BEFORE) + 1:
        assert (await read_from(engine, 0))[: len(BEFORE)] == expected
    else:
        assert state.log_end_offset == len(BEFORE)
        assert state.leader_epoch == 1
        assert await read_from(engine, 0) == expected
        ticket = append(engine, b"after", sync=True)
        assert ticket.base_offset == len(BEFORE)
        assert ticket.future is not None
        await ticket.future
        assert await read_from(engine, 0) == [*expected, (len(BEFORE), b"after")]
    await engine.close()


def test_the_last_batch_is_cut_at_every_byte() -> None:
    left, content, start = killed_after(b"x" * LAST_BYTES)

    async def main() -> None:
        for size in range(start, len(content)):
            files = left.crash(Random(0))
            files.damage(LOG, content[:size])
            await check_recovered(files)

    run_simulated(main)


@pytest.mark.parametrize("first", [0, *(pytest.param(bit, marks=pytest.mark.long) for bit in range(1, 8))])
def test_every_bit_of_the_last_batch_is_flipped(first: int) -> None:
    left, content, start = killed_after(bytes(range(FLIPPED_BYTES)))

    async def main() -> None:
        for byte in range(start, len(content)):
            # One bit of each byte, another one in the next; in all runs, every bit of each.
            files = left.crash(Random(0))
            flipped = bytearray(content)
            flipped[byte] ^= 1 << (first + byte) % 8
            files.damage(LOG, bytes(flipped))
            await check_recovered(files, survives=byte - start in EPOCH_BYTES)

    run_simulated(main)


@pytest.mark.parametrize("garbage", [b"\x00", b"\x00" * 700, b"\x02" * 700, bytes(range(256)) * 3])
def test_bytes_after_the_last_batch_that_are_no_batch_are_cut(garbage: bytes) -> None:
    left, content, _ = killed_after(b"last")

    async def main() -> None:
        files = left.crash(Random(0))
        files.damage(LOG, content + garbage)
        engine = await open_orders(files)
        assert engine.state(ORDERS).log_end_offset == 4
        assert await read_from(engine, 0) == [*enumerate(BEFORE), (3, b"last")]
        assert append(engine, b"after").base_offset == 4
        await engine.close()

    run_simulated(main)


@pytest.mark.long
def test_a_torn_batch_whose_records_hold_batches_is_cut_like_any_other() -> None:
    # A client stores batches of another log as values: what is left of the torn
    # one contains whole batches with later offsets, and they are not ours.
    async def make() -> bytes:
        files = SimulatedFiles()
        engine = await open_orders(files)
        for number in range(8):
            append(engine, b"inner %d" % number)
        await engine.close()
        return bytes(files.content(LOG))

    inner = run_simulated(make)
    left, content, start = killed_after(inner)

    async def main() -> None:
        for size in range(start, len(content)):
            files = left.crash(Random(0))
            files.damage(LOG, content[:size])
            await check_recovered(files)

    run_simulated(main)
