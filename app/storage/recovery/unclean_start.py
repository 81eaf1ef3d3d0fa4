"""Recover the segments of a partition after an unclean start.

The bytes before the *recovery point* were synced when the checkpoint was
written; those after it may be whole, torn or missing. From the segment that holds
the recovery point on, every batch is read and its CRC checked. What happens to a
corrupt range depends on where it is and on what can have caused it (ADR-0007):

=====================  ==========================  =====================================
corrupt range          valid batches after it      action
=====================  ==========================  =====================================
after the point        no: the torn tail           cut: it was never acknowledged as synced
after the point        yes, the machine kept       keep: a process that dies cannot tear
                       running (same boot id)      the middle, so the file itself is bad
after the point        yes, the machine went down  cut, and keep the bytes in a ``.cut``
                                                   file: unsynced pages reach the disk in
                                                   any order
before the point       either                      keep: synced records are never cut, and
                                                   their offsets are never assigned again
=====================  ==========================  =====================================

Zeros up to the end of a file are no corrupt range: space was allocated ahead of the
records (``space_ahead``), and is cut.

A corrupt range that is kept is logged with file and bytes. A read of its offsets
fails with the offset to continue from; all offsets after it are served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stele.wire.record_batch import BatchHeader

from ..disk.files import Files
from ..segments.loader import rebuild
from ..segments.scan import CorruptRange
from ..segments.segment import Segment

logger = logging.getLogger(__name__)

CUT_SUFFIX = ".cut"
_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanStart:
    """Facts about the last run and its checkpoints that recovery needs."""

    recovery_point: int
    log_start_offset: int
    same_boot: bool


def recover_segments(
    files: Files,
    segments: list[Segment],
    unclean_start: UncleanStart,
    on_batch: Callable[[Segment, BatchHeader], None],
) -> list[Segment]:
    """Scan ``segments`` in ascending order; return those that remain, the active one last.

    Segments are adjacent, whether or not they were compacted: a gap between two is a loss.
    ``on_batch`` is called with every batch that is kept and its segment, in order. Files may have been cut,
    but nothing is synced yet: the caller syncs the partition before it is used.
    """
    kept: list[Segment] = []
    for number, segment in enumerate(segments):
        if kept and kept[-1].next_offset != segment.base_offset:
            gap = _gap_between(kept[-1], segment)
            # What is missing before the log start was deleted.
            lost_offset = max(gap.offset, unclean_start.log_start_offset)
            if lost_offset >= unclean_start.recovery_point and not unclean_start.same_boot:
                _set_aside(files, segments[number:])
                break
            kept[-1].corrupt_ranges.append(gap)
            kept[-1].next_offset = segment.base_offset
            _report(segment.path, gap)
        has_data_after = any(files.size(later.path) for later in segments[number + 1 :])
        is_cut = _recover_segment(files, segment, unclean_start, on_batch, has_data_after=has_data_after)
        kept.append(segment)
        if is_cut:
            _set_aside(files, segments[number + 1 :])
            break
    return kept


def _recover_segment(
    files: Files,
    segment: Segment,
    unclean_start: UncleanStart,
    on_batch: Callable[[Segment, BatchHeader], None],
    *,
    has_data_after: bool,
) -> bool:
    """Scan one segment; return True if its end was cut, and with it all later segments."""
    file_size = segment.file().size()
    for scanned in rebuild(segment):
        if not isinstance(scanned, CorruptRange):
            on_batch(segment, scanned)
            continue
        if scanned.is_blank:
            if scanned.offset < unclean_start.recovery_point and not has_data_after:
                logger.error(
                    "%s has only zeros from byte %d to %d: synced records from offset %d on may be lost",
                    segment.path,
                    scanned.position,
                    scanned.end_position,
                    scanned.offset,
                )
            # Records that are missing before the next segment are found there.
            segment.truncate()
            return False
        is_tail = scanned.end_position == file_size and not has_data_after
        if scanned.offset >= unclean_start.recovery_point and (is_tail or not unclean_start.same_boot):
            if not is_tail:
                _save_cut(files, segment, scanned.position, file_size)
            logger.warning(
                "%s: cut at byte %d of %d (%s); offsets from %d on were never acknowledged as synced",
                segment.path,
                scanned.position,
                file_size,
                scanned.reason,
                scanned.offset,
            )
            segment.truncate()
            return True
        # The log continues after all that was in use: see ``loader``.
        used_offset = max(unclean_start.recovery_point, unclean_start.log_start_offset, scanned.offset + 1)
        _report(segment.path, scanned, lost_until=used_offset if is_tail else 0)
    return False


def _gap_between(before: Segment, after: Segment) -> CorruptRange:
    return CorruptRange(
        position=before.size,
        end_position=before.size,
        offset=before.next_offset,
        next_offset=after.base_offset,
        reason="the end of the file is missing",
    )


def _report(path: Path, corrupt_range: CorruptRange, *, lost_until: int = 0) -> None:
    """Log a corrupt range that is kept; the log continues at ``lost_until`` or later."""
    next_offset = max(corrupt_range.next_offset, lost_until)
    if next_offset > corrupt_range.offset:
        effect = (
            f"offsets {corrupt_range.offset} to {next_offset - 1} cannot be read, all offsets after them can"
        )
    else:
        effect = f"no offset is missing, the log continues with offset {next_offset}"
    logger.error(
        "%s is corrupt from byte %d to %d (%s): %s",
        path,
        corrupt_range.position,
        corrupt_range.end_position,
        corrupt_range.reason,
        effect,
    )


def _save_cut(files: Files, segment: Segment, position: int, end: int) -> None:
    target = segment.path.with_name(f"{segment.path.stem}-{position}{CUT_SUFFIX}")
    copy = files.open(target, create=True)
    try:
        copy.truncate(0)
        for start in range(position, end, _COPY_BYTES):
            data = segment.file().read_at(start, min(_COPY_BYTES, end - start))
            copy.write_at(start - position, [data])
        copy.sync()
    finally:
        copy.close()
    files.sync_dir(target.parent)


def _set_aside(files: Files, segments: list[Segment]) -> None:
    for segment in segments:
        segment.release()
        for path in (segment.indexes.path, segment.indexes.time_path, segment.transaction_index_path):
            if files.exists(path):
                files.remove(path)
        if files.size(segment.path):
            files.rename(segment.path, segment.path.with_name(segment.path.name + CUT_SUFFIX))
        else:
            files.remove(segment.path)
        logger.warning("%s: set aside, because it follows a cut", segment.path)
