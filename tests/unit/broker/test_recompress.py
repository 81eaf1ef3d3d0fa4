"""Batches rewritten in a topic's codec: everything but codec, size, CRC and newest timestamp stays."""

from __future__ import annotations

import struct

import pytest
from stele.wire import record_batch as rb
from stele.wire.compression import Compression, compress

from app.broker.producing.recompress import (
    Preparation,
    PreparedBatches,
    needs_preparation,
    preparation,
    target_codec,
)
from app.errors import BatchTooLarge, InvalidBatch, InvalidTimestamp
from app.storage.topic_config import CompressionType, TopicConfig
from tests.support.batches import with_new_crc

NOW_MS = 1_800_000_000_000
CODEC_OF: dict[CompressionType, Compression] = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
ROWS: list[rb.Row] = [
    (NOW_MS + 3, b"k", b"value " * 50, [("h", b"1"), ("h", None)]),
    (NOW_MS - 5, None, None, []),
    (NOW_MS + 9, b"", b"", []),
]


def batch(codec: Compression = Compression.NONE) -> bytearray:
    builder = rb.BatchBuilder(compression=codec, producer_id=7, producer_epoch=2, base_sequence=40)
    for timestamp_ms, key, value, headers in ROWS:
        builder.append(timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)
    return builder.build()


def prepared(batches: bytes | bytearray, config: TopicConfig) -> PreparedBatches:
    batches = bytearray(batches)
    return preparation("orders", config, NOW_MS).run(batches, rb.check_produced(batches))


