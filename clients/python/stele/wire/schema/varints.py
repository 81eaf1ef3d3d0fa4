"""Unsigned varints of 32 bits, and sections of tagged fields (KIP-482)."""

from __future__ import annotations

from .fields import Buffer, MalformedMessage

# 32 bits, 7 in each byte.
_VARINT_BYTES_MAX = 5
# Of a header. Those of a message count as its elements: to pass over one takes 1 µs.
TAGGED_FIELDS_MAX = 1000


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the varint at ``position`` and the position after it.

    Raises:
        MalformedMessage: it is longer than 32 bits.
        IndexError: the buffer ends inside it.
    """
    value = shift = 0
    for _ in range(_VARINT_BYTES_MAX):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
    raise MalformedMessage("a varint is longer than 32 bits")


def varint(value: int) -> bytes:
    """Encode ``value`` as an unsigned varint."""
    if value < 0x80:
        return SMALL_VARINTS[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_VARINTS = tuple(bytes((n,)) for n in range(0x80))


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """Return the position after a section of tagged fields.

    Raises:
        MalformedMessage: a size or a varint is invalid, or there are more than ``TAGGED_FIELDS_MAX`` fields.
        IndexError: the buffer ends inside the section.
    """
    count, position = read_varint(buffer, position)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"there are {count} tagged fields, more than {TAGGED_FIELDS_MAX}")
    return skip_fields(buffer, position, count)


def skip_fields(buffer: Buffer, position: int, count: int) -> int:
    """Return the position after ``count`` tagged fields; raises as ``skip_tagged_fields`` does."""
    for _ in range(count):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        if size > len(buffer) - position:
            raise MalformedMessage("a tagged field is longer than the message")
        position += size
    return position
