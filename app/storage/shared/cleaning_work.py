"""The work of a pass of compaction on the bytes of runs; for threads.

It is that of ``cleaning.pass_work``, with the same ``PassState``, but it gets the bytes of runs instead
of reading segments, and returns the bytes of a run instead of writing files. The loop loads and stores.
Producers need no places in the log, because the metadata has their sequences. No transaction is open in what a pass
cleans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..cleaning.pass_state import PassCounts, PassScope, PassState
from ..disk.pace import Pacing
from ..engine import AbortedTransaction
from ..keys.key_index import KeyHasher
from .meta import RunRead
from .runs.builder import BuiltRun, RunBuilder, whole_run

# The part of the memory that the keys of one object may take, for its key index.
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
    batches of its transaction. ``close`` returns the memory.
    """

    def __init__(
        self,
        scope: PassScope,
        *,
        marker_ms_min: int,
        aborted: Sequence[AbortedTransaction],
        key_salt: bytes,
        pace: Pacing,
    ) -> None:
        self._aborted_ends = frozenset(transaction.last_offset for transaction in aborted)
        self._hasher = KeyHasher(key_salt)
        self._index_bytes = scope.memory_bytes // _INDEX_SHARE
        self._pace = pace
        self._state = PassState(
            scope, aborted, pace=pace, reserved_bytes=self._index_bytes, marker_ms_min=marker_ms_min
        )

    def map_run(self, run: RunRead, data: bytearray) -> int | None:
        """Put the keys of a run into the map.

        Return the offset of the first that did not fit, None if all did.

        Raises:
            CorruptRunError: the run is damaged; the log cannot be cleaned.
        """
        return self._state.map(whole_run(run, data))

    def end_mapping(self, mapped_end: int) -> None:
        """Begin to rewrite: all keys before ``mapped_end`` are known."""
        self._state.end_mapping(mapped_end)

    def rewrite(
        self, group: Sequence[RunRead], data: Sequence[bytearray], counts: PassCounts
    ) -> CleanedRun | None:
        """Return what remains of a group. Groups come in order, from the log start on.

        None if it is one merged run of which everything remains, and which needs no key index.

        Raises:
            CorruptRunError: a run is damaged; the log cannot be cleaned.
        """
        end = group[-1].last_offset + 1
        is_same = len(group) == 1 and group[0].is_merged
        gone_markers: list[int] = []
        builder = RunBuilder(group[0].base_offset, hasher=self._hasher, memory_bytes=self._index_bytes)
        try:
            for run, of_run in zip(group, data, strict=True):
                for batch, header, remains in self._state.filtered(
                    whole_run(run, of_run), counts, end=end, source=f"object {run.object.key}"
                ):
                    is_same = is_same and remains.is_same
                    if remains.data:
                        self._state.transactions.note(batch, header)
                        builder.append(remains.data, self._pace)
                    elif header.is_control and header.base_offset in self._aborted_ends:
                        gone_markers.append(header.base_offset)
            if is_same and group[0].keys is not None:
                return None
            built = builder.build(end, self._pace)
            # A merge leaves the key index out where a transaction is open.
            return None if is_same and not built.keys else CleanedRun(built, gone_markers)
        finally:
            builder.close()

    def close(self) -> None:
        self._state.close()
