"""Compression of a batch's records: none, gzip, snappy (xerial or raw), lz4, zstd.

A body may decompress to at most ``DECOMPRESSED_BYTES_MAX`` bytes, checked before the
allocation, so that a small hostile batch cannot exhaust memory.
"""

from __future__ import annotations

import mmap
import zlib
from enum import IntEnum

import cramjam

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
_MAX_TEXT = "64 MiB"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024

# Magic, version 1 with independent blocks, blocks of at most 64 KiB, and the descriptor's checksum. The
# blocks of cramjam's own frames depend on earlier blocks, which Kafka's Java clients reject.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_BLOCK_BYTES = 64 * 1024
# Set in a block's length: the block is stored uncompressed, because compression would not shrink it.
_LZ4_STORED = 0x80000000


class Compression(IntEnum):
    """A codec, as numbered in bits 0–2 of the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionError(ValueError):
    """The body is invalid for its codec, or exceeds the limit when decompressed."""


# Of a frame's flags: eight bytes with the size of its content stand before the descriptor's checksum.
_LZ4_HAS_CONTENT_SIZE = 0x08
# Kafka's default, which selects the fast compressor; other levels select high compression.
_LZ4_FAST_LEVEL = 9
_LZ4_LEVEL_MAX = 12


def compress(codec: Compression, body: bytes, *, level: int | None = None) -> bytes:
    """Compress ``body`` in the form that Apache Kafka's clients write.

    ``level`` is on the scale of the codec, as in the topic configuration
    ``compression.<codec>.level``; None is the default.
    """
    if codec is Compression.NONE:
        return body
    if codec is Compression.GZIP:
        gz = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
        return gz.compress(body) + gz.flush()
    if codec is Compression.LZ4:
        return _lz4_frame(body, level)
    if codec is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(body) if level is None else cramjam.zstd.compress(body, level))
    parts = [_XERIAL_HEADER]
    for start in range(0, len(body), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(body[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _lz4_block(plain: bytes, level: int | None) -> bytes:
    if level is None or level == _LZ4_FAST_LEVEL:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    # cramjam's blocks take no level, but its frames do; in a frame of one block no block depends on another.
    frame = bytes(cramjam.lz4.compress(plain, min(level, _LZ4_LEVEL_MAX)))
    start = 7 + (8 if frame[4] & _LZ4_HAS_CONTENT_SIZE else 0)
    length = int.from_bytes(frame[start : start + 4], "little")
    if length & _LZ4_STORED:
        return plain
    return frame[start + 4 : start + 4 + length]


def _lz4_frame(body: bytes, level: int | None) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(body), _LZ4_BLOCK_BYTES):
        plain = body[start : start + _LZ4_BLOCK_BYTES]
        block = _lz4_block(plain, level)
        length = len(block)
        if length >= len(plain):
            block, length = plain, len(plain) | _LZ4_STORED
        parts.append(length.to_bytes(4, "little"))
        parts.append(block)
    parts.append(_LZ4_END)
    return b"".join(parts)


def decompress(codec: Compression, body: bytes) -> bytes:
    """Decompress the body of a batch.

    Raises:
        DecompressionError: it is invalid for its codec, or exceeds the limit.
    """
    if codec is Compression.NONE:
        return body
    try:
        if codec is Compression.GZIP:
            gz = zlib.decompressobj(wbits=31)
            out = gz.decompress(body, DECOMPRESSED_BYTES_MAX)
            if gz.unconsumed_tail or not gz.eof:
                raise DecompressionError(f"gzip body is truncated, or has more than {_MAX_TEXT}")
            return out
        if codec is Compression.SNAPPY:
            return _snappy(body, DECOMPRESSED_BYTES_MAX)
        codec_module = cramjam.lz4 if codec is Compression.LZ4 else cramjam.zstd
        # As large as the limit; pages that are never written to cost nothing.
        with mmap.mmap(-1, DECOMPRESSED_BYTES_MAX) as buffer:
            size = codec_module.decompress_into(body, buffer)
            return buffer[:size]
    except (zlib.error, cramjam.DecompressionError) as error:
        raise DecompressionError(
            f"{codec.name.lower()} body cannot be decompressed into {_MAX_TEXT}: {error}"
        ) from error


def _snappy(body: bytes, limit: int) -> bytes:
    if not body.startswith(_XERIAL_MAGIC):
        return _snappy_block(body, limit)
    out: list[bytes] = []
    position, total = len(_XERIAL_HEADER), 0
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        block = body[position + 4 : position + 4 + size]
        if len(block) != size or not size:
            raise DecompressionError("snappy block is truncated")
        out.append(_snappy_block(block, limit - total))
        total += len(out[-1])
        position += 4 + size
    return b"".join(out)


def _snappy_block(block: bytes, limit: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > limit:
        raise DecompressionError("snappy body is too large when decompressed")
    return bytes(cramjam.snappy.decompress_raw(block))
