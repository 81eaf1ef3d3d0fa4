"""Where a copy goes on, what it takes of a fetch, and when it must not go on."""

from __future__ import annotations

import random

import pytest
from stele.mirror.positions import (
    PIECE_BYTES_MAX,
    CopyState,
    Damaged,
    Diverged,
    NotCopyable,
    Sample,
    SourceState,
    aborted_batches,
    begin,
    check_epoch,
    check_samples,
    cut,
)
from stele.wire import record_batch as rb
from stele.wire.messages.mirrors import BATCHES_PER_APPEND_MAX

from tests.support.batches import batch_of

ALL = 2**62


def log_of(*sizes: int, start: int = 0, epoch: int = 3, gap: int = 0) -> bytes:
    """Return batches of so many records each."""
    out = bytearray()
    for size in sizes:
        batch = batch_of([b"v"] * size)
        rb.assign_offsets(batch, 0, start, epoch)
        out += batch
        start += size + gap
    return bytes(out)


# ── where it goes on ──


def test_a_copy_goes_on_where_it_ends() -> None:
    copy = CopyState(start=0, end=7, epoch=2)
    assert begin(copy, SourceState(start=0, end=9, epoch_end=(2, 8))) == 7
    assert begin(copy, SourceState(start=0, end=7, epoch_end=(2, 7))) == 7


def test_a_new_copy_begins_where_the_source_does() -> None:
    assert begin(CopyState(start=0, end=0, epoch=-1), SourceState(start=0, end=9)) == 0
    assert begin(CopyState(start=0, end=0, epoch=-1), SourceState(start=5, end=9)) == 5


def test_what_the_source_has_deleted_is_left_out() -> None:
    assert begin(CopyState(start=0, end=3, epoch=0), SourceState(start=5, end=9)) == 5


def test_an_epoch_that_the_source_deleted_is_not_compared() -> None:
    """It has nothing in common with the copy, and so may have forgotten the epoch."""
    assert begin(CopyState(start=0, end=5, epoch=0), SourceState(start=5, end=9, epoch_end=(-1, -1))) == 5


@pytest.mark.parametrize(
    "source",
    [
        SourceState(start=0, end=6, epoch_end=(2, 6)),
        SourceState(start=0, end=9, epoch_end=(2, 6)),
        SourceState(start=0, end=9, epoch_end=(1, 8)),
        SourceState(start=0, end=9, epoch_end=(-1, -1)),
        SourceState(start=0, end=0),
    ],
    ids=["shorter", "epoch ends before", "epoch is not there", "no epochs", "empty"],
)
def test_a_copy_that_has_more_than_the_source_stops(source: SourceState) -> None:
    with pytest.raises(Diverged) as raised:
        begin(CopyState(start=0, end=7, epoch=2), source)
    assert "7" in str(raised.value)


def test_an_epoch_that_goes_on_at_the_source_is_the_same() -> None:
    check_epoch(7, 2, 2, 7)
    check_epoch(7, 2, 2, 100)


def test_the_reason_names_both_ends() -> None:
    with pytest.raises(Diverged, match=r"copy ends at 7 with leader epoch 2.*epoch 2 ends at 6"):
        check_epoch(7, 2, 2, 6)


# ── what it takes ──


def test_whole_batches_from_the_position_on() -> None:
    records = log_of(2, 3, 4)
    (piece,) = cut(records, 0, ALL)
    assert (piece.start, piece.stop, piece.next_offset, piece.epoch) == (0, len(records), 9, 3)


def test_batches_before_the_position_are_skipped() -> None:
    records = log_of(2, 3, 4)
    (piece,) = cut(records, 5, ALL)
    assert records[piece.start : piece.stop] == log_of(4, start=5)


def test_a_batch_across_the_position_stops_the_copy() -> None:
    with pytest.raises(Diverged, match="ends at 3, inside a batch of the source"):
        cut(log_of(2, 3), 3, ALL)


def test_a_batch_in_which_the_source_begins_is_copied_whole() -> None:
    """Its first records were deleted at the source, and the copy ends before it."""
    records = log_of(2, 10, 4)
    (piece,) = cut(records, 5, ALL, floor=2)
    assert records[piece.start : piece.stop] == log_of(10, start=2) + log_of(4, start=12)
    with pytest.raises(Diverged, match="ends at 3, inside a batch of the source"):
        cut(records, 5, ALL, floor=3)


def test_batches_past_the_high_watermark_are_left_for_later() -> None:
    records = log_of(2, 3, 4)
    (piece,) = cut(records, 0, 5)
    assert piece.next_offset == 5
    assert cut(records, 0, 1) == []
    (piece,) = cut(records, 0, 8)
    assert piece.next_offset == 5


