"""How a key or value names the schema that it was encoded with.

Bytes, all numbers big-endian:

=========  ==========================================================================
version 0  before the payload: ``[0x00][id:4][payload]``
version 1  in a header (``KEY_HEADER``, ``VALUE_HEADER``): ``[0x01][guid:16]``; the
           key or value is the payload alone
=========  ==========================================================================

For Protobuf, *message indexes* say which message of the schema the payload is: the path
from the file through nested messages, as zigzag varints, the count first. They precede
the payload in version 0, and follow the GUID in version 1. The path ``(0,)``, the first
message of the file, is the single byte 0.

A null key or value has no frame.
"""

from __future__ import annotations

import uuid

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"

_ID_VERSION = 0
_GUID_VERSION = 1
_PREFIX_BYTES = 5
_HEADER_BYTES = 17
FIRST_MESSAGE = (0,)
# Messages are hardly nested deeper than five; this bounds what a hostile count makes.
INDEXES_MAX = 100
_INDEX_MAX = 2**31 - 1
_VARINT_BYTES_MAX = 5


class NotFramed(ValueError):
    """Bytes that do not begin with a frame; the message says why."""


def join(schema_id: int, payload: bytes) -> bytes:
    """Return the payload after the prefix of version 0."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def split(data: bytes) -> tuple[int, bytes]:
    """Return the id of the schema and the payload of a key or value of version 0.

    Raises:
        NotFramed: The prefix is missing or cut off.
    """
    if len(data) < _PREFIX_BYTES:
        raise NotFramed(f"{len(data)} bytes are fewer than the {_PREFIX_BYTES} of the prefix")
    if data[0] != _ID_VERSION:
        raise NotFramed(f"the first byte is 0x{data[0]:02x}, not 0x00")
    return int.from_bytes(data[1:_PREFIX_BYTES], "big"), data[_PREFIX_BYTES:]


def join_header(guid: uuid.UUID, indexes: tuple[int, ...] | None = None) -> bytes:
    """Return the value of the header of version 1; ``indexes`` is for Protobuf."""
    return b"\1" + guid.bytes + (b"" if indexes is None else join_indexes(indexes, b""))


def split_header(header: bytes) -> tuple[uuid.UUID, bytes]:
    """Return the GUID of the schema, and the bytes after it: the message indexes of Protobuf, otherwise none.

    Raises:
        NotFramed: The header is cut off or of another version.
    """
    if len(header) < _HEADER_BYTES:
        raise NotFramed(f"{len(header)} bytes are fewer than the {_HEADER_BYTES} of a schema header")
    if header[0] != _GUID_VERSION:
        raise NotFramed(f"the first byte of the schema header is 0x{header[0]:02x}, not 0x01")
    return uuid.UUID(bytes=bytes(header[1:_HEADER_BYTES])), header[_HEADER_BYTES:]


def join_indexes(indexes: tuple[int, ...], payload: bytes) -> bytes:
    """Return the payload after the message indexes of Protobuf."""
    if indexes == FIRST_MESSAGE:
        return b"\0" + payload
    return b"".join(map(_varint, (len(indexes), *indexes))) + payload


def split_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the message indexes of Protobuf, and the payload after them.

    Raises:
        NotFramed: They are cut off, negative or too many.
    """
    if data[:1] == b"\0":
        return FIRST_MESSAGE, data[1:]
    count, position = _read_varint(data, 0)
    if count > INDEXES_MAX:
        raise NotFramed(f"{count} message indexes are more than {INDEXES_MAX}")
    indexes: list[int] = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes.append(index)
    return tuple(indexes), data[position:]


def _varint(number: int) -> bytes:
    """Return a number that is not negative as a zigzag varint."""
    rest = number << 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    zigzag = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if position == len(data):
            raise NotFramed("the message indexes are cut off")
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise NotFramed("a message index of more than 5 bytes")
    if zigzag & 1 or zigzag >> 1 > _INDEX_MAX:
        raise NotFramed("a message index that is negative or exceeds 31 bits")
    return zigzag >> 1, position
