"""The interface of the metadata of the shared engine: which bytes of which object have which offsets.

Every call is one transaction. The methods are coroutines: the implementation over PostgreSQL runs
each in a thread of its own pool, so that its CPU time does not delay the event loop, and a caller that is
cancelled does not interrupt the transaction. Times are judged by the clock of the metadata alone:
callers give ages, never times of day.

An object is *committed* by the transaction that gives its batches their offsets, and only then do its
bytes count. It can be *fenced* instead, if its uploader seems dead: then it can never be committed. It is
*dead* when no run names it any longer; its bytes are deleted later, when no reader can want them.

It is one file, however long, because it is one interface with its terms, and each implementation is read
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from stele.wire.control_record import MarkerType
from stele.wire.messages import Durability
from stele.wire.record_batch import NO_TIMESTAMP, BatchHeader

from ...errors import SteleError, UnexpectedEnd
from ..engine import AbortedTransaction
from ..topic_partition import TopicPartition
from ..transactional_produce import TransactionalProduce
from .store.object_store import Buffer

# A transaction deletes at most this many runs, because it holds the row lock of its log.
RUNS_DELETED_MAX = 2000
# A read plan has at most this many runs of one log.
RUNS_READ_MAX = 1000
# One call purges, sweeps, lists or forgets at most this many rows.
ROWS_MAX = 1000


class MetaUnavailable(Exception):
    """The database cannot be reached, or did not do the transaction in time.

    After ``commit_objects`` it means that the transaction did not happen. After any other call it may have
    happened; all of them can be repeated.
    """


class CommitUnknown(Exception):
    """The answer to COMMIT is missing: it may have happened, or may still happen.

    ``answer`` is what ``commit_objects`` returns if it did. Repeat the call with the same objects and this
    answer; until that has an answer, commit nothing else, or the order of appends is lost.
    """

    def __init__(self, answer: CommitAnswer) -> None:
        super().__init__("the database did not answer COMMIT")
        self.answer = answer


class ObjectFenced(Exception):
    """Another broker has fenced these objects: nothing was committed; upload the bytes under new keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"fenced by another broker: {', '.join(keys)}")
        self.keys = tuple(keys)


class StoreKind(Enum):
    """The kind of store that has the bytes of an object; the values are stored."""

    OBJECTS = 0
    INLINE = 1


class ObjectRef(NamedTuple):
    key: str
    store: StoreKind


class PartitionId(NamedTuple):
    """A partition, by the id of its topic: a topic that is deleted and created again has another id."""

    topic_id: UUID
    partition: int


# ── logs ──


class KeptLog(NamedTuple):
    """The retention limits of a log, for ``Meta.retain``. None: no limit."""

    log_id: int
    retention_s: float | None
    retention_bytes: int | None


class KnownLog(NamedTuple):
    """A broker's view of a log.

    Each commit moves at least one of these, unless the database has begun another ``history``.
    """

    log_id: int
    log_start: int
    next_offset: int
    size_bytes: int
    history: int


class CopyPhase(IntEnum):
    """Whether a log is the copy of a mirror; the values are stored.

    ``NEVER``: nothing was copied yet. ``COPIED``: nothing else is accepted. ``ENDED``: no copies are accepted any more.
    """

    NEVER = 0
    COPIED = 1
    ENDED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """The log of a partition, now.

    All records up to ``next_offset`` are committed and may be read.

    ``size_bytes`` counts the batches. ``unmerged_bytes`` of them are in objects of many partitions, all
    from ``merged_until`` on. ``first_open`` is the first offset of the oldest open transaction; None if none is
    open. ``last_aborted`` is the offset of the newest marker that aborted one; -1: there was none.

    ``history`` is the epoch of the history of the metadata (ADR-0071): rows of different histories may differ in
    anything. ``epoch`` is that in which the log got its last records; -1 if that was before there were any.
    ``epochs`` has the first offset in each, ascending; only ``create_logs`` and ``log_rows`` fill it.
    ``durability`` is that of what this session commits, as far as the metadata are concerned.

    ``copied_epochs`` has the first offset in each leader epoch that was copied, ascending, and once the copy has ended that
    of the epoch that began then.
    """

    log_id: int
    partition_id: PartitionId
    log_start: int
    next_offset: int
    size_bytes: int
    unmerged_bytes: int
    merged_until: int
    first_open: int | None = None
    last_aborted: int = -1
    history: int = 0
    epoch: int = -1
    epochs: Sequence[tuple[int, int]] = ()
    durability: Durability = Durability.SYNCED
    copy_phase: CopyPhase = CopyPhase.NEVER
    copied_epochs: tuple[tuple[int, int], ...] = ()

    @property
    def last_stable(self) -> int:
        """Return the offset below which no transaction is open."""
        first_open = self.next_offset if self.first_open is None else self.first_open
        return max(self.log_start, first_open)

    def moved_start(self, before_offset: int) -> LogRow:
        """Return the log after DeleteRecords: its start rises to ``before_offset``, at most to its end."""
        return replace(self, log_start=max(self.log_start, min(before_offset, self.next_offset)))

    def skipped_to(self, offset: int) -> LogRow:
        """Return a copy that has nothing before ``offset``, which is after its end."""
        return replace(
            self,
            copy_phase=CopyPhase.COPIED,
            log_start=offset,
            next_offset=offset,
            size_bytes=0,
            unmerged_bytes=0,
            merged_until=offset,
            first_open=None,
        )

    def ended_copy(self) -> LogRow:
        """Return a copy that takes no more copies: what follows has a later leader epoch than all of them."""
        if self.copy_phase is CopyPhase.ENDED:
            return self
        latest = self.copied_epochs[-1][0] if self.copied_epochs else -1
        begun = (max(self.history, latest + 1), self.next_offset)
        return replace(self, copy_phase=CopyPhase.ENDED, copied_epochs=(*self.copied_epochs, begun))


