"""One broker's view of the log of a partition: its offsets, and its newest runs.

Other brokers append to the same log, so what is known here may lag the metadata. It is never ahead of
it, and offsets only rise, within one history of the metadata; when that begins another one, the log is adopted from it
(ADR-0071). The newest runs are kept for consumers that follow the end of the log: reading
them needs no query. They are forgotten after a while, because a run may be merged or deleted meanwhile;
the bytes of an object stay for longer than that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from ...errors import StorageUnavailable, UnknownTopic
from ..engine import LogState
from ..recovery.checkpoint import LeaderEpochs
from ..topic_config import TopicConfig
from ..topic_partition import TopicPartition
from .meta import CopyPhase, KnownLog, LogRow, PartitionId, RunRead

# Runs that are kept per log; older ones are found by a query.
_RECENT_RUNS = 256
# Far shorter than the time for which the bytes of a dead object are kept.
RECENT_MS = 60_000

# Consumers that follow the end of a compacted log; others see at once what a pass has replaced.
_RECENT_COMPACTED_MS = 5_000


class Progress(NamedTuple):
    """The movement of a log.

    ``is_in_transaction``: a transaction is open at its end, or was.
    """

    is_in_transaction: bool
    is_stable_moved: bool


class LostRecords(NamedTuple):
    """Offsets that a broker knew, and that the metadata give to other records."""

    first: int
    end: int


class _Recent(NamedTuple):
    run: RunRead
    noted_ms: int


class SharedLog:
    """The log of one open partition. Identity, not value, distinguishes two of them."""

    def __init__(self, topic_partition: TopicPartition, config: TopicConfig, row: LogRow) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.log_id = row.log_id
        self.partition_id: PartitionId = row.partition_id
        self.log_start_offset = row.log_start
        self.next_offset = row.next_offset
        self.size_bytes = row.size_bytes
        self.last_stable_offset = row.last_stable
        self.last_aborted = row.last_aborted
        self.is_dropped = False
        # The epoch of the history of the metadata that all this is from.
        self.history = row.history
        self.epochs = self._epochs_of(row)
        # See ``LogEngine.compacted_until``: that of all runs that this broker has planned to read.
        self.compacted_until = 0
        # What readers were told of: the last stable offset and the end.
        self._told = (self.last_stable_offset, self.next_offset)
        self._recent: deque[_Recent] = deque(maxlen=_RECENT_RUNS)

    def update(self, row: LogRow) -> None:
        """Take over what the metadata says.

        Answers may come in another order than the metadata gave them, so older ones change nothing. Nor do those
        of another history, which are not comparable.
        """
        if row.history != self.history:
            return
        if row.next_offset >= self.next_offset and row.log_start >= self.log_start_offset:
            self.size_bytes = row.size_bytes
        self.next_offset = max(self.next_offset, row.next_offset)
        self.log_start_offset = max(self.log_start_offset, row.log_start)
        self.last_stable_offset = max(self.last_stable_offset, row.last_stable)
        self.last_aborted = max(self.last_aborted, row.last_aborted)
        for entry in row.copied_epochs:
            self.epochs.note(*entry)

    def _epochs_of(self, row: LogRow) -> LeaderEpochs:
        """Return the epochs of a log, with that of the records that it gets next, unless these are copies."""
        epochs = LeaderEpochs(row.copied_epochs)
        for entry in row.epochs:
            epochs.note(*entry)
        if row.copy_phase is CopyPhase.ENDED or not self.config.mirror:
            epochs.note(row.history, row.next_offset)
        return epochs

    def adopt(self, row: LogRow) -> LostRecords | None:
        """Take over what the metadata say in another history.

        Return what they no longer know. ``row`` has ``epochs``.
        """
        if row.history <= self.history:
            self.update(row)
            return None
        # Where the records of the histories after the known one begin; without any, nothing was appended since.
        kept_end = min(
            (start for epoch, start in row.epochs if epoch > self.history), default=row.next_offset
        )
        lost = LostRecords(kept_end, self.next_offset) if kept_end < self.next_offset else None
        self.history, self.epochs = row.history, self._epochs_of(row)
        self.log_start_offset, self.next_offset = row.log_start, row.next_offset
        self.last_stable_offset, self.last_aborted = row.last_stable, row.last_aborted
        self.size_bytes = row.size_bytes
        self.compacted_until = 0
        self._told = (self.last_stable_offset, self.next_offset)
        self.forget_runs()
        return lost

    def check_same(self, history: int) -> None:
        """Refuse what was read, or planned to be read, of this log in ``history``.

        It may be neither that of the partition now nor of the history of the metadata that this broker is in.

        Raises:
            UnknownTopic: the topic was deleted; there may be another one with its name.
            StorageUnavailable: the metadata have begun another history. Repeat the read.
        """
        if self.is_dropped:
            raise UnknownTopic(self.topic_partition.topic)
        if history != self.history:
            raise of_another_history()

    @property
    def known(self) -> KnownLog:
        """Return what would be different if another broker had changed the log."""
        return KnownLog(self.log_id, self.log_start_offset, self.next_offset, self.size_bytes, self.history)

    def note_cleaned(self, runs: Sequence[RunRead]) -> None:
        """Note up to where the passes looked that wrote these runs.

        The runs are read now.
        """
        for run in runs:
            self.compacted_until = max(self.compacted_until, run.cleaned_until)

    @property
    def has_news(self) -> bool:
        """Return whether the end or the last stable offset has moved.

        Since readers were told.
        """
        return self._told != (self.last_stable_offset, self.next_offset)

    def tell(self) -> Progress:
        """Return what has moved since the last call."""
        (stable, end), self._told = self._told, (self.last_stable_offset, self.next_offset)
        return Progress(
            is_in_transaction=stable != end or self.last_stable_offset != self.next_offset,
            is_stable_moved=stable != self.last_stable_offset,
        )

    def state(self) -> LogState:
        """Return the state; everything up to the end is committed, and so readable and durable."""
        return LogState(
            log_start_offset=self.log_start_offset,
            last_stable_offset=self.last_stable_offset,
            high_watermark=self.next_offset,
            log_end_offset=self.next_offset,
            leader_epoch=self.epochs.latest,
            size_bytes=self.size_bytes,
            recovery_point=self.next_offset,
        )

    # ── the newest runs ──

    def note_run(self, run: RunRead, now_ms: int) -> None:
        """Note a run that was committed after ``now_ms``.

        After one of another broker is missing, only later ones are kept.
        """
        if self._recent and self._recent[-1].run.last_offset + 1 != run.base_offset:
            if run.base_offset <= self._recent[-1].run.last_offset:
                return
            self._recent.clear()
        self._recent.append(_Recent(run, now_ms))

    def forget_runs(self) -> None:
        """Forget the newest runs, because one of them is gone."""
        self._recent.clear()

    def recent_runs(self, offset: int, max_bytes: int, now_ms: int) -> Sequence[RunRead]:
        """Return known runs from ``offset`` on, until they have ``max_bytes``; maybe none."""
        recent = self._recent
        keep_ms = RECENT_MS
        if self.config.is_compacted:
            # A tombstone may be gone so long after it was committed; these runs may have records that it deletes.
            keep_ms = min(_RECENT_COMPACTED_MS, self.config.delete_retention_ms)
        while recent and now_ms - recent[0].noted_ms > keep_ms:
            recent.popleft()
        first = bisect_right(recent, offset, key=lambda entry: entry.run.base_offset) - 1
        if first < 0 or recent[first].run.last_offset < offset:
            return ()
        runs: list[RunRead] = []
        size = 0
        for entry in islice(recent, first, None):
            runs.append(entry.run)
            size += entry.run.length
            if size >= max_bytes:
                break
        return runs


def of_another_history() -> StorageUnavailable:
    """Return the error of a read that began in the history before."""
    return StorageUnavailable("the read", "the database has begun another history; it is taken over now")
