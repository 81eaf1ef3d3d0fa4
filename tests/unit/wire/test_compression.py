"""Every codec gives back what it took, and a hostile body takes no more memory than its bound."""

from __future__ import annotations

import contextlib
import os
import random
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stele.wire import compression
from stele.wire.compression import Compression, DecompressionError, compress, decompress

CODECS = list(Compression)
BODY = bytes(range(256)) * 300


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("body", [b"", b"x", BODY, b"\x00" * 100_000], ids=len)
def test_what_is_compressed_is_decompressed(codec: Compression, body: bytes) -> None:
    assert decompress(codec, compress(codec, body)) == body


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(CODECS[1:]), st.binary(max_size=500))
def test_any_bytes_decompress_or_are_a_decompression_error(codec: Compression, body: bytes) -> None:
    with contextlib.suppress(DecompressionError):
        decompress(codec, body)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(CODECS[1:]), st.data())
def test_a_damaged_body_decompresses_or_is_a_decompression_error(
    codec: Compression, data: st.DataObject
) -> None:
    body = bytearray(compress(codec, BODY[:2000]))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(DecompressionError):
        decompress(codec, bytes(body))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "DECOMPRESSED_BYTES_MAX", 2 * 1024 * 1024)
    bomb = compress(codec, b"\x00" * (8 * 1024 * 1024))
    with pytest.raises(DecompressionError):
        decompress(codec, bomb)


@pytest.mark.parametrize("codec", Compression)
def test_very_regular_data_is_read_too(codec: Compression) -> None:
    body = b'{"state":"idle","value":0}' * 400_000
    assert decompress(codec, compress(codec, body)) == body


def test_a_truncated_gzip_body_is_an_error() -> None:
    with pytest.raises(DecompressionError):
        decompress(Compression.GZIP, compress(Compression.GZIP, BODY)[:-9])


def test_snappy_without_frames_is_read_too() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(BODY))) == BODY


def test_gzip_of_another_implementation_is_read() -> None:
    assert decompress(Compression.GZIP, bytes(cramjam.gzip.compress(BODY))) == BODY
    assert zlib.decompress(compress(Compression.GZIP, BODY), wbits=31) == BODY


@pytest.mark.parametrize("body", [b"x" * 100, BODY, os.urandom(200_000)], ids=["small", "large", "random"])
def test_lz4_frames_have_independent_blocks_of_64_kib_as_kafkas_java_clients_demand(body: bytes) -> None:
    frame = compress(Compression.LZ4, body)
    flags, descriptor = frame[4], frame[5]
    assert flags & 0x20, "blocks are independent"
    assert descriptor == 0x40, "of at most 64 KiB"
    assert bytes(cramjam.lz4.decompress(frame)) == body


def test_lz4_frames_of_another_implementation_are_read() -> None:
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(BODY))) == BODY


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, [-1, 1, 9]),
        (Compression.LZ4, [1, 2, 3, 8, 9, 10, 12, 17]),
        (Compression.ZSTD, [-131072, -1, 0, 3, 22]),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("is_random", [False, True])
def test_every_level_gives_back_the_same_bytes(
    codec: Compression, levels: list[int], size: int, is_random: bool
) -> None:
    text = b"".join(b"order %d of %d;" % (n * 7919 % 1000, n % 13) for n in range(30_000))
    body = random.Random(size).randbytes(size) if is_random else text[:size]
    for level in levels:
        assert decompress(codec, compress(codec, body, level=level)) == body
