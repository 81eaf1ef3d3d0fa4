"""Dead letters: copies of the records that a share group has given up (KIP-1191).

A letter has headers that say where its record is and why it was given up. Its key, value and own
headers are those of the record if the group copies them, and nothing otherwise. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...storage.topic_partition import TopicPartition

_PREFIX = "__dlq.errors."
_TOPIC, _PARTITION, _OFFSET, _GROUP = (_PREFIX + name for name in ("topic", "partition", "offset", "group"))
_DELIVERY_COUNT, _MESSAGE = _PREFIX + "delivery.count", _PREFIX + "message"

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The record that a letter is about."""

    partition: TopicPartition
    offset: int
    group: str


def letter_headers(origin: Origin, *, delivery_count: int, message: str) -> list[Header]:
    """Return the headers that say what a letter is about; all values are text."""
    values = {
        _TOPIC: origin.partition.topic,
        _PARTITION: str(origin.partition.partition),
        _OFFSET: str(origin.offset),
        _GROUP: origin.group,
        _DELIVERY_COUNT: str(delivery_count),
        _MESSAGE: message,
    }
    return [(name, value.encode()) for name, value in values.items()]


def reason(delivery_count: int, *, limit: int) -> str:
    """Return why a record was given up.

    That is not stored. A record that a member rejected at its last delivery counts as delivered too often.
    """
    if delivery_count >= limit:
        return f"delivered {delivery_count} times, which is the limit, and never accepted"
    return "rejected by a consumer"


def own_headers(headers: Sequence[Header]) -> list[Header]:
    """Return the headers of the record itself."""
    return [header for header in headers if not header[0].startswith(_PREFIX)]


def origin_of(headers: Sequence[Header]) -> Origin | None:
    """Return what a letter is about; None if it is not a letter."""
    # Of a letter about a letter, the last headers are its own.
    texts = {name: (value or b"").decode(errors="replace") for name, value in headers}
    try:
        partition = TopicPartition(texts[_TOPIC], int(texts[_PARTITION]))
        return Origin(partition=partition, offset=int(texts[_OFFSET]), group=texts[_GROUP])
    except (KeyError, ValueError):
        return None
