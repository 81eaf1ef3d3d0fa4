"""Message sets of magic 0 and 1, against the builders and parsers of two other clients."""

from __future__ import annotations

import contextlib
import struct
import zlib
from typing import Any

import kafka.record
import kafka.record.legacy_records
import pytest
from aiokafka.record import legacy_records as aiokafka_legacy
from aiokafka.record import memory_records as aiokafka_memory
from hypothesis import given
from hypothesis import strategies as st
from stele.wire import record_batch as rb
from stele.wire.compression import Compression, compress

from app.tcp.kafka import message_set
from app.tcp.kafka.message_set import InvalidMessageSet, UnsupportedCodec, down_convert, up_convert

Row = tuple[int, bytes | None, bytes | None]

# Key "a", value "b", offset 0, magic 0: the example of the module, as aiokafka writes it too.
GOLDEN = bytes.fromhex("0000000000000000 00000010 a4ad2011 00 00 00000001 61 00000001 62")
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
BUILDERS: dict[str, Any] = {
    "aiokafka": aiokafka_legacy.LegacyRecordBatchBuilder,
    "kafka-python": kafka.record.legacy_records.LegacyRecordBatchBuilder,
}


def rows(count: int, *, magic: int) -> list[Row]:
    """Return records with and without keys, tombstones among them; magic 0 has no timestamps."""
    return [
        (
            1_700_000_000_000 + n if magic else rb.NO_TIMESTAMP,
            None if n % 3 == 0 else b"key-%d" % n,
            None if n % 5 == 4 else b"value-%d " % n * 10,
        )
        for n in range(count)
    ]


def written_by(builder: str, records: list[Row], *, magic: int, codec: Compression) -> bytes:
    made = BUILDERS[builder](magic=magic, compression_type=int(codec), batch_size=1 << 20)
    for offset, (timestamp_ms, key, value) in enumerate(records):
        made.append(offset, timestamp=timestamp_ms if magic else None, key=key, value=value)
    return bytes(made.build())


def stored(records: list[Row], *, codec: Compression, base_offset: int = 100) -> bytearray:
    builder = rb.BatchBuilder(compression=codec)
    for timestamp_ms, key, value in records:
        builder.append(timestamp_ms=timestamp_ms, key=key, value=value)
    batch = builder.build()
    rb.assign_offsets(batch, 0, base_offset, 0)
    return batch


def rows_of(batches: bytearray) -> list[Row]:
    return [
        (r.timestamp, r.key, r.value)
        for header in rb.check_produced(batches)
        for r in rb.decode_records(batches, header)
    ]


def message(
    *, magic: int = 1, attributes: int = 0, value: bytes | None = b"v", timestamp_ms: int = 5, offset: int = 0
) -> bytes:
    """A message written by hand, with a good CRC."""
    body = bytes((magic, attributes)) + (struct.pack(">q", timestamp_ms) if magic else b"")
    body += struct.pack(">i", -1)
    body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


# ── produce ──


def test_the_worked_example() -> None:
    assert rows_of(up_convert(GOLDEN)) == [(rb.NO_TIMESTAMP, b"a", b"b")]


# Neither library writes LZ4 with the checksum of magic 0's time; a test below does.
KINDS = [(magic, codec) for magic in (0, 1) for codec in CODECS if (magic, codec) != (0, Compression.LZ4)]


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize(("magic", "codec"), KINDS)
def test_what_old_clients_write_becomes_one_batch_of_the_same_codec(
    magic: int, codec: Compression, builder: str
) -> None:
    records = rows(20, magic=magic)
    batches = up_convert(written_by(builder, records, magic=magic, codec=codec))
    (header,) = rb.check_produced(batches)
    assert header.compression == codec
    assert rows_of(batches) == records


def test_neighbours_of_another_codec_stand_in_a_batch_of_their_own() -> None:
    records = rows(3, magic=1)
    plain = written_by("aiokafka", records, magic=1, codec=Compression.NONE)
    packed = written_by("aiokafka", records, magic=1, codec=Compression.GZIP)
    batches = up_convert(plain + packed + packed + plain)
    assert [(h.compression, h.record_count) for h in rb.check_produced(batches)] == [(0, 3), (1, 6), (0, 3)]


def test_magic_0_and_1_may_stand_in_one_set() -> None:
    batches = up_convert(message(magic=0, value=b"old") + message(magic=1, value=b"new", timestamp_ms=7))
    assert rows_of(batches) == [(rb.NO_TIMESTAMP, None, b"old"), (7, None, b"new")]


def test_a_wrapper_with_the_brokers_time_gives_it_to_all_its_messages() -> None:
    inner = compress(Compression.GZIP, message(timestamp_ms=1) + message(timestamp_ms=2, offset=1))
    batches = up_convert(message(attributes=0x08 | Compression.GZIP, value=inner, timestamp_ms=9))
    assert [row[0] for row in rows_of(batches)] == [9, 9]


def test_raw_snappy_is_read_as_well_as_framed() -> None:
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(message(value=b"raw")))
    assert rows_of(up_convert(message(attributes=Compression.SNAPPY, value=raw))) == [(5, None, b"raw")]


