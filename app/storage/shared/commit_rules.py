"""Decides a commit: the offsets of batches, and which are refused or duplicates.

Pure. The caller has locked the logs and read what they know of the producers; it stores what ``Decision``
has. PostgreSQL and the model of the tests thus follow one set of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stele.wire.control_record import MarkerType
from stele.wire.record_batch import BatchHeader

from ...errors import (
    InvalidRequest,
    InvalidTransactionState,
    ProducerFenced,
    SteleError,
    TransactionAbortable,
    UnexpectedEnd,
    UnknownProducerMapping,
)
from ..engine import AbortedTransaction
from ..sequences import ProducerSequences, ProducerView, StoredBatch, check_batch, sequences_after
from ..topic_partition import TopicPartition
from .meta import (
    BatchPlace,
    CommitAnswer,
    CopyPhase,
    ExpectedEnd,
    LogRow,
    ObjectWrite,
    ProducerRow,
    RunPlace,
    RunWrite,
    TransactionClaim,
)


class ProducerKey(NamedTuple):
    log_id: int
    producer_id: int


class NewRun(NamedTuple):
    """A row to insert; ``object_at`` is the object's place among those of the commit."""

    log_id: int
    base_offset: int
    last_offset: int
    object_at: int
    position: int
    length: int
    max_timestamp: int
    cleaned_until: int = 0


@dataclass(slots=True, kw_only=True)
class Decision:
    """The rows that a commit stores, and its result.

    ``logs`` and ``producers`` are those that changed.
    ``opened`` has the first offsets of transactions that are now open and were not, or not from there; ``closed``
    those that are open no longer; ``aborted`` the transactions that markers aborted, with their logs. ``begun`` are
    the producers whose transactional ids have a transaction open from now on.
    """

    answer: CommitAnswer
    runs: list[NewRun]
    logs: dict[int, LogRow]
    producers: dict[ProducerKey, ProducerRow]
    opened: dict[ProducerKey, int]
    closed: list[ProducerKey]
    aborted: list[tuple[int, AbortedTransaction]]
    begun: list[int]


@dataclass(frozen=True, slots=True)
class IdRow:
    """A transactional id, as a commit judges its batches.

    ``partitions`` were added to the open transaction by name.
    """

    transactional_id: str
    epoch: int
    is_ongoing: bool
    partitions: frozenset[TopicPartition]


def log_ids(objects: Sequence[ObjectWrite]) -> list[int]:
    """Return the logs that a commit locks, in the order in which it must."""
    return sorted({run.log_id for written in objects for run in written.runs})


def producer_keys(objects: Sequence[ObjectWrite]) -> list[ProducerKey]:
    """Return the producers of which a commit must know."""
    return sorted(
        {
            ProducerKey(run.log_id, header.producer_id)
            for written in objects
            for run in written.runs
            for header in run.headers
            if header.has_producer_id
        }
    )


def logs_of_producers(objects: Sequence[ObjectWrite]) -> list[int]:
    """Return the logs of whose open transactions a commit must know."""
    return sorted({key.log_id for key in producer_keys(objects)})


def claimants(objects: Sequence[ObjectWrite]) -> list[int]:
    """Return the producers whose transactional ids a commit locks, in order."""
    return sorted(
        {
            run.headers[index].producer_id
            for written in objects
            for run in written.runs
            for index in run.claims
        }
    )


class _Ids:
    """The transactional ids by producer id, while batches are placed."""

    def __init__(self, rows: Mapping[int, IdRow]) -> None:
        self._rows = rows
        self.begun: set[int] = set()

    def check(self, header: BatchHeader, claim: TransactionClaim, *, is_open_here: bool) -> None:
        """Allow a batch, which may begin the transaction.

        Raises ``UnknownProducerMapping``, ``ProducerFenced``, ``InvalidTransactionState``,
        ``TransactionAbortable``: the same as the coordinator of one broker (KIP-98, KIP-890).
        """
        producer_id, produce = header.producer_id, claim.produce
        row = self._rows.get(producer_id)
        if row is None or row.transactional_id != produce.transactional_id:
            raise UnknownProducerMapping(produce.transactional_id, producer_id=producer_id)
        if header.producer_epoch != row.epoch:
            raise ProducerFenced(
                producer_id=producer_id, epoch=header.producer_epoch, current_epoch=row.epoch
            )
        if row.is_ongoing and (is_open_here or claim.topic_partition in row.partitions):
            return
        if produce.adds_partitions:
            if not row.is_ongoing:
                self.begun.add(producer_id)
            return
        reason = f"partition {claim.topic_partition} is not in the transaction; add it first"
        if produce.is_abortable_known:
            raise TransactionAbortable(produce.transactional_id, reason)
        raise InvalidTransactionState(produce.transactional_id, reason)


