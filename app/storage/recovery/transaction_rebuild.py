"""Find the aborted transactions of a log again, from its batches and markers.

For a start that finds an index of aborted transactions lost or damaged. It reads every header of
the log: a transaction may begin in any segment before that of its marker. One that began before
the log start gets the first of its batches that is left as its first offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stele.wire import record_batch as rb

from ...errors import CorruptLog
from ..segments.open_transactions import OpenTransactions, marker_at
from ..segments.reader import headers
from ..segments.segment import Segment
from ..segments.transaction_index import TransactionIndex


def rebuild_aborted(segments: Sequence[Segment]) -> None:
    """Replace the aborted transactions of a whole log, and the files that differ.

    ``segments`` are all of the log.

    That of the active segment stays in memory. Raises ``OSError``.
    """
    transactions = OpenTransactions()
    for segment in segments:
        index = _aborted_in(segment, transactions)
        is_same = index.to_bytes() == segment.aborted.to_bytes()
        segment.aborted = index
        if segment.is_sealed and not is_same:
            segment.write_transaction_index()


def _aborted_in(segment: Segment, transactions: OpenTransactions) -> TransactionIndex:
    index = TransactionIndex()
    if not segment.size:
        return index
    file = segment.open_own()
    try:
        for header in _readable_headers(segment):
            aborted = transactions.note(header, marker_at(file, header))
            if aborted is not None:
                index.append(aborted)
    finally:
        file.close()
    return index


def _readable_headers(segment: Segment) -> Iterator[rb.BatchHeader]:
    """Yield every header once.

    A corrupt range that was not known ends the first walk; the second skips it.
    """
    read_until = segment.base_offset
    try:
        for header in headers(segment):
            yield header
            read_until = header.next_offset
    except CorruptLog:
        for header in headers(segment):
            if header.base_offset >= read_until:
                yield header
