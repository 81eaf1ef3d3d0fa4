"""What a restore reads from a bucket, and where it writes that; nothing here does I/O.

A cut comes from a bucket, so it is input: names that lead out of the directory, sizes that do not add up and objects
that no replica has are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from ..segments.segment import LOG_SUFFIX, segment_name
from ..shared.store.object_keys import size_of
from .bucket import KINDS
from .cut import ChunkSpan, CorruptCut, RunSpan, SegmentRuns
from .state import PartitionKey, PartitionReplica, ReplicaState, StoreReplica

# Kafka's rules, which the broker has enforced.
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_PARTITIONS_MAX = 1_000_000
_OFFSET_MAX = 2**63 - 1
_OBJECT = re.compile(rf"[{''.join(KINDS)}]/[0-9a-f-]{{36}}/\d{{12}}\.\d{{1,18}}")


class PlannedFile(NamedTuple):
    """A file of the directory; ``owner`` is the partition or store that it belongs to, for messages."""

    name: str
    owner: str
    size: int


class Piece(NamedTuple):
    """Bytes of an object with their CRC-32C; they are the bytes of ``file`` from ``at`` on."""

    object: str
    position: int
    length: int
    crc: int
    file: PlannedFile
    at: int


class CatalogTopic(NamedTuple):
    """A topic that the catalog of a cut has."""

    topic_id: str
    name: str
    partitions: int


class PlannedPartition(NamedTuple):
    """``segments`` are those with records from the log start on, and ``files`` what they are written to."""

    key: PartitionKey
    directory: str
    replica: PartitionReplica
    segments: Sequence[SegmentRuns]
    files: Sequence[PlannedFile]


class Plan(NamedTuple):
    """Partitions, and the pieces of their segments."""

    partitions: Sequence[PlannedPartition]
    pieces: Sequence[Piece]

    @property
    def size(self) -> int:
        return sum(piece.length for piece in self.pieces)


def plan_stores(state: ReplicaState, known: Collection[str]) -> list[tuple[PlannedFile, list[Piece]]]:
    """Return the files of the stores ``known``, all of which a cut has, and their pieces.

    Raises:
        CorruptCut: the cut cannot be what a broker has written.
    """
    planned: list[tuple[PlannedFile, list[Piece]]] = []
    for name in known:
        store = state.stores.get(name)
        if store is None:
            raise CorruptCut(f"the cut has no {name}")
        planned.append(_plan_store(name, store))
    return planned


def _plan_store(name: str, store: StoreReplica) -> tuple[PlannedFile, list[Piece]]:
    file = PlannedFile(name, name, store.size)
    pieces: list[Piece] = []
    at = 0
    for chunk in store.chunks:
        if chunk.length != min(store.chunk_bytes, store.size - at):
            raise CorruptCut(f"chunk {chunk.number} of {name} has {chunk.length} bytes")
        pieces.append(_piece(chunk, file, at))
        at += chunk.length
    if at != store.size:
        raise CorruptCut(f"{name} has {at} bytes of {store.size}")
    return file, pieces


def plan_partitions(state: ReplicaState, topics: Iterable[CatalogTopic]) -> Plan:
    """Return what is restored of the partitions of ``topics``.

    Others are those of topics that were being deleted.

    Raises:
        CorruptCut: the cut cannot be what a broker has written.
    """
    by_id = {topic.topic_id: topic for topic in topics}
    directories: set[str] = set()
    partitions: list[PlannedPartition] = []
    pieces: list[Piece] = []
    for key, replica in state.partitions.items():
        topic = by_id.get(key.topic_id)
        if topic is None:
            continue
        if replica.topic != topic.name or not 0 <= key.partition < min(topic.partitions, _PARTITIONS_MAX):
            raise CorruptCut(
                f"partition {key.partition} of topic {replica.topic!r} is not one of topic {topic.name!r}"
            )
        if _TOPIC.fullmatch(topic.name) is None or not _is_uuid(key.topic_id):
            raise CorruptCut(f"{topic.name!r} is no name of a topic")
        if not (0 <= replica.log_start_offset <= _OFFSET_MAX and 0 <= replica.holes_until <= _OFFSET_MAX):
            raise CorruptCut(f"topic {topic.name!r} begins at offset {replica.log_start_offset}")
        directory = f"{topic.name}-{key.partition}"
        if directory in directories:
            raise CorruptCut(f"two partitions are called {directory}")
        directories.add(directory)
        segments = _needed_segments(replica)
        files = _plan_segments(directory, segments, pieces)
        partitions.append(PlannedPartition(key, directory, replica, segments, files))
    return Plan(partitions, pieces)


def _needed_segments(replica: PartitionReplica) -> Sequence[SegmentRuns]:
    """Leave out what was deleted already, as a start of the broker does."""
    end = 0
    for segment in replica.segments:
        if not end <= segment.base_offset <= segment.next_offset <= _OFFSET_MAX:
            raise CorruptCut(f"the segments of topic {replica.topic!r} do not follow each other")
        end = max(segment.base_offset + 1, segment.next_offset)
    first = 0
    while first + 1 < len(replica.segments) and (
        replica.segments[first + 1].base_offset <= replica.log_start_offset
    ):
        first += 1
    return replica.segments[first:]


def _plan_segments(directory: str, segments: Iterable[SegmentRuns], pieces: list[Piece]) -> list[PlannedFile]:
    return [_plan_segment(directory, segment, pieces) for segment in segments]


def _plan_segment(directory: str, segment: SegmentRuns, pieces: list[Piece]) -> PlannedFile:
    name = f"{directory}/{segment_name(segment.base_offset)}{LOG_SUFFIX}"
    file = PlannedFile(name, directory, segment.size)
    at = 0
    for run in segment.runs:
        pieces.append(_piece(run, file, at))
        at += run.length
    return file


def _piece(span: RunSpan | ChunkSpan, file: PlannedFile, at: int) -> Piece:
    key = span.object
    if _OBJECT.fullmatch(key) is None:
        raise CorruptCut(f"{key!r} of {file.owner} is no object of a replica")
    if span.position < 0 or span.length <= 0 or span.position + span.length > size_of(key):
        raise CorruptCut(
            f"{key} of {file.owner} has no {span.length} bytes from byte {span.position} on: it is shorter"
        )
    return Piece(key, span.position, span.length, span.crc, file, at)


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
