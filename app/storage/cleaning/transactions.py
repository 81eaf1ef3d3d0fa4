"""Transactions in a pass of compaction.

The batches of an aborted transaction go in the first pass. A marker stays at least as long as a
batch of its transaction, even one without records: a log with the batches alone would leave the transaction
open for good. Without such a batch it goes ``delete.retention.ms`` after the first pass that found none
(KIP-534), as tombstones do.

A pass reads every batch from the log start on, in order, so what remains of each transaction is
known when its marker comes. The index of the cleaned segment lists the aborted transactions of
which a batch remains.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Protocol

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, read_marker

from ..segments.open_transactions import OpenTransactions
from ..segments.transaction_index import AbortedEntry
from .batch_filter import DELETE_HORIZON, Treatment


class Aborted(Protocol):
    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


class AbortedBatches:
    """Tells the batches of aborted transactions; ``aborted`` are those of a log, or of what is read."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            firsts, lasts = self._by_producer.setdefault(entry.producer_id, ([], []))
            firsts.append(entry.first_offset)
            lasts.append(entry.last_offset)

    def __contains__(self, header: rb.BatchHeader) -> bool:
        """Return whether the batch holds records of an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        transactions = self._by_producer.get(header.producer_id)
        if transactions is None:
            return False
        firsts, lasts = transactions
        at = bisect_right(firsts, header.base_offset) - 1
        return at >= 0 and header.base_offset <= lasts[at]


NOTHING_ABORTED = AbortedBatches(())


class CleanedTransactions:
    """The remaining transactions in the segments that a pass has written so far."""

    def __init__(self, aborted: AbortedBatches, *, now_ms: int) -> None:
        self._aborted = aborted
        self._now_ms = now_ms
        self._left = OpenTransactions()

    def copy(self) -> CleanedTransactions:
        """Return a copy, to go back to if a group of segments cannot be written."""
        copied = CleanedTransactions(self._aborted, now_ms=self._now_ms)
        copied._left = self._left.copy()
        return copied

    def treatment(self, header: rb.BatchHeader, *, keep_place: bool) -> Treatment:
        """Decide about the next batch. ``keep_place``: see ``Treatment``."""
        if header.is_control:
            if header.producer_id in self._left:
                return Treatment(keep_place=keep_place)
            is_over = bool(header.attributes & DELETE_HORIZON) and header.base_timestamp <= self._now_ms
            return Treatment(discard=is_over, keep_place=keep_place, start_horizon=not is_over)
        return Treatment(discard=header in self._aborted, keep_place=keep_place)

    def note(self, batch: bytes, header: rb.BatchHeader) -> AbortedEntry | None:
        """Note a batch that stays, as it came; return the transaction that its marker aborts, if any."""
        if not header.is_transactional:
            return None
        return self._left.note(header, _marker(batch, header))


def _marker(batch: bytes, header: rb.BatchHeader) -> EndTransactionMarker | None:
    if not header.is_control:
        return None
    try:
        return read_marker(batch, header)
    except rb.CorruptBatchError:
        # As ``open_transactions`` has it: the transaction stays open.
        return None
