"""The work of one pass over segments, and all that it needs to know.

It knows nothing of the log that it cleans. A thread of the broker or a process of its own does it (``worker_process``).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stele.wire.record_batch import BatchHeader

from ...errors import CorruptLog
from ..disk.files import Files
from ..disk.pace import Pacing
from ..segments.segment import LOG_SUFFIX, segment_name
from ..segments.transaction_index import AbortedEntry
from .cleaned_segment import CleanedSegment, CleanedSegmentTooLarge, read_batches
from .pass_state import PassCounts, PassScope, PassState
from .planning import SegmentFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOrder(PassScope):
    """One pass over the partition in ``directory``.

    ``last_batches`` are the base offsets of batches that keep their place, because they
    have the last sequence of an active producer. ``aborted`` are the aborted transactions of the
    log.
    """

    directory: str
    segments: Sequence[SegmentFacts]
    last_batches: frozenset[int]
    index_interval_bytes: int
    aborted: Sequence[AbortedEntry] = ()


class PassWork:
    """``map_keys``, then ``rewrite`` for each group; ``close`` returns the memory."""

    def __init__(self, files: Files, order: PassOrder, pace: Pacing) -> None:
        self._files = files
        self._directory = Path(order.directory)
        self._order = order
        self._state = PassState(order, order.aborted, pace=pace)

    def map_keys(self) -> int:
        """Return the offset up to which all keys are known.

        It is ``first_uncleanable``, or that of the first record whose key did not fit into the map.

        Raises:
            CorruptLog: a segment is damaged; the partition cannot be cleaned.
            OSError: it cannot be read.
        """
        order = self._order
        mapped_end = order.first_uncleanable
        for segment in order.segments:
            if segment.next_offset <= order.first_dirty or segment.base_offset >= order.first_uncleanable:
                continue
            with closing(self._batches(segment)) as batches:
                full_at = self._state.map(batches)
            if full_at is not None:
                mapped_end = full_at
                break
        self._state.end_mapping(mapped_end)
        return mapped_end

    def rewrite(self, group: Sequence[SegmentFacts], counts: PassCounts) -> bool:
        """Write what remains of ``group`` into one cleaned segment, and sync it. Counts into ``counts``.

        Returns False, and leaves no file, if the group is a single segment of which
        everything remains. The last batch of the group keeps its place even if it has
        no records left, so that the next segment goes on where this one ends.

        Raises:
            CorruptLog: a segment is damaged; the partition cannot be cleaned.
            CleanedSegmentTooLarge: what remains does not fit into one file.
            OSError: a file cannot be read or written.
        """
        before = self._state.transactions.copy()
        cleaned = CleanedSegment(
            self._files,
            self._directory,
            group[0].base_offset,
            index_interval_bytes=self._order.index_interval_bytes,
        )
        try:
            is_same = self._write(group, cleaned, counts) and len(group) == 1
            if not is_same:
                cleaned.finish()
        except CleanedSegmentTooLarge:
            cleaned.abandon()
            self._state.transactions = before
            if len(group) == 1:
                # It stays as it is.
                for batch, header in self._batches(group[0]):
                    before.note(batch, header)
            raise
        except BaseException:
            cleaned.abandon()
            raise
        if is_same:
            cleaned.abandon()
        return not is_same

    def _write(self, group: Sequence[SegmentFacts], cleaned: CleanedSegment, counts: PassCounts) -> bool:
        """Append what remains of ``group``; return whether that is all of it."""
        is_same = True
        for segment in group:
            with closing(self._batches(segment)) as batches:
                for batch, header, remains in self._state.filtered(
                    batches,
                    counts,
                    end=group[-1].next_offset,
                    source=f"segment {segment.base_offset}",
                    last_batches=self._order.last_batches,
                ):
                    is_same = is_same and remains.is_same
                    if remains.data:
                        cleaned.append(remains.data, self._state.transactions.note(batch, header))
        return is_same

    def _batches(self, segment: SegmentFacts) -> Generator[tuple[bytes, BatchHeader]]:
        """As ``read_batches``.

        Raises:
            CorruptLog: as there, or the last batch does not end where the segment does.
        """
        file = self._files.open(self._directory / (segment_name(segment.base_offset) + LOG_SUFFIX))
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

    def close(self) -> None:
        self._state.close()
