"""The interface between the broker and whatever keeps its bytes.

It speaks of many partitions at once, because an engine may commit them together. Its appends
may get their offsets later and its reads may wait, because an engine may be far away.
``embedded`` implements it on this machine; ADR-0024 has the reasons. One conformance suite
(``tests/unit/storage/test_engine_contract.py``) runs against every engine.

A partition that holds offsets 10…41::

    log start offset 10        high watermark 40        log end offset 42
          │                              │                      │
    ──────┼──────────────────────────────┼──────────────────────┼──────
    gone  │ 10 … 39 readable             │ waits for its sync   │ next append: base offset 42

``log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`` always. Consumers
read below the high watermark: that of the oldest batch that waits for a sync (ADR-0036), or else the
log end offset. With READ_COMMITTED they read below the *last stable offset*: that of the first record
of the oldest transaction that is open, or else the high watermark. Compaction leaves holes between
offsets, so a count of records is not a difference of offsets.

Callers must not rule out an engine that is shared by several brokers. Such an engine knows the offsets of
an append, and whether its batch was accepted, only when its commit returns (see ``AppendTicket``). Other
brokers append to its partitions, so ``state`` may be stale until ``refresh``.

It is one file, however long, because it is one interface with its contracts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar
from uuid import UUID

from stele.wire.control_record import EndTransactionMarker
from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import BatchHeader

from ..errors import SteleError, StorageError
from .append_ticket import AppendTicket
from .disk_views import DiskViews
from .keys.newest_offsets import NewestOffsets
from .segments.transaction_index import AbortedEntry
from .sequences import ProducerView, StoredBatch
from .topic_config import TopicConfig
from .topic_partition import TopicPartition
from .transactional_produce import TransactionalProduce
from .waiters import Waiters

_T = TypeVar("_T")


class ProducerState(Protocol):
    """The state of a partition's producers, derived from its batches.

    The broker's producer states implement it, for an engine that keeps it in memory: that engine asks
    it before it appends, feeds it, and stores its snapshots. An engine that keeps the state of producers
    elsewhere ignores it, and uses the rules of ``sequences``.
    """

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if no transaction is open."""
        ...

    def check(self, header: BatchHeader, *, needs_state: bool = False) -> StoredBatch | None:
        """Check whether a batch is the next one of its producer; raises as ``sequences.check_batch``.

        Returns None if it is, or the stored batch that it repeats.
        """
        ...

    def refused(self, header: BatchHeader) -> None:
        """Note that a checked batch was not stored for now: its producer sends it again."""
        ...

    def view(self, producer_id: int) -> ProducerView | None:
        """Return what is known of one producer; None if nothing."""
        ...

    def views(self) -> list[ProducerView]:
        """Return what is known of every producer."""
        ...

    def apply(self, header: BatchHeader, marker: EndTransactionMarker | None = None) -> AbortedEntry | None:
        """Note a batch that is in the log; ``marker`` is that of a control batch.

        Returns the transaction that it aborted, if any.
        """
        ...

    def blank(self) -> ProducerState:
        """Return a state of the same partition that knows nothing."""
        ...

    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes) -> None:
        """Start from a snapshot. Raises ``ValueError`` if it is damaged."""
        ...

    def clear(self) -> None:
        """Forget all but the open transactions: batches are missing from here on."""
        ...

    def forget(self) -> None:
        """Forget open transactions too: every batch before here is deleted."""
        ...

    def last_batches(self) -> frozenset[int]:
        """Return the base offset of the last batch of each producer; without one, that of its last marker.

        Compaction keeps the headers of these batches: the state is rebuilt from them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """The specification of one partition for an engine."""

    topic_partition: TopicPartition
    topic_id: UUID
    config: TopicConfig
    producer_state: ProducerState


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """The state in which an engine opened its logs. ``was_clean`` if the run before closed it."""

    is_new: bool
    was_clean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The offsets and size of one partition's log, now.

    ``recovery_point`` is the offset up to which records survive a loss of power. ``size_bytes``
    counts the batches.
    """

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    size_bytes: int
    recovery_point: int

    def __post_init__(self) -> None:
        assert (
            self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= self.log_end_offset
        ), self


