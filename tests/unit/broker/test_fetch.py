"""Batches turned into records, whole and damaged."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import crc32c
import pytest
from stele.wire import record_batch as rb

from app.broker.reading.decoded_bytes import DecodedBytes
from app.broker.reading.fetch import Fetched, records_from, records_in_turns
from app.errors import CorruptLog
from app.work_budget import RECORDS_PER_TURN

T = TypeVar("T")

READER = DecodedBytes(2**30).reader()


def batch(base_offset: int, count: int) -> bytearray:
    made = rb.build_values([b"value %d" % n for n in range(count)], 1000)
    rb.assign_offsets(made, 0, base_offset, 0)
    return made


class Origin(NamedTuple):
    path: Path
    position: int


def fetched(batches: bytearray, *, high_watermark: int) -> Fetched:
    return Fetched(
        topic="orders",
        partition=0,
        high_watermark=high_watermark,
        log_start_offset=0,
        batches=batches,
        origin=Origin(Path("orders-0/0.log"), 0),
    )


def offsets_of(one: Fetched, offset: int) -> list[int]:
    return [record.offset for records in records_from(one, offset) for record in records]


def test_a_fetch_that_begins_within_a_batch_gives_the_records_asked_for() -> None:
    assert offsets_of(fetched(batch(10, 5) + batch(15, 5), high_watermark=20), 13) == list(range(13, 20))


def test_damage_is_told_with_the_offset_of_the_batch_behind_it() -> None:
    batches = batch(10, 5) + batch(15, 5)
    batches[rb.HEADER_BYTES + 3] ^= 0xFF
    with pytest.raises(CorruptLog) as damage:
        offsets_of(fetched(batches, high_watermark=20), 10)
    assert (damage.value.offset, damage.value.next_offset) == (10, 15)


def test_a_damaged_count_points_no_reader_past_the_end() -> None:
    # The last offset delta says a billion; nothing stands behind the batch to contradict it.
    batches = batch(10, 5)
    batches[23:27] = (1_000_000_000).to_bytes(4, "big")
    with pytest.raises(CorruptLog) as damage:
        offsets_of(fetched(batches, high_watermark=15), 10)
    assert damage.value.next_offset == 15


def test_what_was_read_before_the_damage_is_given() -> None:
    batches = batch(10, 5) + batch(15, 5)
    batches[-1] ^= 0xFF
    slices = records_from(fetched(batches, high_watermark=20), 10)
    assert [record.offset for record in next(slices)] == list(range(10, 15))
    with pytest.raises(CorruptLog) as damage:
        next(slices)
    assert damage.value.offset == 15


async def turns_of_the_loop(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """What ``work`` gives, and how often the loop served other tasks meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    try:
        return await work(), turns
    finally:
        counting.cancel()


async def offsets_in_turns(one: Fetched, offset: int) -> list[int]:
    return [record.offset async for records in records_in_turns(one, offset, READER) for record in records]


@pytest.mark.parametrize("codec", list(rb.Compression))
@pytest.mark.parametrize("first", [10, 4100, 8009])
async def test_the_loop_turns_while_records_are_read_or_passed_over(
    codec: rb.Compression, first: int
) -> None:
    builder = rb.BatchBuilder(compression=codec)
    for number in range(8000):
        builder.append(timestamp_ms=1, value=b"value %d" % number)
    made = builder.build()
    rb.assign_offsets(made, 0, 10, 0)
    found, turns = await turns_of_the_loop(
        lambda: offsets_in_turns(fetched(made, high_watermark=8010), first)
    )
    assert found == list(range(first, 8010))
    assert turns >= (8010 - first) // RECORDS_PER_TURN + (first - 10) // 1024 - 1


async def test_large_records_are_read_a_few_in_a_turn() -> None:
    made = rb.build_values([bytes(100_000)] * 64, 1000)
    found, turns = await turns_of_the_loop(lambda: offsets_in_turns(fetched(made, high_watermark=64), 0))
    assert found == list(range(64))
    assert turns >= 64 * 100_000 // (2 * 256 * 1024)


async def test_damage_within_a_compressed_batch_is_told_with_its_position() -> None:
    good = batch(10, 5)
    builder = rb.BatchBuilder(compression=rb.Compression.ZSTD)
    for number in range(1000):
        builder.append(timestamp_ms=1, value=random.Random(number).randbytes(100))
    bad = builder.build()
    rb.assign_offsets(bad, 0, 15, 0)
    # It passes its CRC, and what it holds is no zstd.
    bad[rb.HEADER_BYTES : rb.HEADER_BYTES + 100] = bytes(100)
    struct.pack_into(">I", bad, 17, crc32c.crc32c(memoryview(bad)[rb.CRC_START :]))
    with pytest.raises(CorruptLog) as damage:
        await offsets_in_turns(fetched(good + bad, high_watermark=1015), 10)
    assert (damage.value.offset, damage.value.position) == (15, len(good))
