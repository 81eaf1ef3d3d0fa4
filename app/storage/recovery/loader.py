"""Load a partition's log: which files count, and where the log begins and ends.

A clean start reads only indexes and a few headers. An unclean start scans the log
from the segment that holds the recovery point (``unclean_start`` decides what is kept).
In both cases:

- no offset before the recovery point or the log start offset is ever assigned
  again, so a log that lost its end continues in a new segment at a later offset;
- nothing is appended after bytes that hold no batch;
- the producer state includes every batch, or knows that batches are missing;
- the aborted transactions of every segment are known;
- an interrupted replacement of segments by a compacted one is completed or undone.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stele.wire import record_batch as rb

from ...clock import Clock
from ..cleaning.cleaned_segment import CLEANED_SUFFIX
from ..cleaning.replacement import SWAP_SUFFIX, recover_replacement
from ..config_types import INT64_MAX
from ..engine import PartitionSpec
from ..segments.loader import adopt_active, adopt_remote, adopt_sealed
from ..segments.open_transactions import marker_at
from ..segments.partition_files import ABORTED_TRANSACTIONS, HOLES_UNTIL, PRODUCERS_SUFFIX, PartitionFiles
from ..segments.remote_segments import REMOTE_SEGMENTS, RemoteLog, RemoteLogs, read_remote_segments
from ..segments.segment import KEY_INDEX_SUFFIX, LOG_SUFFIX, Segment
from ..setup_problems import InvalidStorage
from ..topic_config import TopicConfig
from .checkpoint import LEADER_EPOCHS, LeaderEpochs
from .producer_state_replay import ProducerStateReplay
from .transaction_rebuild import rebuild_aborted
from .unclean_start import UncleanStart, recover_segments

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A loaded log, ready to be read and appended to.

    The last of ``segments`` is active. ``has_jumped``: offsets were skipped, which
    a checkpoint must record before anything is acknowledged. ``is_on_disk``: the
    files are as a clean shutdown leaves them. ``holes_until``: segments that begin
    before this offset may have been compacted. ``unsynced``: files and directories that
    must be synced before any record is served.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    log_start_offset: int
    has_jumped: bool
    is_on_disk: bool
    holes_until: int
    unsynced: list[Path] = field(default_factory=list[Path])


def new_segment(
    partition: PartitionFiles,
    base_offset: int,
    config: TopicConfig,
    clock: Clock,
    *,
    may_have_holes: bool = False,
) -> Segment:
    """Return a segment that is not loaded, and whose file need not exist."""
    return Segment(
        partition.files,
        partition.directory,
        base_offset,
        index_interval_bytes=config.index_interval_bytes,
        created_ms=clock.now_ms(),
        may_have_holes=may_have_holes,
    )


def load_log(
    partition: PartitionFiles,
    spec: PartitionSpec,
    clock: Clock,
    *,
    unclean_start: UncleanStart | None,
    recovery_point: int,
    log_start_offset: int,
    first_dirty: int = 0,
    remote_logs: RemoteLogs | None = None,
) -> LoadedLog:
    """Create or load the partition; ``unclean_start`` is None after a clean shutdown.

    ``recovery_point``, ``log_start_offset`` and ``first_dirty`` are those of the checkpoints. The
    directory must not be another topic's (``PartitionFiles.topic_id``). The caller syncs what
    ``LoadedLog.unsynced`` lists, and the parent of the directory, so that its name survives a loss
    of power.

    Raises:
        InvalidStorage: there are segments in a bucket, and no ``remote_logs``.
        OSError: the disk failed; no file is left open.
    """
    loader = _Loader(partition, spec, clock, remote_logs)
    try:
        return loader.load(unclean_start, recovery_point, log_start_offset, first_dirty)
    except BaseException:
        for segment in loader.segments:
            segment.release()
        raise


class _Loader:
    def __init__(
        self, partition: PartitionFiles, spec: PartitionSpec, clock: Clock, remote_logs: RemoteLogs | None
    ) -> None:
        self.segments: list[Segment] = []
        # Those before ``segments``, whose logs are in a bucket.
        self._remote: list[Segment] = []
        self._remote_logs = remote_logs
        self._partition = partition
        self._files, self._directory = partition.files, partition.directory
        self._spec = spec
        self._clock = clock
        self._holes_until = 0
        self._replay = ProducerStateReplay(partition, spec.producer_state)
        self._epochs = LeaderEpochs()
        self._has_jumped = False
        self._unsynced: list[Path] = []
        # An index of aborted transactions is lost or damaged.
        self._must_find_aborted = False

    def load(
        self,
        unclean_start: UncleanStart | None,
        recovery_point: int,
        log_start_offset: int,
        first_dirty: int,
    ) -> LoadedLog:
        names = self._tidied()
        # The checkpoint replaces the file if that is lost.
        self._holes_until = max(
            self._partition.read_holes_until() if HOLES_UNTIL in names else 0, first_dirty
        )
        if self._spec.config.mirror and self._holes_until < INT64_MAX:
            # What is copied has the holes of its source; who reads the files alone must know that, too.
            self._holes_until = INT64_MAX
            self._partition.write_holes_until(INT64_MAX)
        bases = self._partition.stored(LOG_SUFFIX, names)
        while len(bases) > 1 and bases[1] <= log_start_offset:
            # Retention was interrupted, and may have deleted some of these files.
            self._partition.remove_segment(bases.pop(0))
        if REMOTE_SEGMENTS in names:
            self._adopt_remote(bases, log_start_offset)
        self.segments = [self._new_segment(base) for base in bases]
        if any(name.endswith(KEY_INDEX_SUFFIX) for name in names):
            self._remove_key_indexes(
                bases, INT64_MAX if unclean_start is None else unclean_start.recovery_point
            )
        used_offset = max([recovery_point, log_start_offset, *(one.next_offset for one in self._remote)])
        first_offset = next((one.base_offset for one in [*self._remote, *self.segments]), used_offset)
        self._replay = ProducerStateReplay(
            self._partition,
            self._spec.producer_state,
            first_offset=first_offset,
            holes_until=self._holes_until,
            names=names,
        )
        self._report_missing(first_offset, log_start_offset)
        is_on_disk = False
        if self.segments:
            is_on_disk = self._open_segments(unclean_start, recovery_point, used_offset, names)
        else:
            self._add_segment(used_offset)
            self._replay.restore_before(used_offset, [*self._remote, *self.segments])
            self._files.sync_dir(self._directory)
        self.segments = [*self._remote, *self.segments]
        if self._must_find_aborted:
            logger.warning("%s: its aborted transactions are read from the log", self._directory)
            rebuild_aborted(self.segments)
            self._partition.write_aborted_list(
                segment.base_offset for segment in self.segments if segment.aborted
            )
        end_offset = self.segments[-1].next_offset
        self._replay.skip_to(end_offset)
        # If this run ends before its first checkpoint, the next start begins where this one did.
        for path in self._partition.stale_snapshots(min(end_offset, recovery_point), names):
            self._files.remove(path)
        return LoadedLog(
            segments=self.segments,
            epochs=self._epochs,
            log_start_offset=max(log_start_offset, self.segments[0].base_offset),
            has_jumped=self._has_jumped,
            is_on_disk=is_on_disk or (end_offset == 0 and self._partition.is_blank()),
            holes_until=self._holes_until,
            unsynced=self._unsynced,
        )

    def _tidied(self) -> list[str]:
        """Complete or remove what a crash left; return the names of the files."""
        self._partition.make(self._spec.topic_id)
        # Listed once, because there may be thousands of partitions.
        names = self._partition.names()
        if any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            recover_replacement(self._files, self._directory)
            self._must_find_aborted = any(name.endswith(SWAP_SUFFIX) for name in names)
            names = self._partition.names()
        return self._partition.remove_leftovers(names)

    def _open_segments(
        self, unclean_start: UncleanStart | None, recovery_point: int, used_offset: int, names: list[str]
    ) -> bool:
        """Read what is not known of the segments; return whether all of it is on disk."""
        if LEADER_EPOCHS in names:
            self._epochs = LeaderEpochs.read(self._files, self._directory)
        # The segments from the recovery point on are read after an unclean start.
        trusted_until = INT64_MAX if unclean_start is None else self._first_suspect(recovery_point)
        remote = [segment.base_offset for segment in self._remote]
        if ABORTED_TRANSACTIONS in names and self._partition.lost_transaction_indexes(trusted_until, remote):
            self._must_find_aborted = True
        if unclean_start is None:
            return self._adopt(recovery_point, used_offset)
        self._recover(unclean_start, used_offset, names)
        return False

    def _adopt_remote(self, bases: Sequence[int], log_start_offset: int) -> None:
        """Load the segments whose logs are in a bucket, up to the first that is on the disk."""
        first_here = bases[0] if bases else INT64_MAX
        for known in read_remote_segments(self._files, self._directory):
            if known.base_offset >= first_here:
                # Its log was about to be removed.
                break
            if known.next_offset <= log_start_offset:
                self._partition.remove_segment(known.base_offset)
                continue
            if self._remote_logs is None:
                raise InvalidStorage(
                    f"{self._directory} has segments that are in the bucket alone (remote.storage.enable): start the "
                    "broker with the --replicate-to URL that it had"
                )
            segment = self._new_segment(known.base_offset)
            self._remote.append(segment)
            remote = RemoteLog(known, self._remote_logs.open(segment.path, known))
            if not adopt_remote(segment, remote):
                logger.warning("%s: its indexes did not match the log and are rebuilt", segment.path)
                self._must_find_aborted = True

    def _remove_key_indexes(self, bases: list[int], recovery_point: int) -> None:
        """Keep those of sealed segments that end before ``recovery_point``: the logs of others may change."""
        if bases:
            last = max(0, bisect_left(bases, recovery_point) - 1)
            self._partition.remove_key_indexes(bases[last])

    def _report_missing(self, first_offset: int, log_start_offset: int) -> None:
        if first_offset > log_start_offset:
            logger.error(
                "%s: the files of offsets %d to %d are missing",
                self._directory,
                log_start_offset,
                first_offset - 1,
            )

    def _new_segment(self, base_offset: int) -> Segment:
        return new_segment(
            self._partition,
            base_offset,
            self._spec.config,
            self._clock,
            may_have_holes=base_offset < self._holes_until,
        )

    def _add_segment(self, base_offset: int) -> None:
        segment = self._new_segment(base_offset)
        segment.create()
        self.segments.append(segment)

    # ── after a clean shutdown ──

    def _adopt(self, recovery_point: int, used_offset: int) -> bool:
        """Load what a clean shutdown left; return False if something is missing."""
        if not used_offset and self._partition.is_blank():
            return True
        *sealed, active = self.segments
        self._adopt_sealed(sealed)
        is_whole = True
        # The shutdown also left a checkpoint; 0 means that it is lost.
        if not adopt_active(active) or (recovery_point and active.next_offset != recovery_point):
            logger.warning("%s: its indexes do not match the log and are rebuilt", active.path)
            all_is_synced = UncleanStart(recovery_point=2**63 - 1, log_start_offset=0, same_boot=True)
            self.segments = [
                *sealed,
                *recover_segments(self._files, [active], all_is_synced, lambda _segment, _header: None),
            ]
            self._must_find_aborted = True
            # The shutdown also left a snapshot, whose name is where the log ended.
            used_offset = max([used_offset, *self._partition.stored(PRODUCERS_SUFFIX)])
            is_whole = False
        self._roll_after_corruption(used_offset)
        has_snapshot = self._replay.restore_before(
            self.segments[-1].next_offset, [*self._remote, *self.segments]
        )
        return is_whole and has_snapshot and not self._has_jumped

    def _adopt_sealed(self, sealed: list[Segment]) -> None:
        for segment, following in zip(sealed, self.segments[1:], strict=False):
            if not adopt_sealed(segment, next_offset=following.base_offset):
                logger.warning("%s: its indexes did not match the log and are rebuilt", segment.path)
                self._must_find_aborted = True

    # ── after an unclean start ──

    def _recover(self, unclean_start: UncleanStart, used_offset: int, names: Sequence[str]) -> None:
        """Scan from the segment that holds the recovery point.

        The epochs of what is found are written by the next checkpoint: until it moves the recovery
        point, another start finds them again.
        """
        first_suspect = self._first_suspect(unclean_start.recovery_point)
        first = next(n for n, segment in enumerate(self.segments) if segment.base_offset >= first_suspect)
        trusted, suspect = self.segments[:first], self.segments[first:]
        self._adopt_sealed(trusted)
        self._replay.restore_before(suspect[0].base_offset, [*self._remote, *trusted])
        saved = self._epochs.entries()
        self._epochs.truncate_to(suspect[0].base_offset)

        # Those that are known to be on disk. A promotion forgets producers whose batches are in the segment before.
        snapshots = {
            offset
            for offset in self._partition.stored(PRODUCERS_SUFFIX, names)
            if suspect[0].base_offset < offset <= unclean_start.recovery_point
        }

        def restore_at(segment: Segment) -> None:
            if segment.base_offset in snapshots:
                snapshots.discard(segment.base_offset)
                self._replay.restore_at(segment.base_offset)

        def on_batch(segment: Segment, header: rb.BatchHeader) -> None:
            restore_at(segment)
            marker = marker_at(segment.file(), header)
            corrupt_ranges = (lost for other in suspect for lost in other.corrupt_ranges)
            aborted = self._replay.feed(header, marker, corrupt_ranges)
            if aborted is not None:
                segment.aborted.append(aborted)
            self._epochs.note(header.partition_leader_epoch, header.base_offset)

        recovered = recover_segments(self._files, suspect, unclean_start, on_batch)
        self.segments = trusted + recovered
        restore_at(recovered[-1])
        self._roll_after_corruption(used_offset)
        for segment in recovered:
            self._unsynced.append(segment.path)
            if segment is not self.segments[-1]:
                segment.is_sealed = True
                segment.write_indexes()
                segment.release()
        self._epochs.is_dirty = self._epochs.entries() != saved
        # These snapshots include batches that were cut; other batches will get their offsets.
        for offset in self._partition.stored(PRODUCERS_SUFFIX, names):
            if offset > self.segments[-1].next_offset:
                self._files.remove(self._partition.producers_path(offset))
        self._unsynced.append(self._directory)

    def _first_suspect(self, recovery_point: int) -> int:
        """Return the base offset of the segment from which an unclean start reads the log."""
        bases = [segment.base_offset for segment in self.segments]
        # A segment that ends exactly at the recovery point may have been active, without indexes on disk.
        return bases[max(0, bisect_left(bases, recovery_point) - 1)]

    def _roll_after_corruption(self, used_offset: int) -> None:
        """Begin a new segment after corrupt bytes or before ``used_offset``."""
        active = self.segments[-1]
        at_end = bool(active.corrupt_ranges) and active.corrupt_ranges[-1].end_position == active.size
        if active.next_offset >= used_offset and not at_end:
            return
        # At least one offset is lost with the bytes at the end: two segments cannot have the same name.
        active.lose_until(max(active.next_offset, used_offset, active.base_offset + 1))
        active.is_sealed = True
        active.write_indexes()
        self._add_segment(active.next_offset)
        self._files.sync_dir(self._directory)
        self._has_jumped = True