class TierOffsets(NamedTuple):
    """Where the records of a partition are (KIP-405).

    Those from ``local_start_offset`` on are on this broker's disk. Those before ``tiered_end_offset`` are in the bucket as
    segments of their own; -1: there are none, or the topic has no remote storage.
    """

    local_start_offset: int
    tiered_end_offset: int


# ``off``: compaction is disabled. ``running``: a pass over the partition runs. ``failed``: its last pass failed, and it
# waits for another try. ``due``: the dirty ratio or the age of a record calls for a pass. ``idle``: nothing to do yet.
CleanerState = Literal["off", "running", "failed", "due", "idle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCompaction:
    """``dirty_ratio`` is the part that the next pass reads for the first time, 0 to 1."""

    dirty_ratio: float
    cleaner: CleanerState


@dataclass(slots=True, kw_only=True)
class SharedStorageCounts:
    """One broker's counts of shared storage since its start.

    ``objects`` were committed to the object store and ``inline_objects`` to the metadata, with these numbers of bytes.
    ``failed_uploads`` could not be stored in time. ``commit_retries`` are commits that were tried again. ``merges``
    took effect. ``deleted_objects`` are those whose bytes this broker has deleted. ``cache_hits`` and
    ``cache_misses`` count blocks that readers wanted, ``loaded_bytes`` what was read from the stores for them.
    ``loads_waiting`` wait for their turn, and ``refused_loads`` readers found too many of them.
    ``in_flight`` objects are not committed yet. ``read_retries`` are reads of the stores that were tried again.
    ``histories`` of the metadata began that may lack what was committed before, and ``lost_records`` are those that
    this broker knew and they do not. ``commit_age_ms`` and ``upload_age_ms`` are how long ago a commit and an upload
    succeeded, or this broker started; 0: it uploads nothing.
    """

    objects: int = 0
    object_bytes: int = 0
    inline_objects: int = 0
    inline_bytes: int = 0
    failed_uploads: int = 0
    commit_retries: int = 0
    merges: int = 0
    merged_bytes: int = 0
    deleted_objects: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    loaded_bytes: int = 0
    loads_waiting: int = 0
    refused_loads: int = 0
    in_flight: int = 0
    read_retries: int = 0
    histories: int = 0
    lost_records: int = 0
    commit_age_ms: int = 0
    upload_age_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionCounts:
    """Counts of compaction since the start.

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


# No record has this offset.
OFFSET_MAX = (1 << 63) - 1


# Neither this nor ``PartitionRead`` is frozen, because there is one per partition and read, and a frozen instance takes
# twice as long to make.
@dataclass(slots=True, kw_only=True)
class PartitionFetch:
    """Ask one partition for batches from ``offset`` on, at most ``max_bytes`` of them.

    The first partition of a read that has data may return a single batch that is larger.
    ``isolation`` READ_COMMITTED bounds the read by the last stable offset. A caller that wants no offsets from
    ``until_offset`` on says so: an engine may end the read with the first batch that reaches it, or go on.
    """

    topic: str
    partition: int
    offset: int
    max_bytes: int
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    until_offset: int = OFFSET_MAX

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class BatchOrigin(Protocol):
    """The file and position of batches, for reports of corruption; only engines with files know it."""

    @property
    def path(self) -> Path: ...
    @property
    def position(self) -> int: ...


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted in one partition.

    Its batches are those of ``producer_id`` from ``first_offset`` to the marker at ``last_offset``.
    """

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True, kw_only=True)
class PartitionRead:
    """The result of a read for one partition: batches or ``error``.

    ``batches`` are whole batches, verbatim. The first may begin before the offset that was
    asked for, and all end at or before ``high_watermark``, or before ``last_stable_offset`` with
    READ_COMMITTED. They contain control batches, and the batches of ``aborted`` transactions: those
    that overlap ``batches``, sorted by first offset; None with READ_UNCOMMITTED. Compaction may have
    left holes between offsets below ``holes_until``, and batches without records, so a reader continues
    from the next offset of the last batch; a gap that ends after ``holes_until`` is a loss.

    The broker passes this object on to the listeners as it is: it is made once per partition.
    """

    topic: str
    partition: int
    error: SteleError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[AbortedTransaction] | None = None
    batches: bytes | bytearray = b""
    holes_until: int = 0
    origin: BatchOrigin | None = None


