"""What a consumer says about itself when it joins: read only as far as the names of its topics.

The bytes (Kafka's ``ConsumerProtocolSubscription``, all versions begin like this)::

    version   int16
    topics    int32 count, then for each: int16 size, UTF-8 bytes
    …         user data and more, by version

Other assignors than those of Kafka's own clients may put anything there.
"""

from __future__ import annotations

import struct

_VERSION_AND_COUNT = struct.Struct(">hi")
_SIZE = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None if these are not the bytes of a subscription."""
    topics: set[str] = set()
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or count < -1:
            return None
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            (size,) = _SIZE.unpack_from(metadata, position)
            position += _SIZE.size
            if size < 0 or position + size > len(metadata):
                return None
            topics.add(metadata[position : position + size].decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
