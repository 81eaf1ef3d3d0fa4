"""One pass over a partition: map the keys of its dirty part, rewrite its segments.

1. ``map_keys`` reads the dirty segments and puts each key with its last offset
   into the map. When the map is full the pass ends before the record that did not
   fit, and the next pass goes on there. A key that is put again settles the fate of
   the record before (``dirty_records``).
2. ``rewrite`` filters the segments of one group, from the log start on, into one
   cleaned segment. Each group is replaced on its own (``replacement``): what the
   map knows to be the last record of a key is in this log whether or not the
   groups after it were rewritten.

Both run in a thread or a process of their own and read files that do not change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from stele.wire import record_batch as rb

from ...errors import CorruptLog
from ..disk.files import Files
from ..segments.segment import LOG_SUFFIX, segment_name
from ..segments.transaction_index import AbortedEntry
from .batch_filter import PLAIN, BatchFilter, Remains, Treatment
from .cleaned_segment import CleanedSegment, read_batches
from .dirty_records import DirtyRecords
from .key_map import KeyMap
from .planning import SegmentFacts
from .record_keys import read_keys

logger = logging.getLogger(__name__)


class Pacing(Protocol):
    """Lets a pass yield to other work; called between small amounts of work."""

    def __call__(self, size: int) -> object:
        """Note that ``size`` bytes were read or written since the last call.

        0 between records. May wait, or raise to end the pass.
        """
        ...


def no_pacing(size: int) -> None:
    """Go on at once."""


@dataclass(slots=True)
class PassCounts:
    """Counts of a pass so far.

    ``unreadable_batches`` were kept because their records do not parse.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    unreadable_batches: int = 0

    def add(self, other: PassCounts) -> None:
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written
        self.records_read += other.records_read
        self.records_kept += other.records_kept
        self.unreadable_batches += other.unreadable_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSource:
    """The sealed segments of a partition, read without the log that owns them."""

    files: Files
    directory: Path

    def batches(self, segment: SegmentFacts) -> Generator[tuple[bytes, rb.BatchHeader]]:
        """As ``read_batches``.

        Raises:
            CorruptLog: as there, or the last batch does not end where the segment does.
        """
        file = self.files.open(self.directory / (segment_name(segment.base_offset) + LOG_SUFFIX))
        next_offset = segment.base_offset
        try:
            for batch, header in read_batches(file, base_offset=segment.base_offset, end=segment.size):
                yield batch, header
                next_offset = header.next_offset
        finally:
            file.close()
        if next_offset != segment.next_offset:
            raise CorruptLog(
                path=file.path,
                position=segment.size,
                offset=next_offset,
                next_offset=segment.next_offset,
                reason="the end of the file is missing",
            )


def map_keys(
    source: SegmentSource,
    segments: Sequence[SegmentFacts],
    keys: KeyMap,
    *,
    first_dirty: int,
    first_uncleanable: int,
    dirty: DirtyRecords | None = None,
    is_aborted: Callable[[rb.BatchHeader], bool] = lambda header: False,
    pace: Pacing = no_pacing,
) -> int:
    """Put the last offset of each key in the dirty part into ``keys``.

    The dirty part is ``[first_dirty, first_uncleanable)``.

    Returns the offset up to which all keys were put: ``first_uncleanable``, or that
    of the first record whose key did not fit. ``dirty`` learns which of the records stay.

    Raises:
        CorruptLog: a segment is damaged; the partition cannot be cleaned.
        OSError: it cannot be read.
    """
    for segment in segments:
        if segment.next_offset <= first_dirty or segment.base_offset >= first_uncleanable:
            continue
        with closing(source.batches(segment)) as batches:
            full_at = map_batches(
                batches, keys, first_dirty=first_dirty, dirty=dirty, is_aborted=is_aborted, pace=pace
            )
        if full_at is not None:
            return full_at
    return first_uncleanable


def map_batches(
    batches: Iterable[tuple[bytes, rb.BatchHeader]],
    keys: KeyMap,
    *,
    first_dirty: int,
    dirty: DirtyRecords | None,
    is_aborted: Callable[[rb.BatchHeader], bool] = lambda header: False,
    pace: Pacing = no_pacing,
) -> int | None:
    """Put the last offset of each key at or after ``first_dirty`` into ``keys``.

    Returns the offset of the first record whose key did not fit; None if all did. ``dirty`` learns which
    of the records stay.
    """
    for batch, header in batches:
        pace(header.size)
        if header.last_offset < first_dirty or header.is_control or is_aborted(header):
            continue
        full_at = _map_batch(batch, header, keys, dirty, first_dirty, pace)
        if full_at is not None:
            return full_at
    return None