class LogEngine(Protocol):
    """Holds partitions.

    Methods that are not ``async`` are called on the event loop and do not wait.

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
        """Finish interrupted deletions, then begin background work.

        All partitions are open.
        """
        ...

    @property
    def failure(self) -> StorageError | None:
        """The error that stopped the engine; None while it works.

        After it the engine accepts nothing.
        """
        ...

    async def check_writable(self) -> None:
        """Raise ``failure``, or ``StorageFull`` while nothing can be written."""
        ...

    async def with_kept_space(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Await ``work``, which frees space.

        If it raises ``StorageFull``, await it again in what is kept back on a disk (``kept_space``).
        """
        ...

    @property
    def stall(self) -> StorageError | None:
        """The reason why appends are stalled without an error yet, or None."""
        ...

    def observe_syncs(self, observer: Callable[[float], None]) -> None:
        """Call ``observer`` on the loop with the seconds that each sync took."""
        ...

    def observe_appends(
        self,
        observer: Callable[[TopicPartition], None],
        followed: Callable[[], Iterable[TopicPartition]] = tuple,
    ) -> None:
        """Call ``observer`` on the loop with each partition that has readable records.

        Also with those that another broker has appended: soon for the partitions that ``followed`` returns, as for
        those of ``wait``. It may be called for several appends at once, and after the records were read.
        """
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other brokers may use a partition as soon as the catalog has it.

        Then its creation cannot be undone if ``create`` fails: it may have records.
        """
        ...

    async def prepare(self, specs: Sequence[PartitionSpec]) -> None:
        """Make what can be made of new partitions before the catalog has them.

        ``create`` follows, or ``drop``. Raises as ``create``; nothing is left then.
        """
        ...

    async def create(self, specs: Sequence[PartitionSpec]) -> None:
        """Open partitions, and make those that do not exist.

        Raises:
            StorageError: none was opened.
            TooManyPartitions: there would be too many open files.
            InvalidTopicName: the file system does not allow such a long name.
        """
        ...

    def check_config(self, config: TopicConfig) -> None:
        """Check whether partitions may have this configuration.

        Raises:
            InvalidConfig: the engine cannot do what it asks for.
        """
        ...

    def configure(self, topic_partition: TopicPartition, config: TopicConfig) -> None:
        """Put a partition's new configuration into effect."""
        ...

    def tiers(self, topic_partition: TopicPartition) -> TierOffsets:
        """Return which records of a partition are where."""
        ...

    def set_cleaner_backoff(self, interval_ms: int) -> None:
        """Set how often the engine looks for partitions to compact."""
        ...

    async def drop(self, topic_partitions: Sequence[TopicPartition]) -> bool:
        """Delete partitions and all they hold.

        Return False if files of them are left, because the disk does not allow it; see ``remove_leftovers``.
        """
        ...

    async def remove_leftovers(self, topic: str, partitions: int, topic_id: UUID) -> bool:
        """Remove the files that a deleted topic has left.

        Return False if the disk does not allow it.
        """
        ...

    @property
    def large_bytes(self) -> int:
        """The size of a batch above which ``write_ahead`` comes before its append."""
        ...

    async def write_ahead(
        self,
        topic_partition: TopicPartition,
        batch: memoryview,
        header: BatchHeader,
        *,
        is_copy: bool = False,
    ) -> None:
        """Do what takes long of the append of a large batch, in slices, so that the append is short.

        The append must be given ``batch`` itself. What fails here, the append reports.
        """
        ...

    def append(
        self,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[BatchHeader],
        *,
        sync: bool,
        needs_state: bool = False,
        admit: Callable[[BatchHeader], None] | None = None,
        transaction: TransactionalProduce | None = None,
        sync_later: bool = False,
        expected_end: int | None = None,
        is_copy: bool = False,
    ) -> AppendTicket:
        """Append well-formed batches, in the order of the calls.

        Ownership of ``batches`` passes: the engine writes offsets and leader epoch into them, now
        or later. With ``sync`` the ticket is done when they are synced; with ``sync_later`` the caller
        calls ``sync``. Both hide them until then, unless ``stele.visibility`` is ``appended``. A shared
        engine makes everything durable before a ticket is done.

        A batch with a producer id comes alone. It is checked in the order of appends
        (``sequences.check_batch``, which has ``needs_state``), unless it is a control batch. One that is
        stored already is not stored again: its ticket is a repeat, with the offsets of the first time.
        ``admit`` is called with the header of a batch that is to be stored, in the turn of the event loop
        that stores it, and may raise; it is given for transactional batches. A shared engine compares
        ``transaction`` with what is open when the batch gets its offset, because no broker alone can know that.

        With ``expected_end`` a single batch is stored only at this offset: the log end offset is
        compared with it when the batch gets its offset. One that is stored already is a repeat, whatever the end is.

        ``is_copy``: they keep the offsets, leader epochs and times that they have, in a topic with ``stele.mirror``. The first
        begins at ``expected_end`` or later, where the log ends; no producer is asked for its state.

        Errors come at once, or end the ticket's future if the engine learns of them later. After a batch of
        an idempotent producer that was refused for a reason that passes, later ones are out of order until
        it comes again.

        Raises:
            OutOfOrderSequence, DuplicateSequence, ProducerFenced, InvalidBatch, InvalidTransactionState:
                see ``sequences.check_batch``; nothing was appended.
            UnexpectedEnd: the log ends elsewhere; nothing was appended.
            StorageFull, StorageUnavailable: nothing was appended, and it may be tried again.
            LogDirFailed: nothing is accepted from now on.
        """
        ...

    async def skip_to(self, topic_partition: TopicPartition, offset: int) -> None:
        """Begin a copy at ``offset``, and delete what is before: its source has no more records up to there.

        Raises ``StorageError``: it begins where it did.
        """
        ...

    async def cut_copy(self, topic_partition: TopicPartition, offset: int) -> int:
        """Remove the batches of a copy that end after ``offset``, as if they had never come; return the new end.

        The end may be earlier: whole batches go, and a compacted copy loses all, because records before ``offset`` may
        have gone because of later ones. Nothing may be appended meanwhile. It lasts when this returns.

        Raises ``StorageError``: the directory has stopped, or nothing was removed.
        """
        ...

    async def stop_copies(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Accept no copies any more, whichever broker is asked; ``end_copies`` of each follows.

        A caller that has the partitions to itself sees to that by itself. Raises ``StorageError``.
        """
        ...

    async def end_copies(self, topic_partition: TopicPartition) -> None:
        """Make a copy an ordinary log, in which every offset from now on has a record; its leader epoch rises.

        The producers of the source are forgotten. It lasts when this returns. Raises ``StorageError``.
        """
        ...

    def sync(self, topic_partition: TopicPartition, ticket: AppendTicket) -> None:
        """Let ``ticket`` of an append without ``sync`` wait for the sync of its records.

        It may not be placed yet. Of several tickets of a partition, all become done with one sync.
        """
        ...

    async def refresh(self, topic_partitions: Collection[TopicPartition]) -> bool:
        """Let ``state`` include all that any broker had committed before the call.

        Returns whether the end of any of these partitions moved. Callers await it before they refuse
        something because of the end, or report it as the newest. Nothing happens in an engine that has its
        partitions to itself. Partitions that do not exist are left out.

        Raises:
            StorageUnavailable: the end cannot be determined now.
        """
        ...

    async def flush(self, topic_partitions: Sequence[TopicPartition] | None = None) -> None:
        """Sync all that was appended before the call (None: everywhere).

        Raises ``StorageError``.
        """
        ...

    async def read(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead]:
        """Read each partition that is asked for, in the order of the requests.

        A request gets at most its own ``max_bytes``, and all together at most ``max_bytes``
        (KIP-74). Only the first with data may exceed both limits, by a single batch, so that a
        reader always makes progress. What is wrong with one partition stands in its result.

        A read at the known end does not ask whether it has moved (``refresh``); one past it does, before
        it is out of range.
        """
        ...

    def read_now(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead] | None:
        """Read a few partitions whose batches are in memory or that end at the offset.

        The result is that of ``read``. None otherwise; then ``read`` waits for them, or says what is wrong.
        """
        ...

    async def wait(
        self,
        positions: Mapping[TopicPartition, int],
        min_bytes: int,
        timeout_ms: int,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        """Wait for ``min_bytes`` more in all after the offsets, or ``timeout_ms``.

        Returns at once if a partition has readable records there already, and when one is dropped. With
        READ_COMMITTED batches of open transactions are not counted, and the end of a transaction ends
        the wait.
        """
        ...

    @property
    def waiters(self) -> Waiters:
        """The waiters for readable records, deletions, and moves of log start offsets.

        The broker notifies them too, of partitions that it serves beside the engine's.
        """
        ...

    def wake_all(self) -> None:
        """End every ``wait`` now, and those of watches."""
        ...

    def state(self, topic_partition: TopicPartition) -> LogState: ...

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch that clients are shown.

        That of ``state``, or a later one in which nothing was appended yet.
        """
        ...

    def last_leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch of the last batch, -1 if there was none."""
        ...

    def oldest_leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the oldest epoch that is not out of date.

        A client that knows it has missed nothing.
        """
        ...

    async def offset_for_time(
        self, topic_partition: TopicPartition, timestamp_ms: int
    ) -> tuple[int, int, int]:
        """Return ``(offset, timestamp, leader epoch)`` of the first record from a time on.

        The time is in ms.

        (-1, -1, epoch) if there is none.
        """
        ...

    async def max_timestamp(self, topic_partition: TopicPartition) -> int:
        """Return the newest timestamp of any record, in ms; -1 if there is none."""
        ...

    async def producers(self, topic_partition: TopicPartition) -> list[ProducerView]:
        """Return what the partition knows of every producer."""
        ...

    async def producer(self, topic_partition: TopicPartition, producer_id: int) -> ProducerView | None:
        """Return what the partition knows of one producer; None if nothing."""
        ...

    def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """Return ``(epoch, end offset)`` of the largest epoch up to ``epoch``, itself if all are later (KIP-101)."""
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
        """Counts of compaction."""
        ...

    @property
    def shared_counts(self) -> SharedStorageCounts | None:
        """Counts of shared storage; None with embedded storage."""
        ...

    def partition_compaction(self, topic_partition: TopicPartition) -> PartitionCompaction | None:
        """Return how much of a partition is dirty, and what the cleaner does; None if it is not compacted."""
        ...

    async def newest_offset(
        self, topic_partition: TopicPartition, key: bytes, *, is_doubted: bool = False
    ) -> int:
        """Return the offset of the newest committed record of ``key``; -1 if there is none.

        A tombstone is a record. ``is_doubted``: the record at the offset of the last answer had another key,
        so what is known of keys must be read again. For partitions on disk.

        Raises:
            CorruptLog: it may be in a corrupt range.
            LogDirFailed: the disk does not allow it.
        """
        ...

    async def newest_offsets(
        self, topic_partition: TopicPartition, end_offset: int, *, start_offset: int = 0
    ) -> NewestOffsets:
        """Return which committed records before an end are the newest of their keys.

        The end is ``end_offset``. Records before ``start_offset`` need not be read: what the result says begins
        at its ``start_offset``, which is not after the requested one, or is the log start.

        Records at or after the last stable offset are not committed yet. The same call is cheap while the result
        is remembered, which is about the whole log; then there may be offsets in it that were deleted since. For
        partitions on disk.

        Raises:
            OffsetOutOfRange: ``end_offset`` is past the high watermark.
            InvalidRequest: there are more keys than the memory allows.
            LogDirFailed: the disk does not allow it.
        """
        ...

    def compacted_until(self, topic_partition: TopicPartition) -> int:
        """Return an offset before which each compacted record has a newer one of its key."""
        ...

    async def close(self) -> None:
        """Sync everything, note that the shutdown was clean, and release what is stored."""
        ...

    @property
    def disk_views(self) -> DiskViews | None:
        """Views of the files on this machine; None if the engine keeps none."""
        ...