def test_lz4_of_magic_0_is_read_with_the_wrong_checksum_and_with_the_right_one() -> None:
    right = compress(Compression.LZ4, message(magic=0, value=b"packed"))
    wrong = message_set.with_lz4_checksum(right, over_magic=True)
    # KAFKA-3160: the second byte of xxHash over magic and descriptor, instead of descriptor alone.
    assert (right[6], wrong[6]) == (0x82, 0x1A)
    for frame in (right, wrong):
        batches = up_convert(message(magic=0, attributes=Compression.LZ4, value=frame))
        assert rows_of(batches) == [(rb.NO_TIMESTAMP, None, b"packed")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no message"),
        (GOLDEN[:11], "too few"),
        (GOLDEN[:-1], "are left"),
        (GOLDEN + GOLDEN[:20], "are left"),
        (message(magic=2), "magic 2"),
        (message(attributes=4), "codec 4"),
        (message(attributes=Compression.GZIP, value=None), "without a value"),
        (message(attributes=Compression.GZIP, value=b"no gzip"), "cannot be decompressed"),
        (
            message(
                attributes=Compression.GZIP,
                value=compress(
                    Compression.GZIP,
                    message(attributes=Compression.GZIP, value=compress(Compression.GZIP, message())),
                ),
            ),
            "one that is compressed",
        ),
        (message(attributes=Compression.GZIP, value=compress(Compression.GZIP, b"")), "no message"),
    ],
)
def test_invalid_message_sets_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidMessageSet, match=reason):
        up_convert(data)


def test_a_flipped_bit_is_distinguished_from_other_invalid_bytes() -> None:
    damaged = bytearray(GOLDEN)
    damaged[-1] ^= 1
    with pytest.raises(InvalidMessageSet, match="CRC") as refused:
        up_convert(damaged)
    assert refused.value.is_corrupt


@pytest.mark.long
def test_a_small_wrapper_that_would_grow_without_bound_is_refused() -> None:
    bomb = compress(Compression.GZIP, bytes(200 * 1024 * 1024))
    with pytest.raises(InvalidMessageSet, match="more than 64 MiB"):
        up_convert(message(attributes=Compression.GZIP, value=bomb))


# ── fetch ──


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_old_clients_read_what_is_stored_at_its_offsets(magic: int, codec: Compression) -> None:
    records = rows(20, magic=1)
    data = down_convert(stored(records, codec=codec), magic=magic, from_offset=100, max_bytes=1 << 20)
    if magic == 0 and codec is Compression.LZ4:
        assert [row[1:] for row in rows_of(up_convert(data))] == [row[1:] for row in records]
        return
    parsers: list[Any] = [aiokafka_memory.MemoryRecords(data), kafka.record.MemoryRecords(data)]
    for parsed in parsers:
        found: list[Any] = []
        while parsed.has_next():
            found += parsed.next_batch()
        assert [(r.offset, r.key, r.value) for r in found] == [
            (100 + n, key, value) for n, (_, key, value) in enumerate(records)
        ]
        if magic == 1:
            assert [r.timestamp for r in found] == [row[0] for row in records]


def test_a_fetch_from_the_middle_of_a_batch_begins_there() -> None:
    data = down_convert(
        stored(rows(5, magic=1), codec=Compression.NONE), magic=1, from_offset=103, max_bytes=1
    )
    assert struct.unpack_from(">q", data) == (103,)


def test_one_batch_is_converted_even_if_it_is_larger_than_asked_for() -> None:
    two = stored(rows(5, magic=1), codec=Compression.NONE)
    two += stored(rows(5, magic=1), codec=Compression.NONE, base_offset=105)
    assert len(rows_of(up_convert(down_convert(two, magic=1, from_offset=100, max_bytes=1)))) == 5
    assert len(rows_of(up_convert(down_convert(two, magic=1, from_offset=100, max_bytes=9999)))) == 10


def test_zstd_cannot_be_expressed_for_an_old_client() -> None:
    batch = stored(rows(2, magic=1), codec=Compression.ZSTD)
    with pytest.raises(UnsupportedCodec, match="zstd"):
        down_convert(batch, magic=1, from_offset=100, max_bytes=1 << 20)


# ── anything ──

fields = st.none() | st.binary(max_size=40)


@given(
    records=st.lists(st.tuples(st.integers(0, 2**41), fields, fields), min_size=1, max_size=20),
    codec=st.sampled_from(CODECS),
)
def test_there_and_back_again(records: list[Row], codec: Compression) -> None:
    batch = stored(records, codec=codec)
    again = up_convert(down_convert(batch, magic=1, from_offset=100, max_bytes=1 << 20))
    assert rows_of(again) == records
    (header,) = rb.check_produced(again)
    assert header.compression == codec


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_set_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidMessageSet):
        up_convert(data)


@given(
    codec=st.sampled_from(CODECS),
    magic=st.sampled_from([0, 1]),
    changes=st.lists(st.tuples(st.integers(12, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_a_set_that_was_changed_with_a_new_crc_is_read_or_refused(
    codec: Compression, magic: int, changes: list[tuple[int, int]]
) -> None:
    whole = down_convert(stored(rows(4, magic=1), codec=codec), magic=magic, from_offset=100, max_bytes=1)
    data = bytearray(whole)
    (size,) = struct.unpack_from(">i", data, 8)
    for position, byte in changes:
        data[16 + position % (len(data) - 16)] = byte
    struct.pack_into(">I", data, 12, zlib.crc32(data[16 : 12 + size]))
    with contextlib.suppress(InvalidMessageSet):
        up_convert(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_whose_records_are_too_many_as_messages_is_not_sent(
    magic: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_set, "DECOMPRESSED_BYTES_MAX", 10_000)
    monkeypatch.setattr(message_set, "_RECORDS_PER_SLICE", 10)
    small, large = (
        rb.BatchBuilder(compression=Compression.GZIP),
        rb.BatchBuilder(compression=Compression.GZIP),
    )
    for builder, count in ((small, 200), (large, 1000)):
        for _ in range(count):
            builder.append(timestamp_ms=1_000, value=None)
    assert down_convert(small.build(), magic=magic, from_offset=0, max_bytes=1 << 20)
    with pytest.raises(message_set.MessageSetTooLarge):
        down_convert(large.build(), magic=magic, from_offset=0, max_bytes=1 << 20)
