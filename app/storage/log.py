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
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from stele.wire import record_batch as rb

from ..errors import OffsetOutOfRange, StorageError
from .checkpoint import LeaderEpochs
from .engine import BatchLedger, Clock, PartitionSpec
from .files import File, Files, read_file, write_file
from .recovery import Crash, recover_segments
from .segment import LOG_SUFFIX, Extent, Segment, segment_name
from .topic_config import TopicConfig

logger = logging.getLogger(__name__)

PARTITION_METADATA = "partition.metadata"
PRODUCERS_SUFFIX = ".producers"
DELETED_SUFFIX = ".deleted"


class NotThisTopicError(Exception):
    """The directory holds a partition of another topic that had this name."""


@dataclass(slots=True)
class FlushWork:
    """What one sync of a partition must cover; made on the loop, run in a thread."""

    end_offset: int
    files: list[File] = field(default_factory=list[File])
    seals: list[Segment] = field(default_factory=list[Segment])
    directory: Path | None = None
    file_system: Files | None = None

    def run(self) -> None:
        """Raises ``OSError``: then nothing may be called synced."""
        for segment in self.seals:
            segment.write_indexes(sync=True)
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
        self._topic_id: UUID = spec.topic_id
        self.config: TopicConfig = spec.config
        self.ledger: BatchLedger = spec.ledger
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        self.log_start_offset = 0
        self.recovery_point = 0
        self.epochs = LeaderEpochs()
        self.unsynced_records = 0
        self._unsealed: list[Segment] = []
        self._directory_dirty = False

    # ── opening ──

    def open(self, *, crash: Crash | None, log_start_offset: int) -> None:
        """Make or load the partition; ``crash`` None means the last run closed it.

        Raises:
            NotThisTopicError: the directory belongs to another topic id.
            OSError: the disk failed.
        """
        self._files.make_dir(self.directory)
        self._check_metadata()
        bases: list[int] = []
        for name in self._files.list_dir(self.directory):
            if name.endswith((DELETED_SUFFIX, ".tmp")):
                self._files.remove(self.directory / name)
            elif name.endswith(LOG_SUFFIX):
                bases.append(int(name.removesuffix(LOG_SUFFIX)))
        self.segments = [self._segment(base) for base in bases]
        if self.segments:
            self.epochs = LeaderEpochs.read(self._files, self.directory)
            if crash is None:
                self._adopt()
            else:
                self._recover(crash)
        else:
            self._add_segment(log_start_offset)
            self._files.sync_dir(self.directory)
        self._bases = [segment.base_offset for segment in self.segments]
        self.log_start_offset = min(max(log_start_offset, self._bases[0]), self.log_end_offset)
        self._directory_dirty = False
        self.recovery_point = self.log_end_offset

    def _check_metadata(self) -> None:
        path = self.directory / PARTITION_METADATA
        content = f"version: 0\ntopic_id: {self._topic_id}\n".encode()
        found = read_file(self._files, path)
        if found is None:
            write_file(self._files, path, content)
            self._files.sync_dir(self.directory.parent)
        elif found != content:
            raise NotThisTopicError(self.directory)

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

    def _adopt(self) -> None:
        """After a clean shutdown: no log is read but the last few headers."""
        *sealed, active = self.segments
        for segment, following in zip(sealed, self.segments[1:], strict=True):
            segment.adopt_sealed(next_offset=following.base_offset)
        if not active.adopt_active():
            logger.warning("%s: its indexes do not fit, they are built again", active.path)
            crash = Crash(recovery_point=2**63 - 1, same_boot=True)
            self.segments = [*sealed, *recover_segments(self._files, [active], crash, lambda _: None)]
        snapshot = read_file(self._files, self._producers_path(self.segments[-1].next_offset))
        if snapshot is None or not self._restore(snapshot):
            self._replay_ledger(0)
        self._roll_behind_damage(0)

    def _recover(self, crash: Crash) -> None:
        """After a crash: scan from the segment that holds the recovery point."""
        self._bases = [segment.base_offset for segment in self.segments]
        first = max(0, bisect_right(self._bases, crash.recovery_point) - 1)
        trusted, suspect = self.segments[:first], self.segments[first:]
        for segment, following in zip(trusted, self.segments[1:], strict=False):
            segment.adopt_sealed(next_offset=following.base_offset)
        self.segments = trusted
        self._restore_before(suspect[0].base_offset)
        self.epochs.truncate_to(suspect[0].base_offset)

        def on_batch(header: rb.BatchHeader) -> None:
            self.ledger.apply(header)
            self.epochs.note(header.partition_leader_epoch, header.base_offset)

        recovered = recover_segments(self._files, suspect, crash, on_batch)
        self.segments = trusted + recovered
        self._roll_behind_damage(crash.recovery_point)
        for segment in recovered:
            if segment is not self.segments[-1]:
                segment.is_sealed = True
                segment.write_indexes(sync=True)
            segment.file().sync()
        if self.segments[-1] not in recovered:
            self.segments[-1].file().sync()
        self.epochs.write(self._files, self.directory, sync=True)
        self._files.sync_dir(self.directory)

    def _roll_behind_damage(self, recovery_point: int) -> None:
        """Never append behind bytes that are no batch, and never give a synced offset twice."""
        active = self.segments[-1]
        at_end = bool(active.damages) and active.damages[-1].end_position == active.size
        if active.next_offset >= recovery_point and not at_end:
            return
        if recovery_point != 2**63 - 1:
            active.lose_until(max(active.next_offset, recovery_point))
        active.is_sealed = True
        active.write_indexes(sync=True)
        self._add_segment(active.next_offset)

    def _producers_path(self, offset: int) -> Path:
        return self.directory / (segment_name(offset) + PRODUCERS_SUFFIX)

    def _snapshots(self) -> list[int]:
        names = self._files.list_dir(self.directory)
        return [int(n.removesuffix(PRODUCERS_SUFFIX)) for n in names if n.endswith(PRODUCERS_SUFFIX)]

    def _restore(self, snapshot: bytes) -> bool:
        try:
            self.ledger.restore(snapshot)
        except ValueError as error:
            logger.warning(
                "%s: a producer snapshot is damaged (%s), the log is read instead", self.directory, error
            )
            self.ledger.clear()
            return False
        return True

    def _restore_before(self, offset: int) -> None:
        """Bring the ledger to ``offset``: the newest usable snapshot, and the headers behind it."""
        for candidate in sorted((s for s in self._snapshots() if s <= offset), reverse=True):
            snapshot = read_file(self._files, self._producers_path(candidate))
            if snapshot is not None and self._restore(snapshot):
                if candidate < offset:
                    self._replay_ledger(candidate)
                return
        self._replay_ledger(0)

    def _replay_ledger(self, from_offset: int) -> None:
        """Apply the headers of ``self.segments`` from ``from_offset`` on; the CRCs are not the matter here."""
        if self.segments and self.segments[0].base_offset > from_offset:
            self.ledger.clear()
        for segment in self.segments:
            if segment.next_offset > from_offset and segment.size:
                try:
                    for header in segment.headers():
                        if header.base_offset >= from_offset:
                            self.ledger.apply(header)
                except StorageError as error:
                    logger.error("%s: producer states from here on are not known: %s", self.directory, error)
                    return

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

    def append(
        self, batches: bytearray, headers: list[rb.BatchHeader], *, leader_epoch: int
    ) -> tuple[int, int]:
        """Give the batches their offsets, in place, and write them. Returns ``(base, last)`` offset.

        Raises:
            OSError, SegmentTornError: as ``Segment.append``.
        """
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
        start = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        work.files = [segment.file() for segment in self.segments[start:]]
        if self._directory_dirty:
            work.directory, work.file_system = self.directory, self._files
        self._directory_dirty = False
        return work

    def flushed(self, work: FlushWork) -> None:
        """``work`` ran without an error."""
        for segment in work.seals:
            segment.is_sealed = True
            if segment in self._unsealed:
                self._unsealed.remove(segment)
        assert work.end_offset >= self.recovery_point
        assert work.end_offset <= self.log_end_offset
        self.recovery_point = work.end_offset
        if self.recovery_point == self.log_end_offset:
            self.unsynced_records = 0

    # ── read ──

    def plan(self, offset: int, max_bytes: int, *, nowait: bool) -> Extent | None:
        """Batches from ``offset`` on; None at the log end.

        Raises:
            OffsetOutOfRange: outside ``[log_start_offset, log_end_offset]``.
            CorruptLog, WouldBlockError: as ``Segment.extent_from``.
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
        segment = self.segments[bisect_right(self._bases, offset) - 1]
        return segment.extent_from(offset, max_bytes, nowait=nowait)

    def find_time(self, segments: list[Segment], timestamp_ms: int) -> tuple[int, int, int] | None:
        """First record at or after ``timestamp_ms`` in ``segments``: for threads."""
        for segment in segments:
            found = segment.find_time(timestamp_ms)
            if found and found[0] >= self.log_start_offset:
                return found
            if found:
                return self._first_from_start(segment, timestamp_ms)
        return None

    def _first_from_start(self, segment: Segment, timestamp_ms: int) -> tuple[int, int, int] | None:
        """As ``find_time``, where deleted records of the same segment would answer first."""
        for header in segment.headers():
            if header.last_offset < self.log_start_offset or header.max_timestamp < timestamp_ms:
                continue
            raw = segment.read(Extent(segment=segment, position=header.position, size=header.size))
            for record in rb.decode_records(raw):
                if record.offset >= self.log_start_offset and record.timestamp >= timestamp_ms:
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
            if not (too_old or too_much or is_deleted) or following.base_offset > self.recovery_point:
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
            paths += [segment.path, segment.index_path, segment.time_index_path]
        return paths

    def stale_snapshots(self) -> list[Path]:
        """Ledger snapshots that no recovery will ask for: all but the newest two."""
        return [self._producers_path(offset) for offset in sorted(self._snapshots())[:-2]]

    # ── closing ──

    def close(self, *, clean: bool) -> None:
        """Release the files; ``clean`` also leaves everything that spares the next start a scan.

        Raises:
            OSError: then the shutdown is not clean.
        """
        if clean:
            work = self.flush_work()
            work.run()
            self.flushed(work)
            self.active.write_indexes(sync=True)
            write_file(self._files, self._producers_path(self.log_end_offset), self.ledger.snapshot())
            self.epochs.write(self._files, self.directory, sync=True)
        for segment in self.segments:
            segment.release()