def _map_batch(
    batch: bytes,
    header: rb.BatchHeader,
    keys: KeyMap,
    dirty: DirtyRecords | None,
    first_dirty: int,
    pace: Pacing,
) -> int | None:
    """The offset of the record whose key did not fit; None if all did."""
    try:
        slices = read_keys(rb.plain_batch(batch, header), lambda: pace(0))
    except rb.CorruptBatchError:
        # No reader gets a record of it, so none of it stands for a key.
        return None
    for read in slices:
        part = read.between(first_dirty, header.next_offset) if header.base_offset < first_dirty else read
        replaced: list[int] = []
        full_at = keys.put_all(part.keys, part.offsets, replaced)
        if dirty is not None:
            dirty.note(part if full_at is None else part.between(first_dirty, full_at), replaced)
        if full_at is not None:
            return full_at
        pace(0)
    return None


def rewrite(
    source: SegmentSource,
    group: Sequence[SegmentFacts],
    batch_filter: BatchFilter,
    counts: PassCounts,
    *,
    index_interval_bytes: int,
    treatment_of: Callable[[rb.BatchHeader], Treatment] = lambda header: PLAIN,
    note: Callable[[bytes, rb.BatchHeader], AbortedEntry | None] = lambda batch, header: None,
    pace: Pacing = no_pacing,
) -> CleanedSegment | None:
    """Write what remains of ``group`` into one cleaned segment, and sync it.

    Returns None, and leaves no file, if the group is a single segment of which
    everything remains. The last batch of the group keeps its place even if it has
    no records left, so that the next segment goes on where this one ends.

    ``treatment_of`` decides about batches of transactions and of active producers. ``note`` gets each
    batch of which something stays, as it came, and returns the transaction that it aborts.

    Raises:
        CorruptLog: a segment is damaged; the partition cannot be cleaned.
        CleanedSegmentTooLarge: what remains does not fit into one file.
        OSError: a file cannot be read or written.
    """
    end = group[-1].next_offset
    is_same = len(group) == 1
    cleaned = CleanedSegment(
        source.files, source.directory, group[0].base_offset, index_interval_bytes=index_interval_bytes
    )
    try:
        for segment in group:
            with closing(source.batches(segment)) as batches:
                for batch, header, remains in filtered(
                    batches,
                    batch_filter,
                    counts,
                    end=end,
                    source=f"segment {segment.base_offset}",
                    treatment_of=treatment_of,
                ):
                    is_same = is_same and remains.is_same
                    if remains.data:
                        cleaned.append(remains.data, note(batch, header))
                    pace(header.size + len(remains.data))
        if not is_same:
            cleaned.finish()
    except BaseException:
        cleaned.abandon()
        raise
    if is_same:
        cleaned.abandon()
        return None
    return cleaned


def filtered(
    batches: Iterable[tuple[bytes, rb.BatchHeader]],
    batch_filter: BatchFilter,
    counts: PassCounts,
    *,
    end: int,
    source: str,
    treatment_of: Callable[[rb.BatchHeader], Treatment] = lambda header: PLAIN,
) -> Iterator[tuple[bytes, rb.BatchHeader, Remains]]:
    """Yield each batch with what remains of it; the batch before offset ``end`` keeps its place.

    ``treatment_of`` is called for a batch after all earlier ones were consumed. ``source`` names the batches in
    the log of the broker.
    """
    for batch, header in batches:
        treatment = treatment_of(header)
        if header.next_offset == end and not treatment.keep_place:
            treatment = replace(treatment, keep_place=True)
        remains = _remains(batch, header, treatment, batch_filter, source, counts)
        counts.bytes_read += header.size
        counts.records_read += header.record_count
        counts.bytes_written += len(remains.data)
        counts.records_kept += remains.record_count
        yield batch, header, remains


def _remains(
    batch: bytes,
    header: rb.BatchHeader,
    treatment: Treatment,
    batch_filter: BatchFilter,
    source: str,
    counts: PassCounts,
) -> Remains:
    try:
        return batch_filter.remains(batch, header, treatment)
    except rb.CorruptBatchError as error:
        # As its producer sent it: the CRC is right. What cannot be understood is not deleted.
        logger.warning(
            "%s: the batch at offset %d is kept as it is: %s",
            source,
            header.base_offset,
            error.reason,
        )
        counts.unreadable_batches += 1
        return Remains(data=batch, record_count=header.record_count, is_same=True)