def copy_ended(topic_partition: TopicPartition) -> InvalidRequest:
    """Return the error of a mirror that writes to what was its copy."""
    return InvalidRequest(
        f"{topic_partition} is no copy of a mirror any more, or is being promoted; nothing was stored"
    )


@dataclass(slots=True)
class _Log:
    """A log while batches are placed in it."""

    row: LogRow
    next_offset: int
    named_epochs: Mapping[int, int]
    ids: _Ids
    added_bytes: int = 0
    known: dict[int, ProducerSequences] = field(default_factory=dict[int, ProducerSequences])
    changed: set[int] = field(default_factory=set[int])
    # First offsets by producer: of the transactions that are open, and of those that were.
    opened: dict[int, int] = field(default_factory=dict[int, int])
    opened_before: Mapping[int, int] = field(default_factory=dict[int, int])
    aborted: list[AbortedTransaction] = field(default_factory=list[AbortedTransaction])
    # The leader epochs of the batches that were copied now, with their first offsets.
    copied_epochs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    has_copies: bool = False

    def place_copy(self, header: BatchHeader, marker: MarkerType | None, expected: ExpectedEnd) -> BatchPlace:
        """Store a batch at the offset that it has, or say why not; no producer is asked for its state."""
        if self.row.copy_phase is CopyPhase.ENDED:
            return BatchPlace(-1, error=copy_ended(expected.topic_partition))
        try:
            expected.check(self.next_offset)
        except UnexpectedEnd as error:
            return BatchPlace(-1, error=error)
        hole = header.base_offset - self.next_offset
        if header.has_producer_id:
            if header.is_control:
                if marker is not None:
                    self._end(header, header.base_offset, is_abort=marker is MarkerType.ABORT)
            elif header.base_sequence >= 0:
                self._note(header)
        known = self.copied_epochs or self.row.copied_epochs
        if header.partition_leader_epoch > (known[-1][0] if known else -1):
            self.copied_epochs.append((header.partition_leader_epoch, header.base_offset))
        self.has_copies = True
        self.next_offset = header.next_offset
        self.added_bytes += header.size
        return BatchPlace(header.base_offset, hole=hole)

    def _end(self, header: BatchHeader, offset: int, *, is_abort: bool) -> None:
        """Note the marker at ``offset``, of an epoch that is not over."""
        producer_id = header.producer_id
        known = self.known.get(producer_id)
        if known is None or known.epoch < header.producer_epoch:
            # After a marker with a new epoch, the producer begins with sequence 0.
            self.known[producer_id] = ProducerSequences(header.producer_epoch, is_whole=known is not None)
            self.changed.add(producer_id)
        first_offset = self.opened.pop(producer_id, None)
        if is_abort and first_offset is not None:
            self.aborted.append(AbortedTransaction(producer_id, first_offset, offset))

    def _note(self, header: BatchHeader) -> None:
        """Note a batch of a producer that is stored at its base offset."""
        producer_id = header.producer_id
        self.known[producer_id] = sequences_after(self.known.get(producer_id), header)
        self.changed.add(producer_id)
        if header.is_transactional:
            self.opened.setdefault(producer_id, header.base_offset)

    def place(
        self,
        header: BatchHeader,
        *,
        is_abort: bool,
        needs_state: bool,
        claim: TransactionClaim | None,
        expected: ExpectedEnd | None,
    ) -> BatchPlace:
        """Give a batch its offsets, or say why not."""
        base_offset = self.next_offset
        producer_id = header.producer_id
        if self.has_copies or self.row.copy_phase is CopyPhase.COPIED:
            return BatchPlace(
                -1, error=InvalidRequest("the partition is a copy of a mirror; nothing was stored")
            )
        if header.is_control and header.has_producer_id:
            known = self.known.get(producer_id)
            if known is not None and header.producer_epoch < known.epoch:
                fenced = ProducerFenced(
                    producer_id=producer_id, epoch=header.producer_epoch, current_epoch=known.epoch
                )
                return BatchPlace(-1, error=fenced)
            self._end(header, base_offset, is_abort=is_abort)
        elif header.has_producer_id:
            known = self.known.get(producer_id)
            try:
                stored = check_batch(
                    header,
                    known,
                    has_open_transaction=producer_id in self.opened,
                    needs_state=needs_state,
                    newest_epoch=self.named_epochs.get(producer_id),
                )
                if stored is None and expected is not None:
                    expected.check(base_offset)
                if stored is None and claim is not None:
                    self.ids.check(header, claim, is_open_here=producer_id in self.opened)
            except SteleError as error:
                return BatchPlace(-1, error=error)
            if stored is not None:
                return BatchPlace(stored.base_offset, is_duplicate=True)
            self._note(replace(header, base_offset=base_offset))
        elif expected is not None:
            try:
                expected.check(base_offset)
            except UnexpectedEnd as error:
                return BatchPlace(-1, error=error)
        self.next_offset += header.last_offset_delta + 1
        self.added_bytes += header.size
        return BatchPlace(base_offset)

    @property
    def after(self) -> LogRow:
        return replace(
            self.row,
            next_offset=self.next_offset,
            size_bytes=self.row.size_bytes + self.added_bytes,
            unmerged_bytes=self.row.unmerged_bytes + self.added_bytes,
            first_open=self._first_open,
            last_aborted=self.aborted[-1].last_offset if self.aborted else self.row.last_aborted,
            copy_phase=CopyPhase.COPIED if self.has_copies else self.row.copy_phase,
            copied_epochs=self._copied_epochs,
        )

    @property
    def _copied_epochs(self) -> tuple[tuple[int, int], ...]:
        """Return the leader epochs of copies that are not all deleted."""
        if not self.copied_epochs:
            return self.row.copied_epochs
        epochs = [*self.row.copied_epochs, *self.copied_epochs]
        first = max((at for at, (_, start) in enumerate(epochs) if start <= self.row.log_start), default=0)
        return tuple(epochs[first:])

    @property
    def _first_open(self) -> int | None:
        if self.opened == self.opened_before:
            return self.row.first_open
        return min(self.opened.values(), default=None)


