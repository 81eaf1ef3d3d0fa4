"""Check and encode the parts that several group routes share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypedDict

from ..errors import InvalidRequest
from ..groups.base.consumer_protocol import AssignedPartition
from ..groups.leases.lease import LeasedPartition
from .records.json_types import InPartition
from .requests import INT32_MAX, INT64_MAX
from .schemas import Shown, one_of

PollStart = Annotated[str, one_of("PollStart", "earliest", "latest")]
Topics = Annotated[list[str], Shown(minItems=1)]
Generation = Annotated[int, Shown(minimum=0, maximum=INT32_MAX)]
Offset = Annotated[int, Shown(minimum=0)]
LeaseToken = Annotated[str, Shown("the lease returned by the poll")]


class TopicPartitions(TypedDict):
    topic: str
    partitions: list[int]


class LeasedPartitionJson(InPartition):
    offset: int
    next_offset: int
    deliveries: int


def by_topic(parts: Iterable[AssignedPartition]) -> list[TopicPartitions]:
    """Encode partitions as one object per topic, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(parts):
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]


def leased_part(part: LeasedPartition) -> LeasedPartitionJson:
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
