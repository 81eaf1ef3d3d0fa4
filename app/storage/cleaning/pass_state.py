"""The state of one pass over a log: map the keys of its dirty part, then filter all of it.

1. ``map`` puts each key of dirty batches with its last offset into the map. When the map is full
   the pass ends before the record that did not fit, and the next pass goes on there. A key that is put
   again settles the fate of the record before (``dirty_records``).
2. ``filtered`` filters batches, from the log start on. What it leaves of a few segments or runs replaces them on
   its own: what the map knows to be the last record of a key is in this log whether or not those after
   them were rewritten.

The engines differ in where batches come from and go to (``pass_work``, ``shared.cleaning_work``). Both steps run in a
thread or a process of their own and read what does not change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from stele.wire import record_batch as rb

from ..disk.pace import Pacing
from .batch_filter import BatchFilter, Remains
from .dirty_records import DirtyRecords
from .key_map import KeyMap
from .record_keys import read_keys
from .transactions import Aborted, AbortedBatches, CleanedTransactions

logger = logging.getLogger(__name__)

# The part of the memory of a pass that remembers dirty records; the map of keys has the others.
_DIRTY_SHARE = 8


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
class PassScope:
    """The records of a pass.

    Those from ``first_dirty`` to before ``first_uncleanable`` may replace earlier ones. ``now_ms`` and ``delete_retention_ms`` date tombstones and markers. ``memory_bytes`` bounds the map of keys and what
    is remembered beside it.
    """

    first_dirty: int
    first_uncleanable: int
    now_ms: int
    delete_retention_ms: int
    memory_bytes: int


class PassState:
    """``map`` all dirty batches, ``end_mapping``, then ``filtered`` all batches.

    ``close`` returns the memory. ``transactions`` are what remains of those in the batches that were written so far.
    """

    def __init__(
        self,
        scope: PassScope,
        aborted: Iterable[Aborted],
        *,
        pace: Pacing,
        reserved_bytes: int = 0,
        marker_ms_min: int = 0,
    ) -> None:
        """``aborted`` are the aborted transactions of the log.

        ``reserved_bytes`` of the memory are for the caller. Markers stay ``marker_ms_min`` at least.
        """
        self._scope = scope
        self._pace = pace
        self._marker_ms_min = marker_ms_min
        self._aborted = AbortedBatches(aborted)
        self.transactions = CleanedTransactions(self._aborted, now_ms=scope.now_ms)
        first, end = scope.first_dirty, scope.first_uncleanable
        with ExitStack() as memory:
            dirty_bytes = scope.memory_bytes // _DIRTY_SHARE
            self._dirty = memory.enter_context(closing(DirtyRecords(first, end, memory_bytes=dirty_bytes)))
            left = scope.memory_bytes - self._dirty.memory_bytes - reserved_bytes
            self._keys = memory.enter_context(closing(KeyMap.for_keys(end - first, memory_bytes=left)))
            self._memory = memory.pop_all()
        self._filter: BatchFilter | None = None

    def map(self, batches: Iterable[tuple[bytes, rb.BatchHeader]]) -> int | None:
        """Put the last offset of each key of dirty records into the map.

        Returns the offset of the first record whose key did not fit; None if all did.
        """
        first_dirty = self._scope.first_dirty
        for batch, header in batches:
            self._pace(header.size)
            if header.last_offset < first_dirty or header.is_control or header in self._aborted:
                continue
            full_at = self._map_batch(batch, header)
            if full_at is not None:
                return full_at
        return None

    def _map_batch(self, batch: bytes, header: rb.BatchHeader) -> int | None:
        """The offset of the record whose key did not fit; None if all did."""
        first_dirty = self._scope.first_dirty
        try:
            slices = read_keys(rb.plain_batch(batch, header), self._pause)
        except rb.CorruptBatchError:
            # No reader gets a record of it, so none of it stands for a key.
            return None
        for read in slices:
            part = read.between(first_dirty, header.next_offset) if header.base_offset < first_dirty else read
            replaced: list[int] = []
            full_at = self._keys.put_all(part.keys, part.offsets, replaced)
            self._dirty.note(part if full_at is None else part.between(first_dirty, full_at), replaced)
            if full_at is not None:
                return full_at
            self._pause()
        return None

    def end_mapping(self, mapped_end: int) -> None:
        """Begin to filter: all keys before ``mapped_end`` are known."""
        self._filter = BatchFilter(
            self._keys,
            mapped_end=mapped_end,
            now_ms=self._scope.now_ms,
            delete_retention_ms=self._scope.delete_retention_ms,
            marker_ms_min=self._marker_ms_min,
            dirty=self._dirty,
            pause=self._pause,
        )

    def _pause(self) -> None:
        self._pace(0)

    def filtered(
        self,
        batches: Iterable[tuple[bytes, rb.BatchHeader]],
        counts: PassCounts,
        *,
        end: int,
        source: str,
        last_batches: frozenset[int] = frozenset(),
    ) -> Iterator[tuple[bytes, rb.BatchHeader, Remains]]:
        """Yield each batch with what remains of it.

        The batch before offset ``end`` keeps its place, and so do those at the offsets ``last_batches``. What became
        of all earlier batches is noted in ``transactions`` before the next one is decided about. ``source`` names the
        batches in the log of the broker.
        """
        for batch, header in batches:
            treatment = self.transactions.treatment(header, keep_place=header.base_offset in last_batches)
            if header.next_offset == end and not treatment.keep_place:
                treatment = replace(treatment, keep_place=True)
            assert self._filter is not None, "the keys are mapped first"
            try:
                remains = self._filter.remains(batch, header, treatment)
            except rb.CorruptBatchError as error:
                # As its producer sent it: the CRC is right. What cannot be understood is not deleted.
                logger.warning(
                    "%s: the batch at offset %d is kept as it is: %s",
                    source,
                    header.base_offset,
                    error.reason,
                )
                counts.unreadable_batches += 1
                remains = Remains(data=batch, record_count=header.record_count, is_same=True)
            counts.bytes_read += header.size
            counts.records_read += header.record_count
            counts.bytes_written += len(remains.data)
            counts.records_kept += remains.record_count
            yield batch, header, remains
            self._pace(header.size + len(remains.data))

    def close(self) -> None:
        self._memory.close()
