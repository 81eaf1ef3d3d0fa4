"""The keys of a segment, read from its log; for threads.

Corrupt ranges are skipped and noted: what is known of a key is then what the rest of
the log says. A batch with a right CRC whose records do not parse has no keys, because
no reader gets a record of it. Nor have the batches of aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stele.wire import record_batch as rb

from ...errors import CorruptLog
from ..cleaning.cleaned_segment import read_batches
from ..cleaning.record_keys import read_keys
from ..cleaning.transactions import NOTHING_ABORTED, AbortedBatches
from ..disk.pace import Pacing
from ..segments.loader import examine
from ..segments.reader import position_of
from ..segments.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The first ``log_bytes`` of a segment, which end at ``next_offset``: what is in it at some moment.

    ``aborted`` tells which of its batches belong to aborted transactions; no transaction is open in it.
    """

    segment: Segment
    log_bytes: int
    next_offset: int
    aborted: AbortedBatches = NOTHING_ABORTED

    @classmethod
    def of(cls, segment: Segment) -> SegmentPart:
        """All that is in ``segment`` now; for the event loop."""
        return cls(segment, segment.size, segment.next_offset)

    def before(self, offset: int) -> SegmentPart:
        """Return the part before the batch at ``offset``; for threads.

        Raises ``CorruptLog``, ``OSError``.
        """
        if self.next_offset <= offset:
            return self
        return replace(self, log_bytes=position_of(self.segment, offset), next_offset=offset)


def keyed_offsets(
    batch: bytes, header: rb.BatchHeader, pace: Pacing, aborted: AbortedBatches = NOTHING_ABORTED
) -> Iterator[tuple[int, bytes]]:
    """Yield offset and key of the records of a batch, in order.

    Nothing if no reader can decode it, or its transaction was aborted.
    """
    if header.is_control or not header.record_count or header in aborted:
        return
    try:
        slices = read_keys(rb.plain_batch(batch, header), lambda: pace(0))
    except rb.CorruptBatchError:
        return
    for part in slices:
        pace(0)
        for offset, key in zip(part.offsets, part.keys, strict=True):
            if key is not None:
                yield offset, key


def newest_in(part: SegmentPart, key: bytes, pace: Pacing) -> int:
    """Return the last offset of ``key`` in what can be read of a segment; -1 if it has none.

    Raises:
        CorruptLog: nothing after a part of it can be read.
        OSError: the log cannot be read.
    """
    while True:
        last = -1
        known = len(part.segment.corrupt_ranges)
        try:
            for offset, other in keyed_records(part, pace):
                if other == key:
                    last = offset
        except CorruptLog:
            if len(part.segment.corrupt_ranges) == known:
                raise
        else:
            return last


def keyed_records(part: SegmentPart, pace: Pacing, *, from_position: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield offset and key of the records of a segment, in order.

    ``from_position`` is where a batch begins. After a corrupt range that was not known
    it raises; call it again to go around it.

    Raises:
        CorruptLog: there is a corrupt range, which the segment knows from now on.
        OSError: the log cannot be read.
    """
    segment = part.segment
    position, base_offset = from_position, segment.base_offset
    file = segment.open_own()
    try:
        for damage in [*segment.corrupt_ranges, None]:
            end = part.log_bytes if damage is None else min(damage.position, part.log_bytes)
            if position < end:
                for batch, header in read_batches(file, base_offset=base_offset, start=position, end=end):
                    pace(header.size)
                    yield from keyed_offsets(batch, header, pace, part.aborted)
            if damage is not None and damage.end_position > position:
                position, base_offset = damage.end_position, damage.next_offset
    except CorruptLog as error:
        known = len(segment.corrupt_ranges)
        examine(segment)
        if len(segment.corrupt_ranges) == known:
            # It cannot be gone around.
            raise CorruptLog(
                path=error.path,
                position=error.position,
                offset=error.offset,
                next_offset=part.next_offset,
                reason=error.reason,
            ) from error
        raise
    finally:
        file.close()
