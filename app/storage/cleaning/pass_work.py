"""The work of one pass, and all that it needs to know: nothing of the log that it cleans.

A thread of the broker or a process of its own does it (``worker_process``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from stele.wire.record_batch import BatchHeader

from ..disk.files import Files
from ..segments.transaction_index import AbortedEntry
from .batch_filter import BatchFilter, Treatment
from .cleaned_segment import CleanedSegmentTooLarge
from .dirty_records import DirtyRecords
from .key_map import KeyMap
from .pass_steps import Pacing, PassCounts, SegmentSource, map_keys, rewrite
from .planning import SegmentFacts
from .transactions import AbortedBatches, CleanedTransactions

# The part of the memory of a pass that remembers dirty records; the map of keys has the others.
_DIRTY_SHARE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOrder:
    """One pass over the partition in ``directory``.

    ``last_batches`` are the base offsets of batches that keep their place, because they
    have the last sequence of an active producer. ``aborted`` are the aborted transactions of the
    log. ``memory_bytes`` bounds the map of keys and what is remembered beside it.
    """

    directory: str
    segments: Sequence[SegmentFacts]
    first_dirty: int
    first_uncleanable: int
    last_batches: frozenset[int]
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    memory_bytes: int
    aborted: Sequence[AbortedEntry] = ()


class PassWork:
    """``map_keys``, then ``rewrite`` for each group; ``close`` returns the memory."""

    def __init__(self, files: Files, order: PassOrder, pace: Pacing) -> None:
        self._order = order
        self._pace = pace
        self._source = SegmentSource(files=files, directory=Path(order.directory))
        first, end = order.first_dirty, order.first_uncleanable
        with ExitStack() as memory:
            dirty_bytes = order.memory_bytes // _DIRTY_SHARE
            self._dirty = memory.enter_context(DirtyRecords(first, end, memory_bytes=dirty_bytes))
            left = order.memory_bytes - self._dirty.memory_bytes
            self._keys = memory.enter_context(KeyMap.for_keys(end - first, memory_bytes=left))
            self._memory = memory.pop_all()
        self._filter: BatchFilter | None = None
        self._aborted = AbortedBatches(order.aborted)
        self._transactions = CleanedTransactions(self._aborted, now_ms=order.now_ms)

    def map_keys(self) -> int:
        """Return the offset up to which all keys are known (``pass_steps.map_keys``).

        Raises:
            CorruptLog, OSError: a segment cannot be read.
        """
        order = self._order
        mapped_end = map_keys(
            self._source,
            order.segments,
            self._keys,
            first_dirty=order.first_dirty,
            first_uncleanable=order.first_uncleanable,
            dirty=self._dirty,
            is_aborted=self._aborted.__contains__,
            pace=self._pace,
        )
        self._filter = BatchFilter(
            self._keys,
            mapped_end=mapped_end,
            now_ms=order.now_ms,
            delete_retention_ms=order.delete_retention_ms,
            dirty=self._dirty,
            pause=lambda: self._pace(0),
        )
        return mapped_end

    def rewrite(self, group: Sequence[SegmentFacts], counts: PassCounts) -> bool:
        """Write the cleaned segment of ``group``; False if all of it stays as it is.

        Counts into ``counts``.

        Raises:
            CleanedSegmentTooLarge, CorruptLog, OSError: see ``pass_steps.rewrite``.
        """
        assert self._filter is not None, "the keys are mapped first"
        before = self._transactions.copy()
        try:
            cleaned = rewrite(
                self._source,
                group,
                self._filter,
                counts,
                index_interval_bytes=self._order.index_interval_bytes,
                treatment_of=self._treatment_of,
                note=self._transactions.note,
                pace=self._pace,
            )
        except CleanedSegmentTooLarge:
            self._transactions = before
            if len(group) == 1:
                # It stays as it is.
                for batch, header in self._source.batches(group[0]):
                    self._transactions.note(batch, header)
            raise
        return cleaned is not None

    def _treatment_of(self, header: BatchHeader) -> Treatment:
        return self._transactions.treatment(header, keep_place=header.base_offset in self._order.last_batches)

    def close(self) -> None:
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
