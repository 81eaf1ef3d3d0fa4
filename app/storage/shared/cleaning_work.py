"""The work of a pass of compaction on the bytes of runs; for threads.

It is the work of ``cleaning/pass_work.py``, with the same filter, but it gets the bytes of runs instead
of reading segments, and returns the bytes of a run instead of writing files. The loop loads and stores.
Producers need no places in the log, because the metadata has their sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from stele.wire import record_batch as rb

from ..cleaning.batch_filter import BatchFilter
from ..cleaning.cleaning_pass import Pacing, PassCounts, filtered, map_batches
from ..cleaning.dirty_records import DirtyRecords
from ..cleaning.key_map import KeyMap
from ..keys.key_index import KeyHasher
from .meta import RunRead
from .run_builder import BuiltRun, RunBuilder, whole_run

# As in ``cleaning/pass_work.py``: the part that remembers dirty records.
_DIRTY_SHARE = 8
# The part that the keys of one object may take, for its key index.
_INDEX_SHARE = 4
NO_TRANSACTIONS = "compacted topics of shared storage take no transactions yet; produce without them"


class TransactionsNotCleanedError(Exception):
    """A log has batches of transactions, which compaction cannot handle here.

    Shared storage cannot tell the aborted ones.
    """


class CleaningWork:
    """One pass over one log.

    ``map_run`` for each dirty run, ``end_mapping``, then ``rewrite`` for each group.

    ``memory_bytes`` bounds the map of keys and what is remembered beside it. ``close`` returns it.
    """

    def __init__(
        self,
        *,
        first_dirty: int,
        first_uncleanable: int,
        now_ms: int,
        delete_retention_ms: int,
        key_salt: bytes,
        memory_bytes: int,
        pace: Pacing,
    ) -> None:
        self._first_dirty = first_dirty
        self._first_uncleanable = first_uncleanable
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
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
            TransactionsNotCleanedError: it has batches of transactions; here and in ``rewrite``.
        """
        return map_batches(
            _known(run, data),
            self._keys,
            first_dirty=self._first_dirty,
            dirty=self._dirty,
            pace=self._pace,
        )

    def end_mapping(self, mapped_end: int) -> None:
        """Begin to rewrite: all keys before ``mapped_end`` are known."""
        self._filter = BatchFilter(
            self._keys,
            mapped_end=mapped_end,
            now_ms=self._now_ms,
            delete_retention_ms=self._delete_retention_ms,
            dirty=self._dirty,
            pause=lambda: self._pace(0),
        )

    def rewrite(
        self, group: Sequence[RunRead], data: Sequence[bytearray], counts: PassCounts
    ) -> BuiltRun | None:
        """Return what remains of a group.

        None if it is one merged run of which everything remains.

        Raises:
            CorruptRunError: a run is damaged; the log cannot be cleaned.
        """
        assert self._filter is not None, "the keys are mapped first"
        end = group[-1].last_offset + 1
        is_same = len(group) == 1 and group[0].is_merged
        builder = RunBuilder(group[0].base_offset, hasher=self._hasher, memory_bytes=self._index_bytes)
        try:
            for run, of_run in zip(group, data, strict=True):
                remaining = filtered(
                    _known(run, of_run),
                    self._filter,
                    counts,
                    end=end,
                    source=f"object {run.object.key}",
                )
                for _, header, remains in remaining:
                    is_same = is_same and remains.is_same
                    if remains.data:
                        builder.append(remains.data, self._pace)
                    self._pace(header.size + len(remains.data))
            return None if is_same else builder.build(end, self._pace)
        finally:
            builder.close()

    def close(self) -> None:
        self._memory.close()


def _known(run: RunRead, data: bytearray) -> Iterator[tuple[bytes, rb.BatchHeader]]:
    """Yield the batches of a run.

    End with an error at one that is not to be judged by its keys alone.
    """
    for batch, header in whole_run(run, data):
        if header.is_transactional or header.is_control:
            raise TransactionsNotCleanedError(
                f"the batch at offset {header.base_offset} belongs to a transaction; {NO_TRANSACTIONS}"
            )
        yield batch, header
