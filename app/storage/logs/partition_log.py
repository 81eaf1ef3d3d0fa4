"""The engine's interface to the log of a partition, wherever its bytes are.

``log`` keeps them on disk, ``memory_log`` in a ring. What only one of them has
(syncs, segments, files to verify) is asked of that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stele.wire.record_batch import BatchHeader

from ...errors import OffsetOutOfRange
from ..config_types import INT64_MAX
from ..engine import AbortedTransaction, ProducerState
from ..recovery.checkpoint import LeaderEpochs
from ..topic_config import TopicConfig
from ..topic_partition import TopicPartition


class Span(Protocol):
    """Whole batches of one log, located but not yet read."""

    def read_nowait(self) -> bytes | bytearray | None:
        """Return the bytes; None if a disk would be waited for."""
        ...

    def read(self) -> bytes | bytearray:
        """Return the bytes; for threads. Raises ``OSError``."""
        ...


class PartitionLog(Protocol):
    """Methods belong to the event loop unless they say otherwise."""

    config: TopicConfig
    epochs: LeaderEpochs
    log_start_offset: int
    producer_state: ProducerState
    # Before this offset compaction may have removed records.
    holes_until: int

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int:
        """The end of reads: see ``engine``."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """The end of reads of committed records: see ``engine``."""
        ...

    @property
    def readable_ends(self) -> tuple[int, int]:
        """Last stable offset and high watermark."""
        ...

    @property
    def recovery_point(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def deletions(self) -> int:
        """Goes up when files are deleted: one that was not found may have been among them."""
        ...

    def append(
        self, batches: bytearray | memoryview, headers: list[BatchHeader], *, leader_epoch: int | None
    ) -> tuple[int, int]:
        """Give the batches their offsets, in place, and write them.

        Without a ``leader_epoch`` they are copies, which have offsets and epochs. Returns ``(base, last)`` offset.
        """
        ...

    def plan(
        self, offset: int, max_bytes: int, *, at_least_one: bool, end_offset: int = INT64_MAX
    ) -> Callable[[bool], Span | None] | None:
        """Plan a search for whole batches of up to ``max_bytes``; None if there are none.

        The first is the one with ``offset``. All begin before ``end_offset``.

        If the first batch is larger, it is found alone with ``at_least_one``. The
        search takes ``nowait``: on the loop with True it raises
        ``WouldBlockError`` where it would wait for a disk; with False it is for
        threads. Raises ``OffsetOutOfRange``.
        """
        ...

    def aborted_search(self, from_offset: int) -> Callable[[int], list[AbortedTransaction]] | None:
        """Return a search for aborted transactions that overlap a range of a plan.

        The range begins at ``from_offset``; the search takes its end. None if no aborted transaction ends
        there or later. To be called in the turn of the event loop in which the batches are planned.
        """
        ...

    def is_remote_at(self, offset: int) -> bool:
        """Return whether the records at ``offset`` are in a bucket alone."""
        ...

    @property
    def has_remote(self) -> bool:
        """Whether some records are."""
        ...

    def holds(self, span: Span) -> bool:
        """False once the bytes of ``span`` have been deleted."""
        ...

    def time_search(self, timestamp_ms: int) -> Callable[[], tuple[int, int, int] | None]:
        """A search, for a thread, for the first record at or after ``timestamp_ms``.

        It returns ``(offset, timestamp, leader epoch)``, None if there is no such record.
        """
        ...

    def newest_time_search(self) -> Callable[[], int]:
        """Return a search, for a thread, for the newest time of the records.

        Those that are deleted do not count. It returns -1 if no record has one.
        """
        ...

    def advance_log_start(self, offset: int) -> None:
        """Move the log start offset up to ``offset``, never past the high watermark."""
        ...


def check_offset(log: PartitionLog, offset: int) -> None:
    """Raises ``OffsetOutOfRange`` outside ``[log_start_offset, log_end_offset]``.

    The error has the high watermark as the end, because a reader that continues there misses nothing.
    """
    if not log.log_start_offset <= offset <= log.log_end_offset:
        topic, partition = log.topic_partition
        raise OffsetOutOfRange(
            topic=topic,
            partition=partition,
            offset=offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.high_watermark,
        )
