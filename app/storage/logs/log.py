"""One partition on disk: an ordered list of segments, the last of them active.

::

    log start offset            recovery point      log end offset
          │                           │                    │
    ┌─────┼──────────┬────────────────┼────┬───────────────┤
    │ sealed segment │ sealed segment │    │ active segment│ ← append
    └────────────────┴─────────────────────┴───────────────┘
    deleted │ readable                synced    in the page cache

``recovery.loader`` makes it from a directory (whose files ``partition_files`` names).

Who may call what: ``append``, ``roll``, ``plan`` and the properties belong
to the event loop; ``FlushWork.run``, searches and ``close`` run in a thread, the
first two beside the loop, since sealed segments do not change and the active
one only grows.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from stele.wire import record_batch as rb
from stele.wire.control_record import read_marker

from ...clock import Clock
from ..config_types import INT64_MAX
from ..disk.whole_files import write_file, write_files
from ..engine import AbortedTransaction, PartitionSpec, ProducerState
from ..recovery.checkpoint import LEADER_EPOCHS
from ..recovery.loader import LoadedLog, new_segment
from ..segments.age import Verdict, retention_verdict
from ..segments.loader import adopt_sealed
from ..segments.newest_time import newest_time
from ..segments.partition_files import ABORTED_TRANSACTIONS, PartitionFiles
from ..segments.reader import Extent, extent_from, extent_with_records, find_time
from ..segments.segment import Segment
from ..segments.transaction_index import AbortedEntry, overlapping
from ..topic_config import TopicConfig
from .cuts import LogCut, plan_cut, remove_cut
from .flush_work import FlushWork
from .high_watermark import HighWatermark
from .partition_log import Span, check_offset

# Retention reads the records of an active segment only when nothing was appended for this long.
_ACTIVE_QUIET_MS = 60_000
# A large batch is written ahead again if the end of the log has moved meanwhile.
_AHEAD_ATTEMPTS = 3


class DiskLog:
    """The log of one partition."""

    def __init__(
        self,
        partition: PartitionFiles,
        spec: PartitionSpec,
        clock: Clock,
        loaded: LoadedLog,
        *,
        first_dirty: int = 0,
    ) -> None:
        # Called whenever it has changed, with each append, too.
        self.on_change: Callable[[DiskLog], object] | None = None
        self._partition = partition
        self._files = partition.files
        self._clock = clock
        self.directory = partition.directory
        self.topic_partition = spec.topic_partition
        self.topic_id: UUID = spec.topic_id
        self.config: TopicConfig = spec.config
        self.producer_state: ProducerState = spec.producer_state
        self.segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.segments[-1].next_offset
        self.epochs = loaded.epochs
        # The offset of the newest marker that aborted a transaction, now or earlier; -1: there was none.
        self._last_aborted = max((segment.aborted.last_offset for segment in loaded.segments), default=-1)
        # Offsets were skipped at the start: a checkpoint must say so before anything is acknowledged.
        self.has_jumped = loaded.has_jumped
        # All that a clean shutdown leaves is there: nothing was written since the last one.
        self._is_on_disk = loaded.is_on_disk
        # Whatever recovery kept is synced, and so visible.
        self._high_watermark = HighWatermark()
        # What no sync that has begun covers.
        self.unsynced_records = 0
        self.unsynced_bytes = 0
        self._unsealed: list[Segment] = []
        # Their files are in the hands of the flusher.
        self._in_flush: list[Segment] = []
        self._directory_dirty = False
        # False once the file system has refused it.
        self._has_space_ahead = True
        self.deletions = 0
        # Where the last pass of compaction ended, and before which offset it may have removed records.
        self.first_dirty = first_dirty
        self.holes_until = loaded.holes_until
        # Records before this offset are all that may be the reason for a removal by compaction.
        self.compacted_until = self.segments[-1].next_offset if self.holes_until else 0
        # Held by whatever deletes or replaces segments.
        self.replacements = 0
        self.upkeep = asyncio.Lock()
        assert self.log_start_offset <= self.log_end_offset

    # ── state ──

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].next_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset(self.segments[-1].next_offset)

    @property
    def last_stable_offset(self) -> int:
        return self.readable_ends[0]

    @property
    def readable_ends(self) -> tuple[int, int]:
        end = self._high_watermark.offset(self.segments[-1].next_offset)
        first_open = self.producer_state.first_open_offset
        return end if first_open is None else min(max(first_open, self.log_start_offset), end), end

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # ── append ──

    def write_ahead(
        self, batch: memoryview, header: rb.BatchHeader, leader_epoch: int | None
    ) -> Iterator[None]:
        """Write a large batch where its append would, in steps; see ``Segment.write_ahead``.

        Appends and the end of the segment meanwhile make it begin again, or end.

        Raises ``OSError``.
        """
        # Its append may be refused; a shutdown cuts it off then.
        self._is_on_disk = False
        for _ in range(_AHEAD_ATTEMPTS):
            active = self.segments[-1]
            base_offset = header.base_offset if leader_epoch is None else active.next_offset
            last_offset = base_offset + header.last_offset_delta
            if active.size and self._must_roll(active, len(batch), last_offset, self._clock.now_ms()):
                self.roll()
                active = self.segments[-1]
            size = active.size
            for _ in active.write_ahead(batch, leader_epoch):
                yield
                if self.segments[-1] is not active or active.size != size:
                    break
            else:
                return

    def append(
        self, batches: bytearray | memoryview, headers: list[rb.BatchHeader], *, leader_epoch: int | None
    ) -> tuple[int, int]:
        """Give the batches their offsets, in place, and write them.

        Without a ``leader_epoch`` they are copies that have theirs, and they may leave offsets out (``holes_until``).
        Returns ``(base, last)`` offset.

        Raises:
            OSError, SegmentTornError: as ``Segment.append``.
        """
        self._is_on_disk = False
        if self.on_change is not None:
            self.on_change(self)
        active = self.segments[-1]
        if leader_epoch is None:
            base_offset, offset = headers[0].base_offset, headers[-1].next_offset
        else:
            base_offset = offset = active.next_offset
            for header in headers:
                rb.assign_offsets(batches, header.position, offset, leader_epoch)
                header.base_offset = offset
                header.partition_leader_epoch = leader_epoch
                offset += header.last_offset_delta + 1
        size = len(batches)
        now_ms = self._clock.now_ms()
        if active.size and self._must_roll(active, size, offset - 1, now_ms):
            self.roll()
            active = self.segments[-1]
        active.append(batches, headers, now_ms=now_ms)
        self._high_watermark.appended(size)
        self.unsynced_bytes += size
        for header in headers:
            self.epochs.note(header.partition_leader_epoch, header.base_offset)
            self.unsynced_records += header.record_count
            if header.producer_id != rb.NO_PRODUCER_ID:
                marker = read_marker(batches, header) if header.is_control else None
                aborted = self.producer_state.apply(header, marker)
                if aborted is not None:
                    self.active.aborted.append(aborted)
                    self._last_aborted = aborted.last_offset
        return base_offset, offset - 1

    def skip_to(self, offset: int) -> None:
        """Leave out the offsets up to ``offset``, in a log that may have holes there.

        Raises ``OSError``.
        """
        assert self.log_end_offset <= offset <= self.holes_until
        self.active.next_offset = offset
        self.roll()

    def _must_roll(self, active: Segment, size: int, last_offset: int, now_ms: int) -> bool:
        config = self.config
        if not active.has_room_for(size, last_offset, segment_bytes=config.segment_bytes):
            return True
        age_ms = now_ms - active.created_ms
        # An active segment is never cleaned.
        return age_ms >= config.segment_ms or (age_ms >= config.max_compaction_lag_ms and config.is_compacted)

    def roll(self) -> None:
        """Seal the active segment and go on in a new one; the next flush makes both last.

        If it raises, the new segment may have begun, without its snapshot. Another call then writes that alone.
        """
        self._is_on_disk = False
        self.note_change()
        active = self.active
        snapshot = self.producer_state.snapshot()
        if active.size or active.next_offset > active.base_offset:
            segment = new_segment(
                self._partition,
                active.next_offset,
                self.config,
                self._clock,
                may_have_holes=active.next_offset < self.holes_until,
            )
            segment.create()
            self.segments.append(segment)
            self._bases.append(segment.base_offset)
            self._directory_dirty = True
            self._unsealed.append(active)
        write_file(self._files, self._partition.producers_path(active.next_offset), snapshot, sync=False)

    def note_change(self) -> None:
        """Tell who follows the changes of logs."""
        if self.on_change is not None:
            self.on_change(self)

    # ── sync ──

    def hold_back(self, base_offset: int, size_bytes: int) -> None:
        """Hide the append just made, and what follows, until it is synced.

        It has ``size_bytes`` at ``base_offset``.
        """
        self._high_watermark.hold_back(base_offset, size_bytes)

    @property
    def is_dirty(self) -> bool:
        return self.recovery_point < self.log_end_offset or bool(self._unsealed)

    def flush_work(self) -> FlushWork:
        """Everything not yet synced."""
        self._high_watermark.sync_begins()
        work = FlushWork(end_offset=self.log_end_offset, seals=list(self._unsealed))
        if self._has_space_ahead:
            work.space = self.active.needed_space(self.unsynced_bytes)
        self.unsynced_records = self.unsynced_bytes = 0
        start = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        self._in_flush = self.segments[start:]
        work.files = [segment.file() for segment in self._in_flush]
        if any(segment.aborted for segment in self._unsealed):
            work.aborted_list = self._aborted_list()
        if self._directory_dirty:
            work.directory, work.file_system = self.directory, self._files
        self._directory_dirty = False
        return work

    def _aborted_list(self) -> bytes:
        return self._partition.aborted_list(
            segment.base_offset for segment in self.segments if segment.aborted
        )

    def not_flushed(self, work: FlushWork) -> None:
        """Note that ``work`` synced nothing, so that the next one has all of it."""
        self._in_flush = []
        self._directory_dirty = self._directory_dirty or work.directory is not None

    def flushed(self, work: FlushWork) -> int:
        """Note that ``work`` ran without an error; return how many bytes become visible."""
        self._in_flush = []
        self._has_space_ahead = self._has_space_ahead and not work.is_space_refused
        for segment in work.sealed:
            segment.is_sealed = True
            # Readers take it again, within the limit of open segments.
            segment.release()
            if segment in self._unsealed:
                self._unsealed.remove(segment)
        assert self.recovery_point <= work.end_offset <= self.log_end_offset
        self.recovery_point = work.end_offset
        return self._high_watermark.sync_ends()

    @property
    def checkpoint_offset(self) -> int:
        """The recovery point to save.

        A start trusts the indexes of the segments before it, so they must be written.
        """
        return min([self.recovery_point, *(segment.base_offset for segment in self._unsealed)])

    # ── read ──

    def plan(
        self, offset: int, max_bytes: int, *, at_least_one: bool, end_offset: int = INT64_MAX
    ) -> Callable[[bool], Extent | None] | None:
        check_offset(self, offset)
        if offset == self.log_end_offset or (max_bytes <= 0 and not at_least_one):
            return None
        first = bisect_right(self._bases, offset) - 1
        segment = self.segments[first]
        if not segment.may_have_holes:
            return lambda nowait: extent_from(
                segment, offset, max_bytes, at_least_one=at_least_one, end_offset=end_offset, nowait=nowait
            )
        later = self.segments[first:]
        return lambda nowait: extent_with_records(
            later, offset, max_bytes, at_least_one=at_least_one, end_offset=end_offset, nowait=nowait
        )

    def aborted_search(self, from_offset: int) -> Callable[[int], list[AbortedTransaction]] | None:
        if from_offset > self._last_aborted:
            return None
        # Segments that are replaced keep the transactions of the batches that they hold.
        segments = self.segments[max(0, bisect_right(self._bases, from_offset) - 1) :]
        indexes = [segment.aborted for segment in segments]
        return lambda end_offset: [
            AbortedTransaction(entry.producer_id, entry.first_offset, entry.last_offset)
            for entry in overlapping(indexes, from_offset, end_offset)
        ]

    def aborted_entries(self) -> list[AbortedEntry]:
        """Return all transactions that were aborted, in the order of their markers."""
        if self._last_aborted < 0:
            return []
        return [entry for segment in self.segments for entry in segment.aborted.entries()]

    def holds(self, span: Span) -> bool:
        return isinstance(span, Extent) and (span.segment.is_pinned or span.segment in self.segments)

    def time_search(self, timestamp_ms: int) -> Callable[[], tuple[int, int, int] | None]:
        segments = list(self.segments)
        return lambda: self._find_time(segments, timestamp_ms)

    def _find_time(self, segments: list[Segment], timestamp_ms: int) -> tuple[int, int, int] | None:
        for segment in segments:
            if found := find_time(segment, timestamp_ms, from_offset=self.log_start_offset):
                return found
        return None

    def newest_time_search(self) -> Callable[[], int]:
        segments, start = list(self.segments), self.log_start_offset
        return lambda: newest_time(segments, from_offset=start)

    # ── retention ──

    def advance_log_start(self, offset: int) -> None:
        self.log_start_offset = min(max(self.log_start_offset, offset), self.high_watermark)
        self.note_change()

    def expired_segments(self, now_ms: int) -> list[Segment]:
        """Sealed segments, oldest first, that the configuration no longer keeps.

        One whose age depends on records that have not been read is kept.
        """
        expired: list[Segment] = []
        size = self.size_bytes
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            too_old = self._verdict(segment, now_ms) is Verdict.DELETE
            too_much = 0 <= self.config.retention_bytes <= size - segment.size
            is_deleted = following.base_offset <= self.log_start_offset
            if not (too_old or too_much or is_deleted):
                break
            if following.base_offset > self.recovery_point or segment in self._in_flush:
                break
            size -= segment.size
            expired.append(segment)
        return expired

    def local_start(self) -> int:
        """Return the number of leading segments whose logs are in a bucket alone."""
        return next((n for n, segment in enumerate(self.segments) if segment.remote is None), 0)

    @property
    def has_remote(self) -> bool:
        return self.segments[0].remote is not None

    def is_remote_at(self, offset: int) -> bool:
        segments = self.segments
        return (
            segments[0].remote is not None
            and segments[max(0, bisect_right(self._bases, offset) - 1)].remote is not None
        )

    def segments_to_leave(self, now_ms: int) -> list[Segment]:
        """Return sealed segments, oldest first, that ``local.retention.*`` no longer keeps on the disk.

        Also those whose age is not known before their records have been read.
        """
        config, start = self.config, self.local_start()
        if not config.remote_storage_enable:
            return []
        local = self.segments[start:]
        size = sum(segment.size for segment in local)
        leaving: list[Segment] = []
        for segment, following in pairwise(local):
            too_old = self._verdict(segment, now_ms, config.effective_local_retention_ms) is not Verdict.KEEP
            too_much = 0 <= config.effective_local_retention_bytes <= size - segment.size
            if not (too_old or too_much) or not segment.is_sealed:
                break
            if following.base_offset > self.recovery_point or segment in self._in_flush:
                break
            size -= segment.size
            leaving.append(segment)
        return leaving

    def active_is_expired(self, now_ms: int) -> bool:
        """True when even the active segment holds only records past their time."""
        return self.active.size > 0 and self._verdict(self.active, now_ms) is Verdict.DELETE

    def segment_to_read(self, now_ms: int) -> Segment | None:
        """The oldest segment past its time by all but its records' timestamps.

        All segments before it are past their time.

        Not an active segment that is being appended to: what was read of it would not be all of it.
        """
        quiet_ms = min(_ACTIVE_QUIET_MS, self.config.retention_ms)
        for segment in self.segments:
            verdict = self._verdict(segment, now_ms)
            if verdict is Verdict.READ and segment.size:
                is_quiet = segment is not self.active or now_ms - segment.appended_ms >= quiet_ms
                return segment if is_quiet else None
            if verdict is Verdict.KEEP:
                return None
        return None

    def _verdict(self, segment: Segment, now_ms: int, retention_ms: int | None = None) -> Verdict:
        return retention_verdict(
            self.config,
            retention_ms=self.config.retention_ms if retention_ms is None else retention_ms,
            claimed_ms=segment.max_timestamp,
            arrival_ms=segment.appended_ms,
            records=segment.record_age,
            now_ms=now_ms,
        )

    def detach(self, segments: list[Segment]) -> list[Path]:
        """Take the oldest ``segments`` out of the log; returns the files to delete."""
        assert segments == self.segments[: len(segments)]
        assert len(segments) < len(self.segments), "the active segment stays"
        del self.segments[: len(segments)]
        del self._bases[: len(segments)]
        self.deletions += 1
        self.advance_log_start(self._bases[0])
        paths: list[Path] = []
        for segment in segments:
            segment.release()
            if segment in self._unsealed:
                self._unsealed.remove(segment)
            paths += segment.paths
        return paths

    # ── cutting a copy back ──

    def plan_cut(self, offset: int) -> LogCut:
        """Return how the log is to end at ``offset`` or before, which changes nothing; for threads.

        Raises ``OSError``.
        """
        if (self.config.is_compacted or self.first_dirty) and self.compacted_until > offset:
            # Records before the cut may have gone because of records after it.
            offset = min(offset, self.log_start_offset)
        return plan_cut(
            self._partition,
            list(self.segments),
            offset,
            blank=self.producer_state.blank(),
            new_segment=lambda base_offset: new_segment(
                self._partition, base_offset, self.config, self._clock, may_have_holes=True
            ),
        )

    def remove_cut(self, cut: LogCut) -> None:
        """Remove what is cut off from the disk; for threads. Raises ``OSError``."""
        remove_cut(self._partition, cut)

    def cut_back(self, cut: LogCut) -> None:
        """End where ``cut`` says, in memory: its caller makes that last before anything is appended.

        All was synced before. ``epochs`` stay, until the earlier end is saved: a start reads those that follow it from the log.
        """
        for segment in cut.removed:
            segment.is_cut = True
            segment.release()
        kept = len(cut.kept)
        self.segments[kept:] = [cut.active]
        self._bases[kept:] = [cut.active.base_offset]
        self.deletions += 1
        end_offset = self.log_end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = end_offset
        self.producer_state.restore(cut.producers)
        self._last_aborted = max(segment.aborted.last_offset for segment in self.segments)
        self.first_dirty = min(self.first_dirty, end_offset)
        self.compacted_until = min(self.compacted_until, end_offset)
        self._unsealed, self._in_flush = [], []
        self._is_on_disk = False
        self.note_change()

    # ── compaction ──

    def cleanable_segments(self) -> int:
        """Count the leading segments that are sealed, synced and in no running sync."""
        for number, segment in enumerate(self.segments):
            if segment.remote is not None:
                # From when the topic was not compacted.
                return number
            is_busy = segment in self._unsealed or segment in self._in_flush
            if not segment.is_sealed or is_busy or segment.next_offset > self.recovery_point:
                return number
        return len(self.segments)

    def write_holes_until(self, offset: int) -> None:
        """Make it last that compaction may remove records before ``offset``; for threads.

        Raises ``OSError``.
        """
        self._partition.write_holes_until(offset)

    def adopt_cleaned(self, replaced: list[Segment]) -> Segment:
        """Load the segment that was put in the place of ``replaced`` on the disk; for threads."""
        cleaned = new_segment(
            self._partition, replaced[0].base_offset, self.config, self._clock, may_have_holes=True
        )
        adopt_sealed(cleaned, next_offset=replaced[-1].next_offset)
        # Retention goes by when records came, not by when they were copied.
        cleaned.created_ms = replaced[0].created_ms
        cleaned.appended_ms = max(segment.appended_ms for segment in replaced)
        return cleaned

    def replace_segments(self, replaced: list[Segment], cleaned: Segment) -> None:
        """Put ``cleaned`` in the place of adjacent segments, which were pinned.

        Readers of these finish on them.
        """
        start = self.segments.index(replaced[0])
        end = start + len(replaced)
        assert replaced == self.segments[start:end]
        assert all(segment.is_pinned for segment in replaced)
        assert (cleaned.base_offset, cleaned.next_offset) == (
            replaced[0].base_offset,
            replaced[-1].next_offset,
        )
        self._is_on_disk = False
        self.segments[start:end] = [cleaned]
        self._bases[start:end] = [cleaned.base_offset]
        self.replacements += 1
        self.note_change()

    def stale_snapshots(self) -> list[Path]:
        """Producer snapshots that no recovery will ask for."""
        return self._partition.stale_snapshots(self.checkpoint_offset)

    # ── closing ──

    def close(self, *, clean: bool) -> None:
        """Release the files; ``clean`` also leaves everything that spares the next start a scan.

        Raises:
            OSError: then the shutdown is not clean.
        """
        if clean and not self._is_on_disk:
            if self.is_dirty:
                work = self.flush_work()
                work.run()
                self.flushed(work)
            contents = {
                self._partition.producers_path(self.log_end_offset).name: self.producer_state.snapshot()
            }
            if self._last_aborted >= 0:
                contents[ABORTED_TRANSACTIONS] = self._aborted_list()
            if self.epochs.is_dirty:
                contents[LEADER_EPOCHS] = self.epochs.content()
            for segment in (*self._unsealed, self.active):
                segment.cut_space()
                segment.remove_stale_index()
                if segment is not self.active or segment.needs_indexes:
                    contents |= segment.index_contents()
            write_files(self._files, self.directory, contents)
        for segment in self.segments:
            segment.release()