def rows_of(batches: bytearray | memoryview, header: rb.BatchHeader) -> list[object]:
    return [
        (record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for record in rb.decode_records(bytes(batches), header)
    ]


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", CODEC_OF)
def test_a_batch_keeps_all_but_its_codec(source: Compression, target: CompressionType) -> None:
    sent = batch(source)
    stored = prepared(sent, TopicConfig(compression_type=target))
    (before,), (after,) = rb.check_produced(sent), stored.headers
    assert after.compression == CODEC_OF[target]
    assert after.size == len(stored.batches)
    kept = (
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
    )
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert rows_of(stored.batches, after) == rows_of(sent, before)
    if source == CODEC_OF[target]:
        assert stored.batches == sent


def test_a_batch_of_the_topics_codec_is_not_compressed_again() -> None:
    # What another encoder wrote, which ours would write otherwise.
    sent = batch()
    body = compress(Compression.ZSTD, bytes(sent[rb.HEADER_BYTES :]), level=19)
    other = bytearray(sent[: rb.HEADER_BYTES]) + body
    struct.pack_into(">i", other, 8, len(other) - rb.LOG_OVERHEAD_BYTES)
    struct.pack_into(">h", other, 21, Compression.ZSTD)
    other = bytearray(with_new_crc(bytes(other)))
    assert prepared(other, TopicConfig(compression_type="zstd")).batches == other


def test_several_batches_stay_several() -> None:
    stored = prepared(batch() + batch(Compression.GZIP), TopicConfig(compression_type="lz4"))
    assert [header.compression for header in stored.headers] == [Compression.LZ4] * 2
    assert sum(header.size for header in stored.headers) == len(stored.batches)


@pytest.mark.parametrize("target", ["gzip", "lz4", "zstd"])
def test_the_level_is_the_topics(target: CompressionType) -> None:
    builder = rb.BatchBuilder()
    for number in range(500):
        builder.append(timestamp_ms=NOW_MS, value=f"order {number * 7919} of {number % 13}".encode())
    sent = builder.build()
    # 9 is the default of lz4, and the fast one: all others are high compressions.
    low = TopicConfig(
        compression_type=target, compression_gzip_level=1, compression_lz4_level=9, compression_zstd_level=-50
    )
    high = TopicConfig(
        compression_type=target, compression_gzip_level=9, compression_lz4_level=17, compression_zstd_level=22
    )
    small, large = prepared(sent, high), prepared(sent, low)
    assert len(small.batches) < len(large.batches)
    assert rows_of(small.batches, small.headers[0]) == rows_of(sent, rb.read_header(sent))


@pytest.mark.parametrize("claimed_ms", [NOW_MS - 50_000, NOW_MS + 50_000])
def test_the_newest_timestamp_is_that_of_the_records(claimed_ms: int) -> None:
    sent = batch()
    struct.pack_into(">q", sent, 35, claimed_ms)
    stored = prepared(with_new_crc(bytes(sent)), TopicConfig(compression_type="zstd"))
    assert stored.headers[0].max_timestamp == NOW_MS + 9


def second_record_changed(place: int, value: int) -> bytes:
    """Two records, with one byte of the second changed: 0 length, 1 attributes, 2 time delta, 3 offset delta."""
    builder = rb.BatchBuilder()
    for _ in range(2):
        builder.append(timestamp_ms=NOW_MS, value=b"x")
    made = builder.build()
    made[rb.HEADER_BYTES + 1 + (made[rb.HEADER_BYTES] >> 1) + place] = value
    return with_new_crc(bytes(made))


def with_body(codec: Compression, body: bytes) -> bytes:
    made = batch()[: rb.HEADER_BYTES] + body
    struct.pack_into(">i", made, 8, len(made) - rb.LOG_OVERHEAD_BYTES)
    struct.pack_into(">h", made, 21, codec)
    return with_new_crc(bytes(made))


@pytest.mark.parametrize(
    "sent",
    [
        with_body(Compression.GZIP, b"this is not gzip, whatever the header says"),
        with_body(
            Compression.SNAPPY, compress(Compression.SNAPPY, bytes(batch()[rb.HEADER_BYTES :]) + b"\0\0")
        ),
        with_body(Compression.GZIP, compress(Compression.GZIP, bytes(batch()[rb.HEADER_BYTES : -9]))),
        second_record_changed(0, 60),
    ],
    ids=["no gzip", "trailing bytes", "cut short", "a record too long"],
)
def test_records_that_do_not_parse_are_refused(sent: bytes) -> None:
    with pytest.raises(InvalidBatch) as error:
        prepared(sent, TopicConfig(compression_type="zstd"))
    assert not error.value.is_damaged, "to send it again would not help"


def test_a_record_out_of_its_place_is_named() -> None:
    with pytest.raises(InvalidBatch) as error:
        prepared(second_record_changed(3, 4), TopicConfig(compression_type="zstd"))
    assert [one.index for one in error.value.record_errors] == [1]


def test_a_bomb_is_refused_before_it_fills_memory() -> None:
    body = compress(Compression.GZIP, bytes(80 * 1024 * 1024))
    with pytest.raises(InvalidBatch):
        prepared(with_body(Compression.GZIP, body), TopicConfig(compression_type="uncompressed"))


def test_what_is_stored_is_within_the_limit_too() -> None:
    builder = rb.BatchBuilder(compression=Compression.GZIP)
    builder.append(timestamp_ms=NOW_MS, value=bytes(5000))
    config = TopicConfig(compression_type="uncompressed", max_message_bytes=1000)
    with pytest.raises(BatchTooLarge):
        prepared(builder.build(), config)


def test_timestamps_are_looked_at_on_the_way() -> None:
    config = TopicConfig(compression_type="zstd", message_timestamp_before_max_ms=1)
    with pytest.raises(InvalidTimestamp) as error:
        prepared(batch(Compression.LZ4), config)
    assert [one.index for one in error.value.record_errors] == [1]


@pytest.mark.parametrize(
    ("config", "needed"),
    [
        (TopicConfig(), False),
        (TopicConfig(message_timestamp_type="LogAppendTime"), False),
        (TopicConfig(compression_type="gzip"), False),
        (TopicConfig(compression_type="zstd"), True),
        (TopicConfig(compression_type="uncompressed"), True),
        (TopicConfig(message_timestamp_before_max_ms=1), True),
        (TopicConfig(message_timestamp_before_max_ms=1, message_timestamp_type="LogAppendTime"), False),
        (TopicConfig(message_timestamp_after_max_ms=0), True),
    ],
)
def test_only_what_needs_it_leaves_the_direct_path(config: TopicConfig, needed: bool) -> None:
    assert needs_preparation(config, rb.check_produced(batch(Compression.GZIP)), NOW_MS) is needed


def test_a_topic_that_takes_what_producers_send_has_no_codec() -> None:
    assert target_codec(TopicConfig()) is None
    assert preparation("orders", TopicConfig(), NOW_MS).codec is None
    assert isinstance(preparation("orders", TopicConfig(), NOW_MS), Preparation)
