"""The bytes in which Kafka's consumers subscribe and are assigned.

Subscription (Kafka's ``ConsumerProtocolSubscription``, all versions begin like this)::

    version   int16
    topics    int32 count, then per topic: int16 size, UTF-8 bytes
    …         user data and more, by version

Assignment (``ConsumerProtocolAssignment``)::

    version   int16
    topics    int32 count, then per topic: int16 size, UTF-8 bytes, int32 count, int32 per partition
    …         user data

Assignors other than those of Kafka's own clients may use any bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

# The protocol type of consumers. Their metadata names their topics.
CONSUMER = "consumer"

_VERSION_AND_COUNT = struct.Struct(">hi")
_SIZE = struct.Struct(">h")
_COUNT = struct.Struct(">i")
_NO_USER_DATA = _COUNT.pack(-1)
# A topic without partitions takes this much, which bounds a valid count by the bytes received.
_ASSIGNED_TOPIC_BYTES_MIN = _SIZE.size + _COUNT.size


class AssignedPartition(NamedTuple):
    """A partition of a topic that a member may read."""

    topic: str
    partition: int


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode a subscription: version 0, without user data."""
    names = sorted(topics)
    return b"".join((_VERSION_AND_COUNT.pack(0, len(names)), *(_name(name) for name in names), _NO_USER_DATA))


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription; None if the bytes are not one."""
    topics: set[str] = set()
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or count < -1:
            return None
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            name, position = _read_name(metadata, position)
            topics.add(name)
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def encode_assignment(assigned: Iterable[AssignedPartition]) -> bytes:
    """Encode an assignment: version 0, without user data, topics and partitions ascending."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(assigned):
        partitions.setdefault(topic, []).append(partition)
    parts = [_VERSION_AND_COUNT.pack(0, len(partitions))]
    for topic, numbers in partitions.items():
        parts += (_name(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join((*parts, _NO_USER_DATA))


@lru_cache(maxsize=4096)
def assigned_partitions(assignment: bytes) -> frozenset[AssignedPartition]:
    """Return the partitions of an assignment; none if the bytes are not one."""
    assigned: set[AssignedPartition] = set()
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(assignment)
        if version < 0 or count * _ASSIGNED_TOPIC_BYTES_MIN > len(assignment):
            return frozenset()
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            topic, position = _read_name(assignment, position)
            (partitions,) = _COUNT.unpack_from(assignment, position)
            position += _COUNT.size
            if partitions < 0 or partitions * 4 > len(assignment) - position:
                return frozenset()
            numbers = struct.unpack_from(f">{partitions}i", assignment, position)
            assigned.update(AssignedPartition(topic, number) for number in numbers)
            position += 4 * partitions
    except (struct.error, ValueError):
        return frozenset()
    return frozenset(assigned)


def _name(topic: str) -> bytes:
    raw = topic.encode()
    return _SIZE.pack(len(raw)) + raw


def _read_name(data: bytes, position: int) -> tuple[str, int]:
    """Return a string and the position after it. Raises ``ValueError`` or ``struct.error``."""
    (size,) = _SIZE.unpack_from(data, position)
    start = position + _SIZE.size
    if size < 0 or start + size > len(data):
        raise ValueError(f"a string of {size} bytes does not fit")
    return data[start : start + size].decode(), start + size