def decide_commit(
    objects: Sequence[ObjectWrite],
    logs: Mapping[int, LogRow],
    producers: Mapping[ProducerKey, ProducerRow],
    opened: Mapping[ProducerKey, int],
    named_epochs: Mapping[int, int] | None = None,
    ids: Mapping[int, IdRow] | None = None,
) -> Decision:
    """Place all batches of ``objects`` in order.

    ``logs`` lacks those that were deleted. ``opened`` has the first offsets of the open transactions in the
    logs of producers, ``named_epochs`` the newest epochs of named producers, ``ids`` the transactional
    ids of ``claimants``, both by producer id.
    """
    epochs: Mapping[int, int] = {} if named_epochs is None else named_epochs
    claimed = _Ids({} if ids is None else ids)
    open_logs = {log_id: _Log(row, row.next_offset, epochs, claimed) for log_id, row in logs.items()}
    for key, row in producers.items():
        if key.log_id in open_logs:
            open_logs[key.log_id].known[key.producer_id] = sequences_of(row)
    for key, first_offset in opened.items():
        if key.log_id in open_logs:
            open_logs[key.log_id].opened[key.producer_id] = first_offset
    for log in open_logs.values():
        log.opened_before = dict(log.opened)
    runs: list[NewRun] = []
    placed: list[list[tuple[RunWrite, list[BatchPlace]]]] = []
    for object_at, written in enumerate(objects):
        placed.append([])
        for run in written.runs:
            log = open_logs.get(run.log_id)
            places = [] if log is None else _places(log, run)
            placed[-1].append((run, places))
            runs += _rows(object_at, run, places)
    after = {log_id: log.after for log_id, log in open_logs.items()}
    return Decision(
        answer=[
            [RunPlace(places=places, log=after.get(run.log_id)) for run, places in of_object]
            for of_object in placed
        ],
        runs=runs,
        logs={log_id: row for log_id, row in after.items() if row != logs[log_id]},
        producers={
            ProducerKey(log_id, producer_id): row_of(producer_id, log.known[producer_id])
            for log_id, log in open_logs.items()
            for producer_id in sorted(log.changed)
        },
        opened={
            ProducerKey(log_id, producer_id): first_offset
            for log_id, log in open_logs.items()
            for producer_id, first_offset in log.opened.items()
            if log.opened_before.get(producer_id) != first_offset
        },
        closed=[
            ProducerKey(log_id, producer_id)
            for log_id, log in open_logs.items()
            for producer_id in log.opened_before
            if producer_id not in log.opened
        ],
        aborted=[(log_id, aborted) for log_id, log in open_logs.items() for aborted in log.aborted],
        begun=sorted(claimed.begun),
    )


