"""One partition of a mirror: where it is, and what happens to it next. No I/O; the time is a parameter."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from ..records import TopicPartition
from .positions import NO_EPOCH, CopyState, Piece, SourceState, must_compare
from .source.reads import Leader

# ``waiting``: after an error that may pass. The last four stop until a person decides.
State = Literal["starting", "copying", "level", "waiting", "diverged", "recreated", "shrunk", "refused"]
STOPPED: frozenset[State] = frozenset({"diverged", "recreated", "shrunk", "refused"})

_PAUSE_FIRST_S = 0.1
_PAUSE_MAX_S = 10.0
# Fetches whose batches are not yet stored: one is appended while the next one is read.
_JOBS_MAX = 2
_ERROR_CHARACTERS_MAX = 500
# Independent of ``random.seed``: mirrors would all retry at the same moments.
_RANDOM = random.SystemRandom()


def pause_s(failures: int) -> float:
    """Return the pause after this many consecutive failures: doubling, with jitter."""
    return _RANDOM.uniform(0.5, 1.0) * min(_PAUSE_FIRST_S * 2 ** min(failures, 16), _PAUSE_MAX_S)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What to append of one fetch; ``log_start`` is that of the source, ``aborted`` as in ``LeftOut``."""

    records: Any
    pieces: list[Piece]
    log_start: int
    aborted: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        return len(self.records)


@dataclass(slots=True, eq=False)
class PartitionCopy:
    """``topic_id`` is the id at the source, ``copy_id`` that of the copy.

    ``common_end``, of a copy that has diverged: copy and source are the same up to there; None while that is not known.

    ``gap`` has the first and the last offset that the source deleted before they were copied, the last time that it did.

    ``position`` is where the next fetch begins, None before the copy was compared with the source; what it brings may begin
    at ``floor``. ``end`` and ``start`` are those of the copy, ``epoch`` is that of the last batch before ``position``. ``run`` counts how often it began: what
    is under way from before is dropped.
    """

    name: TopicPartition
    topic_id: bytes
    copy_id: bytes
    leader: Leader
    position: int | None = None
    floor: int = 0
    end: int = 0
    start: int = 0
    epoch: int = NO_EPOCH
    source_end: int | None = None
    common_end: int | None = None
    gap: tuple[int, int] | None = None
    state: State = "starting"
    error: str = ""
    run: int = 0
    failures: int = 0
    due_s: float = 0.0
    is_beginning: bool = False
    is_appending: bool = False
    jobs: deque[Job] = field(default_factory=deque[Job])

    @property
    def is_stopped(self) -> bool:
        return self.state in STOPPED

    @property
    def lag(self) -> int:
        """The records that the copy lacks, by offsets; 0 if that is unknown."""
        return max(0, (self.source_end or 0) - self.end)

    def must_begin(self, now_s: float) -> bool:
        """Return whether to compare the copy with the source now."""
        is_busy = self.is_beginning or self.is_appending
        return self.position is None and not self.is_stopped and not is_busy and self.due_s <= now_s

    def must_search(self, now_s: float) -> bool:
        """Return whether to find out where the copy and the source begin to differ."""
        is_unknown = self.state == "diverged" and self.common_end is None
        return is_unknown and not self.is_beginning and not self.is_appending and self.due_s <= now_s

    @property
    def may_fetch(self) -> bool:
        return self.position is not None and len(self.jobs) < _JOBS_MAX

    # ── what happens ──

    def begin_again(self) -> int:
        """Compare with the source before anything else; return the bytes of the jobs that are dropped."""
        dropped = sum(job.size for job in self.jobs)
        self.jobs.clear()
        self.position = None
        self.run += 1
        return dropped

    def wait(self, error: object, now_s: float) -> int:
        """Begin again after a pause, because of an error that may pass; return as ``begin_again``."""
        dropped = self.begin_again()
        if not self.is_stopped:
            self.failures += 1
            self.due_s = now_s + pause_s(self.failures)
            self.state, self.error = "waiting", str(error)[:_ERROR_CHARACTERS_MAX]
        return dropped

    def stop(self, state: State, error: object) -> int:
        """Stop until a person decides; return as ``begin_again``."""
        if not self.is_stopped:
            self.state, self.error = state, str(error)[:_ERROR_CHARACTERS_MAX]
        return self.begin_again()

    def led_by(self, leader: Leader) -> int:
        """Note who leads it; a change may mean that records were lost. Return as ``begin_again``."""
        if leader == self.leader:
            return 0
        self.leader = leader
        self.common_end = None
        return self.begin_again()

    def began(self, position: int, copy: CopyState, source: SourceState, *, floor: int | None = None) -> None:
        """Fetch from ``position`` on; what it brings may begin at ``floor``, the end of the copy without one."""
        self.position, self.end, self.start = position, copy.end, copy.start
        self.floor = copy.end if floor is None else floor
        # Of records that the source has deleted it may not know the epoch.
        self.epoch = copy.epoch if must_compare(copy, source) else NO_EPOCH
        self.source_end = source.end
        self._go_on()

    def found(self, common_end: int, copy: CopyState, source: SourceState) -> None:
        """Note up to where a copy that has diverged and its source are the same, if it is still stopped."""
        if self.state == "diverged":
            self.common_end, self.end, self.start = common_end, copy.end, copy.start
            self.source_end, self.failures = source.end, 0

    def fetched(self, job: Job, *, high_watermark: int) -> None:
        """Append what was fetched; the next fetch begins after it."""
        self.source_end = high_watermark
        # Beyond its end only if the source has nothing that could come before: it may begin inside a batch.
        moves_start = job.log_start > self.start and (
            job.log_start <= self.end or self.position == high_watermark
        )
        if job.pieces:
            self.position, self.epoch = job.pieces[-1].next_offset, job.pieces[-1].epoch
            self.floor = self.position
        if job.pieces or moves_start:
            self.jobs.append(job)
        self._go_on()

    def appended(self, copy: CopyState) -> None:
        """Note what the copy has now."""
        self.end, self.start = copy.end, copy.start
        self.failures = 0
        self._go_on()

    def _go_on(self) -> None:
        if not self.is_stopped:
            self.state = "level" if self.end >= (self.source_end or 0) else "copying"
            self.error = ""
