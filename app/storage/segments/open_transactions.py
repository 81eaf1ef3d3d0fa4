"""Finds the transactions that are open at an offset, from batches and markers alone.

The first transactional batch of a producer opens a transaction, and a marker with its producer
id ends it. The entries of ``transaction_index`` follow from the markers that abort.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, read_marker

from .scan import ReadableFile
from .transaction_index import AbortedEntry

logger = logging.getLogger(__name__)

# A marker takes 78 bytes.
_MARKER_BYTES_MAX = 4096


class OpenTransactions:
    """The first offset of each open transaction by producer id, ascending.

    ``first_offset`` is that of the oldest; None if no transaction is open.
    """

    __slots__ = ("_first_offsets", "first_offset")

    def __init__(self, opened: Iterable[tuple[int, int]] = ()) -> None:
        """``opened`` has producer ids and first offsets, in any order."""
        self._first_offsets = dict(sorted(opened, key=lambda pair: pair[1]))
        self.first_offset = next(iter(self._first_offsets.values()), None)

    def copy(self) -> OpenTransactions:
        return OpenTransactions(self._first_offsets.items())

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._first_offsets

    def __iter__(self) -> Iterator[int]:
        """Iterate over the producer ids, the oldest transaction first."""
        return iter(self._first_offsets)

    def first_offset_of(self, producer_id: int) -> int:
        """Return where the transaction of a producer begins; -1 if none is open."""
        return self._first_offsets.get(producer_id, -1)

    def open(self, producer_id: int, offset: int) -> None:
        """Note a transactional batch at ``offset``, which may begin a transaction."""
        self._first_offsets.setdefault(producer_id, offset)
        if self.first_offset is None:
            self.first_offset = offset

    def end(self, header: rb.BatchHeader, marker: EndTransactionMarker) -> AbortedEntry | None:
        """Note a marker; return the transaction if one was open and is aborted by it."""
        first_offset = self._first_offsets.pop(header.producer_id, None)
        if first_offset is None:
            return None
        self.first_offset = next(iter(self._first_offsets.values()), None)
        if marker.type is MarkerType.COMMIT:
            return None
        stable_offset = header.next_offset if self.first_offset is None else self.first_offset
        return AbortedEntry(header.producer_id, first_offset, header.base_offset, stable_offset)

    def note(self, header: rb.BatchHeader, marker: EndTransactionMarker | None) -> AbortedEntry | None:
        """Note any batch, with the marker in it; return the transaction that it aborts, if any."""
        if marker is not None:
            return self.end(header, marker)
        if header.is_transactional and not header.is_control and header.has_producer_id:
            self.open(header.producer_id, header.base_offset)
        return None


def marker_at(file: ReadableFile, header: rb.BatchHeader) -> EndTransactionMarker | None:
    """Read the marker of the batch at ``header.position`` of ``file``.

    None if it is no control batch, or one of another type. A corrupt one is logged and has no marker, so
    its transaction stays open.
    """
    if not header.is_control:
        return None
    if header.size > _MARKER_BYTES_MAX:
        return None
    batch = file.read_at(header.position, header.size)
    try:
        return read_marker(batch, rb.check_batch(batch))
    except rb.CorruptBatchError as error:
        logger.error(
            "the control batch at offset %d of a log is corrupt (%s); a transaction may stay open",
            header.base_offset,
            error.reason,
        )
        return None
