"""Cut the log of a copy back, because its source has lost what it had; for threads.

::

    plan     the segments that stay as they are │ a new view of the one that ends earlier │ producers there
    then     the log goes on with these, in memory; a checkpoint has the earlier end
    remove   snapshots, then segments from the last to the first, then the end of the one that stays

Whatever a crash leaves begins as the log did, and has no gap: the next start finds a longer end, which the mirror finds
to differ once more. Readers that hold a segment that goes find its file gone or short, and look again (``Segment.is_cut``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..engine import ProducerState
from ..recovery.producer_state_replay import ProducerStateReplay
from ..segments.loader import rebuild
from ..segments.partition_files import ABORTED_TRANSACTIONS, PRODUCERS_SUFFIX, PartitionFiles
from ..segments.remote_segments import write_remote_segments
from ..segments.scan import CorruptRange
from ..segments.segment import Segment
from ..segments.transaction_index import TransactionIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCut:
    """``active`` follows ``kept`` in the place of ``removed``; ``producers`` is the snapshot of their state at its end.

    ``is_new``: no file has what ``active`` is to have, which is nothing.
    """

    kept: Sequence[Segment]
    active: Segment
    removed: Sequence[Segment]
    is_new: bool
    producers: bytes


def plan_cut(
    partition: PartitionFiles,
    segments: Sequence[Segment],
    offset: int,
    *,
    blank: ProducerState,
    new_segment: Callable[[int], Segment],
) -> LogCut:
    """Return how ``segments``, to which nothing is appended, end at ``offset`` or before; nothing is changed.

    ``blank`` knows no producers yet. A segment that is in a bucket goes as a whole.

    Raises ``OSError``.
    """
    at = bisect_left(segments, offset, key=lambda one: one.base_offset) - 1
    is_new = at < 0 or segments[at].remote is not None
    if is_new:
        at = max(at, 0)
        active = new_segment(min(offset, segments[at].base_offset))
    else:
        active = _shortened(segments[at], offset)
    kept = segments[:at]
    replay = ProducerStateReplay(
        partition, blank, first_offset=(*kept, active)[0].base_offset, holes_until=active.next_offset
    )
    replay.restore_before(active.next_offset, kept if is_new else [*kept, active])
    return LogCut(kept=kept, active=active, removed=segments[at:], is_new=is_new, producers=blank.snapshot())


def _shortened(segment: Segment, offset: int) -> Segment:
    """Return a segment with the same file that ends before the first batch that reaches past ``offset``."""
    active = segment.unread()
    for scanned in rebuild(active, end=segment.size):
        if not isinstance(scanned, CorruptRange) and scanned.next_offset > offset:
            break
    active.aborted = TransactionIndex(
        entry for entry in segment.aborted.entries() if entry.last_offset < active.next_offset
    )
    return active


def remove_cut(partition: PartitionFiles, cut: LogCut) -> None:
    """Remove from the disk what a log no longer has, and make that last. Raises ``OSError``."""
    files, active = partition.files, cut.active
    for offset in partition.stored(PRODUCERS_SUFFIX):
        if offset > active.next_offset:
            files.remove(partition.producers_path(offset))
    for segment in reversed(cut.removed):
        for path in segment.paths:
            if files.exists(path) and (cut.is_new or path != active.path):
                files.remove(path)
    if any(segment.remote is not None for segment in cut.removed):
        left = [segment.remote.known for segment in cut.kept if segment.remote is not None]
        write_remote_segments(files, partition.directory, left)
    if files.exists(partition.directory / ABORTED_TRANSACTIONS):
        partition.write_aborted_list(segment.base_offset for segment in cut.kept if segment.aborted)
    if cut.is_new:
        active.create()
    else:
        active.truncate()
    active.file().sync()
    files.sync_dir(partition.directory)
