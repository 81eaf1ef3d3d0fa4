"""Arithmetic on offsets: JSON, rate limits, and splits for tasks. No I/O.

A checkpoint has offsets as ``{"topic": {"0": 23}}``, as with spark-sql-kafka; each is the
next offset to read. The first end also has where the query began, as ``{":from:topic": {"0": 5}}``:
Spark does not keep that, and asks again if it repeats the first micro-batch. Topics and partitions are always sorted, because Spark compares the
text of offsets.
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


# No topic has a colon in its name.
_FROM = ":from:"


class OffsetsError(ValueError):
    """The text is not an offset of this source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The records of one partition with ``start`` <= offset < ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    document: OffsetsJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def with_beginning(document: OffsetsJson, beginning: Mapping[TopicPartition, int]) -> OffsetsJson:
    """Return the end of the first micro-batch with where the query began."""
    # Also that of a query without topics.
    began = to_json(beginning) or {"": {}}
    return document | {_FROM + topic: partitions for topic, partitions in began.items()}


def beginning_of(document: Mapping[str, Any]) -> Offsets | None:
    """Return the offsets at which the query began.

    None if ``document`` does not have them. Raises OffsetsError.
    """
    found = {topic.removeprefix(_FROM): held for topic, held in document.items() if topic.startswith(_FROM)}
    return from_json(found) if found else None


def from_json(document: Mapping[str, Any]) -> Offsets:
    """Parse offsets. Raises ``OffsetsError`` if ``to_json`` did not write them."""
    offsets: Offsets = {}
    try:
        for topic, partitions in document.items():
            if topic.startswith(_FROM):
                continue
            for partition, offset in cast("Mapping[str, Any]", partitions).items():
                offsets[TopicPartition(topic, int(partition))] = int(offset)
    except (AttributeError, TypeError, ValueError) as error:
        raise OffsetsError(
            f'{str(document)[:200]!r} is not an offset of this source, which is {{"topic": {{"0": 23}}}}: '
            "is the checkpoint that of another source?"
        ) from error
    return offsets


def ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the non-empty ranges between two positions, per partition."""
    return [
        OffsetRange(topic=name.topic, partition=name.partition, start=start[name], end=offset)
        for name, offset in sorted(end.items())
        if name in start and offset > start[name]
    ]


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], records_max: int
) -> Offsets:
    """Reduce ``end`` so that at most ``records_max`` (>= 1) records are in the range.

    Each partition that has records contributes one, and the rest is in proportion to what they have. If there are
    more such partitions than ``records_max``, they take turns: the next call begins after the last one served,
    which the records that were read before tell.
    """
    sizes = {name: max(0, offset - start[name]) for name, offset in sorted(end.items())}
    total = sum(sizes.values())
    if total <= records_max:
        return dict(end)
    waiting = [name for name, size in sizes.items() if size]
    first = sum(start.values()) % len(waiting)
    in_turn = waiting[first:] + waiting[:first]
    rest = max(0, records_max - len(waiting))
    more = max(1, total - len(waiting))
    shares = {name: 1 + (sizes[name] - 1) * rest // more for name in in_turn[:records_max]}
    rest = records_max - sum(shares.values())
    for name in in_turn:
        if rest and shares.get(name, 0) < sizes[name]:
            shares[name] = shares.get(name, 0) + 1
            rest -= 1
    return {name: start[name] + shares.get(name, 0) if sizes[name] else end[name] for name in sizes}


def split(
    whole: Iterable[OffsetRange], *, min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Split ranges for tasks, by maximum size and approximate minimum number.

    The result depends on the arguments only, so that a repeated micro-batch gives each
    task the same rows.
    """
    parts = [r for r in whole if r.size > 0]
    if max_records_per_partition is not None:
        most = max_records_per_partition
        parts = [part for r in parts for part in _parts(r, math.ceil(r.size / most))]
    if min_partitions is not None and min_partitions > len(parts):
        total = sum(r.size for r in parts)
        parts = [part for r in parts for part in _parts(r, max(1, round(r.size / total * min_partitions)))]
    return parts


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, whole.size)
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [
        OffsetRange(topic=whole.topic, partition=whole.partition, start=start, end=end)
        for start, end in pairwise(edges)
    ]