# ── commit (T1) ──


class TransactionClaim(NamedTuple):
    """The transaction that a batch claims, and its partition."""

    produce: TransactionalProduce
    topic_partition: TopicPartition


class ExpectedEnd(NamedTuple):
    """The log end offset at which alone a batch may be stored, and its partition."""

    offset: int
    topic_partition: TopicPartition

    def check(self, log_end_offset: int) -> None:
        """Raises ``UnexpectedEnd``."""
        if log_end_offset != self.offset:
            raise UnexpectedEnd(
                **self.topic_partition._asdict(), expected=self.offset, log_end_offset=log_end_offset
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWrite:
    """Batches of one log that follow each other in an object, from ``position`` on.

    Their base offsets are not known yet; ``headers`` have all else that the commit needs, but for the batches
    (by index) that are markers of an abort, and for those that must begin with sequence 0 if nothing is known of
    their producer. Another control batch is the marker of a commit. A batch with a claim is compared with the
    transactional id that it names, and one with an expected end with the end of the log after all batches before it.

    ``copies`` are the batches that keep the offsets that they have, with the type of the marker in each (None: none). Each
    has an expected end, at or before its base offset.
    """

    log_id: int
    position: int
    headers: Sequence[BatchHeader]
    aborts: frozenset[int] = frozenset()
    needs_state: frozenset[int] = frozenset()
    claims: Mapping[int, TransactionClaim] = field(default_factory=dict[int, TransactionClaim])
    expected_ends: Mapping[int, ExpectedEnd] = field(default_factory=dict[int, ExpectedEnd])
    copies: Mapping[int, MarkerType | None] = field(default_factory=dict[int, MarkerType | None])


class SilentUploader(NamedTuple):
    """An incarnation without heartbeats for ``silent_s``.

    ``looked_s`` is how long that was when its objects were listed last.
    """

    uploader: UUID
    silent_s: float
    looked_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWrite:
    """An object to commit.

    With ``inline`` its bytes are stored by the same transaction, otherwise they are uploaded.

    ``uploader`` is the incarnation of the broker.
    """

    key: str
    uploader: UUID
    size: int
    runs: Sequence[RunWrite]
    inline: Buffer | None = None

    @property
    def store(self) -> StoreKind:
        return StoreKind.OBJECTS if self.inline is None else StoreKind.INLINE


class BatchPlace(NamedTuple):
    """The result of committing one batch.

    It has offsets from ``base_offset`` on: new ones, or with ``is_duplicate`` those of the first time. With
    ``error`` it was refused, and ``base_offset`` is -1. Before a copy, ``hole`` offsets are left out.
    """

    base_offset: int
    is_duplicate: bool = False
    error: SteleError | None = None
    hole: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """The result of committing one run: an entry per batch, and the log after the whole transaction.

    ``log`` is None and ``places`` is empty if the log was deleted.
    """

    places: Sequence[BatchPlace]
    log: LogRow | None


# For each object, for each of its runs.
CommitAnswer = Sequence[Sequence[RunPlace]]


# ── reads (T2) ──


class ByteSpan(NamedTuple):
    """Some bytes of an object."""

    position: int
    length: int


class RunRead(NamedTuple):
    """Consecutive batches of an object, without holes but those of compaction.

    The first has ``base_offset``; those in the object mean nothing, except in merged objects.
    ``sparse_index`` is that of a merged run, empty otherwise. ``cleaned_until`` is not 0 if a pass of
    compaction wrote the run: each record that it removed has a newer one of its key before this offset. In a run of
    copies, of which the source may have removed some, it is the end of the run.
    Such a run may have holes, and its batches have their own offsets. ``keys`` is where its key index is.
    """

    base_offset: int
    last_offset: int
    object: ObjectRef
    position: int
    length: int
    max_timestamp: int
    is_merged: bool
    sparse_index: bytes = b""
    cleaned_until: int = 0
    keys: ByteSpan | None = None


class CommittedRun(NamedTuple):
    """A run, and when the object that has it now was committed: after a merge, the time of the merge."""

    run: RunRead
    committed_ms: int

    @property
    def newest_ms(self) -> int:
        """The newest timestamp of a run's records, otherwise the time of its commit."""
        return self.committed_ms if self.run.max_timestamp == NO_TIMESTAMP else self.run.max_timestamp


class RunsWanted(NamedTuple):
    """The runs of a log from ``offset`` on, until they have ``max_bytes``.

    There is one at least.
    """

    log_id: int
    offset: int
    max_bytes: int


class RunsFound(NamedTuple):
    """``runs`` is empty if ``offset`` is not between log start and log end."""

    log: LogRow
    runs: Sequence[RunRead]


# ── producers ──


class ProducerRow(NamedTuple):
    """The state of a producer in a log.

    ``batches`` have base sequence, last sequence and base offset, oldest first.
    ``first_open`` is the first offset of its open transaction; -1 if none is open, and in what a commit stores.
    """

    producer_id: int
    epoch: int
    is_whole: bool
    batches: tuple[tuple[int, int, int], ...]
    last_timestamp_ms: int
    first_open: int = -1


class AbortedFound(NamedTuple):
    """Aborted transactions, sorted by first offset, and the log at that moment.

    Those before ``log.log_start`` are missing.
    """

    log: LogRow
    transactions: Sequence[AbortedTransaction]


# ── upkeep (T3–T5) ──


class Retained(NamedTuple):
    """The result of retention.

    ``has_more``: it stopped at ``RUNS_DELETED_MAX``; call again.
    """

    log_start: int
    runs_deleted: int
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """Runs of a log without a gap between them, to be copied into one object."""

    log: LogRow
    runs: Sequence[RunRead]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedObject:
    """The object of a merge; ``sparse_index`` is kept in its row and given to readers.

    With ``inline`` its bytes are stored by the commit of the merge, otherwise they are uploaded. ``cleaned_until``
    and ``keys`` are those of ``RunRead``. ``gone_markers`` are the offsets of markers of aborts that a pass of
    compaction has removed; the log forgets these transactions. ``keeps_claim``: the pass goes on with other runs.
    """

    key: str
    uploader: UUID
    size: int
    position: int
    length: int
    max_timestamp: int
    sparse_index: bytes
    inline: Buffer | None = None
    cleaned_until: int = 0
    keys: ByteSpan | None = None
    gone_markers: Sequence[int] = ()
    keeps_claim: bool = False

    @property
    def store(self) -> StoreKind:
        return StoreKind.OBJECTS if self.inline is None else StoreKind.INLINE


# ── compaction ──

# The most runs of a log that a pass plans or a read by key looks at. With objects of 64 MiB that is a terabyte.
RUNS_PLANNED_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirt:
    """The dirty part of a log.

    ``first_dirty`` is where the next pass begins to map keys; ``clean_bytes`` are those before it.
    ``dirty_since_ms`` is the time of the oldest dirty run, None if there is none or a transaction is open in it; it
    is compared with ``now_ms``.
    """

    log: LogRow
    first_dirty: int
    clean_bytes: int
    dirty_since_ms: int | None
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """A log claimed for a pass of compaction, with its runs from the log start on.

    They have no sparse indexes. ``now_ms`` is the time of the metadata. ``aborted`` has every aborted
    transaction with batches in the runs before ``log.last_stable``.
    """

    log: LogRow
    first_dirty: int
    key_salt: bytes
    runs: Sequence[CommittedRun]
    now_ms: int
    aborted: Sequence[AbortedTransaction] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRuns:
    """Runs of a log without their sparse indexes, for reads by key.

    All key indexes use ``key_salt``. What is at or after ``stable_offset`` does not count: transactions were
    open there. ``aborted`` has every aborted transaction with batches in the runs before it. ``log`` is as new as
    what the runs say of compaction.
    """

    log: LogRow
    key_salt: bytes
    runs: Sequence[RunRead]
    stable_offset: int
    aborted: Sequence[AbortedTransaction] = ()


class Meta(Protocol):
    """Any call may raise ``MetaUnavailable``."""

    # ── logs ──

    async def create_logs(self, topic_id: UUID, partitions: int) -> list[LogRow]:
        """Return the logs of a topic's partitions 0 to ``partitions`` - 1; make those that are missing."""
        ...

    async def delete_logs(self, topic_id: UUID) -> None:
        """Delete the logs of a topic: commits and reads no longer find them.

        Their rows are purged later.
        """
        ...

    async def log_rows(self, log_ids: Sequence[int]) -> dict[int, LogRow]:
        """Return the logs as of now, with all earlier commits; those that were deleted are missing."""
        ...

    async def moved_logs(self, known: Sequence[KnownLog]) -> dict[int, LogRow]:
        """Return the logs that are no longer as they are known, as of now, with all earlier commits.

        Those that were deleted are missing.

        One query: the poll for news of other brokers, and the refresh of an end. Mostly nothing has moved, and rows
        that do not come cost a broker nothing.
        """
        ...

    # ── T1 ──

    async def commit_objects(
        self, objects: Sequence[ObjectWrite], *, computed: CommitAnswer | None = None
    ) -> CommitAnswer:
        """Give the batches of these objects their offsets, all or none, in order; return what became of each.

        A batch that is refused or a duplicate takes no offsets, and splits its run. A transactional batch opens
        a transaction of its producer in its log, and a marker ends it; the markers of one object take effect
        together, in all of its logs. After ``CommitUnknown``
        the same objects are given again, with its answer as ``computed``: it is returned if they are committed,
        otherwise they are committed now.

        Raises:
            CommitUnknown: it is not known whether they are committed.
            ObjectFenced: some are fenced; none is committed, and none ever will be under these keys.
        """
        ...

    # ── copies of a mirror ──

    async def skip_copies(self, log_id: int, *, expected_end: int, offset: int) -> LogRow | None:
        """Begin a copy that ends at ``expected_end`` at ``offset`` anew, and forget all that is before; return the log.

        It is unchanged if it ends elsewhere, or takes no copies any more. None if the log was deleted.
        """
        ...

    async def end_copies(self, log_ids: Sequence[int]) -> dict[int, LogRow]:
        """Accept no copies in these logs from now on; return those that were not deleted, as they are then.

        Leader epochs of the next history are above all of theirs.
        """
        ...

    async def forget_producers(self, log_id: int) -> None:
        """Forget the producers that a log knows, all of which have no transaction open in it."""
        ...

    # ── T2 ──

    async def runs(self, wanted: Sequence[RunsWanted]) -> dict[int, RunsFound]:
        """Plan reads of several logs, each at most once; those that were deleted are missing.

        A plan has at most ``RUNS_READ_MAX`` runs of a log.
        """
        ...

    async def run_at_time(self, log_id: int, timestamp: int) -> RunRead | None:
        """Return the first run with a record of ``timestamp`` or later."""
        ...

    async def newest_run(self, log_id: int, from_offset: int) -> RunRead | None:
        """Return the first run that has the newest timestamp of a log.

        Of the runs that begin at ``from_offset`` or later.

        In the first run of a log, the record with that timestamp may be deleted.
        """
        ...

    # ── producers ──

    async def producers(self, log_id: int) -> list[ProducerRow]:
        """Return the producers that a log knows, by id."""
        ...

    async def expire_producers(self, idle_s: float) -> int:
        """Forget producers whose last batch is older, and that have no transaction open.

        When those with a name were used last is noted, because their names are kept for longer.
        At most ``ROWS_MAX``. Return how many.
        """
        ...

    # ── transactions ──

    async def aborted(self, log_id: int, offset: int, end_offset: int) -> AbortedFound | None:
        """Return the aborted transactions that overlap these offsets.

        None at or after the last stable offset. Return None if the log was deleted.
        """
        ...

    # ── T4: retention, DeleteRecords, deletion of topics ──

    async def delete_records(self, log_id: int, before_offset: int) -> LogRow | None:
        """Raise the log start to ``before_offset``, at most to the log end; None if the log was deleted.

        It holds when this returns. Runs before it are deleted here and by ``retain``.
        """
        ...

    async def expiring(self, kept: Sequence[KeptLog]) -> list[int]:
        """Return the ids of the logs of which ``retain`` would delete something now.

        One query for many logs, without locks: most have nothing to delete.
        """
        ...

    async def retain(
        self, log_id: int, *, retention_s: float | None, retention_bytes: int | None
    ) -> Retained | None:
        """Delete the oldest runs.

        Those before the log start, those all of whose records are older than
        ``retention_s``, and those without which the log still has ``retention_bytes``. None: no limit.

        Return None if the log was deleted.
        """
        ...

    async def purge(self) -> int:
        """Delete up to ``ROWS_MAX`` runs of deleted logs, and logs without runs.

        Return how many rows; 0: done.
        """
        ...

    # ── T5: merging ──

    async def plan_merge(
        self, *, claim_s: float, min_bytes: int, min_age_s: float, max_bytes: int
    ) -> MergePlan | None:
        """Claim a log that needs merging; return its oldest unmerged runs.

        They have up to ``max_bytes``.

        It needs merging with ``min_bytes`` unmerged bytes, or if they are older than ``min_age_s``. The claim keeps
        others from the same work for ``claim_s``; nothing else rests on it. None: no log needs merging.
        """
        ...

    async def commit_merge(self, plan: MergePlan, merged: MergedObject) -> bool:
        """Replace the plan's runs by the merged object, if all are still there.

        If not, return False: the object is fenced, and its bytes are deleted with the dead objects.
        """
        ...

    # ── compaction ──

    async def dirt(self, log_ids: Sequence[int]) -> dict[int, LogDirt]:
        """Return how dirty logs are; those that were deleted are missing."""
        ...

    async def plan_cleaning(self, log_id: int, *, claim_s: float) -> CleaningPlan | None:
        """Claim a log for a pass of compaction, as ``plan_merge`` does; None if it is claimed or deleted.

        The pass puts its objects in place with ``commit_merge``.
        """
        ...

    async def extend_claim(self, log_id: int, *, claim_s: float) -> None:
        """Let a claim last for ``claim_s`` from now on."""
        ...

    async def end_cleaning(self, log_id: int, first_dirty: int | None) -> None:
        """Note where the next pass begins, unless it is known to begin later; give the claim back.

        None: the pass did not get to its end.
        """
        ...

    async def key_salt(self, log_id: int) -> bytes:
        """Return the salt for the key indexes of a log, always the same."""
        ...

    async def key_runs(self, log_id: int, offset: int) -> KeyRuns | None:
        """Return the runs of a log that end at or after ``offset`` and its log start; None if it was deleted.

        At most ``RUNS_PLANNED_MAX``.
        """
        ...

    # ── T3 and garbage collection ──

    async def heartbeat(self, uploader: UUID) -> None:
        """Note that an incarnation is alive. It must, before it uploads its first object."""
        ...

    async def note_uploaders(self, uploaders: Sequence[UUID]) -> None:
        """Note incarnations of which objects were found. Those that are known stay as they are."""
        ...

    async def silent_uploaders(self, silent_s: float) -> list[SilentUploader]:
        """Return incarnations without a heartbeat for so long, at most ``ROWS_MAX``.

        Those whose objects were listed last come last. List their objects, ``fence`` them, then ``note_look``.
        """
        ...

    async def note_look(self, uploader: UUID, forget_s: float) -> None:
        """Note that all objects of an incarnation were listed and fenced.

        Forget it if it has been silent for ``forget_s``.
        """
        ...

    async def fence(self, uploader: UUID, keys: Sequence[str]) -> list[str]:
        """Fence those of these objects that are not committed.

        Return all of them that are fenced: their bytes may go. Bytes of a dead object that were deleted before are
        there again if the network held its upload up; they are deleted once more.
        """
        ...

    async def sweep(self) -> int:
        """Look at up to ``ROWS_MAX`` objects that lost a run; those without any become dead.

        Return how many it looked at.
        """
        ...

    async def dead_objects(self, dead_s: float) -> list[ObjectRef]:
        """Return dead or fenced objects of that age with bytes, at most ``ROWS_MAX``."""
        ...

    async def bytes_deleted(self, keys: Sequence[str]) -> None:
        """Note that the bytes of dead or fenced objects are deleted."""
        ...

    async def forget_objects(self, dead_s: float) -> int:
        """Forget dead or fenced objects of that age without bytes; return how many.

        At most ``ROWS_MAX`` are forgotten.

        Until then a late commit of them is refused, so it must be longer than any broker holds an object.
        """
        ...

    async def close(self) -> None: ...
