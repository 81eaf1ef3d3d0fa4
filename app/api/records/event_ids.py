"""Encode the event ids of a live tail: the last offset of each partition, and of which topic.

``0:41,1:7@b4f0c1de`` for few partitions, with the beginning of the topic's id. For many, ``z`` and the base64 of the compressed
offsets of all partitions, about three bytes per partition, so that an id always
fits into a header.
"""

from __future__ import annotations

import base64
import binascii
import sys
import zlib
from array import array
from collections.abc import Mapping
from uuid import UUID

from stele.wire.notation import parse_whole

from ...broker.topics import Topic
from ...errors import InvalidRequest, TopicRecreated
from ..requests import INT32_MAX

# With more partitions an id would be larger than most records, so not every event has one.
PLAIN_PARTITIONS_MAX = 64
_PACKED = "z"
_TOPIC = "@"


def event_id(seen: Mapping[int, int], topic_id: UUID) -> bytes:
    """Encode ``seen``, the last offset sent per partition; partitions without one are absent."""
    return b"%s%s%s" % (_offsets(seen), _TOPIC.encode(), _mark(topic_id).encode())


def _mark(topic_id: UUID) -> str:
    return topic_id.hex[:8]


def _offsets(seen: Mapping[int, int]) -> bytes:
    if len(seen) <= PLAIN_PARTITIONS_MAX:
        return ",".join(f"{partition}:{offset}" for partition, offset in seen.items()).encode()
    offsets = array("Q", bytes(8 * (max(seen) + 1)))
    for partition, offset in seen.items():
        offsets[partition] = offset + 1
    if sys.byteorder == "big":
        offsets.byteswap()
    raw = offsets.tobytes()
    # The high bytes of all offsets are similar, and compress well when they are adjacent.
    planes = b"".join(raw[byte::8] for byte in range(8))
    return _PACKED.encode() + base64.urlsafe_b64encode(zlib.compress(planes, 1)).rstrip(b"=")


def parse_event_id(text: str, topic: Topic) -> dict[int, int]:
    """Decode an id of a topic: the last offset per partition.

    Ids of earlier releases do not say of which topic they are.

    Raises:
        InvalidRequest: ``text`` is not such an id.
        TopicRecreated: it is one of an earlier topic of this name.
    """
    partitions = topic.partitions
    offsets, has_mark, mark = text.partition(_TOPIC)
    if has_mark and mark != _mark(topic.topic_id):
        raise TopicRecreated(topic.name, f"{mark[:8]}…")
    seen = _unpacked(offsets, partitions) if offsets.startswith(_PACKED) else _parsed(offsets)
    if seen is None or any(partition >= partitions for partition in seen):
        # A topic that was made again may have fewer partitions.
        raise InvalidRequest(f"Last-Event-ID is {text[:100]!r}; send an id of this stream, unchanged")
    return seen


def _parsed(text: str) -> dict[int, int] | None:
    seen: dict[int, int] = {}
    for part in text.split(","):
        name, _, offset = part.partition(":")
        number, last = parse_whole(name, INT32_MAX), parse_whole(offset)
        if number is None or last is None:
            return None
        seen[number] = last
    return seen


def _unpacked(text: str, partitions: int) -> dict[int, int] | None:
    try:
        packed = base64.b64decode(text[1:] + "=" * (-(len(text) - 1) % 4), altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj()
        planes = unpacking.decompress(packed, 8 * partitions)
    except (binascii.Error, ValueError, zlib.error):
        return None
    if not unpacking.eof or not planes or len(planes) % 8:
        return None
    count = len(planes) // 8
    raw = bytearray(len(planes))
    for byte in range(8):
        raw[byte::8] = planes[byte * count : (byte + 1) * count]
    offsets = array("Q", bytes(raw))
    if sys.byteorder == "big":
        offsets.byteswap()
    return {partition: offset - 1 for partition, offset in enumerate(offsets) if offset}
