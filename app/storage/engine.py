"""The interface between the broker and whatever keeps its bytes.

It speaks of many partitions at once, because an engine may commit them
together, and its appends and reads may have to wait, because an engine may be
far away. ``embedded`` implements it on this machine. One conformance suite
(``tests/unit/storage/test_engine_contract.py``) runs against every engine.

An append in this picture, for a partition that holds offsets 0…41::

    log start offset 10        high watermark = log end offset 42
          │                              │
    ──────┼──────────────────────────────┼──────
    gone  │ 10 … 41 readable             │ next append: base offset 42

``log_start_offset <= high_watermark <= log_end_offset`` always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from stele.wire.messages import Durability
from stele.wire.record_batch import BatchHeader

from ..errors import SteleError, StorageError
from .topic_config import TopicConfig
from .waiters import Waiters


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerState(Protocol):
    """State that follows from the batches of one partition and is kept beside them.

    The broker's producer states are one. The engine feeds it on recovery and
    stores its snapshots; it never looks inside.
    """

    def apply(self, header: BatchHeader) -> None:
        """A batch is in the log."""
        ...

    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes) -> None:
        """Start from a snapshot. Raises ``ValueError`` if it is damaged."""
        ...

    def clear(self) -> None:
        """Start from nothing, knowing that there was something before."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """What an engine must know to hold one partition."""

    topic_partition: TopicPartition
    topic_id: UUID
    config: TopicConfig
    producer_state: ProducerState


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """One partition's log, now. ``size_bytes`` counts the batches; ``recovery_point`` is synced up to."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    size_bytes: int
    segments: int
    recovery_point: int

    def __post_init__(self) -> None:
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset, self


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """One segment of a partition, now. ``max_timestamp`` is -1 while no record has a time; ``corrupt_ranges`` says
    what is known to be corrupt."""

    base_offset: int
    next_offset: int
    path: Path
    size_bytes: int
    index_bytes: int
    created_ms: int
    max_timestamp: int
    is_sealed: bool
    is_synced: bool
    corrupt_ranges: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of one partition's files found. ``problems`` are sentences with file and byte."""

    segments: int
    batches: int
    records: int
    size_bytes: int
    problems: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """Of the file system that holds the data directory."""

    path: Path
    total_bytes: int
    free_bytes: int


class AppendTicket:
    """An append on its way to the durability that was asked for.

    ``done`` is true at once when nothing is to be waited for. Offsets are
    known as soon as the engine gave the ticket.
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
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
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
    def done(self) -> bool:
        return self._future is None or self._future.done()

    def wait_for_sync(self, future: asyncio.Future[None] | None) -> None:
        """Ask for more than was asked for at first: the ticket is done, and synced, when ``future`` ends."""
        self._future = future
        self.durability = Durability.SYNCED

    @property
    def future(self) -> asyncio.Future[None] | None:
        """Ends when the durability is reached, or with the ``StorageError`` that prevents it."""
        return self._future


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """Which bytes answer a fetch of one partition; ``error`` stands instead of them.

    ``offset`` is the one asked for. ``source`` is the engine's own.
    """

    topic_partition: TopicPartition
    offset: int
    high_watermark: int = -1
    log_start_offset: int = -1
    size: int = 0
    error: SteleError | None = None
    source: object = None
    path: Path | None = None
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSpec:
    """Ask for batches of one partition from ``offset`` on, at most ``max_bytes`` of them."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int


class LogEngine(Protocol):
    """Holds partitions. Methods that are not ``async`` are called on the event loop and do not wait."""

    @property
    def failure(self) -> StorageError | None:
        """Why nothing is accepted any more, or None."""
        ...

    def observe_syncs(self, observer: Callable[[float], None]) -> None:
        """Have ``observer`` called on the loop with the seconds of each sync."""
        ...

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        """Open partitions, making those that are not there. Raises ``StorageError``."""
        ...

    def configure(self, topic_partition: TopicPartition, config: TopicConfig) -> None: ...

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
        """Append checked batches; base offsets and leader epoch are written into them in place.

        Raises:
            StorageFull: no space; nothing was appended, and it may be tried again.
            LogDirFailed: nothing is accepted any more.
        """
        ...

    def when_synced(self, topic_partition: TopicPartition, offset: int) -> asyncio.Future[None] | None:
        """A future that ends when ``offset`` is synced; None if it is already."""
        ...

    async def flush(self, topic_partitions: Sequence[TopicPartition] | None = None) -> None:
        """Sync all that was appended before the call (None: everywhere). Raises ``StorageError``."""
        ...

    async def plan_fetch(self, specs: Sequence[FetchSpec], max_bytes: int) -> list[FetchPlan]:
        """A plan for each spec, within its ``max_bytes`` and with all before it within ``max_bytes`` (KIP-74).

        Only the first one with data may exceed both limits, by a single batch, so
        that a reader always gets on.
        """
        ...

    async def read(self, plan: FetchPlan) -> bytes | bytearray:
        """The bytes of a plan. Raises ``StorageError``."""
        ...

    async def wait(self, positions: Mapping[TopicPartition, int], min_bytes: int, timeout_ms: int) -> None:
        """Return when ``min_bytes`` were appended in all behind the offsets, a partition vanished, or in time."""
        ...

    @property
    def waiters(self) -> Waiters:
        """Who is told of changes: appends, log start offsets that moved, deletions.

        Partitions that others serve beside the engine's may be told of here as well.
        """
        ...

    def wake_all(self) -> None:
        """End every ``wait`` now, those of watches too."""
        ...

    def state(self, topic_partition: TopicPartition) -> LogState: ...

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """As in its state."""
        ...

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int]:
        """``(offset, timestamp, leader epoch)`` of the first record at or after it; (-1, -1, epoch) if none."""
        ...

    def max_timestamp(self, topic_partition: TopicPartition) -> int:
        """The newest timestamp of any record, in ms; -1 if there is none."""
        ...

    def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """``(epoch, end offset)`` as KIP-101 asks for."""
        ...

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Move the log start offset up to ``before_offset``; returns the new one."""
        ...

    async def segments(self, topic_partition: TopicPartition) -> list[SegmentState]:
        """Oldest first; none for a partition in memory."""
        ...

    async def verify(
        self, topic_partition: TopicPartition, should_stop: Callable[[], bool]
    ) -> Verification | None:
        """Read and check every batch and index that is there when it begins.

        None if ``should_stop``, which a thread asks now and then, said so. Raises ``StorageError``.
        """
        ...

    async def disk_space(self) -> DiskSpace:
        """Raises ``StorageError``."""
        ...

    async def enforce_retention(self) -> int:
        """Delete what the configurations no longer keep; returns segments deleted."""
        ...

    async def close(self) -> None:
        """Sync everything, leave the clean-shutdown mark, release the data directory."""
        ...
