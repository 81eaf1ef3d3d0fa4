"""Arithmetic on offsets: their JSON, what may be taken of them, and how they are split among tasks. No I/O.

Offsets stand in checkpoints as ``{"topic": {"0": 23}}``, an offset being the next to
be read, as those of spark-sql-kafka. Topics and partitions are always in one order:
Spark compares offsets by their text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from ..records import TopicPartition

Offsets = dict[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]


class OffsetsError(ValueError):
    """Text that is not what this source wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records of one partition from ``start`` on and before ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    found: OffsetsJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(document: Mapping[str, Any]) -> Offsets:
    """Raises ``OffsetsError``: not made by ``to_json``."""
    found: Offsets = {}
    try:
        for topic, partitions in document.items():
            for partition, offset in cast("Mapping[str, Any]", partitions).items():
                found[TopicPartition(topic, int(partition))] = int(offset)
    except (AttributeError, TypeError, ValueError) as error:
        raise OffsetsError(
            f'{str(document)[:200]!r} is not an offset of this source, which is {{"topic": {{"0": 23}}}}: '
            "is the checkpoint that of another source?"
        ) from error
    return found


def ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """What lies between, partition by partition; empty ranges are left out."""
    return [
        OffsetRange(topic=name.topic, partition=name.partition, start=start[name], end=offset)
        for name, offset in sorted(end.items())
        if name in start and offset > start[name]
    ]


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], records_max: int
) -> Offsets:
    """``end``, drawn near to ``start`` so that at most ``records_max`` records lie between (at least 1).

    Each partition gives in proportion to what it has, so that none starves, and the
    rest of the division goes to the first of them.
    """
    sizes = {name: max(0, offset - start[name]) for name, offset in sorted(end.items())}
    total = sum(sizes.values())
    if total <= records_max:
        return dict(end)
    shares = {name: size * records_max // total for name, size in sizes.items()}
    rest = records_max - sum(shares.values())
    for name, size in sizes.items():
        if rest and shares[name] < size:
            shares[name] += 1
            rest -= 1
    return {name: start[name] + shares[name] if sizes[name] else end[name] for name in sizes}


def split(
    whole: Iterable[OffsetRange], *, min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Ranges for the tasks: none larger than the maximum, and about as many as the minimum asks for.

    The same ranges are always split in the same way: a micro-batch that is repeated
    gives each task the rows that it had.
    """
    found = [r for r in whole if r.size > 0]
    if max_records_per_partition is not None:
        most = max_records_per_partition
        found = [part for r in found for part in _parts(r, math.ceil(r.size / most))]
    if min_partitions is not None and min_partitions > len(found):
        total = sum(r.size for r in found)
        found = [part for r in found for part in _parts(r, max(1, round(r.size / total * min_partitions)))]
    return found


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, whole.size)
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [
        OffsetRange(topic=whole.topic, partition=whole.partition, start=start, end=end)
        for start, end in pairwise(edges)
    ]
