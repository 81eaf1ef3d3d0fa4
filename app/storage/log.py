"""One partition on disk: an ordered list of segments, the last of them active.

::

    orders-0/
      partition.metadata                    version and topic id, as Apache Kafka writes it
      leader-epoch-checkpoint
      00000000000000000000.log/.index/.timeindex        sealed
      00000000000000041872.log                          active (its indexes are in memory)
      00000000000000041872.producers                    ledger snapshot at that offset

Who may call what: ``open`` and ``close`` run in a thread before and after the
log is in use; ``append``, ``plan``, ``roll`` and the properties belong to the
event loop; methods with ``nowait=False``, ``FlushWork.run`` and ``find_time``
may run in a thread beside it, since sealed segments do not change and the
active one only grows.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from stele.wire import record_batch as rb

from ..clock import Clock
from ..errors import OffsetOutOfRange, StorageError
from .checkpoint import LEADER_EPOCHS, LeaderEpochs
from .engine import BatchLedger, PartitionSpec
from .files import DISK_FULL, File, Files, read_file, write_file, write_files
from .recovery import Crash, recover_segments
from .segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Extent, Segment, segment_name
from .topic_config import TopicConfig

logger = logging.getLogger(__name__)

PARTITION_METADATA = "partition.metadata"
PRODUCERS_SUFFIX = ".producers"
DELETED_SUFFIX = ".deleted"
# Older snapshots than these are never asked for.
_SNAPSHOTS_KEPT = 2
_TOPIC_ID = re.compile(r"topic_id: ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


@dataclass(slots=True)
class FlushWork:
    """What one sync of a partition must cover; made on the loop, run in a thread."""

    end_offset: int
    files: list[File] = field(default_factory=list[File])
    seals: list[Segment] = field(default_factory=list[Segment])
    sealed: list[Segment] = field(default_factory=list[Segment])
    directory: Path | None = None
    file_system: Files | None = None

    def run(self) -> None:
        """Raises ``OSError``: then nothing may be called synced."""
        for segment in self.seals:
            try:
                segment.write_indexes()
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                # The records can be synced all the same; the next flush tries the indexes again.
                logger.warning("%s: no space for its indexes yet", segment.path)
            else:
                self.sealed.append(segment)
        for file in self.files:
            file.sync()
        if self.directory is not None and self.file_system is not None:
            self.file_system.sync_dir(self.directory)


class DiskLog:
    """The log of one partition."""

    def __init__(self, files: Files, directory: Path, spec: PartitionSpec, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self.directory = directory
        self.topic_partition = spec.topic_partition
        self.topic_id: UUID = spec.topic_id
        self.config: TopicConfig = spec.config
        self.ledger: BatchLedger = spec.ledger
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        self.log_start_offset = 0
        self.recovery_point = 0
        self.epochs = LeaderEpochs()
        # What no sync that has begun covers.
        self.unsynced_records = 0
        self.unsynced_bytes = 0
        self._unsealed: list[Segment] = []
        # Their files are in the hands of the flusher.
        self._in_flush: list[Segment] = []
        self._directory_dirty = False
        # Offsets were skipped at the start: a checkpoint must say so before anything is acknowledged.
        self.has_jumped = False
        # All that a clean shutdown leaves is there: nothing was written since the last one.
        self._is_on_disk = False
        # The ledger knows of everything before this offset, or knows that it does not.
        self._ledger_offset = 0

    # ── opening ──

    def found_topic_id(self) -> UUID | None:
        """Whose partition the directory holds; None if there is none, or if it does not say."""
        raw = read_file(self._files, self.directory / PARTITION_METADATA)
        if raw is None:
            return self.topic_id if self._stored(LOG_SUFFIX) else None
        found = _TOPIC_ID.search(raw.decode(errors="replace"))
        if found is None or _differ_in_one(found[1], str(self.topic_id)):
            logger.warning("%s is damaged and is written again", self.directory / PARTITION_METADATA)
            return self.topic_id
        return UUID(found[1])

    def open(self, *, crash: Crash | None, recovery_point: int, log_start_offset: int) -> None:
        """Make or load the partition; ``crash`` None means the last run closed it.

        ``recovery_point`` and ``log_start_offset`` are those of the checkpoint:
        no offset before them is ever given (again). The directory must not be
        another topic's (``found_topic_id``).

        The name of the directory lasts once its parent is synced, which is the caller's.

        Raises:
            OSError: the disk failed.
        """
        self._files.make_dir(self.directory)
        self._write_metadata()
        for name in self._names():
            if name.endswith((DELETED_SUFFIX, ".tmp")):
                self._files.remove(self.directory / name)
        bases = self._stored(LOG_SUFFIX)
        while len(bases) > 1 and bases[1] <= log_start_offset:
            # Retention was interrupted; what it left has holes.
            self._remove_segment(bases.pop(0))
        self.segments = [self._segment(base) for base in bases]
        used_offset = max(recovery_point, log_start_offset)
        if self.segments:
            self._report_missing(self.segments[0].base_offset, log_start_offset)
            self.epochs = LeaderEpochs.read(self._files, self.directory)
            if crash is None:
                self._is_on_disk = self._adopt(recovery_point, used_offset)
            else:
                self._recover(crash, used_offset)
        else:
            self._report_missing(used_offset, log_start_offset)
            self._add_segment(used_offset)
            self._restore_before(used_offset)
            self._files.sync_dir(self.directory)
        self._bases = [segment.base_offset for segment in self.segments]
        self.log_start_offset = max(log_start_offset, self._bases[0])
        assert self.log_start_offset <= self.log_end_offset
        self._is_on_disk = self._is_on_disk or (self.log_end_offset == 0 and self._is_blank())
        self._directory_dirty = False
        self.recovery_point = self.log_end_offset
        self._skip_in_ledger(self.log_end_offset)
        for path in self.stale_snapshots():
            self._files.remove(path)

    def _write_metadata(self) -> None:
        path = self.directory / PARTITION_METADATA
        content = f"version: 0\ntopic_id: {self.topic_id}\n".encode()
        if read_file(self._files, path) != content:
            write_file(self._files, path, content)

    def _report_missing(self, found_offset: int, log_start_offset: int) -> None:
        if found_offset > log_start_offset:
            logger.error(
                "%s: the files of offsets %d to %d are missing",
                self.directory,
                log_start_offset,
                found_offset - 1,
            )

    def _remove_segment(self, base_offset: int) -> None:
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = self.directory / (segment_name(base_offset) + suffix)
            if self._files.exists(path):
                self._files.remove(path)

    def _names(self) -> list[str]:
        return self._files.list_dir(self.directory) if self._files.exists(self.directory) else []

    def _stored(self, suffix: str) -> list[int]:
        """The offsets that files with ``suffix`` are named after, ascending."""
        stems = [name.removesuffix(suffix) for name in self._names() if name.endswith(suffix)]
        return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal())

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._files,
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=self._clock.now_ms(),
        )

    def _add_segment(self, base_offset: int) -> Segment:
        segment = self._segment(base_offset)
        segment.create()
        self.segments.append(segment)
        self._bases.append(base_offset)
        self._directory_dirty = True
        return segment

    def _adopt_sealed(self, sealed: list[Segment]) -> None:
        for segment, following in zip(sealed, self.segments[1:], strict=False):
            if not segment.adopt_sealed(next_offset=following.base_offset):
                logger.warning("%s: its indexes did not fit, they were built again", segment.path)

    def _adopt(self, recovery_point: int, used_offset: int) -> bool:
        """After a clean shutdown: no log is read but the last few headers. Returns False if it left not all."""
        if not used_offset and self._is_blank():
            return True
        *sealed, active = self.segments
        self._adopt_sealed(sealed)
        is_whole = True
        # The shutdown left a checkpoint, too; 0 says that it is lost.
        if not active.adopt_active() or (recovery_point and active.next_offset != recovery_point):
            logger.warning("%s: its indexes do not fit, they are built again", active.path)
            crash = Crash(recovery_point=2**63 - 1, log_start_offset=0, same_boot=True)
            self.segments = [*sealed, *recover_segments(self._files, [active], crash, lambda _: None)]
            # The shutdown also left a snapshot, whose name says where the log ended.
            self._roll_behind_damage(max([used_offset, *self._stored(PRODUCERS_SUFFIX)]))
            is_whole = False
        else:
            self._roll_behind_damage(used_offset)
        has_snapshot = self._restore_before(self.log_end_offset)
        return is_whole and has_snapshot and not self.has_jumped

    def _is_blank(self) -> bool:
        """Nothing was ever written to it: a clean shutdown adds nothing to what ``open`` made."""
        only = segment_name(0) + LOG_SUFFIX
        return (
            set(self._names()) == {PARTITION_METADATA, only} and self._files.size(self.directory / only) == 0
        )

    def _recover(self, crash: Crash, used_offset: int) -> None:
        """After a crash: scan from the segment that holds the recovery point."""
        self._bases = [segment.base_offset for segment in self.segments]
        # A segment that ends at the point exactly may have been active then, and not have its indexes.
        first = max(0, bisect_left(self._bases, crash.recovery_point) - 1)
        trusted, suspect = self.segments[:first], self.segments[first:]
        self._adopt_sealed(trusted)
        self.segments = trusted
        self._restore_before(suspect[0].base_offset)
        self.epochs.truncate_to(suspect[0].base_offset)

        def on_batch(header: rb.BatchHeader) -> None:
            self._feed_ledger(header)
            self.epochs.note(header.partition_leader_epoch, header.base_offset)

        recovered = recover_segments(self._files, suspect, crash, on_batch)
        self.segments = trusted + recovered
        self._roll_behind_damage(used_offset)
        for segment in recovered:
            segment.file().sync()
            if segment is not self.segments[-1]:
                segment.is_sealed = True
                segment.write_indexes()
                segment.release()
        self.epochs.write(self._files, self.directory)
        # They tell of batches that were cut; other batches will have their offsets.
        for offset in self._stored(PRODUCERS_SUFFIX):
            if offset > self.log_end_offset:
                self._files.remove(self._producers_path(offset))
        self._files.sync_dir(self.directory)

    def _roll_behind_damage(self, used_offset: int) -> None:
        """Never append behind bytes that are no batch, and never give an offset before ``used_offset``."""
        active = self.segments[-1]
        at_end = bool(active.damages) and active.damages[-1].end_position == active.size
        if active.next_offset >= used_offset and not at_end:
            return
        # At least one offset is lost with the bytes at the end: two segments cannot have one name.
        active.lose_until(max(active.next_offset, used_offset, active.base_offset + 1))
        active.is_sealed = True
        active.write_indexes()
        self._add_segment(active.next_offset)
        self._files.sync_dir(self.directory)
        self.has_jumped = True

    def _producers_path(self, offset: int) -> Path:
        return self.directory / (segment_name(offset) + PRODUCERS_SUFFIX)

    def _restore_before(self, offset: int) -> bool:
        """Bring the ledger to ``offset``: the newest usable snapshot, and the headers of ``self.segments`` behind it.

        The CRCs of the batches are not the matter here. Returns True if the
        snapshot was all that it took.
        """
        for candidate in reversed([s for s in self._stored(PRODUCERS_SUFFIX) if s <= offset]):
            if self._restore(candidate):
                if candidate == offset:
                    return True
                break
        for segment in self.segments:
            if segment.next_offset > self._ledger_offset and segment.size:
                for header in self._headers(segment):
                    if header.base_offset >= self._ledger_offset:
                        self._feed_ledger(header)
        self._skip_in_ledger(offset)
        return False

    def _restore(self, offset: int) -> bool:
        snapshot = read_file(self._files, self._producers_path(offset))
        try:
            self.ledger.restore(snapshot or b"")
        except ValueError as error:
            logger.warning(
                "%s: the producer snapshot at %d is damaged (%s), the log is read instead",
                self.directory,
                offset,
                error,
            )
            return False
        self._ledger_offset = offset
        return True

    def _headers(self, segment: Segment) -> Iterator[rb.BatchHeader]:
        """All that can be read."""
        try:
            yield from segment.headers()
        except StorageError as error:
            logger.error("%s: some producer states are lost: %s", self.directory, error)
            yield from segment.headers()

    def _feed_ledger(self, header: rb.BatchHeader) -> None:
        self._skip_in_ledger(header.base_offset)
        self.ledger.apply(header)
        self._ledger_offset = header.next_offset

    def _skip_in_ledger(self, offset: int) -> None:
        """Behind a hole it starts anew: what it knows may not be the last that was written."""
        if offset != self._ledger_offset:
            self.ledger.clear()
            self._ledger_offset = offset

    # ── state ──

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # ── append ──

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp, in ms; -1 if there is none."""
        return max(segment.max_timestamp for segment in self.segments)

    def append(
        self, batches: bytearray | memoryview, headers: list[rb.BatchHeader], *, leader_epoch: int
    ) -> tuple[int, int]:
        """Give the batches their offsets, in place, and write them. Returns ``(base, last)`` offset.

        Raises:
            OSError, SegmentTornError: as ``Segment.append``.
        """
        self._is_on_disk = False
        base_offset = offset = self.log_end_offset
        for header in headers:
            rb.assign_offsets(batches, header.position, offset, leader_epoch)
            header.base_offset = offset
            header.partition_leader_epoch = leader_epoch
            offset = header.next_offset
        if self._must_roll(len(batches), offset - 1):
            self.roll()
        self.active.append(batches, headers)
        self.epochs.note(leader_epoch, base_offset)
        for header in headers:
            self.unsynced_records += header.record_count
            self.unsynced_bytes += header.size
            if header.has_producer_id:
                self.ledger.apply(header)
        return base_offset, offset - 1

    def _must_roll(self, size: int, last_offset: int) -> bool:
        active = self.active
        if not active.size:
            return False
        if not active.has_room_for(size, last_offset, segment_bytes=self.config.segment_bytes):
            return True
        return self._clock.now_ms() - active.created_ms >= self.config.segment_ms

    def roll(self) -> None:
        """Seal the active segment and go on in a new one; the next flush makes both last."""
        self._is_on_disk = False
        active = self.active
        snapshot = self.ledger.snapshot()
        self._add_segment(active.next_offset)
        self._unsealed.append(active)
        write_file(self._files, self._producers_path(active.next_offset), snapshot, sync=False)

    # ── sync ──

    @property
    def is_dirty(self) -> bool:
        return self.recovery_point < self.log_end_offset or bool(self._unsealed)

    def flush_work(self) -> FlushWork:
        """Everything not yet synced."""
        work = FlushWork(end_offset=self.log_end_offset, seals=list(self._unsealed))
        self.unsynced_records = self.unsynced_bytes = 0
        start = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        self._in_flush = self.segments[start:]
        work.files = [segment.file() for segment in self._in_flush]
        if self._directory_dirty:
            work.directory, work.file_system = self.directory, self._files
        self._directory_dirty = False
        return work

    def flushed(self, work: FlushWork) -> None:
        """``work`` ran without an error."""
        self._in_flush = []
        for segment in work.sealed:
            segment.is_sealed = True
            # Readers take it again, within the limit of open segments.
            segment.release()
            if segment in self._unsealed:
                self._unsealed.remove(segment)
        assert work.end_offset >= self.recovery_point
        assert work.end_offset <= self.log_end_offset
        self.recovery_point = work.end_offset

    @property
    def checkpoint_offset(self) -> int:
        """The recovery point to save: a start trusts the indexes of the segments before it, so they must be written."""
        return min([self.recovery_point, *(segment.base_offset for segment in self._unsealed)])

    # ── read ──

    def segment_of(self, offset: int) -> Segment | None:
        """The segment that holds ``offset``; None at the log end.

        Raises:
            OffsetOutOfRange: outside ``[log_start_offset, log_end_offset]``.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            topic, partition = self.topic_partition
            raise OffsetOutOfRange(
                topic=topic,
                partition=partition,
                offset=offset,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
            )
        if offset == self.log_end_offset:
            return None
        return self.segments[bisect_right(self._bases, offset) - 1]

    def find_time(self, segments: list[Segment], timestamp_ms: int) -> tuple[int, int, int] | None:
        """First record at or after ``timestamp_ms`` in ``segments``: for threads."""
        for segment in segments:
            found = segment.find_time(timestamp_ms)
            if found and found[0] < self.log_start_offset:
                found = self._first_from_start(segment, timestamp_ms)
            if found:
                return found
        return None

    def _first_from_start(self, segment: Segment, timestamp_ms: int) -> tuple[int, int, int] | None:
        """As ``find_time``, where deleted records of the same segment would answer first."""
        for header in segment.headers():
            if header.last_offset < self.log_start_offset or header.max_timestamp < timestamp_ms:
                continue
            raw = segment.read(Extent(segment=segment, position=header.position, size=header.size))
            record = rb.first_record(raw, from_offset=self.log_start_offset, timestamp_ms=timestamp_ms)
            if record is not None:
                return record.offset, record.timestamp, header.partition_leader_epoch
        return None

    # ── retention ──

    def advance_log_start(self, offset: int) -> None:
        self.log_start_offset = min(max(self.log_start_offset, offset), self.log_end_offset)

    def expired_segments(self, now_ms: int) -> list[Segment]:
        """Sealed segments, oldest first, that the configuration no longer keeps."""
        expired: list[Segment] = []
        size = self.size_bytes
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            too_old = (
                self.config.retention_ms >= 0
                and 0 <= segment.max_timestamp < now_ms - self.config.retention_ms
            )
            too_much = 0 <= self.config.retention_bytes <= size - segment.size
            is_deleted = following.base_offset <= self.log_start_offset
            if not (too_old or too_much or is_deleted):
                break
            if following.base_offset > self.recovery_point or segment in self._in_flush:
                break
            size -= segment.size
            expired.append(segment)
        return expired

    def active_is_expired(self, now_ms: int) -> bool:
        """True when even the active segment holds only records past their time."""
        active = self.active
        return (
            self.config.retention_ms >= 0
            and active.size > 0
            and 0 <= active.max_timestamp < now_ms - self.config.retention_ms
        )

    def detach(self, segments: list[Segment]) -> list[Path]:
        """Take the oldest ``segments`` out of the log; returns the files to delete."""
        assert segments == self.segments[: len(segments)]
        assert len(segments) < len(self.segments), "the active segment stays"
        del self.segments[: len(segments)]
        del self._bases[: len(segments)]
        self.advance_log_start(self._bases[0])
        paths: list[Path] = []
        for segment in segments:
            segment.release()
            if segment in self._unsealed:
                self._unsealed.remove(segment)
            paths += [segment.path, segment.index_path, segment.time_index_path]
        return paths

    def stale_snapshots(self) -> list[Path]:
        """Ledger snapshots that no recovery will ask for: all but the newest two that are surely of use."""
        passed = [offset for offset in self._stored(PRODUCERS_SUFFIX) if offset <= self.checkpoint_offset]
        return [self._producers_path(offset) for offset in passed[:-_SNAPSHOTS_KEPT]]

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
            contents = {self._producers_path(self.log_end_offset).name: self.ledger.snapshot()}
            if self.epochs.is_dirty:
                contents[LEADER_EPOCHS] = self.epochs.content()
            for segment in (*self._unsealed, self.active):
                if segment is not self.active or segment.needs_indexes:
                    contents |= segment.indexes()
            write_files(self._files, self.directory, contents)
        for segment in self.segments:
            segment.release()


def _differ_in_one(a: str, b: str) -> bool:
    """Random ids never differ in one character alone: one of them is damaged."""
    return len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1