def _places(log: _Log, run: RunWrite) -> list[BatchPlace]:
    return [
        log.place_copy(header, run.copies[index], run.expected_ends[index])
        if index in run.copies
        else log.place(
            header,
            is_abort=index in run.aborts,
            needs_state=index in run.needs_state,
            claim=run.claims.get(index),
            expected=run.expected_ends.get(index),
        )
        for index, header in enumerate(run.headers)
    ]


def _rows(object_at: int, run: RunWrite, places: Iterable[BatchPlace]) -> list[NewRun]:
    """Return the rows of one run: one, unless batches in between got no new offsets, or copies are beside others."""
    rows: list[NewRun] = []
    position = run.position
    is_open = is_of_copies = False
    # A deleted log has no places.
    for index, (header, place) in enumerate(zip(run.headers, places, strict=False)):
        if place.error is not None or place.is_duplicate:
            is_open = False
        else:
            last_offset = place.base_offset + header.last_offset_delta
            is_copy = index in run.copies
            cleaned_until = last_offset + 1 if is_copy else 0
            if is_open and is_copy == is_of_copies:
                row = rows[-1]
                rows[-1] = row._replace(
                    last_offset=last_offset,
                    length=row.length + header.size,
                    max_timestamp=max(row.max_timestamp, header.max_timestamp),
                    cleaned_until=cleaned_until,
                )
            else:
                rows.append(
                    NewRun(
                        run.log_id,
                        place.base_offset - place.hole,
                        last_offset,
                        object_at,
                        position,
                        header.size,
                        header.max_timestamp,
                        cleaned_until,
                    )
                )
            is_open, is_of_copies = True, is_copy
        position += header.size
    return rows


def sequences_of(row: ProducerRow) -> ProducerSequences:
    """Return what the rules of sequences work on."""
    known = ProducerSequences(row.epoch, is_whole=row.is_whole)
    known.batches.extend(StoredBatch(*batch) for batch in row.batches)
    return known


def row_of(producer_id: int, known: ProducerSequences) -> ProducerRow:
    """Return what is stored of a producer; the metadata adds the time."""
    batches = tuple((batch.base_sequence, batch.last_sequence, batch.base_offset) for batch in known.batches)
    return ProducerRow(producer_id, known.epoch, known.is_whole, batches, -1)


def view_of(row: ProducerRow) -> ProducerView:
    """Return a producer as operators see it."""
    last = row.batches[-1] if row.batches else None
    if last is None:
        last_sequence = last_offset = -1
    else:
        base_sequence, last_sequence, base_offset = last
        last_offset = base_offset + (last_sequence - base_sequence) % 2**31
    return ProducerView(
        producer_id=row.producer_id,
        epoch=row.epoch,
        last_sequence=last_sequence,
        last_offset=last_offset,
        last_timestamp_ms=row.last_timestamp_ms,
        transaction_start_offset=row.first_open,
    )