def test_a_batch_that_is_cut_short_is_left_for_later() -> None:
    records = log_of(2, 3)
    for missing in (1, 30, 80):
        assert [piece.next_offset for piece in cut(records[:-missing], 0, ALL)] == [2]
    for left in range(90):
        assert cut(log_of(5)[:left], 0, ALL) == []


def test_holes_are_taken_as_they_are() -> None:
    records = log_of(2, 3, start=10, gap=7)
    (piece,) = cut(records, 4, ALL)
    assert piece.next_offset == 22


def test_pieces_have_a_bounded_number_of_batches_and_bytes() -> None:
    records = log_of(*[1] * (2 * BATCHES_PER_APPEND_MAX + 1))
    pieces = cut(records, 0, ALL)
    assert [piece.next_offset for piece in pieces] == [500, 1000, 1001]
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
    large = bytearray()
    for number in range(5):
        batch = batch_of([b"x" * 50_000])
        rb.assign_offsets(batch, 0, number, 0)
        large += batch
    assert [piece.next_offset for piece in cut(large, 0, ALL)] == [2, 4, 5]


@pytest.mark.parametrize("magic", [0, 1])
def test_records_older_than_batches_cannot_be_copied(magic: int) -> None:
    records = bytearray(log_of(1))
    records[16] = magic
    with pytest.raises(NotCopyable, match=f"message format {magic}"):
        cut(records, 0, ALL)


def test_a_batch_that_fits_no_frame_cannot_be_copied() -> None:
    records = bytearray(log_of(1))
    records[8:12] = PIECE_BYTES_MAX.to_bytes(4, "big")
    with pytest.raises(NotCopyable, match="at most"):
        cut(records, 0, ALL)


def test_what_is_wrong_counts_once_it_is_first() -> None:
    records = bytearray(log_of(2, 3))
    records[-1] ^= 1
    assert [piece.next_offset for piece in cut(records, 0, ALL)] == [2]
    with pytest.raises(Damaged, match="CRC"):
        cut(records, 2, ALL)


def test_offsets_that_go_back_are_damage() -> None:
    records = log_of(2, start=4) + log_of(2, start=4)
    assert [piece.next_offset for piece in cut(records, 4, ALL)] == [6]
    with pytest.raises(Damaged):
        cut(log_of(1)[:8] + b"\0\0\0\1" + log_of(1)[12:], 0, ALL)


def test_bytes_at_random_are_cut_or_refused() -> None:
    """Whatever comes, pieces are whole batches that follow each other, up to the high watermark."""
    rng = random.Random(7)
    sound = log_of(1, 2, 3, 1, 2, 3)
    for _ in range(3000):
        records = bytearray(sound)
        for _ in range(rng.randint(1, 3)):
            records[rng.randrange(len(records))] = rng.randrange(256)
        del records[rng.randrange(len(records)) :]
        try:
            pieces = cut(records, rng.choice((0, 1, 3)), 12)
        except (Damaged, Diverged, NotCopyable):
            continue
        for piece in pieces:
            assert 0 <= piece.start < piece.stop <= len(records)
            assert piece.next_offset <= 12
            assert rb.check_batch(records, piece.start)


# ── copies without epochs of the source ──


def rows(first: int, *values: bytes, producer: int = -1, attributes: int = 0) -> bytes:
    batch = rb.build_rows([(at, b"k", value, []) for at, value in enumerate(values)], producer_id=producer)
    rb.assign_offsets(batch, 0, first, 0)
    batch[22] |= attributes
    return bytes(batch)


def test_records_of_a_copy_are_compared_with_those_of_the_source() -> None:
    records = rows(0, b"a", b"b") + rows(5, b"c")
    check_samples([Sample(1, 1, b"k", b"b"), Sample(5, None, b"k", b"c")], records)
    # What the source has deleted says nothing.
    check_samples([Sample(3, 1, b"k", b"x"), Sample(9, 1, b"k", b"x")], records)
    for sample in (
        Sample(1, 2, b"k", b"b"),
        Sample(1, 1, b"k", b"c"),
        Sample(5, None, None, b"c"),
    ):
        with pytest.raises(Diverged, match=f"offset {sample.offset} is another one"):
            check_samples([sample], records)


def test_batches_of_aborted_transactions_are_found() -> None:
    transactional, end = 0x10, 0x30
    records = b"".join(
        [
            rows(0, b"before the first fetch", producer=1, attributes=transactional),
            rows(1, b"committed", producer=2, attributes=transactional),
            rows(2, b"no transaction", producer=1),
            rows(3, b"", producer=1, attributes=end),
            rows(4, b"the next one", producer=1, attributes=transactional),
            rows(5, b"aborted", producer=2, attributes=transactional),
            rows(6, b"", producer=2, attributes=end),
        ]
    )
    assert aborted_batches(records, [(2, 5), (1, 0)]) == {0, 5}
    assert aborted_batches(records, []) == frozenset()
