"""Convert Kafka's message sets (magic 0 and 1) to and from record batches.

Numbers are big-endian. A set is a sequence of messages without a count::

    offset:8  size:4  crc32:4  magic:1  attributes:1  [timestamp:8]  key length:4  key  value length:4  value
                      └────────────────────────── size ──────────────────────────────────────────────────┘
    size        counts what follows it
    crc32       zlib's, over everything after it
    timestamp   ms since the epoch, in magic 1 only
    length      -1 is null
    attributes  bits 0–2 the codec (0 none, 1 gzip, 2 snappy, 3 lz4), bit 3 in magic 1: log append time

A message with a codec is a *wrapper*: its value is a compressed message set, whose
messages have no codec. The offset of a wrapper is that of its last message. Inside,
offsets are absolute in magic 0 and count from 0 in magic 1 (KIP-31), so there the
offset of a message is ``wrapper offset - last inner offset + inner offset``. With bit
3 the wrapper's timestamp is that of all its messages (KIP-32).

The messages of a valid set fill it exactly, and each has the right CRC. A message with key
``a`` and value ``b`` at offset 0 in magic 0 has these 28 bytes::

    00000000 00000000  00000010  a4ad2011  00  00  00000001 61  00000001 62

LZ4 in magic 0 has a header checksum over the wrong bytes (KAFKA-3160): it includes the
frame's magic number. Both checksums are read; the wrong one is written, as the clients
of that time expect.

Message sets are never stored, and a set that is torn or damaged is refused as a whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stele.wire import record_batch as rb
from stele.wire.compression import (
    DECOMPRESSED_BYTES_MAX,
    Compression,
    DecompressionError,
    compress,
    decompress,
    decompressed_size_max,
)

_SET_HEAD = struct.Struct(">qi")
_MESSAGE_HEAD = struct.Struct(">IBb")
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_CRC_BYTES = 4
# Records that exist as objects at the same time.
_RECORDS_PER_SLICE = 1000
# CRC, magic, attributes, two lengths.
_MESSAGE_BYTES_MIN = 14

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HAS_SIZE = 0x08
_LZ4_HAS_DICTIONARY = 0x01


class InvalidMessageSet(ValueError):
    """The bytes are no message set; ``is_corrupt``: a CRC does not match."""

    def __init__(self, reason: str, *, is_corrupt: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_corrupt = is_corrupt


class UnsupportedCodec(ValueError):
    """A batch is compressed by zstd, which message sets do not have."""


class MessageSetTooLarge(ValueError):
    """The records of one batch would exceed ``DECOMPRESSED_BYTES_MAX`` as messages."""


@dataclass(frozen=True, slots=True)
class _Message:
    offset: int
    magic: int
    codec: Compression
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None


# ── message set → batches ──


def up_convert(message_set: rb.Buffer) -> bytearray:
    """Return batches (RecordBatch v2) with the same records in the same order.

    Adjacent messages of the same codec and magic share a batch. A record of magic 0 has
    no timestamp (-1). Offsets are relative, as in a produce.

    Raises:
        InvalidMessageSet: the set is torn, damaged, empty, nested too deep or too large.
    """
    out = bytearray()
    builder: rb.BatchBuilder | None = None
    kind = (Compression.NONE, 0)
    budget = DECOMPRESSED_BYTES_MAX
    for outer in _messages(memoryview(message_set)):
        if outer.codec is Compression.NONE:
            inner: Iterable[_Message] = (outer,)
        else:
            body = _decompressed(outer, budget)
            budget -= len(body)
            # One message at a time, because as an object it takes many times its bytes.
            inner = _messages(memoryview(body))
        if builder is None or kind != (outer.codec, outer.magic):
            out += builder.build() if builder is not None and builder.count else b""
            kind = (outer.codec, outer.magic)
            builder = rb.BatchBuilder(compression=outer.codec)
        for message in inner:
            if message.codec is not Compression.NONE or message.magic != outer.magic:
                raise InvalidMessageSet(
                    "a compressed message holds one that is compressed, or of another magic"
                )
            timestamp_ms = outer.timestamp_ms if outer.is_log_append_time else message.timestamp_ms
            builder.append(timestamp_ms=timestamp_ms, key=message.key, value=message.value)
    if builder is not None and builder.count:
        out += builder.build()
    if not out:
        raise InvalidMessageSet("there is no message")
    return out


def unpacked_size_max(message_set: rb.Buffer) -> int:
    """Return an upper bound of the bytes that ``up_convert`` unpacks.

    It comes from the framing alone; 0 if no message is compressed. What is not valid is found later.
    """
    data = memoryview(message_set)
    total = position = 0
    try:
        while position < len(data):
            _, size = _SET_HEAD.unpack_from(data, position)
            start = position + _SET_HEAD.size
            _, magic, attributes = _MESSAGE_HEAD.unpack_from(data, start)
            codec = attributes & _CODEC_MASK
            if codec:
                at = start + _MESSAGE_HEAD.size + (_TIMESTAMP.size if magic == 1 else 0)
                (key_length,) = _LENGTH.unpack_from(data, at)
                value = data[at + 2 * _LENGTH.size + max(0, key_length) : start + size]
                total += decompressed_size_max(Compression(codec), value)
            if size < _MESSAGE_BYTES_MIN:
                break
            position = start + size
    except (struct.error, ValueError):
        return max(total, 1)
    return min(total, DECOMPRESSED_BYTES_MAX)


def _messages(data: memoryview) -> Iterator[_Message]:
    position, end = 0, len(data)
    while position < end:
        if end - position < _SET_HEAD.size:
            raise InvalidMessageSet(f"{end - position} bytes are left, too few for a message")
        offset, size = _SET_HEAD.unpack_from(data, position)
        position += _SET_HEAD.size
        if not _MESSAGE_BYTES_MIN <= size <= end - position:
            raise InvalidMessageSet(f"a message of {size} bytes where {end - position} are left")
        yield _message(offset, data[position : position + size])
        position += size


def _message(offset: int, data: memoryview) -> _Message:
    crc, magic, attributes = _MESSAGE_HEAD.unpack_from(data)
    actual = zlib.crc32(data[_CRC_BYTES:])
    if actual != crc:
        raise InvalidMessageSet(f"CRC-32 is {actual:#010x}, the message says {crc:#010x}", is_corrupt=True)
    if magic > 1:
        raise InvalidMessageSet(f"magic {magic} in a message set; it has 0 or 1")
    codec = attributes & _CODEC_MASK
    if codec > Compression.LZ4:
        raise InvalidMessageSet(f"codec {codec} does not exist in message sets")
    position = _MESSAGE_HEAD.size
    timestamp_ms = rb.NO_TIMESTAMP
    if magic == 1:
        if len(data) < _MESSAGE_BYTES_MIN + _TIMESTAMP.size:
            raise InvalidMessageSet(f"a message of magic 1 in {len(data)} bytes")
        (timestamp_ms,) = _TIMESTAMP.unpack_from(data, position)
        position += _TIMESTAMP.size
    key, position = _bytes(data, position, "key")
    value, position = _bytes(data, position, "value")
    if position != len(data):
        raise InvalidMessageSet(f"{len(data) - position} bytes after the value of a message")
    return _Message(
        offset=offset,
        magic=magic,
        codec=Compression(codec),
        timestamp_ms=max(timestamp_ms, rb.NO_TIMESTAMP),
        is_log_append_time=magic == 1 and bool(attributes & _LOG_APPEND_TIME),
        key=key,
        value=value,
    )


def _bytes(data: memoryview, position: int, what: str) -> tuple[bytes | None, int]:
    if len(data) - position < _LENGTH.size:
        raise InvalidMessageSet(f"the message ends before its {what}")
    (length,) = _LENGTH.unpack_from(data, position)
    position += _LENGTH.size
    if length == -1:
        return None, position
    if not 0 <= length <= len(data) - position:
        raise InvalidMessageSet(f"a {what} of {length} bytes where {len(data) - position} are left")
    return bytes(data[position : position + length]), position + length


def _decompressed(outer: _Message, budget: int) -> bytes:
    if outer.value is None:
        raise InvalidMessageSet("a compressed message without a value")
    body = outer.value
    if outer.codec is Compression.LZ4 and outer.magic == 0:
        body = with_lz4_checksum(body, over_magic=False)
    try:
        plain = decompress(outer.codec, body)
    except DecompressionError as error:
        raise InvalidMessageSet(str(error)) from error
    if len(plain) > budget:
        raise InvalidMessageSet(f"more than {DECOMPRESSED_BYTES_MAX} bytes when decompressed")
    return plain


# ── batches → message set ──


def down_convert(batches: rb.Buffer, *, magic: int, from_offset: int, max_bytes: int) -> bytes:
    """Return the records from ``from_offset`` on as messages of ``magic`` 0 or 1.

    The messages have about ``max_bytes``, but at least one batch is converted. Headers
    are lost, and in magic 0 timestamps.

    Raises:
        UnsupportedCodec: a batch is compressed by zstd.
        MessageSetTooLarge: a batch has too many records.
        rb.CorruptBatchError: stored bytes do not parse.
    """
    out = bytearray()
    for header in rb.iter_headers(batches):
        if header.is_control or header.last_offset < from_offset:
            continue
        if out and len(out) + header.size > max_bytes:
            break
        if header.compression == Compression.ZSTD:
            raise UnsupportedCodec(
                f"the batch at offset {header.base_offset} is compressed by zstd, which this version of Fetch "
                "cannot express; use a client that fetches with version 10 or newer"
            )
        out += _as_messages(batches, header, magic=magic, from_offset=from_offset)
    return bytes(out)


def _as_messages(batches: rb.Buffer, header: rb.BatchHeader, *, magic: int, from_offset: int) -> bytes:
    codec = Compression(header.compression)
    is_relative = magic == 1 and codec is not Compression.NONE
    clock = _LOG_APPEND_TIME if header.is_log_append_time else 0
    messages = bytearray()
    start, last = 0, -1
    # A small batch may hold millions of records, and a decoded one takes fifty times its bytes.
    for records in rb.decode_slices(batches, header, _RECORDS_PER_SLICE):
        for record in records:
            if record.offset < from_offset:
                continue
            if is_relative and not messages:
                start = record.offset
            last = record.offset
            messages += _encoded(last - start, magic, clock, record.timestamp, record.key, record.value)
        if len(messages) > DECOMPRESSED_BYTES_MAX:
            raise MessageSetTooLarge(
                f"the records of the batch at offset {header.base_offset} are more than "
                f"{DECOMPRESSED_BYTES_MAX} bytes as messages; use a client that fetches with version 4 or newer"
            )
    if codec is Compression.NONE or not messages:
        return bytes(messages)
    body = compress(codec, bytes(messages))
    if codec is Compression.LZ4 and magic == 0:
        body = with_lz4_checksum(body, over_magic=True)
    return _encoded(last, magic, clock | codec, header.max_timestamp, None, body)


def _encoded(
    offset: int, magic: int, attributes: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    parts = [bytes((magic, attributes if magic == 1 else attributes & _CODEC_MASK))]
    if magic == 1:
        parts.append(_TIMESTAMP.pack(timestamp_ms))
    for field in (key, value):
        parts.append(_LENGTH.pack(-1 if field is None else len(field)))
        parts.append(field or b"")
    body = b"".join(parts)
    return _SET_HEAD.pack(offset, _CRC_BYTES + len(body)) + _CRC.pack(zlib.crc32(body)) + body


# ── KAFKA-3160 ──


def with_lz4_checksum(frame: bytes, *, over_magic: bool) -> bytes:
    """Return ``frame`` with the header checksum of its descriptor.

    With ``over_magic`` the checksum wrongly includes the magic number.
    """
    if len(frame) < 7 or not frame.startswith(_LZ4_MAGIC):
        return frame
    flags = frame[4]
    end = 6 + (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & _LZ4_HAS_DICTIONARY else 0)
    if len(frame) <= end:
        return frame
    checksum = _xxh32(frame[0 if over_magic else 4 : end]) >> 8 & 0xFF
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _xxh32(data: bytes) -> int:
    """Return the 32-bit xxHash with seed 0.

    https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
    """
    position, end = 0, len(data)
    if end >= 16:
        lanes = [(_PRIME_1 + _PRIME_2) & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK]
        while end - position >= 16:
            for lane, word in enumerate(struct.unpack_from("<4I", data, position)):
                lanes[lane] = _rotated((lanes[lane] + word * _PRIME_2) & _MASK, 13) * _PRIME_1 & _MASK
            position += 16
        total = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = _PRIME_5
    total = (total + end) & _MASK
    while end - position >= 4:
        (word,) = struct.unpack_from("<I", data, position)
        total = _rotated((total + word * _PRIME_3) & _MASK, 17) * _PRIME_4 & _MASK
        position += 4
    for byte in data[position:]:
        total = _rotated((total + byte * _PRIME_5) & _MASK, 11) * _PRIME_1 & _MASK
    total = (total ^ total >> 15) * _PRIME_2 & _MASK
    total = (total ^ total >> 13) * _PRIME_3 & _MASK
    return total ^ total >> 16
