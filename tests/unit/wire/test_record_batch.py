"""Batches: what is built is read, and what is damaged is told, never believed."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb
from stele.wire.compression import Compression, compress

Fields = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

RECORDS: list[Fields] = [
    (1_763_664_000_000, b"key", b"value", [("h", b"1"), ("h", None), ("größe", b"")]),
    (1_763_664_000_005, None, None, []),
    (1_763_663_999_000, b"", b"", []),
]

optional_bytes = st.none() | st.binary(max_size=40)
fields = st.tuples(
    st.integers(0, 2**41),
    optional_bytes,
    optional_bytes,
    st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3),
)


def build(records: list[Fields], **options: int | Compression) -> bytearray:
    builder = rb.BatchBuilder(**options)  # pyright: ignore[reportArgumentType]
    for timestamp_ms, key, value, headers in records:
        builder.append(timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)
    return builder.build()


def read(batch: bytes | bytearray) -> list[Fields]:
    header = rb.check_batch(batch)
    return [(r.timestamp, r.key, r.value, list(r.headers)) for r in rb.decode_records(batch, header)]


def resealed(batch: bytes | bytearray) -> bytes:
    """``batch`` with a CRC that matches again, so that what is behind the CRC gets tested."""
    out = bytearray(batch)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


@pytest.mark.parametrize("codec", list(Compression))
def test_what_is_built_is_read(codec: Compression) -> None:
    batch = build(RECORDS, compression=codec)
    header = rb.check_batch(batch)
    assert (header.record_count, header.last_offset_delta, header.compression) == (3, 2, codec)
    assert (header.base_timestamp, header.max_timestamp) == (RECORDS[0][0], RECORDS[1][0])
    assert header.size == len(batch)
    assert read(batch) == RECORDS


@given(st.lists(fields, min_size=1, max_size=8), st.sampled_from(list(Compression)))
@settings(deadline=None)
def test_any_records_survive(records: list[Fields], codec: Compression) -> None:
    assert read(build(records, compression=codec)) == records


def test_the_header_has_the_producer() -> None:
    header = rb.check_batch(build(RECORDS, producer_id=2**40, producer_epoch=3, base_sequence=17))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 3, 17)
    assert header.has_producer_id
    assert not rb.check_batch(build(RECORDS)).has_producer_id


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        rb.BatchBuilder().build()


def test_offsets_are_assigned_in_place_and_the_crc_still_matches() -> None:
    batch = build(RECORDS)
    rb.assign_offsets(batch, 0, 1000, 7)
    header = rb.check_batch(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (1000, 1002, 1003)
    assert header.partition_leader_epoch == 7
    assert [record.offset for record in rb.decode_records(batch, header)] == [1000, 1001, 1002]


def test_log_append_time_is_stamped_in_place() -> None:
    batch = build(RECORDS)
    rb.set_log_append_time(batch, rb.read_header(batch), 5)
    header = rb.check_batch(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == 5


def test_headers_are_walked_up_to_a_batch_that_is_cut_short() -> None:
    one, two = build(RECORDS), build(RECORDS[:1])
    stream = bytes(one + two)
    assert [h.position for h in rb.iter_headers(stream)] == [0, len(one)]
    assert [h.position for h in rb.iter_headers(stream[:-1])] == [0]


def test_values_alone_make_the_same_batch() -> None:
    built = rb.build_values([b"a", b"b"], 99)
    assert read(built) == [(99, None, b"a", []), (99, None, b"b", [])]


def test_a_produced_buffer_holds_whole_batches_and_nothing_else() -> None:
    one = bytes(build(RECORDS))
    assert [header.position for header in rb.check_produced(one + one)] == [0, len(one)]
    for buffer in (b"", one + b"\x00", one[:-1], one + one[:70]):
        with pytest.raises(rb.CorruptBatchError):
            rb.check_produced(buffer)


def test_every_truncation_is_an_error() -> None:
    batch = bytes(build(RECORDS))
    for size in range(len(batch)):
        with pytest.raises(rb.TruncatedBatchError):
            rb.check_batch(batch[:size])


def test_every_flipped_bit_after_the_crc_is_an_error() -> None:
    batch = build(RECORDS)
    for bit in range(17 * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(rb.CorruptBatchError):
            rb.check_batch(damaged)


def headers_of(data: bytes) -> list[rb.BatchHeader]:
    return list(rb.iter_headers(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_a_corrupt_batch_error(data: bytes) -> None:
    checks: list[Callable[[bytes], object]] = [rb.read_header, rb.check_batch, rb.check_produced, headers_of]
    for check in checks:
        with contextlib.suppress(rb.CorruptBatchError):
            check(data)


@given(st.sampled_from(list(Compression)), st.data())
@settings(max_examples=200, deadline=None)
def test_a_corrupt_batch_with_a_matching_crc_is_read_or_an_error(
    codec: Compression, data: st.DataObject
) -> None:
    batch = build(RECORDS, compression=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))
    sealed = resealed(batch)
    try:
        (header,) = rb.check_produced(sealed)
        rb.decode_records(sealed, header)
    except rb.CorruptBatchError:
        pass


def test_a_wrong_record_count_is_an_error() -> None:
    batch = build(RECORDS)
    struct.pack_into(">i", batch, 23, 2**31 - 2)
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    with pytest.raises(rb.CorruptBatchError, match="do not fit"):
        rb.check_produced(resealed(batch))
    with pytest.raises(rb.CorruptBatchError):
        rb.decode_records(resealed(batch))


def test_a_decompression_bomb_is_an_error() -> None:
    batch = build([(0, None, b"\x00" * (64 * 1024 * 1024), [])], compression=Compression.ZSTD)
    with pytest.raises(rb.CorruptBatchError):
        rb.decode_records(batch, rb.check_batch(batch))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_the_first_record_at_a_time_is_found_in_a_batch_of_several_slices(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rb, "_RECORDS_PER_SLICE", 3)
    builder = rb.BatchBuilder(compression=codec)
    for timestamp_ms in (10, 50, 20, 30, 40, 10, 60, 20):
        builder.append(timestamp_ms=timestamp_ms, value=b"v")
    batch = builder.build()

    def offset(*, timestamp_ms: int, from_offset: int = 0) -> int | None:
        found = rb.first_record(batch, from_offset=from_offset, timestamp_ms=timestamp_ms)
        return None if found is None else found.offset

    assert [offset(timestamp_ms=at) for at in (0, 10, 11, 50, 51, 60, 61)] == [0, 0, 1, 1, 6, 6, None]
    assert [offset(timestamp_ms=30, from_offset=at) for at in range(8)] == [1, 1, 3, 3, 4, 6, 6, None]


@pytest.mark.parametrize(
    "timestamps",
    [[-1], [-1, -1], [-1, 1_000], [-1, 0, -1, 5], [1_000, -1], [0, -1], [-2, -1, 3], [-1, -2]],
    ids=str,
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_every_record_keeps_its_timestamp_also_without_one(
    timestamps: list[int], compression: Compression
) -> None:
    builder = rb.BatchBuilder(compression=compression)
    for timestamp_ms in timestamps:
        builder.append(timestamp_ms=timestamp_ms, value=b"v")
    rows: list[rb.Row] = [(timestamp_ms, None, b"v", []) for timestamp_ms in timestamps]

    for batch in (builder.build(), rb.build_rows(rows)):
        header = rb.check_batch(batch)
        assert [record.timestamp for record in rb.decode_records(batch)] == timestamps
        assert header.base_timestamp == timestamps[0]
        assert header.max_timestamp == max(timestamps)


@pytest.mark.parametrize("size", [1, 2, 7, 100])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_header_name_that_is_no_text_hides_no_record(codec: Compression, size: int) -> None:
    """The codec stops at such a name; Kafka's Java client replaces what it cannot decode."""
    records: list[Fields] = [
        (
            1000 + n,
            None if n == 3 else b"k" * n,
            None if n == 4 else b"v" * 200,
            [("name", b"h"), ("é", None)],
        )
        for n in range(7)
    ]
    batch = build(records).replace(b"name", b"n\xff\xfee", 2).replace("é".encode(), b"\xc3\x28", 1)
    if codec is not Compression.NONE:
        batch[rb.HEADER_BYTES :] = compress(codec, bytes(batch[rb.HEADER_BYTES :]))
        struct.pack_into(">i", batch, 8, len(batch) - rb.LOG_OVERHEAD_BYTES)
        struct.pack_into(">h", batch, rb.CRC_START, codec)
    sealed = resealed(batch)
    found = [record for part in rb.decode_slices(sealed, rb.check_batch(sealed), size) for record in part]
    assert [record.offset for record in found] == list(range(7))
    assert [(r.timestamp, r.key, r.value) for r in found] == [record[:3] for record in records]
    names = [[name for name, _ in record.headers] for record in found]
    assert names == [["n\ufffd\ufffde", "\ufffd("], ["n\ufffd\ufffde", "é"], *[["name", "é"]] * 5]
    assert {tuple(value for _, value in record.headers) for record in found} == {(b"h", None)}
