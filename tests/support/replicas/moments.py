"""What a broker had at the moment of a cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from app.storage.embedded import EmbeddedEngine
from app.storage.segments.segment import Segment

from ..simulated_files import SimulatedFiles
from .chain import Key
from .tables import Rows


@dataclass(frozen=True, slots=True)
class LogAtMoment:
    """A log. ``is_whole``: neither compaction nor a loss of power has taken records out of it."""

    topic: str
    log_start_offset: int
    end_offset: int
    # By base offset.
    segments: Mapping[int, bytes]
    is_whole: bool


def as_a_start_leaves(logs: Mapping[Key, LogAtMoment]) -> dict[Key, LogAtMoment]:
    """Return the logs without the segments that a start deletes: those that end at or before the start of their log."""
    return {key: replace(log, segments=_needed_of(log)) for key, log in logs.items()}


def _needed_of(log: LogAtMoment) -> dict[int, bytes]:
    deleted = {
        base for base, following in pairwise(sorted(log.segments)) if following <= log.log_start_offset
    }
    return {base: data for base, data in log.segments.items() if base not in deleted}


@dataclass(frozen=True, slots=True)
class Moment:
    """``stores`` have all that was submitted before, and nothing else."""

    logs: Mapping[Key, LogAtMoment]
    stores: Mapping[str, Rows]


def logs_of(engine: EmbeddedEngine, files: SimulatedFiles) -> dict[Key, LogAtMoment]:
    """Return what is in the files of all open logs."""
    logs: dict[Key, LogAtMoment] = {}
    for name, log in engine._manager.logs.items():  # pyright: ignore[reportPrivateUsage]
        segments = {segment.base_offset: _bytes_of(segment, files) for segment in log.segments}
        logs[str(log.topic_id), name.partition] = LogAtMoment(
            name.topic,
            log.log_start_offset,
            log.log_end_offset,
            segments,
            is_whole=not log.holes_until and not any(segment.corrupt_ranges for segment in log.segments),
        )
    return logs


def _bytes_of(segment: Segment, files: SimulatedFiles) -> bytes:
    if segment.is_pinned:
        # Its path may be that of the segment that is about to replace it.
        return bytes(segment.open_own().read_at(0, segment.size))
    return bytes(files.content(segment.path)[: segment.size])
