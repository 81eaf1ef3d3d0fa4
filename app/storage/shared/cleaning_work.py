"""The work of a pass of compaction on the bytes of runs; for threads.

It is the work of ``cleaning/pass_work.py``, with the same filter, but it gets the bytes of runs instead
of reading segments, and returns the bytes of a run instead of writing files. The loop loads and stores.
Producers need no places in the log, because the metadata has their sequences. It also knows which transactions were
aborted; those that are open are after what a pass cleans.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from stele.wire.record_batch import BatchHeader

from ..cleaning.batch_filter import BatchFilter, Treatment
from ..cleaning.dirty_records import DirtyRecords
from ..cleaning.key_map import KeyMap
from ..cleaning.pass_steps import Pacing, PassCounts, filtered, map_batches
from ..cleaning.transactions import AbortedBatches, CleanedTransactions
from ..engine import AbortedTransaction
from ..keys.key_index import KeyHasher
from .meta import RunRead
from .runs.builder import BuiltRun, RunBuilder, whole_run

# As in ``cleaning/pass_work.py``: the part that remembers dirty records.
_DIRTY_SHARE = 8
# The part that the keys of one object may take, for its key index.
_INDEX_SHARE = 4


class CleanedRun(NamedTuple):
    """The result of cleaning a group of runs.

    ``gone_markers`` are the offsets of the markers of aborts that do not.
    """

    built: BuiltRun
    gone_markers: Sequence[int]


class CleaningWork:
    """One pass over one log: ``map_run`` per dirty run, ``end_mapping``, then ``rewrite`` per group.

    ``aborted`` are the aborted transactions of the log, and a marker stays for ``marker_ms_min`` at least after the
    batches of its transaction. ``memory_bytes`` bounds the map of keys and what is remembered beside it. ``close``
    returns it.
    """

    def __init__(
        self,
        *,
        first_dirty: int,
        first_uncleanable: int,
        now_ms: int,
        delete_retention_ms: int,
        marker_ms_min: int,
        aborted: Sequence[AbortedTransaction],
        key_salt: bytes,
        memory_bytes: int,
        pace: Pacing,
    ) -> None:
        self._first_dirty = first_dirty
        self._first_uncleanable = first_uncleanable
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._marker_ms_min = marker_ms_min
        self._aborted_ends = frozenset(transaction.last_offset for transaction in aborted)
        self._aborted = AbortedBatches(aborted)
        self._transactions = CleanedTransactions(self._aborted, now_ms=now_ms)
        self._hasher = KeyHasher(key_salt)
        self._index_bytes = memory_bytes // _INDEX_SHARE
        self._pace = pace
        with ExitStack() as memory:
            dirty_bytes = memory_bytes // _DIRTY_SHARE
            self._dirty = memory.enter_context(
                DirtyRecords(first_dirty, first_uncleanable, memory_bytes=dirty_bytes)
            )
            left = memory_bytes - self._dirty.memory_bytes - self._index_bytes
            self._keys = memory.enter_context(
                KeyMap.for_keys(first_uncleanable - first_dirty, memory_bytes=left)
            )
            self._memory = memory.pop_all()
        self._filter: BatchFilter | None = None

    def map_run(self, run: RunRead, data: bytearray) -> int | None:
        """Put the keys of a run into the map.

        Return the offset of the first that did not fit, None if all did.

        Raises:
            CorruptRunError: the run is damaged; the log cannot be cleaned.
        """
        return map_batches(
            whole_run(run, data),
            self._keys,
            first_dirty=self._first_dirty,
            dirty=self._dirty,
            is_aborted=self._aborted.__contains__,
            pace=self._pace,
        )

    def end_mapping(self, mapped_end: int) -> None:
        """Begin to rewrite: all keys before ``mapped_end`` are known."""
        self._filter = BatchFilter(
            self._keys,
            mapped_end=mapped_end,
            now_ms=self._now_ms,
            delete_retention_ms=self._delete_retention_ms,
            marker_ms_min=self._marker_ms_min,
            dirty=self._dirty,
            pause=lambda: self._pace(0),
        )

    def rewrite(
        self, group: Sequence[RunRead], data: Sequence[bytearray], counts: PassCounts
    ) -> CleanedRun | None:
        """Return what remains of a group. Groups come in order, from the log start on.

        None if it is one merged run of which everything remains, and which needs no key index.

        Raises:
            CorruptRunError: a run is damaged; the log cannot be cleaned.
        """
        assert self._filter is not None, "the keys are mapped first"
        end = group[-1].last_offset + 1
        is_same = len(group) == 1 and group[0].is_merged
        gone_markers: list[int] = []
        builder = RunBuilder(group[0].base_offset, hasher=self._hasher, memory_bytes=self._index_bytes)
        try:
            for run, of_run in zip(group, data, strict=True):
                remaining = filtered(
                    whole_run(run, of_run),
                    self._filter,
                    counts,
                    end=end,
                    source=f"object {run.object.key}",
                    treatment_of=self._treatment_of,
                )
                for batch, header, remains in remaining:
                    is_same = is_same and remains.is_same
                    if remains.data:
                        self._transactions.note(batch, header)
                        builder.append(remains.data, self._pace)
                    elif header.is_control and header.base_offset in self._aborted_ends:
                        gone_markers.append(header.base_offset)
                    self._pace(header.size + len(remains.data))
            if is_same and group[0].keys is not None:
                return None
            built = builder.build(end, self._pace)
            # A merge leaves the key index out where a transaction is open.
            return None if is_same and not built.keys else CleanedRun(built, gone_markers)
        finally:
            builder.close()

    def _treatment_of(self, header: BatchHeader) -> Treatment:
        return self._transactions.treatment(header, keep_place=False)

    def close(self) -> None:
        self._memory.close()
