"""The ids of a live tail: the offset of the last record of each partition, as text that fits into a header.

``0:41,1:7`` for few partitions. For many, ``z`` and base64 of the compressed
offsets of all of them: some three bytes for a partition.
"""

from __future__ import annotations

import base64
import binascii
import sys
import zlib
from array import array
from collections.abc import Mapping

from ..errors import InvalidRequest

# Of more, an id would be larger than most records: then it does not come with each of them.
PLAIN_PARTITIONS_MAX = 64
_PACKED = "z"


def event_id(seen: Mapping[int, int]) -> bytes:
    """``seen`` is the last offset by partition; a partition that nothing was seen of is left out."""
    if len(seen) <= PLAIN_PARTITIONS_MAX:
        return ",".join(f"{partition}:{offset}" for partition, offset in seen.items()).encode()
    offsets = array("Q", bytes(8 * (max(seen) + 1)))
    for partition, offset in seen.items():
        offsets[partition] = offset + 1
    if sys.byteorder == "big":
        offsets.byteswap()
    raw = offsets.tobytes()
    # The high bytes are alike, and together they take no room.
    planes = b"".join(raw[place::8] for place in range(8))
    return _PACKED.encode() + base64.urlsafe_b64encode(zlib.compress(planes, 1)).rstrip(b"=")


def parse_event_id(text: str, *, partitions: int) -> dict[int, int]:
    """What ``event_id`` was made of, for a topic of so many partitions. Raises ``InvalidRequest``."""
    found = _unpacked(text, partitions) if text.startswith(_PACKED) else _parsed(text)
    if found is None:
        raise InvalidRequest(f"Last-Event-ID is {text[:100]!r}; send back an id of this stream as it was")
    return found


def _parsed(text: str) -> dict[int, int] | None:
    seen: dict[int, int] = {}
    for part in text.split(","):
        name, _, offset = part.partition(":")
        if not (
            part.isascii() and name.isdigit() and offset.isdigit() and len(name) < 11 and len(offset) < 20
        ):
            return None
        seen[int(name)] = int(offset)
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
    for place in range(8):
        raw[place::8] = planes[place * count : (place + 1) * count]
    offsets = array("Q", bytes(raw))
    if sys.byteorder == "big":
        offsets.byteswap()
    return {partition: offset - 1 for partition, offset in enumerate(offsets) if offset}
