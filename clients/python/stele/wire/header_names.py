"""Make header names readable that are not UTF-8.

Kafka clients can write such names: a name is text by the protocol, and no broker looks. One of them must not make the
records beside it unreadable. Kafka's Java client replaces what it cannot decode, and so does this module, by rewriting
the batch; only a batch that the codec has refused comes here.
"""

from __future__ import annotations

# Bytes of the longest varint.
_VARINT_BYTES_MAX = 10


def with_readable_names(batch: bytes, position: int, record_count: int) -> bytes:
    """Return the batch with U+FFFD for what is no UTF-8 in the names of headers.

    Its records begin at ``position`` and are not compressed. Its length and its CRC stay those of before.

    Raises:
        IndexError, ValueError: its records do not parse.
    """
    readable = bytearray(batch[:position])
    at = position
    for _ in range(record_count):
        length, at = _varint(batch, at)
        record = _with_readable_names(batch[at : at + length])
        readable += _encoded(len(record)) + record
        at += length
    return bytes(readable)


def _with_readable_names(record: bytes) -> bytes:
    # After the attributes: the differences of timestamp and offset, then key and value with their lengths.
    _, at = _varint(record, 1)
    _, at = _varint(record, at)
    for _ in range(2):
        length, at = _varint(record, at)
        at += max(length, 0)
    count, at = _varint(record, at)
    readable = bytearray(record[:at])
    for _ in range(count):
        length, at = _varint(record, at)
        name = record[at : at + length].decode(errors="replace").encode()
        begin = at + length
        length, at = _varint(record, begin)
        at += max(length, 0)
        readable += _encoded(len(name)) + name + record[begin:at]
    return bytes(readable)


def _varint(buffer: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number, and the position after it."""
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = buffer[at + index]
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value >> 1 ^ -(value & 1), at + index + 1
    raise ValueError("a number is longer than any can be")


def _encoded(number: int) -> bytes:
    """Return a number that is not negative as a zigzag varint."""
    left, encoded = number << 1, bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)
