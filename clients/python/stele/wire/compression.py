"""Compression of a batch's records: none, gzip, snappy (xerial or raw), lz4, zstd.

A body may decompress to at most ``DECOMPRESSED_BYTES_MAX`` bytes, checked before the
allocation, so that a small hostile batch cannot exhaust memory. ``decompressed_size_max``
tells from the framing how large a body can become, so that a reader can refuse or wait
before anything is decompressed.
"""

from __future__ import annotations

import struct
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


def decompressed_size_max(codec: Compression, body: bytes | memoryview) -> int:
    """Return an upper bound of the decompressed size of a body.

    Nothing is decompressed: it comes from the framing: the sizes of the blocks, or the size that the body states. It exceeds
    the real size by less than a block per frame, 128 KiB or what an LZ4 frame declares. A body whose
    framing cannot be read may have ``DECOMPRESSED_BYTES_MAX``, which is never exceeded.
    """
    try:
        match codec:
            case Compression.NONE:
                return len(body)
            case Compression.GZIP:
                # The trailer of a member ends with the size of its content (RFC 1952).
                size = _GZIP_SIZE.unpack_from(body, len(body) - _GZIP_SIZE.size)[0]
            case Compression.SNAPPY:
                size = _snappy_size(body)
            case Compression.LZ4:
                size = _lz4_size_max(body)
            case _:
                size = _zstd_size_max(body)
    except (struct.error, IndexError, cramjam.DecompressionError):
        return DECOMPRESSED_BYTES_MAX
    return min(size, DECOMPRESSED_BYTES_MAX)


def decompress(codec: Compression, body: bytes) -> bytes:
    """Decompress the body of a batch.

    Raises:
        DecompressionError: it is invalid for its codec, exceeds the limit, or is larger than its
            framing states.
    """
    return body if codec is Compression.NONE else bytes(decompress_after(bytearray(), codec, body))


def decompress_after(head: bytearray, codec: Compression, body: bytes) -> bytearray:
    """Return ``head`` followed by the decompressed body. Raises as ``decompress``."""
    limit = decompressed_size_max(codec, body)
    try:
        match codec:
            case Compression.NONE:
                return head + body
            case Compression.GZIP:
                gz = zlib.decompressobj(wbits=31)
                # A limit of 0 would be none.
                out = gz.decompress(body, limit or 1)
                if gz.unconsumed_tail or not gz.eof:
                    raise DecompressionError(
                        f"gzip body is truncated, or has more than {_MAX_TEXT}, or more than its trailer states"
                    )
                return head + out
            case Compression.SNAPPY:
                return head + _snappy(body, DECOMPRESSED_BYTES_MAX)
            case _:
                codec_module = cramjam.lz4 if codec is Compression.LZ4 else cramjam.zstd
                start = len(head)
                # Pages that are never written to cost nothing.
                buffer = bytearray(start + limit)
                buffer[:start] = head
                with memoryview(buffer) as view, view[start:] as rest:
                    size = codec_module.decompress_into(body, rest)
                del buffer[start + size :]
                return buffer
    except (zlib.error, cramjam.DecompressionError) as error:
        raise DecompressionError(
            f"{codec.name.lower()} body cannot be decompressed into {_MAX_TEXT}: {error}"
        ) from error


_GZIP_SIZE = struct.Struct("<I")
_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_LZ4_MAGIC = 0x184D2204
_LZ4_HAS_BLOCK_CHECKSUM, _LZ4_HAS_CONTENT_CHECKSUM, _LZ4_HAS_DICTIONARY = 0x10, 0x04, 0x01
_LZ4_RATIO_MAX = 255
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE = 0, 1


def _snappy_size(body: bytes | memoryview) -> int:
    if bytes(body[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return int(cramjam.snappy.decompress_raw_len(bytes(body[:16])))
    total, position = 0, len(_XERIAL_HEADER)
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        position += 4
        total += int(cramjam.snappy.decompress_raw_len(bytes(body[position : position + min(size, 16)])))
        position += size
    return total


def _lz4_size_max(body: bytes | memoryview) -> int:
    """Add up the blocks of LZ4 frames (lz4_Frame_format.md)."""
    total = position = 0
    while position < len(body):
        magic = int.from_bytes(body[position : position + 4], "little")
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(body[position + 4 : position + 8], "little")
            continue
        if magic != _LZ4_MAGIC:
            raise IndexError
        flags, descriptor = body[position + 4], body[position + 5]
        block_bytes = 1 << (8 + 2 * (descriptor >> 4 & 7))
        position += 7
        position += 8 if flags & _LZ4_HAS_CONTENT_SIZE else 0
        position += 4 if flags & _LZ4_HAS_DICTIONARY else 0
        while length := struct.unpack_from("<I", body, position)[0]:
            size = length & ~_LZ4_STORED
            total += size if length & _LZ4_STORED else min(block_bytes, size * _LZ4_RATIO_MAX)
            position += 4 + size + (4 if flags & _LZ4_HAS_BLOCK_CHECKSUM else 0)
        position += 4 + (4 if flags & _LZ4_HAS_CONTENT_CHECKSUM else 0)
    return total


def _zstd_size_max(body: bytes | memoryview) -> int:
    """Add up the blocks of Zstandard frames (RFC 8878, section 3.1.1)."""
    total = position = 0
    while position < len(body):
        magic = struct.unpack_from("<I", body, position)[0]
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position += 8 + struct.unpack_from("<I", body, position + 4)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise IndexError
        descriptor = body[position + 4]
        is_single, dictionary_bytes = bool(descriptor & 0x20), (0, 1, 2, 4)[descriptor & 3]
        content_bytes = (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
        position += 5 + (0 if is_single else 1) + dictionary_bytes + content_bytes
        has_checksum = bool(descriptor & 4)
        is_last = False
        while not is_last:
            head = body[position] | body[position + 1] << 8 | body[position + 2] << 16
            is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            total += size if kind in (_ZSTD_RAW, _ZSTD_RLE) else _ZSTD_BLOCK_BYTES
            position += 3 + (1 if kind == _ZSTD_RLE else size)
        position += 4 if has_checksum else 0
    return total


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
