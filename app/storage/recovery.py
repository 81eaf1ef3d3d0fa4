"""What an unclean start finds in a partition, what it keeps and what it cuts.

The bytes before the *recovery point* were synced when the checkpoint was
written; those behind it may be whole, torn or gone. From the segment that holds
the recovery point on, every batch is read and its CRC checked. Damage is judged
by where it is and by what can have caused it (ADR-0007):

=====================  ==========================  =====================================
damage                 good batches behind it      verdict
=====================  ==========================  =====================================
behind the point       none: the torn tail         cut: nobody was told it is synced
behind the point       yes, the machine kept       keep: a process that dies cannot tear
                       running (same boot id)      the middle, so the file itself is bad
behind the point       yes, the machine went down  cut, the bytes put aside in a
                                                   ``.cut`` file: unsynced pages reach the
                                                   disk in any order
before the point       any                         keep: synced records are never cut, and
                                                   their offsets are never given again
=====================  ==========================  =====================================

What is kept is reported with file and byte; reading those offsets is an error
that says where to go on, and everything behind them is served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stele.wire.record_batch import BatchHeader

from .files import Files
from .scan import CorruptRange
from .segment import Segment
from .segment_loader import rebuild

logger = logging.getLogger(__name__)

CUT_SUFFIX = ".cut"
_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanStart:
    """How the last run ended, as far as it matters."""

    recovery_point: int
    log_start_offset: int
    same_boot: bool


def recover_segments(
    files: Files, segments: list[Segment], crash: UncleanStart, on_batch: Callable[[BatchHeader], None]
) -> list[Segment]:
    """Scan ``segments`` (ascending) and return those that remain; the last one is the active one.

    Segments are adjacent, whether or not they were compacted: a gap between two is a loss.

    ``on_batch`` sees every batch that counts, in order. Files may have been cut,
    but nothing is synced yet: the caller flushes the partition before it is used.
    """
    kept: list[Segment] = []
    for number, segment in enumerate(segments):
        if kept and kept[-1].next_offset != segment.base_offset:
            gap = _gap_between(kept[-1], segment)
            # What is missing before the log start was deleted.
            lost_offset = max(gap.offset, crash.log_start_offset)
            if lost_offset >= crash.recovery_point and not crash.same_boot:
                _put_aside(files, segments[number:])
                break
            kept[-1].corrupt_ranges.append(gap)
            kept[-1].next_offset = segment.base_offset
            _report(segment.path, gap)
        behind = any(files.size(later.path) for later in segments[number + 1 :])
        is_cut = _recover_one(files, segment, crash, on_batch, has_data_behind=behind)
        kept.append(segment)
        if is_cut:
            _put_aside(files, segments[number + 1 :])
            break
    return kept


def _recover_one(
    files: Files,
    segment: Segment,
    crash: UncleanStart,
    on_batch: Callable[[BatchHeader], None],
    *,
    has_data_behind: bool,
) -> bool:
    """Scan one segment; True when its tail was cut, so that nothing behind it counts."""
    file_size = segment.file().size()
    for found in rebuild(segment):
        if not isinstance(found, CorruptRange):
            on_batch(found)
            continue
        is_tail = found.end_position == file_size and not has_data_behind
        if found.offset >= crash.recovery_point and (is_tail or not crash.same_boot):
            if not is_tail:
                _save_cut(files, segment, found.position, file_size)
            logger.warning(
                "%s: cut at byte %d of %d (%s); offsets from %d on were never confirmed as synced",
                segment.path,
                found.position,
                file_size,
                found.reason,
                found.offset,
            )
            segment.truncate()
            return True
        _report(segment.path, found)
    return False


def _gap_between(before: Segment, after: Segment) -> CorruptRange:
    return CorruptRange(
        position=before.size,
        end_position=before.size,
        offset=before.next_offset,
        next_offset=after.base_offset,
        reason="the end of the file is missing",
    )


def _report(path: Path, damage: CorruptRange) -> None:
    logger.error(
        "%s is corrupt from byte %d to %d (%s): offsets %d to %d cannot be read, all behind them can",
        path,
        damage.position,
        damage.end_position,
        damage.reason,
        damage.offset,
        damage.next_offset - 1,
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


def _put_aside(files: Files, segments: list[Segment]) -> None:
    for segment in segments:
        segment.release()
        for path in (segment.indexes.path, segment.indexes.time_path):
            if files.exists(path):
                files.remove(path)
        if files.size(segment.path):
            files.rename(segment.path, segment.path.with_name(segment.path.name + CUT_SUFFIX))
        else:
            files.remove(segment.path)
        logger.warning("%s: put aside, it follows a cut", segment.path)
