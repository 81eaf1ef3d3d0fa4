"""Batches turned into records, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from stele.wire import record_batch as rb

from app.broker.fetch import Fetched, records_from
from app.errors import CorruptLog


def batch(base_offset: int, count: int) -> bytearray:
    made = rb.build_values([b"value %d" % n for n in range(count)], 1000)
    rb.assign_offsets(made, 0, base_offset, 0)
    return made


def fetched(batches: bytearray, *, high_watermark: int) -> Fetched:
    return Fetched(
        topic="orders",
        partition=0,
        high_watermark=high_watermark,
        log_start_offset=0,
        batches=batches,
        path=Path("orders-0/0.log"),
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
