"""Rebuild the producer state of a partition from a snapshot and headers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker

from ...errors import StorageError
from ..disk.whole_files import read_file
from ..engine import ProducerState
from ..segments.open_transactions import marker_at
from ..segments.partition_files import PRODUCERS_SUFFIX, PartitionFiles
from ..segments.reader import headers
from ..segments.scan import CorruptRange
from ..segments.segment import Segment
from ..segments.transaction_index import AbortedEntry

logger = logging.getLogger(__name__)


class ProducerStateReplay:
    """The producer state knows every batch before ``offset``, or knows it does not."""

    def __init__(
        self,
        partition: PartitionFiles,
        producer_state: ProducerState,
        *,
        first_offset: int = 0,
        holes_until: int = 0,
        names: Sequence[str] | None = None,
    ) -> None:
        """``first_offset``: all segments before it are deleted.

        ``holes_until``: before it, compaction may have removed batches. ``names`` are those of all
        files of the partition, if the caller knows them.
        """
        self.offset = 0
        self._first_offset = first_offset
        self._holes_until = holes_until
        self._partition = partition
        self._names = names
        self._producers = producer_state

    def restore_before(self, offset: int, segments: Sequence[Segment]) -> bool:
        """Restore the producer state at ``offset``.

        It uses the newest usable snapshot, and the headers of ``segments`` after it.

        CRCs of batches are not checked. Returns True if the snapshot was all that
        it took.
        """
        stored = self._partition.stored(PRODUCERS_SUFFIX, self._names)
        for candidate in reversed([snapshot for snapshot in stored if snapshot <= offset]):
            if self.restore_at(candidate):
                if candidate == offset:
                    return True
                break
        if self.offset < self._first_offset:
            self._producers.forget()
            self.offset = self._first_offset
        for segment in segments:
            if segment.next_offset > self.offset and segment.size:
                file = segment.open_own()
                try:
                    for header in self._readable_headers(segment):
                        if header.base_offset >= self.offset:
                            self.feed(header, marker_at(file, header), segment.corrupt_ranges)
                finally:
                    file.close()
        self.skip_to(offset)
        return False

    def restore_at(self, offset: int) -> bool:
        """Restore the snapshot at ``offset``; return whether it is usable."""
        snapshot = read_file(self._partition.files, self._partition.producers_path(offset))
        try:
            self._producers.restore(snapshot or b"")
        except ValueError as error:
            logger.warning(
                "%s: the producer snapshot at %d is corrupt (%s); the log is read instead",
                self._partition.directory,
                offset,
                error,
            )
            return False
        self.offset = offset
        return True

    def _readable_headers(self, segment: Segment) -> Iterator[rb.BatchHeader]:
        try:
            yield from headers(segment)
        except StorageError as error:
            logger.error("%s: some producer states are lost: %s", self._partition.directory, error)
            yield from headers(segment)

    def feed(
        self,
        header: rb.BatchHeader,
        marker: EndTransactionMarker | None,
        corrupt_ranges: Iterable[CorruptRange] = (),
    ) -> AbortedEntry | None:
        """Take in the next batch of the log, with its marker; return the transaction that it aborts, if any.

        ``corrupt_ranges`` are those of its segment: offsets that are missing before the
        batch were lost there, or else removed by compaction, which keeps the last
        batch of each producer.
        """
        base_offset = header.base_offset
        is_hole = base_offset < self._holes_until and not any(
            corrupt.next_offset == base_offset for corrupt in corrupt_ranges
        )
        if not is_hole:
            self.skip_to(base_offset)
        aborted = self._producers.apply(header, marker)
        self.offset = header.next_offset
        return aborted

    def skip_to(self, offset: int) -> None:
        """Reset the producer state if there is a gap before ``offset``.

        Batches in the gap may be newer than those that it knows. Transactions that were open stay open.
        """
        if offset != self.offset:
            self._producers.clear()
            self.offset = offset
