"""Partitions of keyed records, passes over them, and what readers get from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.storage.cleaning.cleaned_segment import read_batches
from app.storage.cleaning.pass_state import PassCounts
from app.storage.cleaning.pass_work import PassOrder, PassWork
from app.storage.cleaning.planning import CleaningRules, SegmentFacts, groups
from app.storage.cleaning.replacement import Replacement
from app.storage.disk.files import Files
from app.storage.disk.pace import Pacing
from app.storage.disk.whole_files import write_files
from app.storage.segments.indexes import SegmentIndexes
from app.storage.segments.segment import LOG_SUFFIX, segment_name

DAY_MS = 86_400_000
NOW_MS = 1_763_664_052_224
INTERVAL_BYTES = 100

RULES = CleaningRules(
    segment_bytes=1_000,
    index_bytes_max=10 * 1024 * 1024,
    min_cleanable_dirty_ratio=0.5,
    min_compaction_lag_ms=0,
    max_compaction_lag_ms=2**63 - 1,
    delete_retention_ms=DAY_MS,
)


def no_pacing(size: int) -> None:
    """Go on at once."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A record to write. ``value`` None is a tombstone."""

    key: bytes | None
    value: bytes | None = b"v"
    timestamp_ms: int = NOW_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a reader gets it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def batch(
    records: Sequence[Keyed],
    base_offset: int = 0,
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    """One batch as a broker stores it."""
    builder = rb.BatchBuilder(
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    for record in records:
        builder.append(
            timestamp_ms=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers)
        )
    built = builder.build()
    rb.assign_offsets(built, 0, base_offset, leader_epoch)
    return bytes(built)


def records_of(data: bytes) -> list[Stored]:
    """Return the records of all batches in ``data``, as clients decode them, with CRCs checked."""
    records: list[Stored] = []
    for header in rb.iter_headers(data):
        raw = data[header.position : header.position + header.size]
        rb.check_batch(raw)
        if header.record_count:
            records += [
                Stored(r.offset, r.key, r.value, r.timestamp, tuple(r.headers))
                for r in rb.decode_records(raw)
            ]
    return records


def compacted(records: Iterable[Stored], *, mapped_end: int | None = None) -> list[Stored]:
    """Return what compaction must keep: the last record per key before ``mapped_end``, and all after it."""
    records = list(records)
    end = records[-1].offset + 1 if mapped_end is None and records else (mapped_end or 0)
    last = {record.key: record.offset for record in records if record.offset < end}
    return [
        record
        for record in records
        if record.offset >= end or (record.key is not None and record.offset == last[record.key])
    ]


_FilesT = TypeVar("_FilesT", bound=Files)


class CleanedPartition(Generic[_FilesT]):
    """Segments in a directory of ``files``, and passes over them."""

    def __init__(self, files: _FilesT, directory: Path) -> None:
        self.files = files
        self.directory = directory
        self.counts = PassCounts()

    def write(self, segments: Sequence[Sequence[bytes]], *, base_offset: int = 0) -> None:
        """Make one sealed segment, with indexes, of each list of batches."""
        for batches in segments:
            name = segment_name(base_offset)
            indexes = self._indexes(base_offset)
            position = 0
            for raw in batches:
                header = rb.read_header(raw)
                indexes.note(header, position)
                position += len(raw)
                base_offset = header.next_offset
            contents = {name + LOG_SUFFIX: b"".join(batches), **indexes.contents()}
            write_files(self.files, self.directory, contents)

    def _indexes(self, base_offset: int) -> SegmentIndexes:
        path = self.directory / (segment_name(base_offset) + LOG_SUFFIX)
        return SegmentIndexes(self.files, path, base_offset, interval_bytes=INTERVAL_BYTES)

    def base_offsets(self) -> list[int]:
        names = self.files.list_dir(self.directory)
        return [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)]

    def log(self, base_offset: int) -> bytes:
        file = self.files.open(self.directory / (segment_name(base_offset) + LOG_SUFFIX))
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def records(self) -> list[Stored]:
        """Return all records, as a reader from the start gets them."""
        return [record for base_offset in self.base_offsets() for record in records_of(self.log(base_offset))]

    def batch_offsets(self, is_wanted: Callable[[rb.BatchHeader], bool]) -> frozenset[int]:
        """Return the base offsets of the batches that are wanted."""
        return frozenset(
            header.base_offset
            for base_offset in self.base_offsets()
            for header in rb.iter_headers(self.log(base_offset))
            if is_wanted(header)
        )

    def facts(self) -> list[SegmentFacts]:
        """Return all segments, and check that each begins where the last one ended and has its own indexes."""
        facts: list[SegmentFacts] = []
        for base_offset in self.base_offsets():
            assert not facts or facts[-1].next_offset == base_offset, "the segments are adjacent"
            indexes = self._indexes(base_offset)
            file = self.files.open(indexes.path.with_suffix(LOG_SUFFIX))
            next_offset, first_ms, position = base_offset, -1, 0
            for _, header in read_batches(file, base_offset=base_offset):
                indexes.note(header, position)
                position += header.size
                next_offset = header.next_offset
                first_ms = header.max_timestamp if first_ms < 0 else first_ms
            for name, content in indexes.contents().items():
                path = self.directory / name
                if self.files.exists(path):
                    index = self.files.open(path)
                    assert index.read_at(0, index.size()) == content, "an index equals a fresh one"
                    index.close()
            facts.append(
                SegmentFacts(
                    base_offset=base_offset,
                    next_offset=next_offset,
                    size=file.size(),
                    newest_ms=indexes.max_timestamp,
                    first_ms=first_ms,
                )
            )
            file.close()
        return facts

    def clean(
        self,
        *,
        memory_bytes: int = 128 * 1024,
        first_dirty: int = 0,
        first_uncleanable: int | None = None,
        rules: CleaningRules = RULES,
        now_ms: int = NOW_MS,
        last_batches: frozenset[int] = frozenset(),
        pace: Pacing = no_pacing,
        facts: Sequence[SegmentFacts] | None = None,
        replace: Callable[[Replacement], object] = lambda replacement: replace_at_once(replacement),
    ) -> int:
        """One pass; returns the offset up to which it mapped, the next first dirty one.

        ``facts`` are those of a log that was damaged since; ``last_batches`` are offsets of batches that keep their
        place.
        """
        facts = facts or self.facts()
        order = PassOrder(
            directory=str(self.directory),
            segments=facts,
            first_dirty=first_dirty,
            first_uncleanable=facts[-1].next_offset if first_uncleanable is None else first_uncleanable,
            last_batches=last_batches,
            now_ms=now_ms,
            delete_retention_ms=rules.delete_retention_ms,
            index_interval_bytes=INTERVAL_BYTES,
            memory_bytes=memory_bytes,
        )
        with closing(PassWork(self.files, order, pace)) as work:
            mapped_end = work.map_keys()
            for group in groups(facts, rules, mapped_end=mapped_end):
                if work.rewrite(group, self.counts):
                    replace(Replacement(self.files, self.directory, [s.base_offset for s in group]))
        return mapped_end


def replace_at_once(replacement: Replacement) -> None:
    """Do all steps without a pause for readers."""
    replacement.open()
    replacement.commit()
    replacement.retire()
    replacement.install()
    replacement.discard()
