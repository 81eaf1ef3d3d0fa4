"""The bytes in which Kafka's consumers subscribe and are assigned.

Subscription (Kafka's ``ConsumerProtocolSubscription``, all versions begin like this)::

    version   int16
    topics    int32 count, then per topic: int16 size, UTF-8 bytes
    user data int32 size, -1 for none; bytes
    owned     from version 1: partitions as in an assignment
    generation  from version 2: int32
    rack      from version 3: int16 size, -1 for none; UTF-8 bytes

Assignment (``ConsumerProtocolAssignment``)::

    version   int16
    topics    int32 count, then per topic: int16 size, UTF-8 bytes, int32 count, int32 per partition
    user data int32 size, -1 for none; bytes

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
# Versions of a subscription.
_FIRST_WITH_OWNED, _FIRST_WITH_RACK = 1, 3
# Of more topics a subscription is not read, which would take more than 10 ms.
_TOPICS_MAX = 20_000
# A topic without partitions takes this much, which bounds a valid count by the bytes received.
_ASSIGNED_TOPIC_BYTES_MIN = _SIZE.size + _COUNT.size


class AssignedPartition(NamedTuple):
    """A partition of a topic that a member may read."""

    topic: str
    partition: int


class Subscription(NamedTuple):
    """The subscription that a consumer sends when it joins.

    ``owned`` is what it still has: nothing, unless its assignor is cooperative.
    """

    topics: frozenset[str]
    owned: frozenset[AssignedPartition]
    rack_id: str | None


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode a subscription: version 0, without user data."""
    names = sorted(topics)
    return b"".join((_VERSION_AND_COUNT.pack(0, len(names)), *(_name(name) for name in names), _NO_USER_DATA))


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription; None if the bytes are not one."""
    try:
        return _read_subscribed(metadata)[1]
    except (struct.error, ValueError):
        return None


def subscription_of(metadata: bytes) -> Subscription | None:
    """Decode a subscription of any version; None if the bytes are not one.

    Some clients name a version and leave the fields out that it added; these are empty then.
    """
    owned: frozenset[AssignedPartition] = frozenset()
    rack_id = None
    try:
        version, topics, position = _read_subscribed(metadata)
        position = _after_user_data(metadata, position)
        if version >= _FIRST_WITH_OWNED and position < len(metadata):
            owned, position = _read_partitions(metadata, position)
        if version >= _FIRST_WITH_RACK and position + _COUNT.size < len(metadata):
            rack_id = _read_rack(metadata, position + _COUNT.size)
    except (struct.error, ValueError):
        return None
    return Subscription(topics, owned, rack_id)


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
    try:
        return _read_assigned(assignment)[0]
    except (struct.error, ValueError):
        return frozenset()


def plain_assignment(assignment: bytes) -> frozenset[AssignedPartition] | None:
    """Return the partitions of an assignment that is nothing but partitions.

    Empty bytes are an assignment of none. Returns None if the bytes are not an assignment, or have
    user data, which mean something to the assignor that wrote them.
    """
    if not assignment:
        return frozenset()
    try:
        assigned, position = _read_assigned(assignment)
        (size,) = _COUNT.unpack_from(assignment, position)
    except (struct.error, ValueError):
        return None
    return assigned if size <= 0 else None


def _read_subscribed(metadata: bytes) -> tuple[int, frozenset[str], int]:
    """Return version, topics and the position after them.

    Raises ``ValueError`` or ``struct.error``.
    """
    version, count = _VERSION_AND_COUNT.unpack_from(metadata)
    if version < 0 or not -1 <= count <= _TOPICS_MAX:
        raise ValueError(f"version {version} with {count} topics")
    topics: set[str] = set()
    position, end, read_size = _VERSION_AND_COUNT.size, len(metadata), _SIZE.unpack_from
    # As ``_read_name``, whose calls would take most of the time.
    for _ in range(count):
        (size,) = read_size(metadata, position)
        start = position + 2
        position = start + size
        if size < 0 or position > end:
            raise ValueError(f"a string of {size} bytes does not fit")
        topics.add(metadata[start:position].decode())
    return version, frozenset(topics), position


def _read_assigned(assignment: bytes) -> tuple[frozenset[AssignedPartition], int]:
    (version,) = _SIZE.unpack_from(assignment)
    if version < 0:
        raise ValueError(f"version {version}")
    return _read_partitions(assignment, _SIZE.size)


def _read_partitions(data: bytes, position: int) -> tuple[frozenset[AssignedPartition], int]:
    """Return partitions and the position after them.

    Raises ``ValueError`` or ``struct.error``.
    """
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    if count * _ASSIGNED_TOPIC_BYTES_MIN > len(data) - position:
        raise ValueError(f"{count} topics do not fit")
    assigned: set[AssignedPartition] = set()
    for _ in range(count):
        topic, position = _read_name(data, position)
        (partitions,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        if partitions < 0 or partitions * 4 > len(data) - position:
            raise ValueError(f"{partitions} partitions do not fit")
        numbers = struct.unpack_from(f">{partitions}i", data, position)
        assigned.update(AssignedPartition(topic, number) for number in numbers)
        position += 4 * partitions
    return frozenset(assigned), position


def _after_user_data(data: bytes, position: int) -> int:
    if position == len(data):
        return position
    (size,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size + max(0, size)
    if position > len(data):
        raise ValueError(f"user data of {size} bytes do not fit")
    return position


def _read_rack(data: bytes, position: int) -> str | None:
    (size,) = _SIZE.unpack_from(data, position)
    return None if size < 0 else _read_name(data, position)[0]


def _name(topic: str) -> bytes:
    raw = topic.encode()
    return _SIZE.pack(len(raw)) + raw


def _read_name(data: bytes, position: int) -> tuple[str, int]:
    """Return a string and the position after it.

    Raises ``ValueError`` or ``struct.error``.
    """
    (size,) = _SIZE.unpack_from(data, position)
    start = position + _SIZE.size
    if size < 0 or start + size > len(data):
        raise ValueError(f"a string of {size} bytes does not fit")
    return data[start : start + size].decode(), start + size
