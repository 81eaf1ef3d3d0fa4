"""The interface between the broker and whatever keeps its bytes.

It speaks of many partitions at once, because an engine may commit them together. Its appends
may get their offsets later and its reads may wait, because an engine may be far away.
``embedded`` implements it on this machine; ADR-0024 has the reasons. One conformance suite
(``tests/unit/storage/test_engine_contract.py``) runs against every engine.

A partition that holds offsets 10…41::

    log start offset 10        high watermark = log end offset 42
          │                              │
    ──────┼──────────────────────────────┼──────
    gone  │ 10 … 41 readable             │ next append: base offset 42

``log_start_offset <= high_watermark <= log_end_offset`` always. Consumers read below the high
watermark. Compaction leaves holes between offsets, so a count of records is not a
difference of offsets. Two extensions are designed for, and callers must not rule them out:

- Transactions bound some reads by a *last stable offset* below the high watermark, and such a
  read also returns the aborted transactions that overlap its batches (see ``PartitionRead``).
- A shared engine knows the offsets of an append only when its commit returns (see
  ``AppendTicket``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from stele.wire.messages import Durability
from stele.wire.record_batch import NO_TIMESTAMP, BatchHeader

from ..errors import SteleError, StorageError
from .disk_views import DiskViews
from .topic_config import TopicConfig
from .waiters import Waiters


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerState(Protocol):
    """State that follows from the batches of one partition and is kept beside them.

    The broker's producer states implement it. The engine feeds it on recovery and stores its
    snapshots; it never looks inside.
    """

    def apply(self, header: BatchHeader) -> None:
        """Note a batch that is in the log."""
        ...

    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes) -> None:
        """Start from a snapshot. Raises ``ValueError`` if it is damaged."""
        ...

    def clear(self) -> None:
        """Start from nothing, knowing that there was something before."""
        ...

    def last_batches(self) -> frozenset[int]:
        """Return the base offset of the last batch of each producer.

        Compaction keeps the headers of these batches: the state is rebuilt from them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """What an engine must know to hold one partition."""

    topic_partition: TopicPartition
    topic_id: UUID
    config: TopicConfig
    producer_state: ProducerState


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """How an engine found what it keeps. ``was_clean`` if the run before closed it."""

    is_new: bool
    was_clean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The offsets and size of one partition's log, now.

    ``recovery_point`` is the offset up to which records survive a loss of power. ``size_bytes``
    counts the batches.
    """

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    size_bytes: int
    recovery_point: int

    def __post_init__(self) -> None:
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset, self


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionCounts:
    """What compaction has done since the start.

    ``bytes_read`` and ``bytes_written`` are bytes of batches that passes have read to rewrite
    them, and written; the same of records. ``last_pass_ms`` is the wall clock when the last
    pass ended, and ``last_duration_ms`` how long it took; -1 if there was none. ``failures``
    counts passes that ended with an error.
    """

    passes: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    last_pass_ms: int = -1
    last_duration_ms: int = -1


# Before an engine has given an append its offsets.
NO_OFFSET = -1


class AppendTicket:
    """An append on its way to its offsets and to the durability that was asked for.

    An engine that knows the offsets when ``append`` returns gives them to the constructor, and
    a future only if there is something to wait for. An engine that learns them later makes the
    ticket without offsets, calls ``place`` when it has them, and then ends the future; the
    order of appends is fixed when ``append`` returns. Until then the offsets are ``NO_OFFSET``.

    ``log_append_time_ms`` is -1 unless the topic stamps records on arrival.
    """

    __slots__ = (
        "_future",
        "base_offset",
        "durability",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
    )

    def __init__(
        self,
        *,
        base_offset: int = NO_OFFSET,
        last_offset: int = NO_OFFSET,
        log_append_time_ms: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
        durability: Durability,
        future: asyncio.Future[None] | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.durability = durability
        self._future = future

    @property
    def is_placed(self) -> bool:
        """True when the offsets are known; not later than ``done``, unless the append failed."""
        return self.base_offset >= 0

    def place(
        self,
        *,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
    ) -> None:
        """Fill in what the engine has learned; for the engine, once, before it ends the future."""
        assert not self.is_placed
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset

    @property
    def done(self) -> bool:
        """True when nothing is to be waited for any more: at once, unless there is a future."""
        return self._future is None or self._future.done()

    def wait_for_sync(self, future: asyncio.Future[None] | None) -> None:
        """Wait for ``future`` too: the ticket is done, and synced, when it ends."""
        self._future = future
        self.durability = Durability.SYNCED

    @property
    def future(self) -> asyncio.Future[None] | None:
        """Ends when the durability is reached, or with the ``StorageError`` that prevents it."""
        return self._future


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFetch:
    """Ask one partition for batches from ``offset`` on, at most ``max_bytes`` of them.

    The first partition of a read that has data may return a single batch that is larger.
    """

    topic: str
    partition: int
    offset: int
    max_bytes: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class BatchOrigin(Protocol):
    """Where batches lie, for the report of a corruption; only engines with files know it."""

    @property
    def path(self) -> Path: ...
    @property
    def position(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """What one partition returns to a read; ``error`` stands instead of the batches.

    ``batches`` are whole batches, verbatim. The first may begin before the offset that was
    asked for, and all end at or before ``high_watermark``. Compaction may have left holes between
    offsets below ``holes_until``, and batches without records, so a reader continues from the
    next offset of the last batch; a gap that ends after ``holes_until`` is a loss. A read
    bounded by the last stable offset will end there instead, and this type will carry that
    offset and the aborted transactions.

    The broker passes this object on to the listeners as it is: it is made once per partition.
    """

    topic: str
    partition: int
    error: SteleError | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    batches: bytes | bytearray = b""
    holes_until: int = 0
    origin: BatchOrigin | None = None


class LogEngine(Protocol):
    """Holds partitions. Methods that are not ``async`` are called on the event loop and do not wait.

    The life of an engine: ``open``, then ``create`` with all partitions that exist, ``start``,
    and ``close``, which may be called after any of them.
    """

    async def open(self) -> EngineStart:
        """Take possession of what is stored; partitions are opened by ``create``.

        Raises:
            DataDirLocked: another broker has it.
            OSError: it cannot be used.
        """
        ...

    async def start(self) -> None:
        """Finish interrupted deletions and begin background work, once all partitions are open.

        Raises:
            StorageError: what was being deleted cannot be removed.
        """
        ...

    @property
    def failure(self) -> StorageError | None:
        """The error that stopped the engine: it accepts nothing any more. None while it works."""
        ...

    def observe_syncs(self, observer: Callable[[float], None]) -> None:
        """Call ``observer`` on the loop with the seconds that each sync took."""
        ...

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        """Open partitions, and make those that do not exist. Raises ``StorageError``."""
        ...

    def configure(self, topic_partition: TopicPartition, config: TopicConfig) -> None:
        """Put a partition's new configuration into effect."""
        ...

    async def drop(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Delete partitions and all they hold."""
        ...

    def append(
        self,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[BatchHeader],
        *,
        sync: bool,
    ) -> AppendTicket:
        """Append checked batches, in the order of the calls.

        Ownership of ``batches`` passes: the engine writes offsets and leader epoch into them, now
        or later. With ``sync`` the ticket is done when they are synced.

        Raises:
            StorageFull: no space; nothing was appended, and it may be tried again.
            LogDirFailed: nothing is accepted any more.
        """
        ...

    def when_synced(self, topic_partition: TopicPartition, offset: int) -> asyncio.Future[None] | None:
        """Return a future that ends when ``offset`` is synced; None if it is already."""
        ...

    async def flush(self, topic_partitions: Sequence[TopicPartition] | None = None) -> None:
        """Sync all that was appended before the call (None: everywhere). Raises ``StorageError``."""
        ...

    async def read(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead]:
        """Read each partition that is asked for, in the order of the requests.

        A request gets at most its own ``max_bytes``, and all together at most ``max_bytes``
        (KIP-74). Only the first with data may exceed both limits, by a single batch, so that a
        reader always makes progress. What is wrong with one partition stands in its result.
        """
        ...

    async def wait(self, positions: Mapping[TopicPartition, int], min_bytes: int, timeout_ms: int) -> None:
        """Return when ``min_bytes`` were appended in all at or after the offsets, or after ``timeout_ms``.

        Returns at once if a partition has records there already, and when one is dropped.
        """
        ...

    @property
    def waiters(self) -> Waiters:
        """The waiters that are notified of appends, deletions, and log start offsets that moved.

        The broker notifies them too, of partitions that it serves beside the engine's.
        """
        ...

    def wake_all(self) -> None:
        """End every ``wait`` now, and those of watches."""
        ...

    def state(self, topic_partition: TopicPartition) -> LogState: ...

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch of ``state``, at less cost."""
        ...

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int]:
        """Return ``(offset, timestamp, leader epoch)`` of the first record at or after a time in ms.

        (-1, -1, epoch) if there is none.
        """
        ...

    def max_timestamp(self, topic_partition: TopicPartition) -> int:
        """Return the newest timestamp of any record, in ms; -1 if there is none."""
        ...

    def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """Return ``(epoch, end offset)`` of the largest epoch up to ``epoch`` (KIP-101), or (-1, -1)."""
        ...

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Move the log start offset up to ``before_offset``; return the new one, which then lasts."""
        ...

    async def enforce_retention(self) -> int:
        """Delete what the configurations no longer keep; return how many pieces were deleted."""
        ...

    async def compact(self) -> int:
        """Run the passes of compaction that are due; return how many were completed."""
        ...

    @property
    def compaction(self) -> CompactionCounts:
        """What compaction has done."""
        ...

    def dirty_ratio(self, topic_partition: TopicPartition) -> float | None:
        """Return the part of a partition that the next pass would read for the first time, 0 to 1.

        None if the partition is not compacted.
        """
        ...

    async def close(self) -> None:
        """Sync everything, note that the shutdown was clean, and release what is stored."""
        ...

    @property
    def disk_views(self) -> DiskViews | None:
        """Views of the files on this machine; None if the engine keeps none."""
        ...
