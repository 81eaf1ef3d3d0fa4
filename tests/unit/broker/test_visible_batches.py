"""Which batches a reader sees, and what stands for the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.broker.reading.decoded_bytes import DecodedBytes
from app.broker.reading.fetch import (
    Fetched,
    batches_from,
    brings_all,
    end_of,
    records_from,
    records_in_turns,
    visible_bytes,
)
from app.storage.engine import AbortedTransaction

READER = DecodedBytes(2**30).reader()


def data(base_offset: int, count: int, *, producer_id: int = -1, compression: int = 0) -> bytearray:
    builder = rb.BatchBuilder(
        compression=rb.Compression(compression),
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    for number in range(count):
        builder.append(timestamp_ms=1000, value=b"%d" % (base_offset + number))
    batch = builder.build()
    rb.assign_offsets(batch, 0, base_offset, 3)
    return batch


def marker(offset: int, kind: MarkerType, *, producer_id: int) -> bytearray:
    batch = marker_batch(
        EndTransactionMarker(type=kind, coordinator_epoch=1),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=1000,
    )
    rb.assign_offsets(batch, 0, offset, 3)
    return batch


# Producer 7 aborts [0, 2) and [6, 8), and commits [9, 11) between; producer 8 commits [2, 5).
HISTORY = (
    data(0, 2, producer_id=7)
    + data(2, 3, producer_id=8)
    + marker(5, MarkerType.ABORT, producer_id=7)
    + data(6, 2, producer_id=7, compression=4)
    + marker(8, MarkerType.ABORT, producer_id=7)
    + data(9, 2, producer_id=7)
    + marker(11, MarkerType.COMMIT, producer_id=7)
    + marker(12, MarkerType.COMMIT, producer_id=8)
    + data(13, 2)
)
ABORTED = (AbortedTransaction(7, 0, 5), AbortedTransaction(7, 6, 8))
COMMITTED = [2, 3, 4, 9, 10, 13, 14]
ALL = [0, 1, 2, 3, 4, 6, 7, 9, 10, 13, 14]


def read_of(batches: bytearray, aborted: Sequence[AbortedTransaction] | None, *, end: int) -> Fetched:
    return Fetched(
        topic="orders",
        partition=0,
        high_watermark=end + 5,
        last_stable_offset=end,
        log_start_offset=0,
        aborted=aborted,
        batches=batches,
    )


@pytest.mark.parametrize(("aborted", "expected"), [(ABORTED, COMMITTED), (None, ALL), ((), ALL)])
async def test_readers_of_records_get_the_visible_ones(
    aborted: Sequence[AbortedTransaction] | None, expected: list[int]
) -> None:
    read = read_of(HISTORY, aborted, end=15)
    assert [record.offset for records in records_from(read, 0) for record in records] == expected
    assert [
        record.offset async for records in records_in_turns(read, 0, READER) for record in records
    ] == expected


async def test_a_hidden_batch_is_not_decoded() -> None:
    # Its records do not parse, and its CRC is right.
    broken = data(0, 2, producer_id=7)
    broken[rb.HEADER_BYTES :] = b"\xff" * (len(broken) - rb.HEADER_BYTES)
    rb.set_log_append_time(broken, rb.read_header(broken), 1000)
    read = read_of(broken + data(2, 1), (AbortedTransaction(7, 0, 1),), end=3)
    assert [record.offset for records in records_from(read, 0) for record in records] == [2]
    assert [record.offset async for records in records_in_turns(read, 0, READER) for record in records] == [2]


@pytest.mark.parametrize("count", [1, 2, 9])
async def test_headers_and_bytes_bring_a_reader_past_hidden_batches(count: int) -> None:
    ends = [header.position + header.size for header in rb.iter_headers(HISTORY)]
    part = HISTORY[: ends[count - 1]]
    end = list(rb.iter_headers(part))[-1].next_offset
    read = read_of(part, ABORTED, end=15)
    assert end_of(read, 0) == end
    assert [header.next_offset for header in batches_from(read, 0)][-1] == end
    seen = await visible_bytes(read)
    assert [header.next_offset for header in rb.iter_headers(seen)][-1] == end


async def test_the_bytes_have_the_visible_batches_as_stored_and_placeholders_between() -> None:
    seen = await visible_bytes(read_of(HISTORY, ABORTED, end=15))
    offsets: list[int] = []
    position = expected = 0
    stored = {header.base_offset: header for header in rb.iter_headers(HISTORY)}
    while position < len(seen):
        header = rb.check_batch(seen, position)
        assert header.base_offset == expected
        assert not header.is_control
        if header.record_count:
            kept = stored[header.base_offset]
            assert seen[position : position + header.size] == HISTORY[kept.position :][: kept.size]
            offsets += [record.offset for record in rb.decode_records(seen, header)]
        position, expected = position + header.size, header.next_offset
    assert (offsets, expected) == (COMMITTED, 15)


async def test_a_run_of_hidden_batches_has_one_placeholder() -> None:
    read = read_of(HISTORY, ABORTED, end=15)
    headers = list(rb.iter_headers(await visible_bytes(read)))
    assert [(h.base_offset, h.last_offset) for h in headers if not h.record_count] == [
        (0, 1),
        (5, 8),
        (11, 12),
    ]


async def test_bytes_without_hidden_batches_are_not_copied() -> None:
    batches = data(0, 2) + data(2, 3, producer_id=8)
    assert await visible_bytes(read_of(batches, (), end=5)) is batches
    assert await visible_bytes(read_of(batches, None, end=5)) is batches


async def test_a_corrupt_batch_is_not_hidden() -> None:
    # One bit makes data look like a control batch; the CRC shows it.
    batches = data(0, 2) + data(2, 2) + marker(4, MarkerType.COMMIT, producer_id=8)
    second = list(rb.iter_headers(batches))[1].position
    batches[second + 22] |= 0x20
    seen = await visible_bytes(read_of(batches, None, end=5))
    assert seen == batches
    with pytest.raises(rb.CrcMismatchError):
        rb.check_batch(seen, second)


def test_a_read_brings_all_up_to_its_bound() -> None:
    committed = read_of(HISTORY, ABORTED, end=15)
    assert brings_all(committed, 0)
    assert not brings_all(read_of(HISTORY, None, end=15), 0), "data follows that is not yet stable"
    assert brings_all(read_of(bytearray(), (), end=15), 15)
    assert not brings_all(read_of(bytearray(), (), end=15), 14)
