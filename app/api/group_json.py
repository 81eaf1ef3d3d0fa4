"""Check and encode the parts that several group routes share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import InvalidRequest
from ..groups.base.consumer_protocol import AssignedPartition
from ..groups.leases.lease import LeasedPartition
from .requests import INT64_MAX


def by_topic(parts: Iterable[AssignedPartition]) -> list[dict[str, Any]]:
    """Encode partitions as one object per topic, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(parts):
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]


def leased_part(part: LeasedPartition) -> dict[str, Any]:
    """Encode the records of one partition that a lease holds."""
    return {
        "topic": part.topic,
        "partition": part.partition,
        "offset": part.offset,
        "next_offset": part.next_offset,
        "deliveries": part.deliveries,
    }


def check_offset(offset: int) -> None:
    """Raise ``InvalidRequest`` unless ``offset`` can be committed."""
    if not 0 <= offset <= INT64_MAX:
        raise InvalidRequest(f"offset is {offset}; give the offset of the next record to read, 0 or more")
