"""What a chain of cuts adds up to: which bytes of objects are a data directory.

``ReplicaState`` is a fold over cuts. It also counts how often each object is named, so that it knows since when an
object is of use only to earlier cuts. Nothing here does I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..shared.store.object_keys import size_of
from .cut import (
    Change,
    ChunkSpan,
    CorruptCut,
    Cut,
    CutHeader,
    Deleted,
    PartitionChange,
    PartitionGone,
    SegmentRuns,
    StoreChange,
    Unused,
)

# Objects that one line names at most.
_OBJECTS_PER_LINE = 1000


class PartitionKey(NamedTuple):
    topic_id: str
    partition: int


@dataclass(slots=True, kw_only=True)
class PartitionReplica:
    """One partition. ``segments`` ascend; the fields are those of ``PartitionChange``."""

    topic: str
    log_start_offset: int
    holes_until: int
    epochs: tuple[tuple[int, int], ...]
    segments: list[SegmentRuns]

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else self.log_start_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def segment(self, base_offset: int) -> SegmentRuns | None:
        """Return the segment with this base offset."""
        at = bisect_left(self.segments, base_offset, key=lambda one: one.base_offset)
        found = self.segments[at] if at < len(self.segments) else None
        return found if found is not None and found.base_offset == base_offset else None


@dataclass(slots=True, kw_only=True)
class StoreReplica:
    """The file of one store. Chunk ``n`` of ``chunks`` begins at byte ``n * chunk_bytes``."""

    size: int
    chunk_bytes: int
    chunks: list[ChunkSpan]


@dataclass(slots=True)
class ReplicaState:
    """What the cut with ``header`` says; None before the first one.

    ``unused`` has the objects that only earlier cuts name, with the time since when. ``used_bytes`` is the size of the
    objects that this cut names, and ``unused_bytes`` that of the others.
    """

    header: CutHeader | None = None
    partitions: dict[PartitionKey, PartitionReplica] = field(
        default_factory=dict[PartitionKey, PartitionReplica]
    )
    stores: dict[str, StoreReplica] = field(default_factory=dict[str, StoreReplica])
    unused: dict[str, int] = field(default_factory=dict[str, int])
    used_bytes: int = 0
    unused_bytes: int = 0
    _uses: dict[str, int] = field(default_factory=dict[str, int])

    def is_used(self, key: str) -> bool:
        """Return whether this cut names the object."""
        return key in self._uses

    @property
    def used(self) -> Iterable[str]:
        """The objects that this cut names."""
        return self._uses

    def apply(self, cut: Cut) -> None:
        """Go on to the next cut, or begin with a base.

        Raises:
            CorruptCut: the cut does not follow the one before.
        """
        for _ in self.apply_in_steps(cut):
            pass

    def apply_in_steps(self, cut: Cut) -> Iterator[None]:
        """As ``apply``, and yield after each change."""
        header = cut.header
        if header.sequence == header.base:
            self._clear()
        elif self.header is None or header.sequence != self.header.sequence + 1:
            raise CorruptCut(f"cut {header.sequence} does not follow")
        for change in cut.changes:
            self.apply_change(change, header.time_ms)
            yield
        self.header = header

    def _clear(self) -> None:
        self.partitions, self.stores, self.unused, self._uses = {}, {}, {}, {}
        self.used_bytes = self.unused_bytes = 0

    def apply_change(self, change: Change, time_ms: int) -> None:
        """Apply one change of a cut of ``time_ms``; the caller sets ``header`` at its end."""
        match change:
            case PartitionChange():
                self._change_partition(change, time_ms)
            case PartitionGone():
                gone = self.partitions.pop(PartitionKey(change.topic_id, change.partition), None)
                if gone is not None:
                    self._release(_objects_of(gone.segments), time_ms)
            case StoreChange():
                self._change_store(change, time_ms)
            case Unused():
                for key in change.objects:
                    self._set_unused(key, change.since_ms)
            case Deleted():
                for key in change.objects:
                    self._no_longer_unused(key)

    def _change_partition(self, change: PartitionChange, time_ms: int) -> None:
        key = PartitionKey(change.topic_id, change.partition)
        known = self.partitions.get(key)
        before = [] if known is None else known.segments
        kept = [one for one in before if change.kept_from <= one.base_offset < change.changed_from]
        self._use(_objects_of(change.segments))
        self._release(
            _objects_of(
                one for one in before if not change.kept_from <= one.base_offset < change.changed_from
            ),
            time_ms,
        )
        self.partitions[key] = PartitionReplica(
            topic=change.topic,
            log_start_offset=change.log_start_offset,
            holes_until=change.holes_until,
            epochs=change.epochs,
            segments=[*kept, *change.segments],
        )

    def _change_store(self, change: StoreChange, time_ms: int) -> None:
        known = self.stores.get(change.name)
        before = known.chunks if known is not None and known.chunk_bytes == change.chunk_bytes else []
        by_number = {chunk.number: chunk for chunk in before}
        by_number.update((chunk.number, chunk) for chunk in change.chunks)
        count = -(-change.size // change.chunk_bytes)
        try:
            chunks = [by_number[number] for number in range(count)]
        except KeyError as error:
            raise CorruptCut(f"chunk {error} of {change.name} is missing") from None
        self._use(chunk.object for chunk in chunks)
        if known is not None:
            self._release((chunk.object for chunk in known.chunks), time_ms)
        self.stores[change.name] = StoreReplica(
            size=change.size, chunk_bytes=change.chunk_bytes, chunks=chunks
        )

    def _use(self, objects: Iterable[str]) -> None:
        uses = self._uses
        for key in objects:
            before = uses.get(key, 0)
            uses[key] = before + 1
            if not before:
                self.used_bytes += _size_of(key)
                self._no_longer_unused(key)

    def _release(self, objects: Iterable[str], time_ms: int) -> None:
        uses = self._uses
        for key in objects:
            left = uses[key] - 1
            if left:
                uses[key] = left
            else:
                del uses[key]
                self.used_bytes -= _size_of(key)
                self._set_unused(key, time_ms)

    def _no_longer_unused(self, key: str) -> None:
        if self.unused.pop(key, None) is not None:
            self.unused_bytes -= _size_of(key)

    def _set_unused(self, key: str, since_ms: int) -> None:
        if key not in self.unused:
            self.unused_bytes += _size_of(key)
        self.unused[key] = since_ms

    def changes(self) -> Iterator[Change]:
        """Yield what a base says."""
        for (topic_id, partition), replica in self.partitions.items():
            yield PartitionChange(
                topic_id=topic_id,
                partition=partition,
                topic=replica.topic,
                log_start_offset=replica.log_start_offset,
                holes_until=replica.holes_until,
                epochs=replica.epochs,
                kept_from=0,
                changed_from=0,
                segments=tuple(replica.segments),
            )
        for name, store in self.stores.items():
            yield StoreChange(
                name=name, size=store.size, chunk_bytes=store.chunk_bytes, chunks=tuple(store.chunks)
            )
        by_time: dict[int, list[str]] = {}
        for key, since_ms in self.unused.items():
            by_time.setdefault(since_ms, []).append(key)
        for since_ms, keys in by_time.items():
            for start in range(0, len(keys), _OBJECTS_PER_LINE):
                yield Unused(objects=tuple(keys[start : start + _OBJECTS_PER_LINE]), since_ms=since_ms)


def change_of(
    known: PartitionReplica | None, key: PartitionKey, replica: PartitionReplica
) -> PartitionChange | None:
    """Return how ``replica`` differs from what is known of it; None if it does not."""
    before, after = [] if known is None else known.segments, replica.segments
    kept_from = after[0].base_offset if after else 0
    dropped = bisect_left(before, kept_from, key=lambda one: one.base_offset)
    same = 0
    while (
        dropped + same < len(before)
        and same < len(after)
        and (before[dropped + same] is after[same] or before[dropped + same] == after[same])
    ):
        same += 1
    if (
        known is not None
        and not dropped
        and same == len(before) == len(after)
        and (known.log_start_offset, known.holes_until, known.epochs)
        == (replica.log_start_offset, replica.holes_until, replica.epochs)
    ):
        return None
    changed = after[same:]
    # What was known from there on goes, also a segment that compaction has merged into the one before it.
    if changed:
        gone = before[dropped + same : dropped + same + 1]
        changed_from = min(one.base_offset for one in (changed[0], *gone))
    else:
        changed_from = after[-1].base_offset + 1 if after else 0
    return PartitionChange(
        topic_id=key.topic_id,
        partition=key.partition,
        topic=replica.topic,
        log_start_offset=replica.log_start_offset,
        holes_until=replica.holes_until,
        epochs=replica.epochs,
        kept_from=kept_from,
        changed_from=changed_from,
        segments=tuple(changed),
    )


def _size_of(key: str) -> int:
    try:
        return size_of(key)
    except ValueError:
        # Sums are for operators: no restore fails because of them.
        return 0


def _objects_of(segments: Iterable[SegmentRuns]) -> Iterator[str]:
    for segment in segments:
        for run in segment.runs:
            yield run.object
