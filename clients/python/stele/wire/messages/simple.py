"""The six messages of ADR-0009, fixed by the author of the protocol; for partition 0.

Two codecs are written by hand. CONSUME_RESPONSE cannot be declared, because in each of
its messages the offset is between the length and the data that it counts.
``encode_produce_responses`` encodes the responses to consecutive produces several times
as fast as one message at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from ..schema import Int32, Int64
from .base import Message, Request, Response, message
from .codec import MessageError, is_short, is_trailed
from .frame_types import MessageType

_HEAD = struct.Struct(">IBBqI")
_FIELDS = struct.Struct(">qi")
_ITEM = struct.Struct(">iq")
_PRODUCED = struct.Struct(">IBBq")


@message(MessageType.CONSUME_REQUEST)
class ConsumeRequest(Request):
    """Read up to ``batch_size`` messages, at least 1, from ``offset`` on."""

    topic: str
    offset: Int64
    batch_size: Int32


@message(MessageType.CONSUME_RESPONSE)
class ConsumeResponse(Response):
    """``next offset:8, [length:4, offset:8, data]*``; the length counts only the data."""

    next_offset: Int64
    messages: Sequence[tuple[int, bytes]]

    def encode(self) -> bytes:
        size = _HEAD.size
        parts = [b""]
        for offset, data in self.messages:
            parts.append(_ITEM.pack(len(data), offset))
            parts.append(data)
            size += _ITEM.size + len(data)
        parts[0] = _HEAD.pack(size, self.TYPE, 1, self.next_offset, len(self.messages))
        return b"".join(parts)

    def encode_parts(self) -> list[bytes | bytearray]:
        return [self.encode()]

    @classmethod
    def make_reader(cls) -> Callable[[bytes, int], Message]:
        return _read_consumed


def _read_consumed(body: bytes, position: int) -> ConsumeResponse:
    end = len(body)
    left = end - position
    if left < _FIELDS.size:
        raise is_short("next offset", 8, left) if left < 8 else is_short("message count", 4, left - 8)
    next_offset, count = _FIELDS.unpack_from(body, position)
    position += _FIELDS.size
    if count < 0 or count * _ITEM.size > end - position:
        raise MessageError(f"message count is {count}, more than the frame can hold")
    messages: list[tuple[int, bytes]] = []
    for _ in range(count):
        left = end - position
        if left < _ITEM.size:
            raise is_short("message length", 4, left) if left < 4 else is_short("message offset", 8, left - 4)
        length, offset = _ITEM.unpack_from(body, position)
        if length < 0:
            raise MessageError(f"message length is negative: {length}")
        start = position + _ITEM.size
        position = start + length
        if position > end:
            raise is_short("message data", length, end - start)
        messages.append((offset, body[start:position]))
    if position != end:
        raise is_trailed(end - position)
    return ConsumeResponse(next_offset=next_offset, messages=messages)


@message(MessageType.PRODUCE_REQUEST)
class ProduceRequest(Request):
    """Append a record without a key, with acks=1."""

    topic: str
    data: bytes


@message(MessageType.PRODUCE_RESPONSE)
class ProduceResponse(Response):
    """The offset of the record."""

    offset: Int64


def encode_produce_responses(first_offset: int, count: int) -> bytes:
    """Return ``count`` PRODUCE ok frames for consecutive offsets, as one buffer."""
    pack, size, response = _PRODUCED.pack, _PRODUCED.size, MessageType.PRODUCE_RESPONSE
    return b"".join([pack(size, response, 1, offset) for offset in range(first_offset, first_offset + count)])


@message(MessageType.FLUSH_REQUEST)
class FlushRequest(Request):
    """Sync everything appended to any topic before this request."""


@message(MessageType.FLUSH_RESPONSE)
class FlushResponse(Response):
    """Everything appended before the request is on disk."""
